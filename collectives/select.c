// SPDX-License-Identifier: Apache-2.0
/*
 * The choice between algorithms; see select.h.
 *
 * On one node every algorithm is flat, or a star (star.h). Between nodes, the
 * algorithm with the least cost by the table below is chosen. The link figures
 * (src/comm/link.h) give the cost of messages and bytes, in the form of LogGP
 * (Alexandrov and others, 1995). A message of b bytes takes latency + gap + b *
 * byte. Each further message adds gap + b * byte. A rank receives as many
 * messages as it sends. Ranks that share a CPU handle their messages one after
 * the other. The ranks of a node share one link to other nodes. In two levels,
 * bytes received inside a node are copied twice.
 *
 * The protocol of a block (inline, window, raw read, stream) is the sender's
 * choice alone, and is stated in its control message: src/op/note.h,
 * SHUNT_EAGER and SHUNT_READ_MIN.
 */
#include "collectives/select.h"
#include "src/base/kind.h"

#include <stdatomic.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/inline.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/host/launchers.h"
#include "src/op/note.h"
#include "src/wire/nodes.h"

/* See shunti_select_carry(). */
#define MESSAGES_A_BLOCK 5
#define CARRY_MOST ((size_t)28 << 10)
#define CARRY_LEAST_MOST ((size_t)16 << 10)

/* The critical path of an algorithm: steps that wait for each other, messages
 * of one rank, bytes of one rank inside a node and of one node between
 * nodes. */
struct work {
    double steps_in, messages_in, bytes_in;
    double steps_across, messages_across, bytes_across;
};

/* P ranks, N nodes, G ranks of the largest node, S bytes; far: ranks of other
 * nodes (P - G). */
#define WORK(name) \
    static struct work name(double P, double N, double G, double far, double S)

/* clang-format off */
WORK(barrier_flat)  { (void)S, (void)N, (void)P;
    return (struct work){0, G - 1, 0,  1, far, 0}; }
WORK(barrier_two)   { (void)S, (void)far, (void)P;
    return (struct work){1, G - 1, 0,  1, N - 1, 0}; }

WORK(broadcast_flat) { (void)N, (void)P;
    return (struct work){0, G - 1, G * S,  1, far, far * S}; }
WORK(broadcast_two)  { (void)far, (void)P;
    return (struct work){1, G - 1, G * S,  1, N - 1, (N - 1) * S}; }

/* S: bytes of all blocks; far * S / P of them are of other nodes. */
WORK(allgather_flat) { (void)N;
    return (struct work){0, G - 1, S,  1, far, G * far * S / P}; }
WORK(allgather_two)  {
    return (struct work){1, G - 1, 2 * S,  1, N - 1, far * S / P}; }

WORK(reduce_scatter_flat) { (void)N;
    return (struct work){0, G - 1, S,  1, far, G * far * S / P}; }
WORK(reduce_scatter_two)  {
    return (struct work){1, G - 1, 2 * S,  1, N - 1, far * S / P}; }

WORK(allreduce_direct)   { (void)N, (void)P;
    return (struct work){0, G - 1, P * S,  1, far, G * far * S}; }
WORK(allreduce_segments) { (void)N;
    return (struct work){0, 2 * (G - 1), 2 * S,  2, 2 * far,
                         2 * G * far * S / P}; }
WORK(allreduce_whole)    { (void)far, (void)P;
    return (struct work){1, G - 1, G * S,  1, N - 1, G * (N - 1) * S}; }
WORK(allreduce_lanes)    { (void)far, (void)P;
    return (struct work){2, 2 * (G - 1), 2 * S,  1, N - 1, (N - 1) * S}; }

/* How a block is sent depends on its size (shunti_select_carry()): only
 * messages are counted. */
WORK(alltoall_flat) { (void)S, (void)N, (void)P;
    return (struct work){0, G - 1, 0,  1, far, 0}; }
WORK(alltoall_two)  { (void)S, (void)far, (void)P;
    return (struct work){1, G - 1, 0,  1, N - 1, 0}; }

/* All that a choice depends on besides the bytes. */
struct shape {
    int ranks, nodes, most; /* most: ranks of the largest node */
    struct shunti_links links;
};

