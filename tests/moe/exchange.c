// SPDX-License-Identifier: Apache-2.0
/* One exchange against the reference; see exchange.h. */
#include "tests/moe/exchange.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void *filled(size_t bytes)
{
    void *memory = malloc(bytes + 1);

    if (!memory)
        abort();
    memset(memory, POISON, bytes + 1);
    return memory;
}

void run_fill_tokens(const struct run *run, void *to, int kind)
{
    float values[ROW_MOST];

    for (size_t t = 0; t < run->rows.tokens; t++) {
        world_values(run->world, kind, run->self->rank, t, values);
        row_set(run->world, (char *)to + t * run->bytes, values);
    }
}

void run_fill_rows(const struct run *run, void *to, int kind)
{
    const struct world *w = run->world;
    const struct rows *want = &w->rows[run->self->rank];
    float values[ROW_MOST];

    if (!want->total)
        return;
    memset(to, POISON, run->rows.total * run->bytes);
    for (size_t r = 0; r < want->total; r++) {
        if (want->origin[r].source < 0)
            continue;
        world_values(w, kind, run->self->rank, r, values);
        row_set(w, (char *)to + r * run->bytes, values);
    }
}

/* True if the mode is the one that was asked for. On one node there are no rail
 * peers, so DIRECT takes the place of modes that need them. */
static bool is_mode(enum shunt_moe_mode is, enum shunt_moe_mode asked,
                    int nodes)
{
    if (nodes == 1 && by_rails(asked))
        return is == SHUNT_MOE_DIRECT;
    return is != SHUNT_MOE_AUTO && (asked == SHUNT_MOE_AUTO || is == asked);
}

static int check_modes(const struct run *run)
{
    const struct shunt_moe_config *c = &run->world->config;
    const int nodes = shunt_comm_nodes(run->self->comm);

    CHECK(is_mode(run->rows.mode, c->mode, nodes), "mode %d, not %d",
          (int)run->rows.mode, (int)c->mode);
    CHECK(is_mode(run->rows.combine_mode,
                  c->combine_mode ? c->combine_mode : c->mode, nodes),
          "combine_mode %d, not %d (mode %d)", (int)run->rows.combine_mode,
          (int)c->combine_mode, (int)c->mode);
    return 0;
}

/* All ranks must get the loads of all experts. They must get them by source,
 * too, unless records have no counts. */
static int check_loads(const struct run *run)
{
    const struct world *w = run->world;
    const int experts = w->config.experts;
    const char *records = getenv("SHUNT_MOE_RECORDS");
    const bool by_source = !records || strcmp(records, "0");
    const size_t n = (size_t)(w->nranks * experts);
    int64_t *loads = filled(n * sizeof(*loads));
    int64_t *sources = filled(n * sizeof(*sources));
    int64_t *want = calloc(n, sizeof(*want));

    for (int s = 0; s < w->nranks; s++)
        for (size_t i = 0; i < w->tokens[s] * (size_t)w->config.topk; i++)
            if (w->kept[s][i] >= 0)
                want[s * experts + w->kept[s][i]]++;
    CHECK_OK(run->self->comm, shunt_moe_loads(run->plan, loads));
    CHECK_STATUS(run->self->comm, shunt_moe_loads_by_source(run->plan, sources),
                 by_source ? SHUNT_OK : SHUNT_ERR_UNSUPPORTED);
    CHECK(by_source || strstr(shunt_last_error(run->self->comm),
                              "set SHUNT_MOE_RECORDS to"),
          "%s", shunt_last_error(run->self->comm));
    for (int e = 0; e < experts; e++) {
        int64_t sum = 0;

        for (int s = 0; s < w->nranks; s++) {
            const int i = s * experts + e;

            sum += want[i];
            CHECK(!by_source || sources[i] == want[i],
                  "load of expert %d by rank %d is %lld, not %lld", e, s,
                  (long long)sources[i], (long long)want[i]);
        }
        CHECK(loads[e] == sum, "load of expert %d is %lld, not %lld", e,
              (long long)loads[e], (long long)sum);
    }
    free(loads);
    free(sources);
    free(want);
    return 0;
}

