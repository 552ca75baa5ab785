// SPDX-License-Identifier: Apache-2.0
/*
 * The interface by which the model sends rows to experts and gets results back,
 * in f32. A routing, of which there is one for each layer of each micro-batch,
 * has a number. exchange_shunt.c is the implementation for training,
 * exchange_mpi.c the one that it is compared with; the unit tests have one
 * without ranks, to check layers and model separately.
 */
#ifndef TRAIN_EXCHANGE_H
#define TRAIN_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the implementations need to know, beside the model's shape. */
struct exchange_config {
    int bf16;               /* rows travel as bf16, else as f32 */
    int fp8;                /* dispatched rows travel as fp8 with scales */
    double capacity_factor; /* 0: dropless */
    int drop_by_weight;
    size_t
        max_rows; /* of a rank at once: a routing with more has waves; 0: any */
    bool in_order;     /* these waves are (shunt/moe_waves.h) */
    int tree_ranks;    /* experts are summed as if on this many ranks, */
    int tree_nodes;    /* and these on this many nodes; 0: the real ones */
    size_t max_tokens; /* of one rank */
    /* 1 or more; each has at most its part of max_tokens, unless it is alone */
    size_t micro_batches;
    bool overlap; /* no: a started call is waited for at once */
    bool apart;   /* each layer has a placement of its own */
    /* (M) layers whose routings of a micro-batch take turns: a plan of one is
     * released before the next one's is made, and all have one memory. NULL: none */
    const bool *turns;
    size_t leaf_rows; /* rows of copies are cut between so many; 0: anywhere */
};

/* The rows that this rank's experts get in one routing, expert-major: row i of
 * expert j is offset[j] + i. Of a routing in several waves, those of one. */
struct exchange_rows {
    size_t experts;        /* of this rank */
    const int32_t *expert; /* (experts) their ids, ascending */
    const size_t *count;   /* (experts) rows */
    const size_t *offset;  /* (experts + 1) first row of each */
    size_t total;          /* offset[experts] */

    /* (total, D): the exchange's own, valid until the routing is planned again.
     * drows may be out, which is not needed once dout is there. */
    float *rows;  /* experts' input, written by dispatch */
    float *out;   /* experts' output, read by combine and combine_backward */
    float *dout;  /* gradient of out, written by combine_backward */
    float *drows; /* gradient of rows, read by dispatch_backward */
    int waves;    /* of the routing, the same on all ranks; at most 1: one */
    int wave;     /* whose rows these are */
    size_t most;  /* rows of the largest one: of each of these buffers */
};

/* Where rows of a wave may land that come ahead: in forward no gradients are there;
 * in backward out is not needed once dout is. */
enum exchange_spare { EXCHANGE_INTO_DOUT, EXCHANGE_INTO_OUT };

struct exchange;

/* All calls but wait are collective. They return 0, or -1 with
 * train_error_text().
 *
 * A _start call returns at once, and wait() ends it. What it reads and writes is
 * its own until then. Of a routing one such call is under way at a time, beside what
 * comes ahead. */
struct exchange_ops {
    /* Zeroed memory for rows that are dispatched from; lives as long as the
     * exchange. NULL: train_error_text(). */
    float *(*memory)(struct exchange *x, size_t floats);
    /* choice (tokens, K), weight (tokens, K): copied.
     * again  what was released is planned once more, with the same choices: rows go
     *        where they went */
    int (*plan)(struct exchange *x, size_t routing, const int32_t *choice,
                const float *weight, size_t tokens, bool again,
                struct exchange_rows *rows);
    /* The calls of a routing that has several waves are about one of them, the rows
     * of its tokens; after plan, about the last, and after plan again about the first,
     * with which forward ends. Arrays of tokens are those of the whole routing all the
     * same.
     *
     * ahead: the rows of another wave set out, beside the other calls; they land where
     * nothing is needed any more, in dout, or in out. advance: they are here, and the
     * calls are about that wave. What is in rows of the wave before is lost, but for
     * what a call that is under way reads: its out, or its drows. */
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
    /* The routing is no longer needed. Not a collective, cannot fail. */
    void (*release)(struct exchange *x, size_t routing);
    /* From now on calls are waited for at once, or not: exchange_config.overlap.
     * None is under way. */
    void (*set_overlap)(struct exchange *x, bool overlap);
    /* The end of the exchange. Before the communicator's; cannot fail. */
    void (*destroy)(struct exchange *x);
};

/* The exchanges of rows. */
enum exchange_call {
    EXCHANGE_DISPATCH,
    EXCHANGE_COMBINE,
    EXCHANGE_COMBINE_BACKWARD,
    EXCHANGE_DISPATCH_BACKWARD,
    EXCHANGES,
};

/* What was sent from this rank, and dropped, since the caller cleared it. */
struct exchange_traffic {
    size_t rows;    /* to other nodes in dispatches; as many come back */
    size_t plain;   /* what they would be at one row for each assignment */
    size_t dropped; /* assignments beyond the capacity */
    size_t waves;   /* of routings, beyond the first of each */
    size_t by_mpi;  /* rows that MPI carried to any rank, in all four calls */
    /* this rank spent in the calls of each exchange: to start it, and to wait */
    double seconds[EXCHANGES];
};

/* The first member of every implementation. */
struct exchange {
    const struct exchange_ops *ops;
    struct exchange_traffic traffic;
};

/* NULL is allowed. */
static inline void exchange_destroy(struct exchange *x)
{
    if (x)
        x->ops->destroy(x);
}

/* The experts of a rank, [*first, *first + *count): expert e is on rank
 * e * ranks / experts, which is the library's own placement. */
static inline void exchange_experts(size_t experts, int rank, int ranks,
                                    size_t *first, size_t *count)
{
    size_t n = (size_t)ranks, r = (size_t)rank;

    *first = (r * experts + n - 1) / n;
    *count = ((r + 1) * experts + n - 1) / n - *first;
}

#endif
