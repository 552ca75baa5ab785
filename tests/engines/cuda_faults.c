// SPDX-License-Identifier: Apache-2.0
/*
 * Tests the engine "cuda" on the fake driver (cuda/fake_cuda.h) when the driver
 * refuses a call or loses its device. Errors must name the call, all objects
 * must be freed, and copies whose signal is set must have been made.
 *
 * Prints TAP. SHUNT_PLUGIN_PATH is the folder of shunt_cuda.so.
 */
#include <dlfcn.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <shunt/engine.h>

#include "tests/engines/cuda/fake_cuda.h"
#include "tests/engines/places.h"

enum { COPIES = 40, ROWS = 3, BYTES = 50, TO = 64, FROM = 80, LAUNCH = 719 };

static const struct shunt_engine *engine;
static const struct fake_cuda_control *fake;

static const char *variable(const char *name)
{
    return getenv(name);
}

static const struct shunt_transport_host host = {
    .abi = SHUNT_TRANSPORT_ABI,
    .env = variable,
};

static bool load(void)
{
    char path[4096];
    void *plugin, *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    snprintf(path, sizeof(path), "%s/shunt_cuda.so",
             getenv("SHUNT_PLUGIN_PATH"));
    plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    engine = plugin ? dlsym(plugin, SHUNT_ENGINE_SYMBOL) : NULL;
    fake = driver ? dlsym(driver, FAKE_CUDA_CONTROL) : NULL;
    return engine && fake;
}

static bool fails_if(bool wrong, const char *what)
{
    if (wrong)
        printf("# %s\n", what);
    return wrong;
}

/* --- probe ------------------------------------------------------------------------ */

/* Probe in a new process, because a process loads the driver only once. Returns
 * whether the engine is as usable as expected, with a text that contains
 * `text`. */
static bool says(const char *settings, const char *variables, bool usable,
                 const char *text)
{
    int status = -1;
    pid_t child = fork();

    if (!child) {
        char why[512] = "";
        bool works;

        setenv("FAKE_CUDA", settings, 1);
        if (variables)
            setenv("SHUNT_CUDA_DEVICE", variables, 1);
        if (!load())
            _exit(2);
        works = !engine->probe(&host, why, sizeof(why));
        if (works == usable && strstr(why, text))
            _exit(0);
        printf("# with '%s': %s, %s\n", settings, works ? "works" : "does not",
               why);
        fflush(stdout);
        _exit(1);
    }
    return waitpid(child, &status, 0) == child && !status;
}

static bool reasons(void)
{
    return says("devices=0", NULL, false, "no GPU that CUDA can use") &&
           says("version=10020", NULL, false,
                "supports CUDA 10.2, and 11.0 is needed") &&
           says("fail=cuInit/1/999", NULL, false, "cuInit: an unknown") &&
           says("fail=cuDeviceGetCount/1/719", NULL, false,
                "cuDeviceGetCount: CUDA_ERROR_LAUNCH_FAILED (719") &&
           says("devices=2", "2", false, "SHUNT_CUDA_DEVICE=2") &&
           says("devices=2", "1", true, "GPU 1, fake 1, CUDA 12.2; it marks") &&
           says("memops=0", NULL, true, "events mark the end");
}

/* --- open ------------------------------------------------------------------------- */

static bool nothing_left(void)
{
    const struct fake_cuda_live l = fake->live();

    if (!(l.contexts | l.streams | l.events | l.host | l.device | l.mapped))
        return true;
    printf("# left: %d contexts, %d streams, %d events, %d of host memory, %d "
           "of device memory\n",
           l.contexts, l.streams, l.events, l.host, l.device);
    return false;
}

/* Returns whether an error names the call. Errors leave out the version number
 * of its name. */
static bool names(const char *text, const char *call)
{
    return !strncmp(text, call, strcspn(call, "_"));
}

static bool open_engine(struct shunt_engine_ctx **ctx, char *why, size_t len)
{
    const struct shunt_engine_params params = {.host = &host};

    return !engine->open(&params, ctx, why, len);
}

