// SPDX-License-Identifier: Apache-2.0
/*
 * Tests memory of a GPU to and from which another process copies, by the engine
 * "cuda" on the fake driver (cuda/fake_cuda.h). The fake enforces the
 * documented rules: a handle is of a whole allocation, and only another process
 * can open it. That process must close it before the owner frees the memory.
 *
 * Prints TAP. SHUNT_PLUGIN_PATH is the folder of shunt_cuda.so. The other process is
 * this program with the argument "other".
 */
#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shunt/engine.h>

#include "tests/engines/cuda/fake_cuda.h"
#include "tests/engines/places.h"

enum { BYTES = 70000, AT = 4100, PART = 5000 };

static const struct shunt_engine *engine;
static const struct fake_cuda_control *fake;
static struct shunt_engine_ctx *ctx;

static const char *variable(const char *name)
{
    return getenv(name);
}

static const struct shunt_transport_host host = {
    .abi = SHUNT_TRANSPORT_ABI,
    .env = variable,
};

static bool open_engine(void)
{
    const struct shunt_engine_params params = {.host = &host};
    void *plugin, *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    char path[4096], why[512] = "";

    snprintf(path, sizeof(path), "%s/shunt_cuda.so",
             getenv("SHUNT_PLUGIN_PATH"));
    plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    engine = plugin ? dlsym(plugin, SHUNT_ENGINE_SYMBOL) : NULL;
    fake = driver ? dlsym(driver, FAKE_CUDA_CONTROL) : NULL;
    return engine && fake && engine->sharing &&
           !engine->open(&params, &ctx, why, sizeof(why)) &&
           places_begin("cuda");
}

static void fill(unsigned char *to, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (unsigned char)(i * 13 + i / 251 + seed);
}

static bool copy(void *to, const void *from, size_t bytes)
{
    uint64_t signal = 0;
    const struct shunt_engine_copy what = {
        .to = to,
        .from = from,
        .bytes = bytes,
        .rows = 1,
        .signal = &signal,
        .value = 1,
        .wake_fd = -1,
    };

    if (engine->submit(ctx, &what))
        return false;
    while (!__atomic_load_n(&signal, __ATOMIC_ACQUIRE) && !engine->failed(ctx))
        if (engine->poll(ctx))
            sched_yield();
    return signal == 1;
}

/* --- the other process --------------------------------------------------------- */

/* The other process. Reads a handle from its standard input, and copies a part
 * of the memory to its own memory, and from there to the place behind that
 * part. The exit status says which step failed. If not `may`, opening must
 * fail. */
static int other(bool may)
{
    unsigned char handle[SHUNT_ENGINE_HANDLE_BYTES], now[PART], expected[PART];
    void *memory = NULL, *again = NULL, *own;
    char why[512] = "";
    enum shunt_status st;

    if (read(0, handle, sizeof(handle)) != sizeof(handle) || !open_engine())
        return 2;
    st = engine->sharing->open(ctx, handle, &memory, why, sizeof(why));
    if (st || !may) {
        printf("# the other process: status %d, %s\n", (int)st, why);
        fflush(stdout);
        engine->close(ctx);
        places_end();
        return st == SHUNT_ERR_UNSUPPORTED ? 11 : st ? 10 : 3;
    }
    if (engine->sharing->open(ctx, handle, &again, why, sizeof(why)) ||
        again != memory)
        return 4;
    engine->sharing->close(ctx, again); /* the first open remains */
    own = place_device.take(PART);
    if (!copy(own, memory, PART) || !copy((char *)memory + PART, own, PART))
        return 5;
    place_device.read(now, own, PART);
    fill(expected, sizeof(expected), 7);
    engine->sharing->close(ctx, memory);
    place_device.give_back(own);
    engine->close(ctx);
    places_end();
    return memcmp(now, expected, PART) ? 6 : 0;
}

