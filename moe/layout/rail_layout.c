// SPDX-License-Identifier: Apache-2.0
/* The layout of rail windows; see rail_layout.h. */
#include "moe/layout/rail_layout.h"

/* Areas begin at cache lines, and each signal has a line of its own. */
#define LINE ((size_t)64)

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

size_t shunti_rail_signals(const struct shunti_rail_traffic *t)
{
    return shunti_rail_signal_place(
        (size_t)t->parts * ((size_t)t->map->ranks + 2 * (size_t)t->map->nodes));
}

size_t shunti_rail_signal_place(size_t index)
{
    return index * LINE;
}

/* Bytes that travel from a source to a node, and back. */
struct sizes {
    size_t rows, sums, dots;
};

/* An upper bound of the bytes of sums: the lesser of two bounds. The first one
 * holds if every row is a sum. The second one holds if every term comes by
 * itself. It also holds for sums: a sum takes no more bytes than two terms, and
 * has at least two. */
static size_t most_of_sums(const struct shunti_rail_traffic *t, size_t rows,
                           size_t terms)
{
    const size_t summed = rows * t->sum_bytes;
    const size_t one_by_one = terms * t->result_bytes;

    return summed < one_by_one ? summed : one_by_one;
}

static struct sizes sizes_of(const struct shunti_rail_traffic *t, size_t rows,
                             size_t terms)
{
    return (struct sizes){
        lines(rows * t->row_bytes),
        lines(most_of_sums(t, rows, terms)),
        lines(terms * t->dot_bytes),
    };
}

/* sizes_out(): of the rows that the rank sends to a node, and of their results.
 * sizes_in(): of the rows that a source sends to the rank. */
static struct sizes sizes_out(const struct shunti_rail_traffic *t, int node)
{
    return sizes_of(t, t->rows[node], t->terms[node]);
}

static struct sizes sizes_in(const struct shunti_rail_traffic *t, int source)
{
    return sizes_of(t, t->rows_in[source], t->terms_in[source]);
}

static void add(struct sizes *sum, struct sizes more)
{
    sum->rows += more.rows;
    sum->sums += more.sums;
    sum->dots += more.dots;
}

struct shunti_rail_sources
shunti_rail_sources_of(const struct shunti_rail_map *map, int relay)
{
    return (struct shunti_rail_sources){
        .map = map,
        .relay = relay,
        .step = shunti_rail_node_size(map, map->node[relay]),
        .local = map->local[relay],
    };
}

bool shunti_rail_next(struct shunti_rail_sources *x, int *source)
{
    const struct shunti_rail_map *map = x->map;

    while (x->node < map->nodes) {
        if (x->node != map->node[x->relay] &&
            x->local < shunti_rail_node_size(map, x->node)) {
            *source = map->list[map->first[x->node] + x->local];
            x->local += x->step;
            return true;
        }
        x->node++;
        x->local = map->local[x->relay];
    }
    return false;
}

/* Sizes of all that the rank receives as a relay. */
static struct sizes received(const struct shunti_rail_traffic *t)
{
    struct shunti_rail_sources x = shunti_rail_sources_of(t->map, t->rank);
    struct sizes sum = {0};
    int source;

    while (shunti_rail_next(&x, &source))
        add(&sum, sizes_in(t, source));
    return sum;
}

/* Sizes of all that the rank sends to other nodes. */
static struct sizes sent(const struct shunti_rail_traffic *t)
{
    struct sizes sum = {0};

    for (int n = 0; n < t->map->nodes; n++)
        if (n != t->map->node[t->rank])
            add(&sum, sizes_out(t, n));
    return sum;
}

/* Offsets of the areas of a window. */
struct parts {
    size_t rows_arrival, sums_arrival, dots_arrival;
    size_t rows_staging, sums_staging, dots_staging, end;
};

static struct parts parts_of(const struct shunti_rail_traffic *t)
{
    const struct sizes in = received(t), out = sent(t);
    struct parts p;

    p.rows_arrival = 0;
    p.sums_arrival = p.rows_arrival + in.rows;
    p.dots_arrival = p.sums_arrival + out.sums;
    p.rows_staging = p.dots_arrival + out.dots;
    p.sums_staging = p.rows_staging + out.rows;
    p.dots_staging = p.sums_staging + in.sums;
    p.end = p.dots_staging + in.dots;
    return p;
}

size_t shunti_rail_places(const struct shunti_rail_traffic *t,
                          struct shunti_rail_out *out,
                          struct shunti_rail_in *in)
{
    const struct parts own = parts_of(t);
    struct shunti_rail_sources x = shunti_rail_sources_of(t->map, t->rank);
    struct sizes before = {0};
    int source;

    for (int n = 0; n < t->map->nodes; n++) {
        if (n == t->map->node[t->rank])
            continue;
        out[n].staging = own.rows_staging + before.rows;
        out[n].sums = own.sums_arrival + before.sums;
        out[n].dots = own.dots_arrival + before.dots;
        add(&before, sizes_out(t, n));
    }
    before = (struct sizes){0};
    while (shunti_rail_next(&x, &source)) {
        in[source].arrival = own.rows_arrival + before.rows;
        in[source].sums_staging = own.sums_staging + before.sums;
        in[source].dots_staging = own.dots_staging + before.dots;
        add(&before, sizes_in(t, source));
    }
    return own.end;
}

/* --- places in the windows of peers ----------------------------------------------- */

/* True if `peer` is a relay of the rank. */
static bool relays(const struct shunti_rail_traffic *t, int peer)
{
    return shunti_rail_serves(t->map, peer, t->rank);
}

struct shunti_rail_offsets
shunti_rail_offsets_for(const struct shunti_rail_traffic *t, size_t window,
                        const struct shunti_rail_out *out,
                        const struct shunti_rail_in *in, int peer)
{
    struct shunti_rail_offsets offsets = {.window = window};

    if (shunti_rail_serves(t->map, t->rank, peer))
        offsets.arrival = in[peer].arrival;
    if (relays(t, peer)) {
        offsets.sums = out[t->map->node[peer]].sums;
        offsets.dots = out[t->map->node[peer]].dots;
    }
    return offsets;
}

static bool fits(uint64_t at, size_t bytes, uint64_t window)
{
    return at <= window && bytes <= window - at;
}

bool shunti_rail_store_offsets(const struct shunti_rail_traffic *t, int peer,
                               const struct shunti_rail_offsets *offsets,
                               struct shunti_rail_out *out,
                               struct shunti_rail_in *in)
{
    const int node = t->map->node[peer];
    bool good = true;

    if (relays(t, peer)) {
        out[node].arrival = offsets->arrival;
        good = fits(offsets->arrival, sizes_out(t, node).rows, offsets->window);
    }
    if (shunti_rail_serves(t->map, t->rank, peer)) {
        const struct sizes sizes = sizes_in(t, peer);

        in[peer].sums = offsets->sums;
        in[peer].dots = offsets->dots;
        good = good && fits(offsets->sums, sizes.sums, offsets->window) &&
               fits(offsets->dots, sizes.dots, offsets->window);
    }
    return good;
}
