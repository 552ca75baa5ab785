// SPDX-License-Identifier: Apache-2.0
/*
 * Routings of many kinds, in every mode that the ranks' memory permits. All
 * modes must give the same bits, and send what the plans say.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/moe/cases.h"
#include "tests/moe/exchange.h"

/* --- routings ------------------------------------------------------------- */

enum routing {
    UNIFORM,
    ZIPF,         /* expert i with a probability in proportion to 1 / (i +
                     1)^1.2 */
    HOT,          /* all tokens have the same first choice */
    NODE_LIMITED, /* a token's experts are on two nodes at most */
    NOTHING,      /* no token has an expert */
    IDLE_RANKS,   /* a third of the ranks, or more, have no tokens */
    ROUTINGS,
};

static const char *const routing_names[] = {
    "uniform", "zipf", "one hot expert", "node-limited", "all -1", "idle ranks",
};

/* Returns a number in [0, 1) that depends on `dice`. */
static double chance(uint64_t dice)
{
    return (double)(dice >> 11) / 0x1p53;
}

static int32_t by_zipf(int experts, double at)
{
    double all = 0, sum = 0;

    for (int e = 0; e < experts; e++)
        all += pow(e + 1, -1.2);
    for (int e = 0; e < experts; e++) {
        sum += pow(e + 1, -1.2);
        if (at * all < sum)
            return e;
    }
    return experts - 1;
}

/* An expert on one of two nodes. The number of the token decides which two. */
static int32_t by_node(const struct world *w, int rank, size_t token,
                       uint64_t dice)
{
    uint64_t node = mix(w->seed, 30, (uint64_t)rank, token);

    for (int tries = 0; tries < 1000; tries++) {
        int e = (int)(mix(dice, 31, (uint64_t)tries, 0) %
                      (uint64_t)w->config.experts);
        int at = w->node[world_target(w, rank, e)], last = 0;

        for (int r = 0; r < w->nranks; r++)
            last = w->node[r] > last ? w->node[r] : last;
        if (at == (int)(node % (uint64_t)(last + 1)) ||
            at == (int)((node >> 20) % (uint64_t)(last + 1)))
            return e;
    }
    return -1; /* these nodes have no experts */
}

static void world_route(struct world *w, enum routing routing)
{
    for (int r = 0; r < w->nranks; r++) {
        if (routing == IDLE_RANKS &&
            (r == w->nranks - 1 || mix(w->seed, 32, (uint64_t)r, 0) % 3 == 0))
            w->tokens[r] = 0;
        for (size_t t = 0; t < w->tokens[r]; t++)
            for (int j = 0; j < w->config.topk; j++) {
                size_t i = t * (size_t)w->config.topk + (size_t)j;
                uint64_t dice = mix(w->seed, 33, (uint64_t)r, i);
                int32_t *e = &w->expert[r][i];

                if (routing == ZIPF)
                    *e = by_zipf(w->config.experts, chance(dice));
                else if (routing == HOT && j == 0)
                    *e = (int32_t)(w->seed % (uint64_t)w->config.experts);
                else if (routing == NODE_LIMITED)
                    *e = by_node(w, r, t, dice);
                else if (routing == NOTHING)
                    *e = -1;
            }
    }
    world_lay_out(w);
}

static struct shunt_moe_config config_from(uint64_t seed, int kind)
{
    struct shunt_moe_config c = config_of(1 + mix(seed, 40, 0, 0) % 180,
                                          kind == 0 ? SHUNT_F32 : SHUNT_BF16,
                                          1 + (int)(mix(seed, 41, 0, 0) % 20),
                                          1 + (int)(mix(seed, 42, 0, 0) % 8));

    c.wire = kind == 2 ? SHUNT_MOE_WIRE_FP8 : SHUNT_MOE_WIRE_PAYLOAD;
    return c;
}

