// SPDX-License-Identifier: Apache-2.0
/*
 * Tests calls on memory of a device, with the fake driver (cuda/fake_cuda.h),
 * where a process that accesses such memory by its address is killed. Dispatch,
 * combine and their gradients must give the same bits as on the host's memory.
 * All other calls must refuse such memory.
 *
 * On a machine with a GPU, SHUNT_TEST_GPU=1 uses the real driver.
 */
#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

#include "tests/engines/cuda/fake_cuda.h"
#include "tests/engines/places.h"
#include "tests/harness/rank_main.h"

enum { HIDDEN = 37, TOPK = 2, EXPERTS = 7, TOKENS = 11 };

static const struct fake_cuda_control *fake;

/* The arguments of all four calls. */
enum argument {
    X,
    ROWS,
    OUT,
    BIAS,
    Y,
    DY,
    DOUT,
    DWEIGHT,
    DROWS,
    DX,
    ARGUMENTS
};

struct work {
    const struct rank *self;
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    int parts;    /* number of parts of the plan */
    size_t total; /* rows that this rank receives */
    size_t bytes[ARGUMENTS];
    unsigned char *host[ARGUMENTS];
    unsigned char *expected[ARGUMENTS];
    unsigned char *device[ARGUMENTS];
};

static bool is_result(int a)
{
    return a == ROWS || a == Y || a == DOUT || a == DWEIGHT || a == DX;
}

static void fill(float *to, size_t count, int seed)
{
    for (size_t i = 0; i < count; i++)
        to[i] = (float)((i * 2654435761u + (unsigned)seed * 40503u) % 2003) /
                    64.0f -
                15.0f;
}

static int plan(struct work *w)
{
    const size_t tokens = (size_t)(TOKENS + 3 * w->self->rank);
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    int32_t index[(TOKENS + 30) * TOPK];
    float weight[(TOKENS + 30) * TOPK];
    struct shunt_moe_rows rows;

    config.hidden = HIDDEN;
    config.dtype = SHUNT_F32;
    config.experts = EXPERTS;
    config.topk = TOPK;
    config.max_tokens = TOKENS + 30;
    config.weights = SHUNT_MOE_APPLY_WEIGHTS;
    config.row_align = 4;
    CHECK_OK(w->self->comm, shunt_moe_create(w->self->comm, &config, &w->moe));
    for (size_t i = 0; i < tokens * TOPK; i++)
        index[i] = (int32_t)((i * 5 + (size_t)w->self->rank) % EXPERTS);
    fill(weight, tokens * TOPK, 77);
    CHECK_OK(w->self->comm,
             shunt_moe_plan_create_parts(w->moe, index, weight, tokens,
                                         w->parts, &w->plan));
    shunt_moe_plan_rows(w->plan, &rows, sizeof(rows));
    w->total = rows.total;
    for (int a = 0; a < ARGUMENTS; a++) {
        const size_t n = a == DWEIGHT ? TOPK : HIDDEN;
        const bool by_rows = a == ROWS || a == OUT || a == DOUT || a == DROWS;

        w->bytes[a] = (by_rows ? w->total : tokens) * n * sizeof(float);
    }
    return 0;
}

static int begin_parts(const struct rank *self, struct work *w, int parts)
{
    *w = (struct work){.self = self, .parts = parts};
    if (plan(w))
        return 1;
    for (int a = 0; a < ARGUMENTS; a++) {
        w->host[a] = calloc(1, w->bytes[a] + 1);
        w->expected[a] = malloc(w->bytes[a] + 1);
        w->device[a] = place_device.take(w->bytes[a] + 1);
        if (!is_result(a))
            fill((float *)(void *)w->host[a], w->bytes[a] / sizeof(float),
                 a * 10 + self->rank);
    }
    return 0;
}

static int begin(const struct rank *self, struct work *w)
{
    return begin_parts(self, w, 1);
}

static void end(struct work *w)
{
    shunt_moe_destroy(w->moe);
    for (int a = 0; a < ARGUMENTS; a++) {
        free(w->host[a]);
        free(w->expected[a]);
        place_device.give_back(w->device[a]);
    }
}

/* Returns argument `a`: on the device if bit `a` of `where` is set, and
 * otherwise on the host. */
