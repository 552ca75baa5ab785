// SPDX-License-Identifier: Apache-2.0
/* An all-to-all with a check of its result. It is for tests in which only the
 * end of a call matters, not its data. */
#ifndef SHUNT_TEST_SWAP_H
#define SHUNT_TEST_SWAP_H

#include <stddef.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

struct swap {
    size_t bytes; /* bytes of a block */
    unsigned char *send, *recv;
    struct shunt_request *request;
};

int swap_init(struct swap *swap, const struct rank *self, size_t bytes);
void swap_finish(struct swap *swap);

/* Fills the send buffer by `round`, and clears the receive buffer. */
void swap_fill(struct swap *swap, const struct rank *self, int round);
/* swap_fill(), and start the call, or make it blocking. */
int swap_start(struct swap *swap, const struct rank *self,
               struct shunt_comm *comm, int round);
int swap_block(struct swap *swap, const struct rank *self,
               struct shunt_comm *comm, int round);
/* Checks the result, after the call has ended. */
int swap_check(const struct swap *swap, const struct rank *self, int round);

#endif
