// SPDX-License-Identifier: Apache-2.0
/*
 * Random legal programs. Every rank runs the same program, which a seed
 * decides. It has communicators (the world's, a copy, a split), exchanges on
 * them, and plans of these. On them it makes, in any legal order, collectives,
 * fused products, all four calls of a plan, and the calls that send experts'
 * state to copies and back. Calls are blocking or started, with several under
 * way at once, also while plans are made and experts are moved.
 *
 * Each rank decides by itself what the interface leaves to a rank: when
 * and how it waits, in which order it starts operations of different
 * communicators, where its buffers are, how late it is. Every output is
 * compared to the bit with what the headers say (routing_model.c for the calls
 * of a plan). Every input, and the memory around all buffers, must be
 * unchanged.
 *
 *     rank_random programs [SEED [COUNT]] [far=NAME] [near=NAME] [groups=N]
 *                          [windows=no] [forks=yes] [closed=SET]
 *                          [closed_after=SET] [failing=MOST]
 *
 * SEED, COUNT  COUNT configurations (20), from SEED (1) on
 * far, near    how shunt_comm_transport() must begin for ranks of other nodes,
 *              and of this one
 * groups       the most communicators of a program (3)
 * windows=no   collectives get only memory of malloc(), some of it registered
 * forks=yes    ranks have children of fork() all the time (children.c)
 * closed, closed_after  these descriptors of 0 to 2 are closed, before or after
 *                       init, and printed to after each call (a bit for each:
 *                       closed_stdio.h)
 * failing      in each configuration one of the first MOST allocations of the
 *              library fails, on each rank another one. A call, and so the
 *              program, may then end with an error. Calls without an error must
 *              give right results.
 *
 * `programs` beside this file runs it in worlds of every kind.
 */

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/closed_stdio.h"
#include "tests/harness/failing_memory.h"
#include "tests/random/world.h"

/* With the thread sanitizer allocations cannot fail, because it has its own
 * allocator. */
#if !defined(FAILING_MEMORY)
#define failing_memory_nth_of_library(n) ((void)(n))
#define failing_memory_failed_of_all() false
#endif

static int closed;       /* those of descriptors 0 to 2 that are closed */
static int closed_after; /* those that are to be closed after init */

/* --- programs --- */

static int carry_out_one(struct world *w, struct group *g,
                         const struct event *e)
{
    if (e->kind < COLLECTIVES)
        return do_collective(w, g, e);
    if (e->kind >= REFRESH)
        return do_state(w, &g->exchanges[e->exchange], e);
    if (e->kind >= GEMM_REDUCE_SCATTER)
        return do_fused(w, g, e);
    return do_moe(w, &g->exchanges[e->exchange].plans[e->plan], e);
}

static int carry_out(struct world *w, const struct event *e)
{
    struct group *g = &w->groups[e->group];

    if (!g->comm)
        return 0;
    CHECK_RUN(carry_out_one(w, g, e));
    return closed_stdio_print(closed, w->doing);
}

/* Makes some calls. A rank may exchange two started calls of different
 * communicators. Calls of one communicator keep their order, and a blocking
 * call keeps its place on every rank. */
static int carry_out_all(struct world *w, const struct event *events, int n)
{
    bool done[MAX_PENDING] = {false};
    int from = 0;

    while (from < n) {
        int to = from, left;

        while (to < n && events[to].start)
            to++;
        w->stretch++;
        for (left = to - from; left > 0; left--) {
            int group, i = from;

            do {
                i = from + below(&w->local, to - from);
            } while (done[i]);
            group = events[i].group;
            for (i = from; done[i] || events[i].group != group; i++)
                ;
            done[i] = true;
            CHECK_RUN(whim(w));
            CHECK_RUN(fork_children(w));
            CHECK_RUN(carry_out(w, &events[i]));
        }
        w->stretch++;
        if (to < n) {
            CHECK_RUN(whim(w));
            CHECK_RUN(fork_children(w));
            CHECK_RUN(carry_out(w, &events[to]));
        }
        from = to + 1;
    }
    return 0;
}

/* The plan slots in use, which are the same on every rank of a group. A rank
 * that is not in the group of this number makes the same draws, and does
 * nothing. */
struct sketch {
    int exchanges[MAX_GROUPS];
    bool plan[MAX_GROUPS][MAX_EXCHANGES][MAX_PLANS];
};

/* Makes a plan, or destroys one that no call can be using. Sometimes changes
 * the placement. */
