// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Mixture of experts: send each token to its experts, and add up their results.
 *
 * One layer, forward; x and y are (tokens, hidden) in bf16, the default dtype:
 *
 *     struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
 *     struct shunt_moe *moe;
 *     struct shunt_moe_plan *plan;
 *     struct shunt_moe_rows in;
 *     uint16_t *rows, *out;
 *
 *     config.hidden = 1024;
 *     config.experts = 64;
 *     config.topk = 8;
 *     config.max_tokens = 4096;
 *     config.weights = SHUNT_MOE_APPLY_WEIGHTS;
 *     status = shunt_moe_create(comm, &config, &moe);
 *
 *     status = shunt_moe_plan_create(moe, idx, weight, tokens, &plan);
 *     shunt_moe_plan_rows(plan, &in, sizeof(in));
 *     rows = shunt_moe_buffer(plan, SHUNT_MOE_ROWS);
 *     out = shunt_moe_buffer(plan, SHUNT_MOE_OUT);
 *     status = shunt_moe_dispatch(plan, x, rows, in.total);
 *     for (int i = 0; i < in.local_experts; i++)
 *         expert(in.expert[i], rows + in.offset[i] * config.hidden,
 *                in.count[i], out + in.offset[i] * config.hidden);
 *     status = shunt_moe_combine(plan, out, NULL, y);
 *
 * Five fields of the configuration must be set: hidden, experts, topk,
 * max_tokens and weights. The others may stay as they are. examples/moe_layer.c
 * is a whole program, with the communicator, the checks of `status` and the
 * backward pass.
 *
 * Objects. A `struct shunt_moe` is an exchange: it holds the configuration and
 * the windows, which are expensive to set up. A `struct shunt_moe_plan` is made
 * once per routing, and serves dispatch, combine and both backward passes any
 * number of times:
 *
 *     plan     = routing of this rank's tokens + the counts of all ranks
 *     dispatch : x (tokens, hidden)      -> rows (total, hidden), expert-major
 *     combine  : out (total, hidden)     -> y (tokens, hidden)
 *     combine_backward  : dy (tokens, hidden) -> dout (total, hidden), dweight
 *     dispatch_backward : drows (total, hidden) -> dx (tokens, hidden)
 *
 * Expert-major: this rank's experts in ascending order; within an expert, rows
 * by source rank, then by source token, then by top-k slot.
 *
 * Layouts, counts and sums are a pure function of the routing: they have the
 * same bits in every run and over every transport.
 *
 * Blocking. dispatch, combine and their gradients have a blocking form and a
 * `_start` form, which returns a request (request.h). shunt_moe_create(),
 * shunt_moe_set_placement(), shunt_moe_set_shares() and shunt_moe_plan_create()
 * block and have no `_start` form. They may be called while requests are under
 * way.
 *
 * Further headers: moe_parts.h moves a plan in parts, so that experts compute
 * on one part while others travel. moe_waves.h makes plans with options, and
 * plans in bounded memory.
 *
 * Five rules hold for all calls: Aliasing, Alignment, Devices, Memory and
 * Lifetime. They are at the end of this file.
 */
#ifndef SHUNT_MOE_H
#define SHUNT_MOE_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>
#include <shunt/request.h>
#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_comm;
struct shunt_moe;
struct shunt_moe_plan;

/** How combine uses the routing weights. The caller must choose one. */
enum shunt_moe_weights {
    SHUNT_MOE_APPLY_WEIGHTS = 1, /* y = sum of weight * out */
    SHUNT_MOE_PLAIN_SUM = 2,     /* y = sum of out: the experts have applied
                                    the weights */
};

/** The encoding of the rows that dispatch sends. */
enum shunt_moe_wire {
    SHUNT_MOE_WIRE_PAYLOAD = 0, /* rows as they are, in `dtype` */
    SHUNT_MOE_WIRE_FP8 = 1,     /* dispatch: e4m3 (x / scale), with one f32
                                   scale = max(largest |x|, 1e-4) / 448 for each
                                   128 elements (the last may be fewer). Rows
                                   arrive expanded to `dtype`. e4m3 and `dtype`
                                   are rounded to the nearest, ties to even;
                                   both have subnormals, and a zero keeps its
                                   sign. A NaN arrives as a NaN, and does not
                                   count for the scale. An infinity makes all
                                   elements of its scale NaN */
};