static int check_sizes(const struct run *run)
{
    const struct world *w = run->world;
    const struct shunt_moe_rows *in = &run->rows;
    int rank = run->self->rank;
    const struct rows *want = &w->rows[rank];
    size_t k = (size_t)w->config.topk, kept = 0, given = 0;

    CHECK(in->local_experts == want->local, "%d experts here, expected %d",
          in->local_experts, want->local);
    CHECK(in->total == want->total, "%zu rows, expected %zu", in->total,
          want->total);
    CHECK(in->tokens == w->tokens[rank], "%zu tokens", in->tokens);
    for (int e = 0; e < want->local; e++) {
        CHECK(in->expert[e] == want->expert[e], "expert %d is %d", e,
              in->expert[e]);
        CHECK(in->count[e] == want->count[e], "expert %d: %zu rows, not %zu",
              want->expert[e], in->count[e], want->count[e]);
        CHECK(in->offset[e] == want->offset[e], "expert %d begins at %zu",
              want->expert[e], in->offset[e]);
    }
    CHECK(in->offset[want->local] == want->total, "the end is %zu",
          in->offset[want->local]);
    for (int s = 0; s < w->nranks; s++) {
        size_t tokens = 0;

        for (int e = 0; e < want->local; e++) {
            size_t n = 0;

            for (size_t r = 0; r < want->total; r++)
                n += want->origin[r].source == s &&
                     want->origin[r].expert == want->expert[e];
            CHECK(in->source_count[s * want->local + e] == n,
                  "%zu rows of rank %d, expected %zu",
                  in->source_count[s * want->local + e], s, n);
        }
        for (size_t t = 0; t < w->tokens[s]; t++) {
            bool here = false;

            for (size_t j = 0; j < k; j++) {
                int e = w->kept[s][t * k + j];

                here = here || (e >= 0 && world_target(w, s, e) == rank);
            }
            tokens += here;
        }
        CHECK(in->source_tokens[s] == tokens, "%zu tokens of rank %d, not %zu",
              in->source_tokens[s], s, tokens);
    }
    for (size_t i = 0; i < w->tokens[rank] * k; i++) {
        given += w->expert[rank][i] >= 0;
        kept += w->kept[rank][i] >= 0;
    }
    CHECK_RUN(check_modes(run));
    CHECK_RUN(check_loads(run));
    CHECK(in->kept == kept, "%zu kept, expected %zu", in->kept, kept);
    CHECK(in->dropped == given - kept, "%zu dropped", in->dropped);
    return 0;
}

/* The lists of a plan are sent after the plan was made, and before the first
 * dispatch and the first combine end. After settle_lists() the counters count
 * only calls. Combine may have lists of its own even if its mode is that of
 * dispatch: the lists of the pieces of tokens (moe/layout/pieces.h). */
static int settle_lists(struct run *run)
{
    const size_t bytes = run->rows.total * run->bytes;

    if (run->rows.mode != SHUNT_MOE_DIRECT) {
        CHECK_OK(run->self->comm,
                 shunt_moe_dispatch(run->plan, run->x, run->buffer[0],
                                    run->rows.total));
        if (bytes)
            memset(run->buffer[0], POISON, bytes);
    }
    if (run->rows.combine_mode != SHUNT_MOE_DIRECT)
        CHECK_OK(run->self->comm,
                 shunt_moe_combine(run->plan, run->buffer[1], NULL, run->y));
    return 0;
}

enum shunt_status plan_of(const struct rank *self, struct shunt_moe *moe,
                          const struct world *w, struct shunt_moe_plan **plan)
{
    return shunt_moe_plan_create(moe, w->expert[self->rank],
                                 w->weight[self->rank], w->tokens[self->rank],
                                 plan);
}

