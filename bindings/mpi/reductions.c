// SPDX-License-Identifier: Apache-2.0
/*
 * The reductions: MPI_Allreduce(), MPI_Reduce_scatter(), _block().
 *
 * Sums, products, minima and maxima of integers of 1, 4 and 8 bytes and of
 * floating-point numbers of 4 and 8 bytes are served. The standard requires the
 * same operator and type on all ranks, so all ranks decide alike; types of the
 * same representation count as one (types.c).
 */
#include "bindings/mpi/dropin.h"

/* The checked arguments of a reduction. */
struct reduction {
    struct shunti_mpi_comm *state;
    const struct shunti_mpi_type *type;
    enum shunt_op op;
};

/* Check what all reductions have in common. Returns MPI_SUCCESS if `r` is
 * filled in and the call may be served, or SHUNTI_MPI_PASS. */
static int begin(struct reduction *r, enum shunti_mpi_call call,
                 MPI_Datatype type, MPI_Op op, const void *recvbuf,
                 MPI_Comm comm)
{
    r->state = shunti_mpi_state(comm, call);
    if (!r->state)
        return SHUNTI_MPI_PASS;
    r->op = shunti_mpi_op(op);
    if (!r->op && op != MPI_OP_NULL)
        return shunti_mpi_pass(r->state, call, SHUNTI_MPI_OPERATOR, 0);
    r->type = shunti_mpi_type(type);
    if (!r->op || !r->type || recvbuf == MPI_IN_PLACE)
        return shunti_mpi_refuse(r->state, comm, call);
    if (!r->type->dtype)
        return shunti_mpi_pass(r->state, call, SHUNTI_MPI_TYPE, 0);
    return MPI_SUCCESS;
}

static const void *input(const void *sendbuf)
{
    return sendbuf == MPI_IN_PLACE ? SHUNT_IN_PLACE : sendbuf;
}

/* --- MPI_Allreduce() ------------------------------------------------------ */

static int allreduce(const void *sendbuf, void *recvbuf, long long count,
                     MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    const enum shunti_mpi_call call = SHUNTI_MPI_ALLREDUCE;
    struct reduction r = {0};
    enum shunt_status st;
    size_t bytes;

    if (begin(&r, call, type, op, recvbuf, comm))
        return SHUNTI_MPI_PASS;
    if (count < 0)
        return shunti_mpi_refuse(r.state, comm, call);
    bytes = (size_t)count * r.type->size;
    if (!shunti_mpi_take(r.state, comm, call, bytes))
        return SHUNTI_MPI_PASS;
    if (bytes && shunti_mpi_aliased(sendbuf, recvbuf))
        return shunti_mpi_mistake(r.state, comm, call, MPI_ERR_BUFFER);
    st = shunt_allreduce(r.state->shunt, input(sendbuf), recvbuf, (size_t)count,
                         r.type->dtype, r.op);
    shunti_mpi_done(r.state, call, bytes);
    return shunti_mpi_error(comm, r.state, st);
}