static void *at(const struct work *w, unsigned where, int a)
{
    return where >> a & 1 ? w->device[a] : w->host[a];
}

static enum shunt_status start(struct work *w, int call, unsigned where,
                               struct shunt_request **request)
{
    switch (call) {
    case 0:
        return shunt_moe_dispatch_start(w->plan, at(w, where, X),
                                        at(w, where, ROWS), w->total, request);
    case 1:
        return shunt_moe_combine_start(w->plan, at(w, where, OUT),
                                       at(w, where, BIAS), at(w, where, Y),
                                       request);
    case 2:
        return shunt_moe_combine_backward_start(
            w->plan, at(w, where, DY), at(w, where, OUT), at(w, where, DOUT),
            w->total, at(w, where, DWEIGHT), request);
    default:
        return shunt_moe_dispatch_backward_start(w->plan, at(w, where, DROWS),
                                                 at(w, where, DX), request);
    }
}

static enum shunt_status start_part(struct work *w, int call, int part,
                                    unsigned where,
                                    struct shunt_request **request)
{
    switch (call) {
    case 0:
        return shunt_moe_dispatch_part_start(w->plan, part, at(w, where, X),
                                             at(w, where, ROWS), w->total,
                                             request);
    case 1:
        return shunt_moe_combine_part_start(w->plan, part, at(w, where, OUT),
                                            at(w, where, BIAS), at(w, where, Y),
                                            request);
    case 2:
        return shunt_moe_combine_backward_part_start(
            w->plan, part, at(w, where, DY), at(w, where, OUT),
            at(w, where, DOUT), w->total, at(w, where, DWEIGHT), request);
    default:
        return shunt_moe_dispatch_backward_part_start(
            w->plan, part, at(w, where, DROWS), at(w, where, DX), request);
    }
}

static enum shunt_status call_now(struct work *w, int call, unsigned where)
{
    switch (call) {
    case 0:
        return shunt_moe_dispatch(w->plan, at(w, where, X), at(w, where, ROWS),
                                  w->total);
    case 1:
        return shunt_moe_combine(w->plan, at(w, where, OUT), at(w, where, BIAS),
                                 at(w, where, Y));
    case 2:
        return shunt_moe_combine_backward(w->plan, at(w, where, DY),
                                          at(w, where, OUT), at(w, where, DOUT),
                                          w->total, at(w, where, DWEIGHT));
    default:
        return shunt_moe_dispatch_backward(w->plan, at(w, where, DROWS),
                                           at(w, where, DX));
    }
}

/* Copy the inputs to the device. Overwrite the results, here and on the
 * device. */
static void prepare(struct work *w)
{
    for (int a = 0; a < ARGUMENTS; a++) {
        if (is_result(a))
            memset(w->host[a], 0xbb, w->bytes[a]);
        place_device.write(w->device[a], w->host[a], w->bytes[a]);
    }
}

static int check(struct work *w, unsigned where, const char *what)
{
    for (int a = 0; a < ARGUMENTS; a++) {
        if (!is_result(a))
            continue;
        if (where >> a & 1)
            place_device.read(w->host[a], w->device[a], w->bytes[a]);
        CHECK(!memcmp(w->host[a], w->expected[a], w->bytes[a]),
              "%s: argument %d, arguments %x on the device", what, a, where);
    }
    return 0;
}

/* Compute the expected results, with all arguments on the host. */
static int expect(struct work *w)
{
    for (int call = 0; call < 4; call++)
        CHECK_OK(w->self->comm, call_now(w, call, 0));
    for (int a = 0; a < ARGUMENTS; a++)
        memcpy(w->expected[a], w->host[a], w->bytes[a]);
    return 0;
}

static uint64_t engine_bytes(const struct rank *self)
{
    struct shunt_comm_stats stats;

    return shunt_comm_get_stats(self->comm, &stats, sizeof(stats))
               ? 0
               : stats.bytes_engine;
}

/* Returns the bytes of those arguments of a call that are on the device.
 * Dispatch may copy rows directly between devices instead:
 * rank_device_rows.c. */
static uint64_t staged_bytes(const struct work *w, unsigned where, int call)
{
    static const unsigned of[] = {
        1u << X | 1u << ROWS, 1u << OUT | 1u << BIAS | 1u << Y,
        1u << DY | 1u << OUT | 1u << DOUT | 1u << DWEIGHT,
        1u << DROWS | 1u << DX};
    uint64_t bytes = 0;

    for (int a = 0; a < ARGUMENTS; a++)
        bytes += (where & of[call]) >> a & 1 ? w->bytes[a] : 0;
    return bytes;
}

