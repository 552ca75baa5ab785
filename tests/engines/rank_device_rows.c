// SPDX-License-Identifier: Apache-2.0
/*
 * Tests rows from GPU to GPU: dispatch, and a gradient of combine that only
 * copies. The fake driver (cuda/fake_cuda.h) kills a process that accesses a
 * GPU's memory by its address. The calls must give the same bits as on the
 * host's memory, and the engine must copy exactly the expected number of bytes.
 * If all arguments are on GPUs, no memory of the host may be allocated. A rank
 * must close memory of other ranks before its owner frees it, in whatever order
 * objects end. The fake reports a violation.
 *
 * On a machine with a GPU, SHUNT_TEST_GPU=1 uses the real driver. Then only
 * cases that do not need the fake driver can run (rows).
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

#include "tests/engines/cuda/fake_cuda.h"
#include "tests/engines/places.h"
#include "tests/harness/rank_main.h"

enum { TOPK = 3, EXPERTS = 7, TOKENS = 25, MOST = 64 };

static const struct fake_cuda_control *fake;

struct setting {
    size_t hidden, align;
    enum shunt_dtype dtype;
    enum shunt_moe_wire wire;
    double capacity;
    int pad;
};

struct work {
    const struct rank *self;
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows in;
    size_t tokens, row;                /* number of tokens; bytes of a row */
    unsigned char *host_x, *host_rows; /* host_rows has a guard row at its
                                        * end */
    unsigned char *expected;
    unsigned char *device_x, *device_rows;
    size_t *to; /* (size) number of rows that this rank sends to each rank */
};

enum { X = 1, ROWS = 2 }; /* bits: the argument is on the device */

static size_t rows_bytes(const struct work *w)
{
    return w->in.total * w->row;
}

static size_t tokens_of(int rank)
{
    return rank == 1 ? 0 : (size_t)(TOKENS + 5 * rank);
}

static int32_t expert_of(int rank, size_t i)
{
    return i % 11 == 4 ? -1
                       : (int32_t)((i * 5 + i / 7 + (size_t)rank) % EXPERTS);
}

static int plan(struct work *w, const struct setting *s, size_t tokens)
{
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    int32_t index[MOST * TOPK];

    config.hidden = s->hidden;
    config.dtype = s->dtype;
    config.experts = EXPERTS;
    config.topk = TOPK;
    config.max_tokens = MOST;
    config.weights = SHUNT_MOE_PLAIN_SUM;
    config.wire = s->wire;
    config.row_align = s->align;
    config.capacity_factor = s->capacity;
    config.pad_to_capacity = s->pad;
    w->tokens = tokens;
    w->row = s->hidden * (s->dtype == SHUNT_F32 ? 4 : 2);
    if (!w->moe)
        CHECK_OK(w->self->comm,
                 shunt_moe_create(w->self->comm, &config, &w->moe));
    for (size_t i = 0; i < tokens * TOPK; i++)
        index[i] = expert_of(w->self->rank, i);
    CHECK_OK(w->self->comm,
             shunt_moe_plan_create(w->moe, index, NULL, tokens, &w->plan));
    shunt_moe_plan_rows(w->plan, &w->in, sizeof(w->in));
    return 0;
}

static void fill(unsigned char *to, size_t bytes, int seed)
{
    for (size_t i = 0; i < bytes; i++) /* values are finite in each type */
        to[i] = (unsigned char)((i * 37 + (size_t)seed * 11) % 61);
}

