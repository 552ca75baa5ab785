// SPDX-License-Identifier: Apache-2.0
/*
 * Exchanges of tokens as schedules: in packs by all-to-all
 * (moe/route/route_flat.c), and by rails, where a token crosses to each node
 * once (moe/route/rails_rows.c, rails_sums.c).
 */
#include "perf/sim/schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moe/layout/layout.h"
#include "moe/layout/placement.h"
#include "moe/layout/rail_layout.h"
#include "moe/plan/received_counts.h"
#include "moe/plan/records.h"
#include "moe/plan/remote_offsets.h"
#include "moe/route/packs.h"
#include "moe/route/pull.h"
#include "moe/route/push.h"
#include "perf/base/routing.h"

const char *scaling_mode_name(enum scaling_mode mode)
{
    static const char *const names[SCALING_MODES] = {"plain", "ranks", "2dh",
                                                     "nodes", "allgather"};

    return names[mode];
}

/* --- one source rank's tokens --------------------------------------------- */

struct reader {
    const struct scaling_topology *t;
    const struct scaling_moe *moe;
    struct shunti_placement placement;
    struct shunti_order order;
    size_t *base; /* (experts) all zero, because the places of rows do not
                   * matter here */
    uint32_t *key, *count, *scratch;
    /* Terms of the source that read_rank() read last. */
    struct shunti_term *terms;
    size_t *first; /* (tokens + 1) */
};

static void reader_init(struct reader *x, const struct scaling_topology *t,
                        const struct scaling_moe *moe)
{
    const struct perf_routing *r = moe->routing;
    const struct shunti_tree tree = {0, t->node, 0, false};
    char why[200];

    *x = (struct reader){
        .t = t,
        .moe = moe,
        .base = scaling_alloc((size_t)r->experts * sizeof(*x->base)),
        .key = scaling_alloc(
            shunti_sort_room(r->tokens, shunti_sort_stride((size_t)r->topk)) *
            sizeof(*x->key)),
        .count = scaling_alloc(((size_t)r->experts + (size_t)t->ranks) *
                               sizeof(*x->count)),
        .scratch = scaling_alloc(
            (2 * (size_t)t->ranks + shunti_sort_stride((size_t)r->topk)) *
            sizeof(*x->scratch)),
        .terms = scaling_alloc(r->tokens * (size_t)r->topk * sizeof(*x->terms)),
        .first = scaling_alloc((r->tokens + 1) * sizeof(*x->first)),
    };
    /* Without replicas all sources use the same order. */
    if (r->ranks != t->ranks ||
        shunti_placement_init(&x->placement, t->ranks, r->experts, NULL, NULL,
                              0, t->node, why, sizeof(why)) ||
        !shunti_order_init(&x->order, &x->placement, &tree, 0)) {
        fprintf(stderr, "scaling: no placement of %d experts on %d ranks\n",
                r->experts, t->ranks);
        exit(3);
    }
}

static void reader_finish(struct reader *x)
{
    shunti_placement_finish(&x->placement);
    shunti_order_finish(&x->order);
    free(x->base);
    free(x->key);
    free(x->count);
    free(x->scratch);
    free(x->terms);
    free(x->first);
}

static void read_rank(struct reader *x, int source)
{
    const struct perf_routing *r = x->moe->routing;

    const struct shunti_layout_read out = {
        .key = x->key,
        .expert = x->count,
        .rank = x->count + r->experts,
    };

    (void)shunti_layout_read(
        &x->order, r->tokens ? perf_token_experts(r, source, 0) : NULL,
        r->tokens, r->topk, NULL, x->scratch, &out);
    shunti_layout_terms(&x->order, x->key, NULL, r->tokens, r->topk, x->base,
                        x->scratch + 2 * x->t->ranks, x->terms, x->first);
}

static int node_of(const struct reader *x, size_t term)
{
    return x->t->node[x->terms[term].rank];
}