/* The set of arguments on the device differs between ranks and rounds. */
static int same_bits(const struct rank *self)
{
    struct shunt_moe_rows in;
    struct work w;

    if (begin(self, &w) || expect(&w))
        return 1;
    shunt_moe_plan_rows(w.plan, &in, sizeof(in));
    for (unsigned round = 0; round < 8; round++) {
        const unsigned where =
            round ? (round * 0x9e37u + (unsigned)self->rank * 0x1b5u) & 0x3ff
                  : 0x3ff;

        prepare(&w);
        for (int call = 0; call < 4; call++) {
            const uint64_t before = engine_bytes(self);
            const uint64_t bytes = staged_bytes(&w, where, call);

            CHECK_OK(self->comm, call_now(&w, call, where));
            CHECK((!call && in.mode == SHUNT_MOE_DIRECT) ||
                      engine_bytes(self) - before == bytes,
                  "call %d: the engine moved %llu B of %llu", call,
                  (unsigned long long)(engine_bytes(self) - before),
                  (unsigned long long)bytes);
        }
        CHECK_RUN(check(&w, where, "blocking"));
    }
    end(&w);
    return 0;
}

/* The calls of one plan that can be under way together. Combine and its
 * gradient cannot, because both use `out`, which is not a window. */
static const int together[] = {0, 1, 3};

/* Start these calls at once, and a collective during them. Wait in the opposite
 * order, in some rounds by shunt_test(). */
static int started(const struct rank *self)
{
    const unsigned where = self->rank % 2 ? 0x3ff : 0x155;
    struct shunt_request *request[4], *sum;
    int64_t one = 1, all = 0;
    struct work w;

    if (begin(self, &w) || expect(&w))
        return 1;
    for (int round = 0; round < 5; round++) {
        prepare(&w);
        for (int i = 0; i < 3; i++)
            CHECK_OK(self->comm,
                     start(&w, together[i], where, &request[together[i]]));
        CHECK_OK(self->comm, shunt_allreduce_start(self->comm, &one, &all, 1,
                                                   SHUNT_I64, SHUNT_SUM, &sum));
        CHECK_OK(self->comm, shunt_wait(&sum));
        CHECK(all == self->size, "the sum is %lld", (long long)all);
        for (int i = 2; i >= 0; i--) {
            struct shunt_request **r = &request[together[i]];
            enum shunt_status st = SHUNT_IN_PROGRESS;

            while (round % 2 && st == SHUNT_IN_PROGRESS)
                st = shunt_test(r);
            CHECK_OK(self->comm, shunt_wait(r));
        }
        CHECK_OK(self->comm, start(&w, 2, where, &request[2]));
        CHECK_OK(self->comm, shunt_wait(&request[2]));
        CHECK_RUN(check(&w, where, "started"));
    }
    end(&w);
    return 0;
}

/* Make each call in parts, which are under way at once or one after the other.
 * Each part must write only its own tokens and rows. */
static int in_parts(const struct rank *self)
{
    enum { PARTS = 4 };
    struct work w;

    if (begin_parts(self, &w, PARTS) || expect(&w))
        return 1;
    for (unsigned round = 0; round < 4; round++) {
        const unsigned where =
            round ? (round * 0x5e37u + (unsigned)self->rank * 0x1b5u) & 0x3ff
                  : 0x3ff;

        prepare(&w);
        for (int call = 0; call < 4; call++) {
            struct shunt_request *request[PARTS];

            for (int p = 0; p < PARTS; p++) {
                CHECK_OK(self->comm,
                         start_part(&w, call, p, where, &request[p]));
                if (round % 2)
                    CHECK_OK(self->comm, shunt_wait(&request[p]));
            }
            for (int p = PARTS; p-- > 0 && round % 2 == 0;)
                CHECK_OK(self->comm, shunt_wait(&request[p]));
        }
        CHECK_RUN(check(&w, where, "in parts"));
    }
    end(&w);
    return 0;
}