int run_plan(const struct rank *self, struct shunt_moe *moe,
             const struct world *w, int parts, size_t max_rows,
             struct shunt_moe_plan **plan)
{
    struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;
    size_t tokens = w->tokens[self->rank] * (size_t)w->config.topk;
    static _Thread_local unsigned plans;
    const bool null = !tokens && plans++ % 2;
    int32_t *expert = filled(tokens * 4);
    float *weight = filled(tokens * 4);

    options.parts = parts;
    options.max_rows = max_rows;
    options.capacity_factor = w->by_plan ? &w->config.capacity_factor : NULL;
    memcpy(expert, w->expert[self->rank], tokens * 4);
    memcpy(weight, w->weight[self->rank], tokens * 4);
    CHECK_OK(self->comm, shunt_moe_plan_create_with(
                             moe, null ? NULL : expert, null ? NULL : weight,
                             w->tokens[self->rank], &options, plan));
    /* The plan must have copied the routing (point 6 of README.md), so
     * overwrite it. */
    memset(expert, POISON, tokens * 4);
    memset(weight, POISON, tokens * 4);
    free(expert);
    free(weight);
    return 0;
}

int run_begin_on(struct run *run, const struct rank *self,
                 struct shunt_moe *moe, struct shunt_moe_plan *plan,
                 const struct world *w, enum memory memory, int parts)
{
    static _Thread_local unsigned runs;
    size_t tokens = w->tokens[self->rank] * (size_t)w->config.topk;

    memset(run, 0, sizeof(*run));
    /* each run starts at another number, so that other calls have NULL */
    run->calls = runs++;
    run->plan = plan;
    run->self = self;
    run->world = w;
    run->moe = moe;
    run->memory = memory;
    run->bytes = w->config.hidden * shunt_dtype_size(w->config.dtype);
    shunt_moe_plan_rows(run->plan, &run->rows, sizeof(run->rows));
    CHECK_RUN(check_sizes(run));
    CHECK(run->rows.parts == parts, "%d parts, not %d", run->rows.parts, parts);
    for (int b = 0; b < 4; b++) {
        run->buffer[b] =
            memory == HEAP
                ? filled((run->rows.total + 1) * run->bytes)
                : shunt_moe_buffer(run->plan, (enum shunt_moe_buffer)b);
        CHECK(memory == HEAP || run->buffer[b] || !run->rows.total,
              "no buffer %d", b);
        if (memory == WINDOW && run->rows.total)
            memset(run->buffer[b], POISON, run->rows.total * run->bytes);
    }
    run->x = filled(run->rows.tokens * run->bytes);
    run->y = filled(run->rows.tokens * run->bytes);
    run->bias = filled(run->rows.tokens * run->bytes);
    run->dweight = filled(tokens * sizeof(float));
    return settle_lists(run);
}

int run_begin_parts(struct run *run, const struct rank *self,
                    struct shunt_moe *moe, const struct world *w,
                    enum memory memory, int parts)
{
    struct shunt_moe_plan *plan;

    CHECK_RUN(run_plan(self, moe, w, parts, 0, &plan));
    return run_begin_on(run, self, moe, plan, w, memory, parts);
}

int run_begin(struct run *run, const struct rank *self, struct shunt_moe *moe,
              const struct world *w, enum memory memory)
{
    return run_begin_parts(run, self, moe, w, memory, test_parts());
}

int run_end(struct run *run)
{
    for (int b = 0; b < 4 && run->memory == HEAP; b++) {
        unsigned char *guard = run->buffer[b] + run->rows.total * run->bytes;

        for (size_t i = 0; i < run->bytes; i++)
            CHECK(guard[i] == POISON, "buffer %d: written past its end", b);
        free(run->buffer[b]);
    }
    free(run->x);
    free(run->y);
    free(run->bias);
    free(run->dweight);
    shunt_moe_plan_destroy(run->plan);
    return 0;
}

/* True if the bits are equal, or both are NaN. */
static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