/* Terms of a token are sorted by node, then by rank. Returns whether term i is
 * the first of its token on its node. */
static bool first_on_node(const struct reader *x, size_t t, size_t i)
{
    return i == x->first[t] || node_of(x, i - 1) != node_of(x, i);
}

static bool first_on_rank(const struct reader *x, size_t t, size_t i)
{
    return i == x->first[t] || x->terms[i - 1].rank != x->terms[i].rank;
}

/* --- rows ----------------------------------------------------------------- */

void scaling_count_rows(const struct scaling_topology *t,
                        const struct scaling_moe *moe,
                        struct scaling_rows *rows)
{
    const size_t tokens = moe->routing->tokens;
    struct reader x;

    memset(rows, 0, sizeof(*rows));
    reader_init(&x, t, moe);
    for (int s = 0; s < t->ranks; s++) {
        read_rank(&x, s);
        rows->tokens += tokens;
        rows->allgather += tokens * (size_t)(t->nodes - 1);
        for (size_t k = 0; k < tokens; k++)
            for (size_t i = x.first[k]; i < x.first[k + 1]; i++) {
                if (node_of(&x, i) == t->node[s])
                    continue;
                rows->plain++;
                rows->ranks += first_on_rank(&x, k, i);
                rows->nodes += first_on_node(&x, k, i);
                rows->alone +=
                    first_on_node(&x, k, i) &&
                    (i + 1 == x.first[k + 1] || first_on_node(&x, k, i + 1));
            }
    }
    reader_finish(&x);
}

/* --- packs ---------------------------------------------------------------- */

/* Compute the bytes that each rank sends to each other rank. With `once`, the
 * rows of a token for one rank count as one. */
static uint32_t *pack_blocks(const struct scaling_topology *t,
                             const struct scaling_moe *moe, bool once,
                             size_t bytes, bool transposed)
{
    const size_t ranks = (size_t)t->ranks, tokens = moe->routing->tokens;
    uint32_t *blocks = scaling_alloc(ranks * ranks * sizeof(*blocks));
    struct reader x;

    reader_init(&x, t, moe);
    for (size_t s = 0; s < ranks; s++) {
        read_rank(&x, (int)s);
        for (size_t k = 0; k < tokens; k++)
            for (size_t i = x.first[k]; i < x.first[k + 1]; i++) {
                size_t d = (size_t)x.terms[i].rank;

                if (!once || first_on_rank(&x, k, i))
                    blocks[transposed ? d * ranks + s : s * ranks + d] +=
                        (uint32_t)bytes;
            }
    }
    reader_finish(&x);
    return blocks;
}

/* Add the work of filling all packs of a rank before the exchange: one copy of
 * all bytes, on each rank's first operation. */
static void charge_packs(struct scaling_schedule *s, size_t first,
                         const uint32_t *blocks)
{
    const size_t ranks = (size_t)s->topology->ranks;

    for (size_t i = first, next; i < s->nops; i = next) {
        const size_t r = (size_t)s->ops[i].rank;
        uint64_t out = 0;

        for (size_t d = 0; d < ranks; d++)
            out += d != r ? blocks[r * ranks + d] : 0;
        s->ops[i].local += (uint32_t)out;
        for (next = i; next < s->nops && s->ops[next].rank == (int32_t)r;)
            next++;
    }
}

static void in_packs(struct scaling_schedule *s, const struct scaling_moe *moe,
                     const uint32_t *blocks)
{
    const size_t first = s->nops;

    scaling_alltoallv(s, blocks,
                      moe->mode == SCALING_CARRIED ? SCALING_CARRY_ALL
                                                   : SCALING_FLAT,
                      moe->mode == SCALING_PLAIN);
    charge_packs(s, first, blocks);
    /* Each row is also copied from its pack to its place. */
    for (size_t i = first; i < s->nops; i++) {
        struct scaling_op *op = &s->ops[i];
        bool inside =
            s->topology->node[op->rank] == s->topology->node[op->peer];

        if (moe->mode == SCALING_CARRIED && inside)
            op->unpack += blocks[(size_t)op->rank * (size_t)s->topology->ranks +
                                 (size_t)op->peer];
        else
            op->unpack += (uint32_t)(op->bytes - SCALING_NOTE);
    }
}

