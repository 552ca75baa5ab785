// SPDX-License-Identifier: Apache-2.0
/*
 * TWO_LEVEL: between nodes a row travels once for each node, by rails
 * (rails.h). Within a node a row travels as in DIRECT. ALLGATHER is the same
 * route, but every token is on the list of every node.
 */
#include <stdlib.h>
#include <string.h>

#include "moe/layout/growing_array.h"
#include "moe/layout/pieces.h"
#include "moe/plan/plan_rows.h"
#include "moe/plan/plan_window.h"
#include "moe/plan/received_counts.h"
#include "moe/plan/records.h"
#include "moe/route.h"
#include "moe/route/pull.h"
#include "moe/route/push.h"
#include "moe/route/rails.h"
#include "src/comm.h"
#include "src/kernels/fp8.h"
#include "src/kernels/rows.h"
#include "src/wire/nodes.h"

static const char *unsuited(const struct shunt_moe *moe)
{
    return shunti_nodes_mapped(moe->comm)
               ? NULL
               : "ranks of a node do not map each other's memory";
}

static struct shunti_rail_map map_of(const struct shunt_moe *moe)
{
    return (struct shunti_rail_map){
        .ranks = moe->nranks,
        .nodes = moe->nodes,
        .node = moe->node,
        .local = moe->local,
        .first = moe->comm->node_map.first,
        .list = moe->comm->node_map.ranks,
    };
}

/* --- traffic ---------------------------------------------------------------------- */

/* The number of rows from a source whose relay this rank is; or of pieces that
 * go back to the source. */
static uint32_t rows_from(const struct shunti_direction *direction, int source)
{
    const struct shunt_moe *moe = direction->plan->moe;

    if (direction->pieces)
        return shunti_column_of(moe, source)->node_pieces;
    return direction->mode == SHUNT_MOE_ALLGATHER
               ? (uint32_t)shunti_records_tokens(moe, source)
               : shunti_column_of(moe, source)->node_tokens;
}

static void traffic(struct shunti_direction *direction,
                    enum shunt_moe_mode asked)
{
    const struct shunt_moe *moe = direction->plan->moe;
    const struct shunti_record_view mine = shunti_record(moe, moe->rank);
    const struct shunti_sent sent = shunti_records_sent(moe);
    size_t rows = 0;

    direction->mode = asked != SHUNT_MOE_AUTO          ? asked
                      : shunti_records_everywhere(moe) ? SHUNT_MOE_ALLGATHER
                                                       : SHUNT_MOE_TWO_LEVEL;
    for (int n = 0; n < moe->nodes; n++)
        if (n != moe->node[moe->rank])
            rows += direction->mode == SHUNT_MOE_ALLGATHER
                        ? direction->plan->tokens
                        : mine.node[n];
    direction->network.rows = rows;
    direction->network.dispatch_bytes = rows * shunti_wire_bytes(moe);
    /* exchange_lists() counts the results that come home. */
    direction->network.combine_rows = direction->network.combine_bytes = 0;
    direction->bytes_sent =
        sent.near * moe->row_bytes + direction->network.dispatch_bytes;
}

/* --- memory ----------------------------------------------------------------------- */

static bool own_init(struct shunti_rail_own *own, size_t ranks, size_t nodes)
{
    own->counts = calloc(2 * (ranks + nodes), sizeof(*own->counts));
    own->out = calloc(nodes, sizeof(*own->out));
    own->in = calloc(ranks, sizeof(*own->in));
    return own->counts && own->out && own->in;
}

static void own_finish(struct shunti_rail_own *own)
{
    free(own->counts);
    free(own->out);
    free(own->in);
}

static void finish(void *state)
{
    struct shunti_rails *rails = state;

    free(rails->to);
    free(rails->from);
    own_finish(&rails->own);
    own_finish(&rails->other);
    free(rails->memory);
    free(rails->received);
    free(rails->bounds);
    free(rails);
}

static size_t bytes(const void *state)
{
    const struct shunti_rails *rails = state;

    return rails->memory_max * sizeof(*rails->memory) + rails->received_max +
           rails->bounds_max * sizeof(*rails->bounds);
}

