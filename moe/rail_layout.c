// SPDX-License-Identifier: Apache-2.0
/* The layout of rail windows; see rail_layout.h. */
#include "moe/rail_layout.h"

#include <stdbool.h>

/* Places begin at cache lines, and each signal has one. */
#define LINE ((size_t)64)

static size_t lines(size_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

size_t shunti_rail_signal_place(size_t index)
{
    return index * LINE;
}

/* Bytes of what travels from a source to a node, and back. */
struct sizes {
    size_t rows, sums, dots;
};

static struct sizes sizes_of(const struct shunti_rail_traffic *t, int source,
                             int node)
{
    const size_t at = (size_t)source * (size_t)t->map->nodes + (size_t)node;

    return (struct sizes){
        lines(t->rows[at] * t->row_bytes),
        lines(t->rows[at] * t->sum_bytes),
        lines(t->terms[at] * t->dot_bytes),
    };
}

static void add(struct sizes *sum, struct sizes more)
{
    sum->rows += more.rows;
    sum->sums += more.sums;
    sum->dots += more.dots;
}

/*
 * The sources that `relay` serves, node by node and within a node by local
 * index: every size-th rank, beginning with its own index.
 */
struct sources {
    const struct shunti_rail_map *map;
    int relay, step, node, local;
};

static struct sources sources_of(const struct shunti_rail_map *map, int relay)
{
    return (struct sources){
        .map = map,
        .relay = relay,
        .step = shunti_rail_node_size(map, map->node[relay]),
        .local = map->local[relay],
    };
}

/* The next one; false: no more. */
static bool next(struct sources *x, int *source)
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

/* What a rank gets as a relay. */
static struct sizes received(const struct shunti_rail_traffic *t, int relay)
{
    struct sources x = sources_of(t->map, relay);
    struct sizes sum = {0};
    int source;

    while (next(&x, &source))
        add(&sum, sizes_of(t, source, t->map->node[relay]));
    return sum;
}

/* What it sends to nodes before `end`. */
static struct sizes sent_before(const struct shunti_rail_traffic *t, int rank,
                                int end)
{
    struct sizes sum = {0};

    for (int n = 0; n < end; n++)
        if (n != t->map->node[rank])
            add(&sum, sizes_of(t, rank, n));
    return sum;
}

/* Where the parts of a window begin. */
struct parts {
    size_t rows_landing, sums_landing, dots_landing;
    size_t rows_staging, sums_staging, dots_staging, end;
};

static struct parts parts_of(const struct shunti_rail_traffic *t, int rank)
{
    const struct sizes in = received(t, rank);
    const struct sizes out = sent_before(t, rank, t->map->nodes);
    struct parts p;

    p.rows_landing = shunti_rail_signal_place((size_t)t->map->ranks +
                                              2 * (size_t)t->map->nodes);
    p.sums_landing = p.rows_landing + in.rows;
    p.dots_landing = p.sums_landing + out.sums;
    p.rows_staging = p.dots_landing + out.dots;
    p.sums_staging = p.rows_staging + out.rows;
    p.dots_staging = p.sums_staging + in.sums;
    p.end = p.dots_staging + in.dots;
    return p;
}

/* Bytes of rows that lie before those of `source` in its relay's window. */
static size_t landed_before(const struct shunti_rail_traffic *t, int relay,
                            int source)
{
    struct sources x = sources_of(t->map, relay);
    size_t bytes = 0;
    int other;

    while (next(&x, &other) && other != source)
        bytes += sizes_of(t, other, t->map->node[relay]).rows;
    return bytes;
}

void shunti_rail_places_out(const struct shunti_rail_traffic *t, int rank,
                            struct shunti_rail_out *out)
{
    const struct parts own = parts_of(t, rank);
    struct sizes before = {0};

    for (int n = 0; n < t->map->nodes; n++) {
        int relay;

        if (n == t->map->node[rank])
            continue;
        relay = shunti_rail_peer(t->map, rank, n);
        out[n] = (struct shunti_rail_out){
            .staging = own.rows_staging + before.rows,
            .landing = own.rows_landing + landed_before(t, relay, rank),
            .sums = own.sums_landing + before.sums,
            .dots = own.dots_landing + before.dots,
        };
        add(&before, sizes_of(t, rank, n));
    }
}

void shunti_rail_places_in(const struct shunti_rail_traffic *t, int rank,
                           struct shunti_rail_in *in)
{
    const struct parts own = parts_of(t, rank);
    const int node = t->map->node[rank];
    struct sources x = sources_of(t->map, rank);
    struct sizes before = {0};
    int source;

    while (next(&x, &source)) {
        const struct parts theirs = parts_of(t, source);
        const struct sizes there = sent_before(t, source, node);

        in[source] = (struct shunti_rail_in){
            .landing = own.rows_landing + before.rows,
            .sums_staging = own.sums_staging + before.sums,
            .dots_staging = own.dots_staging + before.dots,
            .sums = theirs.sums_landing + there.sums,
            .dots = theirs.dots_landing + there.dots,
        };
        add(&before, sizes_of(t, source, node));
    }
}

size_t shunti_rail_window_bytes(const struct shunti_rail_traffic *t)
{
    size_t most = 0;

    for (int r = 0; r < t->map->ranks; r++) {
        const size_t bytes = parts_of(t, r).end;

        most = bytes > most ? bytes : most;
    }
    return most;
}