static int begin(const struct rank *self, struct work *w,
                 const struct setting *s)
{
    const size_t tokens = tokens_of(self->rank);
    int64_t *counts;

    *w = (struct work){.self = self};
    if (plan(w, s, tokens))
        return 1;
    w->host_x = malloc(tokens * w->row + 1);
    w->host_rows = malloc(rows_bytes(w) + w->row);
    w->expected = malloc(rows_bytes(w) + 1);
    w->device_x = place_device.take(tokens * w->row + 1);
    w->device_rows = place_device.take(rows_bytes(w) + w->row);
    fill(w->host_x, tokens * w->row, self->rank);
    place_device.write(w->device_x, w->host_x, tokens * w->row);
    CHECK_OK(self->comm,
             shunt_moe_dispatch(w->plan, w->host_x, w->expected, w->in.total));
    /* Exchange the numbers of rows that each rank receives from each source. */
    w->to = calloc((size_t)self->size, sizeof(*w->to));
    counts = calloc(2 * (size_t)self->size, sizeof(*counts));
    for (int r = 0; r < self->size; r++)
        for (int e = 0; e < w->in.local_experts; e++)
            counts[r] +=
                (int64_t)w->in.source_count[r * w->in.local_experts + e];
    CHECK_OK(self->comm, shunt_alltoall(self->comm, counts, counts + self->size,
                                        1, SHUNT_I64));
    for (int r = 0; r < self->size; r++)
        w->to[r] = (size_t)counts[self->size + r];
    free(counts);
    return 0;
}

static void end(struct work *w)
{
    shunt_moe_destroy(w->moe);
    free(w->host_x);
    free(w->host_rows);
    free(w->expected);
    free(w->to);
    place_device.give_back(w->device_x);
    place_device.give_back(w->device_rows);
}

static const void *x_of(const struct work *w, unsigned where)
{
    return where & X ? w->device_x : w->host_x;
}

static void *rows_of(const struct work *w, unsigned where)
{
    return where & ROWS ? w->device_rows : w->host_rows;
}

/* Overwrite the rows, and the guard row behind them. */
static void spoil(struct work *w)
{
    memset(w->host_rows, 0xbb, rows_bytes(w) + w->row);
    place_device.write(w->device_rows, w->host_rows, rows_bytes(w) + w->row);
}

static int check(struct work *w, unsigned where, const char *what)
{
    const size_t bytes = rows_bytes(w);

    if (where & ROWS)
        place_device.read(w->host_rows, w->device_rows, bytes + w->row);
    CHECK(!memcmp(w->host_rows, w->expected, bytes), "%s, %x on the device",
          what, where);
    for (size_t i = 0; i < w->row; i++)
        CHECK(w->host_rows[bytes + i] == 0xbb, "%s wrote behind the rows",
              what);
    return 0;
}

struct moved {
    uint64_t engine, device;
};

static struct moved moved(const struct rank *self)
{
    struct shunt_comm_stats stats = {0};

    (void)!shunt_comm_get_stats(self->comm, &stats, sizeof(stats));
    return (struct moved){stats.bytes_engine, stats.bytes_device};
}

/* Returns where a rank's arguments are in a round. Every rank can compute that.
 * In the first round all are on GPUs, in the second none, and then it
 * differs. */
static unsigned where_of(int round, int rank)
{
    return round == 0 ? X | ROWS
           : round == 1
               ? 0
               : ((unsigned)round * 0x9e5u + (unsigned)rank * 0x35u) >> 2 & 3;
}

static size_t gaps(const struct work *w)
{
    size_t rows = w->in.total;

    for (int i = 0; i < w->self->size * w->in.local_experts; i++)
        rows -= w->in.source_count[i];
    return rows;
}

/* Returns the bytes that the engine must copy in a call of this round. `reach`:
 * GPUs can access each other's memory. */
static struct moved moves(const struct work *w, int round, bool reach)
{
    const int self = w->self->rank;
    const unsigned mine = where_of(round, self);
    bool host = false;
    struct moved m = {0, 0};

    for (int r = 0; r < w->self->size; r++) {
        const unsigned theirs = where_of(round, r);
        const bool reached = reach || r == self;
        size_t in = 0;

        for (int e = 0; e < w->in.local_experts; e++)
            in += w->in.source_count[r * w->in.local_experts + e];
        if (mine & X && theirs & ROWS && reached)
            m.device += w->to[r] * w->row;
        else if (mine & X && w->to[r])
            host = true;
        if (!(mine & ROWS) || (r == self && mine & X))
            continue;
        if (theirs & X && reached)
            m.device += in * w->row;
        else
            m.engine += in * w->row;
    }
    m.engine += m.device + (host ? w->tokens * w->row : 0) +
                (mine & ROWS ? gaps(w) * w->row : 0);
    return m;
}

