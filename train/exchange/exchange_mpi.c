// SPDX-License-Identifier: Apache-2.0
/*
 * An exchange of rows by MPI, as programs do it today, written to be fast. Each
 * assignment has a row. Rows are packed by expert, and so by destination.
 * MPI_Alltoall exchanges the counts, MPI_Alltoallv the rows. They arrive
 * ordered by source and expert, and are copied block by block to expert-major
 * order, and back after the experts. A token's rows are added in the order of
 * shunt_moe_combine(), by the same kernels. So the losses have the same bits.
 *
 * All calls block. The gradient of a weight is the product of dy with a row
 * that combine has received. So backward sends nothing but rows, too.
 */
#include "train/exchange/exchange_mpi.h"

#include "src/kernels/elementwise.h"
#include "src/kernels/rows.h"
#include "train/base/clock.h"
#include "train/base/error.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFERS = 3 }; /* rows; out, and later drows; dout */

struct routing {
    size_t tokens;
    int32_t *choice; /* (tokens, K) */
    float *weight;   /* (tokens, K) */
    int *slot;       /* (tokens, K) slots of each token, in the order in which
                        rows are added */
    int *packed;     /* (tokens, K) index of each assignment's row in `here` */
    int *send_table; /* (ranks, most) rows sent to each expert, by rank */
    int *recv_table; /* (ranks, most) rows from each rank, by expert of this
                        rank */
    int *counts;     /* (4, ranks) rows sent, their offsets; rows received,
                        their offsets */
    size_t *count, *offset; /* (own experts), (own experts + 1) */
    size_t total;           /* rows of this rank's experts */
    void *home;             /* (tokens K, D) rows that combine received,
                               packed */
    size_t room;            /* rows that the buffers have room for */
    float *buffer[BUFFERS]; /* (total, D) */
};

struct mpi_exchange {
    struct exchange base;
    struct team *team;
    const struct shunti_rows *kernels; /* for rows as they are sent */
    size_t D, E, K, bytes;             /* bytes: of a row as it is sent */
    bool bf16;
    size_t routings;
    struct routing *routing;
    size_t *first;   /* (ranks + 1) first expert of each rank */
    size_t most;     /* experts of the rank that has most */
    int32_t *own;    /* ids of this rank's experts */
    uint32_t *group; /* (E) the expert's group in the order of sums */
    uint32_t *node;  /* (E) the node of that group */
    bool *far;       /* (ranks) is it on another node? */
    int *next;       /* (E) scratch */
    size_t *at;      /* (ranks) scratch */
    size_t max_tokens;

    char *here;                     /* (max_tokens K, D) packed rows to send */
    char *back;                     /* (max_tokens K, D) packed rows received by
                                       dispatch_backward */
    char *there;                    /* rows of this rank's experts, by source
                                       and expert */
    size_t there_room;              /* rows */
    uint16_t *tokens;               /* bf16: (max_tokens, D) */
    struct shunti_rows_term *terms; /* (K) */
    void **memory;                  /* memory that memory() returned */
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
    if (r->total > s->there_room) {
        free(s->there);
        s->there_room = r->total + r->total / 4;
        s->there = malloc(s->there_room * s->bytes);
        if (!s->there)
            s->there_room = 0;
    }
    if (r->total > r->room) {
        r->room = r->total + r->total / 4;
        for (int i = 0; i < BUFFERS; i++) {
            free(r->buffer[i]);
            r->buffer[i] = malloc(r->room * s->D * sizeof(float));
            if (!r->buffer[i])
                r->room = 0;
        }
    }
    return s->there_room >= r->total && r->room >= r->total
               ? 0
               : train_error("out of memory for %zu rows", r->total);
}

/* Order each token's slots by ascending expert, and so also by group and
 * node. */
static void order_slots(const struct mpi_exchange *s, struct routing *r)
{
    for (size_t t = 0; t < r->tokens; t++) {
        const int32_t *choice = r->choice + t * s->K;
        int *slot = r->slot + t * s->K;

        for (int k = 0; k < (int)s->K; k++) {
            int at = k;
            for (; at > 0 && choice[slot[at - 1]] > choice[k]; at--)
                slot[at] = slot[at - 1];
            slot[at] = k;
        }
    }
}