/* The table. Of several rows with the least cost, the first is chosen. */
static const struct row {
    unsigned kind;
    enum shunti_algorithm algorithm;
    const char *name; /* flat..., two_level...: for SHUNT_ALGORITHM */
    struct work (*work)(double P, double N, double G, double far, double S);
} rows[] = {
    {SHUNTI_KIND_BARRIER, SHUNTI_FLAT, "flat", barrier_flat},
    {SHUNTI_KIND_BARRIER, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", barrier_two},
    {SHUNTI_KIND_BROADCAST, SHUNTI_FLAT, "flat", broadcast_flat},
    {SHUNTI_KIND_BROADCAST, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", broadcast_two},
    {SHUNTI_KIND_ALLGATHER, SHUNTI_FLAT, "flat", allgather_flat},
    {SHUNTI_KIND_ALLGATHER, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", allgather_two},
    {SHUNTI_KIND_ALLGATHERV, SHUNTI_FLAT, "flat", allgather_flat},
    {SHUNTI_KIND_ALLGATHERV, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", allgather_two},
    {SHUNTI_KIND_REDUCE_SCATTER, SHUNTI_FLAT, "flat", reduce_scatter_flat},
    {SHUNTI_KIND_REDUCE_SCATTER, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", reduce_scatter_two},
    {SHUNTI_KIND_REDUCE_SCATTERV, SHUNTI_FLAT, "flat", reduce_scatter_flat},
    {SHUNTI_KIND_REDUCE_SCATTERV, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", reduce_scatter_two},
    {SHUNTI_KIND_ALLREDUCE, SHUNTI_ALLREDUCE_DIRECT, "flat_direct", allreduce_direct},
    {SHUNTI_KIND_ALLREDUCE, SHUNTI_ALLREDUCE_SEGMENTS, "flat_segments", allreduce_segments},
    {SHUNTI_KIND_ALLREDUCE, SHUNTI_ALLREDUCE_WHOLE, "two_level_whole", allreduce_whole},
    {SHUNTI_KIND_ALLREDUCE, SHUNTI_ALLREDUCE_LANES, "two_level_lanes", allreduce_lanes},
    {SHUNTI_KIND_ALLTOALL, SHUNTI_FLAT, "flat", alltoall_flat},
    {SHUNTI_KIND_ALLTOALL, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", alltoall_two},
    {SHUNTI_KIND_ALLTOALLV, SHUNTI_FLAT, "flat", alltoall_flat},
    {SHUNTI_KIND_ALLTOALLV, SHUNTI_TWO_LEVEL_ALGORITHM, "two_level", alltoall_two},
};
/* clang-format on */
enum { ROWS = sizeof(rows) / sizeof(*rows) };

static struct shape shape_of(const struct shunt_comm *comm)
{
    struct shape shape = {comm->nranks, comm->nodes, 0, comm->links};

    for (int node = 0; node < comm->nodes; node++)
        if (shunti_node_size(comm, node) > shape.most)
            shape.most = shunti_node_size(comm, node);
    return shape;
}

/* Seconds. */
static double cost(const struct row *row, const struct shape *s, size_t bytes)
{
    const struct shunti_link *in = &s->links.inside, *across = &s->links.across;
    const double handling = 2 * s->links.crowd;
    struct work w = row->work(s->ranks, s->nodes, s->most, s->ranks - s->most,
                              (double)bytes);

    return w.steps_in * in->latency + handling * w.messages_in * in->gap +
           w.bytes_in * in->byte + w.steps_across * across->latency +
           handling * w.messages_across * across->gap +
           w.bytes_across * across->byte;
}

/* --- the user's choice ---------------------------------------------------- */

enum match { NOT, FAMILY, EXACTLY };

static bool word_is(const char *at, size_t len, const char *word)
{
    return strlen(word) == len && !memcmp(at, word, len);
}

/* Does an entry of SHUNT_ALGORITHM ("two_level", "allgather=flat") match this
 * row? The name of a family is a prefix of its members' names: "flat" matches
 * "flat_direct". */
static enum match matches(const char *entry, size_t len, const struct row *row)
{
    const char *sign = memchr(entry, '=', len);
    const char *name = sign ? sign + 1 : entry;
    size_t n = len - (size_t)(name - entry);

    if (sign &&
        !word_is(entry, (size_t)(sign - entry), shunti_kind_name(row->kind)))
        return NOT;
    if (word_is(name, n, row->name))
        return EXACTLY;
    return n && !strncmp(row->name, name, n) && row->name[n] == '_' ? FAMILY
                                                                    : NOT;
}

/* Is the entry "auto", or "KIND=auto" for this kind? Then entries before it are
 * ignored. */
static bool is_auto(const char *entry, size_t len, unsigned kind)
{
    const char *sign = memchr(entry, '=', len);
    const char *name = sign ? sign + 1 : entry;

    return word_is(name, len - (size_t)(name - entry), "auto") &&
           (!sign || word_is(entry, (size_t)(sign - entry),
                             shunti_kind_name((uint8_t)kind)));
}

/* The last entry that matches a row of this kind; *len is 0 if there is
 * none. */
static const char *wanted(const char *text, unsigned kind, size_t *len)
{
    const char *found = text;

    *len = 0;
    while (*text) {
        size_t n = strcspn(text, ",");

        if (is_auto(text, n, kind))
            *len = 0;
        for (int i = 0; i < ROWS; i++) {
            if (rows[i].kind == kind && matches(text, n, &rows[i])) {
                found = text;
                *len = n;
            }
        }
        text += n;
        text += *text == ',';
    }
    return found;
}

static bool is_a_name(const char *entry, size_t len)
{
    for (int i = 0; i < ROWS; i++)
        if (matches(entry, len, &rows[i]) || is_auto(entry, len, rows[i].kind))
            return true;
    return false;
}

const char *shunti_select_unknown(const char *text, size_t *len)
{
    for (; *text; text += *text == ',') {
        *len = strcspn(text, ",");
        if (*len && !is_a_name(text, *len))
            return text;
        text += *len;
    }
    return NULL;
}

/* Warn of unknown names, once in a job: otherwise a misspelt algorithm would
 * silently not be used. */
SHUNTI_NOINLINE static void mind_names(const struct shunt_comm *comm)
{
    static atomic_flag minded = ATOMIC_FLAG_INIT;
    const char *text = comm->tune.algorithm;

    size_t n;

    if (!*text || !shunti_launch_speaks(comm->rank) ||
        atomic_flag_test_and_set_explicit(&minded, memory_order_relaxed))
        return;
    while ((text = shunti_select_unknown(text, &n))) {
        shunti_warn("select",
                    "SHUNT_ALGORITHM: '%.*s' is ignored, no algorithm has this "
                    "name; shunt-info --algorithms has them all",
                    (int)n, text);
        text += n;
    }
}

/* --- the choice ----------------------------------------------------------- */

static bool is_flat(const struct row *row)
{
    return !strncmp(row->name, "flat", 4);
}

/* SHUNT_ALLREDUCE_DIRECT decides between the flat algorithms of allreduce. */
static enum shunti_algorithm flat_allreduce(const struct shunt_comm *comm,
                                            size_t bytes)
{
    return comm->nranks == 1 || bytes <= comm->tune.allreduce_direct
               ? SHUNTI_ALLREDUCE_DIRECT
               : SHUNTI_ALLREDUCE_SEGMENTS;
}

/* Are blocks of this size sent without relays? Then two levels would only add
 * messages. */
static bool all_straight(const struct shunt_comm *comm, const struct row *row,
                         size_t bytes)
{
    return row->kind == SHUNTI_KIND_ALLTOALL && !is_flat(row) &&
           bytes > shunti_select_carry(comm);
}

static bool ruled_out(const struct shunt_comm *comm, const struct row *row,
                      size_t bytes)
{
    return row->kind == SHUNTI_KIND_ALLREDUCE && is_flat(row) &&
           row->algorithm != flat_allreduce(comm, bytes);
}

SHUNTI_NOINLINE static const struct row *choose(const struct shunt_comm *comm,
                                                const struct shape *shape,
                                                unsigned kind, size_t bytes)
{
    size_t len;
    const char *wish = wanted(comm->tune.algorithm, kind, &len);
    const struct row *best = NULL;
    double least = 0;

    for (int i = 0; i < ROWS; i++) {
        const struct row *row = &rows[i];
        enum match match = len ? matches(wish, len, row) : FAMILY;
        double seconds;

        if (row->kind != kind)
            continue;
        if (comm->nodes == 1) /* SHUNT_ALGORITHM applies between nodes only */
            match = is_flat(row) ? FAMILY : NOT;
        if (match == NOT || (match == FAMILY && ruled_out(comm, row, bytes)) ||
            (!len && all_straight(comm, row, bytes)))
            continue;
        seconds = cost(row, shape, bytes);
        if (!best || seconds < least) {
            best = row;
            least = seconds;
        }
    }
    return best;
}

static bool is_star(const struct shunt_comm *comm, unsigned kind)
{
    /* Not comm->oversubscribed, which may be set on one rank only. */
    return (kind == SHUNTI_KIND_BROADCAST ||
            (kind == SHUNTI_KIND_BARRIER && comm->links.crowd > 1)) &&
           shunti_notes_may_lack(comm);
}

enum shunti_algorithm shunti_select(const struct shunt_comm *comm,
                                    unsigned kind, size_t bytes)
{
    struct shape shape;

    if (is_star(comm, kind))
        return SHUNTI_STAR;
    if (comm->nodes == 1) /* same as the table, but faster */
        return kind == SHUNTI_KIND_ALLREDUCE ? flat_allreduce(comm, bytes)
                                             : SHUNTI_FLAT;
    mind_names(comm);
    shape = shape_of(comm);
    return choose(comm, &shape, kind, bytes)->algorithm;
}

/* The upper limit of shunti_select_carry(). */
static size_t most_carried(const struct shunt_comm *comm)
{
    const size_t entry = 16; /* bytes of an entry of alltoall_two_level.c */
    const size_t room =
        comm->control.layout.eager / (size_t)shape_of(comm).most;

    return room < CARRY_LEAST_MOST + entry ? CARRY_LEAST_MOST
           : room > CARRY_MOST + entry     ? CARRY_MOST
                                           : room - entry;
}

/*
 * A block that is sent directly costs one more message between nodes. A block
 * that is sent through a relay is copied twice more inside the node, and
 * meanwhile the link is idle. So a relay is used if the copies take less time
 * than the message, and if the link is not the bottleneck. Measured on links of
 * 1 and 10 Gbit/s, the link is the bottleneck if a block's bytes take longer on
 * it than MESSAGES_A_BLOCK messages (docs/lessons.md). A block of more than
 * CARRY_LEAST_MOST bytes uses a relay only if a node's blocks for one rank fit
 * into a control message, because more would have to be streamed.
 */
size_t shunti_select_carry(const struct shunt_comm *comm)
{
    const struct shunti_links *l = &comm->links;
    const double by_copies = l->across.gap / (2 * l->inside.byte);
    const double by_link = MESSAGES_A_BLOCK * l->across.gap / l->across.byte;
    const double bytes = by_copies < by_link ? by_copies : by_link;
    const size_t most = most_carried(comm);

    if (comm->tune.carry != SHUNTI_ENV_AUTO)
        return comm->tune.carry;
    return bytes < 1024 ? 1024 : bytes > (double)most ? most : (size_t)bytes;
}

/* --- printing ------------------------------------------------------------- */

static void print_link(FILE *out, const char *name,
                       const struct shunti_link *link)
{
    fprintf(out, "  %-12s latency %.1f us, a message more %.2f us, %.3g GB/s\n",
            name, link->latency * 1e6, link->gap * 1e6, 1e-9 / link->byte);
}

static void print_size(FILE *out, size_t bytes)
{
    if (bytes >= 1 << 20)
        fprintf(out, "%zum", bytes >> 20);
    else if (bytes >= 1 << 10)
        fprintf(out, "%zuk", bytes >> 10);
    else
        fprintf(out, "%zu", bytes);
}

/* Print "flat up to 4k, two_level": the choice for each power of two. */
static void print_kind(FILE *out, const struct shunt_comm *comm,
                       const struct shape *shape, unsigned kind)
{
    const size_t end = (size_t)256 << 20;
    const struct row *now = choose(comm, shape, kind, 0);

    fprintf(out, "  %-16s ", shunti_kind_name(kind));
    if (is_star(comm, kind)) {
        fprintf(out, "star\n");
        return;
    }
    for (size_t bytes = 64; bytes <= end; bytes *= 2) {
        const struct row *next = choose(comm, shape, kind, bytes);

        if (next == now)
            continue;
        fprintf(out, "%s up to ", now->name);
        print_size(out, bytes / 2);
        fprintf(out, ", ");
        now = next;
    }
    fprintf(out, "%s\n", now->name);
}

void shunti_select_table(const struct shunt_comm *comm, FILE *out)
{
    const struct shape shape = shape_of(comm);

    if (comm->nodes > 1) {
        mind_names(comm);
        print_link(out, "in a node", &comm->links.inside);
        print_link(out, "across", &comm->links.across);
        fprintf(out, "  %-12s %.1f\n", "ranks a CPU", comm->links.crowd);
    }
    for (int i = 0; i < ROWS; i++)
        if (i == 0 || rows[i].kind != rows[i - 1].kind)
            print_kind(out, comm, &shape, rows[i].kind);
    if (comm->nodes > 1) {
        fprintf(out, "  of alltoall, blocks are carried up to ");
        print_size(out, shunti_select_carry(comm));
        fprintf(out, "\n");
    }
}

void shunti_select_names(FILE *out)
{
    for (int i = 0; i < ROWS; i++) {
        if (i == 0 || rows[i].kind != rows[i - 1].kind)
            fprintf(out, "%s  %-16s", i ? "\n" : "",
                    shunti_kind_name(rows[i].kind));
        fprintf(out, " %s", rows[i].name);
    }
    fprintf(out, "\n");
}