static int change_plans(struct world *w, struct sketch *s, struct chance *c,
                        bool drained)
{
    const int g = below(c, w->ngroups), x = below(c, s->exchanges[g]);
    const int p = below(c, MAX_PLANS);
    const uint64_t seed = draw(c);
    const bool placement = one_in(c, 4);
    struct group *group = &w->groups[g];
    struct exchange *exchange = &group->exchanges[x];

    if (s->plan[g][x][p] && drained) {
        s->plan[g][x][p] = false;
        if (!group->comm)
            return 0;
        shunt_moe_plan_destroy(exchange->plans[p].whole);
        plan_forget(&exchange->plans[p]);
    } else if (!s->plan[g][x][p]) {
        s->plan[g][x][p] = true;
        if (group->comm)
            CHECK_RUN(make_plan(w, exchange, &exchange->plans[p], seed));
    }
    /* Existing plans keep the placement with which their models were made. */
    if (placement && group->comm) {
        struct chance own = {seed};

        draw_placement(exchange, &own);
        snprintf(w->doing, sizeof(w->doing), "set_placement");
        CHECK_OK(group->comm,
                 shunt_moe_set_shares(exchange->moe, exchange->config.placement,
                                      exchange->config.replicas,
                                      exchange->config.nreplicas,
                                      exchange->config.share));
    }
    return 0;
}

static int some_events(const struct world *w, const struct sketch *s,
                       struct chance *c, struct event *events)
{
    const int n = 1 + below(c, MAX_PENDING / 2);

    for (int i = 0; i < n; i++) {
        struct event *e = &events[i];
        int plans[MAX_PLANS], found = 0;

        *e = (struct event){.group = below(c, w->ngroups)};
        e->exchange = below(c, s->exchanges[e->group]);
        e->start = !one_in(c, 4);
        e->seed = draw(c);
        for (int p = 0; p < MAX_PLANS; p++)
            if (s->plan[e->group][e->exchange][p])
                plans[found++] = p;
        e->kind = below(c, COLLECTIVES);
        if (found && !one_in(c, 3)) {
            e->plan = plans[below(c, found)];
            e->kind = DISPATCH + below(c, 4);
        } else if (one_in(c, 6)) {
            e->kind = GEMM_REDUCE_SCATTER + below(c, 2);
            e->start = false;
        } else if (one_in(c, 5)) {
            e->kind = REFRESH + below(c, 2);
        }
    }
    return n;
}

static int run_program(struct world *w, struct sketch *s, struct chance *c)
{
    const int rounds = 4 + below(c, 8);
    struct event events[MAX_PENDING];

    for (int i = 0; i < rounds; i++) {
        int n, batches = 1 + below(c, 2);

        if (i < 2 || one_in(c, 2))
            CHECK_RUN(change_plans(w, s, c, true));
        while (batches-- > 0) {
            n = some_events(w, s, c, events);
            CHECK_RUN(carry_out_all(w, events, n));
            if (one_in(c, 3)) /* while these calls are in progress */
                CHECK_RUN(change_plans(w, s, c, false));
        }
        CHECK_RUN(drain(w));
    }
    return 0;
}

/* --- communicators --- */

static int know_group(struct group *g, struct shunt_comm *comm)
{
    uint8_t mapped = 1, all = 0;
    void *arena;

    *g = (struct group){.comm = comm};
    if (!comm)
        return 0;
    g->rank = shunt_comm_rank(comm);
    g->size = shunt_comm_size(comm);
    g->nodes = shunt_comm_nodes(comm);
    for (int r = 0; r < g->size; r++) {
        g->node[r] = shunt_comm_node(comm, r);
        if (r != g->rank && !strstr(shunt_comm_transport(comm, r), "map"))
            mapped = 0;
    }
    CHECK_OK(comm,
             shunt_allreduce(comm, &mapped, &all, 1, SHUNT_U8, SHUNT_MIN));
    g->mapped = all;
    CHECK_OK(comm, shunt_mem_alloc(comm, ARENA, &arena));
    g->arena = arena;
    return 0;
}

