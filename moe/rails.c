// SPDX-License-Identifier: Apache-2.0
/* What a plan knows of rows between nodes; see rails.h. */
#include "moe/rails.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/fp8.h"
#include "kernels/rows.h"
#include "moe/grow.h"
#include "moe/plan.h"
#include "src/comm.h"
#include "src/entry.h"
#include "src/error.h"
#include "src/nodes.h"
#include "src/refusal.h"
#include "src/wire.h"

#define LINE ((size_t)SHUNT_TRANSPORT_LINE)

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

/* --- where everything lies ------------------------------------------------------ */

/* The parts of a rank's window, in this order, behind the signals. */
enum part {
    ROWS_LANDING, /* by source: rows to pass on */
    SUMS_LANDING, /* by node: what our tokens' rows add up to there */
    DOTS_LANDING, /* by node: products for the gradient of the weights */
    ROWS_STAGING, /* by node: rows of ours */
    SUMS_STAGING, /* by source */
    DOTS_STAGING, /* by source */
    PARTS,
};

static bool by_source(enum part part)
{
    return part == ROWS_LANDING || part == SUMS_STAGING || part == DOTS_STAGING;
}

/* Does `rank` pass on what `source` sends to its node? */
static bool serves(const struct shunt_moe *moe, int rank, int source)
{
    return moe->node[source] != moe->node[rank] &&
           shunti_rail(moe->comm, source, moe->node[rank]) == rank;
}

static size_t rows_of(const struct shunt_moe *moe, int source, int node)
{
    return moe->node_rows[(size_t)source * (size_t)moe->nodes + (size_t)node];
}

static size_t terms_of(const struct shunt_moe *moe, int source, int node)
{
    return moe->node_terms[(size_t)source * (size_t)moe->nodes + (size_t)node];
}

/* Rows come as they are, and as fp8, which of very short ones is more. */
static size_t landing_bytes(const struct shunt_moe *moe)
{
    size_t fp8 = moe->config.wire == SHUNT_MOE_WIRE_FP8
                     ? shunti_fp8_bytes(moe->config.hidden)
                     : 0;

    return fp8 > moe->row_bytes ? fp8 : moe->row_bytes;
}

size_t shunti_sum_bytes(const struct shunt_moe *moe)
{
    return moe->config.partials == SHUNT_MOE_PARTIALS_F32
               ? moe->config.hidden * sizeof(float)
               : moe->row_bytes;
}

static size_t part_bytes(const struct shunt_moe *moe, int rank, enum part part,
                         int index)
{
    int source = by_source(part) ? index : rank;
    int node = by_source(part) ? moe->node[rank] : index;

    switch (part) {
    case ROWS_LANDING:
    case ROWS_STAGING:
        return rows_of(moe, source, node) * landing_bytes(moe);
    case SUMS_LANDING:
    case SUMS_STAGING:
        return rows_of(moe, source, node) * shunti_sum_bytes(moe);
    default:
        return terms_of(moe, source, node) * sizeof(float);
    }
}

/* Where `index` of `part` begins in the window of `rank`; PARTS: its end. */
static size_t place_of(const struct shunt_moe *moe, int rank, enum part want,
                       int index)
{
    size_t at = ((size_t)moe->nranks + 2 * (size_t)moe->nodes) * LINE;

    for (enum part part = 0; part < PARTS; part++) {
        int count = by_source(part) ? moe->nranks : moe->nodes;

        for (int i = 0; i < count; i++) {
            if (part == want && i == index)
                return at;
            if (by_source(part) ? serves(moe, rank, i) : i != moe->node[rank])
                at += lines(part_bytes(moe, rank, part, i));
        }
    }
    return at;
}

size_t shunti_rail_signal_at(const struct shunt_moe *moe,
                             enum shunti_rail_signal which, int index)
{
    size_t line = (size_t)index;