/**
 * The rows that combine and dispatch_backward send between nodes in TWO_LEVEL
 * and ALLGATHER.
 *
 * A node that has experts of a token sends one row for it, the sum of the
 * node's rows. It sends several rows where the order of the sum requires that:
 * with SHUNT_MOE_ORDER_HOMES, or if tree_ranks puts experts of several nodes on
 * one.
 */
enum shunt_moe_partials {
    SHUNT_MOE_PARTIALS_F32 = 0,   /* not rounded: the same bits as in DIRECT. A
                                     sum is f32. A node with only one row of the
                                     token sends that row as it is, in `dtype`;
                                     the token's rank applies the weight. Never
                                     more bytes than in FLAT */
    SHUNT_MOE_PARTIALS_DTYPE = 1, /* rounded to `dtype`: with bf16 half the
                                     bytes where a node adds up several rows.
                                     The error is at most 2^-8 of each row that
                                     is sent, also of a single row */
};

/**
 * How rows travel.
 *
 * Each direction has its own mode. `mode` of the configuration is for dispatch
 * and combine_backward, which send rows to the experts. `combine_mode` is for
 * combine and dispatch_backward, which send rows back to the tokens' ranks.
 * struct shunt_moe_rows has the modes of a plan: on one node TWO_LEVEL and
 * ALLGATHER are DIRECT.
 *
 * Any two modes can be paired, and all pairs give the same bits: dispatch and
 * combine_backward in every mode; combine and dispatch_backward in every
 * combine_mode with PARTIALS_F32. With PARTIALS_DTYPE the bits depend on
 * combine_mode alone: only TWO_LEVEL and ALLGATHER round the sums of other
 * nodes.
 *
 * AUTO takes two levels in both directions: they send no more bytes than FLAT
 * (docs/scaling.md). FLAT is much slower with skewed routing, and where the
 * network is thinner between rails than within them.
 */
enum shunt_moe_mode {
    SHUNT_MOE_AUTO = 0,   /* DIRECT in one node, TWO_LEVEL or ALLGATHER between
                             several; FLAT where these are impossible */
    SHUNT_MOE_DIRECT = 1, /* every rank writes into every other's memory */
    SHUNT_MOE_FLAT = 2,   /* by alltoallv; a token is sent once to each rank,
                             and each result is sent back by itself */
    SHUNT_MOE_TWO_LEVEL = 3, /* a token is sent once to each node, to the rail
                                peer there, which passes it on; results are
                                added up in the node first */
    SHUNT_MOE_ALLGATHER = 4, /* as TWO_LEVEL, but every token is sent to every
                                node */
};

/** The assignments that are dropped when an expert's capacity is exceeded. */
enum shunt_moe_drop {
    SHUNT_MOE_DROP_POSITION = 0, /* the latest tokens; of one token the latest
                                    slots */
    SHUNT_MOE_DROP_WEIGHT = 1,   /* the smallest weights, -2 before -1 before 0;
                                    of equal weights the later one, as in
                                    POSITION. A NaN counts as -infinity, -0 as
                                    0. Without topk_weight the same as
                                    POSITION */
};

/** The place of an expert in the sums of combine, if the expert has copies. */
enum shunt_moe_order {
    SHUNT_MOE_ORDER_COPIES = 0, /* at the rank whose copy the source uses. So
                                   copies change the order of a sum, and with
                                   it its last bits. In TWO_LEVEL each node adds
                                   up all of its own rows of a token */
    SHUNT_MOE_ORDER_HOMES = 1, /* at the expert's rank in `placement`, whichever
                                   copy did the work: the bits of a run without
                                   copies. This costs nothing while each source
                                   uses copies on the expert's own node.
                                   Otherwise a node's rows of a token may not be
                                   neighbours in the tree. In two levels the
                                   node adds up only neighbours, and sends
                                   several rows of the token back: at most one
                                   for each expert there, and no more bytes than
                                   FLAT. network_combine_rows of struct
                                   shunt_moe_rows counts these rows */
};