static bool fails_to_open(const char *call)
{
    for (int n = 1;; n++) {
        struct shunt_engine_ctx *ctx = NULL;
        char why[512] = "";
        bool opened;

        fake->fail(call, n, 2);
        opened = open_engine(&ctx, why, sizeof(why));
        fake->fail(call, 0, 0);
        engine->close(ctx);
        if (!nothing_left())
            return false;
        if (opened)
            return !fails_if(n == 1, call);
        if (!names(why, call) || !strstr(why, "CUDA_ERROR_OUT_OF_MEMORY")) {
            printf("# call %d of %s: %s\n", n, call, why);
            return false;
        }
    }
}

static bool opening(void)
{
    bool well = fails_to_open("cuDeviceGetCount") &&
                fails_to_open("cuDevicePrimaryCtxRetain") &&
                fails_to_open("cuCtxPushCurrent_v2") &&
                fails_to_open("cuStreamCreate") &&
                fails_to_open("cuMemHostAlloc") &&
                fails_to_open("cuMemHostGetDevicePointer_v2");

    setenv("SHUNT_CUDA_SIGNAL", "event", 1);
    well = well && fails_to_open("cuEventCreate");
    unsetenv("SHUNT_CUDA_SIGNAL");
    return well;
}

/* --- copies under way --------------------------------------------------------------- */

/* Copies of rows: in turn contiguous, with a stride, and by an index list. */
struct load {
    struct shunt_engine_ctx *ctx;
    unsigned char *from, *to;
    unsigned char source[ROWS * FROM], before[COPIES * ROWS * TO];
    bool taken[COPIES];
    uint64_t signal[COPIES];
    int wake_fd;
};

/* Index lists with two consecutive rows, and without consecutive rows. */
static const uint32_t list[ROWS] = {2, 0, 1}, scattered[ROWS] = {2, 0, 2};

static struct load *begin(void)
{
    struct load *l = calloc(1, sizeof(*l));
    char why[512] = "";

    if (!open_engine(&l->ctx, why, sizeof(why)) || !places_begin("cuda")) {
        printf("Bail out! %s\n", why);
        exit(1);
    }
    for (size_t i = 0; i < sizeof(l->source); i++)
        l->source[i] = (unsigned char)(i * 7 + 1);
    l->from = place_device.take(sizeof(l->source));
    l->to = place_device.take(sizeof(l->before));
    place_device.write(l->from, l->source, sizeof(l->source));
    place_device.write(l->to, l->before, sizeof(l->before));
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return l;
}

static struct shunt_engine_copy copy_of(struct load *l, int i)
{
    return (struct shunt_engine_copy){
        .to = l->to + i * ROWS * TO,
        .from = l->from,
        .bytes = BYTES,
        .rows = i % 3 ? ROWS : 1,
        .to_stride = TO,
        .from_stride = FROM,
        .index = i % 3 < 2 ? NULL
                 : i % 2   ? scattered
                           : list,
        .signal = &l->signal[i],
        .value = 9,
        .wake_fd = i % 2 ? l->wake_fd : -1,
    };
}

static bool submit_all(struct load *l)
{
    for (int i = 0; i < COPIES; i++) {
        const struct shunt_engine_copy copy = copy_of(l, i);
        enum shunt_status st = engine->submit(l->ctx, &copy);

        l->taken[i] = !st;
        if (st && (st != SHUNT_ERR_SYSTEM || !engine->failed(l->ctx))) {
            printf("# copy %d: status %d\n", i, (int)st);
            return false;
        }
    }
    return true;
}

/* Poll until no copy is under way. Returns false after a time limit. */
static bool settle(struct load *l)
{
    const time_t end = time(NULL) + 60;

    while (engine->poll(l->ctx)) {
        sched_yield();
        if (time(NULL) > end)
            return !fails_if(true, "copies stay under way");
    }
    return true;
}

/* Check that each signal is unset, or has its value and belongs to an accepted
 * copy. Check that the copies whose signal is set have been made. */
