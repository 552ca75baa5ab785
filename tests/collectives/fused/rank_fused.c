// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of the tests of fused calls; model.h has the product and its right
 * result.
 *
 *     rank_fused shapes [SEED MOST]  every pair of rows and columns of a table
 *     rank_fused delays [SEED ROUNDS]  tiles take random time
 *     rank_fused interleaved [SEED ROUNDS]  several calls at once
 *     rank_fused lost                a rank is killed in a tile
 *     ...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/collectives/fused/model.h"

static uint64_t argument(const struct rank *self, int i, uint64_t otherwise)
{
    return self->argc > i ? strtoull(self->argv[i], NULL, 10) : otherwise;
}

/* Draw all fields of the shape except the rows and columns. */
static void draw(struct model_shape *s, struct random *r)
{
    static const size_t row_bytes[] = {0, 1, 12, 130, 300};

    s->kind = random_below(r, 2) ? GEMM_REDUCE_SCATTER : ALLGATHER_GEMM;
    s->row_bytes =
        s->kind == ALLGATHER_GEMM ? row_bytes[random_below(r, 5)] : 0;
    s->counts = (enum model_counts)random_below(r, 3);
    s->dtype = random_below(r, 2) ? SHUNT_F32 : SHUNT_BF16;
    s->alpha = random_below(r, 3) == 0;
    s->beta = random_below(r, 3) == 0;
    s->bias = random_below(r, 3) == 0;
    s->in_place = random_below(r, 2);
    s->gap = random_below(r, 2) ? random_below(r, 5) : 0;
}

static int run_blocking(const struct rank *self, const struct model_shape *s,
                        uint64_t seed)
{
    struct model m;

    CHECK_RUN(model_init(&m, self, s, seed));
    CHECK_OK(self->comm, model_call(&m, NULL));
    CHECK_RUN(model_check(&m));
    model_finish(&m);
    return 0;
}

static int run_tested(const struct rank *self, const struct model_shape *s,
                      uint64_t seed)
{
    struct shunt_request *request;
    enum shunt_status st;
    struct model m;

    CHECK_RUN(model_init(&m, self, s, seed));
    CHECK_OK(self->comm, model_call(&m, &request));
    do
        st = shunt_test(&request);
    while (st == SHUNT_IN_PROGRESS);
    CHECK_OK(self->comm, st);
    CHECK(!request, "the request is still there");
    CHECK_RUN(model_check(&m));
    model_finish(&m);
    return 0;
}

static int run_shapes(const struct rank *self)
{
    const size_t p = (size_t)self->size;
    const size_t rows[] = {0, 1, p - 1, p + 1, 7, 1024, 4099};
    const size_t cols[] = {0, 1, 63, 64, 1000};
    struct random r = {argument(self, 0, 1)};
    const size_t most = argument(self, 1, 4099);

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows) && rows[i] <= most; i++)
        for (size_t j = 0; j < sizeof(cols) / sizeof(*cols); j++)
            /* Each kind at least once; each just once if the product is larger
             * than 1e6 elements. The cases `parts` and `plain` have products
             * that are larger still. */
            for (int k = 0; k < (rows[i] * cols[j] > 1000000 ? 2 : 4) &&
                            rows[i] * cols[j] < 2000000;
                 k++) {
                struct model_shape s = {.rows = rows[i], .cols = cols[j]};

                do
                    draw(&s, &r);
                while (k < 2 && (int)s.kind != k);
                if (random_below(&r, 2))
                    CHECK_RUN(run_blocking(self, &s, random_next(&r)));
                else
                    CHECK_RUN(run_tested(self, &s, random_next(&r)));
            }
    return 0;
}

/* Results without an epilogue are written to `out` directly, without
 * scratch. */
static int run_plain(const struct rank *self)
{
    struct model_shape s = {.rows = 3000, .cols = 700, .dtype = SHUNT_F32};

    for (int kind = 0; kind < 2; kind++)
        for (int small = 0; small < 2; small++) {
            s.kind = (enum model_kind)kind;
            s.row_bytes = kind ? 512 : 0;
            s.cols = small ? 30 : 700;
            CHECK_RUN(run_blocking(self, &s, (uint64_t)(2 * kind + small)));
        }
    return 0;
}