/** A further rank that holds `expert`, besides its place in `placement`. */
struct shunt_moe_replica {
    int32_t expert; /* 0 .. experts - 1 */
    int32_t rank;   /* 0 .. nranks - 1; not the expert's place already */
};

/**
 * The configuration of an exchange. It must be the same on every rank, which is
 * checked. Fill it with SHUNT_MOE_CONFIG_INIT, then set hidden, experts, topk,
 * max_tokens and weights. In all other fields zero means the default. New
 * versions only append fields.
 */
struct shunt_moe_config {
    size_t size;            /* sizeof(struct shunt_moe_config) */
    size_t hidden;          /* elements of a row, >= 1 */
    enum shunt_dtype dtype; /* SHUNT_F32 or SHUNT_BF16: rows and results */
    int experts;            /* E, >= 1; need not divide by ranks */
    int topk;               /* K, >= 1 */
    size_t max_tokens;      /* most tokens of one rank in one plan */
    enum shunt_moe_weights weights; /* required */
    enum shunt_moe_wire wire;       /* the encoding of rows in dispatch */
    const int32_t *placement;       /* (experts) the rank of each expert; NULL:
                                 e * ranks / E */
    const struct shunt_moe_replica *replicas; /* (nreplicas) further copies
                                of experts. Without `share` each source rank
                                uses one copy: its own, else one on its node,
                                else any. If n copies are equally good, it uses
                                number (its rank modulo n), counted from 0 in
                                the order of their ranks. The expert on its rank
                                in `placement` counts as one of the copies */
    size_t nreplicas;                         /* entries of replicas */
    size_t row_align;         /* each expert's rows start at a multiple; 0: 1.
                                Rows in the gaps are zero. */
    int plans_in_flight;      /* plans that may exist at once; 0: 4; 2 to 256 */
    double capacity_factor;   /* 0: nothing is dropped. c > 0: of each (source
                                rank, expert) keep at most ceil(c * tokens *
                                topk / experts) assignments, computed in double
                                from left to right; `tokens` are the source's
                                in this plan. Weights of kept assignments do
                                not change. c < 0: the same with -c, but only as
                                a cap (pad_to_capacity). A plan may have its own
                                capacity_factor (moe_waves.h) */
    enum shunt_moe_drop drop; /* which assignments exceed the capacity */
    int pad_to_capacity;      /* 1: each (source rank, expert) takes its full
                                capacity in rows (even shapes): the source's
                                rows, then zeros, then the next source's. If
                                capacity_factor is 0, the capacity is the
                                smallest that drops nothing on any rank: the
                                most rows that a source has for an expert. If
                                it is less than 0: that or the source's cap,
                                whichever is less (Tutel, 2206.03382). With
                                replicas, the copy that the source uses takes
                                these rows, and other copies take none */
    int tree_ranks;           /* combine adds in the order that a run on
                                tree_ranks ranks would use, with experts placed
                                contiguously: expert e is in group
                                e * tree_ranks / experts, whatever rank it or a
                                replica is on. A multiple of nranks; each rank
                                and its node stand for an equal share of the
                                groups. So fewer ranks give the bits of more
                                ranks. 0: an expert's group is a rank, as
                                `order` says */
    enum shunt_moe_mode mode; /* mode of dispatch and combine_backward. AUTO:
                                 the environment's SHUNT_MOE_MODE, else as the
                                 ranks can reach each other */
    enum shunt_moe_partials partials; /* rows of combine between nodes */
    int tree_nodes; /* nodes that the groups of tree_ranks are on, in order and
                       equally many on each; 0: the nodes of their ranks */
    enum shunt_moe_mode combine_mode; /* mode of combine and dispatch_backward.
                                         AUTO: the value of `mode`. If that is
                                         AUTO, too: the second word of
                                         SHUNT_MOE_MODE ("two-level,flat"), or
                                         its only word */
    enum shunt_moe_order order;       /* order of sums, if there are copies;
                                   tree_ranks takes precedence */
    const int64_t *share; /* (experts + nreplicas) how much of an expert's rows
                             each copy takes: shunt_moe_set_shares(). NULL: each
                             source uses one copy, as `replicas` says */
    size_t leaf_rows;     /* rows of a leaf (moe_gradients.h); a copy's share
                             is a range of leaves; 0: 64 */
};

