// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of a GPU; see device.h. Declared from the public documentation of the
 * CUDA driver API (docs.nvidia.com/cuda/cuda-driver-api).
 */
#include "perf/peers/device.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/base/perf.h"

#define DRIVER "libcuda.so.1"
/* A symbol of the driver that the tests use instead of a GPU
 * (tests/engines/cuda). */
#define FAKE "fake_cuda_control"

enum { NOT_READY = 600, NON_BLOCKING = 1 };

static struct {
    void *driver;
    int device;
    void *context, *stream;
    int (*init)(unsigned flags);
    int (*version)(int *version);
    int (*count)(int *count);
    int (*get)(int *device, int ordinal);
    int (*name)(char *name, int len, int device);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*synchronize)(void);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*stream_query)(void *stream);
    int (*alloc)(uint64_t *at, size_t bytes);
    int (*free)(uint64_t at);
    int (*write)(uint64_t to, const void *from, size_t bytes);
    int (*read)(void *to, uint64_t from, size_t bytes);
    int (*copy)(uint64_t to, uint64_t from, size_t bytes, void *stream);
} cuda;

static const struct {
    const char *name;
    void *function; /* a pointer to a function in `cuda` */
} entries[] = {
    {"cuInit", &cuda.init},
    {"cuDriverGetVersion", &cuda.version},
    {"cuDeviceGetCount", &cuda.count},
    {"cuDeviceGet", &cuda.get},
    {"cuDeviceGetName", &cuda.name},
    {"cuDevicePrimaryCtxRetain", &cuda.retain},
    {"cuDevicePrimaryCtxRelease_v2", &cuda.release},
    {"cuCtxPushCurrent_v2", &cuda.push},
    {"cuCtxPopCurrent_v2", &cuda.pop},
    {"cuCtxSynchronize", &cuda.synchronize},
    {"cuStreamCreate", &cuda.stream_create},
    {"cuStreamDestroy_v2", &cuda.stream_destroy},
    {"cuStreamQuery", &cuda.stream_query},
    {"cuMemAlloc_v2", &cuda.alloc},
    {"cuMemFree_v2", &cuda.free},
    {"cuMemcpyHtoD_v2", &cuda.write},
    {"cuMemcpyDtoH_v2", &cuda.read},
    {"cuMemcpyAsync", &cuda.copy},
};

static uint64_t address(const void *memory)
{
    return (uint64_t)(uintptr_t)memory;
}

static void must(const char *call, int result)
{
    if (result)
        perf_die(PERF_EXIT_FAILED,
                 "--mem device: %s() of the CUDA driver returned %d", call,
                 result);
}

/* --- the device ----------------------------------------------------------- */

static void load(void)
{
    cuda.driver = dlopen(DRIVER, RTLD_NOW | RTLD_LOCAL);
    if (!cuda.driver)
        perf_die(PERF_EXIT_USAGE,
                 "--mem device: there is no CUDA driver here: %s", dlerror());
    for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
        void *entry = dlsym(cuda.driver, entries[i].name);

        if (!entry)
            perf_die(PERF_EXIT_USAGE,
                     "--mem device: the CUDA driver has no %s(): it is too old",
                     entries[i].name);
        memcpy(entries[i].function, &entry, sizeof(entry));
    }
}

void perf_device_find(void)
{
    const char *chosen = getenv("SHUNT_CUDA_DEVICE");
    int count = 0, result;

    load();
    result = cuda.init(0);
    if (!result)
        result = cuda.count(&count);
    if (result || !count)
        perf_die(PERF_EXIT_USAGE,
                 "--mem device: the CUDA driver finds no GPU (%d); shunt-info "
                 "says what the engine cuda finds",
                 result);
    /* If SHUNT_CUDA_DEVICE names no GPU, use GPU 0 here; the engine reports the
     * error. */
    result = cuda.get(&cuda.device, chosen ? atoi(chosen) : 0);
    if (result)
        must("cuDeviceGet", cuda.get(&cuda.device, 0));
}

void perf_device_open(void)
{
    must("cuDevicePrimaryCtxRetain", cuda.retain(&cuda.context, cuda.device));
    must("cuCtxPushCurrent", cuda.push(cuda.context));
    must("cuStreamCreate", cuda.stream_create(&cuda.stream, NON_BLOCKING));
}

void perf_device_close(void)
{
    void *context;

    if (!cuda.stream)
        return;
    must("cuStreamDestroy", cuda.stream_destroy(cuda.stream));
    must("cuCtxPopCurrent", cuda.pop(&context));
    must("cuDevicePrimaryCtxRelease", cuda.release(cuda.device));
    cuda.stream = NULL;
}

const char *perf_device_words(void)
{
    static char text[256];
    char name[128] = "";
    int version = 0;

    (void)cuda.name(name, sizeof(name) - 1, cuda.device);
    (void)cuda.version(&version);
    snprintf(text, sizeof(text), "GPU %d, %s, CUDA %d.%d%s", cuda.device, name,
             version / 1000, version % 1000 / 10,
             dlsym(cuda.driver, FAKE)
                 ? "; it is the tests' FAKE driver, which has no GPU: no time "
                   "means anything"
                 : "");
    return text;
}

/* --- memory --------------------------------------------------------------- */

void *perf_device_alloc(size_t bytes)
{
    uint64_t at = 0;
    int result = cuda.alloc(&at, bytes ? bytes : 1);

    if (result)
        perf_die(PERF_EXIT_FAILED,
                 "--mem device: no memory of the GPU for %zu bytes "
                 "(cuMemAlloc: %d); give fewer --tokens",
                 bytes, result);
    return (void *)(uintptr_t)at;
}

void perf_device_free(void *memory)
{
    if (memory)
        must("cuMemFree", cuda.free(address(memory)));
}

void perf_device_write(void *to, const void *from, size_t bytes)
{
    if (!bytes)
        return;
    must("cuMemcpyHtoD", cuda.write(address(to), from, bytes));
    /* From pageable memory, the call may return before the bytes are there. */
    must("cuCtxSynchronize", cuda.synchronize());
}

void perf_device_read(void *to, const void *from, size_t bytes)
{
    if (bytes)
        must("cuMemcpyDtoH", cuda.read(to, address(from), bytes));
}

void perf_device_copy(void *to, const void *from, size_t bytes)
{
    if (bytes)
        must("cuMemcpyAsync",
             cuda.copy(address(to), address(from), bytes, cuda.stream));
}

void perf_device_wait(void)
{
    int result = cuda.stream_query(cuda.stream);

    while (result == NOT_READY) {
        sched_yield(); /* other ranks may share this processor */
        result = cuda.stream_query(cuda.stream);
    }
    must("cuStreamQuery", result);
}
