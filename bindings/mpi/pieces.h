// SPDX-License-Identifier: Apache-2.0
/*
 * A piece: some elements of one datatype at one address, as MPI's arguments
 * describe them. Its data need not be contiguous; Shunt needs bytes.
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

/* Look up the properties of the piece's type. Returns false if the type or the
 * count is bad. */
bool shunti_mpi_piece_good(struct shunti_mpi_piece *p);

static inline size_t shunti_mpi_piece_bytes(const struct shunti_mpi_piece *p)
{
    return (size_t)p->count * p->facts->size;
}

/* Returns the address of element `n` of the piece. */
static inline const void *shunti_mpi_element(const struct shunti_mpi_piece *p,
                                             long long n)
{
    return (const char *)p->buf + (MPI_Aint)n * p->facts->extent;
}

/* Remove the const of a receive buffer. (The struct has it because it also
 * describes send buffers.) */
static inline void *shunti_mpi_writable(const void *at)
{
    return (void *)(uintptr_t)at;
}

/* Returns the bytes that Shunt sends: `count` elements from element `first` on,
 * in place or packed into state->send. *rc: MPI_SUCCESS, or an error of which
 * the other ranks have been notified. */
const void *shunti_mpi_piece_packed(const struct shunti_mpi_piece *p,
                                    long long first, long long count,
                                    struct shunti_mpi_comm *state,
                                    MPI_Comm comm, enum shunti_mpi_call call,
                                    int *rc);

/* Check that this rank sends itself as many bytes as it receives from itself,
 * and that these are not the same memory. `own` is the address at which this
 * rank receives its own piece. Returns MPI_SUCCESS, or the error. */
int shunti_mpi_pieces_compare(struct shunti_mpi_comm *state,
                              const struct shunti_mpi_piece *send,
                              const struct shunti_mpi_piece *recv,
                              const void *own, MPI_Comm comm,
                              enum shunti_mpi_call call);

#endif
