// SPDX-License-Identifier: Apache-2.0
/*
 * The same exchanges by MPI: a module, so that shunt-perf itself needs no MPI.
 *
 * For tokens it is what programs do today, written to be fast: rows are packed
 * in expert order, so that no ids are sent and unpacking copies whole blocks; a
 * row is one MPI type, so that no count overflows; all memory is allocated
 * before; the sum uses one row of f32 and is compiled for the processor's
 * instruction set.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include <shunt/mpi.h>

#include "perf/engine.h"

static void *must_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) {
        fprintf(stderr, "shunt-perf: no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, PERF_EXIT_FAILED);
    }
    return p;
}

/* --- collectives ---------------------------------------------------------- */

struct call {
    struct perf_call c;
    MPI_Datatype type;
    MPI_Op op;
    int count;
    int *send_counts, *send_displs, *recv_counts, *recv_displs;
    MPI_Request request; /* of call_start() */
};

/* A type of the same size, to move elements. */
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

/* The type to compute with; MPI_DATATYPE_NULL where MPI has none. */
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

/* The array as ints of MPI; NULL if a value does not fit, or `from` is NULL. */
static int *narrow(const size_t *from, int n)
{
    if (!from)
        return NULL;
    int *to = must_alloc((size_t)n * sizeof(*to));
    for (int i = 0; i < n; i++) {
        if (from[i] > INT_MAX) {
            free(to);
            return NULL;
        }
        to[i] = (int)from[i];
    }
    return to;
}

static void call_close(void *state)
{
    struct call *k = state;
    free(k->send_counts);
    free(k->send_displs);
    free(k->recv_counts);
    free(k->recv_displs);
    free(k);
}

static const char *call_open(const struct perf_call *call, void **state)
{
    static const char too_large[] = "MPI counts with int, this is too large";
    struct call *k = must_alloc(sizeof(*k));

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
        call_close(k);
        return too_large;
    }
    k->count = (int)call->count;
    *state = k;
    return NULL;
}

static void call_run(void *state)
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

static void call_start(void *state)
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

static void call_test(void *state)
{
    int done;
    MPI_Test(&((struct call *)state)->request, &done, MPI_STATUS_IGNORE);
}

static void call_wait(void *state)
{
    MPI_Wait(&((struct call *)state)->request, MPI_STATUS_IGNORE);
}

/* --- exchanges of tokens -------------------------------------------------- */

struct exchange {
    struct perf_exchange x;
    size_t bytes; /* of a row */
    MPI_Datatype row;
    int *first; /* (ranks + 1) first expert of each rank */
    int most;   /* experts of the rank that has most */

    /* The plan. */
    int *count;       /* (experts) rows that this rank sends to each */
    int *next;        /* (experts) where the next of them is packed */
    size_t *packed;   /* (tokens, topk) where each row is packed */
    int *send_table;  /* (ranks, most) count, by rank */
    int *recv_table;  /* (ranks, most) rows from each rank for each of ours */
    int *send_counts; /* (ranks) */
    int *send_displs;
    int *recv_counts;
    int *recv_displs;

    char *here;  /* (tokens * topk, hidden) packed rows of this rank's tokens */
    char *home;  /* rows that combine returns: `here`, or separate memory for
                  * the gradient of the weights */
    char *there; /* (total, hidden) rows as they arrive, by source */
    float *sum;  /* (hidden) */
    MPI_Request request; /* of moe_start() */
    enum perf_go started;
};

static const char *moe_open(const struct perf_exchange *exchange, void **state)
{
    const struct perf_exchange *x = exchange;
    size_t ranks = (size_t)x->ranks, experts = (size_t)x->experts;
    size_t rows = x->tokens * (size_t)x->topk;

    if (rows > INT_MAX || x->total > INT_MAX)
        return "MPI counts with int, these are too many rows";

    struct exchange *e = must_alloc(sizeof(*e));
    *e = (struct exchange){
        .x = *x,
        .bytes = x->hidden * shunt_dtype_size(x->dtype),
        .first = must_alloc((ranks + 1) * sizeof(int)),
        .count = must_alloc(experts * sizeof(int)),
        .next = must_alloc(experts * sizeof(int)),
        .packed = must_alloc(rows * sizeof(size_t)),
        .send_counts = must_alloc(ranks * sizeof(int)),
        .send_displs = must_alloc(ranks * sizeof(int)),
        .recv_counts = must_alloc(ranks * sizeof(int)),
        .recv_displs = must_alloc(ranks * sizeof(int)),
        .sum = must_alloc(x->hidden * sizeof(float)),
    };
    for (int r = 0; r <= x->ranks; r++)
        e->first[r] = (int)(((long)r * x->experts + x->ranks - 1) / x->ranks);
    for (int r = 0; r < x->ranks; r++)
        if (e->first[r + 1] - e->first[r] > e->most)
            e->most = e->first[r + 1] - e->first[r];

    size_t table = ranks * (size_t)e->most * sizeof(int);
    e->send_table = must_alloc(table);
    e->recv_table = must_alloc(table);
    memset(e->send_table, 0, table);
    e->here = must_alloc(rows * e->bytes);
    e->there = must_alloc(x->total * e->bytes);
    /* Touch the pages, as in a program that has run for a while. */
    memset(e->here, 0, rows * e->bytes);
    memset(e->there, 0, x->total * e->bytes);
    e->home = e->here;
    if (x->dweight) {
        e->home = must_alloc(rows * e->bytes);
        memset(e->home, 0, rows * e->bytes);
    }

    MPI_Type_contiguous((int)e->bytes, MPI_BYTE, &e->row);
    MPI_Type_commit(&e->row);
    *state = e;
    return NULL;
}

