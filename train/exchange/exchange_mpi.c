// SPDX-License-Identifier: Apache-2.0
/*
 * An exchange of rows by MPI, as programs do it today (train/baseline, which
 * shunt-perf measures, too). A token's rows are added in the order of
 * shunt_moe_combine(), by the same kernels. So the losses have the same bits.
 *
 * All calls block.
 */
#include "train/exchange/exchange_mpi.h"

#include "src/kernels/elementwise.h"
#include "src/kernels/rows.h"
#include "train/base/clock.h"
#include "train/base/error.h"
#include "train/baseline/baseline.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 3 }; /* [0] rows; [1] out, and later drows; [2] dout */

struct routing {
    struct baseline_plan plan;
    float *weight;               /* (tokens, K) */
    struct baseline_term *order; /* (tokens, K) order in which rows are added */
    size_t *count, *offset;      /* (own experts), (own experts + 1) */
    void *home;                  /* (tokens K, D) rows that combine received,
                                    packed */
    size_t room;                 /* rows that the buffers have room for */
    float *buffer[BUFFERS];      /* (total, D) */
};

struct mpi_exchange {
    struct exchange base;
    struct team *team;
    struct baseline b;
    bool bf16;
    size_t routings;
    struct routing *routing;
    size_t own;      /* number of this rank's experts */
    int32_t *expert; /* (own) their ids */
    uint32_t *group; /* (E) the expert's group in the order of sums */
    uint32_t *node;  /* (E) the node of the expert's group */
    bool *far;       /* (ranks) is the rank on another node? */
    size_t max_tokens;

    char *here;        /* (max_tokens K, D) packed rows to send */
    char *back;        /* (max_tokens K, D) packed rows received by
                          dispatch_backward */
    char *there;       /* rows of this rank's experts, by source and expert */
    size_t there_room; /* rows that `there` has room for */
    uint16_t *tokens;  /* bf16: (max_tokens, D) tokens' rows, as sent or
                          received */
    void **memory;     /* memory that memory() returned */
    size_t nmemory;
};

static struct mpi_exchange *self(struct exchange *x)
{
    return (struct mpi_exchange *)x;
}

static float *memory(struct exchange *x, size_t floats)
{
    struct mpi_exchange *s = self(x);
    void **grown = realloc(s->memory, (s->nmemory + 1) * sizeof(*grown));
    float *p = grown ? calloc(floats ? floats : 1, sizeof(*p)) : NULL;

    s->memory = grown ? grown : s->memory;
    if (!p)
        train_error("out of memory for rows");
    else
        s->memory[s->nmemory++] = p;
    return p;
}

/* --- the plan ------------------------------------------------------------- */

/* Make room for the rows of this rank's experts. Their number changes from step
 * to step. */
static int reserve(struct mpi_exchange *s, struct routing *r)
{
    const size_t total = r->plan.total;

    if (total > s->there_room) {
        free(s->there);
        s->there_room = total + total / 4;
        s->there = malloc(s->there_room * s->b.bytes);
        if (!s->there)
            s->there_room = 0;
    }
    if (total > r->room) {
        r->room = total + total / 4;
        for (int i = 0; i < BUFFERS; i++) {
            free(r->buffer[i]);
            r->buffer[i] = malloc(r->room * s->b.hidden * sizeof(float));
            if (!r->buffer[i])
                r->room = 0;
        }
    }
    return s->there_room >= total && r->room >= total
               ? 0
               : train_error("out of memory for %zu rows", total);
}

/* Order each token's terms by ascending expert, and so also by group and
 * node. */
