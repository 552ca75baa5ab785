// SPDX-License-Identifier: Apache-2.0
/*
 * The table of algorithms, and their costs; see algorithms.h.
 *
 * The link figures (src/comm/link.h) are the costs of messages and bytes, in
 * the form of LogGP (Alexandrov and others, 1995). A message of b bytes takes
 * latency + gap + b * byte. Each further message adds gap + b * byte. A rank
 * receives as many messages as it sends. Ranks that share a CPU handle their
 * messages one after the other. The ranks of a node share one link to other
 * nodes. In two levels, bytes received inside a node are copied twice.
 */
#include "collectives/algorithms.h"

#include <string.h>

#include "collectives/carry.h"
#include "collectives/coll_state.h"
#include "src/base/kind.h"
#include "src/comm.h"
#include "src/op/note.h"
#include "src/wire/nodes.h"

void shunti_sizes_narrow(struct shunti_sizes *same, struct shunti_sizes range,
                         size_t bytes)
{
    const size_t cuts[] = {range.low, range.high + 1}; /* sizes at which a part
                                                          begins */

    if (range.low > range.high)
        return;
    for (int i = 0; i < 2; i++) {
        if (!cuts[i]) /* 0: no size is below 0, or above SIZE_MAX */
            continue;
        if (bytes >= cuts[i] && same->low < cuts[i])
            same->low = cuts[i];
        if (bytes < cuts[i] && same->high >= cuts[i])
            same->high = cuts[i] - 1;
    }
}

/* The critical path of an algorithm: steps that wait for each other, messages
 * of one rank, bytes of one rank inside a node and of one node between
 * nodes. */
struct shunti_work {
    double steps_in, messages_in, bytes_in;
    double steps_across, messages_across, bytes_across;
};

static double rounds(double nodes)
{
    double n = 0;

    for (double distance = 1; distance < nodes; distance *= 2)
        n++;
    return n;
}

/* P ranks, N nodes, G ranks of the largest node, S bytes; far: ranks of other
 * nodes (P - G). */
#define WORK(name)                                                           \
    static struct shunti_work name(double P, double N, double G, double far, \
                                   double S)

/* clang-format off */
WORK(barrier_flat)  { (void)S, (void)N, (void)P;
    return (struct shunti_work){0, G - 1, 0,  1, far, 0}; }
WORK(barrier_two)   { (void)S, (void)far, (void)P;
    return (struct shunti_work){1, G - 1, 0,  1, N - 1, 0}; }

WORK(barrier_dissemination) { (void)S, (void)far, (void)P;
    return (struct shunti_work){1, G - 1, 0,  rounds(N), rounds(N), 0}; }

WORK(broadcast_flat) { (void)N, (void)P;
    return (struct shunti_work){0, G - 1, G * S,  1, far, far * S}; }
WORK(broadcast_two)  { (void)far, (void)P;
    return (struct shunti_work){1, G - 1, G * S,  1, N - 1, (N - 1) * S}; }

/* S: bytes of all blocks; far * S / P of these are blocks of other nodes. */
WORK(allgather_flat) { (void)N;
    return (struct shunti_work){0, G - 1, S,  1, far, G * far * S / P}; }
WORK(allgather_two)  {
    return (struct shunti_work){1, G - 1, 2 * S,  1, N - 1, far * S / P}; }

WORK(allgather_dissemination) {
    return (struct shunti_work){1, G - 1, 3 * S,
                         rounds(N), rounds(N), far * S / P}; }

WORK(reduce_scatter_flat) { (void)N;
    return (struct shunti_work){0, G - 1, S,  1, far, G * far * S / P}; }
WORK(reduce_scatter_two)  {
    return (struct shunti_work){1, G - 1, 2 * S,  1, N - 1, far * S / P}; }

WORK(allreduce_direct)   { (void)N, (void)P;
    return (struct shunti_work){0, G - 1, P * S,  1, far, G * far * S}; }
