// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of test_messages.c. They count the messages from each rank to each
 * other. Rail peers are computed here again, from the definition: the rank of
 * the other node with the same local index, modulo the ranks of that node.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

enum { RANKS = 16 };

/* The relation of this rank to another one: PARTNER is a rail peer, STRANGER a
 * rank of another node that is not a rail peer. */
enum relation { ITSELF, MATE, PARTNER, STRANGER };

struct counts {
    enum relation relation[RANKS];
    bool feeds[RANKS]; /* this rank is the rail peer of that rank here */
    int size[RANKS];   /* of each node */
    struct shunt_peer_stats before[RANKS];
    struct shunt_comm_stats total;
};

static int find_relations(const struct rank *self, struct counts *c)
{
    int32_t local[RANKS], mine = shunt_comm_local_rank(self->comm);
    int *size = c->size;

    memset(c, 0, sizeof(*c));
    CHECK(self->size <= RANKS, "%d ranks", self->size);
    CHECK_OK(self->comm,
             shunt_allgather(self->comm, &mine, local, 1, SHUNT_I32));
    for (int r = 0; r < self->size; r++)
        size[shunt_comm_node(self->comm, r)]++;
    for (int r = 0; r < self->size; r++) {
        int here = shunt_comm_node(self->comm, self->rank);
        int there = shunt_comm_node(self->comm, r);

        c->relation[r] = r == self->rank                  ? ITSELF
                         : there == here                  ? MATE
                         : local[r] == mine % size[there] ? PARTNER
                         : mine == local[r] % size[here]  ? PARTNER
                                                          : STRANGER;
        c->feeds[r] = there != here && mine == local[r] % size[here];
    }
    return 0;
}

static int begin(const struct rank *self, struct counts *c)
{
    for (int r = 0; r < self->size; r++)
        CHECK_OK(self->comm,
                 shunt_comm_get_peer_stats(self->comm, r, &c->before[r],
                                           sizeof(c->before[r])));
    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &c->total, sizeof(c->total)));
    return 0;
}

/* Count the messages and the bytes put to `rank` since begin(). */
static int since(const struct rank *self, const struct counts *c, int rank,
                 struct shunt_peer_stats *now)
{
    CHECK_OK(self->comm,
             shunt_comm_get_peer_stats(self->comm, rank, now, sizeof(*now)));
    now->messages -= c->before[rank].messages;
    now->bytes_put -= c->before[rank].bytes_put;
    return 0;
}

/* Each rank was sent want[relation] messages, and the totals are their sum. */
static int check(const struct rank *self, const struct counts *c,
                 const char *call, const unsigned *want)
{
    struct shunt_comm_stats total;
    uint64_t all = 0, remote = 0;

    for (int r = 0; r < self->size; r++) {
        struct shunt_peer_stats now;
        bool far = c->relation[r] >= PARTNER;

        CHECK_RUN(since(self, c, r, &now));
        CHECK(now.messages == want[c->relation[r]],
              "%s: %d messages to rank %d, which is %d, not %u", call,
              (int)now.messages, r, c->relation[r], want[c->relation[r]]);
        /* Data in mapped memory is not put. */
        CHECK((now.bytes_put > 0) == (far && now.messages > 0),
              "%s: %d bytes were put to rank %d", call, (int)now.bytes_put, r);
        all += now.messages;
        remote += far ? now.messages : 0;
    }
    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &total, sizeof(total)));
    CHECK(total.messages_sent - c->total.messages_sent == all &&
              total.messages_remote - c->total.messages_remote == remote,
          "%s: %d messages, %d remote; not %d and %d", call,
          (int)(total.messages_sent - c->total.messages_sent),
          (int)(total.messages_remote - c->total.messages_remote), (int)all,
          (int)remote);
    return 0;
}