static void order_terms(const struct mpi_exchange *s, struct routing *r,
                        const int32_t *choice, size_t tokens)
{
    const int K = s->b.topk;

    for (size_t t = 0; t < tokens; t++) {
        struct baseline_term *order = r->order + t * (size_t)K;
        const int first = (int)t * K;
        int32_t before = 0;

        for (int k = 0; k < K; k++) {
            int at = k;
            for (;
                 at > 0 && choice[order[at - 1].assignment] > choice[first + k];
                 at--)
                order[at] = order[at - 1];
            order[at].assignment = first + k;
        }
        for (int k = 0; k < K; k++) {
            const int32_t e = choice[order[k].assignment];

            order[k].op = s->node[e] != s->node[before]     ? SHUNTI_ROWS_NODE
                          : s->group[e] != s->group[before] ? SHUNTI_ROWS_RANK
                                                            : SHUNTI_ROWS_ADD;
            before = e;
        }
    }
}

/* Compute the offsets of this rank's experts in expert-major order. */
static void find_offsets(const struct mpi_exchange *s, struct routing *r)
{
    r->offset[0] = 0;
    for (size_t e = 0; e < s->own; e++) {
        r->count[e] = 0;
        for (int rank = 0; rank < s->team->size; rank++)
            r->count[e] +=
                (size_t)r->plan.recv_table[rank * s->b.most + (int)e];
        r->offset[e + 1] = r->offset[e] + r->count[e];
    }
}

static int plan(struct exchange *x, size_t routing, const int32_t *choice,
                const float *weight, size_t tokens, bool again,
                struct exchange_rows *rows)
{
    struct mpi_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    struct baseline_plan *p = &r->plan;

    (void)again; /* everything is computed again */
    memcpy(r->weight, weight, tokens * (size_t)s->b.topk * sizeof(*weight));
    order_terms(s, r, choice, tokens);
    baseline_plan_packing(&s->b, p, choice, tokens);
    s->team->mpi->alltoall(p->send_table, p->recv_table, s->b.most);
    if (!baseline_plan_arrivals(&s->b, p))
        return train_error("%zu rows are too many for MPI's int", p->total);
    find_offsets(s, r);
    if (reserve(s, r))
        return -1;
    for (int rank = 0; rank < s->team->size; rank++)
        if (s->far[rank]) {
            x->traffic.rows += (size_t)p->send_counts[rank];
            x->traffic.plain += (size_t)p->send_counts[rank];
        }
    *rows = (struct exchange_rows){
        s->own,
        s->expert,
        r->count,
        r->offset,
        p->total,
        r->buffer[0],
        r->buffer[1],
        r->buffer[2],
        r->buffer[1],
        1,
        0,
        p->total,
    };
    return 0;
}

/* --- exchanges of rows ---------------------------------------------------- */

static void count_sent(struct mpi_exchange *s, const int *counts)
{
    for (int rank = 0; rank < s->team->size; rank++) {
        if (rank == s->team->rank)
            continue;
        s->base.traffic.by_mpi += (size_t)counts[rank];
        if (s->far[rank])
            s->team->mpi_bytes += (double)counts[rank] * (double)s->b.bytes;
    }
}

/* Send the rows in `here` to their experts. The rows that arrive are written to
 * `major` (total, D), in expert-major order. */
static void send_there(struct mpi_exchange *s, struct routing *r, float *major)
{
    const struct baseline_plan *p = &r->plan;

    count_sent(s, p->send_counts);
    s->team->mpi->alltoallv(MPI_ALL, s->b.bytes, s->here, p->send_counts,
                            p->send_displs, s->there, p->recv_counts,
                            p->recv_displs);
    baseline_to_experts(&s->b, p, s->there, major);
}

/* Send the rows in `major` back to the ranks of their tokens. The rows that
 * arrive are written to `packed`, in the order of `here`. */
static void send_home(struct mpi_exchange *s, struct routing *r, float *major,
                      void *packed)
{
    const struct baseline_plan *p = &r->plan;

    baseline_from_experts(&s->b, p, major, s->there);
    count_sent(s, p->recv_counts);
    s->team->mpi->alltoallv(MPI_ALL, s->b.bytes, s->there, p->recv_counts,
                            p->recv_displs, packed, p->send_counts,
                            p->send_displs);
}