/* Compute the row of each assignment: by expert, then by token. */
static void pack_order(struct mpi_exchange *s, struct routing *r)
{
    int *sent = r->counts, *from = sent + s->team->size;
    int *next = s->next, at = 0;

    memset(next, 0, s->E * sizeof(*next));
    for (size_t i = 0; i < r->tokens * s->K; i++)
        next[r->choice[i]]++;
    for (int rank = 0; rank < s->team->size; rank++) {
        from[rank] = at;
        for (size_t e = s->first[rank]; e < s->first[rank + 1]; e++) {
            int n = next[e];
            r->send_table[(size_t)rank * s->most + e - s->first[rank]] = n;
            next[e] = at;
            at += n;
        }
        sent[rank] = at - from[rank];
    }
    for (size_t i = 0; i < r->tokens * s->K; i++)
        r->packed[i] = next[r->choice[i]]++;
}

/* Compute where rows arrive, and the offsets in expert-major order. */
static int arrivals(struct mpi_exchange *s, struct routing *r)
{
    int *received = r->counts + 2 * s->team->size;
    int *to = received + s->team->size;
    size_t own = s->first[s->team->rank + 1] - s->first[s->team->rank];
    size_t at = 0;

    memset(r->count, 0, own * sizeof(*r->count));
    for (int rank = 0; rank < s->team->size; rank++) {
        to[rank] = (int)at;
        for (size_t e = 0; e < own; e++) {
            int n = r->recv_table[(size_t)rank * s->most + e];
            r->count[e] += (size_t)n;
            at += (size_t)n;
        }
        received[rank] = (int)at - to[rank];
        if (at > INT_MAX)
            return train_error("%zu rows are too many for MPI's int", at);
    }
    r->total = at;
    r->offset[0] = 0;
    for (size_t e = 0; e < own; e++)
        r->offset[e + 1] = r->offset[e] + r->count[e];
    return reserve(s, r);
}

static int plan(struct exchange *x, size_t routing, const int32_t *choice,
                const float *weight, size_t tokens, bool again,
                struct exchange_rows *rows)
{
    struct mpi_exchange *s = self(x);
    struct routing *r = &s->routing[routing];

    (void)again; /* everything is computed again */
    r->tokens = tokens;
    memcpy(r->choice, choice, tokens * s->K * sizeof(*choice));
    memcpy(r->weight, weight, tokens * s->K * sizeof(*weight));
    order_slots(s, r);
    pack_order(s, r);
    s->team->mpi->alltoall(r->send_table, r->recv_table, (int)s->most);
    if (arrivals(s, r))
        return -1;
    for (int rank = 0; rank < s->team->size; rank++)
        if (s->far[rank]) {
            x->traffic.rows += (size_t)r->counts[rank];
            x->traffic.plain += (size_t)r->counts[rank];
        }
    *rows = (struct exchange_rows){
        s->first[s->team->rank + 1] - s->first[s->team->rank],
        s->own,
        r->count,
        r->offset,
        r->total,
        r->buffer[0],
        r->buffer[1],
        r->buffer[2],
        r->buffer[1],
        1,
        0,
        r->total,
    };
    return 0;
}

/* --- on the way ------------------------------------------------------------ */

static void count_sent(struct mpi_exchange *s, const int *counts)
{
    for (int rank = 0; rank < s->team->size; rank++) {
        if (rank == s->team->rank)
            continue;
        s->base.traffic.by_mpi += (size_t)counts[rank];
        if (s->far[rank])
            s->team->mpi_bytes += (double)counts[rank] * (double)s->bytes;
    }
}

/* Send the rows in `here` to the experts, to `major` (total, D) in expert-major
 * order. */
static void send_there(struct mpi_exchange *s, struct routing *r, float *major)
{
    const int ranks = s->team->size, *c = r->counts;
    const size_t own = s->first[s->team->rank + 1] - s->first[s->team->rank];
    size_t *at = s->at;

    count_sent(s, c);
    s->team->mpi->alltoallv(MPI_ALL, s->bytes, s->here, c, c + ranks, s->there,
                            c + 2 * ranks, c + 3 * ranks);
    for (int rank = 0; rank < ranks; rank++)
        at[rank] = (size_t)c[3 * ranks + rank];
    for (size_t e = 0; e < own; e++)
        for (int rank = 0; rank < ranks; rank++) {
            const size_t n = (size_t)r->recv_table[(size_t)rank * s->most + e];
            const char *from = s->there + at[rank] * s->bytes;

            if (s->bf16 && n)
                shunti_elementwise()->from_bf16(n * s->D, (const void *)from,
                                                major);
            else
                memcpy(major, from, n * s->bytes);
            major += n * s->D;
            at[rank] += n;
        }
}