/* --- rails ---------------------------------------------------------------- */

/* Rows from one source for one node that are sent together. */
struct parcel {
    uint32_t bytes;
    uint32_t terms[]; /* (ranks of the node) rows for each of its ranks */
};

struct rails {
    const struct scaling_topology *t;
    const struct scaling_moe *moe;
    bool back;     /* combine: true: results return to the tokens' ranks */
    size_t stride; /* bytes of a struct parcel with its terms */
    int most;      /* most ranks of a node */
};

/* The parcels from one source, by node. */
struct parcels {
    size_t *first; /* (nodes + 1) */
    unsigned char *memory;
    size_t most;   /* most parcels for one node */
    uint32_t *own; /* (most ranks of a node) rows for the source's own node */
};

static void rails_init(struct rails *x, const struct scaling_topology *t,
                       const struct scaling_moe *moe, bool back)
{
    *x = (struct rails){.t = t, .moe = moe, .back = back};
    for (int n = 0; n < t->nodes; n++)
        if (scaling_node_size(t, n) > x->most)
            x->most = scaling_node_size(t, n);
    x->stride = sizeof(struct parcel) + (size_t)x->most * sizeof(uint32_t);
}

static size_t parcels_of(const struct parcels *p, int node)
{
    return p->first[node + 1] - p->first[node];
}

static struct parcel *parcel_at(const struct rails *x, const struct parcels *p,
                                int node, size_t k)
{
    return (struct parcel *)(void *)(p->memory +
                                     (p->first[node] + k) * x->stride);
}

/* Returns the bytes of a row of which `terms` terms are on the other node. */
static size_t rail_bytes(const struct rails *x, size_t terms)
{
    const struct scaling_moe *moe = x->moe;

    return x->back
               ? shunti_rail_sum_bytes(terms, moe->row_bytes, moe->sum_bytes)
               : moe->wire_bytes;
}

/* The parcels for one node so far. */
struct filled {
    size_t parcels, bytes; /* bytes of the last parcel */
};

/* Add a row to the last parcel, or to a new one if it does not fit. */
static void add_row(const struct rails *x, struct filled *filled, size_t bytes)
{
    if (!filled->parcels || filled->bytes + bytes > x->moe->chunk) {
        filled->parcels++;
        filled->bytes = 0;
    }
    filled->bytes += bytes;
}

/* Distribute the tokens of the source that was read last to parcels, by node.
 * filled: (nodes). to: NULL to count only. */
static void fill_parcels(const struct rails *x, const struct reader *reader,
                         int source, struct filled *filled, struct parcels *to)
{
    const struct scaling_topology *t = x->t;
    const bool all = x->moe->mode == SCALING_ALLGATHER;

    memset(filled, 0, (size_t)t->nodes * sizeof(*filled));
    for (size_t k = 0; k < x->moe->routing->tokens; k++) {
        size_t i = reader->first[k], end = i;

        for (int n = 0; n < t->nodes; n++, i = end) {
            uint32_t *terms = to ? to->own : NULL;

            while (end < reader->first[k + 1] && node_of(reader, end) == n)
                end++;
            if (n != t->node[source]) {
                const size_t bytes = rail_bytes(x, end - i);
                struct parcel *p;

                if (i == end && !all)
                    continue;
                add_row(x, &filled[n], bytes);
                if (!to)
                    continue;
                p = parcel_at(x, to, n, filled[n].parcels - 1);
                p->bytes += (uint32_t)bytes;
                terms = p->terms;
            }
            for (size_t j = i; j < end && terms; j++)
                terms[t->local[reader->terms[j].rank]]++;
        }
    }
}

