// SPDX-License-Identifier: Apache-2.0
/*
 * Compares the schedules of scaling/ with the library. For every rank, the
 * library predicts and counts bytes to other nodes. Both must be exactly the
 * bytes that the schedule of the same routing sends.
 *
 * Nodes are virtual (test_library.c).
 */

#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

#include "perf/base/routing.h"
#include "perf/sim/schedule.h"
#include "tests/harness/rank_main.h"

enum { HIDDEN = 200 };

static void topology_of(const struct rank *self, struct scaling_topology *t)
{
    int nodes = shunt_comm_nodes(self->comm);
    int *sizes = scaling_alloc((size_t)nodes * sizeof(*sizes));

    for (int r = 0; r < self->size; r++)
        sizes[shunt_comm_node(self->comm, r)]++;
    scaling_topology_init(t, nodes, sizes);
    free(sizes);
}

static uint64_t bytes_remote(const struct rank *self)
{
    struct shunt_comm_stats stats = {0};

    if (shunt_comm_get_stats(self->comm, &stats, sizeof(stats)))
        return UINT64_MAX;
    return stats.bytes_remote;
}

/* --- exchanges of tokens ----------------------------------------------------
 */

struct experiment {
    enum scaling_mode ours;
    enum shunt_moe_mode theirs;
    bool fp8, narrow;
    enum perf_skew skew;
    double arg;
    int experts, topk;
    size_t tokens;
};

static const struct experiment experiments[] = {
    {SCALING_NODES, SHUNT_MOE_TWO_LEVEL, 0, 0, PERF_SKEW_UNIFORM, 0, 16, 4, 50},
    {SCALING_NODES, SHUNT_MOE_TWO_LEVEL, 1, 1, PERF_SKEW_UNIFORM, 0, 24, 8, 40},
    {SCALING_NODES, SHUNT_MOE_TWO_LEVEL, 0, 0, PERF_SKEW_ZIPF, .8, 16, 4, 50},
    {SCALING_NODES, SHUNT_MOE_TWO_LEVEL, 1, 0, PERF_SKEW_HOT, .9, 13, 2, 33},
    {SCALING_NODES, SHUNT_MOE_TWO_LEVEL, 0, 1, PERF_SKEW_NODE_LIMITED, 1, 32, 3,
     50},
    {SCALING_NODES, SHUNT_MOE_TWO_LEVEL, 0, 0, PERF_SKEW_UNIFORM, 0, 5, 1, 1},
    {SCALING_ALLGATHER, SHUNT_MOE_ALLGATHER, 0, 0, PERF_SKEW_UNIFORM, 0, 16, 4,
     30},
    {SCALING_ALLGATHER, SHUNT_MOE_ALLGATHER, 1, 1, PERF_SKEW_ZIPF, 1.2, 16, 2,
     30},
    {SCALING_RANKS, SHUNT_MOE_FLAT, 0, 0, PERF_SKEW_UNIFORM, 0, 16, 4, 50},
    {SCALING_RANKS, SHUNT_MOE_FLAT, 1, 0, PERF_SKEW_ZIPF, .8, 24, 8, 40},
    {SCALING_RANKS, SHUNT_MOE_FLAT, 0, 0, PERF_SKEW_NODE_LIMITED, 1, 32, 3, 50},
};
enum { EXPERIMENTS = sizeof(experiments) / sizeof(*experiments) };

/* Returns the rows that a rank sends to other nodes if each assignment is one
 * row. */
static size_t plain_rows(const struct scaling_topology *t,
                         const struct perf_routing *r, int rank)
{
    size_t rows = 0;

    for (size_t k = 0; k < r->tokens; k++)
        for (int j = 0; j < r->topk; j++) {
            int to = perf_expert_rank(r, perf_token_experts(r, rank, k)[j]);

            rows += t->node[to] != t->node[rank];
        }
    return rows;
}

/* Returns the bytes that this rank sends to other nodes in a schedule, and
 * frees the schedule. */