/* Every routing in f32, bf16 and fp8, with a new seed each time. */
static int fresh_routings(const struct rank *self)
{
    uint64_t seed;

    CHECK_RUN(test_seed(self, &seed));
    if (self->rank == 0)
        rank_say("# SHUNT_TEST_SEED=%llu", (unsigned long long)seed);
    for (int kind = 0; kind < 3; kind++)
        for (int routing = 0; routing < ROUTINGS; routing++) {
            struct shunt_moe_config c =
                config_from(seed + (uint64_t)routing, kind);
            struct shunt_moe *moe;
            struct world w;

            CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
            world_init(&w, &c, self->size, world_nodes(self), REALS,
                       seed + (uint64_t)routing, 0, 16, 10);
            world_route(&w, (enum routing)routing);
            if (run_everything(self, moe, &w, routing % 2 ? HEAP : WINDOW))
                return rank_fail(__FILE__, __LINE__, routing_names[routing],
                                 "SHUNT_TEST_SEED=%llu shows it again",
                                 (unsigned long long)seed);
            world_finish(&w);
            shunt_moe_destroy(moe);
        }
    return 0;
}

/* --- the same bits -------------------------------------------------------- */

static const struct {
    enum shunt_moe_mode mode;
    const char *name;
} modes[] = {
    {SHUNT_MOE_FLAT, "flat"},           {SHUNT_MOE_DIRECT, "direct"},
    {SHUNT_MOE_TWO_LEVEL, "two-level"}, {SHUNT_MOE_ALLGATHER, "allgather"},
    {SHUNT_MOE_AUTO, "auto"},
};
#define MODES (sizeof(modes) / sizeof(modes[0]))

/* Is this mode possible with any memory? */
static bool always(enum shunt_moe_mode mode)
{
    return mode == SHUNT_MOE_AUTO || mode == SHUNT_MOE_FLAT;
}

/* Creates an exchange in this mode; *moe is NULL if the memory does not permit
 * it. */
static int create_in_mode(const struct rank *self, struct shunt_moe_config *c,
                          enum shunt_moe_mode mode, struct shunt_moe **moe)
{
    enum shunt_status st;

    c->mode = mode;
    st = shunt_moe_create(self->comm, c, moe);
    if (st == SHUNT_ERR_UNSUPPORTED &&
        (!always(mode) || !always(c->combine_mode)))
        return 0;
    CHECK(st == SHUNT_OK, "%s", rank_why(self->comm, st));
    return 0;
}

/* Continues an FNV-1a hash with this memory. */
static uint64_t hashed(uint64_t hash, const void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)memory)[i]) * 0x100000001b3;
    return hash;
}

/* Makes each call once; *hash covers all that this rank received. */
static int hash_results(const struct rank *self, struct shunt_moe *moe,
                        const struct world *w, enum memory memory,
                        uint64_t *hash)
{
    size_t slots = w->tokens[self->rank] * (size_t)w->config.topk;
    struct run run;
    size_t rows, tokens;

    CHECK_RUN(run_begin(&run, self, moe, w, memory));
    rows = run.rows.total * run.bytes;
    tokens = run.rows.tokens * run.bytes;
    run_fill_tokens(&run, run.x, KIND_X);
    CHECK_OK(self->comm, shunt_moe_dispatch(run.plan, run.x, run.buffer[0],
                                            run.rows.total));
    *hash = hashed(0xcbf29ce484222325, run.buffer[0], rows);
    run_fill_rows(&run, run.buffer[1], KIND_OUT);
    run_fill_tokens(&run, run.bias, KIND_BIAS);
    CHECK_OK(self->comm,
             shunt_moe_combine(run.plan, run.buffer[1], run.bias, run.y));
    *hash = hashed(*hash, run.y, tokens);
    run_fill_tokens(&run, run.x, KIND_DY);
    CHECK_OK(self->comm, shunt_moe_combine_backward(
                             run.plan, run.x, run.buffer[1], run.buffer[2],
                             run.rows.total, run.dweight));
    *hash = hashed(*hash, run.buffer[2], rows);
    *hash = hashed(*hash, run.dweight, slots * sizeof(*run.dweight));
    run_fill_rows(&run, run.buffer[3], KIND_DROWS);
    CHECK_OK(self->comm,
             shunt_moe_dispatch_backward(run.plan, run.buffer[3], run.y));
    *hash = hashed(*hash, run.y, tokens);
    return run_end(&run);
}