/* The tokens' rows in the format in which they are sent. */
static const void *tokens_out(struct mpi_exchange *s, const struct routing *r,
                              const float *rows)
{
    if (!s->bf16)
        return rows;
    s->b.narrow(r->plan.tokens * s->b.hidden, rows, s->tokens);
    return s->tokens;
}

/* y (tokens, D) = sum of [weight *] row, in the order of shunt_moe_combine() */
static void add_rows(struct mpi_exchange *s, const struct routing *r,
                     const void *packed, const float *weight, float *y)
{
    baseline_sum(&s->b, &r->plan, packed, weight,
                 s->bf16 ? (void *)s->tokens : (void *)y);
    if (s->bf16)
        s->b.widen(r->plan.tokens * s->b.hidden, s->tokens, y);
}

static int dispatch_start(struct exchange *x, size_t routing, const float *from)
{
    struct mpi_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    const double began = clock_now();

    baseline_pack(&s->b, &r->plan, tokens_out(s, r, from), s->here);
    send_there(s, r, r->buffer[0]);
    x->traffic.seconds[EXCHANGE_DISPATCH] += clock_now() - began;
    return 0;
}

static int combine_start(struct exchange *x, size_t routing, float *y)
{
    struct mpi_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    const double began = clock_now();

    send_home(s, r, r->buffer[1], r->home);
    add_rows(s, r, r->home, r->weight, y);
    x->traffic.seconds[EXCHANGE_COMBINE] += clock_now() - began;
    return 0;
}

static int combine_backward_start(struct exchange *x, size_t routing,
                                  const float *dy, float *dweight)
{
    struct mpi_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    const double began = clock_now();

    baseline_pack_gradients(&s->b, &r->plan, tokens_out(s, r, dy), r->weight,
                            r->home, s->here, dweight);
    send_there(s, r, r->buffer[2]);
    x->traffic.seconds[EXCHANGE_COMBINE_BACKWARD] += clock_now() - began;
    return 0;
}

static int dispatch_backward_start(struct exchange *x, size_t routing,
                                   float *dx)
{
    struct mpi_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    const double began = clock_now();

    send_home(s, r, r->buffer[1], s->back);
    add_rows(s, r, s->back, NULL, dx);
    x->traffic.seconds[EXCHANGE_DISPATCH_BACKWARD] += clock_now() - began;
    return 0;
}

static int wait_for(struct exchange *x, size_t routing)
{
    (void)x;
    (void)routing;
    return 0;
}

/* Does nothing, since all calls block. */
static void set_overlap(struct exchange *x, bool overlap)
{
    (void)x;
    (void)overlap;
}

static void release(struct exchange *x, size_t routing)
{
    (void)x;
    (void)routing;
}

/* --- creation and destruction --------------------------------------------- */

static void destroy(struct exchange *x)
{
    struct mpi_exchange *s = self(x);

    for (size_t i = 0; s->routing && i < s->routings; i++) {
        struct routing *r = &s->routing[i];
        baseline_plan_finish(&r->plan);
        free(r->weight);
        free(r->order);
        free(r->count);
        free(r->offset);
        free(r->home);
        for (int which = 0; which < BUFFERS; which++)
            free(r->buffer[which]);
    }
    free(s->routing);
    baseline_finish(&s->b);
    free(s->expert);
    free(s->group);
    free(s->node);
    free(s->far);
    free(s->here);
    free(s->back);
    free(s->there);
    free(s->tokens);
    for (size_t i = 0; i < s->nmemory; i++)
        free(s->memory[i]);
    free(s->memory);
    free(s);
}

