// SPDX-License-Identifier: Apache-2.0
/*
 * The layout of rail windows: pure functions of what every rank knows of a
 * routing, as layout.h is for rows.
 *
 * A token's row for node n goes from its rank to that rank's rail peer there,
 * the relay. Each rank's rail window has, behind the signals, these parts in
 * this order; all sources that a rank is the relay of, and all other nodes,
 * have a place of their own in each:
 *
 *     rows landing   by source: rows to pass on
 *     sums landing   by node: what our tokens' rows add up to there
 *     dots landing   by node: products for the gradient of the weights
 *     rows staging   by node: rows of ours
 *     sums staging   by source
 *     dots staging   by source
 *
 * Places are made for exactly what a plan will send, so a sender needs no
 * permission. Time to find those of one rank is linear in nodes squared; to
 * find the largest window, in ranks times nodes.
 */
#ifndef SHUNTI_RAIL_LAYOUT_H
#define SHUNTI_RAIL_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

/* Which ranks are where. */
struct shunti_rail_map {
    int ranks, nodes;
    const int *node;  /* (ranks) */
    const int *local; /* (ranks) index in the node */
    const int *first; /* (nodes + 1) a node's ranks are list[first[n]].. */
    const int *list;  /* (ranks) by node and local index */
};

static inline int shunti_rail_node_size(const struct shunti_rail_map *map,
                                        int node)
{
    return map->first[node + 1] - map->first[node];
}

/* The rail peer of `rank` on another node. */
static inline int shunti_rail_peer(const struct shunti_rail_map *map, int rank,
                                   int node)
{
    return map->list[map->first[node] +
                     map->local[rank] % shunti_rail_node_size(map, node)];
}

/* What a plan sends between nodes. */
struct shunti_rail_traffic {
    const struct shunti_rail_map *map;
    const uint32_t *rows;  /* (ranks, nodes) rows from a rank to a node */
    const uint32_t *terms; /* (ranks, nodes) experts' rows they make there */
    size_t row_bytes;      /* room for a row on its way out */
    size_t sum_bytes;      /* a row on its way back */
    size_t dot_bytes;      /* a product on its way back */
};

/* Places of what a rank sends to a node. `staging`, `sums` and `dots` are in
 * its own window, `landing` is in the relay's. */
struct shunti_rail_out {
    size_t staging, landing, sums, dots;
};

/* Places of what a relay gets from a source. `sums` and `dots` are in the
 * source's window, the others in the relay's. */
struct shunti_rail_in {
    size_t landing, sums_staging, dots_staging, sums, dots;
};

/* out: (nodes) places of `rank`; that of its own node is left alone. */
void shunti_rail_places_out(const struct shunti_rail_traffic *traffic, int rank,
                            struct shunti_rail_out *out);
/* in: (ranks) places by source; those that `rank` is no relay of are left
 * alone. */
void shunti_rail_places_in(const struct shunti_rail_traffic *traffic, int rank,
                           struct shunti_rail_in *in);
/* Bytes of the window of the rank that needs most. */
size_t shunti_rail_window_bytes(const struct shunti_rail_traffic *traffic);

/* Where the signal number `index` is: the signals of rows by source, then two
 * for each node. */
size_t shunti_rail_signal_place(size_t index);

/* A row's place on a rank of the relay's node, as its source lists it. */
struct shunti_rail_entry {
    uint32_t row; /* in that rank's buffer */
    float weight;
    uint16_t local; /* index of the rank in its node */
    uint8_t op;     /* enum shunti_rows_op */
    uint8_t unused;
};

/* Bytes of a list: 16 bits for each row (how many entries it has), padded to
 * 32, then the entries of all rows. */
static inline size_t shunti_rail_list_bytes(size_t rows, size_t terms)
{
    return (rows * sizeof(uint16_t) + 3) / 4 * 4 +
           terms * sizeof(struct shunti_rail_entry);
}

#endif
