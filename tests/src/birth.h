// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks as threads that join, exchange blobs and leave: the bootstrap's life,
 * without a communicator on top.
 */

#ifndef SHUNT_TEST_BIRTH_H
#define SHUNT_TEST_BIRTH_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "src/boot/bootstrap.h"

#define BIRTH_MAX 16

struct birth_rank {
    struct shunt_id id;
    int nranks, rank;
    double timeout;
    int gathers;       /* exchanges to make */
    const char *abort; /* instead of the first exchange */

    enum shunt_status status; /* of the first call that failed */
    char text[512];
    unsigned char key[32];
    int done;       /* exchanges that were right */
    double seconds; /* it all took */
    pthread_t thread;
};

/* Starts a rank; its results may be read after birth_join(). */
void birth_start(struct birth_rank *rank);
void birth_join(struct birth_rank *rank);

/* `count` ranks 0, 1, ... of `nranks` at once, one exchange each. */
void birth_run(struct birth_rank *ranks, const struct shunt_id *id, int count,
               int nranks, double timeout);

#endif
