// SPDX-License-Identifier: Apache-2.0
/*
 * Measures transfers of experts' state: to new homes (shunt_moe_move_start()),
 * to copies (shunt_moe_replicas_refresh_start()), and of gradients from copies
 * to homes (shunt_moe_replicas_reduce_start()). Each call is started and waited
 * for.
 *
 * The first --slots experts of each rank move to the rank `half` ranks further,
 * or have a copy there. On several nodes they therefore cross to another node.
 *
 * The other side, measured in alternation, is the least work on one host: all
 * ranks at once copy as many bytes with memcpy(), or add them, for gradients.
 * Between nodes, the library must count exactly the bytes of the experts that
 * cross.
 */
#include "perf/collectives/experts.h"

#include <stdlib.h>
#include <string.h>

#include <shunt/moe_experts.h>

#include "perf/ranks/pair.h"
#include "perf/sampling/traffic.h"
#include "perf/tables/table.h"

struct experts {
    const struct perf_options *o;
    const struct perf_group *g;
    int half;           /* distance in ranks from a home to the target */
    int32_t *home, *to; /* (experts) home before the call; target rank */
    struct shunt_moe_replica *replicas;
    size_t nreplicas;
    int here;           /* experts at home on this rank, in slots 0, 1, ... */
    int received, sent; /* number of experts received; number sent: the first
                         * ones of `here` */
    struct shunt_moe *moe;
    struct shunt_moe_array array;
    int32_t *slot; /* slots of this rank's experts after a move */
    char *plain;   /* source of the copies: as many bytes as arrive */
};

static void must(const struct experts *x, enum shunt_status st,
                 const char *what)
{
    if (st != SHUNT_OK)
        perf_die(PERF_EXIT_FAILED, "%s: %s: %s", what, shunt_strerror(st),
                 shunt_last_error(x->g->comm));
}

/* --- which experts are sent ----------------------------------------------- */

/* Returns the first expert at home on a rank. A rank's experts are
 * consecutive. */
static int first_of(const struct experts *x, int rank)
{
    return (int)((int64_t)x->o->experts * rank / x->g->ranks);
}

static int home_count(const struct experts *x, int rank)
{
    return first_of(x, rank + 1) - first_of(x, rank);
}

static int travels_from(const struct experts *x, int rank)
{
    const int here = home_count(x, rank);

    return x->o->slots < here ? x->o->slots : here;
}

static void choose(struct experts *x)
{
    const int ranks = x->g->ranks;
    size_t n = 0;

    x->half = ranks / 2;
    for (int r = 0; r < ranks; r++)
        for (int i = 0; i < home_count(x, r); i++) {
            const int e = first_of(x, r) + i;

            x->home[e] = x->to[e] = r;
            if (i >= travels_from(x, r))
                continue;
            x->to[e] = (r + x->half) % ranks;
            x->replicas[n++] = (struct shunt_moe_replica){e, x->to[e]};
        }
    x->nreplicas = n;
    x->here = home_count(x, x->g->rank);
    x->sent = travels_from(x, x->g->rank);
    x->received = travels_from(x, (x->g->rank + ranks - x->half) % ranks);
}

/* Returns the first expert that this rank receives. */
static int first_coming(const struct experts *x)
{
    return first_of(x, (x->g->rank + x->g->ranks - x->half) % x->g->ranks);
}

static bool moves(const struct experts *x)
{
    return x->o->op == PERF_MOE_MOVE;
}

/* Returns the slot of the i-th expert received, or of its copy. In a move,
 * experts received first fill the slots of experts sent; the others follow. */
static int slot_of_coming(const struct experts *x, int i)
{
    return moves(x) && i < x->sent ? i : x->here + i;
}

static float *state_of(const struct experts *x, int slot)
{
    return (float *)(void *)((char *)x->array.at +
                             (size_t)slot * x->o->expert_bytes);
}

static size_t elements(const struct experts *x)
{
    return x->o->expert_bytes / sizeof(float);
}

/* --- calls ---------------------------------------------------------------- */

static struct shunt_moe_state describe(const struct experts *x,
                                       const int32_t *slot)
{
    return (struct shunt_moe_state){
        .size = sizeof(struct shunt_moe_state),
        .array = &x->array,
        .arrays = 1,
        .slot = slot,
    };
}