/* Exchange the counts of rows for each expert, and find where each row is
 * packed. */
static void moe_plan(void *state)
{
    struct exchange *e = state;
    const struct perf_exchange *x = &e->x;
    size_t rows = x->tokens * (size_t)x->topk;

    memset(e->count, 0, (size_t)x->experts * sizeof(int));
    for (size_t i = 0; i < rows; i++)
        e->count[x->index[i]]++;

    int at = 0;
    for (int r = 0; r < x->ranks; r++) {
        e->send_displs[r] = at;
        for (int n = e->first[r]; n < e->first[r + 1]; n++) {
            e->send_table[r * e->most + n - e->first[r]] = e->count[n];
            e->next[n] = at;
            at += e->count[n];
        }
        e->send_counts[r] = at - e->send_displs[r];
    }
    MPI_Alltoall(e->send_table, e->most, MPI_INT, e->recv_table, e->most,
                 MPI_INT, MPI_COMM_WORLD);

    for (size_t i = 0; i < rows; i++)
        e->packed[i] = (size_t)e->next[x->index[i]]++;

    at = 0;
    for (int r = 0; r < x->ranks; r++) {
        e->recv_displs[r] = at;
        for (int n = 0; n < e->most; n++)
            at += e->recv_table[r * e->most + n];
        e->recv_counts[r] = at - e->recv_displs[r];
    }
}

/* Copy between the order of arrival (source, expert) and expert-major order,
 * one block for each pair. */
static void rearrange(const struct exchange *e, char *major, char *arrived,
                      int to_major)
{
    int local = e->first[e->x.rank + 1] - e->first[e->x.rank];
    size_t at = 0;

    for (int n = 0; n < local; n++) {
        for (int r = 0; r < e->x.ranks; r++) {
            const int *counts = e->recv_table + r * e->most;
            size_t from = (size_t)e->recv_displs[r];
            for (int before = 0; before < n; before++)
                from += (size_t)counts[before];
            char *m = major + at * e->bytes, *a = arrived + from * e->bytes;
            size_t length = (size_t)counts[n] * e->bytes;
            memcpy(to_major ? m : a, to_major ? a : m, length);
            at += (size_t)counts[n];
        }
    }
}

static void pack_tokens(struct exchange *e)
{
    const struct perf_exchange *x = &e->x;
    const char *row = x->x;
    size_t topk = (size_t)x->topk;

    /* Token by token, so that each row is read from memory once. */
    for (size_t t = 0; t < x->tokens; t++, row += e->bytes)
        for (size_t k = 0; k < topk; k++)
            memcpy(e->here + e->packed[t * topk + k] * e->bytes, row, e->bytes);
}

/* Compiled for several instruction sets, as -march=native would for one. */
#if defined(__x86_64__) && defined(__has_attribute) && \
    !defined(__SANITIZE_ADDRESS__)
#if __has_attribute(target_clones) && !defined(__clang__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef CLONES
#define CLONES
#endif