/* Results in place: dout overwrites out, and y overwrites the bias. */
static int in_place(const struct rank *self)
{
    struct work w;

    if (begin(self, &w))
        return 1;
    CHECK_OK(self->comm, shunt_moe_combine(w.plan, w.host[OUT], w.host[BIAS],
                                           w.expected[Y]));
    CHECK_OK(self->comm, shunt_moe_combine_backward(
                             w.plan, w.host[DY], w.host[OUT], w.expected[DOUT],
                             w.total, (float *)(void *)w.expected[DWEIGHT]));
    prepare(&w);
    CHECK_OK(self->comm, shunt_moe_combine(w.plan, w.device[OUT],
                                           w.device[BIAS], w.device[BIAS]));
    CHECK_OK(self->comm, shunt_moe_combine_backward(
                             w.plan, w.device[DY], w.device[OUT], w.device[OUT],
                             w.total, (float *)(void *)w.device[DWEIGHT]));
    place_device.read(w.host[Y], w.device[BIAS], w.bytes[Y]);
    place_device.read(w.host[DOUT], w.device[OUT], w.bytes[DOUT]);
    CHECK(!memcmp(w.host[Y], w.expected[Y], w.bytes[Y]), "y");
    CHECK(!memcmp(w.host[DOUT], w.expected[DOUT], w.bytes[DOUT]), "dout");
    end(&w);
    return 0;
}

/* Check that rank 0, whose argument is on a device, gets an error that says so.
 * The other ranks get an error about rank 0. */
static int is_refused(const struct rank *self, enum shunt_status st,
                      const char *call)
{
    const char *text = shunt_last_error(self->comm);

    if (self->rank == 0)
        CHECK(st && strstr(text, "memory of a device"), "%s: %s, %s", call,
              shunt_strerror(st), text);
    else
        CHECK(st == SHUNT_ERR_REMOTE, "%s: %s, %s", call, shunt_strerror(st),
              text);
    return 0;
}

/* Calls that do not accept memory of a device. */
static int refused(const struct rank *self)
{
    int32_t sixteen[16] = {0}, more[16 * 8];
    void *device = place_device.take(65536);
    void *mine = self->rank ? (void *)sixteen : device;
    struct shunt_moe_plan *none;
    struct work w;

    CHECK_RUN(is_refused(
        self, shunt_allreduce(self->comm, mine, more, 16, SHUNT_I32, SHUNT_SUM),
        "allreduce"));
    CHECK_RUN(is_refused(self,
                         shunt_allgather(self->comm, mine, more, 16, SHUNT_I32),
                         "allgather"));
    CHECK_RUN(is_refused(self,
                         shunt_alltoall(self->comm, more,
                                        self->rank ? (void *)more : device, 1,
                                        SHUNT_I32),
                         "alltoall"));
    CHECK_RUN(is_refused(self,
                         shunt_broadcast(self->comm, mine, 16, SHUNT_I32, 0),
                         "broadcast"));
    CHECK(shunt_mem_register(self->comm, device, 65536) ==
              SHUNT_ERR_UNSUPPORTED,
          "%s", shunt_last_error(self->comm));
    if (begin(self, &w))
        return 1;
    CHECK_RUN(is_refused(
        self, shunt_moe_plan_create(w.moe, mine, NULL, 16 / TOPK, &none),
        "plan_create"));
    /* After the errors, everything still works. */
    if (expect(&w))
        return 1;
    end(&w);
    place_device.give_back(device);
    return 0;
}

/* Without an engine, all calls refuse memory of a device (SHUNT_ENGINE=off). */
static int no_engine(const struct rank *self)
{
    struct work w;

    if (begin(self, &w))
        return 1;
    for (int call = 0; call < 4; call++)
        CHECK_RUN(is_refused(self, call_now(&w, call, self->rank ? 0 : 0x3ff),
                             "without an engine"));
    CHECK(self->rank ||
              strstr(shunt_last_error(self->comm), "set SHUNT_ENGINE=cuda"),
          "%s", shunt_last_error(self->comm));
    if (expect(&w))
        return 1;
    end(&w);
    return 0;
}

/* The device of rank 0 is lost after some operations. Some calls fail, no rank
 * waits forever, and calls on the host's memory still work. */