#define COUNTED(call)                            \
    do {                                         \
        CHECK_RUN(begin(self, &c));              \
        CHECK_OK(comm, call);                    \
        CHECK_RUN(check(self, &c, #call, want)); \
    } while (0)

/* A call without elements sends the same messages as a call of one element,
 * because a rank that made another call must get an error. */
static int no_elements(const struct rank *self, struct counts *counts,
                       const unsigned *want)
{
    struct shunt_comm *comm = self->comm;
    int64_t one[RANKS] = {0}, all[RANKS];
    size_t none[RANKS] = {0}, to[RANKS], from[RANKS];
    struct counts c = *counts;

    COUNTED(shunt_broadcast(comm, NULL, 0, SHUNT_I64, 0));
    COUNTED(shunt_allgather(comm, NULL, NULL, 0, SHUNT_I64));
    COUNTED(shunt_allgatherv(comm, NULL, 0, NULL, none, NULL, SHUNT_I64));
    COUNTED(shunt_reduce_scatter(comm, NULL, NULL, 0, SHUNT_I64, SHUNT_SUM));
    COUNTED(shunt_allreduce(comm, NULL, NULL, 0, SHUNT_I64, SHUNT_SUM));
    COUNTED(shunt_alltoall(comm, NULL, NULL, 0, SHUNT_I64));
    COUNTED(
        shunt_alltoallv(comm, NULL, none, NULL, NULL, none, NULL, SHUNT_I64));
    /* One element from each rank to the later ranks, or only from the last
     * rank. */
    for (int r = 0; r < self->size; r++) {
        to[r] = self->rank < r;
        from[r] = r < self->rank;
        none[r] = r == self->size - 1;
    }
    COUNTED(shunt_alltoallv(comm, one, to, NULL, all, from, NULL, SHUNT_I64));
    COUNTED(shunt_allgatherv(comm, one, none[self->rank], all, none, NULL,
                             SHUNT_I64));
    return 0;
}

/* In a small call, a rank sends one message to each rank that it communicates
 * with. argv[0]: "flat", to all ranks; "two_level", to local peers and rail
 * peers. */
static int collectives(const struct rank *self)
{
    const bool flat = self->argc && !strcmp(self->argv[0], "flat");
    const unsigned want[] = {
        [ITSELF] = 0, [MATE] = 1, [PARTNER] = 1, [STRANGER] = flat};
    struct shunt_comm *comm = self->comm;
    int64_t one[RANKS] = {0}, all[RANKS];
    size_t ones[RANKS];
    struct counts c;

    for (int r = 0; r < RANKS; r++)
        ones[r] = 1;
    CHECK_RUN(find_relations(self, &c));
    /* Repeat them all, because earlier calls must make no difference. */
    for (int i = 0; i < 8; i++) {
        COUNTED(shunt_barrier(comm));
        COUNTED(shunt_broadcast(comm, one, 1, SHUNT_I64, 1));
        COUNTED(shunt_allgather(comm, one, all, 1, SHUNT_I64));
        COUNTED(shunt_allgatherv(comm, one, 1, all, ones, NULL, SHUNT_I64));
        COUNTED(shunt_reduce_scatter(comm, one, all, 1, SHUNT_I64, SHUNT_SUM));
        COUNTED(shunt_allreduce(comm, one, all, 1, SHUNT_I64, SHUNT_SUM));
        COUNTED(shunt_alltoall(comm, one, all, 1, SHUNT_I64));
        COUNTED(
            shunt_alltoallv(comm, one, ones, NULL, all, ones, NULL, SHUNT_I64));
        CHECK_RUN(no_elements(self, &c, want));
    }
    return 0;
}

/* Between nodes of equal size, an allreduce sends this many messages and bytes
 * from a rank to other nodes, for a vector whose shards are equal. argv[1]:
 * "shards", a shard of inputs and one of results to each other node, or "lanes",
 * the segment once. Inputs are in the control messages. */
static int allreduce_bytes(const struct rank *self)
{
    enum { LINE = 16 }; /* elements in a cache line */
    struct shunt_comm *comm = self->comm;
    const uint64_t nodes = (uint64_t)shunt_comm_nodes(comm);
    const uint64_t lanes = (uint64_t)self->size / nodes;
    const size_t shard = 7 * LINE, count = shard * (size_t)(lanes * nodes);
    const bool shards = !strcmp(self->argv[1], "shards");
    const uint64_t want = shards ? 2 * (nodes - 1) * shard * sizeof(float)
                                 : (nodes - 1) * nodes * shard * sizeof(float);
    float *in = calloc(count, sizeof(*in)), *out = calloc(count, sizeof(*out));
    struct shunt_comm_stats before, after;

    CHECK(in && out, "memory");
    CHECK_OK(comm, shunt_comm_get_stats(comm, &before, sizeof(before)));
    CHECK_OK(comm, shunt_allreduce(comm, in, out, count, SHUNT_F32, SHUNT_SUM));
    CHECK_OK(comm, shunt_comm_get_stats(comm, &after, sizeof(after)));
    CHECK(after.bytes_remote - before.bytes_remote == want,
          "%d bytes to other nodes, not %d",
          (int)(after.bytes_remote - before.bytes_remote), (int)want);
    CHECK(after.messages_remote - before.messages_remote ==
              (shards ? 2 : 1) * (nodes - 1),
          "%d messages to other nodes",
          (int)(after.messages_remote - before.messages_remote));
    free(in);
    free(out);
    return 0;
}

/* --- rounds --------------------------------------------------------------- */

/* Calls of one element, 8 bytes, that ranks make in rounds. */
static int64_t block, blocks[RANKS];
static const size_t block_counts[RANKS] = {1, 1, 1, 1, 1, 1, 1, 1,
                                           1, 1, 1, 1, 1, 1, 1, 1};

static enum shunt_status barrier(struct shunt_comm *comm)
{
    return shunt_barrier(comm);
}

static enum shunt_status allgather(struct shunt_comm *comm)
{
    return shunt_allgather(comm, &block, blocks, 1, SHUNT_I64);
}

static enum shunt_status allgatherv(struct shunt_comm *comm)
{
    return shunt_allgatherv(comm, &block, 1, blocks, block_counts, NULL,
                            SHUNT_I64);
}

static enum shunt_status allreduce(struct shunt_comm *comm)
{
    return shunt_allreduce(comm, &block, blocks, 1, SHUNT_I64, SHUNT_SUM);
}

static const struct in_rounds {
    const char *name;
    enum shunt_status (*call)(struct shunt_comm *comm);
    bool equal_nodes; /* only between nodes of equal size */
    bool pairs;       /* in rounds in pairs, whose messages do not grow */
    int bytes;        /* sent of each node to each other node, by a rank that is
                       * the only rail peer there */
} in_rounds[] = {{"barrier", barrier, false, false, 0},
                 {"allgather", allgather, true, false, 8},
                 {"allgatherv", allgatherv, true, false, 8},
                 {"allreduce", allreduce, false, false, 8}},
  in_pairs = {"allreduce", allreduce, false, true, 8};

static bool has_equal_nodes(const struct rank *self, const struct counts *c)
{
    for (int r = 0; r < self->size; r++)
        if (c->size[shunt_comm_node(self->comm, r)] != c->size[0])
            return false;
    return true;
}

static bool is_power(int n)
{
    return n && !(n & (n - 1));
}

/* Each rank sends one message to each rank of its node, and to its rail peers on
 * the nodes that are 1, 2, 4, ... behind its own. All other ranks get none. In
 * the round of distance d, the message to a rank whose rail peer this rank is
 * carries the data of d nodes, or of the rest. In pairs the rail peers are on
 * the nodes whose number differs in one bit, and each message carries one
 * sum. */
static int check_rounds(const struct rank *self, struct counts *c,
                        const struct in_rounds *in, int calls)
{
    struct shunt_comm *comm = self->comm;
    const int nodes = shunt_comm_nodes(comm);
    const int here = shunt_comm_node(comm, self->rank);
    struct shunt_comm_stats total;
    int bytes = 0, rounds;

    CHECK_RUN(begin(self, c));
    for (int i = 0; i < calls; i++)
        CHECK_OK(comm, in->call(comm));
    for (int r = 0; r < self->size; r++) {
        const int behind = (shunt_comm_node(comm, r) - here + nodes) % nodes;
        const bool in_a_round =
            is_power(in->pairs ? here ^ shunt_comm_node(comm, r) : behind);
        const bool sends =
            c->relation[r] == MATE || (c->relation[r] == PARTNER && in_a_round);
        const int carried = in->pairs                 ? 1
                            : behind < nodes - behind ? behind
                                                      : nodes - behind;
        struct shunt_peer_stats now;

        if (sends && behind && c->feeds[r])
            bytes += in->bytes * carried;
        CHECK_RUN(since(self, c, r, &now));
        CHECK((int)now.messages == sends * calls,
              "%s: %d messages to rank %d, not %d", in->name, (int)now.messages,
              r, sends * calls);
        CHECK(sends || !now.bytes_put, "%d bytes were put to rank %d",
              (int)now.bytes_put, r);
    }
    CHECK_OK(comm, shunt_comm_get_stats(comm, &total, sizeof(total)));
    CHECK((int)(total.bytes_remote - c->total.bytes_remote) == bytes * calls,
          "%s: %d bytes to other nodes, not %d", in->name,
          (int)(total.bytes_remote - c->total.bytes_remote), bytes * calls);
    for (rounds = 0; 1 << rounds < nodes; rounds++)
        ;
    CHECK(!has_equal_nodes(self, c) ||
              bytes == (in->pairs ? rounds : nodes - 1) * in->bytes,
          "%s: %d bytes", in->name, bytes);
    return 0;
}

/* argv[1]: 200 calls of this name; none: 20 of each. */
static int dissemination(const struct rank *self)
{
    const char *name = self->argc > 1 ? self->argv[1] : NULL;
    struct counts c;

    CHECK_RUN(find_relations(self, &c));
    for (size_t i = 0; i < sizeof(in_rounds) / sizeof(*in_rounds); i++)
        if (name ? !strcmp(name, in_rounds[i].name)
                 : !in_rounds[i].equal_nodes || has_equal_nodes(self, &c))
            CHECK_RUN(check_rounds(self, &c, &in_rounds[i], name ? 200 : 20));
    return 0;
}

static int doubling(const struct rank *self)
{
    struct counts c;

    CHECK_RUN(find_relations(self, &c));
    return check_rounds(self, &c, &in_pairs, 20);
}

/* In two levels, between nodes of one size, each rank sends nodes - 1 messages
 * to other nodes. */
static int one_to_each_node(const struct rank *self)
{
    const uint64_t nodes = (uint64_t)shunt_comm_nodes(self->comm);
    int64_t one[RANKS] = {0}, all[RANKS];
    struct shunt_comm_stats before, after;

    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &before, sizeof(before)));
    CHECK_OK(self->comm, shunt_alltoall(self->comm, one, all, 1, SHUNT_I64));
    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &after, sizeof(after)));
    CHECK(after.messages_remote - before.messages_remote == nodes - 1,
          "%d messages leave this node for %d others",
          (int)(after.messages_remote - before.messages_remote),
          (int)nodes - 1);
    return 0;
}

