// SPDX-License-Identifier: Apache-2.0
/*
 * Exchanges of tokens by MPI, as programs do them today, written to be fast.
 * Rows are packed in expert order, so that no ids are sent and unpacking copies
 * whole blocks. A row is one MPI type, so that no count overflows. All memory
 * is allocated before. The sum uses one row of f32 and is compiled for the
 * processor's instruction set.
 */
#include "perf/peers/engine_mpi.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

struct exchange {
    struct perf_exchange x;
    size_t bytes; /* bytes of a row */
    MPI_Datatype row;
    int *first; /* (ranks + 1) first expert of each rank */
    int most;   /* most experts on a rank */

    /* The plan. */
    int *count;       /* (experts) rows that this rank sends to each */
    int *next;        /* (experts) place of the next row to pack */
    size_t *packed;   /* (tokens, topk) place of each packed row */
    int *send_table;  /* (ranks, most) `count`, by rank of the expert */
    int *recv_table;  /* (ranks, most) rows from each rank by local expert */
    int *send_counts; /* (ranks) */
    int *send_displs;
    int *recv_counts;
    int *recv_displs;

    char *here;  /* (tokens * topk, hidden) packed rows of this rank's tokens */
    char *home;  /* rows that combine returns: `here`, or separate memory for
                  * the gradient of the weights */
    char *there; /* (total, hidden) rows as they arrive, by source */
    float *sum;  /* (hidden) */
    MPI_Request request; /* of perf_mpi_moe_start() */
    enum perf_go started;
};

const char *perf_mpi_moe_open(const struct perf_exchange *exchange,
                              void **state)
{
    const struct perf_exchange *x = exchange;
    size_t ranks = (size_t)x->ranks, experts = (size_t)x->experts;
    size_t rows = x->tokens * (size_t)x->topk;

    if (rows > INT_MAX || x->total > INT_MAX)
        return "MPI counts with int, these are too many rows";

    struct exchange *e = perf_mpi_alloc(sizeof(*e));
    *e = (struct exchange){
        .x = *x,
        .bytes = x->hidden * shunt_dtype_size(x->dtype),
        .first = perf_mpi_alloc((ranks + 1) * sizeof(int)),
        .count = perf_mpi_alloc(experts * sizeof(int)),
        .next = perf_mpi_alloc(experts * sizeof(int)),
        .packed = perf_mpi_alloc(rows * sizeof(size_t)),
        .send_counts = perf_mpi_alloc(ranks * sizeof(int)),
        .send_displs = perf_mpi_alloc(ranks * sizeof(int)),
        .recv_counts = perf_mpi_alloc(ranks * sizeof(int)),
        .recv_displs = perf_mpi_alloc(ranks * sizeof(int)),
        .sum = perf_mpi_alloc(x->hidden * sizeof(float)),
    };
    for (int r = 0; r <= x->ranks; r++)
        e->first[r] = (int)(((long)r * x->experts + x->ranks - 1) / x->ranks);
    for (int r = 0; r < x->ranks; r++)
        if (e->first[r + 1] - e->first[r] > e->most)
            e->most = e->first[r + 1] - e->first[r];

    size_t table = ranks * (size_t)e->most * sizeof(int);
    e->send_table = perf_mpi_alloc(table);
    e->recv_table = perf_mpi_alloc(table);
    memset(e->send_table, 0, table);
    e->here = perf_mpi_alloc(rows * e->bytes);
    e->there = perf_mpi_alloc(x->total * e->bytes);
    /* Touch the pages: a program that has run for a while has no page
     * faults. */
    memset(e->here, 0, rows * e->bytes);
    memset(e->there, 0, x->total * e->bytes);
    e->home = e->here;
    if (x->dweight) {
        e->home = perf_mpi_alloc(rows * e->bytes);
        memset(e->home, 0, rows * e->bytes);
    }

    MPI_Type_contiguous((int)e->bytes, MPI_BYTE, &e->row);
    MPI_Type_commit(&e->row);
    *state = e;
    return NULL;
}

/* Exchange the counts of rows for each expert, and find where each row is
 * packed. */
void perf_mpi_moe_plan(void *state)
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

/* CLONES compiles a function for several instruction sets; the best one is
 * chosen at run time. */
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

/* Pack the gradient of a weighted sum: the weighted rows are sent. The
 * gradient of each weight is computed here, from the row that combine
 * returned. */
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

/* Returns the buffer in which combine and dispatch_backward receive rows. */
static char *landing(const struct exchange *e, enum perf_go what)
{
    return what == PERF_GO_COMBINE ? e->home : e->here;
}

/* Pack rows before the all-to-all. */
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

void perf_mpi_moe_go(void *state, enum perf_go what)
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

void perf_mpi_moe_start(void *state, enum perf_go what)
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

void perf_mpi_moe_test(void *state)
{
    int done;
    MPI_Test(&((struct exchange *)state)->request, &done, MPI_STATUS_IGNORE);
}

void perf_mpi_moe_wait(void *state)
{
    struct exchange *e = state;
    MPI_Wait(&e->request, MPI_STATUS_IGNORE);
    unpack(e, e->started);
}

void perf_mpi_moe_release(void *state)
{
    (void)state;
}

void perf_mpi_moe_close(void *state)
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

void *perf_mpi_moe_buffer(void *state, enum shunt_moe_buffer which)
{
    const struct perf_exchange *x = &((struct exchange *)state)->x;
    return which == SHUNT_MOE_ROWS || which == SHUNT_MOE_DOUT ? x->rows
                                                              : x->out;
}

const char *perf_mpi_moe_note(void *state)
{
    const struct exchange *e = state;
    return e->x.wire == SHUNT_MOE_WIRE_FP8
               ? "mpi sends the rows as they are, not in fp8"
               : NULL;
}