static const struct setting settings[] = {
    {37, 0, SHUNT_F32, SHUNT_MOE_WIRE_PAYLOAD, 0, 0},
    {24, 8, SHUNT_BF16, SHUNT_MOE_WIRE_PAYLOAD, 0, 0},
    {130, 0, SHUNT_BF16, SHUNT_MOE_WIRE_PAYLOAD, 0.8, 1},
    {130, 3, SHUNT_F32, SHUNT_MOE_WIRE_FP8, 0, 0},
};
enum { SETTINGS = sizeof(settings) / sizeof(*settings), ROUNDS = 7 };

static int rows_of_setting(const struct rank *self, const struct setting *s,
                           bool reach)
{
    struct work w;
    bool direct;

    if (begin(self, &w, s))
        return 1;
    direct = w.in.mode == SHUNT_MOE_DIRECT && s->wire == SHUNT_MOE_WIRE_PAYLOAD;
    for (int round = 0; round < ROUNDS; round++) {
        const unsigned where = where_of(round, self->rank);
        const struct moved m = moves(&w, round, reach);

        for (int call = 0; call < 2; call++) {
            const struct moved before = moved(self);
            struct moved now;

            spoil(&w);
            if (!call)
                CHECK_OK(self->comm,
                         shunt_moe_dispatch(w.plan, x_of(&w, where),
                                            rows_of(&w, where), w.in.total));
            else if (s->wire == SHUNT_MOE_WIRE_PAYLOAD)
                CHECK_OK(self->comm, shunt_moe_combine_backward(
                                         w.plan, x_of(&w, where), NULL,
                                         rows_of(&w, where), w.in.total, NULL));
            else
                continue;
            CHECK_RUN(check(&w, where, call ? "combine_backward" : "dispatch"));
            now = moved(self);
            now.engine -= before.engine;
            now.device -= before.device;
            CHECK(!direct || (now.engine == m.engine && now.device == m.device),
                  "round %d, %x: the engine moved %llu B, %llu between GPUs, "
                  "and not %llu, %llu",
                  round, where, (unsigned long long)now.engine,
                  (unsigned long long)now.device, (unsigned long long)m.engine,
                  (unsigned long long)m.device);
            CHECK(direct || !now.device, "rows from GPU to GPU in this mode");
        }
    }
    end(&w);
    return 0;
}

static int rows(const struct rank *self)
{
    for (int s = 0; s < SETTINGS; s++)
        CHECK_RUN(rows_of_setting(self, &settings[s], true));
    return 0;
}

/* If GPUs cannot access each other's memory (FAKE_CUDA), rows go through the
 * host and have the same bits. */
static int by_the_host(const struct rank *self)
{
    for (int s = 0; s < 2; s++)
        CHECK_RUN(rows_of_setting(self, &settings[s], false));
    return 0;
}

/* If all arguments are on GPUs, later calls allocate no memory and open no
 * handles. */
static int steady(const struct rank *self)
{
    unsigned long alloc = 0, opened = 0, memory = 0;
    struct work w;

    if (begin(self, &w, &settings[0]))
        return 1;
    for (int round = 0; round < 4; round++) {
        struct moved before, now;

        if (round == 2) {
            alloc = fake->calls("cuMemHostAlloc");
            opened = fake->calls("cuIpcOpenMemHandle_v2");
            memory = fake->calls("cuMemAlloc_v2");
        }
        spoil(&w);
        before = moved(self);
        CHECK_OK(self->comm, shunt_moe_dispatch(w.plan, w.device_x,
                                                w.device_rows, w.in.total));
        now = moved(self);
        CHECK_RUN(check(&w, ROWS, "dispatch"));
        CHECK(now.engine - before.engine == now.device - before.device,
              "something went through the host");
    }
    CHECK(alloc == fake->calls("cuMemHostAlloc") &&
              opened == fake->calls("cuIpcOpenMemHandle_v2") &&
              memory == fake->calls("cuMemAlloc_v2"),
          "later calls take memory");
    CHECK(opened <= (unsigned long)self->size - 1, "opened %lu times", opened);
    end(&w);
    return 0;
}