/* Run a second process and return its exit status. */
static int run_other(const unsigned char *handle, const char *settings,
                     const char *what)
{
    int pipes[2], status = -1;
    pid_t child;

    fflush(stdout);
    if (pipe(pipes))
        return -1;
    child = fork();
    if (!child) {
        (void)!dup2(pipes[0], 0);
        close(pipes[0]);
        close(pipes[1]);
        if (settings)
            setenv("FAKE_CUDA", settings, 1);
        if (settings && strstr(settings, "devices"))
            setenv("SHUNT_CUDA_DEVICE", "1", 1);
        execl("/proc/self/exe", "cuda_sharing", "other", what, (char *)NULL);
        _exit(1);
    }
    close(pipes[0]);
    (void)!write(pipes[1], handle, SHUNT_ENGINE_HANDLE_BYTES);
    close(pipes[1]);
    (void)waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* --- cases ------------------------------------------------------------------------- */

static unsigned char *take(unsigned char *handle, size_t at)
{
    void *memory = NULL;
    char why[512] = "";

    if (engine->memory->alloc(ctx, SHUNT_TRANSPORT_DEVICE_MEMORY, BYTES,
                              &memory, why, sizeof(why)) ||
        engine->sharing->share(ctx, (unsigned char *)memory + at, handle, why,
                               sizeof(why))) {
        printf("Bail out! %s\n", why);
        exit(1);
    }
    return memory;
}

static void give_back(void *memory)
{
    engine->memory->free(ctx, SHUNT_TRANSPORT_DEVICE_MEMORY, memory);
}

/* Share a place within an allocation. The other process changes only that
 * place. */
static bool both_ways(void)
{
    static unsigned char expected[BYTES], now[BYTES];
    unsigned char handle[SHUNT_ENGINE_HANDLE_BYTES];
    unsigned char *memory = take(handle, AT);
    bool well;

    fill(expected, sizeof(expected), 3);
    fill(expected + AT, PART, 7);
    place_device.write(memory, expected, BYTES);
    well = !run_other(handle, NULL, "may");
    memcpy(expected + AT + PART, expected + AT, PART);
    place_device.read(now, memory, BYTES);
    give_back(memory);
    return well && !memcmp(now, expected, BYTES);
}

/* A process cannot open its own handle, nor a text that is not a handle. */
static bool not_here(void)
{
    unsigned char handle[SHUNT_ENGINE_HANDLE_BYTES], none[sizeof(handle)] = {0};
    unsigned char *memory = take(handle, 0);
    void *opened = NULL;
    char why[512] = "";
    bool well = engine->sharing->open(ctx, handle, &opened, why, sizeof(why)) ==
                    SHUNT_ERR_SYSTEM &&
                !opened && strstr(why, "cuIpcOpenMemHandle");

    well = well &&
           engine->sharing->open(ctx, none, &opened, why, sizeof(why)) ==
               SHUNT_ERR_SYSTEM &&
           !opened && !engine->failed(ctx);
    well = well &&
           engine->sharing->share(ctx, &well, handle, why, sizeof(why)) ==
               SHUNT_ERR_SYSTEM &&
           strstr(why, "cuMemGetAddressRange");
    give_back(memory);
    return well;
}

/* A handle of freed memory cannot be opened, even if there is new memory
 * since. */
static bool freed(void)
{
    unsigned char handle[SHUNT_ENGINE_HANDLE_BYTES], later[sizeof(handle)];
    unsigned char *memory = take(handle, 0);
    bool well;

    give_back(memory);
    memory = take(later, 0);
    well = run_other(handle, NULL, "not") == 10;
    give_back(memory);
    return well;
}

/* GPUs that cannot access each other's memory, and a driver without handles. */
static bool unsupported(void)
{
    unsigned char handle[SHUNT_ENGINE_HANDLE_BYTES];
    unsigned char *memory = take(handle, 0);
    char why[512] = "";
    bool well = run_other(handle, "strict,devices=2,peers=0", "not") == 11;

    fake->fail("cuIpcGetMemHandle", 1, 801);
    well = well &&
           engine->sharing->share(ctx, memory, handle, why, sizeof(why)) ==
               SHUNT_ERR_UNSUPPORTED &&
           strstr(why, "cuIpcGetMemHandle");
    give_back(memory);
    return well;
}

/* The owner must not free memory that another process has open. The fake driver
 * reports that, so the library's tests prove that the library does not do
 * it. */
static bool is_told(void)
{
    int ready[2], go[2], status = -1;
    char byte;
    pid_t child;

    fflush(stdout);
    if (pipe(ready) || pipe(go))
        return false;
    child = fork();
    if (!child) { /* the child is the owner */
        unsigned char handle[SHUNT_ENGINE_HANDLE_BYTES];
        void *memory;

        if (!open_engine())
            _exit(2);
        memory = take(handle, 0);
        (void)!write(ready[1], handle, sizeof(handle));
        (void)!read(go[0], &byte, 1);
        give_back(memory);
        engine->close(ctx);
        places_end();
        exit(0); /* because of `strict`, the status is 97 instead */
    }
    {
        unsigned char handle[SHUNT_ENGINE_HANDLE_BYTES];
        void *memory = NULL;
        char why[512] = "";
        bool well =
            read(ready[0], handle, sizeof(handle)) == sizeof(handle) &&
            open_engine() &&
            !engine->sharing->open(ctx, handle, &memory, why, sizeof(why));

        (void)!write(go[1], "x", 1);
        well = waitpid(child, &status, 0) == child && WIFEXITED(status) &&
               WEXITSTATUS(status) == 97 && well;
        if (memory)
            engine->sharing->close(ctx, memory);
        return well;
    }
}

static const struct {
    const char *name;
    bool (*run)(void);
} cases[] = {
    {"memory that is freed too early is told", is_told}, /* also opens the
                                                          * engine for the cases
                                                          * below */
    {"a place in an allocation, both ways", both_ways},
    {"not in the process that has it", not_here},
    {"memory that is gone", freed},
    {"what devices or drivers cannot", unsupported},
};

int main(int argc, char **argv)
{
    const size_t count = sizeof(cases) / sizeof(cases[0]);
    bool failed = false;

    if (argc == 3 && !strcmp(argv[1], "other"))
        return other(!strcmp(argv[2], "may"));
    printf("1..%zu\n", count);
    for (size_t i = 0; i < count; i++) {
        bool well = cases[i].run();

        printf("%sok %zu - %s\n", well ? "" : "not ", i + 1, cases[i].name);
        fflush(stdout);
        failed |= !well;
    }
    engine->close(ctx);
    places_end();
    return failed;
}