int run_check_row(const struct run *run, size_t r)
{
    const struct world *w = run->world;
    const struct origin *o = &w->rows[run->self->rank].origin[r];
    float expected[ROW_MOST];

    memset(expected, 0, w->config.hidden * sizeof(*expected));
    if (o->source >= 0)
        world_dispatched(w, o->source, o->token, expected);
    for (size_t i = 0; i < w->config.hidden; i++) {
        float got =
            element_get(w->config.dtype, run->buffer[0] + r * run->bytes, i);

        CHECK(same(got, expected[i]),
              "row %zu (token %zu of rank %d), element %zu: %.9g, "
              "expected %.9g",
              r, o->token, o->source, i, (double)got, (double)expected[i]);
    }
    return 0;
}

int run_check_rows(const struct run *run)
{
    for (size_t r = 0; r < run->rows.total; r++)
        CHECK_RUN(run_check_row(run, r));
    return 0;
}

int run_check_tokens(const struct run *run, int kind, bool weighted, bool bias)
{
    const struct world *w = run->world;
    float want[ROW_MOST];

    for (size_t t = 0; t < run->rows.tokens; t++) {
        world_combined(w, run->self->rank, t, kind, weighted, bias, want);
        for (size_t i = 0; i < w->config.hidden; i++) {
            float got =
                element_get(w->config.dtype, run->y + t * run->bytes, i);

            CHECK(same(got, want[i]),
                  "token %zu, element %zu: %.9g, expected %.9g", t, i,
                  (double)got, (double)want[i]);
        }
    }
    return 0;
}

static int check_gradients(const struct run *run, bool dweight)
{
    const struct world *w = run->world;
    const struct rows *want = &w->rows[run->self->rank];
    size_t k = (size_t)w->config.topk;
    bool weighted = w->config.weights == SHUNT_MOE_APPLY_WEIGHTS;
    float expected[ROW_MOST];

    for (size_t r = 0; r < want->total; r++) {
        const struct origin *o = &want->origin[r];

        memset(expected, 0, w->config.hidden * sizeof(*expected));
        if (o->source >= 0)
            world_gradient(w, o, weighted, expected);
        for (size_t i = 0; i < w->config.hidden; i++) {
            float got = element_get(w->config.dtype,
                                    run->buffer[2] + r * run->bytes, i);

            CHECK(same(got, expected[i]),
                  "dout row %zu, element %zu: %.9g, expected %.9g", r, i,
                  (double)got, (double)expected[i]);
        }
    }
    for (size_t t = 0; t < run->rows.tokens && dweight; t++)
        for (size_t j = 0; j < k; j++) {
            float want_dweight = world_dweight(w, run->self->rank, t, (int)j);

            CHECK(same(run->dweight[t * k + j], want_dweight),
                  "dweight of token %zu, slot %zu: %.9g, expected %.9g", t, j,
                  (double)run->dweight[t * k + j], (double)want_dweight);
        }
    return 0;
}

int run_dispatch(struct run *run)
{
    struct shunt_comm_stats stats;

    run_fill_tokens(run, run->x, KIND_X);
    CHECK_OK(run->self->comm,
             shunt_comm_get_stats(run->self->comm, &stats, sizeof(stats)));
    CHECK_RUN(run_parts(run, 0, false, false));
    CHECK_RUN(run_check_sent(run, &stats));
    return run_check_rows(run);
}

int run_combine(struct run *run, bool bias)
{
    const struct world *w = run->world;
    struct shunt_comm_stats before;

    run_fill_tokens(run, run->bias, KIND_BIAS);
    memset(run->y, POISON, run->rows.tokens * run->bytes);
    CHECK_OK(run->self->comm,
             shunt_comm_get_stats(run->self->comm, &before, sizeof(before)));
    CHECK_RUN(run_parts(run, 1, bias, false));
    CHECK_RUN(run_check_sent_home(run, &before));
    return run_check_tokens(run, KIND_OUT,
                            w->config.weights == SHUNT_MOE_APPLY_WEIGHTS, bias);
}