/** The defaults. Set hidden, experts, topk, max_tokens and weights. */
#define SHUNT_MOE_CONFIG_INIT                                                  \
    {                                                                          \
        sizeof(struct shunt_moe_config), 0, SHUNT_BF16, 0, 0, 0,               \
            SHUNT_MOE_NO_WEIGHTS, SHUNT_MOE_WIRE_PAYLOAD, 0, 0, 0, 0, 0, 0,    \
            SHUNT_MOE_DROP_POSITION, 0, 0, SHUNT_MOE_AUTO,                     \
            SHUNT_MOE_PARTIALS_F32, 0, SHUNT_MOE_AUTO, SHUNT_MOE_ORDER_COPIES, \
            0, 0                                                               \
    }
#ifdef __cplusplus
#define SHUNT_MOE_NO_WEIGHTS static_cast<enum shunt_moe_weights>(0)
#else
/** No value of enum shunt_moe_weights: the caller has to choose one. */
#define SHUNT_MOE_NO_WEIGHTS ((enum shunt_moe_weights)0)
#endif

/**
 * Make an exchange, and check that all ranks agree on its configuration.
 *
 * config  copied, with the arrays it points to.
 * moe     out; destroy with shunt_moe_destroy() (see Lifetime below).
 *
 * Collective. Windows are reused when every rank has destroyed an exchange: a
 * communicator has as many descriptors and mappings as its exchanges needed
 * when most of them existed at once.
 *
 * Errors: SHUNT_ERR_INVALID naming the field; SHUNT_ERR_MISMATCH naming a rank
 * and the field (modes from the environment are compared, too);
 * SHUNT_ERR_UNSUPPORTED, the memory of these ranks does not permit the mode of
 * the field that is named; SHUNT_ERR_BUSY, `comm` has 1024 exchanges already
 * (an exchange counts until every rank has destroyed it).
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_create(struct shunt_comm *comm, const struct shunt_moe_config *config,
                 struct shunt_moe **moe);

/**
 * Destroy an exchange and its plans; NULL is allowed. Local.
 *
 * Unfinished requests continue and complete. So do lists that plans still send,
 * in later calls on the communicator. After the last of these the memory of the
 * exchange's buffers is freed. Address space and descriptors are kept for the
 * next exchange of the communicator.
 */
SHUNT_API void shunt_moe_destroy(struct shunt_moe *moe);

