// SPDX-License-Identifier: Apache-2.0
/* Collective calls by MPI; see engine_mpi.h. */
#include "perf/peers/engine_mpi.h"

#include <limits.h>
#include <stdlib.h>

#include <mpi.h>

struct call {
    struct perf_call c;
    MPI_Datatype type;
    MPI_Op op;
    int count;
    int *send_counts, *send_displs, *recv_counts, *recv_displs;
    MPI_Request request; /* the request of perf_mpi_call_start() */
};

/* Returns a type of the same size, to move elements. */
static MPI_Datatype move_type(enum shunt_dtype dtype)
{
    switch (dtype) {
    case SHUNT_I8:
    case SHUNT_U8:
    case SHUNT_FP8_E4M3:
        return MPI_UINT8_T;
    case SHUNT_F16:
    case SHUNT_BF16:
        return MPI_UINT16_T;
    case SHUNT_I32:
    case SHUNT_U32:
        return MPI_UINT32_T;
    case SHUNT_F32:
        return MPI_FLOAT;
    case SHUNT_I64:
    case SHUNT_U64:
        return MPI_UINT64_T;
    case SHUNT_F64:
        return MPI_DOUBLE;
    }
    return MPI_DATATYPE_NULL;
}

/* Returns the type to compute with; MPI_DATATYPE_NULL if MPI has none. */
static MPI_Datatype value_type(enum shunt_dtype dtype)
{
    switch (dtype) {
    case SHUNT_I8:
        return MPI_INT8_T;
    case SHUNT_I32:
        return MPI_INT32_T;
    case SHUNT_I64:
        return MPI_INT64_T;
    case SHUNT_F16:
    case SHUNT_BF16:
    case SHUNT_FP8_E4M3:
        return MPI_DATATYPE_NULL;
    default:
        return move_type(dtype);
    }
}

static MPI_Op value_op(enum shunt_op op)
{
    switch (op) {
    case SHUNT_SUM:
        return MPI_SUM;
    case SHUNT_MIN:
        return MPI_MIN;
    case SHUNT_MAX:
        return MPI_MAX;
    case SHUNT_PROD:
        return MPI_PROD;
    case SHUNT_AVG:
        break;
    }
    return MPI_OP_NULL;
}

/* Returns the array as ints for MPI; NULL if a value does not fit or `from` is
 * NULL. The caller frees it. */
static int *narrow(const size_t *from, int n)
{
    if (!from)
        return NULL;
    int *to = perf_mpi_alloc((size_t)n * sizeof(*to));
    for (int i = 0; i < n; i++) {
        if (from[i] > INT_MAX) {
            free(to);
            return NULL;
        }
        to[i] = (int)from[i];
    }
    return to;
}

void perf_mpi_call_close(void *state)
{
    struct call *k = state;
    free(k->send_counts);
    free(k->send_displs);
    free(k->recv_counts);
    free(k->recv_displs);
    free(k);
}

const char *perf_mpi_call_open(const struct perf_call *call, void **state)
{
    static const char too_large[] = "MPI counts with int, this is too large";
    struct call *k = perf_mpi_alloc(sizeof(*k));

    *k = (struct call){.c = *call, .type = move_type(call->dtype)};
    if (perf_op_reduces(call->op)) {
        k->type = value_type(call->dtype);
        k->op = value_op(call->reduce);
        if (k->type == MPI_DATATYPE_NULL || k->op == MPI_OP_NULL) {
            free(k);
            return "MPI has no such type or operation; take --dtype f32 --op "
                   "sum";
        }
    }
    k->send_counts = narrow(call->send_counts, call->ranks);
    k->send_displs = narrow(call->send_displs, call->ranks);
    k->recv_counts = narrow(call->recv_counts, call->ranks);
    k->recv_displs = narrow(call->recv_displs, call->ranks);
    if (call->count > INT_MAX || !k->send_counts != !call->send_counts ||
        !k->send_displs != !call->send_displs ||
        !k->recv_counts != !call->recv_counts ||
        !k->recv_displs != !call->recv_displs) {
        perf_mpi_call_close(k);
        return too_large;
    }
    k->count = (int)call->count;
    *state = k;
    return NULL;
}