static int lost(const struct rank *self)
{
    struct work w;
    bool any = false;

    if (begin(self, &w) || expect(&w))
        return 1;
    prepare(&w);
    if (self->rank == 0)
        fake->lose(atoi(self->argv[0]), 719);
    for (int round = 0; round < 6; round++)
        for (int call = 0; call < 4; call++) {
            const enum shunt_status st =
                call_now(&w, call, self->rank ? 0 : 0x3ff);

            any |= st != SHUNT_OK;
            CHECK(!st || self->rank ||
                      strstr(shunt_last_error(self->comm),
                             "CUDA_ERROR_LAUNCH_FAILED"),
                  "%s: %s", shunt_strerror(st), shunt_last_error(self->comm));
        }
    CHECK(any, "no call failed");
    if (self->rank == 0)
        fake->repair(); /* so that its memory can be freed */
    for (int call = 0; call < 4; call++)
        CHECK_OK(self->comm, call_now(&w, call, 0));
    CHECK_RUN(check(&w, 0, "after the loss"));
    end(&w);
    return 0;
}

/* Rank 0's device stops running operations, and reports no error. The call, and
 * the calls after it, end in bounded time with an error that names the device.
 * Calls on the host's memory still work. argv[0]: the argument on the device,
 * which the call reads (x) or writes (rows). */
static int hangs(const struct rank *self)
{
    const bool written = !strcmp(self->argv[0], "rows");
    const unsigned where = 1u << (written ? ROWS : X);
    struct shunt_request *request = NULL;
    enum shunt_status st;
    struct work w;

    if (begin(self, &w) || expect(&w))
        return 1;
    prepare(&w);
    if (self->rank == 0)
        fake->hold(1);
    for (int round = 0; round < 2; round++) {
        st = start(&w, 0, self->rank ? 0 : where, &request);
        while (request && (st = shunt_test(&request)) == SHUNT_IN_PROGRESS)
            sched_yield();
        if (self->rank == 0)
            CHECK(st == (round ? SHUNT_ERR_UNSUPPORTED : SHUNT_ERR_TIMEOUT) &&
                      strstr(shunt_last_error(self->comm),
                             "GPU 0 (fake 0) has neither ended a copy"),
                  "%s: %s", shunt_strerror(st), shunt_last_error(self->comm));
        else
            CHECK(st == (written && !round ? SHUNT_OK : SHUNT_ERR_REMOTE),
                  "%s: %s", shunt_strerror(st), shunt_last_error(self->comm));
    }
    for (int call = 0; call < 4; call++)
        CHECK_OK(self->comm, call_now(&w, call, 0));
    CHECK_RUN(check(&w, 0, "beside a device that hangs"));
    if (self->rank == 0)
        fake->hold(0); /* so that its memory can be freed */
    end(&w);
    return 0;
}

/* The communicator is aborted while requests are under way. */
static int abandoned(const struct rank *self)
{
    struct shunt_request *request[4];
    struct work w;

    if (begin(self, &w) || expect(&w))
        return 1;
    prepare(&w);
    for (int i = 0; i < 3; i++)
        CHECK_OK(self->comm,
                 start(&w, together[i], 0x3ff, &request[together[i]]));
    CHECK_OK(self->comm, shunt_wait(&request[0]));
    (void)!shunt_barrier(self->comm); /* so that no rank aborts before another
                                       * one has made its calls */
    shunt_comm_abort(self->comm);
    (void)!shunt_wait(&request[3]); /* the remaining request is freed with the
                                     * communicator */
    end(&w);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "same_bits", .run = same_bits},
    {.name = "started", .run = started},
    {.name = "in_parts", .run = in_parts},
    {.name = "in_place", .run = in_place},
    {.name = "refused", .run = refused},
    {.name = "abandoned", .run = abandoned, .breaks_comm = true},
    {.name = "no_engine", .run = no_engine, .no_threads = true},
    {.name = "lost", .run = lost, .no_threads = true},
    {.name = "hangs", .run = hangs, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    char path[4096];
    void *driver;
    int result;

    setenv("SHUNT_ENGINE", "cuda", 0);
    setenv("FAKE_CUDA", "strict", 0);
    snprintf(path, sizeof(path), "%s/engines/cuda/libcuda.so.1",
             getenv("SHUNT_TEST_BIN") ? getenv("SHUNT_TEST_BIN") : ".");
    /* The library then finds the loaded driver by its name. */
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