/* In all-gather + GEMM each rank's product may have any number of columns. */
static int run_own_columns(const struct rank *self)
{
    static const size_t cols[] = {200, 0, 1, 2100};
    struct model_shape s = {.kind = ALLGATHER_GEMM,
                            .rows = 900,
                            .row_bytes = 640,
                            .dtype = SHUNT_BF16};

    s.cols = cols[self->rank % 4];
    CHECK_RUN(run_blocking(self, &s, 3));
    return run_tested(self, &s, 4);
}

static int run_delays(const struct rank *self)
{
    const size_t p = (size_t)self->size;
    const size_t some[] = {0, 1, p - 1, p + 1, 7, 1024, 4099};
    struct random r = {argument(self, 0, 7)};
    const uint64_t rounds = argument(self, 1, 100);

    for (uint64_t i = 0; i < rounds; i++) {
        struct model_shape s = {.rows = i % 2 ? random_below(&r, 600)
                                              : some[i / 2 % 7]};

        s.cols = random_below(&r, s.rows > 600 ? 200000 / s.rows : 600);
        draw(&s, &r);
        s.delays = 300;
        CHECK_RUN(run_blocking(self, &s, random_next(&r)));
    }
    return 0;
}

/* --- among other calls ------------------------------------------------------ */

static int run_interleaved(const struct rank *self)
{
    struct random r = {argument(self, 0, 11)};
    const uint64_t rounds = argument(self, 1, 8);
    enum { CALLS = 4 };

    for (uint64_t round = 0; round < rounds; round++) {
        struct shunt_request *request[CALLS], *other;
        int32_t one = self->rank, sum = -1;
        struct model m[CALLS];
        int order[CALLS];

        for (int i = 0; i < CALLS; i++) {
            struct model_shape s = {.rows = random_below(&r, 700),
                                    .cols = random_below(&r, 500)};

            draw(&s, &r);
            CHECK_RUN(model_init(&m[i], self, &s, random_next(&r)));
        }
        CHECK_OK(self->comm, model_call(&m[0], &request[0]));
        CHECK_OK(self->comm, shunt_barrier(self->comm));
        CHECK_OK(self->comm, model_call(&m[1], &request[1]));
        CHECK_OK(self->comm,
                 shunt_allreduce_start(self->comm, &one, &sum, 1, SHUNT_I32,
                                       SHUNT_SUM, &other));
        CHECK_OK(self->comm, model_call(&m[2], &request[2]));
        /* More calls than there are slots, while the tiles wait until their
         * call goes on. */
        for (int i = 0; i < 40; i++)
            CHECK_OK(self->comm, shunt_barrier(self->comm));
        CHECK_OK(self->comm, model_call(&m[3], &request[3]));
        /* Each rank finishes its calls in an order of its own. */
        struct random own = {random_next(&r) + (uint64_t)self->rank};
        for (int i = 0; i < CALLS; i++) {
            const int j = (int)random_below(&own, (uint64_t)i + 1);

            order[i] = order[j];
            order[j] = i;
        }
        for (int i = 0; i < CALLS; i++) {
            if (random_below(&own, 2) && request[order[i]]) {
                enum shunt_status st = shunt_test(&request[order[i]]);

                CHECK(st == SHUNT_IN_PROGRESS || st == SHUNT_OK, "%s",
                      rank_why(self->comm, st));
            }
            CHECK_OK(self->comm, shunt_wait(&request[order[i]]));
        }
        CHECK_OK(self->comm, shunt_wait(&other));
        CHECK(sum == self->size * (self->size - 1) / 2, "sum %d", sum);
        for (int i = 0; i < CALLS; i++) {
            CHECK_RUN(model_check(&m[i]));
            model_finish(&m[i]);
        }
    }
    return 0;
}