/* --- lifetimes --------------------------------------------------------------------- */

static int once(struct work *w)
{
    const struct moved m = moves(w, 0, true), before = moved(w->self);
    struct moved now;

    spoil(w);
    CHECK_OK(w->self->comm, shunt_moe_dispatch(w->plan, w->device_x,
                                               w->device_rows, w->in.total));
    now = moved(w->self);
    CHECK(w->in.mode != SHUNT_MOE_DIRECT ||
              now.device - before.device == m.device,
          "something went through the host");
    return check(w, ROWS, "dispatch");
}

/* Plans and exchanges are destroyed while requests are under way. Larger
 * buffers replace smaller ones, and exchanges follow each other. `strict`
 * checks that all memory is freed, and none while another process has it
 * open. */
static int lifetimes(const struct rank *self)
{
    for (int round = 0; round < 4; round++) {
        const struct setting s = {(size_t)(20 << round),  0, SHUNT_F32,
                                  SHUNT_MOE_WIRE_PAYLOAD, 0, 0};
        struct shunt_request *request;
        struct work w;

        if (begin(self, &w, &s))
            return 1;
        CHECK_RUN(once(&w));
        spoil(&w);
        CHECK_OK(self->comm,
                 shunt_moe_dispatch_start(w.plan, w.device_x, w.device_rows,
                                          w.in.total, &request));
        shunt_moe_plan_destroy(w.plan);
        if (round % 2)
            shunt_moe_destroy(w.moe);
        CHECK_OK(self->comm, shunt_wait(&request));
        CHECK_RUN(check(&w, ROWS, "dispatch of a plan that is gone"));
        end(&w);
    }
    return 0;
}

/* The communicator is destroyed first. Owners of memory then wait until the
 * other ranks have closed it. */
static int own_communicator(const struct rank *self)
{
    for (int round = 0; round < 3; round++) {
        struct shunt_comm *dup = NULL;
        struct rank inner = *self;
        struct work w;

        CHECK_OK(self->comm, shunt_comm_dup(self->comm, &dup));
        inner.comm = dup;
        if (begin(&inner, &w, &settings[0]))
            return 1;
        CHECK_RUN(once(&w));
        shunt_comm_destroy(dup);
        w.moe = NULL; /* destroyed with the communicator */
        end(&w);
    }
    return 0;
}

/* --- failures ---------------------------------------------------------------------- */

/* Make calls until rank 1 is killed. The error must name it, although its GPU's
 * memory is open here. With an argument, rank 1 kills itself. */
static int killed(const struct rank *self)
{
    enum shunt_status st = SHUNT_OK;
    struct work w;

    if (begin(self, &w, &settings[0]))
        return 1;
    for (int round = 0; !st; round++) {
        struct shunt_request *request;

        st = shunt_moe_dispatch_start(w.plan, w.device_x, w.device_rows,
                                      w.in.total, &request);
        if (round == 7 && self->argc && self->rank == 1)
            raise(SIGKILL);
        if (!st)
            st = shunt_wait(&request);
        if (round == 5)
            rank_say("in the loop");
    }
    CHECK(st == SHUNT_ERR_PEER &&
              strstr(shunt_last_error(self->comm), "rank 1"),
          "%s: %s", shunt_strerror(st), shunt_last_error(self->comm));
    end(&w);
    return 0;
}

/* Rank 0's GPU is lost after argv[0] operations. Rank 0 gets an error that says
 * so, and the other ranks get right rows or an error. Calls on the host's
 * memory still work. */