static uint64_t payload_of(const struct rank *self, struct scaling_schedule *s)
{
    const uint64_t payload = s->traffic[self->rank].payload;

    scaling_schedule_finish(s);
    return payload;
}

static uint64_t payload_of_blocks(const struct rank *self,
                                  const struct scaling_topology *t,
                                  uint32_t *blocks)
{
    struct scaling_schedule s;

    scaling_schedule_init(&s, t);
    scaling_alltoallv(&s, blocks, SCALING_FLAT, false);
    free(blocks);
    return payload_of(self, &s);
}

/* Check the bytes that a plan sends, with records that have counts and without
 * them. The plan's lists may still be in transfer when the plan is complete. A
 * dispatch ends only after the lists have arrived. */
static int check_plan(const struct rank *self, struct shunt_moe *exchange,
                      const struct scaling_topology *t,
                      const struct perf_routing *routing,
                      const struct scaling_moe *moe, const uint16_t *tokens)
{
    const bool counts = !getenv("SHUNT_MOE_RECORDS");
    const uint64_t before = bytes_remote(self);
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    struct scaling_schedule s;
    uint64_t want;

    CHECK_OK(self->comm,
             shunt_moe_plan_create(exchange,
                                   perf_token_experts(routing, self->rank, 0),
                                   perf_token_weights(routing, self->rank, 0),
                                   routing->tokens, &plan));
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    CHECK_OK(self->comm,
             shunt_moe_dispatch(plan, tokens,
                                shunt_moe_buffer(plan, SHUNT_MOE_ROWS),
                                rows.total));
    scaling_schedule_init(&s, t);
    scaling_dispatch(&s, moe);
    want = payload_of(self, &s);
    scaling_schedule_init(&s, t);
    scaling_allgather(&s, scaling_plan_record(t, moe, counts), false);
    want += payload_of(self, &s);
    if (!counts)
        want += payload_of_blocks(self, t, scaling_plan_columns(t, moe)) +
                payload_of_blocks(self, t, scaling_plan_starts(t, moe));
    want += payload_of_blocks(self, t, scaling_plan_lists(t, moe));
    CHECK(bytes_remote(self) - before == want,
          "plan and dispatch sent %llu B, the schedules say %llu",
          (unsigned long long)(bytes_remote(self) - before),
          (unsigned long long)want);
    shunt_moe_plan_destroy(plan);
    return 0;
}

/* Returns the payload of all ranks. */
static uint64_t payload(const struct scaling_schedule *s)
{
    uint64_t sum = 0;

    for (int r = 0; r < s->topology->ranks; r++)
        sum += s->traffic[r].payload;
    return sum;
}

