// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by all files of shunt-perf: the operations, ending with a message, and
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
    PERF_EXIT_USAGE = 2,  /* the command line */
    PERF_EXIT_FAILED = 3, /* a call failed, or there is no memory */
};

/* The operations that can be measured. The first group are collective calls on
 * bytes, the second exchanges of tokens, the third experts that travel, the fourth
 * products fused with a collective; then copies by an engine, of one rank; the last
 * one is puts of a transport, between two. */
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

/* The subcommand's name. */
const char *perf_op_name(enum perf_op op);

static inline int perf_op_reduces(enum perf_op op)
{
    return op == PERF_REDUCE_SCATTER || op == PERF_REDUCE_SCATTERV ||
           op == PERF_ALLREDUCE;
}

/* Does each rank or pair have its own count? */
static inline int perf_op_has_counts(enum perf_op op)
{
    return op == PERF_ALLTOALLV || op == PERF_ALLGATHERV ||
           op == PERF_REDUCE_SCATTERV;
}

static inline int perf_op_is_moe(enum perf_op op)
{
    return op >= PERF_DISPATCH && op <= PERF_MOE_STEP;
}

/* Does it compute beside exchanges of tokens? */
static inline int perf_op_has_experts(enum perf_op op)
{
    return op >= PERF_MOE_LAYER && op <= PERF_MOE_STEP;
}

/* Does the state of experts travel? */
static inline int perf_op_is_experts(enum perf_op op)
{
    return op >= PERF_MOE_MOVE && op <= PERF_MOE_REDUCE;
}

static inline int perf_op_is_fused(enum perf_op op)
{
    return op == PERF_GEMM_RS || op == PERF_AG_GEMM;
}

/* Print an error, with this rank in front, and end the whole job. */
_Noreturn void perf_die(int status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* malloc() that ends the program if there is no memory. Zero bytes give a valid
 * pointer, so that NULL never means "empty". */
void *perf_alloc(size_t bytes);

/* Microseconds since some fixed point, the same for all processes. */
static inline double perf_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

#endif