static bool is_right(struct load *l, bool device_is_there)
{
    static unsigned char now[COPIES * ROWS * TO];
    bool well = true;

    if (!device_is_there)
        fake->repair();
    place_device.read(now, l->to, sizeof(now));
    for (int i = 0; i < COPIES; i++) {
        const struct shunt_engine_copy copy = copy_of(l, i);

        well &= l->signal[i] == 0 || (l->signal[i] == 9 && l->taken[i]);
        for (size_t r = 0; r < copy.rows && l->signal[i]; r++)
            well &= !memcmp(now + (i * ROWS + (int)r) * TO,
                            l->source + (copy.index ? copy.index[r] : r) * FROM,
                            BYTES);
    }
    return well;
}

static bool end(struct load *l)
{
    bool well;

    engine->close(l->ctx);
    place_device.give_back(l->from);
    place_device.give_back(l->to);
    places_end();
    well = nothing_left();
    close(l->wake_fd);
    free(l);
    return well;
}

/* Let the n-th call of `call` fail: the engine must fail, too, and name the
 * call. n 0: no call fails. */
static bool nth_call(const char *call, int n, int result)
{
    struct load *l = begin();
    const char *why;
    bool well, ended;

    fake->fail(call, n, result);
    well = submit_all(l) && settle(l);
    why = engine->failed(l->ctx);
    fake->fail(call, 0, 0);
    if (n && (!why || !names(why, call))) {
        printf("# call %d of %s: %s\n", n, call, why ? why : "no failure");
        well = false;
    }
    for (int i = 0; i < COPIES && !n; i++)
        well &= l->signal[i] == 9;
    if (!is_right(l, true)) {
        printf("# call %d of %s: the data\n", n, call);
        well = false;
    }
    ended = end(l);
    return well && ended;
}

static bool calls(void)
{
    static const char *const names_of[] = {
        "cuMemcpyAsync",    "cuMemcpy2DAsync_v2",      "cuMemcpyBatchAsync_v2",
        "cuLaunchHostFunc", "cuStreamWriteValue64_v2", "cuCtxPushCurrent_v2"};
    bool well = nth_call("none", 0, 0);

    for (size_t i = 0; i < sizeof(names_of) / sizeof(names_of[0]); i++)
        well = well && nth_call(names_of[i], 1, 2) &&
               nth_call(names_of[i], 2, LAUNCH) && nth_call(names_of[i], 5, 2);
    setenv("SHUNT_CUDA_SIGNAL", "event", 1);
    well = well && nth_call("cuEventRecord", 3, 2) &&
           nth_call("cuEventQuery", 1, LAUNCH) &&
           nth_call("cuEventQuery", 7, LAUNCH);
    unsetenv("SHUNT_CUDA_SIGNAL");
    return well;
}

/* Rows that are not consecutive are copied by one batch call: of the newest
 * version, or of the older one if the driver has only that. If the driver
 * refuses the batch, each row is one call. */
static bool batches(void)
{
    static const struct {
        int result;                  /* result of the first batch call */
        unsigned long older, copies; /* calls that replace the first one */
    } rounds[] = {{0, 0, 0}, {1, 0, ROWS}, {801, 1, 0}};
    bool well = true;

    for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
        struct load *l = begin();
        const struct shunt_engine_copy copy = copy_of(l, 5);
        const unsigned long newest = fake->calls("cuMemcpyBatchAsync_v2"),
                            older = fake->calls("cuMemcpyBatchAsync"),
                            copied = fake->calls("cuMemcpyAsync");

        fake->fail("cuMemcpyBatchAsync_v2", rounds[i].result != 0,
                   rounds[i].result);
        well = copy.index == scattered && !engine->submit(l->ctx, &copy) &&
               settle(l) && l->signal[5] == 9 && well;
        l->taken[5] = true;
        well = !fails_if(fake->calls("cuMemcpyBatchAsync_v2") != newest + 1 ||
                             fake->calls("cuMemcpyBatchAsync") - older !=
                                 rounds[i].older ||
                             fake->calls("cuMemcpyAsync") - copied !=
                                 rounds[i].copies,
                         "the number of calls") &&
               is_right(l, true) && well;
        well = end(l) && well;
    }
    return well;
}