static int make_groups(struct world *w, struct chance *c)
{
    struct shunt_comm *comm = w->self->comm, *made;
    const int more = below(c, w->most_groups);

    w->ngroups = 1;
    CHECK_RUN(know_group(&w->groups[0], comm));
    w->groups[0].world = true;
    for (int i = 0; i < more; i++) {
        const uint64_t seed = draw(c);
        const int way = below(c, 3);

        snprintf(w->doing, sizeof(w->doing), "split");
        if (way == 0) {
            CHECK_OK(comm, shunt_comm_dup(comm, &made));
        } else {
            int colour = (int)(hash(seed, (uint64_t)w->self->rank, 0) % 3) - 1;
            int key = (int)(hash(seed, (uint64_t)w->self->rank, 1) % 3);

            if (way == 1)
                colour = shunt_comm_local_rank(comm);
            CHECK_OK(comm, shunt_comm_split(comm, colour, key, &made));
        }
        CHECK_RUN(know_group(&w->groups[w->ngroups++], made));
    }
    return 0;
}

static int count_bytes(struct world *w, const struct shunt_comm *comm)
{
    struct shunt_comm_stats stats;

    CHECK_OK(comm, shunt_comm_get_stats(comm, &stats, sizeof(stats)));
    w->engine_bytes += stats.bytes_engine;
    w->registered_bytes += stats.bytes_zcopy_registered;
    return 0;
}

static int end_groups(struct world *w)
{
    for (int i = w->ngroups; i-- > 0;) {
        struct group *g = &w->groups[i];

        for (int x = g->nexchanges; x-- > 0;) {
            struct exchange *e = &g->exchanges[x];

            for (int p = 0; p < MAX_PLANS; p++) {
                if (!e->plans[p].plan)
                    continue;
                shunt_moe_plan_destroy(e->plans[p].whole);
                plan_forget(&e->plans[p]);
            }
            shunt_moe_destroy(e->moe);
            free(e->placement);
            free(e->replicas);
            free(e->share);
        }
        if (!g->comm)
            continue;
        CHECK_OK(g->comm, shunt_mem_free(g->comm, g->arena));
        if (g->world)
            continue;
        snprintf(w->doing, sizeof(w->doing), "finish");
        CHECK_OK(g->comm, shunt_comm_finish(g->comm));
        CHECK_RUN(count_bytes(w, g->comm));
        shunt_comm_destroy(g->comm);
    }
    return 0;
}

static int configuration(struct world *w)
{
    struct chance c = {mix(w->seed)};
    struct sketch sketch = {0};

    w->local.state = hash(w->seed, 1000 + (uint64_t)w->self->rank, 0);
    CHECK_RUN(make_groups(w, &c));
    for (int g = 0; g < w->ngroups; g++) {
        sketch.exchanges[g] = 1 + below(&c, MAX_EXCHANGES);
        for (int x = 0; x < sketch.exchanges[g]; x++) {
            const uint64_t seed = draw(&c);

            if (w->groups[g].comm)
                CHECK_RUN(make_exchange(w, &w->groups[g], seed));
        }
    }
    CHECK_RUN(run_program(w, &sketch, &c));
    CHECK_RUN(end_groups(w));
    return end_children(w);
}

/* --- transports that were used --- */

static const char *option(const struct rank *self, const char *name)
{
    const size_t n = strlen(name);

    for (int i = 2; i < self->argc; i++)
        if (!strncmp(self->argv[i], name, n) && self->argv[i][n] == '=')
            return self->argv[i] + n + 1;
    return NULL;
}

/* Checks that ranks are reached by the transports that the caller named. If
 * there are other nodes, bytes must have been sent to them. */
static int path_right(const struct rank *self)
{
    struct shunt_comm *comm = self->comm;
    const int here = shunt_comm_node(comm, self->rank);
    struct shunt_comm_stats stats;

    for (int r = 0; r < self->size; r++) {
        const bool near = shunt_comm_node(comm, r) == here;
        const char *want = option(self, near ? "near" : "far");
        const char *by = shunt_comm_transport(comm, r);

        CHECK(r == self->rank || !want || !strncmp(by, want, strlen(want)),
              "rank %d is reached by %s, not by %s", r, by, want);
    }
    CHECK_OK(comm, shunt_comm_get_stats(comm, &stats, sizeof(stats)));
    CHECK(shunt_comm_nodes(comm) == 1 || stats.bytes_remote > 0,
          "nothing went to another node");
    return 0;
}

/* Prints the bytes or operations of all ranks, for each path that `programs`
 * checks. */