/* The tile function runs only inside calls with its own request. */
static int run_only_there(const struct rank *self)
{
    const struct model_shape s = {.kind = ALLGATHER_GEMM,
                                  .rows = 400,
                                  .cols = 300,
                                  .row_bytes = 900,
                                  .dtype = SHUNT_F32};
    struct shunt_request *request, *other;
    enum shunt_status st;
    struct model m;

    CHECK_RUN(model_init(&m, self, &s, 5));
    CHECK_OK(self->comm, model_call(&m, &request));
    CHECK(m.tiles == 0, "%zu tiles in the start", m.tiles);
    for (int i = 0; i < 30; i++)
        CHECK_OK(self->comm, shunt_barrier(self->comm));
    CHECK_OK(self->comm, shunt_barrier_start(self->comm, &other));
    CHECK_OK(self->comm, shunt_wait(&other));
    CHECK(m.tiles == 0, "%zu tiles in other calls", m.tiles);
    for (size_t i = 0; i < 3; i++) {
        st = shunt_test(&request);
        CHECK(m.tiles <= i + 1, "%zu tiles in %zu tests", m.tiles, i + 1);
        CHECK(st == SHUNT_OK || st == SHUNT_IN_PROGRESS, "%s",
              rank_why(self->comm, st));
    }
    CHECK_OK(self->comm, shunt_wait(&request));
    CHECK_RUN(model_check(&m));
    model_finish(&m);
    return 0;
}

/* The number of operations of a call: one for the agreement, and one for each
 * panel or chunk. With SHUNT_FUSED=off, or auto on one node, one operation
 * moves all. But on one node each panel of 16 MiB has one. A call of one
 * operation and of at most 1 MiB has no agreement, unless it computes its own
 * rows before the others' rows arrive. The numbers in the table were computed
 * by hand from docs/fused.md. */
static int run_parts(const struct rank *self)
{
    static const struct {
        struct model_shape shape;
        uint64_t parts;   /* on two ranks, each on its own node */
        uint64_t of_node; /* on two ranks of one node, if more than 1 */
    } table[] = {
        /* 32 KiB of each rank's 64 rows are 128 columns: at most 8 panels */
        {{.kind = GEMM_REDUCE_SCATTER, .rows = 128, .cols = 1024}, 8, 0},
        /* 63 columns, or 16 KiB for each panel, are not worth two panels */
        {{.kind = GEMM_REDUCE_SCATTER, .rows = 4096, .cols = 63}, 1, 0},
        {{.kind = GEMM_REDUCE_SCATTER, .rows = 8, .cols = 1024}, 1, 0},
        /* 1000 / 64 = 15 panels of 67 columns; rounded up to 128 columns: 8
         * panels */
        {{.kind = GEMM_REDUCE_SCATTER, .rows = 4099, .cols = 1000}, 8, 0},
        /* 16 MiB of 9000 rows are 466 columns; rounded down to 448, 900 columns
         * are three panels */
        {{.kind = GEMM_REDUCE_SCATTER, .rows = 9000, .cols = 900}, 8, 3},
        {{.kind = GEMM_REDUCE_SCATTER, .rows = 512, .cols = 4096}, 32, 0},
        /* a chunk has at least 64 rows, and a rank has 512 */
        {{.kind = ALLGATHER_GEMM, .rows = 1024, .cols = 3, .row_bytes = 4096},
         8,
         0},
        /* a chunk has at least 32 KiB, and a rank has 350 KiB */
        {{.kind = ALLGATHER_GEMM, .rows = 1024, .cols = 3, .row_bytes = 700},
         8,
         0},
        {{.kind = ALLGATHER_GEMM, .rows = 1024, .cols = 3, .row_bytes = 200},
         3,
         0},
        {{.kind = ALLGATHER_GEMM, .rows = 1024, .cols = 3, .row_bytes = 12},
         1,
         0},
    };
    const bool apart = !strcmp(getenv("SHUNT_FUSED"), "always");

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct shunt_comm_stats before, after;
        struct model_shape s = table[i].shape;
        const bool node = shunt_comm_nodes(self->comm) == 1;
        const uint64_t on_node = s.kind == ALLGATHER_GEMM && apart
                                     ? table[i].parts
                                 : table[i].of_node ? table[i].of_node
                                                    : 1;
        const uint64_t parts = node ? on_node : apart ? table[i].parts : 1;
        /* True if the product waits for the data of all ranks
         * (worthwhile.h). */
        const bool waits = node || !apart || s.kind == GEMM_REDUCE_SCATTER;
        const bool small =
            waits &&
            s.rows * (s.row_bytes ? s.row_bytes : s.cols * sizeof(float)) <=
                1 << 20;
        struct model m;

        s.dtype = SHUNT_F32;
        CHECK_RUN(model_init(&m, self, &s, i));
        CHECK_OK(self->comm,
                 shunt_comm_get_stats(self->comm, &before, sizeof(before)));
        CHECK_OK(self->comm, model_call(&m, NULL));
        CHECK_OK(self->comm,
                 shunt_comm_get_stats(self->comm, &after, sizeof(after)));
        CHECK(after.operations - before.operations ==
                  parts + !(parts == 1 && small),
              "shape %zu: %llu operations", i,
              (unsigned long long)(after.operations - before.operations));
        CHECK_RUN(model_check(&m));
        model_finish(&m);
    }
    return 0;
}

