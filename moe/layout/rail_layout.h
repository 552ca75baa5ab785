// SPDX-License-Identifier: Apache-2.0
/*
 * The layout of rail windows: pure functions of what a rank sends to other nodes
 * and of what it passes on as a relay, as layout.h is for rows.
 *
 * A token's row for node n goes from its rank to that rank's rail peer there,
 * the relay. Each rank's rail window has, behind all signals, these parts in
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
 * Places are made for all that a plan will send, so a sender needs no
 * permission. Those of sums have room for the most that so many rows and terms
 * can need, since only the two ends know which tokens have one term. The places
 * of a rank's own window follow from its own traffic, in time linear in nodes
 * and sources. A place in a peer's window is the peer's to know: it tells
 * (struct shunti_rail_told).
 */
#ifndef SHUNTI_RAIL_LAYOUT_H
#define SHUNTI_RAIL_LAYOUT_H

#include <stdbool.h>
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

/* Is `rank` the relay of `source` on its node? */
static inline bool shunti_rail_serves(const struct shunti_rail_map *map,
                                      int rank, int source)
{
    return map->node[source] != map->node[rank] &&
           shunti_rail_peer(map, source, map->node[rank]) == rank;
}

/*
 * The sources that `relay` serves, node by node and within a node by local
 * index: every size-th rank, beginning with its own index.
 */
struct shunti_rail_sources {
    const struct shunti_rail_map *map;
    int relay, step, node, local;
};

struct shunti_rail_sources
shunti_rail_sources_of(const struct shunti_rail_map *map, int relay);
/* The next one; false: no more. */
bool shunti_rail_next(struct shunti_rail_sources *sources, int *source);

/* What a plan sends between nodes, as far as it concerns one rank. */
struct shunti_rail_traffic {
    const struct shunti_rail_map *map;
    int rank;
    int parts;                /* that calls may move by themselves */
    const uint32_t *rows;     /* (nodes) rows from the rank to each node */
    const uint32_t *terms;    /* (nodes) experts' rows they make there */
    const uint32_t *rows_in;  /* (ranks) rows from each source that the rank
                                 serves to its node */
    const uint32_t *terms_in; /* (ranks) likewise */
    size_t row_bytes;         /* room for a row on its way out */
    size_t result_bytes;      /* an expert's row on its way back, by itself */
    size_t sum_bytes;         /* a sum of several on its way back */
    size_t dot_bytes;         /* a product on its way back */
};

/*
 * What comes back of a token that has `terms` experts' rows on a node: one such
 * row as it is, the sum of several, or nothing at all (in ALLGATHER a token may
 * have none there). Both ends know how many there are, so these lie without
 * gaps, in the order of tokens.
 */
static inline size_t shunti_rail_sum_bytes(size_t terms, size_t result_bytes,
                                           size_t sum_bytes)
{
    return terms > 1 ? sum_bytes : terms * result_bytes;
}

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

/*
 * The places in the rank's own window. Returns the bytes of it.
 *
 * out  (nodes) places of what it sends; that of its own node is left alone.
 * in   (ranks) places by source; those that it is no relay of are left alone.
 */
size_t shunti_rail_places(const struct shunti_rail_traffic *traffic,
                          struct shunti_rail_out *out,
                          struct shunti_rail_in *in);

/* What a rank tells another one of its window. */
struct shunti_rail_told {
    uint64_t window;     /* bytes of it */
    uint64_t landing;    /* of the other's rows, if this is their relay */
    uint64_t sums, dots; /* from the other's node, if the other is the relay */
};

/* What the rank of `traffic`, with these places, tells `peer`. */
struct shunti_rail_told
shunti_rail_tell(const struct shunti_rail_traffic *traffic, size_t window,
                 const struct shunti_rail_out *out,
                 const struct shunti_rail_in *in, int peer);

/* The rank of `traffic` fills in the places in `peer`'s window. False: they
 * are not inside it. */
bool shunti_rail_hear(const struct shunti_rail_traffic *traffic, int peer,
                      const struct shunti_rail_told *told,
                      struct shunti_rail_out *out, struct shunti_rail_in *in);

/* Where signal number `index` is, of those of a plan: for each part the signals
 * of rows by source, then two for each node. */
size_t shunti_rail_signal_place(size_t index);

/* Bytes of the signals of a plan. */
size_t shunti_rail_signals(const struct shunti_rail_traffic *traffic);

/* A row's place on a rank of the relay's node, as its source lists it. */
struct shunti_rail_entry {
    uint32_t row; /* in that rank's buffer */
    float weight;
    uint16_t local; /* index of the rank in its node */
    uint8_t op;     /* enum shunti_rows_op */
    uint8_t unused;
};

/* Bytes of a list: how many rows come before each inner bound of parts; 16 bits
 * for each row (how many entries it has), padded to 32; then the entries of all
 * rows. */
static inline size_t shunti_rail_list_bytes(int parts, size_t rows,
                                            size_t terms)
{
    return (size_t)(parts - 1) * sizeof(uint32_t) +
           (rows * sizeof(uint16_t) + 3) / 4 * 4 +
           terms * sizeof(struct shunti_rail_entry);
}

#endif
