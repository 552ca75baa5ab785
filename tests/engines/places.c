// SPDX-License-Identifier: Apache-2.0
/*
 * Kinds of memory; see places.h. Memory of a GPU is allocated by the driver
 * itself, the real or the fake one.
 */
#include "tests/engines/places.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *host_take(size_t bytes)
{
    return malloc(bytes);
}

static void host_give_back(void *memory)
{
    free(memory);
}

static void host_copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

const struct place place_host = {"the host", host_take, host_give_back,
                                 host_copy, host_copy};

/* --- CUDA ----------------------------------------------------------------------- */

static struct {
    void *context;
    int (*init)(unsigned flags);
    int (*device_get)(int *device, int ordinal);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*mem_alloc)(uint64_t *at, size_t bytes);
    int (*mem_free)(uint64_t at);
    int (*host_alloc)(void **at, size_t bytes, unsigned flags);
    int (*host_free)(void *at);
    int (*to_device)(uint64_t to, const void *from, size_t bytes);
    int (*to_host)(void *to, uint64_t from, size_t bytes);
} cuda;

static void check(int result)
{
    if (result) {
        printf("Bail out! the CUDA driver returned %d\n", result);
        exit(1);
    }
}

static void enter(void)
{
    check(cuda.push(cuda.context));
}

static void leave(void)
{
    void *context;

    check(cuda.pop(&context));
}

static void *device_take(size_t bytes)
{
    uint64_t at = 0;

    enter();
    check(cuda.mem_alloc(&at, bytes));
    leave();
    return (void *)(uintptr_t)at;
}

static void device_give_back(void *memory)
{
    enter();
    check(cuda.mem_free((uint64_t)(uintptr_t)memory));
    leave();
}

static void device_write(void *to, const void *from, size_t bytes)
{
    enter();
    check(cuda.to_device((uint64_t)(uintptr_t)to, from, bytes));
    leave();
}

static void device_read(void *to, const void *from, size_t bytes)
{
    enter();
    check(cuda.to_host(to, (uint64_t)(uintptr_t)from, bytes));
    leave();
}

static void *pinned_take(size_t bytes)
{
    void *at = NULL;

    enter();
    check(cuda.host_alloc(&at, bytes, 1));
    leave();
    return at;
}

static void pinned_give_back(void *memory)
{
    enter();
    check(cuda.host_free(memory));
    leave();
}

const struct place place_device = {"a GPU", device_take, device_give_back,
                                   device_write, device_read};
const struct place place_pinned = {"page-locked memory", pinned_take,
                                   pinned_give_back, host_copy, host_copy};

static bool find(void *library, const char *name, void *function)
{
    void *entry = dlsym(library, name);

    memcpy(function, &entry, sizeof(entry));
    if (!entry)
        printf("# the CUDA driver has no %s\n", name);
    return entry != NULL;
}

static bool begin_cuda(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int device = 0;

    if (!library || !find(library, "cuInit", &cuda.init) ||
        !find(library, "cuDeviceGet", &cuda.device_get) ||
        !find(library, "cuDevicePrimaryCtxRetain", &cuda.retain) ||
        !find(library, "cuDevicePrimaryCtxRelease_v2", &cuda.release) ||
        !find(library, "cuCtxPushCurrent_v2", &cuda.push) ||
        !find(library, "cuCtxPopCurrent_v2", &cuda.pop) ||
        !find(library, "cuMemAlloc_v2", &cuda.mem_alloc) ||
        !find(library, "cuMemFree_v2", &cuda.mem_free) ||
        !find(library, "cuMemHostAlloc", &cuda.host_alloc) ||
        !find(library, "cuMemFreeHost", &cuda.host_free) ||
        !find(library, "cuMemcpyHtoD_v2", &cuda.to_device) ||
        !find(library, "cuMemcpyDtoH_v2", &cuda.to_host))
        return false;
    check(cuda.init(0));
    check(cuda.device_get(&device, 0));
    check(cuda.retain(&cuda.context, device));
    return true;
}

/* --- of an engine ---------------------------------------------------------------- */

static const struct places host_places = {
    .pair = {{&place_host, &place_host}},
    .pairs = 1,
};
static const struct places cuda_places = {
    .pair = {{&place_device, &place_device},
             {&place_pinned, &place_device},
             {&place_device, &place_pinned}},
    .pairs = 3,
    .refused = &place_host,
};

const struct places *places_of(const char *engine)
{
    return strcmp(engine, "cuda") ? &host_places : &cuda_places;
}

bool places_begin(const char *engine)
{
    return places_of(engine) != &cuda_places || begin_cuda();
}

void places_end(void)
{
    if (cuda.context)
        check(cuda.release(0));
}