static int exchange(const struct rank *self, const struct experiment *x,
                    const struct scaling_topology *t,
                    const struct perf_routing *routing,
                    const struct scaling_moe *moe)
{
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    struct scaling_schedule out, back;
    const struct scaling_traffic *sent, *returned;
    struct shunt_moe *exchange;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    uint64_t before, home;
    uint16_t *tokens =
        scaling_alloc((routing->tokens + 1) * HIDDEN * sizeof(*tokens));

    config.hidden = HIDDEN;
    config.experts = x->experts;
    config.topk = x->topk;
    config.max_tokens = x->tokens;
    config.weights = SHUNT_MOE_APPLY_WEIGHTS;
    config.wire = x->fp8 ? SHUNT_MOE_WIRE_FP8 : SHUNT_MOE_WIRE_PAYLOAD;
    config.partials =
        x->narrow ? SHUNT_MOE_PARTIALS_DTYPE : SHUNT_MOE_PARTIALS_F32;
    config.mode = x->theirs;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &config, &exchange));
    CHECK_OK(self->comm,
             shunt_moe_plan_create(exchange,
                                   perf_token_experts(routing, self->rank, 0),
                                   perf_token_weights(routing, self->rank, 0),
                                   routing->tokens, &plan));
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    CHECK_RUN(check_plan(self, exchange, t, routing, moe, tokens));

    scaling_schedule_init(&out, t);
    scaling_dispatch(&out, moe);
    scaling_schedule_init(&back, t);
    scaling_combine(&back, moe);
    sent = &out.traffic[self->rank];
    returned = &back.traffic[self->rank];

    CHECK(rows.mode == x->theirs, "mode %d", rows.mode);
    CHECK(rows.network_rows_plain == plain_rows(t, routing, self->rank),
          "%zu plain rows, not %zu", rows.network_rows_plain,
          plain_rows(t, routing, self->rank));
    CHECK(rows.network_dispatch_bytes == sent->payload,
          "dispatch: the plan says %zu B, the schedule %llu",
          rows.network_dispatch_bytes, (unsigned long long)sent->payload);
    /* The plan has the bytes that this rank receives. The schedule has the
     * bytes that each rank sends. */
    home = rows.network_combine_bytes;
    CHECK_OK(self->comm, shunt_allreduce(self->comm, &home, &home, 1, SHUNT_U64,
                                         SHUNT_SUM));
    CHECK(home == payload(&back),
          "combine: the plans say %llu B, the schedule %llu",
          (unsigned long long)home, (unsigned long long)payload(&back));

    /* The plan's lists may still be in transfer. A dispatch ends only after the
     * lists have arrived. */
    CHECK_OK(self->comm,
             shunt_moe_dispatch(plan, tokens,
                                shunt_moe_buffer(plan, SHUNT_MOE_ROWS),
                                rows.total));
    before = bytes_remote(self);
    CHECK_OK(self->comm,
             shunt_moe_dispatch(plan, tokens,
                                shunt_moe_buffer(plan, SHUNT_MOE_ROWS),
                                rows.total));
    CHECK(bytes_remote(self) - before == sent->payload,
          "dispatch sent %llu B, the schedule says %llu",
          (unsigned long long)(bytes_remote(self) - before),
          (unsigned long long)sent->payload);
    before = bytes_remote(self);
    CHECK_OK(self->comm,
             shunt_moe_combine(plan, shunt_moe_buffer(plan, SHUNT_MOE_ROWS),
                               NULL, tokens));
    CHECK(bytes_remote(self) - before == returned->payload,
          "combine sent %llu B, the schedule says %llu",
          (unsigned long long)(bytes_remote(self) - before),
          (unsigned long long)returned->payload);

    scaling_schedule_finish(&out);
    scaling_schedule_finish(&back);
    shunt_moe_plan_destroy(plan);
    shunt_moe_destroy(exchange);
    free(tokens);
    return 0;
}

static int moe_bytes(const struct rank *self)
{
    struct scaling_topology t;

    topology_of(self, &t);
    for (int i = 0; i < EXPERIMENTS; i++) {
        const struct experiment *x = &experiments[i];
        struct perf_routing_config config = {
            .ranks = self->size,
            .experts = x->experts,
            .topk = x->topk,
            .tokens = x->tokens,
            .skew = x->skew,
            .arg = x->arg,
            .groups = t.nodes,
            .seed = 100 + (uint64_t)i,
        };
        struct perf_routing routing;
        const char *wrong;

        /* Node-limited routing needs nodes of equal size. */
        for (int n = 1; n < t.nodes; n++)
            if (x->skew == PERF_SKEW_NODE_LIMITED &&
                scaling_node_size(&t, n) != scaling_node_size(&t, 0))
                config.skew = PERF_SKEW_UNIFORM;
        wrong = perf_routing_init(&routing, &config);
        CHECK(!wrong, "%s", wrong);
        CHECK_RUN(
            exchange(self, x, &t, &routing,
                     &(struct scaling_moe){
                         .routing = &routing,
                         .mode = x->ours,
                         .row_bytes = 2 * HIDDEN,
                         /* codes, and a scale for each 128 of them */
                         .wire_bytes = x->fp8 ? HIDDEN + 2 * 4 : 2 * HIDDEN,
                         .sum_bytes = x->narrow ? 2 * HIDDEN : 4 * HIDDEN,
                         .chunk = 1000,
                     }));
        perf_routing_finish(&routing);
    }
    scaling_topology_finish(&t);
    return 0;
}