void perf_mpi_call_run(void *state)
{
    const struct call *k = state;
    const struct perf_call *c = &k->c;
    const void *send = c->in_place ? MPI_IN_PLACE : c->send;

    /* Errors are fatal in MPI_COMM_WORLD. */
    switch (c->op) {
    case PERF_BARRIER:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
    case PERF_BROADCAST:
        MPI_Bcast(c->recv, k->count, k->type, c->root, MPI_COMM_WORLD);
        break;
    case PERF_ALLGATHER:
        MPI_Allgather(send, k->count, k->type, c->recv, k->count, k->type,
                      MPI_COMM_WORLD);
        break;
    case PERF_ALLGATHERV:
        MPI_Allgatherv(send, k->recv_counts[c->rank], k->type, c->recv,
                       k->recv_counts, k->recv_displs, k->type, MPI_COMM_WORLD);
        break;
    case PERF_REDUCE_SCATTER:
        MPI_Reduce_scatter_block(send, c->recv, k->count, k->type, k->op,
                                 MPI_COMM_WORLD);
        break;
    case PERF_REDUCE_SCATTERV:
        MPI_Reduce_scatter(send, c->recv, k->send_counts, k->type, k->op,
                           MPI_COMM_WORLD);
        break;
    case PERF_ALLREDUCE:
        MPI_Allreduce(send, c->recv, k->count, k->type, k->op, MPI_COMM_WORLD);
        break;
    case PERF_ALLTOALL:
        MPI_Alltoall(send, k->count, k->type, c->recv, k->count, k->type,
                     MPI_COMM_WORLD);
        break;
    case PERF_ALLTOALLV:
        MPI_Alltoallv(send, k->send_counts, k->send_displs, k->type, c->recv,
                      k->recv_counts, k->recv_displs, k->type, MPI_COMM_WORLD);
        break;
    default:
        break;
    }
}

void perf_mpi_call_start(void *state)
{
    struct call *k = state;
    const struct perf_call *c = &k->c;
    const void *send = c->in_place ? MPI_IN_PLACE : c->send;
    MPI_Comm world = MPI_COMM_WORLD;

    switch (c->op) {
    case PERF_BARRIER:
        MPI_Ibarrier(world, &k->request);
        break;
    case PERF_BROADCAST:
        MPI_Ibcast(c->recv, k->count, k->type, c->root, world, &k->request);
        break;
    case PERF_ALLGATHER:
        MPI_Iallgather(send, k->count, k->type, c->recv, k->count, k->type,
                       world, &k->request);
        break;
    case PERF_ALLGATHERV:
        MPI_Iallgatherv(send, k->recv_counts[c->rank], k->type, c->recv,
                        k->recv_counts, k->recv_displs, k->type, world,
                        &k->request);
        break;
    case PERF_REDUCE_SCATTER:
        MPI_Ireduce_scatter_block(send, c->recv, k->count, k->type, k->op,
                                  world, &k->request);
        break;
    case PERF_REDUCE_SCATTERV:
        MPI_Ireduce_scatter(send, c->recv, k->send_counts, k->type, k->op,
                            world, &k->request);
        break;
    case PERF_ALLREDUCE:
        MPI_Iallreduce(send, c->recv, k->count, k->type, k->op, world,
                       &k->request);
        break;
    case PERF_ALLTOALL:
        MPI_Ialltoall(send, k->count, k->type, c->recv, k->count, k->type,
                      world, &k->request);
        break;
    case PERF_ALLTOALLV:
        MPI_Ialltoallv(send, k->send_counts, k->send_displs, k->type, c->recv,
                       k->recv_counts, k->recv_displs, k->type, world,
                       &k->request);
        break;
    default:
        break;
    }
}

void perf_mpi_call_test(void *state)
{
    int done;
    MPI_Test(&((struct call *)state)->request, &done, MPI_STATUS_IGNORE);
}

void perf_mpi_call_wait(void *state)
{
    MPI_Wait(&((struct call *)state)->request, MPI_STATUS_IGNORE);
}
