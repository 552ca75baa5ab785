// SPDX-License-Identifier: Apache-2.0
/*
 * The interface through which the model sends rows to experts and receives
 * their results, in f32. Each layer of each micro-batch has one routing, which
 * has a number. Implementations: exchange_shunt.c for training, exchange_mpi.c
 * for comparison, and one without other ranks in the unit tests, to check
 * layers and model separately.
 */
#ifndef TRAIN_EXCHANGE_H
#define TRAIN_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Settings of implementations beside the model's shape. */
struct exchange_config {
    int bf16;               /* rows are sent as bf16, else as f32 */
    int fp8;                /* dispatched rows are sent as fp8 with scales */
    double capacity_factor; /* limit of an expert's rows, as a multiple of the
                               mean; 0: none, no row is dropped */
    int drop_by_weight;
    /* most rows that a rank's experts have at once; a routing with more
     * rows has waves. 0: any number */
    size_t max_rows;
    bool in_order;     /* waves are in order (shunt/moe_waves.h) */
    int tree_ranks;    /* sums over experts are made as if on this many ranks */
    int tree_nodes;    /* and as if these ranks were on this many nodes; 0: the
                          real nodes */
    size_t max_tokens; /* most tokens of one rank */
    /* 1 or more. A micro-batch has at most max_tokens / micro_batches tokens,
     * except if it is the only one of a call. */
    size_t micro_batches;
    bool overlap; /* false: each call is waited for as soon as it is started */
    bool apart;   /* each layer has a placement of its own */
    /* (M) whether a layer takes turns with others. The plan of such a layer is
     * released before the plan of another one is made, and all of these layers
     * use the same memory. NULL: no layer does. */
    const bool *turns;
    size_t leaf_rows; /* the rows of an expert are cut between copies only at
                         multiples of this; 0: anywhere */
};

/* The rows that this rank's experts receive in one routing, expert-major: row i
 * of expert j is row offset[j] + i. If the routing has several waves, the rows
 * of one wave. */
struct exchange_rows {
    size_t experts;        /* the number of this rank's experts */
    const int32_t *expert; /* (experts) their ids, ascending */
    const size_t *count;   /* (experts) rows of each */
    const size_t *offset;  /* (experts + 1) first row of each */
    size_t total;          /* offset[experts] */

    /* (total, D) each. The exchange owns these buffers; they are valid until
     * the routing is planned again. drows may be the same memory as out, since
     * out is not needed once dout has arrived. */
    float *rows;  /* experts' input, written by dispatch */
    float *out;   /* experts' output, read by combine and combine_backward */
    float *dout;  /* gradient of out, written by combine_backward */
    float *drows; /* gradient of rows, read by dispatch_backward */
    int waves;    /* number of waves, the same on all ranks; 0 or 1: a single
                     wave */
    int wave;     /* the wave that these rows belong to */
    size_t most;  /* rows of the largest wave, so the size of each of these
                     buffers */
};

/* The buffer that receives the rows of the next wave early. Forward has no
 * gradients, so dout is free; in backward out is free once dout has arrived. */
enum exchange_spare { EXCHANGE_INTO_DOUT, EXCHANGE_INTO_OUT };

struct exchange;

/* Calls are collective, except wait() and release(). They return 0, or -1 with
 * train_error_text().
 *
 * A _start call returns at once, and wait() completes it. Until then the caller
 * must not touch the memory that the call reads and writes. A routing has at
 * most one such call under way, beside an ahead(). */
struct exchange_ops {
    /* Returns zeroed memory for rows that dispatch sends. The memory lives at
     * least as long as the exchange. Returns NULL on failure, with
     * train_error_text(). */
    float *(*memory)(struct exchange *x, size_t floats);
    /* Plan a routing. choice (tokens, K) and weight (tokens, K) are copied.
     * again  the routing was planned and released before, with the same
     *        choices: its rows are sent to the same ranks */
    int (*plan)(struct exchange *x, size_t routing, const int32_t *choice,
                const float *weight, size_t tokens, bool again,
                struct exchange_rows *rows);
    /* A routing may have several waves. Then each call handles one of them, the
     * current wave, and only the rows of that wave's tokens. After plan() the
     * current wave is the last one. After plan() with `again` the current wave
     * is the first, because forward ends with the first. Arrays of tokens are
     * always those of the whole routing.
     *
     * ahead() starts the dispatch of another wave beside the other calls. Its
     * rows arrive in a buffer that is not needed any more: dout or out.
     * advance() waits for these rows and makes their wave the current one. The
     * buffers of the previous wave are then lost, except the one that a call
     * under way still reads: out, or drows. */
    int (*ahead)(struct exchange *x, size_t routing, int wave,
                 const float *from, enum exchange_spare into);
    int (*advance)(struct exchange *x, size_t routing,
                   struct exchange_rows *rows);
    /* from (tokens, D) -> rows */
    int (*dispatch_start)(struct exchange *x, size_t routing,
                          const float *from);
    /* out -> y (tokens, D) = sum of weight * out */
    int (*combine_start)(struct exchange *x, size_t routing, float *y);
    /* dy (tokens, D), out -> dout, dweight (tokens, K) */
    int (*combine_backward_start)(struct exchange *x, size_t routing,
                                  const float *dy, float *dweight);
    /* drows -> dx (tokens, D) = sum of drows */
    int (*dispatch_backward_start)(struct exchange *x, size_t routing,
                                   float *dx);
    int (*wait)(struct exchange *x, size_t routing);
    /* Releases the routing's plan, which is no longer needed. Not collective,
     * cannot fail. */
    void (*release)(struct exchange *x, size_t routing);
    /* Set exchange_config.overlap. No call may be under way. */
    void (*set_overlap)(struct exchange *x, bool overlap);
    /* Destroy the exchange, before the communicator. Cannot fail. */
    void (*destroy)(struct exchange *x);
};

/* The four exchanges of rows. */
enum exchange_call {
    EXCHANGE_DISPATCH,
    EXCHANGE_COMBINE,
    EXCHANGE_COMBINE_BACKWARD,
    EXCHANGE_DISPATCH_BACKWARD,
    EXCHANGES,
};

/* Rows that this rank sent and dropped since the caller last cleared this
 * struct. */
struct exchange_traffic {
    size_t rows;    /* rows that dispatch sent to other nodes; as many return */
    size_t plain;   /* what `rows` would be if each assignment sent a row of its
                       own */
    size_t dropped; /* assignments beyond the capacity */
    size_t waves;   /* waves of routings, not counting the first of each */
    size_t by_mpi;  /* rows that MPI sent to any rank, in all four exchanges */
    /* Time that this rank spent in each exchange: starting it and waiting for
     * it. */
    double seconds[EXCHANGES];
};

/* The first member of every implementation's struct. */
struct exchange {
    const struct exchange_ops *ops;
    struct exchange_traffic traffic;
};

/* Does nothing for NULL. */
static inline void exchange_destroy(struct exchange *x)
{
    if (x)
        x->ops->destroy(x);
}

/* The experts whose home is `rank`, [*first, *first + *count): expert e is on
 * rank e * ranks / experts. This is also the library's default placement. */
static inline void exchange_experts(size_t experts, int rank, int ranks,
                                    size_t *first, size_t *count)
{
    size_t n = (size_t)ranks, r = (size_t)rank;

    *first = (r * experts + n - 1) / n;
    *count = ((r + 1) * experts + n - 1) / n - *first;
}

#endif