static struct shunti_rails *rails_new(const struct shunt_moe *moe)
{
    const size_t nodes = (size_t)moe->nodes, ranks = (size_t)moe->nranks;
    struct shunti_rails *rails = calloc(1, sizeof(*rails));

    if (!rails)
        return NULL;
    rails->moe = moe;
    rails->to = calloc(nodes, sizeof(*rails->to));
    rails->from = calloc(ranks, sizeof(*rails->from));
    if (rails->to && rails->from && own_init(&rails->own, ranks, nodes) &&
        own_init(&rails->other, ranks, nodes))
        return rails;
    finish(rails);
    return NULL;
}

/* Bytes of room for an arriving row. Rows arrive in dtype, or as fp8, which
 * takes more bytes if rows are very short. */
static size_t arrival_bytes(const struct shunt_moe *moe)
{
    size_t fp8 = moe->config.wire == SHUNT_MOE_WIRE_FP8
                     ? shunti_fp8_bytes(moe->config.hidden)
                     : 0;

    return fp8 > moe->row_bytes ? fp8 : moe->row_bytes;
}

/* The new size of an area that has `bytes` and needs `used`. */
static size_t grown(size_t bytes, size_t used)
{
    return used <= bytes ? bytes : used + used / 4;
}

/* Round up to whole pages of any kernel: page sizes may differ between
 * ranks. */
static size_t in_any_pages(size_t bytes)
{
    const size_t page = (size_t)64 << 10;

    return (bytes + page - 1) / page * page;
}

/* Make the rail window large enough for every rank. All ranks decide alike. */
static enum shunt_status fit_window(struct shunti_rail_window *rail,
                                    struct shunt_comm *comm)
{
    const size_t signals =
        in_any_pages(grown(rail->signals, rail->signals_used));
    const size_t bytes = grown(rail->bytes, rail->used);
    enum shunt_status st;

    if (signals == rail->signals && bytes == rail->bytes)
        return SHUNT_OK;
    rail->signals = rail->bytes = rail->touched = 0;
    /* A new window is all zeros, and 0 is no valid signal. */
    st = shunti_plan_window(comm, signals + bytes,
                            "window for rows between nodes", &rail->window);
    if (st)
        return st;
    rail->signals = signals;
    rail->bytes = bytes;
    return SHUNT_OK;
}

/* --- offsets ---------------------------------------------------------------------- */

/* Read from the source's record how many rows its relay on `node` passes on; or
 * how many pieces the relay sends back. */
static uint32_t rows_of(const struct shunti_direction *direction, int source,
                        int node)
{
    const struct shunt_moe *moe = direction->plan->moe;
    const struct shunti_record_view record = shunti_record(moe, source);

    if (direction->pieces)
        return record.pieces[node];
    return direction->mode == SHUNT_MOE_ALLGATHER
               ? (uint32_t)shunti_records_tokens(moe, source)
               : record.node[node];
}

/* Find how many rows `rank` sends to each node, and how many it receives as a
 * relay. If `rank` is this rank, the received rows are in its columns;
 * otherwise in the records. */
static void find_traffic(const struct shunti_direction *direction, int rank,
                         const struct shunti_rail_map *map,
                         struct shunti_rail_own *own)
{
    const struct shunt_moe *moe = direction->plan->moe;
    const size_t nodes = (size_t)moe->nodes, ranks = (size_t)moe->nranks;
    const bool out = direction->serves[SHUNTI_TO_EXPERTS];
    const bool home = direction->serves[SHUNTI_HOME];
    const struct shunti_record_view record = shunti_record(moe, rank);
    struct shunti_rail_sources x = shunti_rail_sources_of(map, rank);
    uint32_t *rows = own->counts, *terms = rows + nodes;
    uint32_t *rows_in = terms + nodes, *terms_in = rows_in + ranks;
    int s;