WORK(allreduce_segments) { (void)N;
    return (struct shunti_work){0, 2 * (G - 1), 2 * S,  2, 3 * far,
                         2 * G * far * S / P}; }
WORK(allreduce_whole)    { (void)far, (void)P;
    return (struct shunti_work){1, G - 1, G * S,  1, N - 1, G * (N - 1) * S}; }
WORK(allreduce_lanes)    { (void)far, (void)P;
    return (struct shunti_work){2, 2 * (G - 1), 2 * S,  1, N - 1, (N - 1) * S}; }

/* Shards send 2 (N - 1) messages. Counted as such, they were chosen for 32 KiB
 * between eight nodes, where they took 1.27 times as long as doubling: a late
 * block costs more than a message that is ready. */
WORK(allreduce_shards)   { (void)far, (void)P;
    return (struct shunti_work){G > 1 ? 2 : 0, 2 * (G - 1), 2 * S,
                         2, 3 * (N - 1), 2 * (N - 1) / N * S}; }

WORK(allreduce_dissemination) { (void)far, (void)P;
    return (struct shunti_work){1, G - 1, G * S,
                         rounds(N), rounds(N), G * (N - 1) * S}; }

WORK(allreduce_doubling) { (void)far, (void)P;
    return (struct shunti_work){1, G - 1, G * S,
                         rounds(N), rounds(N), G * rounds(N) * S}; }

/* Only messages are counted, because the way of a block depends on its size
 * (shunti_carry_limit()). */
WORK(alltoall_flat) { (void)S, (void)N, (void)P;
    return (struct shunti_work){0, G - 1, 0,  1, far, 0}; }
WORK(alltoall_two)  { (void)S, (void)far, (void)P;
    return (struct shunti_work){1, G - 1, 0,  1, N - 1, 0}; }
/* clang-format on */

/* --- where an algorithm is possible --------------------------------------- */

static bool always(const struct shunt_comm *comm)
{
    (void)comm;
    return true;
}

static bool several_nodes(const struct shunt_comm *comm)
{
    return comm->nodes > 1;
}

static bool equal_nodes(const struct shunt_comm *comm)
{
    for (int node = 1; node < comm->nodes; node++)
        if (shunti_node_size(comm, node) != shunti_node_size(comm, 0))
            return false;
    return comm->nodes > 1;
}

static bool power_of_two(const struct shunt_comm *comm)
{
    return comm->nodes > 1 && !(comm->nodes & (comm->nodes - 1));
}

static const struct shunti_possible
    anywhere = {always, NULL},
    between_nodes = {several_nodes, "between nodes"},
    between_equal_nodes = {equal_nodes, "between nodes of equal size"},
    between_2_4_8_nodes = {power_of_two, "between 2, 4, 8, ... nodes"},
    mapped = {shunti_notes_may_lack, "on one node whose memory is mapped"};

/* --- for which sizes it suits --------------------------------------------- */

/* A star suits a barrier with more ranks than CPUs. comm->oversubscribed is not
 * used, because it may be set on one rank only. */
static struct shunti_sizes crowded(const struct shunt_comm *comm)
{
    return comm->links.crowd > 1 ? SHUNTI_ALL_SIZES : SHUNTI_NO_SIZE;
}

/* A rank may have to wait for a CPU in each round, which the link's latency does
 * not include. With more ranks than CPUs, a barrier took 1.15 times as long in
 * rounds as in one step between four nodes, 1.09 times between six, and 0.71
 * between eight. An allgather and an allreduce took 0.8 between eight. */
static struct shunti_sizes in_rounds(const struct shunt_comm *comm)
{
    return comm->nodes >= 8 ? SHUNTI_ALL_SIZES : SHUNTI_NO_SIZE;
}

/* Doubling sends the fewest bytes of all algorithms with few messages. So from
 * 4 KiB on it also suits fewer nodes: between four it took 0.66 of the time of
 * the next best for 16 KiB. */