/* Dispatch, combine, and their backward passes send nothing to a rank that is
 * neither local peer nor rail peer. Each turn sends the same number of
 * messages. */
static int exchange(const struct rank *self)
{
    enum { HIDDEN = 300, EXPERTS = 16, TOPK = 4, TOKENS = 100, TURNS = 3 };
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    int32_t *idx = calloc(TOKENS * TOPK, sizeof(*idx));
    float *weight = calloc(TOKENS * TOPK, sizeof(*weight));
    float *x = calloc(TOKENS * HIDDEN, sizeof(*x));
    struct shunt_moe_rows rows;
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    uint64_t first[RANKS] = {0};
    void *buffer[4];

    CHECK(idx && weight && x, "memory");
    for (int i = 0; i < TOKENS * TOPK; i++)
        idx[i] = (i * 7 + i / 5 + self->rank) % EXPERTS;
    config.hidden = HIDDEN;
    config.dtype = SHUNT_F32;
    config.experts = EXPERTS;
    config.topk = TOPK;
    config.max_tokens = TOKENS;
    config.weights = SHUNT_MOE_APPLY_WEIGHTS;
    config.mode = SHUNT_MOE_TWO_LEVEL;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &config, &moe));
    CHECK_OK(self->comm,
             shunt_moe_plan_create(moe, idx, weight, TOKENS, &plan));
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    for (int i = 0; i < 4; i++)
        buffer[i] = shunt_moe_buffer(plan, (enum shunt_moe_buffer)i);
    for (int turn = 0; turn < TURNS; turn++) {
        struct counts c;

        CHECK_RUN(find_relations(self, &c));
        CHECK_RUN(begin(self, &c));
        CHECK_OK(self->comm,
                 shunt_moe_dispatch(plan, x, buffer[0], rows.total));
        CHECK_OK(self->comm, shunt_moe_combine(plan, buffer[1], NULL, x));
        CHECK_OK(self->comm,
                 shunt_moe_combine_backward(plan, x, buffer[1], buffer[2],
                                            rows.total, weight));
        CHECK_OK(self->comm, shunt_moe_dispatch_backward(plan, buffer[3], x));
        for (int r = 0; r < self->size; r++) {
            struct shunt_peer_stats now;

            CHECK_RUN(since(self, &c, r, &now));
            CHECK(c.relation[r] != STRANGER || !now.messages,
                  "%d messages to rank %d", (int)now.messages, r);
            /* Each of the four calls sends a rail peer at least the places of
             * rows. */
            CHECK(c.relation[r] != PARTNER ||
                      (now.messages >= 4 && now.bytes_put > 0),
                  "%d messages to rank %d", (int)now.messages, r);
            CHECK(turn == 0 || now.messages == first[r],
                  "%d messages to rank %d, and once %d", (int)now.messages, r,
                  (int)first[r]);
            first[r] = now.messages;
        }
    }
    shunt_moe_plan_destroy(plan);
    shunt_moe_destroy(moe);
    free(idx);
    free(weight);
    free(x);
    return 0;
}