    for (size_t n = 0; n < nodes; n++)
        rows[n] = rows_of(direction, rank, (int)n);
    memcpy(terms, record.node_rows, nodes * sizeof(*terms));
    while (shunti_rail_next(&x, &s)) {
        if (rank == moe->rank) {
            rows_in[s] = rows_from(direction, s);
            terms_in[s] = shunti_column_of(moe, s)->node_rows;
        } else {
            const int node = moe->node[rank];

            rows_in[s] = rows_of(direction, s, node);
            terms_in[s] = shunti_record(moe, s).node_rows[node];
        }
    }
    own->traffic = (struct shunti_rail_traffic){
        .map = map,
        .rank = rank,
        .parts = direction->plan->parts.count,
        .rows = rows,
        .terms = terms,
        .rows_in = rows_in,
        .terms_in = terms_in,
        .row_bytes = out ? arrival_bytes(moe) : 0,
        .dot_bytes = out ? sizeof(float) : 0,
        .result_bytes = home ? moe->row_bytes : 0,
        .sum_bytes = home ? shunti_sum_bytes(moe) : 0,
    };
}

/* Find the offsets in this rank's own window. False: no memory. */
static bool measure(struct shunti_direction *direction)
{
    const struct shunt_moe *moe = direction->plan->moe;
    struct shunti_rail_own *own;
    struct shunti_rails *rails;

    if (!direction->state)
        direction->state = rails_new(moe);
    rails = direction->state;
    if (!rails)
        return false;
    rails->map = map_of(moe);
    own = &rails->own;
    find_traffic(direction, moe->rank, &rails->map, own);
    own->window = shunti_rail_places(&own->traffic, own->out, own->in);
    rails->window_most = own->window;
    return true;
}

_Static_assert(sizeof(struct shunti_rail_offsets) <= SHUNTI_OFFSETS_MAX &&
                   sizeof(struct shunti_rail_offsets) % 8 == 0,
               "the offsets fit into the message with the starts of rows");

static void write_offsets(const struct shunti_direction *direction, int sender,
                          int receiver, void *to)
{
    struct shunti_rails *rails = direction->state;
    struct shunti_rail_own *of =
        sender == rails->moe->rank ? &rails->own : &rails->other;

    if (of == &rails->other) {
        find_traffic(direction, sender, &rails->map, of);
        of->window = shunti_rail_places(&of->traffic, of->out, of->in);
    }
    *(struct shunti_rail_offsets *)to = shunti_rail_offsets_for(
        &of->traffic, of->window, of->out, of->in, receiver);
}

static bool read_offsets(struct shunti_direction *direction, int sender,
                         const void *from)
{
    const struct shunti_rail_offsets *offsets = from;
    struct shunti_rails *rails = direction->state;
    struct shunti_rail_own *own = &rails->own;

    if (offsets->window > rails->window_most)
        rails->window_most = offsets->window;
    return shunti_rail_store_offsets(&own->traffic, sender, offsets, own->out,
                                     own->in);
}

/* Store all offsets, which are known now, and allocate the lists. False: no
 * memory. */
static bool place(struct shunti_rails *rails)
{
    const struct shunt_moe *moe = rails->moe;
    const struct shunti_rail_traffic *traffic = &rails->own.traffic;
    const int node = moe->node[moe->rank], parts = traffic->parts;
    size_t words = 0, bytes = 0;
    struct shunti_rail_bound *bounds;
    uint32_t *memory;

    for (int n = 0; n < moe->nodes; n++) {
        const struct shunti_rail_out *out = &rails->own.out[n];

        rails->to[n] = (struct shunti_rail_to){.relay = -1};
        if (n == node)
            continue;
        rails->to[n] = (struct shunti_rail_to){
            .relay = shunti_rail_peer(traffic->map, moe->rank, n),
            .rows = traffic->rows[n],
            .terms = traffic->terms[n],
            .staging = out->staging,
            .arrival = out->arrival,
            .sums = out->sums,
            .dots = out->dots,
        };
        words += rails->to[n].rows;
    }
    rails->nfrom = 0;
    for (int s = 0; s < moe->nranks; s++) {
        const struct shunti_rail_in *in = &rails->own.in[s];
        const uint32_t rows = traffic->rows_in[s];
        const uint32_t terms = traffic->terms_in[s];

        if (!shunti_rail_serves(traffic->map, moe->rank, s))
            continue;
        rails->from[rails->nfrom++] = (struct shunti_rail_from){
            .source = s,
            .rows = rows,
            .terms = terms,
            .arrival = in->arrival,
            .sums_staging = in->sums_staging,
            .dots_staging = in->dots_staging,
            .sums = in->sums,
            .dots = in->dots,
        };
        words += (size_t)rows + 1;
        bytes += shunti_rail_list_bytes(parts, rows, terms);
    }
    if (!shunti_grow(&rails->memory, &rails->memory_max, words,
                     sizeof(*rails->memory)) ||
        !shunti_grow(&rails->received, &rails->received_max, bytes, 1) ||
        !shunti_grow(&rails->bounds, &rails->bounds_max,
                     (size_t)(moe->nodes + rails->nfrom) * (size_t)(parts + 1),
                     sizeof(*rails->bounds)))
        return false;
    memory = rails->memory;
    bounds = rails->bounds;
    for (int n = 0; n < moe->nodes; n++) {
        rails->to[n].token = memory;
        memory += rails->to[n].rows;
        rails->to[n].bound = bounds;
        bounds += parts + 1;
    }
    for (int i = 0; i < rails->nfrom; i++) {
        rails->from[i].first = memory;
        memory += rails->from[i].rows + 1;
        rails->from[i].bound = bounds;
        bounds += parts + 1;
    }
    return true;
}