/* Send the rows in `major` back to their tokens, to `packed`, in the order of
 * `here`. */
static void send_home(struct mpi_exchange *s, struct routing *r,
                      const float *major, void *packed)
{
    const int ranks = s->team->size, *c = r->counts;
    const size_t own = s->first[s->team->rank + 1] - s->first[s->team->rank];
    size_t *at = s->at;

    for (int rank = 0; rank < ranks; rank++)
        at[rank] = (size_t)c[3 * ranks + rank];
    for (size_t e = 0; e < own; e++)
        for (int rank = 0; rank < ranks; rank++) {
            const size_t n = (size_t)r->recv_table[(size_t)rank * s->most + e];
            char *to = s->there + at[rank] * s->bytes;

            if (s->bf16 && n)
                shunti_elementwise()->to_bf16(n * s->D, major, (void *)to);
            else
                memcpy(to, major, n * s->bytes);
            major += n * s->D;
            at[rank] += n;
        }
    count_sent(s, c + 2 * ranks);
    s->team->mpi->alltoallv(MPI_ALL, s->bytes, s->there, c + 2 * ranks,
                            c + 3 * ranks, packed, c, c + ranks);
}

/* The tokens' rows in the format in which they are sent. */
static const char *tokens_out(struct mpi_exchange *s, const struct routing *r,
                              const float *rows)
{
    if (!s->bf16)
        return (const char *)rows;
    shunti_elementwise()->to_bf16(r->tokens * s->D, rows, s->tokens);
    return (const char *)s->tokens;
}

/* y (tokens, D) = sum of [weight *] row, in the order of shunt_moe_combine() */
static void add_rows(struct mpi_exchange *s, const struct routing *r,
                     const char *packed, bool weighted, float *y)
{
    for (size_t t = 0; t < r->tokens; t++) {
        const size_t i = t * s->K;
        int32_t before = 0;

        for (size_t k = 0; k < s->K; k++) {
            const size_t slot = i + (size_t)r->slot[i + k];
            const int32_t e = r->choice[slot];

            s->terms[k] = (struct shunti_rows_term){
                .row = packed + (size_t)r->packed[slot] * s->bytes,
                .weight = weighted ? r->weight[slot] : 1.0f,
                .op = s->node[e] != s->node[before]     ? SHUNTI_ROWS_NODE
                      : s->group[e] != s->group[before] ? SHUNTI_ROWS_RANK
                                                        : SHUNTI_ROWS_ADD,
            };
            before = e;
        }
        s->kernels->sum(s->terms, s->K, NULL, 0, NULL,
                        s->bf16 ? (void *)(s->tokens + t * s->D)
                                : (void *)(y + t * s->D),
                        s->D);
    }
    if (s->bf16 && r->tokens)
        shunti_elementwise()->from_bf16(r->tokens * s->D, s->tokens, y);
}

static int dispatch_start(struct exchange *x, size_t routing, const float *from)
{
    struct mpi_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    const double began = clock_now();
    const char *rows = tokens_out(s, r, from);

    for (size_t i = 0; i < r->tokens * s->K; i++)
        memcpy(s->here + (size_t)r->packed[i] * s->bytes,
               rows + i / s->K * s->bytes, s->bytes);
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
    add_rows(s, r, r->home, true, y);
    x->traffic.seconds[EXCHANGE_COMBINE] += clock_now() - began;
    return 0;
}