static const struct exchange_ops ops = {
    .memory = memory,
    .plan = plan,
    .dispatch_start = dispatch_start,
    .combine_start = combine_start,
    .combine_backward_start = combine_backward_start,
    .dispatch_backward_start = dispatch_backward_start,
    .wait = wait_for,
    .release = release,
    .set_overlap = set_overlap,
    .destroy = destroy,
};

static void *zeroed(size_t count, size_t size, bool *bad)
{
    void *p = calloc(count ? count : 1, size);

    *bad |= !p;
    return p;
}

/* Allocates all memory. False: out of memory. */
static bool allocate(struct mpi_exchange *s)
{
    const size_t E = (size_t)s->b.experts, K = (size_t)s->b.topk;
    const size_t rows = s->max_tokens * K;
    bool bad = !baseline_init(&s->b);

    s->far = zeroed((size_t)s->team->size, sizeof(*s->far), &bad);
    s->group = zeroed(E, sizeof(*s->group), &bad);
    s->node = zeroed(E, sizeof(*s->node), &bad);
    s->expert = zeroed(E, sizeof(*s->expert), &bad);
    s->here = zeroed(rows, s->b.bytes, &bad);
    s->back = zeroed(rows, s->b.bytes, &bad);
    s->tokens = zeroed(s->bf16 ? s->max_tokens * s->b.hidden : 1,
                       sizeof(*s->tokens), &bad);
    s->routing = zeroed(s->routings, sizeof(*s->routing), &bad);
    if (bad)
        return false;
    for (size_t i = 0; i < s->routings; i++) {
        struct routing *r = &s->routing[i];
        bad |= !baseline_plan_init(&s->b, &r->plan, s->max_tokens);
        r->weight = zeroed(rows, sizeof(*r->weight), &bad);
        r->plan.order = r->order = zeroed(rows, sizeof(*r->order), &bad);
        r->count = zeroed((size_t)s->b.most, sizeof(*r->count), &bad);
        r->offset = zeroed((size_t)s->b.most + 1, sizeof(*r->offset), &bad);
        r->home = zeroed(rows, s->b.bytes, &bad);
    }
    return !bad;
}

int exchange_mpi_create(struct team *team, const struct model_config *model,
                        const struct exchange_config *config,
                        struct exchange **exchange)
{
    const size_t groups = (size_t)config->tree_ranks;
    const size_t nodes = (size_t)config->tree_nodes, E = model->experts;
    size_t first;
    struct mpi_exchange *s = calloc(1, sizeof(*s));

    if (!s)
        return train_error("out of memory");
    s->base.ops = &ops;
    s->team = team;
    s->bf16 = config->bf16;
    s->b = (struct baseline){
        .rank = team->rank,
        .ranks = team->size,
        .experts = (int)E,
        .topk = (int)model->topk,
        .hidden = model->dim,
        .dtype = s->bf16 ? SHUNT_BF16 : SHUNT_F32,
        .widen = s->bf16 ? shunti_elementwise()->from_bf16 : NULL,
        .narrow = s->bf16 ? shunti_elementwise()->to_bf16 : NULL,
    };
    s->routings = model_moe_layers(model) * config->micro_batches;
    s->max_tokens = config->max_tokens;
    if (s->max_tokens * model->topk > INT_MAX ||
        model->dim * sizeof(float) > INT_MAX) {
        free(s);
        return train_error(
            "MPI counts rows and bytes of a row in an int: too many tokens, or "
            "rows too wide");
    }
    if (!allocate(s)) {
        destroy(&s->base);
        return train_error("out of memory");
    }
    exchange_experts(E, team->rank, team->size, &first, &s->own);
    for (size_t e = 0; e < E; e++) {
        s->expert[e] = (int32_t)(first + e);
        s->group[e] = (uint32_t)(e * groups / E);
        s->node[e] = (uint32_t)(s->group[e] * nodes / groups);
    }
    for (int rank = 0; rank < team->size; rank++)
        s->far[rank] = team_is_far(team, rank);
    *exchange = &s->base;
    return 0;
}