/* --- lists ------------------------------------------------------------------------ */

/* State while a node's list is written. */
struct writer {
    uint32_t *before; /* (parts - 1) rows before each inner bound */
    uint16_t *count;
    struct shunti_rail_entry *entry;
    size_t rows; /* number of rows written so far */
};

static bool lists_all(const struct shunti_direction *direction)
{
    return direction->mode == SHUNT_MOE_ALLGATHER && !direction->pieces;
}

static void begin_list(const struct shunti_direction *direction,
                       struct writer *w, const struct shunti_rail_to *to,
                       unsigned char *out)
{
    const int parts = direction->plan->parts.count;
    const size_t entries = shunti_rail_list_bytes(parts, to->rows, 0);

    w->before = (uint32_t *)(void *)out;
    w->count = (uint16_t *)(void *)(w->before + parts - 1);
    w->entry = (struct shunti_rail_entry *)(void *)(out + entries);
    w->rows = 0;
    /* In ALLGATHER, tokens without an expert on the node are also on the
     * list. */
    for (size_t t = 0; t < to->rows && lists_all(direction); t++) {
        to->token[t] = (uint32_t)t;
        w->count[t] = 0;
    }
}

static void write_entry(const struct shunt_moe *moe, struct writer *w,
                        const struct shunti_term *term)
{
    w->count[w->rows - 1]++;
    *w->entry++ = (struct shunti_rail_entry){
        .row = term->row,
        .weight = term->weight,
        .local = (uint16_t)moe->local[term->rank],
        .op = term->op,
    };
}

/* Write each node's list of the pieces that it sends home, and of their
 * tokens. */
static void write_pieces(const struct shunti_direction *direction,
                         struct writer *writers)
{
    const struct shunti_plan *plan = direction->plan;
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_rails *rails = direction->state;

    for (size_t t = 0; t < plan->tokens; t++)
        for (size_t i = plan->first[t], end; i < plan->first[t + 1]; i = end) {
            const int node = moe->node[plan->terms[i].rank];
            struct writer *w = &writers[node];

            end = i + shunti_piece_end(&plan->terms[i], plan->first[t + 1] - i,
                                       i == plan->first[t], moe->node);
            if (node == moe->node[moe->rank])
                continue;
            w->count[w->rows] = 0;
            rails->to[node].token[w->rows++] = (uint32_t)t;
            for (size_t k = i; k < end; k++)
                write_entry(moe, w, &plan->terms[k]);
        }
}

/* Write each node's list of the tokens that go there, and of the slots to which
 * its relay copies them. Sums come home by the same lists if a node has only
 * one piece of each token. */
static void write_lists(const struct shunti_direction *direction,
                        struct writer *writers)
{
    const struct shunti_plan *plan = direction->plan;
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_rails *rails = direction->state;
    const bool all = lists_all(direction);
    const int own = moe->node[moe->rank];