static struct shunti_sizes doubled(const struct shunt_comm *comm)
{
    return comm->nodes >= 8   ? SHUNTI_ALL_SIZES
           : comm->nodes >= 4 ? (struct shunti_sizes){4096, SIZE_MAX}
                              : SHUNTI_NO_SIZE;
}

/* SHUNT_ALLREDUCE_DIRECT decides between the flat algorithms of allreduce. */
static struct shunti_sizes up_to_direct(const struct shunt_comm *comm)
{
    const size_t direct = shunti_coll_state(comm)->allreduce_direct;

    return (struct shunti_sizes){0, comm->nranks == 1 ? SIZE_MAX : direct};
}

static struct shunti_sizes above_direct(const struct shunt_comm *comm)
{
    const size_t direct = up_to_direct(comm).high;

    return direct == SIZE_MAX ? SHUNTI_NO_SIZE
                              : (struct shunti_sizes){direct + 1, SIZE_MAX};
}

/* Between nodes of one rank, shards and segments send the same, so their costs
 * are equal, and the first row is chosen: shards. But segments begin to send a
 * result while they receive, which pays for large vectors. For 1 MiB segments
 * took 0.78 to 0.92 of the time of shards, for 32 KiB 1.1 to 1.5 times as
 * long. */
static struct shunti_sizes in_shards(const struct shunt_comm *comm)
{
    return comm->nodes == comm->nranks
               ? (struct shunti_sizes){0, ((size_t)128 << 10) - 1}
               : SHUNTI_ALL_SIZES;
}

/* Two levels suit blocks that relays carry. Larger blocks are sent without
 * relays, so two levels would only add messages. */
static struct shunti_sizes relayed(const struct shunt_comm *comm)
{
    return (struct shunti_sizes){0, shunti_carry_limit(comm)};
}

/* --- the table ------------------------------------------------------------ */

/* If several rows have the least cost, the first one is chosen. On one node,
 * where all costs are 0, that is the first row that is possible and suits. */