/*
 * Compares all modes with each other, without the reference. Prints the modes,
 * and a hash of what all ranks received. The hash must be the same for several
 * transports, chunks and hosts. argv[0]: the ranks of a single node route and
 * add as if they were on that many nodes.
 */
static int same_bits(const struct rank *self)
{
    static const size_t hidden[] = {37, 200, 300};
    const int as_nodes = self->argc ? atoi(self->argv[0]) : 0;
    uint64_t all = 0;
    bool tried[MODES] = {false};
    int as_if[64];

    for (int r = 0; r < self->size && as_nodes; r++)
        as_if[r] = r / (self->size / as_nodes);

    for (int kind = 0; kind < 3; kind++)
        for (int routing = 0; routing < ROUTINGS; routing++) {
            struct shunt_moe_config c =
                config_of(hidden[kind], kind ? SHUNT_BF16 : SHUNT_F32, 12, 5);
            uint64_t first = 0, hash = 0;
            struct world w;

            c.wire = kind == 2 ? SHUNT_MOE_WIRE_FP8 : SHUNT_MOE_WIRE_PAYLOAD;
            c.row_align = 4;
            c.tree_nodes = as_nodes;
            c.tree_ranks = as_nodes ? self->size : 0;
            world_init(&w, &c, self->size, as_nodes ? as_if : world_nodes(self),
                       REALS, (uint64_t)(100 + 10 * kind + routing), 1, 20, 5);
            world_route(&w, (enum routing)routing);
            w.node = world_nodes(self);
            for (size_t m = 0; m < MODES; m++) {
                struct shunt_moe *moe;

                CHECK_RUN(create_in_mode(self, &c, modes[m].mode, &moe));
                if (!moe)
                    continue;
                for (int again = 0; again < 2; again++) {
                    CHECK_RUN(hash_results(self, moe, &w, again ? HEAP : WINDOW,
                                           &hash));
                    if (m == 0 && !again)
                        first = hash;
                    CHECK(hash == first, "%s, %s: others than %s",
                          routing_names[routing], modes[m].name, modes[0].name);
                }
                tried[m] = true;
                shunt_moe_destroy(moe);
            }
            world_finish(&w);
            all = mix(all, first, 50, 0);
        }
    all = mix(all, (uint64_t)self->rank, 51, 0);
    CHECK_OK(self->comm,
             shunt_allreduce(self->comm, &all, &all, 1, SHUNT_U64, SHUNT_SUM));
    for (size_t m = 0; m < MODES && self->rank == 0; m++)
        if (tried[m])
            rank_say("# mode %s", modes[m].name);
    if (self->rank == 0)
        rank_say("# bits %016llx", (unsigned long long)all);
    return 0;
}

/* --- a mode for each direction -------------------------------------------- */

/* If the memory does not permit one of the two modes, the error must name
 * it. */
static int one_pair(const struct rank *self, enum shunt_moe_mode there,
                    enum shunt_moe_mode home, uint64_t seed)
{
    struct shunt_moe_config c =
        config_of(70, seed % 2 ? SHUNT_BF16 : SHUNT_F32, 12, 4);
    const char *field = always(there) ? "combine_mode is" : "mode is";
    struct shunt_moe *moe;
    struct world w;