static int combine_backward_start(struct exchange *x, size_t routing,
                                  const float *dy, float *dweight)
{
    struct mpi_exchange *s = self(x);
    struct routing *r = &s->routing[routing];
    const double began = clock_now();
    const char *rows = tokens_out(s, r, dy);

    for (size_t i = 0; i < r->tokens * s->K; i++) {
        const char *row = rows + i / s->K * s->bytes;
        const size_t at = (size_t)r->packed[i] * s->bytes;

        s->kernels->scale(s->here + at, row, r->weight[i], s->D);
        dweight[i] =
            s->kernels->dot(row, (const char *)r->home + at, NULL, s->D);
    }
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
    add_rows(s, r, s->back, false, dx);
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

/* --- its life -------------------------------------------------------------- */

static void destroy(struct exchange *x)
{
    struct mpi_exchange *s = self(x);

    for (size_t i = 0; s->routing && i < s->routings; i++) {
        struct routing *r = &s->routing[i];
        free(r->choice);
        free(r->weight);
        free(r->slot);
        free(r->packed);
        free(r->send_table);
        free(r->recv_table);
        free(r->counts);
        free(r->count);
        free(r->offset);
        free(r->home);
        for (int which = 0; which < BUFFERS; which++)
            free(r->buffer[which]);
    }
    free(s->routing);
    free(s->first);
    free(s->own);
    free(s->group);
    free(s->node);
    free(s->far);
    free(s->next);
    free(s->at);
    free(s->here);
    free(s->back);
    free(s->there);
    free(s->tokens);
    free(s->terms);
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
    const size_t ranks = (size_t)s->team->size, rows = s->max_tokens * s->K;
    bool bad = false;
    size_t own;

    s->first = zeroed(ranks + 1, sizeof(*s->first), &bad);
    s->next = zeroed(s->E, sizeof(*s->next), &bad);
    s->at = zeroed(ranks, sizeof(*s->at), &bad);
    s->far = zeroed(ranks, sizeof(*s->far), &bad);
    s->group = zeroed(s->E, sizeof(*s->group), &bad);
    s->node = zeroed(s->E, sizeof(*s->node), &bad);
    s->own = zeroed(s->E, sizeof(*s->own), &bad);
    s->here = zeroed(rows, s->bytes, &bad);
    s->back = zeroed(rows, s->bytes, &bad);
    s->terms = zeroed(s->K, sizeof(*s->terms), &bad);
    s->tokens =
        zeroed(s->bf16 ? s->max_tokens * s->D : 1, sizeof(*s->tokens), &bad);
    s->routing = zeroed(s->routings, sizeof(*s->routing), &bad);
    if (bad)
        return false;
    for (size_t rank = 0; rank < ranks; rank++) {
        exchange_experts(s->E, (int)rank, (int)ranks, &s->first[rank], &own);
        s->first[rank + 1] = s->first[rank] + own;
        s->most = own > s->most ? own : s->most;
    }
    for (size_t i = 0; i < s->routings; i++) {
        struct routing *r = &s->routing[i];
        r->choice = zeroed(rows, sizeof(*r->choice), &bad);
        r->weight = zeroed(rows, sizeof(*r->weight), &bad);
        r->slot = zeroed(rows, sizeof(*r->slot), &bad);
        r->packed = zeroed(rows, sizeof(*r->packed), &bad);
        r->send_table = zeroed(ranks * s->most, sizeof(*r->send_table), &bad);
        r->recv_table = zeroed(ranks * s->most, sizeof(*r->recv_table), &bad);
        r->counts = zeroed(4 * ranks, sizeof(*r->counts), &bad);
        r->count = zeroed(s->most, sizeof(*r->count), &bad);
        r->offset = zeroed(s->most + 1, sizeof(*r->offset), &bad);
        r->home = zeroed(rows, s->bytes, &bad);
    }
    return !bad;
}

int exchange_mpi_create(struct team *team, const struct model_config *model,
                        const struct exchange_config *config,
                        struct exchange **exchange)
{
    const size_t groups = (size_t)config->tree_ranks;
    const size_t nodes = (size_t)config->tree_nodes;
    struct mpi_exchange *s = calloc(1, sizeof(*s));

    if (!s)
        return train_error("out of memory");
    s->base.ops = &ops;
    s->team = team;
    s->bf16 = config->bf16;
    s->kernels = shunti_rows(s->bf16 ? SHUNT_BF16 : SHUNT_F32);
    s->D = model->dim;
    s->E = model->experts;
    s->K = model->topk;
    s->bytes = s->D * (s->bf16 ? 2 : sizeof(float));
    s->routings = model_moe_layers(model) * config->micro_batches;
    s->max_tokens = config->max_tokens;
    if (s->max_tokens * s->K > INT_MAX || s->bytes > INT_MAX) {
        free(s);
        return train_error("these are more rows than MPI's int counts");
    }
    if (!allocate(s)) {
        destroy(&s->base);
        return train_error("out of memory");
    }
    for (size_t e = 0; e < s->E; e++) {
        s->own[e] = (int32_t)(s->first[team->rank] + e);
        s->group[e] = (uint32_t)(e * groups / s->E);
        s->node[e] = (uint32_t)(s->group[e] * nodes / groups);
    }
    for (int rank = 0; rank < team->size; rank++)
        s->far[rank] = team_is_far(team, rank);
    *exchange = &s->base;
    return 0;
}