/* --- alltoallv --------------------------------------------------------------
 */

/* Blocks from nothing to 20 KiB; some are large enough to be sent directly. */
static uint32_t block(int from, int to)
{
    unsigned x = (unsigned)(from * 31 + to * 17) * 2654435761u >> 16;

    return x % 5 == 0 ? 0 : x % 7 == 0 ? x % 20000 : x % 3000;
}

/* argv[0]: the value of SHUNT_CARRY, which the environment also has, or
 * "flat". */
static int alltoallv_bytes(const struct rank *self)
{
    const size_t n = (size_t)self->size;
    const char *how = self->argc ? self->argv[0] : "";
    uint32_t *blocks = scaling_alloc(n * n * sizeof(*blocks));
    size_t *counts = scaling_alloc(2 * n * sizeof(*counts));
    size_t out = 0, in = 0;
    struct scaling_topology t;
    struct scaling_schedule s;
    unsigned char *send, *recv;
    uint64_t before, sent;

    CHECK(*how, "how?");
    topology_of(self, &t);
    for (size_t i = 0; i < n * n; i++)
        blocks[i] = block((int)(i / n), (int)(i % n));
    for (size_t r = 0; r < n; r++) {
        counts[r] = blocks[(size_t)self->rank * n + r];
        counts[n + r] = blocks[r * n + (size_t)self->rank];
        out += counts[r];
        in += counts[n + r];
    }
    send = scaling_alloc(out);
    recv = scaling_alloc(in);
    before = bytes_remote(self);
    CHECK_OK(self->comm, shunt_alltoallv(self->comm, send, counts, NULL, recv,
                                         counts + n, NULL, SHUNT_U8));
    sent = bytes_remote(self) - before;
    scaling_schedule_init(&s, &t);
    scaling_alltoallv(
        &s, blocks,
        strcmp(how, "flat") ? strtoull(how, NULL, 10) : SCALING_FLAT, false);
    CHECK(sent == s.traffic[self->rank].payload,
          "%llu B were sent to other nodes, the schedule says %llu",
          (unsigned long long)sent,
          (unsigned long long)s.traffic[self->rank].payload);
    scaling_schedule_finish(&s);
    scaling_topology_finish(&t);
    free(blocks);
    free(counts);
    free(send);
    free(recv);
    return 0;
}

/* argv[0]: "flat" or "two_level". */
static int allgather_bytes(const struct rank *self)
{
    enum { BYTES = 3000 };
    unsigned char mine[BYTES] = {0};
    unsigned char *all = scaling_alloc((size_t)self->size * BYTES);
    struct scaling_topology t;
    struct scaling_schedule s;
    uint64_t before, sent;

    CHECK(self->argc, "how?");
    topology_of(self, &t);
    before = bytes_remote(self);
    CHECK_OK(self->comm,
             shunt_allgather(self->comm, mine, all, BYTES, SHUNT_U8));
    sent = bytes_remote(self) - before;
    scaling_schedule_init(&s, &t);
    scaling_allgather(&s, BYTES, strcmp(self->argv[0], "flat"));
    CHECK(sent == s.traffic[self->rank].payload,
          "%llu B were sent to other nodes, the schedule says %llu",
          (unsigned long long)sent,
          (unsigned long long)s.traffic[self->rank].payload);
    scaling_schedule_finish(&s);
    scaling_topology_finish(&t);
    free(all);
    return 0;
}

static const struct rank_case cases[] = {
    {"moe_bytes", moe_bytes, .no_threads = true},
    {"alltoallv_bytes", alltoallv_bytes, .no_threads = true},
    {"allgather_bytes", allgather_bytes, .no_threads = true},
    {NULL, NULL, .min_ranks = 0},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