    c.wire = seed % 3 ? SHUNT_MOE_WIRE_PAYLOAD : SHUNT_MOE_WIRE_FP8;
    c.combine_mode = home;
    CHECK_RUN(create_in_mode(self, &c, there, &moe));
    if (!moe) {
        CHECK(strstr(shunt_last_error(self->comm), field),
              "\"%s\" does not say \"%s\"", shunt_last_error(self->comm),
              field);
        return 0;
    }
    world_init(&w, &c, self->size, world_nodes(self), REALS, seed, 0, 12, 10);
    CHECK_RUN(run_everything(self, moe, &w, seed % 2 ? HEAP : WINDOW));
    /* Plans use the same windows again, for other rows. */
    world_finish(&w);
    world_init(&w, &c, self->size, world_nodes(self), REALS, seed, 3, 20, 0);
    CHECK_RUN(run_everything(self, moe, &w, WINDOW));
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

/* Every mode for dispatch with every mode for combine. On one node no rows are
 * sent between rail peers. AUTO is one of the modes. */
static int mode_pairs(const struct rank *self)
{
    const bool one = shunt_comm_nodes(self->comm) == 1;

    for (size_t there = 0; there < MODES; there++)
        for (size_t home = 0; home < MODES; home++) {
            const enum shunt_moe_mode pair[2] = {modes[there].mode,
                                                 modes[home].mode};

            if (there == home || !pair[0] || !pair[1] ||
                (one && (by_rails(pair[0]) || by_rails(pair[1]))))
                continue;
            CHECK_RUN(
                one_pair(self, pair[0], pair[1], 300 + MODES * there + home));
        }
    return 0;
}

/* Does this word of SHUNT_MOE_MODE stand for the mode? */
static bool names(const char *word, enum shunt_moe_mode mode)
{
    size_t m = 0;

    if (strncmp(word, "auto", 4) == 0)
        return mode != SHUNT_MOE_AUTO;
    while (modes[m].mode != mode)
        m++;
    return strncmp(word, modes[m].name, strlen(modes[m].name)) == 0;
}

static int modes_of(const struct rank *self, enum shunt_moe_mode there,
                    enum shunt_moe_mode home, struct shunt_moe_rows *rows)
{
    struct shunt_moe_config c = config_of(8, SHUNT_F32, 4, 1);
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;

    c.mode = there;
    c.combine_mode = home;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, shunt_moe_plan_create(moe, NULL, NULL, 0, &plan));
    shunt_moe_plan_rows(plan, rows, sizeof(*rows));
    shunt_moe_destroy(moe);
    return 0;
}

/* SHUNT_MOE_MODE, with one or two words, must apply if the configuration sets
 * no mode. The configuration's `mode` must apply to combine, too. */
static int modes_of_environment(const struct rank *self)
{
    const char *given = getenv("SHUNT_MOE_MODE");
    const char *there = given && *given ? given : "auto";
    const char *home = strchr(there, ',') ? strchr(there, ',') + 1 : there;
    struct shunt_moe_rows rows;

    CHECK_RUN(modes_of(self, SHUNT_MOE_AUTO, SHUNT_MOE_AUTO, &rows));
    CHECK(names(there, rows.mode) && names(home, rows.combine_mode),
          "%s gives %d and %d", there, (int)rows.mode, (int)rows.combine_mode);
    CHECK_RUN(modes_of(self, SHUNT_MOE_AUTO, SHUNT_MOE_FLAT, &rows));
    CHECK(names(there, rows.mode) && rows.combine_mode == SHUNT_MOE_FLAT,
          "%s and combine by FLAT give %d and %d", there, (int)rows.mode,
          (int)rows.combine_mode);
    CHECK_RUN(modes_of(self, SHUNT_MOE_FLAT, SHUNT_MOE_AUTO, &rows));
    CHECK(rows.mode == SHUNT_MOE_FLAT && rows.combine_mode == SHUNT_MOE_FLAT,
          "%s and FLAT give %d and %d", there, (int)rows.mode,
          (int)rows.combine_mode);
    return 0;
}

/* --- rounded sums --------------------------------------------------------- */

/*
 * The largest difference between results of rounded and of unrounded sums. Each
 * sum of another node may differ by 2^-8 of its value. So may both results,
 * because they were rounded as well.
 */
static void bounds(const struct world *w, int rank, size_t token,
                   const float *got, const float *want, float *most)
{
    const size_t hidden = w->config.hidden;
    float sums[ROW_MOST];

    for (size_t i = 0; i < hidden; i++)
        most[i] = fabsf(got[i]) + fabsf(want[i]);
    for (int n = 0; n < w->nranks; n++) {
        if (n == w->node[rank])
            continue;
        world_node_sum(w, rank, token, KIND_OUT, true, n, sums);
        for (size_t i = 0; i < hidden; i++)
            most[i] += fabsf(sums[i]);
    }
    for (size_t i = 0; i < hidden; i++)
        most[i] /= 256;
}

