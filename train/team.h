// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks that train together: a communicator, with errors as the rest of
 * this program has them and a clock on the time spent in collectives.
 *
 * All calls are collective and return 0, or -1 with train_error_text().
 */
#ifndef TRAIN_TEAM_H
#define TRAIN_TEAM_H

#include <shunt/shunt.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/clock.h"
#include "train/mpi_calls.h"

struct team {
    struct shunt_comm *comm;
    int rank;
    int size;
    char where[96];     /* for errors of a part of the ranks: which these are */
    struct spent spent; /* in collectives, since the caller last cleared it */
    /* Not NULL: MPI carries what team_gather...() gather, gradients, and rows */
    const struct mpi_calls *mpi;
    double mpi_bytes; /* that it sent from this rank to other nodes, likewise */
};

/* Turns a status into 0 or -1; `what` was being done. */
int team_check(const struct team *team, enum shunt_status status,
               const char *what);

/* Memory that peers can reach directly; zeroed. Freed with the communicator. */
int team_memory(struct team *team, size_t bytes, void **memory);

int team_broadcast(struct team *team, void *data, size_t bytes, int root);
/* all (size, bytes): what each rank gave, by rank. */
int team_gather(struct team *team, const void *own, void *all, size_t bytes);
/* counts (size): what each rank gives. */
int team_gather_doubles(struct team *team, const double *own, size_t count,
                        double *all, const size_t *counts);
/* vector: this rank's slice [begin[rank], begin[rank + 1]) in place; all
 * others' are filled in. */
int team_gather_slices(struct team *team, float *vector, const size_t *begin);

/* Is it on another node than this rank? */
bool team_is_far(const struct team *team, int rank);
/* How many nodes the ranks are on, if in order and as many on each; else 0. */
size_t team_nodes(const struct team *team);

/* 0 if every rank gave ok = 1; else -1 everywhere, naming the first that did
 * not: "<what> on rank 3: <its train_error_text()>". */
int team_agree(struct team *team, int ok, const char *what);

#endif