/* List the slots of this rank's experts, in ascending order of experts. */
static void list_slots(struct experts *x)
{
    const int mine = first_of(x, x->g->rank), theirs = first_coming(x);
    int n = 0;

    for (int e = 0; e < x->o->experts; e++) {
        if (e >= theirs && e < theirs + x->received)
            x->slot[n++] = slot_of_coming(x, e - theirs);
        else if (e >= mine && e < mine + x->here &&
                 (!moves(x) || e - mine >= x->sent))
            x->slot[n++] = e - mine;
    }
}

static void call(void *state)
{
    const struct experts *x = state;
    const struct shunt_moe_state after = describe(x, x->slot);
    const struct shunt_moe_state before = describe(x, NULL);
    struct shunt_request *request = NULL;

    if (moves(x))
        must(x,
             shunt_moe_move_start(x->moe, x->to, NULL, 0, &before, &after,
                                  &request),
             "move");
    else if (x->o->op == PERF_MOE_REFRESH)
        must(x, shunt_moe_replicas_refresh_start(x->moe, &after, &request),
             "refresh");
    else
        must(x,
             shunt_moe_replicas_reduce_start(x->moe, &after, SHUNT_F32,
                                             &request),
             "reduce");
    must(x, shunt_wait(&request), "wait");
}

/* Returns how many experts' bytes this rank receives. In a reduction these are
 * the gradients that return to their home. */
static int received(const struct experts *x)
{
    return x->o->op == PERF_MOE_REDUCE ? x->sent : x->received;
}

static void copy(void *state)
{
    const struct experts *x = state;
    const size_t n = (size_t)received(x) * elements(x);
    const float *from = (const float *)(const void *)x->plain;
    float *to = state_of(x, 0);

    if (x->o->op != PERF_MOE_REDUCE) {
        memcpy(state_of(x, x->here), x->plain, n * sizeof(*to));
        return;
    }
    for (size_t i = 0; i < n; i++)
        to[i] += from[i];
}

/* --- check ---------------------------------------------------------------- */

/* Values are small integers, so that a sum of two is exact. */
static float value(int expert, size_t i)
{
    return (float)((size_t)expert * 31 + i % 4093);
}

static void fill(const struct experts *x, int slot, int expert, float more)
{
    float *at = state_of(x, slot);

    for (size_t i = 0; i < elements(x); i++)
        at[i] = expert < 0 ? -1 : value(expert, i) + more;
}

static double differs(const struct experts *x, int slot, int expert, bool sum)
{
    const float *at = state_of(x, slot);
    double wrong = 0;

    for (size_t i = 0; i < elements(x); i++)
        wrong += at[i] != (sum ? 2 * value(expert, i) + 1 : value(expert, i));
    return wrong;
}

/* Make one call on fresh state. Set *bytes to the bytes between nodes that the
 * library counted. */
static double try_once(const struct experts *x, double *bytes)
{
    const bool sums = x->o->op == PERF_MOE_REDUCE;
    const int mine = first_of(x, x->g->rank), theirs = first_coming(x);
    struct shunt_comm_stats before, after;
    double wrong = 0;

    for (int i = 0; i < x->received; i++)
        fill(x, x->here + i, sums ? theirs + i : -1, 1);
    for (int i = 0; i < x->here; i++)
        fill(x, i, mine + i, 0);
    perf_gate_wait(x->g);
    must(x, shunt_comm_get_stats(x->g->comm, &before, sizeof(before)), "stats");
    call((void *)(uintptr_t)x);
    must(x, shunt_comm_get_stats(x->g->comm, &after, sizeof(after)), "stats");
    for (int i = 0; i < x->received && !sums; i++)
        wrong += differs(x, slot_of_coming(x, i), theirs + i, false);
    for (int i = moves(x) ? x->sent : 0; i < x->here; i++)
        wrong += differs(x, i, mine + i, sums && i < x->sent);
    *bytes = perf_sum(x->g, (double)(after.bytes_remote - before.bytes_remote));
    return wrong;
}

/* --- a row ---------------------------------------------------------------- */

/* Returns the bytes that must cross between nodes: each expert's state once. */
static struct perf_need need_of(const struct experts *x)
{
    const struct perf_places p = perf_group_places(x->g);
    const size_t n = (size_t)p.n;
    uint64_t *traffic = perf_alloc(n * n * sizeof(*traffic));
    struct perf_need need;