static int check_bound(const struct run *run, bool *differs)
{
    struct world exact = *run->world;
    float got[ROW_MOST], want[ROW_MOST], most[ROW_MOST];
    int rank = run->self->rank;

    exact.rounds = false;
    for (size_t t = 0; t < run->rows.tokens; t++) {
        for (size_t i = 0; i < exact.config.hidden; i++)
            got[i] =
                element_get(exact.config.dtype, run->y + t * run->bytes, i);
        world_combined(&exact, rank, t, KIND_OUT, true, false, want);
        bounds(&exact, rank, t, got, want, most);
        for (size_t i = 0; i < exact.config.hidden; i++) {
            CHECK(fabsf(got[i] - want[i]) <= most[i],
                  "token %zu, element %zu: %.9g is not within %g of %.9g", t, i,
                  (double)got[i], (double)most[i], (double)want[i]);
            *differs = *differs || got[i] != want[i];
        }
    }
    return 0;
}

/*
 * PARTIALS_DTYPE: the sum of every other node is rounded once, and nothing else
 * is. Results are compared with a reference that does the same, and with the
 * promised bound.
 */
static int rounded_partials(const struct rank *self)
{
    int any = 0;
    bool differs = false;
    uint64_t seed;

    CHECK_RUN(test_seed(self, &seed));
    for (int turn = 0; turn < 6; turn++) {
        struct shunt_moe_config c =
            config_of(100, turn < 4 ? SHUNT_BF16 : SHUNT_F32, 16, 8);
        struct shunt_moe *moe;
        struct world w;
        struct run run;

        c.partials = SHUNT_MOE_PARTIALS_DTYPE;
        CHECK_RUN(create_in_mode(
            self, &c, turn % 2 ? SHUNT_MOE_ALLGATHER : SHUNT_MOE_TWO_LEVEL,
            &moe));
        if (!moe)
            continue;
        world_init(&w, &c, self->size, world_nodes(self), REALS,
                   seed + (uint64_t)turn, 3, 20, 10);
        world_route(&w, turn == 2 ? ZIPF : UNIFORM);
        w.rounds = shunt_comm_nodes(self->comm) > 1;
        CHECK_RUN(run_begin(&run, self, moe, &w, turn % 3 ? HEAP : WINDOW));
        CHECK_RUN(run_combine(&run, true));
        CHECK_RUN(run_combine(&run, false));
        CHECK_RUN(check_bound(&run, &differs));
        CHECK_RUN(run_backward(&run, true));
        CHECK_RUN(run_end(&run));
        world_finish(&w);
        shunt_moe_destroy(moe);
        any = any || w.rounds;
    }
    /* Without any difference nothing would have been tested. */
    CHECK(!any || differs, "nothing was rounded (SHUNT_TEST_SEED=%llu)",
          (unsigned long long)seed);
    return 0;
}

/* --- on the wire ---------------------------------------------------------- */

enum { ROWS, PLAIN, THERE, BACK, WANT_BACK, SENT_THERE, SENT_BACK, SUMS };

static uint64_t remote(const struct rank *self)
{
    struct shunt_comm_stats stats = {0};

    if (shunt_comm_get_stats(self->comm, &stats, sizeof(stats)))
        return UINT64_MAX;
    return stats.bytes_remote;
}

/* Makes dispatch and combine. Returns in `sums` what this rank's plan says, and
 * what its counters counted. */
