// SPDX-License-Identifier: Apache-2.0
/*
 * Collectives as schedules: all-to-all in one exchange
 * (collectives/exchange.c), all-to-all in two levels
 * (collectives/alltoall_two_level.c), and all-gather.
 */
#include "perf/sim/schedule.h"

#include <stdlib.h>

/* Bytes of an entry in a package. An entry has two sizes: of the block that one
 * rank sends to another, and of the block that it expects back. */
enum { ENTRY = 16 };

/* A block of more bytes for a rank of the sender's node is not packed. */
enum { WINDOW_MIN = 2048 };

struct build {
    struct scaling_schedule *schedule;
    const struct scaling_topology *t;
    const uint32_t *blocks;
    uint64_t carry;
};

static uint32_t block(const struct build *b, int from, int to)
{
    return b->blocks[(size_t)from * (size_t)b->t->ranks + (size_t)to];
}

/* --- one exchange --------------------------------------------------------- */

static void exchange(const struct build *b, bool zero_copy)
{
    for (int r = 0; r < b->t->ranks; r++)
        for (int i = 1; i < b->t->ranks; i++) {
            int peer = (r + i) % b->t->ranks;
            uint32_t bytes = block(b, r, peer);
            struct scaling_op *op = scaling_add(b->schedule, r);

            scaling_send(b->schedule, op, peer, bytes, SCALING_NOTE);
            /* Within a node, the receiver copies the block directly from the
             * sender's buffer. */
            if (b->t->node[peer] != b->t->node[r] && !zero_copy)
                op->local = op->unpack = bytes;
        }
}

/* --- two levels ----------------------------------------------------------- */

static bool is_rail_peer(const struct scaling_topology *t, int rank, int peer)
{
    return scaling_rail(t, rank, t->node[peer]) == peer ||
           scaling_rail(t, peer, t->node[rank]) == rank;
}

/* Returns the i-th rank of a node, counted from this rank's local index. */
static int nth_of_node(const struct scaling_topology *t, int rank, int node,
                       int i)
{
    return t->first[node] + (t->local[rank] + i) % scaling_node_size(t, node);
}

/* Returns the bytes from `rank` for `dest` that are sent in packages. */
static uint64_t carried(const struct build *b, int rank, int dest)
{
    uint32_t bytes = block(b, rank, dest);

    return bytes > b->carry ? 0 : bytes;
}

static uint64_t straight(const struct build *b, int rank, int dest)
{
    uint32_t bytes = block(b, rank, dest);

    return bytes > b->carry ? bytes : 0;
}

/* Returns the bytes of the package from `rank` to a local peer, and the number
 * of its entries in *entries. */
static uint64_t local_package(const struct build *b, int rank, int peer,
                              uint64_t *entries)
{
    const struct scaling_topology *t = b->t;
    uint64_t bytes = block(b, rank, peer);

    *entries = 1;
    if (bytes > WINDOW_MIN)
        bytes = 0;
    for (int n = 0; n < t->nodes; n++)
        for (int d = t->first[n]; d < t->first[n + 1]; d++)
            if (n != t->node[rank] &&
                scaling_rail(t, d, t->node[rank]) == peer) {
                ++*entries;
                bytes += carried(b, rank, d);
            }
    return bytes;
}

/* Add the first phase: packages for local peers, and direct blocks for ranks
 * with which this rank exchanges nothing else. */
static void send_inside(const struct build *b, int r, const int32_t *arrived)
{
    struct scaling_schedule *s = b->schedule;
    const struct scaling_topology *t = b->t;
    const int node = t->node[r], first = t->first[node];
    uint64_t packed = 0, entries;

    for (int m = first; m < t->first[node + 1]; m++)
        if (m != r)
            packed += local_package(b, r, m, &entries) + entries * ENTRY;
    for (int i = 1; i < scaling_node_size(t, node); i++) {
        int peer = nth_of_node(t, r, node, i);
        uint64_t bytes = local_package(b, r, peer, &entries);
        uint32_t own = block(b, r, peer);
        struct scaling_op *op = scaling_add(s, r);

        if (i == 1)
            op->local = (uint32_t)packed; /* charge the filling of all packages
                                           * to the first one */
        if (own > WINDOW_MIN)
            bytes += own;
        scaling_send(s, op, peer, bytes, SCALING_NOTE + entries * ENTRY);
        op->counter = arrived[peer];
        /* The receiver copies its own block out of the package. */
        op->unpack = own > WINDOW_MIN ? 0 : own;
    }
    for (int i = 1; i < t->nodes; i++) {
        int n = (node + i) % t->nodes;

        for (int l = 0; l < scaling_node_size(t, n); l++) {
            int peer = nth_of_node(t, r, n, l);
            uint64_t bytes = straight(b, r, peer);

            if (!bytes || is_rail_peer(t, r, peer))
                continue;
            struct scaling_op *op = scaling_add(s, r);

            scaling_send(s, op, peer, bytes, SCALING_NOTE);
            op->local = op->unpack = (uint32_t)bytes;
        }
    }
}

/* Returns the bytes that the relay `r` has for `dest` from the ranks of its
 * node. */
