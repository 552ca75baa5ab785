// SPDX-License-Identifier: Apache-2.0
/* The routing, memory and traffic of an exchange of tokens; see moe_bench.h. */
#include "perf/tokens/moe_bench.h"

#include <stdlib.h>
#include <string.h>

#include "perf/base/random.h"
#include "perf/peers/device.h"
#include "perf/tables/table.h"

/* --- data ----------------------------------------------------------------- */

struct perf_routing_config perf_bench_config(const struct perf_bench *b,
                                             size_t tokens)
{
    const struct perf_options *o = b->o;
    int nodes = b->places.n;
    struct perf_routing_config config = {
        .ranks = b->g->ranks,
        .experts = o->experts,
        .topk = o->topk,
        .tokens = tokens,
        .skew = o->skew,
        .arg = o->skew_arg,
        .groups = nodes > 1 ? nodes : b->g->ranks,
        .seed = o->seed,
        /* the first burst of W7 is at this step */
        .step = o->skew == PERF_SKEW_W7 ? 3 : 0,
    };
    if (o->skew == PERF_SKEW_NODE_LIMITED && !config.arg)
        config.arg = config.groups > 1 ? (double)(config.groups / 2) : 1;
    return config;
}

static void make_routing(struct perf_bench *b, size_t tokens)
{
    const struct perf_routing_config config = perf_bench_config(b, tokens);
    const char *wrong = perf_routing_init(&b->routing, &config);
    if (wrong)
        perf_die(PERF_EXIT_USAGE, "%s", wrong);
}

/* Compute the share of rows that leave their rank. Print how uneven the
 * ranks' rows are. */
static void describe_routing(struct perf_bench *b)
{
    const struct perf_routing *r = &b->routing;
    size_t all = perf_routing_assigned(r), remote = 0, most = 0;

    for (int s = 0; s < r->ranks; s++) {
        const int32_t *experts = perf_token_experts(r, s, 0);
        for (size_t i = 0; i < r->tokens * (size_t)r->topk; i++)
            remote += experts[i] >= 0 && perf_expert_rank(r, experts[i]) != s;
        size_t rows = perf_routing_rows(r, s);
        most = rows > most ? rows : most;
    }
    b->remote = all ? (double)remote / (double)all : 0;
    if (all && r->ranks > 1)
        perf_table_note("%zu tokens a rank: %.1f %% of the rows leave their "
                        "rank; the busiest rank receives %.2f times the mean "
                        "number of rows",
                        r->tokens, 100 * b->remote,
                        (double)most * r->ranks / (double)all);
}

/* --- traffic -------------------------------------------------------------- */

/* Returns the bytes of a row in dispatch: its elements, or e4m3 with a scale
 * for each 128 elements. */
static uint64_t row_there(const struct perf_bench *b, bool fp8)
{
    size_t hidden = b->o->hidden;
    return fp8 ? hidden + (hidden + 127) / 128 * sizeof(float) : b->row_bytes;
}

/* Returns the bytes of the sum of a node's results in combine. */
static uint64_t sum_back(const struct perf_bench *b)
{
    return b->o->partials == SHUNT_MOE_PARTIALS_F32
               ? b->o->hidden * sizeof(float)
               : b->row_bytes;
}

/* Rows of one kind, and the bytes of each. */
struct sort {
    enum perf_rows_each each;
    uint64_t bytes;
};

/* Compute the traffic: of dispatch, with rows of one kind, and of combine,
 * with rows of two kinds. */
static void set_traffic(const struct perf_bench *b,
                        struct perf_bench_traffic *t, struct sort there,
                        const struct sort back[2])
{
    const int n = b->places.n;
    const size_t bytes = (size_t)n * (size_t)n * sizeof(uint64_t);
    uint64_t *rows = perf_alloc(bytes);

    memset(t->there, 0, bytes);
    memset(t->back, 0, bytes);
    for (int i = 0; i < 2; i++) {
        perf_traffic_rows(&b->routing, back[i].each, &b->places, rows);
        perf_traffic_add(rows, n, back[i].bytes, true, t->back);
    }
    perf_traffic_rows(&b->routing, there.each, &b->places, rows);
    perf_traffic_add(rows, n, there.bytes, false, t->there);
    t->rows = perf_traffic_total(rows, n);
    free(rows);
}

static struct sort sort_there(const struct perf_bench *b,
                              enum shunt_moe_mode mode)
{
    bool fp8 = b->o->wire == SHUNT_MOE_WIRE_FP8 && b->o->op != PERF_BACKWARD;

    return (struct sort){
        mode == SHUNT_MOE_FLAT        ? PERF_EACH_RANK
        : mode == SHUNT_MOE_ALLGATHER ? PERF_EACH_TOKEN
                                      : PERF_EACH_PLACE,
        row_there(b, fp8),
    };
}

/* Set the kinds of rows in combine. Results return one by one, or one for each
 * (token, node): a node's only result as it is, or the sum of several. */
