// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks as threads that join, exchange blobs and leave: a bootstrap from
 * beginning to end, without a communicator.
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
    int gathers;       /* exchanges that the rank shall make */
    const char *abort; /* abort with this text instead of the first exchange */

    enum shunt_status status; /* of the first call that failed */
    char text[512];
    unsigned char key[32];
    int done;       /* exchanges with the right result */
    double seconds; /* from joining to leaving */
    pthread_t thread;
};

/* Starts a rank; its results may be read after birth_join(). */
void birth_start(struct birth_rank *rank);
void birth_join(struct birth_rank *rank);

/* Runs the first `count` of `nranks` ranks at once. Each makes one exchange. */
void birth_run(struct birth_rank *ranks, const struct shunt_id *id, int count,
               int nranks, double timeout);

#endif