SHUNTI_MPI_FLATTEN int shunti_mpi_allreduce(const void *sendbuf, void *recvbuf,
                                            int count, MPI_Datatype type,
                                            MPI_Op op, MPI_Comm comm)
{
    int rc = allreduce(sendbuf, recvbuf, count, type, op, comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Allreduce(sendbuf, recvbuf, count, type, op, comm)
               : rc;
}

/* --- MPI_Reduce_scatter_block() ------------------------------------------- */

static int reduce_scatter_block(const void *sendbuf, void *recvbuf,
                                long long count, MPI_Datatype type, MPI_Op op,
                                MPI_Comm comm)
{
    const enum shunti_mpi_call call = SHUNTI_MPI_REDUCE_SCATTER_BLOCK;
    struct reduction r = {0};
    enum shunt_status st;
    size_t bytes;

    if (begin(&r, call, type, op, recvbuf, comm))
        return SHUNTI_MPI_PASS;
    if (count < 0)
        return shunti_mpi_refuse(r.state, comm, call);
    bytes = (size_t)count * r.type->size * (size_t)r.state->size;
    if (!shunti_mpi_take(r.state, comm, call, bytes))
        return SHUNTI_MPI_PASS;
    if (bytes && shunti_mpi_aliased(sendbuf, recvbuf))
        return shunti_mpi_mistake(r.state, comm, call, MPI_ERR_BUFFER);
    st = shunt_reduce_scatter(r.state->shunt, input(sendbuf), recvbuf,
                              (size_t)count, r.type->dtype, r.op);
    shunti_mpi_done(r.state, call, bytes);
    return shunti_mpi_error(comm, r.state, st);
}

SHUNTI_MPI_FLATTEN int shunti_mpi_reduce_scatter_block(const void *sendbuf,
                                                       void *recvbuf,
                                                       int recvcount,
                                                       MPI_Datatype type,
                                                       MPI_Op op, MPI_Comm comm)
{
    int rc = reduce_scatter_block(sendbuf, recvbuf, recvcount, type, op, comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Reduce_scatter_block(sendbuf, recvbuf, recvcount, type,
                                           op, comm)
               : rc;
}

/* --- MPI_Reduce_scatter() ------------------------------------------------- */

/* Copy all counts to state->numbers. Returns false if a count is bad. */
static bool take_counts(struct shunti_mpi_comm *state,
                        struct shunti_mpi_list counts, size_t *sum)
{
    *sum = 0;
    for (int i = 0; i < state->size; i++) {
        long long count = shunti_mpi_item(counts, i);

        if (count < 0)
            return false;
        state->numbers[i] = (size_t)count;
        *sum += (size_t)count;
    }
    return true;
}

static int reduce_scatter(const void *sendbuf, void *recvbuf,
                          struct shunti_mpi_list counts, MPI_Datatype type,
                          MPI_Op op, MPI_Comm comm)
{
    const enum shunti_mpi_call call = SHUNTI_MPI_REDUCE_SCATTER;
    struct reduction r = {0};
    enum shunt_status st;
    size_t sum;

    if (begin(&r, call, type, op, recvbuf, comm))
        return SHUNTI_MPI_PASS;
    if (!counts.at || !take_counts(r.state, counts, &sum))
        return shunti_mpi_refuse(r.state, comm, call);
    if (!shunti_mpi_take(r.state, comm, call, sum * r.type->size))
        return SHUNTI_MPI_PASS;
    if (sum && shunti_mpi_aliased(sendbuf, recvbuf))
        return shunti_mpi_mistake(r.state, comm, call, MPI_ERR_BUFFER);
    st = shunt_reduce_scatterv(r.state->shunt, input(sendbuf), recvbuf,
                               r.state->numbers, r.type->dtype, r.op);
    shunti_mpi_done(r.state, call, sum * r.type->size);
    return shunti_mpi_error(comm, r.state, st);
}

SHUNTI_MPI_FLATTEN int shunti_mpi_reduce_scatter(const void *sendbuf,
                                                 void *recvbuf,
                                                 const int recvcounts[],
                                                 MPI_Datatype type, MPI_Op op,
                                                 MPI_Comm comm)
{
    int rc = reduce_scatter(sendbuf, recvbuf,
                            (struct shunti_mpi_list){recvcounts, false}, type,
                            op, comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Reduce_scatter(sendbuf, recvbuf, recvcounts, type, op,
                                     comm)
               : rc;
}

/* --- with large counts ---------------------------------------------------- */

#if SHUNTI_MPI_LARGE
int shunti_mpi_allreduce_c(const void *sendbuf, void *recvbuf, MPI_Count count,
                           MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    int rc = allreduce(sendbuf, recvbuf, count, type, op, comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Allreduce_c(sendbuf, recvbuf, count, type, op, comm)
               : rc;
}

int shunti_mpi_reduce_scatter_c(const void *sendbuf, void *recvbuf,
                                const MPI_Count recvcounts[], MPI_Datatype type,
                                MPI_Op op, MPI_Comm comm)
{
    int rc = reduce_scatter(sendbuf, recvbuf,
                            (struct shunti_mpi_list){recvcounts, true}, type,
                            op, comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Reduce_scatter_c(sendbuf, recvbuf, recvcounts, type, op,
                                       comm)
               : rc;
}

int shunti_mpi_reduce_scatter_block_c(const void *sendbuf, void *recvbuf,
                                      MPI_Count recvcount, MPI_Datatype type,
                                      MPI_Op op, MPI_Comm comm)
{
    int rc = reduce_scatter_block(sendbuf, recvbuf, recvcount, type, op, comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Reduce_scatter_block_c(sendbuf, recvbuf, recvcount, type,
                                             op, comm)
               : rc;
}
#endif