static void sorts_back(const struct perf_bench *b, bool one_by_one,
                       struct sort back[2])
{
    back[0] = (struct sort){one_by_one ? PERF_EACH_ASSIGNMENT : PERF_EACH_LONE,
                            b->row_bytes};
    back[1] = (struct sort){PERF_EACH_SUM, one_by_one ? 0 : sum_back(b)};
}

void perf_bench_find_traffic(struct perf_bench *b, const struct perf_sent *sent)
{
    struct perf_bench_traffic *ours = &b->traffic[PERF_OURS];
    struct perf_bench_traffic *peer = &b->traffic[PERF_PEER];
    struct perf_bench_traffic *link = &b->traffic[PERF_LINK];
    const struct perf_modes modes = sent ? sent->modes : (struct perf_modes){0};
    struct sort back[2];

    sorts_back(b, true, back);
    set_traffic(b, peer,
                (struct sort){PERF_EACH_ASSIGNMENT, row_there(b, false)}, back);
    sorts_back(b, modes.back == SHUNT_MOE_FLAT, back);
    set_traffic(b, ours, sort_there(b, modes.there), back);
    const struct perf_bench_traffic *from = sent ? ours : peer;
    size_t bytes = (size_t)b->places.n * (size_t)b->places.n * sizeof(uint64_t);
    link->rows = from->rows;
    memcpy(link->there, from->there, bytes);
    memcpy(link->back, from->back, bytes);
}

struct perf_need perf_bench_need(const struct perf_bench *b,
                                 enum perf_role role, bool there, bool back)
{
    const struct perf_bench_traffic *t = &b->traffic[role];
    const uint64_t *const bytes[] = {there ? t->there : NULL,
                                     back ? t->back : NULL};
    struct perf_need need = {0};

    for (int i = 0; i < 2; i++) {
        if (!bytes[i])
            continue;
        need.total += perf_traffic_total(bytes[i], b->places.n);
        need.busiest += perf_traffic_busiest(bytes[i], b->places.n);
        need.rows = t->rows;
    }
    return need;
}

/* --- benches -------------------------------------------------------------- */

void *perf_bench_host(const struct perf_bench *b, void *array)
{
    return b->mirror ? b->mirror : array;
}

void perf_bench_put(const struct perf_bench *b, void *array, size_t bytes)
{
    if (b->mirror)
        perf_device_write(array, b->mirror, bytes);
}

void perf_bench_get(const struct perf_bench *b, const void *array, size_t bytes)
{
    if (b->mirror)
        perf_device_read(b->mirror, array, bytes);
}

static void open_mirror(struct perf_bench *b, size_t tokens)
{
    const size_t weights = tokens * (size_t)b->o->topk * sizeof(float);
    const size_t most = tokens > b->total ? tokens : b->total;
    const size_t rows = most * b->row_bytes;

    b->mirror = NULL;
    if (b->o->mem == PERF_MEM_DEVICE)
        b->mirror = perf_alloc(rows > weights ? rows : weights);
}

static void *zeroed(const struct perf_bench *b, size_t bytes)
{
    void *array = b->mirror ? perf_device_alloc(bytes) : perf_alloc(bytes);

    memset(perf_bench_host(b, array), 0, bytes);
    perf_bench_put(b, array, bytes);
    return array;
}

static void release(const struct perf_bench *b, void *array)
{
    if (b->mirror)
        perf_device_free(array);
    else
        free(array);
}

static uint64_t *cleared(size_t n)
{
    uint64_t *values = perf_alloc(n * sizeof(*values));

    memset(values, 0, n * sizeof(*values));
    return values;
}

void perf_bench_open(struct perf_bench *b, size_t tokens, bool rows_needed)
{
    b->places = perf_group_places(b->g);
    size_t cells = (size_t)b->places.n * (size_t)b->places.n;
    for (int r = 0; r < PERF_ROLES; r++) {
        b->traffic[r].there = cleared(cells);
        b->traffic[r].back = cleared(cells);
    }
    make_routing(b, tokens);
    describe_routing(b);
    b->rows = (struct perf_rows){
        .routing = &b->routing,
        .rank = b->g->rank,
        .hidden = b->o->hidden,
        .dtype = b->o->dtype,
    };
    b->row_bytes = b->o->hidden * shunt_dtype_size(b->o->dtype);
    b->total = perf_routing_rows(&b->routing, b->g->rank);
    open_mirror(b, tokens);
    b->x = zeroed(b, tokens * b->row_bytes);
    b->y = zeroed(b, tokens * b->row_bytes);
    b->in = b->out = NULL;
    b->dweight = NULL;
    if (b->o->op == PERF_BACKWARD)
        b->dweight = zeroed(b, tokens * (size_t)b->o->topk * sizeof(float));
    if (rows_needed) {
        b->in = zeroed(b, b->total * b->row_bytes);
        b->out = zeroed(b, b->total * b->row_bytes);
    }
}

void perf_bench_close(struct perf_bench *b)
{
    perf_routing_finish(&b->routing);
    release(b, b->x);
    release(b, b->y);
    release(b, b->in);
    release(b, b->out);
    release(b, b->dweight);
    free(b->mirror);
    for (int r = 0; r < PERF_ROLES; r++) {
        free(b->traffic[r].there);
        free(b->traffic[r].back);
    }
}