/* If the driver refuses a copy, the engine refuses it, too, and other copies
 * still work. */
static bool refusals(void)
{
    struct load *l = begin();
    const struct shunt_engine_copy copy = copy_of(l, 0);
    bool well, ended;

    fake->fail("cuMemcpyAsync", 1, 1);
    well = engine->submit(l->ctx, &copy) == SHUNT_ERR_UNSUPPORTED &&
           !engine->failed(l->ctx) && !l->signal[0] && submit_all(l) &&
           settle(l) && is_right(l, true);
    for (int i = 0; i < COPIES; i++)
        well &= l->signal[i] == 9;
    ended = end(l);
    return well && ended;
}

static bool lost_after(int operations)
{
    struct load *l = begin();
    struct pollfd p = {.fd = l->wake_fd, .events = POLLIN};
    bool well, ended, all = true;

    fake->lose(operations, LAUNCH);
    well = submit_all(l) && settle(l);
    for (int i = 0; i < COPIES; i++)
        all &= l->signal[i] == 9;
    well = !fails_if(!all && !engine->failed(l->ctx),
                     "signals are missing, and there is no failure") &&
           well;
    /* A copy or the failure must wake a thread that sleeps on the
     * descriptor. */
    well = !fails_if(l->taken[1] && poll(&p, 1, 0) != 1, "nobody is woken") &&
           well;
    well = !fails_if(!is_right(l, false), "the data") && well;
    ended = end(l);
    if (!well || !ended)
        printf("# lost after %d operations\n", operations);
    return well && ended;
}

static bool losses(void)
{
    bool well = true;

    for (int n = 0; n < 150 && well; n += n < 20 ? 1 : 13)
        well = lost_after(n);
    setenv("SHUNT_CUDA_SIGNAL", "event", 1);
    for (int n = 0; n < 100 && well; n += 9)
        well = lost_after(n);
    unsetenv("SHUNT_CUDA_SIGNAL");
    return well;
}

/* Submit copies until the engine has no room; the next copy has to wait. */
static bool full(void)
{
    struct load *l = begin();
    struct shunt_engine_copy copy = copy_of(l, 0);
    uint64_t *signals = calloc(10000, sizeof(*signals));
    size_t n = 0;
    bool well, ended;

    fake->hold(1);
    do
        copy.signal = &signals[n];
    while (n < 10000 && !engine->submit(l->ctx, &copy) && ++n);
    well = n > 0 && n < 10000 &&
           engine->submit(l->ctx, &copy) == SHUNT_IN_PROGRESS &&
           engine->poll(l->ctx) == n;
    fake->hold(0);
    well = settle(l) && well;
    for (size_t i = 0; i < n; i++)
        well &= signals[i] == 9;
    free(signals);
    ended = end(l);
    return well && ended;
}

static const struct {
    const char *name;
    bool (*run)(void);
} cases[] = {
    {"probe says why", reasons},
    {"no open leaves anything", opening},
    {"a call fails", calls},
    {"a descriptor is refused", refusals},
    {"the device is lost", losses},
    {"no room", full},
    {"scattered rows are a batch", batches},
};

int main(void)
{
    const size_t count = sizeof(cases) / sizeof(cases[0]);
    bool failed = false;

    printf("1..%zu\n", count);
    for (size_t i = 0; i < count; i++) {
        bool well;

        fflush(stdout);
        if (i == 1 && !load()) { /* the first case loads the driver only in
                                  * other processes */
            printf("Bail out! no engine, or no fake driver\n");
            return 1;
        }
        well = cases[i].run();
        printf("%sok %zu - %s\n", well ? "" : "not ", i + 1, cases[i].name);
        failed |= !well;
    }
    return failed;
}