    for (size_t t = 0; t < plan->tokens; t++)
        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++) {
            const struct shunti_term *term = &plan->terms[i];
            const int node = moe->node[term->rank];
            const uint32_t *token = rails->to[node].token;
            struct writer *w = &writers[node];

            if (node == own)
                continue;
            if (all) {
                w->rows = t + 1;
            } else if (!w->rows || token[w->rows - 1] != t) {
                w->count[w->rows] = 0;
                rails->to[node].token[w->rows++] = (uint32_t)t;
            }
            write_entry(moe, w, term);
        }
}

/* Fill in `term` and `sums` of each bound, whose `row` is known. count: the
 * number of entries of each row of the list. */
static void find_bounds(const struct shunti_plan *plan, const uint16_t *count,
                        struct shunti_rail_bound *bound)
{
    size_t row = 0, term = 0, sums = 0;

    for (int b = 0; b <= plan->parts.count; b++) {
        for (; row < bound[b].row; row++) {
            term += count[row];
            sums += shunti_home_bytes(plan->moe, count[row]);
        }
        bound[b].term = term;
        bound[b].sums = sums;
    }
}

/* Find the bounds of the parts in a list that has been written. */
static void end_list(const struct shunti_direction *direction,
                     const struct writer *w, struct shunti_rail_to *to)
{
    const struct shunti_plan *plan = direction->plan;
    const int parts = plan->parts.count;
    size_t row = 0;

    for (int b = 0; b <= parts; b++) {
        const size_t token = shunti_parts_token(plan, b);

        while (row < to->rows && to->token[row] < token)
            row++;
        to->bound[b].row = row;
        if (b > 0 && b < parts)
            w->before[b - 1] = (uint32_t)row;
    }
    find_bounds(plan, w->count, to->bound);
}

/* Read the bounds of a list. False: they are not in ascending order. */
static bool read_bounds(const struct shunti_plan *plan,
                        struct shunti_rail_from *from, const uint32_t *before)
{
    const int parts = plan->parts.count;

    from->bound[0].row = 0;
    from->bound[parts].row = from->rows;
    for (int b = 1; b < parts; b++)
        from->bound[b].row = before[b - 1];
    for (int b = 0; b < parts; b++)
        if (from->bound[b].row > from->bound[b + 1].row)
            return false;
    return true;
}

/* Read the lists that other ranks sent. False: a list contradicts the
 * counts. */
static bool read_lists(const struct shunti_direction *direction)
{
    const struct shunti_plan *plan = direction->plan;
    const struct shunt_comm *comm = plan->moe->comm;
    const int *local = shunti_node_ranks(comm, comm->node);
    const struct shunti_rails *rails = direction->state;
    const unsigned char *at = rails->received;
    const int parts = plan->parts.count;
    bool good = true;

    for (int i = 0; i < rails->nfrom; i++) {
        struct shunti_rail_from *from = &rails->from[i];
        const uint32_t *before = (const uint32_t *)(const void *)at;
        const uint16_t *count =
            (const uint16_t *)(const void *)(before + parts - 1);

        from->entry = (const struct shunti_rail_entry
                           *)(const void *)(at + shunti_rail_list_bytes(
                                                     parts, from->rows, 0));
        from->first[0] = 0;
        for (size_t k = 0; k < from->rows; k++) {
            from->first[k + 1] = from->first[k] + count[k];
            good = good && count[k] <= plan->moe->config.topk;
        }
        good = good && from->first[from->rows] == from->terms;
        for (size_t k = 0; k < from->terms && good; k++)
            good = from->entry[k].local < comm->local_size &&
                   from->entry[k].row <
                       plan->rank_total[local[from->entry[k].local]] &&
                   from->entry[k].op <= SHUNTI_ROWS_NODE;
        good = good && read_bounds(plan, from, before);
        if (good)
            find_bounds(plan, count, from->bound);
        at += shunti_rail_list_bytes(parts, from->rows, from->terms);
    }
    return good;
}

static enum shunt_status exchange_lists(struct shunti_direction *direction)
{
    const struct shunt_moe *moe = direction->plan->moe;
    const struct shunti_rails *rails = direction->state;
    const size_t n = (size_t)moe->nranks, nodes = (size_t)moe->nodes;
    const int parts = direction->plan->parts.count;
    size_t bytes = 0, *counts, *displs;
    struct writer *writers;
    unsigned char *out;