/* clang-format off */
static const struct shunti_row rows[] = {
    {SHUNTI_KIND_BARRIER, SHUNTI_STAR, "star", &mapped, crowded, NULL},
    {SHUNTI_KIND_BARRIER, SHUNTI_FLAT, "flat", &anywhere, NULL, barrier_flat},
    {SHUNTI_KIND_BARRIER, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", &between_nodes, NULL, barrier_two},
    {SHUNTI_KIND_BARRIER, SHUNTI_DISSEMINATION, "dissemination", &between_nodes, in_rounds, barrier_dissemination},
    {SHUNTI_KIND_BROADCAST, SHUNTI_STAR, "star", &mapped, NULL, NULL},
    {SHUNTI_KIND_BROADCAST, SHUNTI_FLAT, "flat", &anywhere, NULL, broadcast_flat},
    {SHUNTI_KIND_BROADCAST, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", &between_nodes, NULL, broadcast_two},
    {SHUNTI_KIND_ALLGATHER, SHUNTI_FLAT, "flat", &anywhere, NULL, allgather_flat},
    {SHUNTI_KIND_ALLGATHER, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", &between_nodes, NULL, allgather_two},
    {SHUNTI_KIND_ALLGATHER, SHUNTI_DISSEMINATION, "dissemination", &between_equal_nodes, in_rounds, allgather_dissemination},
    {SHUNTI_KIND_ALLGATHERV, SHUNTI_FLAT, "flat", &anywhere, NULL, allgather_flat},
    {SHUNTI_KIND_ALLGATHERV, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", &between_nodes, NULL, allgather_two},
    {SHUNTI_KIND_ALLGATHERV, SHUNTI_DISSEMINATION, "dissemination", &between_equal_nodes, in_rounds, allgather_dissemination},
    {SHUNTI_KIND_REDUCE_SCATTER, SHUNTI_FLAT, "flat", &anywhere, NULL, reduce_scatter_flat},
    {SHUNTI_KIND_REDUCE_SCATTER, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", &between_nodes, NULL, reduce_scatter_two},
    {SHUNTI_KIND_REDUCE_SCATTERV, SHUNTI_FLAT, "flat", &anywhere, NULL, reduce_scatter_flat},
    {SHUNTI_KIND_REDUCE_SCATTERV, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", &between_nodes, NULL, reduce_scatter_two},
    {SHUNTI_KIND_ALLREDUCE, SHUNTI_ALLREDUCE_SHARDS, "two_level_shards", &between_nodes, in_shards, allreduce_shards},
    {SHUNTI_KIND_ALLREDUCE, SHUNTI_ALLREDUCE_DIRECT, "flat_direct", &anywhere, up_to_direct, allreduce_direct},
    {SHUNTI_KIND_ALLREDUCE, SHUNTI_ALLREDUCE_SEGMENTS, "flat_segments", &anywhere, above_direct, allreduce_segments},
    {SHUNTI_KIND_ALLREDUCE, SHUNTI_ALLREDUCE_WHOLE, "two_level_whole", &between_nodes, NULL, allreduce_whole},
    {SHUNTI_KIND_ALLREDUCE, SHUNTI_ALLREDUCE_LANES, "two_level_lanes", &between_nodes, NULL, allreduce_lanes},
    {SHUNTI_KIND_ALLREDUCE, SHUNTI_DISSEMINATION, "dissemination", &between_nodes, in_rounds, allreduce_dissemination},
    {SHUNTI_KIND_ALLREDUCE, SHUNTI_ALLREDUCE_DOUBLING, "doubling", &between_2_4_8_nodes, doubled, allreduce_doubling},
    {SHUNTI_KIND_ALLTOALL, SHUNTI_FLAT, "flat", &anywhere, NULL, alltoall_flat},
    {SHUNTI_KIND_ALLTOALL, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", &between_nodes, relayed, alltoall_two},
    {SHUNTI_KIND_ALLTOALLV, SHUNTI_FLAT, "flat", &anywhere, NULL, alltoall_flat},
    {SHUNTI_KIND_ALLTOALLV, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", &between_nodes, NULL, alltoall_two},
};
/* clang-format on */

const struct shunti_row *shunti_row_at(size_t i)
{
    return i < sizeof(rows) / sizeof(*rows) ? &rows[i] : NULL;
}

const char *shunti_row_member(const struct shunti_row *row)
{
    static const char *const families[] = {"flat_", "two_level_"};

    for (size_t i = 0; i < sizeof(families) / sizeof(*families); i++)
        if (!strncmp(row->name, families[i], strlen(families[i])))
            return row->name + strlen(families[i]);
    return NULL;
}

bool shunti_kind_is_sized(unsigned kind)
{
    return kind != SHUNTI_KIND_BARRIER && kind != SHUNTI_KIND_ALLTOALLV;
}

/* --- costs ---------------------------------------------------------------- */

struct shunti_shape shunti_shape_of(const struct shunt_comm *comm)
{
    struct shunti_shape shape = {comm->nranks, comm->nodes, 0, comm->links};

    if (comm->nodes == 1) { /* also if comm was destroyed: registry.c */
        shape.most = comm->nranks;
        return shape;
    }
    for (int node = 0; node < comm->nodes; node++)
        if (shunti_node_size(comm, node) > shape.most)
            shape.most = shunti_node_size(comm, node);
    return shape;
}

double shunti_row_cost(const struct shunti_row *row,
                       const struct shunti_shape *s, size_t bytes)
{
    const struct shunti_link *in = &s->links.inside, *across = &s->links.across;
    const double handling = 2 * s->links.crowd;
    struct shunti_work w;

    if (s->nodes == 1)
        return 0;
    w = row->work(s->ranks, s->nodes, s->most, s->ranks - s->most,
                  (double)bytes);
    return w.steps_in * in->latency + handling * w.messages_in * in->gap +
           w.bytes_in * in->byte + w.steps_across * across->latency +
           handling * w.messages_across * across->gap +
           w.bytes_across * across->byte;
}