/**
 * Change the placement of experts for plans that are made from now on. Plans
 * that exist keep their placement, and stay usable. shunt_moe_move() and
 * shunt_moe_replicas_refresh() (moe_experts.h) move the parameters.
 *
 * Arrays as in the config; copied. Collective: one all-gather, as for a plan,
 * so each batch may have a placement of its own. Errors: as shunt_moe_create().
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_set_placement(struct shunt_moe *moe, const int32_t *placement,
                        const struct shunt_moe_replica *replicas,
                        size_t nreplicas);

/**
 * shunt_moe_set_placement(), and set how copies of an expert share its rows.
 *
 * All rows of an expert in a plan have one order, the *global order*, which no
 * placement changes: by source rank, then by token, then by top-k slot. The
 * global order is divided into leaves of leaf_rows rows; the last leaf may have
 * fewer. Each copy takes a range of leaves, the copy on the lowest rank the
 * first one. So rows travel to the nearest copies where ranks of a node follow
 * one another, and each copy has few sums (moe_gradients.h).
 *
 * share  (experts + nreplicas) of each expert's copy in `placement`, then of
 *        each replica: 0 or more, in any unit; the sum over all copies of an
 *        expert is less than 2^63. A copy takes its part of the rows of each
 *        plan, rounded at each end to the nearest boundary of leaves (half: to
 *        the later one). If all shares of an expert are 0, the copy in
 *        `placement` takes all rows. Shares that are numbers of rows of a
 *        batch, as shunt_balance_batch() gives them, are met exactly in that
 *        batch. NULL: as shunt_moe_set_placement().
 *
 * With replicas and shares a plan needs the counts of all ranks before it can
 * place rows: one more all-gather of 4 bytes for each expert and rank, whatever
 * SHUNT_MOE_RECORDS is. So every rank has shunt_moe_loads_by_source().
 *
 * Collective. Errors: as shunt_moe_set_placement(), and SHUNT_ERR_INVALID with
 * pad_to_capacity. Padding gives each (source rank, expert) equally many rows
 * in every plan, but a copy's part of them depends on the counts of all ranks.
 * Each copy would have to take a source's whole capacity, so sharing would save
 * nothing. With pad_to_capacity use copies without shares, or use
 * capacity_factor without padding.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_set_shares(struct shunt_moe *moe, const int32_t *placement,
                     const struct shunt_moe_replica *replicas, size_t nreplicas,
                     const int64_t *share);

/**
 * Plan one routing: exchange counts, so that each rank knows where its rows
 * go.
 *
 * topk_idx     (tokens, topk) expert ids; -1: none. An id may repeat within a
 *              token: counted twice, sent once, both weights applied. Copied.
 *              Ids in int64_t, as in PyTorch, must be converted: SHUNT_LOG=info
 *              logs where ids look like int64_t.
 * topk_weight  (tokens, topk) f32, copied; NULL: all 1. Any sign; not
 *              normalised; a NaN or an infinity propagates to the results.
 * tokens       0 .. max_tokens; may differ between ranks. tokens * topk is less
 *              than 2^32.
 * plan         out; shunt_moe_plan_destroy().
 *
 * Collective. Errors: SHUNT_ERR_INVALID, an id outside [-1, experts), naming
 * token, slot and value, or too many tokens; SHUNT_ERR_BUSY, plans_in_flight
 * plans exist already (a plan counts until every rank has destroyed it); both
 * are SHUNT_ERR_REMOTE on the other ranks. SHUNT_ERR_MISMATCH, ranks plan for
 * different exchanges or in another order. Where ranks do not share memory,
 * lists of rows are still on their way when the call returns. A rank that has
 * no memory for them, or that is lost, ends the communicator, in this call or
 * in a later one.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_plan_create(struct shunt_moe *moe, const int32_t *topk_idx,
                      const float *topk_weight, size_t tokens,
                      struct shunt_moe_plan **plan);

/**
 * Destroy a plan; NULL is allowed. Local. Unfinished requests of the plan
 * continue and complete; then the exchange reuses the plan's buffers. A later
 * use of the handle is SHUNT_ERR_INVALID.
 */
SHUNT_API void shunt_moe_plan_destroy(struct shunt_moe_plan *plan);

/** The rows of an expert that a plan puts on this rank: `count` rows of the
 * global order (shunt_moe_set_shares()), from number `first` on. */
struct shunt_moe_range {
    uint64_t first; /* number of the first row in the global order */
    uint64_t count; /* rows on this rank */
    uint64_t all;   /* rows on all copies together */
};

/** The rows that this rank receives and sends under a plan. The plan owns the
 * arrays. */