    if (which != SHUNTI_RAIL_ROWS)
        line += (size_t)moe->nranks;
    if (which == SHUNTI_RAIL_DOTS)
        line += (size_t)moe->nodes;
    return line * LINE;
}

/* --- the window ------------------------------------------------------------------ */

/* Large enough on every rank; all decide alike. */
static enum shunt_status fit_window(struct shunti_plan *plan)
{
    struct shunt_moe *moe = plan->moe;
    struct shunti_window *old = plan->at.rail_window;
    enum shunt_status st = SHUNT_OK;
    size_t most = 0;

    for (int r = 0; r < moe->nranks; r++) {
        size_t bytes = place_of(moe, r, PARTS, 0);

        most = bytes > most ? bytes : most;
    }
    if (most <= plan->at.rail_bytes)
        return SHUNT_OK;
    plan->at.rail_window = NULL;
    plan->at.rail_bytes = 0;
    most += most / 4;
    shunti_comm_enter(moe->comm);
    if (old)
        st = shunti_window_free(moe->comm, old);
    if (!st)
        st = shunti_window_create(moe->comm, most, &plan->at.rail_window);
    shunti_comm_leave(moe->comm);
    if (!st)
        plan->at.rail_bytes = most;
    return st;
}

unsigned char *shunti_rail_memory(const struct shunti_plan *plan, size_t at)
{
    return plan->at.rail_window->addr + at;
}

/* --- lists ------------------------------------------------------------------------ */

/* An offer of `rows` counts and `terms` entries. */
static size_t list_bytes(size_t rows, size_t terms)
{
    return (rows * sizeof(uint16_t) + 3) / 4 * 4 +
           terms * sizeof(struct shunti_rail_entry);
}

static bool prepare(struct shunti_plan *plan)
{
    struct shunt_moe *moe = plan->moe;
    struct shunti_rails *rails = &plan->rails;
    size_t words = 0, bytes = 0, at = 0;
    uint32_t *memory;

    if (!rails->to)
        rails->to = calloc((size_t)moe->nodes, sizeof(*rails->to));
    if (!rails->from)
        rails->from = calloc((size_t)moe->nranks, sizeof(*rails->from));
    if (!rails->to || !rails->from)
        return false;
    rails->nfrom = 0;
    for (int n = 0; n < moe->nodes; n++) {
        struct shunti_rail_to *to = &rails->to[n];

        *to = (struct shunti_rail_to){.proxy = -1};
        if (n == moe->node[moe->rank])
            continue;
        to->proxy = shunti_rail(moe->comm, moe->rank, n);
        to->rows = rows_of(moe, moe->rank, n);
        to->terms = terms_of(moe, moe->rank, n);
        words += to->rows;
    }
    for (int s = 0; s < moe->nranks; s++) {
        struct shunti_rail_from *from = &rails->from[rails->nfrom];

        if (!serves(moe, moe->rank, s))
            continue;
        *from = (struct shunti_rail_from){.source = s};
        from->rows = rows_of(moe, s, moe->node[moe->rank]);
        from->terms = terms_of(moe, s, moe->node[moe->rank]);
        words += from->rows + 1;
        bytes += list_bytes(from->rows, from->terms);
        rails->nfrom++;
    }
    if (!shunti_grow(&rails->memory, &rails->memory_max, words,
                     sizeof(*rails->memory)) ||
        !shunti_grow(&rails->received, &rails->received_max, bytes, 1))
        return false;
    memory = rails->memory;
    for (int n = 0; n < moe->nodes; n++) {
        rails->to[n].token = memory + at;
        at += rails->to[n].rows;
    }
    for (int i = 0; i < rails->nfrom; i++) {
        rails->from[i].first = memory + at;
        at += rails->from[i].rows + 1;
    }
    return true;
}

