// SPDX-License-Identifier: Apache-2.0
/* An all-to-all whose result is checked: what programs make that are about how calls
 * end, not about what they move. */
#ifndef SHUNT_TEST_SWAP_H
#define SHUNT_TEST_SWAP_H

#include <stddef.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

struct swap {
    size_t bytes; /* of a block */
    unsigned char *send, *recv;
    struct shunt_request *request;
};

int swap_init(struct swap *swap, const struct rank *self, size_t bytes);
void swap_finish(struct swap *swap);

/* What is sent differs by `round`; nothing has been received. */
void swap_fill(struct swap *swap, const struct rank *self, int round);
/* Fill, and start or call. */
int swap_start(struct swap *swap, const struct rank *self,
               struct shunt_comm *comm, int round);
int swap_block(struct swap *swap, const struct rank *self,
               struct shunt_comm *comm, int round);
/* When it has ended. */
int swap_check(const struct swap *swap, const struct rank *self, int round);

#endif