static int count(struct run *run, uint64_t *sums)
{
    uint64_t before = remote(run->self);

    CHECK_OK(
        run->self->comm,
        shunt_moe_dispatch(run->plan, run->x, run->buffer[0], run->rows.total));
    sums[SENT_THERE] = remote(run->self) - before;
    before = remote(run->self);
    CHECK_OK(run->self->comm,
             shunt_moe_combine(run->plan, run->buffer[1], NULL, run->y));
    sums[SENT_BACK] = remote(run->self) - before;
    sums[ROWS] = run->rows.network_rows;
    sums[PLAIN] = run->rows.network_rows_plain;
    sums[THERE] = run->rows.network_dispatch_bytes;
    sums[BACK] = run->rows.network_combine_bytes;
    sums[WANT_BACK] = run_bytes_home(run);
    return 0;
}

/*
 * Sums over all ranks. The bytes between nodes must be what the plans say, row
 * by row, and for combine also what the routing says. They must never be more
 * than if each result were sent alone, or if all results of a node were added.
 */
static int network_sums(const struct rank *self)
{
    for (int routing = 0; routing < ROUTINGS; routing++)
        for (size_t m = 0; m < MODES; m++) {
            struct shunt_moe_config c = config_of(48, SHUNT_BF16, 12, 5);
            struct shunt_moe *moe;
            struct world w;
            struct run run;
            uint64_t s[SUMS];
            size_t sum_bytes = 48 * sizeof(float);
            bool rails;

            c.wire = m % 2 ? SHUNT_MOE_WIRE_FP8 : SHUNT_MOE_WIRE_PAYLOAD;
            if (routing % 2) {
                c.partials = SHUNT_MOE_PARTIALS_DTYPE;
                sum_bytes = 48 * 2;
            }
            CHECK_RUN(create_in_mode(self, &c, modes[m].mode, &moe));
            if (!moe)
                continue;
            world_init(&w, &c, self->size, world_nodes(self), REALS,
                       (uint64_t)(200 + routing), 1, 20, 5);
            world_route(&w, (enum routing)routing);
            CHECK_RUN(run_begin(&run, self, moe, &w, WINDOW));
            run_fill_tokens(&run, run.x, KIND_X);
            run_fill_rows(&run, run.buffer[1], KIND_OUT);
            CHECK_RUN(count(&run, s));
            CHECK_OK(self->comm, shunt_allreduce(self->comm, s, s, SUMS,
                                                 SHUNT_U64, SHUNT_SUM));
            rails = by_rails(run.rows.mode) && by_rails(run.rows.combine_mode);
            CHECK(s[THERE] == s[ROWS] * run_wire_bytes(&run), "%zu bytes there",
                  (size_t)s[THERE]);
            CHECK(s[ROWS] <= s[PLAIN] || run.rows.mode == SHUNT_MOE_ALLGATHER,
                  "%zu rows instead of %zu", (size_t)s[ROWS], (size_t)s[PLAIN]);
            /* With FLAT alltoallv sends them, with control messages. */
            CHECK(s[SENT_THERE] == s[THERE] || run.rows.mode == SHUNT_MOE_FLAT,
                  "%zu bytes sent there", (size_t)s[SENT_THERE]);
            if (rails) {
                CHECK(s[BACK] == s[WANT_BACK], "%zu bytes come back, not %zu",
                      (size_t)s[BACK], (size_t)s[WANT_BACK]);
                CHECK(s[BACK] <= s[ROWS] * sum_bytes &&
                          s[BACK] <= s[PLAIN] * run.bytes,
                      "%zu bytes come back for %zu rows, %zu plain",
                      (size_t)s[BACK], (size_t)s[ROWS], (size_t)s[PLAIN]);
                CHECK(s[SENT_BACK] == s[BACK], "%zu bytes sent back",
                      (size_t)s[SENT_BACK]);
            }
            CHECK_RUN(run_end(&run));
            world_finish(&w);
            shunt_moe_destroy(moe);
        }
    return 0;
}

const struct rank_case modes_cases[] = {
    {.name = "fresh_routings", .run = fresh_routings},
    {.name = "same_bits", .run = same_bits},
    {.name = "mode_pairs", .run = mode_pairs},
    {"modes_of_environment", modes_of_environment, .no_threads = true},
    {.name = "rounded_partials", .run = rounded_partials},
    {.name = "network_sums", .run = network_sums},
    {.name = NULL},
};