/* Everybody's places, from the counts. */
static void find_places(struct shunti_plan *plan)
{
    const struct shunt_moe *moe = plan->moe;
    const int rank = moe->rank, node = moe->node[rank];

    for (int n = 0; n < moe->nodes; n++) {
        struct shunti_rail_to *to = &plan->rails.to[n];

        if (to->proxy < 0)
            continue;
        to->staging = place_of(moe, rank, ROWS_STAGING, n);
        to->landing = place_of(moe, to->proxy, ROWS_LANDING, rank);
        to->sums = place_of(moe, rank, SUMS_LANDING, n);
        to->dots = place_of(moe, rank, DOTS_LANDING, n);
    }
    for (int i = 0; i < plan->rails.nfrom; i++) {
        struct shunti_rail_from *from = &plan->rails.from[i];

        from->landing = place_of(moe, rank, ROWS_LANDING, from->source);
        from->sums_staging = place_of(moe, rank, SUMS_STAGING, from->source);
        from->dots_staging = place_of(moe, rank, DOTS_STAGING, from->source);
        from->sums = place_of(moe, from->source, SUMS_LANDING, node);
        from->dots = place_of(moe, from->source, DOTS_LANDING, node);
    }
}

/* For each node the tokens that go there; the list that tells its proxy. */
static void list(const struct shunti_plan *plan, int node, unsigned char *out)
{
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_rail_to *to = &plan->rails.to[node];
    const bool all = plan->mode == SHUNT_MOE_ALLGATHER;
    uint16_t *count = (uint16_t *)(void *)out;
    struct shunti_rail_entry *entry =
        (struct shunti_rail_entry *)(void *)(out + list_bytes(to->rows, 0));
    size_t row = 0;

    for (size_t t = 0; t < plan->tokens; t++) {
        uint16_t n = 0;

        for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++) {
            const struct shunti_term *term = &plan->terms[i];

            if (moe->node[term->rank] != node)
                continue;
            *entry++ = (struct shunti_rail_entry){
                .row = term->row,
                .weight = term->weight,
                .local = (uint16_t)moe->comm->peers[term->rank].local,
                .op = term->op,
            };
            n++;
        }
        if (n || all) {
            to->token[row] = (uint32_t)t;
            count[row++] = n;
        }
    }
}

/* Read what we have been told; false: it contradicts the counts. */
static bool read_lists(const struct shunti_plan *plan)
{
    const struct shunt_comm *comm = plan->moe->comm;
    const int *mates = shunti_node_ranks(comm, comm->node);
    const unsigned char *at = plan->rails.received;
    bool good = true;

    for (int i = 0; i < plan->rails.nfrom; i++) {
        struct shunti_rail_from *from = &plan->rails.from[i];
        const uint16_t *count = (const uint16_t *)(const void *)at;

        from->entry = (const struct shunti_rail_entry
                           *)(const void *)(at + list_bytes(from->rows, 0));
        from->first[0] = 0;
        for (size_t k = 0; k < from->rows; k++) {
            from->first[k + 1] = from->first[k] + count[k];
            good = good && count[k] <= plan->moe->config.topk;
        }
        good = good && from->first[from->rows] == from->terms;
        for (size_t k = 0; k < from->terms && good; k++)
            good = from->entry[k].local < comm->local_size &&
                   from->entry[k].row <
                       plan->rank_total[mates[from->entry[k].local]] &&
                   from->entry[k].op <= SHUNTI_ROWS_NODE;
        at += list_bytes(from->rows, from->terms);
    }
    return good;
}

static enum shunt_status exchange_lists(struct shunti_plan *plan)
{
    struct shunt_moe *moe = plan->moe;
    const struct shunti_rails *rails = &plan->rails;
    size_t n = (size_t)moe->nranks, bytes = 0, *counts, *displs;
    unsigned char *out;