/* Make the parcels of the source that was read last. */
static void make_parcels(const struct rails *x, const struct reader *reader,
                         struct parcels *to, int source)
{
    const size_t nodes = (size_t)x->t->nodes;
    struct filled *filled = scaling_alloc(nodes * sizeof(*filled));

    *to = (struct parcels){
        .first = scaling_alloc((nodes + 1) * sizeof(*to->first)),
        .own = scaling_alloc((size_t)x->most * sizeof(*to->own)),
    };
    fill_parcels(x, reader, source, filled, NULL);
    for (size_t n = 0; n < nodes; n++) {
        const size_t count = filled[n].parcels;

        to->first[n + 1] = to->first[n] + count;
        to->most = count > to->most ? count : to->most;
    }
    to->memory = scaling_alloc(to->first[nodes] * x->stride);
    fill_parcels(x, reader, source, filled, to);
    free(filled);
}

static void free_parcels(struct parcels *p)
{
    free(p->first);
    free(p->memory);
    free(p->own);
}

/* Add the copies of a parcel's rows to the memory of the ranks of `node`. */
static void move_terms(const struct rails *x, struct scaling_schedule *s,
                       struct scaling_op *op, int node, const uint32_t *terms)
{
    for (int l = 0; l < scaling_node_size(x->t, node); l++) {
        int rank = x->t->first[node] + l;
        uint64_t bytes = (uint64_t)terms[l] * x->moe->row_bytes;

        if (rank == op->rank)
            op->local += (uint32_t)bytes;
        else
            scaling_move(s, op, rank, bytes);
    }
}

/* Add the copies for the own node, in pieces of `step` bytes. */
static void move_own(const struct rails *x, struct scaling_schedule *s, int r,
                     const uint32_t *own, size_t step)
{
    const int node = x->t->node[r], size = scaling_node_size(x->t, node);
    uint64_t rows = 0, pieces;

    for (int l = 0; l < size; l++)
        rows += own[l];
    pieces = (rows * x->moe->row_bytes + step - 1) / step;
    for (uint64_t p = 0; p < pieces; p++) {
        struct scaling_op *op = scaling_add(s, r);
        uint32_t part[64] = {0};

        for (int l = 0; l < size && l < 64; l++)
            part[l] =
                (uint32_t)(own[l] * (p + 1) / pieces - own[l] * p / pieces);
        move_terms(x, s, op, node, part);
    }
}

/* Add the notes to local peers and rail peers. In this simulation no operation
 * waits for them. */
static void send_control(struct scaling_schedule *s, int r)
{
    const struct scaling_topology *t = s->topology;

    for (int i = 1; i < t->ranks; i++) {
        int peer = (r + i) % t->ranks;

        if (t->node[peer] == t->node[r] ||
            scaling_rail(t, r, t->node[peer]) == peer ||
            scaling_rail(t, peer, t->node[r]) == r)
            scaling_send(s, scaling_add(s, r), peer, 0, SCALING_NOTE);
    }
}