static int say_bytes(struct world *w)
{
    struct shunt_comm *comm = w->self->comm;
    uint64_t own[5], all[5];

    CHECK_RUN(count_bytes(w, comm));
    own[0] = w->engine_bytes;
    own[1] = w->registered_bytes;
    own[2] = w->pieces;
    own[3] = w->shared_waves;
    own[4] = w->forked;
    CHECK_OK(comm, shunt_allreduce(comm, own, all, 5, SHUNT_U64, SHUNT_SUM));
    if (w->self->rank == 0)
        rank_say("engine: %" PRIu64 " B, registered: %" PRIu64
                 " B, pieces: %" PRIu64 ", waves: %" PRIu64
                 ", children: %" PRIu64,
                 all[0], all[1], all[2], all[3], all[4]);
    return 0;
}

/* Closes the descriptors. In a process of several ranks one rank closes them
 * for all. */
static void close_after(void)
{
    closed_stdio_close(closed_after);
    closed |= closed_after;
}

/* Ends all operations in progress after a failure. Calls on a communicator may
 * use windows of another one, which are unmapped with the communicator of all
 * ranks. */
static void abandon(struct world *w)
{
    for (int i = 0; i < w->ngroups; i++)
        if (w->groups[i].comm)
            shunt_comm_abort(w->groups[i].comm);
    for (int i = 0; i < w->npending; i++) {
        struct op *op = w->pending[i];

        (void)!shunt_wait(&op->request);
        for (int k = 0; k < op->nmore; k++)
            (void)!shunt_wait(&op->more[k]);
    }
}

static int configuration_of(struct world *w, uint64_t seed, long failing)
{
    int bad;

    w->seed = seed;
    if (failing)
        failing_memory_nth_of_library(
            1 + (long)(hash(seed, 2000 + (uint64_t)w->self->rank, 0) %
                       (uint64_t)failing));
    bad = configuration(w);
    if (failing)
        failing_memory_nth_of_library(0);
    if (!bad)
        return 0;
    rank_say("rank %d: seed %" PRIu64 " failed in: %s%s", w->self->rank, seed,
             w->doing,
             failing && failing_memory_failed_of_all()
                 ? ", and so has an allocation"
                 : "");
    abandon(w);
    return bad;
}

static int programs(const struct rank *self)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct world *w = calloc(1, sizeof(*w));
    long failing;
    uint64_t seed;
    int count, bad = 0;

    if (!w)
        abort();
    seed = self->argc > 0 ? strtoull(self->argv[0], NULL, 0) : 1;
    count = self->argc > 1 ? atoi(self->argv[1]) : 20;
    CHECK(self->size <= MAX_RANKS, "at most %d ranks", MAX_RANKS);
    pthread_once(&once, close_after);
    w->self = self;
    w->most_groups =
        option(self, "groups") ? atoi(option(self, "groups")) : MAX_GROUPS;
    w->no_windows =
        option(self, "windows") && !strcmp(option(self, "windows"), "no");
    failing = option(self, "failing") ? atol(option(self, "failing")) : 0;
    w->failing = failing > 0;
    w->forks = option(self, "forks") && !strcmp(option(self, "forks"), "yes");
    for (int i = 0; i < count && !bad; i++)
        bad = configuration_of(w, seed + (uint64_t)i, failing);
    if (bad && failing && self->rank == 0)
        rank_say("some of %d configurations, %" PRIu64 " operations on rank 0",
                 count, w->operations);
    if (!bad && count)
        bad = path_right(self) || say_bytes(w);
    if (!bad && self->rank == 0)
        rank_say("%d configurations, %" PRIu64 " operations on rank 0, all "
                 "right",
                 count, w->operations);
    free(w);
    return bad;
}

static const struct rank_case cases[] = {
    {"programs", programs, .timeout_s = 280},
    {.name = NULL},
};

/* The number behind `name` in an argument; 0 if there is no such argument. */
static int set_of(int argc, char **argv, const char *name)
{
    const size_t n = strlen(name);

    for (int i = 1; i < argc; i++)
        if (!strncmp(argv[i], name, n))
            return atoi(argv[i] + n);
    return 0;
}

int main(int argc, char **argv)
{
    const int before = set_of(argc, argv, "closed=");

    closed_after = set_of(argc, argv, "closed_after=");
    if ((before || closed_after) && closed_stdio_keep())
        return 1;
    closed_stdio_close(before);
    closed = before;
    /* The parts of a product are sent separately, even if links are fast. */
    setenv("SHUNT_FUSED", "always", 0);
    return rank_main(argc, argv, cases);
}
