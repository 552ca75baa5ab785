// SPDX-License-Identifier: Apache-2.0
/*
 * The layout of rail windows: a pure function of what a rank sends to other
 * nodes and of what it relays. (layout.h does the same for rows.)
 *
 * A token's row for node n goes from its rank to that rank's rail peer on n,
 * the relay. Behind all signals, the rail window of each rank has these areas
 * in this order. In each area, every source for which the rank is the relay, or
 * every other node, has a part of its own:
 *
 *     rows arrive    by source: rows to pass on
 *     sums arrive    by node: sums for this rank's tokens
 *     dots arrive    by node: products for the gradient of the weights
 *     rows staging   by node: rows of this rank
 *     sums staging   by source
 *     dots staging   by source
 *
 * Each part has room for all that a plan will send, so a sender needs no
 * permission. Only the two ends know which tokens have one term. So parts for
 * sums have room for the most that so many rows and terms can need. A rank
 * computes the offsets in its own window from its own traffic, in time linear
 * in nodes and sources. Offsets in a peer's window are sent by the peer (struct
 * shunti_rail_offsets).
 */
#ifndef SHUNTI_RAIL_LAYOUT_H
#define SHUNTI_RAIL_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The ranks of each node. */
struct shunti_rail_map {
    int ranks, nodes;
    const int *node;  /* (ranks) node of each rank */
    const int *local; /* (ranks) index of each rank in its node */
    /* (nodes + 1) list[first[n]] is the first rank of node n. */
    const int *first;
    const int *list; /* (ranks) ordered by node and local index */
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

/* True if `rank` is the relay of `source` on the node of `rank`. */
static inline bool shunti_rail_serves(const struct shunti_rail_map *map,
                                      int rank, int source)
{
    return map->node[source] != map->node[rank] &&
           shunti_rail_peer(map, source, map->node[rank]) == rank;
}

/*
 * Iterates over the sources that `relay` serves, by node, then by local index.
 * On each node they are every size-th rank, beginning with the relay's own
 * local index; `size` is the number of ranks on the relay's node.
 */
struct shunti_rail_sources {
    const struct shunti_rail_map *map;
    int relay, step, node, local;
};

struct shunti_rail_sources
shunti_rail_sources_of(const struct shunti_rail_map *map, int relay);
/* Set *source to the next source. False: there is none. */
bool shunti_rail_next(struct shunti_rail_sources *sources, int *source);

/* The traffic of a plan between nodes: the part that concerns one rank. */
struct shunti_rail_traffic {
    const struct shunti_rail_map *map;
    int rank;
    int parts;            /* of the plan; a call may move one by itself */
    const uint32_t *rows; /* (nodes) rows from the rank to each node */
    /* (nodes) Experts' rows that each node makes of these rows. */
    const uint32_t *terms;
    const uint32_t *rows_in;  /* (ranks) rows from each source that the rank
                                 serves, for the rank's node */
    const uint32_t *terms_in; /* (ranks) experts' rows that the rank's node
                                 makes of these rows */
    size_t row_bytes;         /* room for a row on its way to the experts */
    size_t result_bytes;      /* a single expert's row on its way home */
    size_t sum_bytes;         /* a sum of several rows on its way home */
    size_t dot_bytes;         /* a product on its way home */
};

/*
 * Bytes that come home for a token with `terms` experts' rows on a node. One
 * row comes as it is, several rows as their sum. Without a row nothing comes
 * (in ALLGATHER, a token may have no row on a node). Both ends know the number
 * of terms. So results lie without gaps, in the order of tokens.
 */
static inline size_t shunti_rail_sum_bytes(size_t terms, size_t result_bytes,
                                           size_t sum_bytes)
{
    return terms > 1 ? sum_bytes : terms * result_bytes;
}

/* Offsets for the rows that a rank sends to a node. `staging`, `sums` and
 * `dots` are in the rank's own window, `arrival` (where its rows arrive) is in
 * the relay's. */
struct shunti_rail_out {
    size_t staging, arrival, sums, dots;
};

/* Offsets for the rows that a relay receives from a source. `sums` and `dots`
 * are in the source's window, the others in the relay's. */
struct shunti_rail_in {
    size_t arrival, sums_staging, dots_staging, sums, dots;
};

/*
 * Find the offsets in the rank's own window. Returns the bytes of the window.
 *
 * out  (nodes) by receiving node; the entry of the rank's own node is not set.
 * in   (ranks) by source; only sources that the rank serves are set.
 */
size_t shunti_rail_places(const struct shunti_rail_traffic *traffic,
                          struct shunti_rail_out *out,
                          struct shunti_rail_in *in);

/* Offsets in the window of a rank that the rank sends to a peer. */
struct shunti_rail_offsets {
    uint64_t window; /* bytes of the window */
    /* Offset for the peer's rows, if this rank relays them. */
    uint64_t arrival;
    uint64_t sums, dots; /* offsets for results from the peer's node, if the
                            peer is the relay there */
};

/* Offsets in this rank's window that `peer` needs. This rank sends them. */
struct shunti_rail_offsets
shunti_rail_offsets_for(const struct shunti_rail_traffic *traffic,
                        size_t window, const struct shunti_rail_out *out,
                        const struct shunti_rail_in *in, int peer);

/* Store the offsets that `peer` has sent, which are in its own window. False:
 * they are not inside that window. */
bool shunti_rail_store_offsets(const struct shunti_rail_traffic *traffic,
                               int peer,
                               const struct shunti_rail_offsets *offsets,
                               struct shunti_rail_out *out,
                               struct shunti_rail_in *in);

/* Offset of signal number `index` of a plan. For each part of the plan there
 * are signals for rows, by source, and then two signals for each node. */
size_t shunti_rail_signal_place(size_t index);

/* Bytes of the signals of a plan. */
size_t shunti_rail_signals(const struct shunti_rail_traffic *traffic);

/* An entry of a source's list for the relay: a row's slot on a rank of the
 * relay's node. */
struct shunti_rail_entry {
    uint32_t row; /* slot in that rank's buffer */
    float weight;
    uint16_t local; /* index of the rank in its node */
    uint8_t op;     /* enum shunti_rows_op */
    uint8_t unused;
};

/* Bytes of a list. First, the list has the number of rows before each inner
 * bound of parts, in 32 bits each. Then come 16 bits for each row: its number
 * of entries. After padding to 32 bits come the entries of all rows. */
static inline size_t shunti_rail_list_bytes(int parts, size_t rows,
                                            size_t terms)
{
    return (size_t)(parts - 1) * sizeof(uint32_t) +
           (rows * sizeof(uint16_t) + 3) / 4 * 4 +
           terms * sizeof(struct shunti_rail_entry);
}

#endif