struct shunt_moe_rows {
    int local_experts;     /* experts on this rank */
    const int32_t *expert; /* (local_experts) their ids, ascending */
    const size_t *count;   /* (local_experts) rows, without alignment; with
                              pad_to_capacity the padding is included */
    const size_t *offset;  /* (local_experts + 1) first row of each, aligned */
    size_t total;          /* rows of a rows buffer: offset[local_experts] */
    const size_t *source_count;  /* (nranks, local_experts) rows by source,
                                   without any padding */
    const size_t *source_tokens; /* (nranks) distinct tokens by source */
    size_t tokens;               /* this rank's own tokens */
    size_t kept;                 /* this rank's assignments that are sent */
    size_t dropped;              /* this rank's assignments over capacity */
    size_t bytes_sent; /* payload this rank copies to others per dispatch */
    enum shunt_moe_mode mode; /* mode of dispatch; never AUTO */
    size_t network_rows; /* rows this rank sends to other nodes per dispatch */
    size_t network_rows_plain;     /* network_rows at one row per assignment */
    size_t network_dispatch_bytes; /* payload of network_rows */
    size_t network_combine_bytes;  /* payload that other nodes send to this
                                      rank per combine */
    enum shunt_moe_mode combine_mode; /* mode of combine; never AUTO */
    int parts;  /* number of parts of the plan (moe_parts.h), or 1 */
    int unused; /* 0 */
    const struct shunt_moe_range *range; /* (local_experts) rows of each expert
                                   that are here. `first` and `all` are
                                   SHUNT_MOE_SCATTERED if there are copies
                                   without shares, which take rows by source;
                                   also for a plan in waves that each share out
                                   their own rows (moe_waves.h), unless all rows
                                   are here. For a wave: counted in the wave's
                                   own rows, or, with in_order (moe_waves.h), in
                                   the rows of the whole plan */
    size_t leaf_rows;                    /* rows of a leaf */
    int waves; /* number of waves of the plan (moe_waves.h), or 1; for a wave
                  1 */
    int wave;  /* index of this wave; 0 if not a wave */
    size_t first_token;          /* first token of this wave; 0 if not a wave */
    size_t network_combine_rows; /* rows that other nodes send to this rank per
                                   combine: in two levels one for each token
                                   and node, or more (SHUNT_MOE_ORDER_HOMES) */
};

/** `first` and `all` of a range if the rows of the copy are not consecutive in
 * the global order. */
#define SHUNT_MOE_SCATTERED UINT64_MAX

/**
 * Read the sizes of a plan. Local. The arrays live as long as the plan.
 *
 * rows       out; all zeros for a plan that has been destroyed.
 * rows_size  sizeof(struct shunt_moe_rows); only that much is written.
 */
SHUNT_API void shunt_moe_plan_rows(const struct shunt_moe_plan *plan,
                                   struct shunt_moe_rows *rows,
                                   size_t rows_size);

/** The library's own row buffers of a plan. */
enum shunt_moe_buffer {
    SHUNT_MOE_ROWS = 0,  /* written by dispatch */
    SHUNT_MOE_OUT = 1,   /* read by combine and combine_backward */
    SHUNT_MOE_DOUT = 2,  /* written by combine_backward */
    SHUNT_MOE_DROWS = 3, /* read by dispatch_backward */
};

/**
 * Return a buffer of the plan, (total, hidden), aligned to 4096 bytes.
 *
 * The buffer is a window, so a row is copied once. The caller owns its
 * contents: the library writes to it only in a call that has it as an output.
 *
 * The caller may pass memory of its own instead. A window of shunt_mem_alloc()
 * is as fast. Other memory costs one more copy, through scratch memory of the
 * plan: one for each enum shunt_moe_buffer, allocated at its first use. So for
 * each of these four purposes only one unfinished request of the plan can use
 * such memory; another one is SHUNT_ERR_BUSY.
 *
 * Local; valid until the plan is destroyed; NULL if total is 0 or plan is bad.
 */
SHUNT_API void *shunt_moe_buffer(const struct shunt_moe_plan *plan,
                                 enum shunt_moe_buffer which);