static int lost(const struct rank *self)
{
    unsigned char *expected[2], *x[2];
    struct work w;
    int errors = 0;

    if (begin(self, &w, &settings[0]))
        return 1;
    CHECK_RUN(once(&w));
    /* Alternate between two sets of tokens, so that rows left from the round
     * before are wrong. */
    expected[0] = w.expected;
    x[0] = w.device_x;
    expected[1] = malloc(rows_bytes(&w) + 1);
    x[1] = place_device.take(w.tokens * w.row + 1);
    fill(w.host_x, w.tokens * w.row, 23 + self->rank);
    place_device.write(x[1], w.host_x, w.tokens * w.row);
    CHECK_OK(self->comm,
             shunt_moe_dispatch(w.plan, w.host_x, expected[1], w.in.total));
    if (self->rank == 0)
        fake->lose(atoi(self->argv[0]), 719);
    for (int round = 0; round < 12; round++) {
        const char *text;
        enum shunt_status st;

        if (self->rank)
            spoil(&w);
        w.expected = expected[1 - round % 2];
        st = shunt_moe_dispatch(w.plan, x[1 - round % 2], w.device_rows,
                                w.in.total);
        text = shunt_last_error(self->comm);
        errors += st != SHUNT_OK;
        if (self->rank == 0)
            CHECK(!st || strstr(text, "CUDA_ERROR_LAUNCH_FAILED"), "%s: %s",
                  shunt_strerror(st), text);
        else
            CHECK(!st || (st == SHUNT_ERR_REMOTE && strstr(text, "rank 0")),
                  "%s: %s", shunt_strerror(st), text);
        if (!st && self->rank)
            CHECK_RUN(check(&w, ROWS, "beside a GPU that is lost"));
    }
    CHECK(errors, "no call failed");
    if (self->rank == 0)
        fake->repair(); /* so that its memory can be freed */
    w.expected = expected[1];
    memset(w.host_rows, 0xbb, rows_bytes(&w) + w.row);
    CHECK_OK(self->comm,
             shunt_moe_dispatch(w.plan, w.host_x, w.host_rows, w.in.total));
    CHECK_RUN(check(&w, 0, "after the loss"));
    w.expected = expected[0];
    free(expected[1]);
    place_device.give_back(x[1]);
    end(&w);
    return 0;
}

/* In a dispatch, the n-th call of the driver function argv[0] fails on rank 0,
 * for each n. Either rank 0 gets an error with the result's name, or the rows
 * arrive in another way. No rank waits forever. */
static int failing(const struct rank *self)
{
    for (int n = 1; n < 4; n++) {
        struct shunt_comm *dup = NULL;
        struct rank inner = *self;
        enum shunt_status st;
        struct work w;

        CHECK_OK(self->comm, shunt_comm_dup(self->comm, &dup));
        inner.comm = dup;
        if (begin(&inner, &w, &settings[0]))
            return 1;
        spoil(&w);
        if (self->rank == 0)
            fake->fail(self->argv[0], n, 2);
        st = shunt_moe_dispatch(w.plan, w.device_x, w.device_rows, w.in.total);
        fake->fail(self->argv[0], 0, 0);
        CHECK(!st || self->rank ||
                  strstr(shunt_last_error(dup), "CUDA_ERROR_OUT_OF_MEMORY"),
              "%s: %s", shunt_strerror(st), shunt_last_error(dup));
        CHECK(!st || !self->rank || st == SHUNT_ERR_REMOTE, "%s: %s",
              shunt_strerror(st), shunt_last_error(dup));
        if (!st)
            CHECK_RUN(check(&w, ROWS, self->argv[0]));
        /* Calls on the host's memory still work. An engine that has failed
         * stays failed. */
        memset(w.host_rows, 0xbb, rows_bytes(&w) + w.row);
        CHECK_OK(dup,
                 shunt_moe_dispatch(w.plan, w.host_x, w.host_rows, w.in.total));
        CHECK_RUN(check(&w, 0, "after it"));
        end(&w);
        shunt_comm_destroy(dup);
        if (st)
            break;
    }
    return 0;
}