/* Add the rows that `r` sends, and the relays' copies of these rows. */
static void send_rows(const struct rails *x, struct scaling_schedule *s, int r,
                      const struct parcels *parcels)
{
    const struct scaling_topology *t = x->t;
    int32_t *passed = scaling_alloc((size_t)t->nodes * sizeof(*passed));

    /* A relay acknowledges when it has passed on all rows. */
    for (int n = 0; n < t->nodes; n++) {
        size_t first = s->nops;

        if (!parcels_of(parcels, n))
            continue;
        passed[n] = scaling_count_to(s, (uint32_t)parcels_of(parcels, n));
        scaling_send(s, scaling_add(s, scaling_rail(t, r, n)), r, 0,
                     SCALING_ACK);
        scaling_start_by(s, passed[n], first);
    }
    for (size_t k = 0; k < parcels->most; k++)
        for (int i = 1; i < t->nodes; i++) {
            int n = (t->node[r] + i) % t->nodes;
            const struct parcel *p;
            struct scaling_op *op;
            uint64_t bytes;

            if (k >= parcels_of(parcels, n))
                continue;
            p = parcel_at(x, parcels, n, k);
            bytes = p->bytes;
            op = scaling_add(s, r);
            op->local = (uint32_t)bytes;
            scaling_send(s, op, scaling_rail(t, r, n), bytes, 0);
            op->then = (int32_t)s->nops;
            op = scaling_add(s, op->peer);
            op->waits = true;
            op->counter = passed[n];
            move_terms(x, s, op, n, p->terms);
        }
    free(passed);
}

static void rails_dispatch(struct scaling_schedule *s,
                           const struct scaling_moe *moe)
{
    const struct scaling_topology *t = s->topology;
    struct rails x;
    struct reader reader;

    rails_init(&x, t, moe, false);
    reader_init(&reader, t, moe);
    for (int r = 0; r < t->ranks; r++) {
        struct parcels parcels;

        read_rank(&reader, r);
        make_parcels(&x, &reader, &parcels, r);
        send_control(s, r);
        send_rows(&x, s, r, &parcels);
        move_own(&x, s, r, parcels.own, SHUNTI_PUSH_CHUNK);
        free_parcels(&parcels);
    }
    reader_finish(&reader);
}

/* Add the sums that the relay `r` sends back to its sources. */
static void send_sums(const struct rails *x, struct scaling_schedule *s, int r,
                      const struct parcels *parcels)
{
    const struct scaling_topology *t = x->t;
    const int node = t->node[r];
    bool more = true;

    for (size_t k = 0; more; k++) {
        more = false;
        for (int i = 1; i < t->ranks; i++) {
            int source = (r + i) % t->ranks;
            const struct parcel *p;
            struct scaling_op *op;
            uint64_t bytes;

            if (t->node[source] == node || scaling_rail(t, source, node) != r ||
                k >= parcels_of(&parcels[source], node))
                continue;
            more = true;
            p = parcel_at(x, &parcels[source], node, k);
            bytes = p->bytes;
            op = scaling_add(s, r);
            op->local = (uint32_t)bytes;
            move_terms(x, s, op, node, p->terms);
            scaling_send(s, op, source, bytes, 0);
            op->unpack = (uint32_t)bytes;
        }
    }
}

static void rails_combine(struct scaling_schedule *s,
                          const struct scaling_moe *moe)
{
    const struct scaling_topology *t = s->topology;
    struct parcels *parcels =
        scaling_alloc((size_t)t->ranks * sizeof(*parcels));
    struct rails x;
    struct reader reader;

    rails_init(&x, t, moe, true);
    reader_init(&reader, t, moe);
    for (int r = 0; r < t->ranks; r++) {
        read_rank(&reader, r);
        make_parcels(&x, &reader, &parcels[r], r);
    }
    for (int r = 0; r < t->ranks; r++) {
        send_control(s, r);
        send_sums(&x, s, r, parcels);
        move_own(&x, s, r, parcels[r].own, SHUNTI_PULL_STEP);
    }
    for (int r = 0; r < t->ranks; r++)
        free_parcels(&parcels[r]);
    free(parcels);
    reader_finish(&reader);
}

/* --- the exchanges -------------------------------------------------------- */

static bool by_rails(const struct scaling_moe *moe)
{
    return moe->mode == SCALING_NODES || moe->mode == SCALING_ALLGATHER;
}

void scaling_dispatch(struct scaling_schedule *s, const struct scaling_moe *moe)
{
    uint32_t *blocks;

    if (by_rails(moe)) {
        rails_dispatch(s, moe);
        return;
    }
    blocks = pack_blocks(s->topology, moe, moe->mode == SCALING_RANKS,
                         moe->wire_bytes, false);
    in_packs(s, moe, blocks);
    free(blocks);
}