/* --- wrong calls ------------------------------------------------------------ */

/* A change of one rank's arguments that makes the call wrong. */
struct mistake {
    const char *text; /* in the error of that rank */
    void (*make)(struct model *m);
};

#define BOTH(m, field, value)                  \
    do {                                       \
        if ((m)->shape.kind == ALLGATHER_GEMM) \
            (m)->args.ag.field = (value);      \
        else                                   \
            (m)->args.rs.field = (value);      \
    } while (0)

static void no_size(struct model *m)
{
    BOTH(m, size, 0);
}

static void future_field(struct model *m)
{
    BOTH(m, reserved, 1);
}

static void no_tile(struct model *m)
{
    BOTH(m, tile, NULL);
}

static void no_out(struct model *m)
{
    BOTH(m, out, NULL);
}

static void odd_out(struct model *m)
{
    BOTH(m, out, (char *)m->out + 1);
}

static void short_ld(struct model *m)
{
    BOTH(m, ld, 3);
}

static void huge_ld(struct model *m)
{
    BOTH(m, ld, SIZE_MAX / 8);
}

static void bad_dtype(struct model *m)
{
    BOTH(m, dtype, SHUNT_F16);
}

static void bad_counts(struct model *m)
{
    m->counts[0]++;
    BOTH(m, counts, m->counts);
}

static void overflowing_counts(struct model *m)
{
    m->counts[0] = m->counts[1] = SIZE_MAX - 1;
    BOTH(m, counts, m->counts);
}

static void huge(struct model *m)
{
    if (m->shape.kind == ALLGATHER_GEMM)
        m->args.ag.row_bytes = SIZE_MAX / 4;
    else
        m->args.rs.cols = SIZE_MAX / 16;
}

static const struct mistake mistakes[] = {
    {"args->size is 0", no_size},
    {"update the library", future_field},
    {"tile is NULL", no_tile},
    {"out is NULL", no_out},
    {"out is not aligned", odd_out},
    {"ld is 3", short_ld},
    {"do not fit into memory", huge_ld},
    {"out is f32 or bf16", bad_dtype},
    {"the sum of counts is", bad_counts},
    {"counts overflows", overflowing_counts},
    {"not fit into memory", huge},
};

static const struct model_shape of_mistakes[] = {
    {.kind = GEMM_REDUCE_SCATTER, .rows = 40, .cols = 20, .dtype = SHUNT_F32},
    {.kind = ALLGATHER_GEMM,
     .rows = 40,
     .cols = 20,
     .row_bytes = 16,
     .dtype = SHUNT_F32},
};

static const char *const names[] = {"gemm_reduce_scatter: ",
                                    "allgather_gemm: "};

static int says(const struct rank *self, const char *text)
{
    const char *said = shunt_last_error(self->comm);

    CHECK(strstr(said, text), "no '%s' in '%s'", text, said);
    return 0;
}

static int refuse(const struct rank *self, int kind, const struct mistake *bad,
                  int victim, bool start)
{
    struct shunt_request *request;
    char culprit[32];
    struct model m;

    snprintf(culprit, sizeof(culprit), "rank %d", victim);
    CHECK_RUN(model_init(&m, self, &of_mistakes[kind], 9));
    if (self->rank == victim)
        bad->make(&m);
    CHECK_STATUS(self->comm, model_call(&m, start ? &request : NULL),
                 self->rank == victim ? SHUNT_ERR_INVALID : SHUNT_ERR_REMOTE);
    CHECK(!start || !request, "a request of a refused call");
    CHECK_RUN(says(self, names[kind]));
    CHECK_RUN(says(self, bad->text));
    if (self->rank != victim)
        CHECK_RUN(says(self, culprit));
    CHECK_RUN(model_untouched(&m));
    model_finish(&m);
    return run_blocking(self, &of_mistakes[kind], 10);
}

static int run_refusals(const struct rank *self)
{
    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < sizeof(mistakes) / sizeof(*mistakes); i++)
            CHECK_RUN(
                refuse(self, kind, &mistakes[i], (int)i % self->size, i % 2));
    return 0;
}