/* Rank 0's GPU stops running operations. The call ends in bounded time with an
 * error that names the GPU. */
static int hangs(const struct rank *self)
{
    enum shunt_status st;
    struct work w;

    if (begin(self, &w, &settings[0]))
        return 1;
    CHECK_RUN(once(&w));
    if (self->rank == 0)
        fake->hold(1);
    for (int round = 0; round < 2; round++) {
        spoil(&w);
        st = shunt_moe_dispatch(w.plan, self->rank ? w.host_x : w.device_x,
                                self->rank ? w.host_rows : w.device_rows,
                                w.in.total);
        if (self->rank == 0)
            CHECK(st == (round ? SHUNT_ERR_UNSUPPORTED : SHUNT_ERR_TIMEOUT) &&
                      strstr(shunt_last_error(self->comm),
                             "GPU 0 (fake 0) has neither ended a copy"),
                  "%s: %s", shunt_strerror(st), shunt_last_error(self->comm));
        else
            CHECK(st == SHUNT_ERR_REMOTE, "%s: %s", shunt_strerror(st),
                  shunt_last_error(self->comm));
    }
    spoil(&w);
    CHECK_OK(self->comm,
             shunt_moe_dispatch(w.plan, w.host_x, w.host_rows, w.in.total));
    CHECK_RUN(check(&w, 0, "beside a GPU that hangs"));
    if (self->rank == 0)
        fake->hold(0);
    end(&w);
    return 0;
}

/* Ranks abort the communicator in the middle of a dispatch, and must not
 * hang. */
static int abandoned(const struct rank *self)
{
    struct shunt_request *request = NULL;
    struct work w;

    if (begin(self, &w, &settings[0]))
        return 1;
    CHECK_RUN(once(&w));
    (void)!shunt_barrier(self->comm); /* so that no rank aborts before another
                                       * one has made its calls */
    (void)!shunt_moe_dispatch_start(w.plan, w.device_x, w.device_rows,
                                    w.in.total, &request);
    shunt_comm_abort(self->comm);
    if (request)
        (void)!shunt_wait(&request);
    end(&w);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "rows", .run = rows},
    {.name = "lifetimes", .run = lifetimes},
    {.name = "own_communicator", .run = own_communicator},
    {.name = "abandoned", .run = abandoned, .breaks_comm = true},
    {.name = "by_the_host", .run = by_the_host, .no_threads = true},
    {.name = "steady", .run = steady, .no_threads = true},
    {.name = "killed", .run = killed, .breaks_comm = true, .no_threads = true},
    {.name = "lost", .run = lost, .no_threads = true},
    {.name = "failing", .run = failing, .no_threads = true},
    {.name = "hangs", .run = hangs, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    const char *settings_of = getenv("FAKE_CUDA"), *rank = getenv("RANK");
    char path[4096];
    void *driver;
    int result;

    setenv("SHUNT_ENGINE", "cuda", 0);
    setenv("FAKE_CUDA", "strict", 0);
    /* If there are several GPUs, each rank uses another one. */
    if (settings_of && strstr(settings_of, "devices=") && rank)
        setenv("SHUNT_CUDA_DEVICE", rank, 1);
    snprintf(path, sizeof(path), "%s/engines/cuda/libcuda.so.1",
             getenv("SHUNT_TEST_BIN") ? getenv("SHUNT_TEST_BIN") : ".");
    driver = dlopen(getenv("SHUNT_TEST_GPU") ? "libcuda.so.1" : path,
                    RTLD_NOW | RTLD_LOCAL);
    fake = driver ? dlsym(driver, FAKE_CUDA_CONTROL) : NULL;
    if (!driver || !places_begin("cuda")) {
        fprintf(stderr, "no CUDA driver: %s\n", dlerror());
        return 1;
    }
    result = rank_main(argc, argv, cases);
    places_end();
    return result;
}