void scaling_combine(struct scaling_schedule *s, const struct scaling_moe *moe)
{
    uint32_t *blocks;

    if (by_rails(moe)) {
        rails_combine(s, moe);
        return;
    }
    blocks = pack_blocks(s->topology, moe, false, moe->row_bytes, true);
    in_packs(s, moe, blocks);
    free(blocks);
}

/* --- the plan ------------------------------------------------------------- */

uint32_t scaling_plan_record(const struct scaling_topology *t,
                             const struct scaling_moe *moe, bool counts)
{
    return (uint32_t)(counts ? shunti_record_bytes(moe->routing->experts,
                                                   t->ranks, t->nodes, false)
                             : shunti_record_bytes(0, 0, 0, false));
}

/* Compute a block for each pair of ranks from the number of experts on one of
 * them. */
static uint32_t *blocks_by_local(const struct scaling_topology *t,
                                 const struct scaling_moe *moe, bool columns)
{
    const size_t ranks = (size_t)t->ranks;
    const size_t offsets =
        by_rails(moe) ? sizeof(struct shunti_rail_offsets) : 0;
    uint32_t *blocks = scaling_alloc(ranks * ranks * sizeof(*blocks));
    struct reader x;

    reader_init(&x, t, moe);
    for (size_t r = 0; r < ranks; r++) {
        const size_t local =
            (size_t)shunti_placement_count(&x.placement, (int)r);

        for (size_t peer = 0; peer < ranks; peer++)
            if (columns)
                blocks[peer * ranks + r] =
                    (uint32_t)(sizeof(uint32_t) * shunti_column_words(local));
            else
                blocks[r * ranks + peer] =
                    (uint32_t)shunti_start_bytes(local, offsets);
    }
    reader_finish(&x);
    return blocks;
}

uint32_t *scaling_plan_columns(const struct scaling_topology *t,
                               const struct scaling_moe *moe)
{
    return blocks_by_local(t, moe, true);
}

uint32_t *scaling_plan_starts(const struct scaling_topology *t,
                              const struct scaling_moe *moe)
{
    return blocks_by_local(t, moe, false);
}

uint32_t *scaling_plan_lists(const struct scaling_topology *t,
                             const struct scaling_moe *moe)
{
    const size_t ranks = (size_t)t->ranks, tokens = moe->routing->tokens;
    uint32_t *blocks, *rows, *terms;
    struct reader x;

    if (!by_rails(moe))
        return pack_blocks(t, moe, false, sizeof(struct shunti_pack_entry),
                           false);
    blocks = scaling_alloc(ranks * ranks * sizeof(*blocks));
    rows = scaling_alloc(2 * (size_t)t->nodes * sizeof(*rows));
    terms = rows + t->nodes;
    reader_init(&x, t, moe);
    for (int s = 0; s < t->ranks; s++) {
        uint32_t *of = blocks + (size_t)s * ranks;

        read_rank(&x, s);
        memset(rows, 0, 2 * (size_t)t->nodes * sizeof(*rows));
        for (size_t k = 0; k < tokens; k++)
            for (size_t i = x.first[k]; i < x.first[k + 1]; i++) {
                int n = node_of(&x, i);

                rows[n] += first_on_node(&x, k, i);
                terms[n]++;
            }
        for (int n = 0; n < t->nodes; n++) {
            if (n == t->node[s])
                continue;
            if (moe->mode == SCALING_ALLGATHER)
                rows[n] = (uint32_t)tokens;
            of[scaling_rail(t, s, n)] =
                (uint32_t)shunti_rail_list_bytes(1, rows[n], terms[n]);
        }
    }
    reader_finish(&x);
    free(rows);
    return blocks;
}
