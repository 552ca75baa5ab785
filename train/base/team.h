// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks that train together: a communicator, whose errors are turned into
 * train_error_text() and whose collectives are timed.
 *
 * Calls that return int return 0, or -1 with train_error_text(). They are
 * collective, except team_check().
 */
#ifndef TRAIN_TEAM_H
#define TRAIN_TEAM_H

#include <shunt/shunt.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/base/clock.h"
#include "train/base/mpi_calls.h"

struct team {
    struct shunt_comm *comm;
    int rank;
    int size;
    char where[96];     /* which ranks these are, for error texts; "" for all
                           ranks */
    struct spent spent; /* time in collectives since the caller cleared the
                           field */
    /* Not NULL: MPI does team_gather...(), and sends gradients and rows. */
    const struct mpi_calls *mpi;
    double mpi_bytes; /* bytes that MPI sent from this rank to other nodes,
                         since the caller cleared the field */
};

/* Turns a status into 0 or -1. `what`: what was being done, for the error
 * text. */
int team_check(const struct team *team, enum shunt_status status,
               const char *what);

/* Allocates zeroed memory that peers can access directly. The communicator
 * frees it. */
int team_memory(struct team *team, size_t bytes, void **memory);

int team_broadcast(struct team *team, void *data, size_t bytes, int root);
/* all (size, bytes): out, every rank's `own`, in rank order. */
int team_gather(struct team *team, const void *own, void *all, size_t bytes);
/* counts (size): how many doubles each rank sends. */
int team_gather_doubles(struct team *team, const double *own, size_t count,
                        double *all, const size_t *counts);
/* vector: this rank's slice, [begin[rank], begin[rank + 1]), is sent to all
 * ranks; the other slices are filled in. */
int team_gather_slices(struct team *team, float *vector, const size_t *begin);

/* Is `rank` on another node than this rank? Local. */
bool team_is_far(const struct team *team, int rank);
/* The number of nodes, if ranks are on them in order and equally many on each;
 * else 0. Local. */
size_t team_nodes(const struct team *team);

/* Returns 0 if every rank passed ok = 1. Else returns -1 on all ranks, with an
 * error text that names the first rank that did not: "<what> on rank 3: <its
 * train_error_text()>". */
int team_agree(struct team *team, int ok, const char *what);

#endif