    for (int i = 0; i < moe->nodes; i++)
        bytes += list_bytes(rails->to[i].rows, rails->to[i].terms);
    counts = malloc(3 * n * sizeof(*counts) + bytes);
    if (!counts)
        return shunti_lists_no_memory(moe);
    memset(counts, 0, 3 * n * sizeof(*counts));
    displs = counts + 2 * n;
    out = (unsigned char *)(counts + 3 * n);
    bytes = 0;
    for (int i = 0; i < moe->nodes; i++) {
        const struct shunti_rail_to *to = &rails->to[i];

        if (to->proxy < 0)
            continue;
        list(plan, i, out + bytes);
        displs[to->proxy] = bytes;
        counts[to->proxy] = list_bytes(to->rows, to->terms);
        bytes += counts[to->proxy];
    }
    for (int i = 0; i < rails->nfrom; i++)
        counts[n + (size_t)rails->from[i].source] =
            list_bytes(rails->from[i].rows, rails->from[i].terms);
    /* Sources ascend, so what they send lies in the order of `from`. */
    return shunti_lists_start(plan, counts, out, counts, displs,
                              rails->received, counts + n, read_lists);
}

enum shunt_status shunti_rails_exchange(struct shunti_plan *plan)
{
    enum shunt_status st = fit_window(plan);

    if (st)
        return st;
    if (!prepare(plan))
        return shunti_lists_no_memory(plan->moe);
    find_places(plan);
    return exchange_lists(plan);
}

void shunti_rails_finish(struct shunti_rails *rails)
{
    free(rails->to);
    free(rails->from);
    free(rails->memory);
    free(rails->received);
}

/* --- whose turn it is -------------------------------------------------------------- */

void shunti_rail_line_up(struct shunti_rail_turn **line,
                         struct shunti_rail_turn *turn)
{
    while (*line)
        line = &(*line)->next;
    turn->next = NULL;
    *line = turn;
}

void shunti_rail_leave_line(struct shunti_rail_turn **line,
                            const struct shunti_rail_turn *turn)
{
    while (*line != turn)
        line = &(*line)->next;
    *line = turn->next;
}

/* --- rows and signals ------------------------------------------------------------ */

uint64_t shunti_rail_call(const struct shunt_request *request)
{
    bool backward =
        request->signature >> 24 >= SHUNTI_KIND_MOE_COMBINE_BACKWARD;

    return request->seq << 1 | backward;
}

/* The call and the rows in one word; sixteen operations are under way at most,
 * so 32 bits tell them apart. */
static uint64_t signal_of(uint64_t call, uint32_t rows)
{
    return call << 32 | rows;
}

uint32_t shunti_rail_arrived(const struct shunti_plan *plan,
                             enum shunti_rail_signal which, int index,
                             uint64_t call, size_t most)
{
    const uint64_t *word = (const uint64_t *)(const void *)shunti_rail_memory(
        plan, shunti_rail_signal_at(plan->moe, which, index));
    uint64_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    uint32_t rows = (uint32_t)value;

    if (value >> 32 != (call & UINT32_MAX))
        return 0;
    if (rows == SHUNTI_RAIL_BROKEN && which != SHUNTI_RAIL_ROWS)
        return rows;
    return rows < most ? rows : (uint32_t)most;
}

bool shunti_rail_put(struct shunti_plan *plan, int peer, size_t staging,
                     size_t landing, size_t bytes,
                     enum shunti_rail_signal which, int index, uint64_t call,
                     uint32_t rows)
{
    const struct shunti_window *window = plan->at.rail_window;
    struct shunt_comm *comm = plan->moe->comm;
    struct shunti_peer *p = &comm->peers[peer];
    struct shunt_transport_put put = {
        .local = window->addr + staging,
        .reg = window->reg[p->context - comm->contexts],
        .remote = window->peers[peer].remote,
        .offset = landing,
        .bytes = bytes,
        .signal = window->peers[peer].remote,
        .signal_offset = shunti_rail_signal_at(plan->moe, which, index),
        .signal_value = signal_of(call, rows),
        .channel = 1,
    };

    if (!shunti_put(comm, peer, &put))
        return false;
    if (p->node != comm->node)
        comm->stats.bytes_remote += bytes;
    p->messages++;
    p->bytes_put += bytes;
    return true;
}