int run_backward(struct run *run, bool dweight)
{
    struct shunt_comm_stats before;

    run_fill_tokens(run, run->x, KIND_DY);
    CHECK_RUN(run_parts(run, 2, false, dweight));
    CHECK_RUN(check_gradients(run, dweight));
    memset(run->y, POISON, run->rows.tokens * run->bytes);
    CHECK_OK(run->self->comm,
             shunt_comm_get_stats(run->self->comm, &before, sizeof(before)));
    CHECK_RUN(run_parts(run, 3, false, false));
    CHECK_RUN(run_check_sent_home(run, &before));
    return run_check_tokens(run, KIND_DROWS, false, false);
}

const char *const run_call_names[RUN_CALLS] = {"moe_dispatch", "moe_combine",
                                               "moe_combine_backward",
                                               "moe_dispatch_backward"};

enum shunt_status run_call(struct run *run, int which)
{
    switch (which) {
    case 0:
        return shunt_moe_dispatch(run->plan, run->x, run->buffer[0],
                                  run->rows.total);
    case 1:
        return shunt_moe_combine(run->plan, run->buffer[1], NULL, run->y);
    case 2:
        return shunt_moe_combine_backward(run->plan, run->x, run->buffer[1],
                                          run->buffer[2], run->rows.total,
                                          run->dweight);
    default:
        return shunt_moe_dispatch_backward(run->plan, run->buffer[3], run->y);
    }
}

int run_everything_parts(const struct rank *self, struct shunt_moe *moe,
                         const struct world *w, enum memory memory, int parts)
{
    struct run run;

    CHECK_RUN(run_begin_parts(&run, self, moe, w, memory, parts));
    CHECK_RUN(run_dispatch(&run));
    CHECK_RUN(run_combine(&run, false));
    CHECK_RUN(run_backward(&run, true));
    CHECK_RUN(run_combine(&run, true));
    CHECK_RUN(run_backward(&run, false));
    CHECK_RUN(run_dispatch(&run));
    return run_end(&run);
}

int run_everything(const struct rank *self, struct shunt_moe *moe,
                   const struct world *w, enum memory memory)
{
    return run_everything_parts(self, moe, w, memory, test_parts());
}

/* Rank 0's seed: SHUNT_TEST_SEED, or a new one each time. */
int test_seed(const struct rank *self, uint64_t *seed)
{
    const char *given = getenv("SHUNT_TEST_SEED");
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    *seed = given ? strtoull(given, NULL, 0)
                  : mix((uint64_t)now.tv_sec, (uint64_t)now.tv_nsec, 0, 0);
    CHECK_OK(self->comm, shunt_broadcast(self->comm, seed, 1, SHUNT_U64, 0));
    return 0;
}

const int *world_nodes(const struct rank *self)
{
    static _Thread_local int node[64];

    for (int r = 0; r < self->size; r++)
        node[r] = shunt_comm_node(self->comm, r);
    return node;
}

struct shunt_moe_config config_of(size_t hidden, enum shunt_dtype dtype,
                                  int experts, int topk)
{
    struct shunt_moe_config c = SHUNT_MOE_CONFIG_INIT;

    c.hidden = hidden;
    c.dtype = dtype;
    c.experts = experts;
    c.topk = topk;
    c.max_tokens = 64;
    c.weights = SHUNT_MOE_APPLY_WEIGHTS;
    return c;
}

int run_seeds(const struct rank *self, const struct shunt_moe_config *c,
              enum values values, size_t min_tokens, size_t max_tokens,
              int none)
{
    struct shunt_moe *moe;

    CHECK_OK(self->comm, shunt_moe_create(self->comm, c, &moe));
    for (uint64_t seed = 0; seed < 3; seed++) {
        struct world w;

        world_init(&w, c, self->size, world_nodes(self), values, seed,
                   min_tokens, max_tokens, none);
        CHECK_RUN(run_everything(self, moe, &w, WINDOW));
        CHECK_RUN(run_everything(self, moe, &w, HEAP));
        world_finish(&w);
    }
    shunt_moe_destroy(moe);
    return 0;
}