static inline float from_bf16(uint16_t b)
{
    uint32_t bits = (uint32_t)b << 16;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static inline uint16_t to_bf16(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

CLONES static void add_bf16(float *restrict sum, const uint16_t *restrict row,
                            float weight, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += weight * from_bf16(row[i]);
}

CLONES static void add_f32(float *restrict sum, const float *restrict row,
                           float weight, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += weight * row[i];
}

CLONES static void scale_bf16(uint16_t *restrict to,
                              const uint16_t *restrict row, float weight,
                              size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = to_bf16(weight * from_bf16(row[i]));
}

CLONES static void scale_f32(float *restrict to, const float *restrict row,
                             float weight, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = weight * row[i];
}

/* The number of partial sums, which the compiler keeps in vectors. */
#define SUMS 64

static float sum_up(const float *sums)
{
    float sum = 0;
    for (int i = 0; i < SUMS; i++)
        sum += sums[i];
    return sum;
}

CLONES static float dot_bf16(const uint16_t *restrict a,
                             const uint16_t *restrict b, size_t n)
{
    float sums[SUMS] = {0};
    size_t i = 0;

    for (; i + SUMS <= n; i += SUMS)
        for (size_t j = 0; j < SUMS; j++)
            sums[j] += from_bf16(a[i + j]) * from_bf16(b[i + j]);
    for (; i < n; i++)
        sums[i % SUMS] += from_bf16(a[i]) * from_bf16(b[i]);
    return sum_up(sums);
}

CLONES static float dot_f32(const float *restrict a, const float *restrict b,
                            size_t n)
{
    float sums[SUMS] = {0};
    size_t i = 0;

    for (; i + SUMS <= n; i += SUMS)
        for (size_t j = 0; j < SUMS; j++)
            sums[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        sums[i % SUMS] += a[i] * b[i];
    return sum_up(sums);
}

CLONES static void round_bf16(uint16_t *restrict y, const float *restrict sum,
                              size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = to_bf16(sum[i]);
}

/* Sum a token's rows in `from`; without weights it is a plain sum. */
static void sum_token(struct exchange *e, size_t token, const char *from,
                      const float *weight)
{
    const struct perf_exchange *x = &e->x;
    size_t topk = (size_t)x->topk;
    const size_t *packed = e->packed + token * topk;
    char *y = (char *)x->y + token * e->bytes;
    float *sum = x->dtype == SHUNT_F32 ? (float *)(void *)y : e->sum;

    memset(sum, 0, x->hidden * sizeof(float));
    for (size_t k = 0; k < topk; k++) {
        const void *row = from + packed[k] * e->bytes;
        float w = weight ? weight[token * topk + k] : 1;
        if (x->dtype == SHUNT_F32)
            add_f32(sum, row, w, x->hidden);
        else
            add_bf16(sum, row, w, x->hidden);
    }
    if (x->dtype != SHUNT_F32)
        round_bf16((uint16_t *)(void *)y, sum, x->hidden);
}

static void sum_tokens(struct exchange *e, const char *from,
                       const float *weight)
{
    for (size_t t = 0; t < e->x.tokens; t++)
        sum_token(e, t, from, weight);
}

/* The gradient of a weighted sum: weighted rows are sent, and the product for
 * each weight is computed here, with the row that combine returned. */
static void pack_gradients(struct exchange *e)
{
    const struct perf_exchange *x = &e->x;
    size_t topk = (size_t)x->topk;

    for (size_t i = 0; i < x->tokens * topk; i++) {
        const void *dy = (const char *)x->x + i / topk * e->bytes;
        const void *back = e->home + e->packed[i] * e->bytes;
        void *to = e->here + e->packed[i] * e->bytes;

        if (x->dtype == SHUNT_F32) {
            scale_f32(to, dy, x->weight[i], x->hidden);
            x->dweight[i] = dot_f32(dy, back, x->hidden);
        } else {
            scale_bf16(to, dy, x->weight[i], x->hidden);
            x->dweight[i] = dot_bf16(dy, back, x->hidden);
        }
    }
}

static bool goes_there(enum perf_go what)
{
    return what == PERF_GO_DISPATCH || what == PERF_GO_COMBINE_BACKWARD;
}

/* Where combine and dispatch_backward receive rows. */
static char *landing(const struct exchange *e, enum perf_go what)
{
    return what == PERF_GO_COMBINE ? e->home : e->here;
}

/* Pack before the all-to-all, and unpack after it. */
static void pack(struct exchange *e, enum perf_go what)
{
    if (what == PERF_GO_DISPATCH)
        pack_tokens(e);
    else if (what == PERF_GO_COMBINE_BACKWARD)
        pack_gradients(e);
    else
        rearrange(e, e->x.out, e->there, 0);
}

static void unpack(struct exchange *e, enum perf_go what)
{
    if (goes_there(what))
        rearrange(e, e->x.rows, e->there, 1);
    else
        sum_tokens(e, landing(e, what),
                   what == PERF_GO_COMBINE ? e->x.weight : NULL);
}

static void moe_go(void *state, enum perf_go what)
{
    struct exchange *e = state;

    pack(e, what);
    if (goes_there(what))
        MPI_Alltoallv(e->here, e->send_counts, e->send_displs, e->row, e->there,
                      e->recv_counts, e->recv_displs, e->row, MPI_COMM_WORLD);
    else
        MPI_Alltoallv(e->there, e->recv_counts, e->recv_displs, e->row,
                      landing(e, what), e->send_counts, e->send_displs, e->row,
                      MPI_COMM_WORLD);
    unpack(e, what);
}

static void moe_start(void *state, enum perf_go what)
{
    struct exchange *e = state;

    pack(e, what);
    e->started = what;
    if (goes_there(what))
        MPI_Ialltoallv(e->here, e->send_counts, e->send_displs, e->row,
                       e->there, e->recv_counts, e->recv_displs, e->row,
                       MPI_COMM_WORLD, &e->request);
    else
        MPI_Ialltoallv(e->there, e->recv_counts, e->recv_displs, e->row,
                       landing(e, what), e->send_counts, e->send_displs, e->row,
                       MPI_COMM_WORLD, &e->request);
}

static void moe_test(void *state)
{
    int done;
    MPI_Test(&((struct exchange *)state)->request, &done, MPI_STATUS_IGNORE);
}

static void moe_wait(void *state)
{
    struct exchange *e = state;
    MPI_Wait(&e->request, MPI_STATUS_IGNORE);
    unpack(e, e->started);
}

static void moe_release(void *state)
{
    (void)state;
}

static void moe_close(void *state)
{
    struct exchange *e = state;
    MPI_Type_free(&e->row);
    free(e->first);
    free(e->count);
    free(e->next);
    free(e->packed);
    free(e->send_table);
    free(e->recv_table);
    free(e->send_counts);
    free(e->send_displs);
    free(e->recv_counts);
    free(e->recv_displs);
    if (e->home != e->here)
        free(e->home);
    free(e->here);
    free(e->there);
    free(e->sum);
    free(e);
}

static void *moe_buffer(void *state, enum shunt_moe_buffer which)
{
    const struct perf_exchange *x = &((struct exchange *)state)->x;
    return which == SHUNT_MOE_ROWS || which == SHUNT_MOE_DOUT ? x->rows
                                                              : x->out;
}

static const char *moe_note(void *state)
{
    const struct exchange *e = state;
    return e->x.wire == SHUNT_MOE_WIRE_FP8
               ? "mpi sends the rows as they are, not in fp8"
               : NULL;
}

/* A rank in the barrier completes the rest of the call before. It is called
 * twice, so that the second one finds the connections that the first one
 * makes. */
static void settle(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* --- processes ------------------------------------------------------------ */

static char version[MPI_MAX_LIBRARY_VERSION_STRING + 64];
static struct perf_world world;

static const char *world_open(int *rank, int *ranks)
{
    int length = 0;

    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return "MPI_Init failed";
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, ranks);
    MPI_Get_library_version(version, &length);
    /* After the version, MPICH adds all its build options, Open MPI its
     * packager. */
    version[strcspn(version, "\n")] = '\0';
    char *package = strstr(version, ", package");
    if (package)
        *package = '\0';
    for (char *c = version; *c; c++)
        *c = *c == '\t' ? ' ' : *c;
    const char *yield = getenv("OMPI_MCA_mpi_yield_when_idle");
    if (yield)
        snprintf(version + strlen(version), 64, " (mpi_yield_when_idle=%.8s)",
                 yield);
    world.version = version;
    return NULL;
}

static void world_close(void)
{
    MPI_Finalize();
}

static void world_abort(int status)
{
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void world_allgather(const void *mine, void *all, size_t bytes)
{
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                  MPI_COMM_WORLD);
}

static void world_progress(void)
{
    int any;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any,
               MPI_STATUS_IGNORE);
}

static const char *world_create_comm(struct shunt_comm **comm)
{
    enum shunt_status st = shunt_comm_create_mpi(MPI_COMM_WORLD, NULL, comm);
    return st == SHUNT_OK ? NULL : shunt_last_error(NULL);
}

static const struct perf_engine engine = {
    .name = "mpi",
    .delivers = true,
    .settle = settle,
    .call_open = call_open,
    .call_run = call_run,
    .call_close = call_close,
    .call_start = call_start,
    .call_test = call_test,
    .call_wait = call_wait,
    .moe_open = moe_open,
    .moe_plan = moe_plan,
    .moe_go = moe_go,
    .moe_release = moe_release,
    .moe_close = moe_close,
    .moe_start = moe_start,
    .moe_test = moe_test,
    .moe_wait = moe_wait,
    .moe_buffer = moe_buffer,
    .moe_note = moe_note,
};

static struct perf_world world = {
    .open = world_open,
    .close = world_close,
    .abort = world_abort,
    .allgather = world_allgather,
    .progress = world_progress,
    .create_comm = world_create_comm,
};

extern const struct perf_module perf_mpi_module;
SHUNT_API const struct perf_module perf_mpi_module = {
    .abi = PERF_MODULE_ABI,
    .engine = &engine,
    .world = &world,
};