static int run_null(const struct rank *self)
{
    enum shunt_status want =
        self->rank == 1 ? SHUNT_ERR_INVALID : SHUNT_ERR_REMOTE;
    struct shunt_request *request;
    struct model m;

    CHECK_STATUS(NULL, shunt_gemm_reduce_scatter(NULL, NULL),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(NULL, shunt_allgather_gemm(NULL, NULL), SHUNT_ERR_INVALID);
    for (int kind = 0; kind < 2; kind++) {
        CHECK_RUN(model_init(&m, self, &of_mistakes[kind], 9));
        if (self->rank == 1 && kind)
            CHECK_STATUS(self->comm, shunt_allgather_gemm(self->comm, NULL),
                         want);
        else if (self->rank == 1)
            CHECK_STATUS(self->comm,
                         shunt_gemm_reduce_scatter(self->comm, NULL), want);
        else
            CHECK_STATUS(self->comm, model_call(&m, &request), want);
        CHECK_RUN(says(self, "args is NULL"));
        if (self->rank != 1)
            CHECK_STATUS(self->comm, model_call(&m, &request), want);
        else if (kind)
            CHECK_STATUS(
                self->comm,
                shunt_allgather_gemm_start(self->comm, &m.args.ag, NULL), want);
        else
            CHECK_STATUS(
                self->comm,
                shunt_gemm_reduce_scatter_start(self->comm, &m.args.rs, NULL),
                want);
        CHECK_RUN(says(self, "request is NULL"));
        CHECK_RUN(model_untouched(&m));
        model_finish(&m);
    }
    return run_blocking(self, &of_mistakes[0], 10);
}

static void more_rows(struct model *m)
{
    BOTH(m, rows, m->shape.rows + 1);
}

static void other_dtype(struct model *m)
{
    BOTH(m, dtype, SHUNT_BF16);
}

static void other_counts(struct model *m)
{
    m->counts[0]--;
    m->counts[1]++;
    BOTH(m, counts, m->counts);
}

static void other_size(struct model *m)
{
    if (m->shape.kind == ALLGATHER_GEMM)
        m->args.ag.row_bytes--;
    else
        m->args.rs.cols--;
}

static int run_mismatches(const struct rank *self)
{
    static const struct mistake all[] = {
        {"rows 4", more_rows},
        {"dtype ", other_dtype},
        {"counts", other_counts},
        {"", other_size},
    };
    static const char *const sizes[] = {"cols ", "row_bytes "};

    for (int kind = 0; kind < 2; kind++)
        for (size_t i = 0; i < 2 * sizeof(all) / sizeof(*all); i++) {
            const struct mistake *bad = &all[i / 2];
            struct model_shape s = of_mistakes[kind];
            struct model m;
            char culprit[32];

            if (i % 2) { /* too large for a control message */
                s.cols *= 100;
                s.row_bytes *= 200;
            }
            CHECK_RUN(model_init(&m, self, &s, 9));
            if (self->rank == 1) {
                m.args.rs.size = sizeof(m.args.rs);
                if (kind)
                    m.args.ag.size = sizeof(m.args.ag);
                bad->make(&m);
            }
            CHECK_STATUS(self->comm, model_call(&m, NULL), SHUNT_ERR_MISMATCH);
            snprintf(culprit, sizeof(culprit), "rank %d has",
                     self->rank == 1 ? 0 : 1);
            CHECK_RUN(says(self, names[kind]));
            CHECK_RUN(says(self, culprit));
            CHECK_RUN(says(self, bad->text[0] ? bad->text : sizes[kind]));
            CHECK_RUN(model_untouched(&m));
            model_finish(&m);
            CHECK_RUN(run_blocking(self, &s, 10));
        }
    return 0;
}

/* One rank makes another call. Each rank's error names the call of the other
 * rank. */
static int run_other_call(const struct rank *self)
{
    struct model m;

    CHECK_RUN(model_init(&m, self, &of_mistakes[self->rank == 1], 9));
    CHECK_STATUS(self->comm, model_call(&m, NULL), SHUNT_ERR_MISMATCH);
    CHECK_RUN(says(self, "gemm_reduce_scatter"));
    CHECK_RUN(says(self, "allgather_gemm"));
    CHECK_RUN(model_untouched(&m));
    model_finish(&m);
    return run_blocking(self, &of_mistakes[1], 10);
}

/* A small blocking call needs no agreement, but one that is started does. If
 * some ranks start theirs, all ranks notice and agree. */
static int run_mixed(const struct rank *self)
{
    for (int kind = 0; kind < 2; kind++)
        for (int round = 0; round < 3; round++) {
            struct shunt_request *request;
            const bool start = (self->rank + round) % self->size == 0;
            struct model m;

            CHECK_RUN(model_init(&m, self, &of_mistakes[kind], 9));
            CHECK_OK(self->comm, model_call(&m, start ? &request : NULL));
            if (start)
                CHECK_OK(self->comm, shunt_wait(&request));
            /* an element may have been computed twice */
            memset(m.covered, 1, m.shape.rows * m.shape.cols);
            m.disordered = 0;
            CHECK_RUN(model_check(&m));
            model_finish(&m);
        }
    return 0;
}

/* --- lost ranks, destroyed communicators ---------------------------------- */

/* Rank 1 is killed in a tile. Argument 0 is the number of the tile. */
static int run_lost(const struct rank *self)
{
    struct model_shape s = {.kind = GEMM_REDUCE_SCATTER,
                            .rows = 900,
                            .cols = 900,
                            .dtype = SHUNT_BF16};
    enum shunt_status st;
    struct model m;

    if (argument(self, 1, 0)) {
        s.kind = ALLGATHER_GEMM;
        s.row_bytes = 4096;
        s.cols = 3000; /* three tiles side by side */
    }
    CHECK_RUN(model_init(&m, self, &s, 9));
    if (self->rank == 1)
        m.dies_at = (int)argument(self, 0, 1);
    st = model_call(&m, NULL);
    /* Rank 1 may have sent all of its data before it was killed. */
    if (!st && s.kind == ALLGATHER_GEMM) {
        CHECK_RUN(model_check(&m));
        st = shunt_barrier(self->comm);
    }
    CHECK(st == SHUNT_ERR_PEER, "%s", rank_why(self->comm, st));
    CHECK_RUN(says(self, "rank 1"));
    model_finish(&m);
    return 0;
}

/* Destroying a communicator ends its requests. */
static int run_destroyed(const struct rank *self)
{
    struct model_shape s = {.rows = 500, .cols = 300, .dtype = SHUNT_BF16};

    for (int kind = 0; kind < 2; kind++) {
        struct shunt_request *request;
        struct rank there = *self;
        struct model m;

        s.kind = (enum model_kind)kind;
        s.row_bytes = kind ? 900 : 0;
        CHECK_OK(self->comm, shunt_comm_dup(self->comm, &there.comm));
        CHECK_RUN(model_init(&m, &there, &s, 9));
        CHECK_OK(there.comm, model_call(&m, &request));
        CHECK_OK(there.comm, shunt_comm_finish(there.comm));
        shunt_comm_destroy(there.comm);
        CHECK_STATUS(NULL, kind ? shunt_test(&request) : shunt_wait(&request),
                     SHUNT_ERR_INVALID);
        CHECK(!request, "the request is still there");
        CHECK_STATUS(NULL, model_call(&m, &request), SHUNT_ERR_INVALID);
        model_finish(&m);
    }
    return 0;
}

static const struct rank_case cases[] = {
    {"shapes", run_shapes, .timeout_s = 240},
    {"plain", run_plain, .min_ranks = 1},
    {"own_columns", run_own_columns, .min_ranks = 1},
    {"delays", run_delays, .timeout_s = 120},
    {"interleaved", run_interleaved, .timeout_s = 120},
    {"only_there", run_only_there, .min_ranks = 1},
    {"parts", run_parts, .min_ranks = 2, .max_ranks = 2},
    {"refusals", run_refusals, .min_ranks = 2},
    {"null", run_null, .min_ranks = 2},
    {"mismatches", run_mismatches, .min_ranks = 2},
    {"other_call", run_other_call, .min_ranks = 2},
    {"mixed", run_mixed, .min_ranks = 2},
    {"lost", run_lost, .min_ranks = 2, .breaks_comm = true, .no_threads = true},
    {"destroyed", run_destroyed, .min_ranks = 1},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    /* The parts of a product are sent separately, even if links are fast. */
    setenv("SHUNT_FUSED", "always", 0);
    return rank_main(argc, argv, cases);
}