/**
 * Send each token's row to its experts.
 *
 * x         (tokens, hidden) dtype; read only.
 * rows      (max_rows, hidden) dtype; rows total..max_rows are not touched,
 *           alignment gaps are zeroed. Must not overlap x (see Aliasing below).
 * max_rows  rows that `rows` can hold. Fewer than total: SHUNT_ERR_OVERFLOW
 *           here, naming the need, and nothing is written. The other ranks wait
 *           in the call: make it again with a larger buffer before any other
 *           call on this communicator. If this rank makes another call, or
 *           destroys the plan, the other ranks get SHUNT_ERR_REMOTE.
 *
 * Collective. Bit-identical to a gather of the rows (with WIRE_FP8: of the
 * rows rounded through e4m3).
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_dispatch(struct shunt_moe_plan *plan, const void *x, void *rows,
                   size_t max_rows);
/** shunt_moe_dispatch() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_dispatch_start(struct shunt_moe_plan *plan, const void *x, void *rows,
                         size_t max_rows, struct shunt_request **request);

/**
 * Send the experts' results back to the tokens' ranks, and add them up there.
 *
 * out   (total, hidden) dtype, expert-major. Padding rows are not read.
 * bias  (tokens, hidden) dtype, added first (a residual), or NULL. Local: some
 *       ranks may have one and others not.
 * y     (tokens, hidden) dtype. May be bias; must not overlap it otherwise, nor
 *       out (see Aliasing below).
 *
 * Sums are in f32, without contraction, in one fixed tree in every mode: the
 * bias first, then nodes ascending; within a node ranks ascending; within a
 * rank experts ascending, equal ids by top-k slot. An expert's rank is that of
 * the copy which the source uses, or its home (enum shunt_moe_order).
 * (tree_ranks and tree_nodes of the configuration replace these ranks and nodes
 * by others.)
 *
 * The result is rounded to dtype once, to the nearest, ties to even. A term is
 * weight * row, rounded to f32; with PLAIN_SUM it is the row. Each sum of the
 * tree begins with its first term, not with +0, so a row of -0 alone gives -0.
 * A weight of 0 is no exception: times a NaN or an infinity it gives a NaN.
 * Dropped assignments are no terms. A token without experts gives its bias, or
 * +0.
 *
 * Collective.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_combine(struct shunt_moe_plan *plan, const void *out,
                  const void *bias, void *y);
/** shunt_moe_combine() that returns at once; `*request` finishes it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_combine_start(struct shunt_moe_plan *plan, const void *out,
                        const void *bias, void *y,
                        struct shunt_request **request);

/**
 * Gradient of combine.
 *
 * dy        (tokens, hidden) dtype.
 * out       (total, hidden) dtype, as given to combine; NULL if no rank wants
 *           dweight.
 * dout      (max_rows, hidden) dtype: weight * dy, in the place of each row
 *           (PLAIN_SUM: dy). Gaps and padding are zeroed. May be out; then its
 *           rows are lost, also if the call fails. Must not overlap it
 *           otherwise, nor dy (see Aliasing below).
 * max_rows  as in dispatch.
 * dweight   (tokens, topk) f32: <dy, out> of each assignment, also with
 *           PLAIN_SUM; +0 where none or dropped; NULL: not wanted (on every
 *           rank with tokens alike, or SHUNT_ERR_MISMATCH). Must not overlap
 *           dy, out or dout. On a rank without tokens the argument is ignored:
 *           if the other ranks want dweight, they need the `out` of that rank.
 *
 * dout is rounded to dtype as in combine. A product for dweight is rounded to
 * f32 and added in f32. There are 64 sums, which begin with +0: element i is
 * added to sum i mod 64, in ascending order. Then sum j + 32 is added to sum j,
 * j + 16 to j, and so on down to one.
 *
 * Collective. Rows travel to the experts, so `mode` counts, not `combine_mode`.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_combine_backward(struct shunt_moe_plan *plan, const void *dy,
                           const void *out, void *dout, size_t max_rows,
                           float *dweight);
/** shunt_moe_combine_backward() that returns at once; `*request` finishes
 * it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status shunt_moe_combine_backward_start(
    struct shunt_moe_plan *plan, const void *dy, const void *out, void *dout,
    size_t max_rows, float *dweight, struct shunt_request **request);

/**
 * Gradient of dispatch: dx is the sum of each token's rows, without weights, in
 * the order of combine.
 *
 * drows  (total, hidden) dtype.
 * dx     (tokens, hidden) dtype. Must not overlap drows (see Aliasing below).
 *
 * Collective. Rows travel back to the tokens' ranks, so `combine_mode` counts.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_dispatch_backward(struct shunt_moe_plan *plan, const void *drows,
                            void *dx);
/** shunt_moe_dispatch_backward() that returns at once; `*request` finishes
 * it. */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_moe_dispatch_backward_start(struct shunt_moe_plan *plan,
                                  const void *drows, void *dx,
                                  struct shunt_request **request);