    memset(traffic, 0, n * n * sizeof(*traffic));
    for (size_t i = 0; i < x->nreplicas; i++) {
        int from = x->home[x->replicas[i].expert], to = x->replicas[i].rank;

        if (x->o->op == PERF_MOE_REDUCE) {
            to = from;
            from = x->replicas[i].rank;
        }
        if (p.of[from] != p.of[to])
            traffic[(size_t)p.of[from] * n + (size_t)p.of[to]] +=
                x->o->expert_bytes;
    }
    need = (struct perf_need){
        .total = perf_traffic_total(traffic, p.n),
        .busiest = perf_traffic_busiest(traffic, p.n),
    };
    free(traffic);
    return need;
}

static void measure(struct experts *x)
{
    const struct perf_options *o = x->o;
    const struct perf_plan plan = {o->warmup, o->samples, o->batch, o->seconds};
    const struct perf_side sides[] = {
        {.state = x, .phases = 1, .phase = {call}},
        {.state = x, .phases = 1, .phase = {copy}},
    };
    const double most = perf_max(x->g, received(x));
    const struct perf_need need = need_of(x);
    struct perf_row_experts experts = {.experts = x->nreplicas,
                                       .expert_bytes = o->expert_bytes};
    struct perf_row row = {
        .op = perf_op_name(o->op),
        .bytes = (size_t)most * o->expert_bytes,
        .count = (size_t)most * elements(x),
        .bus = 1,
        .pair = perf_pair_latency(x->g),
        .checked = true,
        .has = {[PERF_OURS] = true, [PERF_PEER] = true},
        .need = {[PERF_OURS] = need},
        .sent_rows = -1,
        .experts = &experts,
    };
    struct perf_series series[2];
    double wrong;

    wrong = try_once(x, &experts.bytes_between);
    perf_measure(x->g, &plan, sides, 2, series);
    row.samples = series[0].samples;
    row.batch = series[0].batch;
    for (int s = 0; s < 2; s++) {
        row.times[s] = perf_series_times(&series[s], 0, 0);
        perf_series_finish(&series[s]);
    }
    row.between = perf_group_places(x->g).n > 1;
    if (row.between)
        perf_wire_count(x->g, &sides[0],
                        perf_wire_calls(row.times[PERF_OURS].median),
                        &row.wire[PERF_OURS]);
    wrong += try_once(x, &experts.bytes_between);
    row.wrong[PERF_OURS] = perf_sum(x->g, wrong);
    if (experts.bytes_between != (double)need.total) {
        perf_table_note(
            "WRONG: %.0f bytes were sent between nodes instead of %.0f",
            experts.bytes_between, (double)need.total);
        row.wrong[PERF_OURS]++;
    }
    perf_table_row(&row);
}

void perf_experts(const struct perf_contest *contest)
{
    const struct perf_options *o = contest->options;
    struct experts x = {.o = o, .g = contest->group};
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    const size_t experts = (size_t)o->experts;
    size_t bytes;

    if (x.g->ranks < 2 || o->experts < x.g->ranks)
        perf_die(PERF_EXIT_USAGE,
                 "%s: experts travel between ranks: at least two, and an "
                 "expert for each (--ranks, --experts)",
                 perf_op_name(o->op));
    x.home = perf_alloc(experts * sizeof(*x.home));
    x.to = perf_alloc(experts * sizeof(*x.to));
    x.slot = perf_alloc(experts * sizeof(*x.slot));
    x.replicas = perf_alloc(experts * sizeof(*x.replicas));
    choose(&x);
    config.hidden = 8;
    config.dtype = SHUNT_F32;
    config.experts = o->experts;
    config.topk = 1;
    config.max_tokens = 1;
    config.weights = SHUNT_MOE_PLAIN_SUM;
    config.placement = x.home;
    config.replicas = moves(&x) ? NULL : x.replicas;
    config.nreplicas = moves(&x) ? 0 : x.nreplicas;
    must(&x, shunt_moe_create(x.g->comm, &config, &x.moe), "moe_create");
    bytes = (size_t)(x.here + x.received) * o->expert_bytes;
    x.array = (struct shunt_moe_array){.at = perf_alloc(bytes),
                                       .bytes = o->expert_bytes};
    memset(x.array.at, 0, bytes);
    bytes = (size_t)received(&x) * o->expert_bytes;
    x.plain = perf_alloc(bytes);
    memset(x.plain, 0, bytes);
    list_slots(&x);
    measure(&x);
    shunt_moe_destroy(x.moe);
    free(x.array.at);
    free(x.plain);
    free(x.home);
    free(x.to);
    free(x.slot);
    free(x.replicas);
}