static int bad_arguments(const struct rank *self)
{
    struct shunt_peer_stats stats = {7, 7};

    CHECK_STATUS(NULL,
                 shunt_comm_get_peer_stats(NULL, 0, &stats, sizeof(stats)),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(NULL,
                 shunt_comm_get_peer_stats(self->comm, 0, NULL, sizeof(stats)),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(NULL,
                 shunt_comm_get_peer_stats(self->comm, self->size, &stats,
                                           sizeof(stats)),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(
        NULL, shunt_comm_get_peer_stats(self->comm, -1, &stats, sizeof(stats)),
        SHUNT_ERR_INVALID);
    CHECK_OK(NULL, shunt_comm_get_peer_stats(self->comm, self->rank, &stats,
                                             sizeof(stats.messages)));
    CHECK(stats.messages == 0 && stats.bytes_put == 7, "%d, %d",
          (int)stats.messages, (int)stats.bytes_put);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "collectives", .run = collectives, .no_threads = true},
    {.name = "doubling", .run = doubling, .no_threads = true},
    {.name = "allreduce_bytes", .run = allreduce_bytes, .no_threads = true},
    {.name = "one_to_each_node", .run = one_to_each_node, .no_threads = true},
    {.name = "dissemination", .run = dissemination, .no_threads = true},
    {.name = "exchange", .run = exchange},
    {.name = "bad_arguments", .run = bad_arguments},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
