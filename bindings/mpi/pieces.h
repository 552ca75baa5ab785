// SPDX-License-Identifier: Apache-2.0
/*
 * A piece: some elements of one datatype at one address, as MPI's arguments
 * describe them. Inside a piece data may lie anyhow; Shunt wants bytes.
 */
#ifndef SHUNTI_MPI_PIECES_H
#define SHUNTI_MPI_PIECES_H

#include "bindings/mpi/dropin.h"

/* `count` elements of `type` at `buf`. */
struct shunti_mpi_piece {
    const void *buf;
    long long count;
    MPI_Datatype type;
    const struct shunti_mpi_type *facts;
};

/* Find its facts. False: it is a bad argument. */
bool shunti_mpi_piece_good(struct shunti_mpi_piece *p);

static inline size_t shunti_mpi_piece_bytes(const struct shunti_mpi_piece *p)
{
    return (size_t)p->count * p->facts->size;
}

/* Where its element `n` is. */
static inline const void *shunti_mpi_element(const struct shunti_mpi_piece *p,
                                             long long n)
{
    return (const char *)p->buf + (MPI_Aint)n * p->facts->extent;
}

/* What is received into is const in a struct that also describes what is
 * sent. */
static inline void *shunti_mpi_writable(const void *at)
{
    return (void *)(uintptr_t)at;
}

/* What Shunt sends: `count` elements from the `first` on, where they are or
 * packed into state->send. *rc: MPI_SUCCESS, or an error that the others have
 * been told of. */
const void *shunti_mpi_piece_packed(const struct shunti_mpi_piece *p,
                                    long long first, long long count,
                                    struct shunti_mpi_comm *state,
                                    MPI_Comm comm, enum shunti_mpi_call call,
                                    int *rc);

/* What this rank gives must be what it takes of itself, and not lie there, at
 * `own`. MPI_SUCCESS, or the error. */
int shunti_mpi_pieces_compare(struct shunti_mpi_comm *state,
                              const struct shunti_mpi_piece *send,
                              const struct shunti_mpi_piece *recv,
                              const void *own, MPI_Comm comm,
                              enum shunti_mpi_call call);

#endif