/**
 * @file
 * @details
 * Five rules hold for all calls of this header.
 *
 * Aliasing. The arguments of one call may share memory as follows. Any other
 * overlap is SHUNT_ERR_INVALID here and SHUNT_ERR_REMOTE on the other ranks,
 * and nothing is written. Of rows and dout only the first `total` rows count:
 *
 *     dispatch           x, rows         apart
 *     combine            out, y          apart
 *                        bias, y         the same, or apart
 *                        out, bias       any way
 *     combine_backward   dy, dout        apart
 *                        out, dout       the same, or apart; without dweight
 *                                        any way: out is not read
 *                        dy, out         any way
 *                        dweight         apart from dy, out and dout
 *     dispatch_backward  drows, dx       apart
 *     plan_create        topk_idx, topk_weight  any way: both are only read
 *
 * Any argument may be any buffer of the plan (shunt_moe_buffer()). Inputs are
 * not written, unless the same memory is the output. Between a _start call and
 * the end of its request, the caller must not change inputs, and must not pass
 * outputs to another call.
 *
 * Alignment. Rows of elements (x, rows, out, y and so on) need no alignment.
 * Arrays of a C type (topk_idx, topk_weight, dweight, placement, replicas,
 * share) need the alignment of the type.
 *
 * Devices. If SHUNT_ENGINE is "cuda", any argument of dispatch, combine and
 * their gradients may be memory of a GPU (a CUDA device pointer). Each rank may
 * choose for itself. The results have the same bits. Work of the caller's
 * streams on this memory must have ended before the call, and the memory must
 * exist until the call has ended.
 *
 * Some rows are copied from GPU to GPU by their copy engines, and not through
 * the host: within a node, in mode DIRECT, the rows of dispatch (not with
 * WIRE_FP8), from x to rows; and those of combine_backward with PLAIN_SUM and
 * without dweight, from dy to dout. For this the library allocates memory of
 * the GPU: one buffer of the plan (shunt_moe_buffer()) for each of ROWS and
 * DOUT. It allocates them in the first such call, and frees them when the
 * communicator is destroyed. All ranks of the node do that together: a rank
 * waits up to 5 s for the others. Two such calls of one plan cannot be under
 * way at once (SHUNT_ERR_BUSY), unless they are for different parts.
 *
 * All other data is copied through the host. The _start call copies the inputs
 * to the host, and waits for that. The outputs are copied to the GPU after the
 * call has ended, in the request's own test or wait. So shunt_notify() is
 * SHUNT_ERR_UNSUPPORTED for such a request.
 *
 * Errors of calls with memory of a GPU: SHUNT_ERR_UNSUPPORTED here and
 * SHUNT_ERR_REMOTE on the others without that engine; SHUNT_ERR_SYSTEM, the
 * driver refuses a copy, or has lost the GPU; SHUNT_ERR_TIMEOUT, the GPU has
 * not ended a copy in three quarters of SHUNT_TIMEOUT, and is no longer used.
 * In the last two cases ranks that should receive rows of this rank get
 * SHUNT_ERR_REMOTE. All other calls of the library refuse such memory as data.
 * The library asks the CUDA driver whether an argument is memory of a GPU. It
 * looks for a loaded driver when a communicator or a plan is made, and in each
 * of these calls.
 *
 * Memory. If a rank has no memory to begin dispatch, combine or one of their
 * gradients, it gets SHUNT_ERR_MEMORY and the others SHUNT_ERR_REMOTE; the
 * communicator stays usable. Some calls have several steps: those in mode FLAT,
 * which are made of two operations, and those that make an exchange or a plan,
 * or set a placement or shares. A rank that runs out of memory when others have
 * begun a later step ends the communicator. So does a rank that cannot register
 * memory for zero copy.
 *
 * Lifetime. A plan belongs to its exchange, and an exchange to its
 * communicator. Destroying one destroys what belongs to it. They may be
 * destroyed in any order; to destroy one again does nothing. A call with a plan
 * or an exchange that was destroyed, or that never existed, is
 * SHUNT_ERR_INVALID and touches no memory. If the object was destroyed and its
 * communicator exists, the other ranks get SHUNT_ERR_REMOTE at once. NULL, and
 * a pointer that never was a handle, lead to no communicator. Then the other
 * ranks receive no error, and wait until SHUNT_TIMEOUT.
 */

#ifdef __cplusplus
}
#endif

#endif