    for (size_t i = 0; i < nodes; i++)
        bytes += shunti_rail_list_bytes(parts, rails->to[i].rows,
                                        rails->to[i].terms);
    counts = malloc(3 * n * sizeof(*counts) + nodes * sizeof(*writers) + bytes);
    if (!counts)
        return shunti_lists_no_memory(moe);
    memset(counts, 0, 3 * n * sizeof(*counts));
    displs = counts + 2 * n;
    writers = (struct writer *)(void *)(counts + 3 * n);
    out = (unsigned char *)(writers + nodes);
    bytes = 0;
    for (size_t i = 0; i < nodes; i++) {
        const struct shunti_rail_to *to = &rails->to[i];

        if (to->relay < 0)
            continue;
        begin_list(direction, &writers[i], to, out + bytes);
        displs[to->relay] = bytes;
        counts[to->relay] = shunti_rail_list_bytes(parts, to->rows, to->terms);
        bytes += counts[to->relay];
    }
    if (direction->pieces)
        write_pieces(direction, writers);
    else
        write_lists(direction, writers);
    for (size_t i = 0; i < nodes; i++) {
        struct shunti_rail_to *to = &rails->to[i];

        if (to->relay < 0)
            memset(to->bound, 0, (size_t)(parts + 1) * sizeof(*to->bound));
        else
            end_list(direction, &writers[i], to);
        direction->network.combine_bytes += to->bound[parts].sums;
        for (size_t k = 0; k < to->rows; k++)
            direction->network.combine_rows += writers[i].count[k] > 0;
    }
    for (int i = 0; i < rails->nfrom; i++)
        counts[n + (size_t)rails->from[i].source] = shunti_rail_list_bytes(
            parts, rails->from[i].rows, rails->from[i].terms);
    /* `from` is in the order of sources, and alltoallv stores received lists in
     * the same order. */
    return shunti_lists_start(direction, counts, out, counts, displs,
                              rails->received, counts + n, read_lists);
}

static enum shunt_status plan(struct shunti_direction *direction)
{
    struct shunt_moe *moe = direction->plan->moe;
    const bool out = direction->serves[SHUNTI_TO_EXPERTS];
    struct shunti_rail_window *rail =
        &direction->plan->place->rail[out ? SHUNTI_TO_EXPERTS : SHUNTI_HOME];
    struct shunti_rails *rails = direction->state;
    enum shunt_status st;

    rails->rail = rail;
    rails->signals = rail->signals_used;
    rails->base = rail->used;
    rail->signals_used += shunti_rail_signals(&rails->own.traffic);
    /* Round up to 4096 bytes on all ranks, so that `used` is the same on all,
     * also if kernels have other page sizes. */
    rail->used += (rails->window_most + 4095) / 4096 * 4096;
    st = fit_window(rail, moe->comm);
    if (st)
        return st;
    return place(rails) ? exchange_lists(direction)
                        : shunti_lists_no_memory(moe);
}

/* --- the calls -------------------------------------------------------------------- */

static enum shunt_status dispatch(const struct shunti_moe_call *call,
                                  struct shunti_direction *direction,
                                  const struct shunti_push *what,
                                  struct shunt_request **request)
{
    return shunti_push_start(call, direction, what, true, request);
}

static enum shunt_status combine(const struct shunti_moe_call *call,
                                 struct shunti_direction *direction,
                                 const struct shunti_pull *what,
                                 struct shunt_request **request)
{
    return shunti_pull_start(call, direction, what, true, request);
}

const struct shunti_route shunti_route_two_level = {
    .name = "two-level",
    .unsuited = unsuited,
    .traffic = traffic,
    .offset_bytes = sizeof(struct shunti_rail_offsets),
    .measure = measure,
    .write_offsets = write_offsets,
    .read_offsets = read_offsets,
    .plan = plan,
    .finish = finish,
    .bytes = bytes,
    .dispatch = dispatch,
    .combine = combine,
    .refuse = shunti_moe_call_refuse_one,
    .operations = 1,
    .by_node = true,
};
