// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by all files of shunt-perf: the operations, ending with an error, and
 * the clock.
 */
#ifndef SHUNT_PERF_PERF_H
#define SHUNT_PERF_PERF_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Exit statuses. */
enum {
    PERF_EXIT_OK = 0,
    PERF_EXIT_WRONG = 1,  /* a result was wrong */
    PERF_EXIT_USAGE = 2,  /* a mistake in the command line */
    PERF_EXIT_FAILED = 3, /* a call failed, or memory ran out */
};

/* The operations that can be measured, in groups: collective calls; exchanges
 * of tokens; sending experts; products fused with a collective; copies by an
 * engine, on one rank; and puts of a transport, between two ranks. */
enum perf_op {
    PERF_BARRIER,
    PERF_BROADCAST,
    PERF_ALLGATHER,
    PERF_ALLGATHERV,
    PERF_REDUCE_SCATTER,
    PERF_REDUCE_SCATTERV,
    PERF_ALLREDUCE,
    PERF_ALLTOALL,
    PERF_ALLTOALLV,

    PERF_DISPATCH,
    PERF_COMBINE,
    PERF_MOE,
    PERF_BACKWARD,
    PERF_MOE_LAYER,
    PERF_MOE_PARTS,
    PERF_MOE_STEP,

    PERF_MOE_MOVE,
    PERF_MOE_REFRESH,
    PERF_MOE_REDUCE,

    PERF_GEMM_RS,
    PERF_AG_GEMM,

    PERF_COPY,

    PERF_PUT,

    PERF_OPS,
};

/* The name of the subcommand for `op`. */
const char *perf_op_name(enum perf_op op);

static inline int perf_op_reduces(enum perf_op op)
{
    return op == PERF_REDUCE_SCATTER || op == PERF_REDUCE_SCATTERV ||
           op == PERF_ALLREDUCE;
}

/* Does the operation have a count for each rank or pair? */
static inline int perf_op_has_counts(enum perf_op op)
{
    return op == PERF_ALLTOALLV || op == PERF_ALLGATHERV ||
           op == PERF_REDUCE_SCATTERV;
}

static inline int perf_op_is_moe(enum perf_op op)
{
    return op >= PERF_DISPATCH && op <= PERF_MOE_STEP;
}

/* Does the operation compute during exchanges of tokens? */
static inline int perf_op_has_experts(enum perf_op op)
{
    return op >= PERF_MOE_LAYER && op <= PERF_MOE_STEP;
}

/* Does the operation send the state of experts? */
static inline int perf_op_is_experts(enum perf_op op)
{
    return op >= PERF_MOE_MOVE && op <= PERF_MOE_REDUCE;
}

static inline int perf_op_is_fused(enum perf_op op)
{
    return op == PERF_GEMM_RS || op == PERF_AG_GEMM;
}

/* Print an error, preceded by this rank, and end the whole job. */
_Noreturn void perf_die(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* malloc() that ends the program if memory runs out. For zero bytes it returns
 * a valid pointer, so that NULL never means "empty". */
void *perf_alloc(size_t bytes);

/* Microseconds since a fixed time, the same for all processes of a host. */
static inline double perf_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

#endif