static uint64_t rail_package(const struct build *b, int r, int dest)
{
    const struct scaling_topology *t = b->t;
    const int node = t->node[r];
    uint64_t bytes = 0;

    if (scaling_rail(t, dest, node) != r)
        return 0;
    for (int m = t->first[node]; m < t->first[node + 1]; m++)
        bytes += carried(b, m, dest);
    return bytes;
}

static void send_between(const struct build *b, int r, int32_t arrived)
{
    struct scaling_schedule *s = b->schedule;
    const struct scaling_topology *t = b->t;
    const int node = t->node[r];
    const size_t first = s->nops;
    uint64_t packed = 0;

    for (int n = 0; n < t->nodes; n++)
        for (int d = t->first[n]; d < t->first[n + 1] && n != node; d++)
            packed += rail_package(b, r, d);
    for (int i = 1; i < t->nodes; i++) {
        int n = (node + i) % t->nodes;

        for (int l = 0; l < scaling_node_size(t, n); l++) {
            int peer = nth_of_node(t, r, n, l);
            bool carries = scaling_rail(t, peer, node) == r;
            uint64_t bytes = rail_package(b, r, peer),
                     direct = straight(b, r, peer);

            if (!is_rail_peer(t, r, peer))
                continue;
            struct scaling_op *op = scaling_add(s, r);

            scaling_send(s, op, peer, bytes + direct,
                         SCALING_NOTE +
                             (carries
                                  ? (uint64_t)scaling_node_size(t, node) * ENTRY
                                  : 0));
            /* Count the copies to and from the network's memory, and the copies
             * of a package's blocks to their destinations. */
            op->local = (uint32_t)(packed + bytes + direct);
            op->unpack = (uint32_t)(2 * bytes + direct);
            packed = 0; /* the first package was charged for filling all
                         * packages */
        }
    }
    if (arrived >= 0)
        scaling_start_by(s, arrived, first);
}

static void two_levels(const struct build *b)
{
    const struct scaling_topology *t = b->t;
    int32_t *arrived = scaling_alloc((size_t)t->ranks * sizeof(*arrived));

    for (int r = 0; r < t->ranks; r++) {
        int others = scaling_node_size(t, t->node[r]) - 1;

        arrived[r] =
            others ? scaling_count_to(b->schedule, (uint32_t)others) : -1;
    }
    for (int r = 0; r < t->ranks; r++) {
        send_inside(b, r, arrived);
        send_between(b, r, arrived[r]);
    }
    free(arrived);
}

void scaling_alltoallv(struct scaling_schedule *schedule,
                       const uint32_t *blocks, uint64_t carry, bool zero_copy)
{
    const struct build b = {schedule, schedule->topology, blocks, carry};

    if (carry == SCALING_FLAT)
        exchange(&b, zero_copy);
    else
        two_levels(&b);
}

/* --- all-gather ----------------------------------------------------------- */

/* Add an all-gather in two levels: first between rail peers, then within each
 * node. */
static void gather_two_level(struct scaling_schedule *s, uint32_t bytes)
{
    const struct scaling_topology *t = s->topology;
    int32_t *arrived = scaling_alloc((size_t)t->ranks * sizeof(*arrived));

    for (int r = 0; r < t->ranks; r++) {
        uint32_t rails = 0;

        for (int p = 0; p < t->ranks; p++)
            rails += t->node[p] != t->node[r] && is_rail_peer(t, r, p);
        arrived[r] = rails ? scaling_count_to(s, rails) : -1;
    }
    for (int r = 0; r < t->ranks; r++) {
        const int node = t->node[r];
        uint64_t package = bytes;
        size_t first;

        /* Rank r passes on the blocks of the ranks whose rail peer it is. */
        for (int p = 0; p < t->ranks; p++)
            if (t->node[p] != node && scaling_rail(t, p, node) == r)
                package += bytes;
        for (int i = 1; i < t->nodes; i++) {
            int n = (node + i) % t->nodes;

            for (int l = 0; l < scaling_node_size(t, n); l++) {
                int peer = nth_of_node(t, r, n, l);
                bool passes = scaling_rail(t, r, n) == peer;

                if (!is_rail_peer(t, r, peer))
                    continue;
                struct scaling_op *op = scaling_add(s, r);

                scaling_send(s, op, peer, passes ? bytes : 0, SCALING_NOTE);
                op->local = op->unpack = passes ? bytes : 0;
                op->counter = arrived[peer];
            }
        }
        first = s->nops;
        for (int i = 1; i < scaling_node_size(t, node); i++)
            scaling_send(s, scaling_add(s, r), nth_of_node(t, r, node, i),
                         package, SCALING_NOTE);
        if (arrived[r] >= 0)
            scaling_start_by(s, arrived[r], first);
    }
    free(arrived);
}

void scaling_allgather(struct scaling_schedule *s, uint32_t bytes,
                       bool two_level)
{
    const struct scaling_topology *t = s->topology;
    const size_t ranks = (size_t)t->ranks;
    uint32_t *blocks;

    if (two_level) {
        gather_two_level(s, bytes);
        return;
    }
    blocks = scaling_alloc(ranks * ranks * sizeof(*blocks));
    for (size_t i = 0; i < ranks * ranks; i++)
        blocks[i] = bytes;
    scaling_alltoallv(s, blocks, SCALING_FLAT, false);
    free(blocks);
}
