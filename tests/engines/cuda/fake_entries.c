// SPDX-License-Identifier: Apache-2.0
/* The entry points of the fake driver; see fake_cuda.h. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/engines/cuda/fake.h"

#define ENTRY __attribute__((visibility("default")))

enum { NAMES = 64, DEVICES = 8, DEPTH = 16 };

pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;
struct fake_cuda_live fake_live;
int fake_lost;

/* The handle of a device's context is the address of the device's entry, which
 * counts the context's users. */
static int contexts[DEVICES];
static _Thread_local int *stack[DEPTH];
static _Thread_local int depth;
static bool initialised;
/* true: memory was freed while another process had it open */
static bool freed_open;

static struct {
    char name[40];
    unsigned long calls;
} called[NAMES];
static struct {
    char name[40];
    int n, result;
} failing;

/* --- settings --------------------------------------------------------------------- */

static const char *text_of(const char *name)
{
    const char *all = getenv("FAKE_CUDA");
    const size_t len = strlen(name);

    for (const char *at = all; at && *at; at = strchr(at, ',')) {
        at += *at == ',';
        if (!strncmp(at, name, len) &&
            (at[len] == '=' || at[len] == ',' || !at[len]))
            return at + len + (at[len] == '=');
    }
    return NULL;
}

long fake_setting(const char *name, long otherwise)
{
    const char *text = text_of(name);

    return text ? strtol(text, NULL, 10) : otherwise;
}

/* splitmix64 */
unsigned fake_random(unsigned n)
{
    static uint64_t state;
    uint64_t z;

    state = state ? state : (uint64_t)fake_setting("seed", getpid());
    z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (unsigned)((z ^ (z >> 31)) % n);
}

__attribute__((constructor)) static void read_settings(void)
{
    const char *fail = text_of("fail"), *lost = text_of("break");

    if (fail)
        sscanf(fail, "%39[^/]/%d/%d", failing.name, &failing.n,
               &failing.result);
    if (lost) {
        int n = 0, result = 0;

        sscanf(lost, "%d/%d", &n, &result);
        fake_device_lose(n, result);
    }
}

__attribute__((destructor)) static void count(void)
{
    const struct fake_cuda_live *l = &fake_live;

    if (text_of("tell"))
        fprintf(stderr, "fake CUDA: %" PRIu64 " bytes between devices\n",
                fake_between);
    if (!text_of("strict") || !(l->contexts | l->streams | l->events | l->host |
                                l->device | l->mapped | freed_open))
        return;
    fprintf(
        stderr,
        "fake CUDA: left are %d contexts, %d streams, %d events, %d of host "
        "memory, %d of device memory, %d of others\n",
        l->contexts, l->streams, l->events, l->host, l->device, l->mapped);
    _exit(97);
}

static int current_device(void)
{
    return depth ? (int)(stack[depth - 1] - contexts) : 0;
}

/* --- what every call does -------------------------------------------------------- */

/* Begin a call: take the lock, count the call, and check whether it must fail.
 * end() releases the lock. */
static int begin(const char *name, bool context)
{
    int i = 0;

    pthread_mutex_lock(&fake_lock);
    while (i < NAMES - 1 && called[i].name[0] && strcmp(called[i].name, name))
        i++;
    snprintf(called[i].name, sizeof(called[i].name), "%s", name);
    called[i].calls++;
    if (failing.n > 0 && !strcmp(failing.name, name) && !--failing.n)
        return failing.result;
    if (!initialised && strcmp(name, "cuInit") != 0)
        return NOT_INITIALIZED;
    if (fake_lost && context)
        return fake_lost;
    return context && (!depth || !stack[depth - 1]) ? INVALID_CONTEXT : OK;
}

static int end(int result)
{
    pthread_mutex_unlock(&fake_lock);
    return result;
}

static struct fake_cuda_live control_live(void)
{
    struct fake_cuda_live live;

    pthread_mutex_lock(&fake_lock);
    live = fake_live;
    pthread_mutex_unlock(&fake_lock);
    return live;
}

static void control_fail(const char *name, int n, int result)
{
    pthread_mutex_lock(&fake_lock);
    snprintf(failing.name, sizeof(failing.name), "%s", name);
    failing.n = n;
    failing.result = result;
    pthread_mutex_unlock(&fake_lock);
}

static void control_lose(int operations, int result)
{
    pthread_mutex_lock(&fake_lock);
    fake_device_lose(operations, result);
    pthread_mutex_unlock(&fake_lock);
}

static void control_repair(void)
{
    pthread_mutex_lock(&fake_lock);
    fake_device_repair();
    pthread_mutex_unlock(&fake_lock);
}

static unsigned long control_calls(const char *name)
{
    unsigned long n = 0;

    pthread_mutex_lock(&fake_lock);
    for (int i = 0; i < NAMES; i++)
        if (!strcmp(called[i].name, name))
            n = called[i].calls;
    pthread_mutex_unlock(&fake_lock);
    return n;
}

static void control_hold(int held)
{
    pthread_mutex_lock(&fake_lock);
    fake_device_hold(held);
    pthread_mutex_unlock(&fake_lock);
}

extern const struct fake_cuda_control fake_cuda_control;
ENTRY const struct fake_cuda_control fake_cuda_control = {
    control_live,   control_fail,  control_lose,
    control_repair, control_calls, control_hold,
};

/* --- the driver and its devices -------------------------------------------------- */

ENTRY int cuInit(unsigned flags)
{
    int result = begin("cuInit", false);

    if (!result && (flags || !fake_setting("devices", 1)))
        result = flags ? INVALID_VALUE : NO_DEVICE;
    initialised = initialised || !result;
    return end(result);
}

/* Works before cuInit(), too. */
ENTRY int cuDriverGetVersion(int *version)
{
    *version = (int)fake_setting("version", 12020);
    return OK;
}

ENTRY int cuGetErrorName(int result, const char **text)
{
    *text = result == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : result == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : result == PEER_ACCESS_UNSUPPORTED
                ? "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
            : result == 719 ? "CUDA_ERROR_LAUNCH_FAILED"
                            : NULL;
    return *text ? OK : INVALID_VALUE;
}

ENTRY int cuGetErrorString(int result, const char **text)
{
    *text = result == ILLEGAL_ADDRESS
                ? "an illegal memory access was encountered"
                : NULL;
    return *text ? OK : INVALID_VALUE;
}

ENTRY int cuDeviceGetCount(int *n)
{
    int result = begin("cuDeviceGetCount", false);

    *n = (int)fake_setting("devices", 1);
    return end(result);
}

ENTRY int cuDeviceGet(int *device, int ordinal)
{
    int result = begin("cuDeviceGet", false);

    if (!result && (ordinal < 0 || ordinal >= fake_setting("devices", 1)))
        result = INVALID_DEVICE;
    *device = ordinal;
    return end(result);
}

ENTRY int cuDeviceGetName(char *name, int len, int device)
{
    int result = begin("cuDeviceGetName", false);

    snprintf(name, (size_t)len, "fake %d", device);
    return end(result);
}

ENTRY int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int result = begin("cuDeviceGetAttribute", false);

    (void)device;
    *value = attribute == 11    ? (int)fake_setting("pitch", 0x7fffffff)
             : attribute == 41  ? 1
             : attribute == 122 ? (int)fake_setting("memops", 1)
                                : 0;
    return end(result);
}

ENTRY int cuDevicePrimaryCtxRetain(void **context, int device)
{
    int result = begin("cuDevicePrimaryCtxRetain", false);

    if (!result && fake_lost)
        result = fake_lost;
    if (!result) {
        contexts[device]++;
        fake_live.contexts++;
        *context = &contexts[device];
    }
    return end(result);
}

ENTRY int cuDevicePrimaryCtxRelease_v2(int device)
{
    int result = begin("cuDevicePrimaryCtxRelease_v2", false);

    if (!result && !contexts[device])
        result = INVALID_CONTEXT;
    if (!result) {
        contexts[device]--;
        fake_live.contexts--;
    }
    return end(result);
}

ENTRY int cuCtxGetCurrent(void **context)
{
    int result = begin("cuCtxGetCurrent", false);

    *context = depth ? stack[depth - 1] : NULL;
    return end(result);
}

ENTRY int cuCtxGetDevice(int *device)
{
    int result = begin("cuCtxGetDevice", true);

    if (!result)
        *device = current_device();
    return end(result);
}

ENTRY int cuCtxPushCurrent_v2(void *context)
{
    int result = begin("cuCtxPushCurrent_v2", false);

    if (!result && (depth == DEPTH || !context || !*(int *)context))
        result = INVALID_CONTEXT;
    if (!result)
        stack[depth++] = context;
    return end(result);
}

ENTRY int cuCtxPopCurrent_v2(void **context)
{
    int result = begin("cuCtxPopCurrent_v2", false);

    if (!result && !depth)
        result = INVALID_CONTEXT;
    if (!result)
        *context = stack[--depth];
    return end(result);
}

ENTRY int cuCtxSynchronize(void)
{
    int result = begin("cuCtxSynchronize", true);

    if (!result)
        fake_stream_wait(NULL);
    return end(result);
}

/* --- streams and events ------------------------------------------------------------ */

ENTRY int cuStreamCreate(struct fake_stream **stream, unsigned flags)
{
    int result = begin("cuStreamCreate", true);

    if (!result && flags > 1)
        result = INVALID_VALUE;
    if (!result && !(*stream = fake_stream_new()))
        result = OUT_OF_MEMORY;
    return end(result);
}

/* Works for a lost device, too: the handle is freed. */
ENTRY int cuStreamDestroy_v2(struct fake_stream *stream)
{
    int result = begin("cuStreamDestroy_v2", false);

    if (!result && !fake_stream_is_one(stream))
        result = INVALID_HANDLE;
    if (!result)
        fake_stream_free(stream);
    return end(result ? result : fake_lost);
}

ENTRY int cuStreamQuery(struct fake_stream *stream)
{
    int result = begin("cuStreamQuery", true);

    if (!result && !fake_stream_is_one(stream))
        result = INVALID_HANDLE;
    if (!result && !fake_stream_is_idle(stream))
        result = NOT_READY;
    return end(result);
}

ENTRY int cuEventCreate(struct fake_event **event, unsigned flags)
{
    int result = begin("cuEventCreate", true);

    (void)flags;
    if (!result && !(*event = calloc(1, sizeof(**event))))
        result = OUT_OF_MEMORY;
    fake_live.events += !result;
    return end(result);
}

ENTRY int cuEventDestroy_v2(struct fake_event *event)
{
    int result = begin("cuEventDestroy_v2", false);

    if (!result) {
        fake_live.events--;
        free(event);
    }
    return end(result);
}

static int add(const char *name, struct fake_stream *stream,
               const struct fake_operation *operation)
{
    int result = begin(name, true);

    if (!result && !fake_stream_is_one(stream))
        result = INVALID_HANDLE;
    if (!result && operation->what == FAKE_EVENT)
        operation->event->recorded = operation->number;
    if (!result)
        result = fake_stream_add(stream, operation);
    return end(result);
}

ENTRY int cuEventRecord(struct fake_event *event, struct fake_stream *stream)
{
    return add("cuEventRecord", stream,
               &(struct fake_operation){.what = FAKE_EVENT,
                                        .event = event,
                                        .number = event->recorded + 1});
}

ENTRY int cuEventQuery(struct fake_event *event)
{
    int result = begin("cuEventQuery", true);

    if (!result && event->done != event->recorded)
        result = NOT_READY;
    return end(result);
}

ENTRY int cuLaunchHostFunc(struct fake_stream *stream, void (*function)(void *),
                           void *arg)
{
    return add("cuLaunchHostFunc", stream,
               &(struct fake_operation){
                   .what = FAKE_CALL, .function = function, .arg = arg});
}

ENTRY int cuStreamWriteValue64_v2(struct fake_stream *stream, uint64_t at,
                                  uint64_t value, unsigned flags)
{
    if (flags || !fake_setting("memops", 1))
        return NOT_SUPPORTED;
    return add(
        "cuStreamWriteValue64_v2", stream,
        &(struct fake_operation){.what = FAKE_WRITE, .to = at, .from = value});
}

/* --- memory ------------------------------------------------------------------------ */

ENTRY int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    int result = begin("cuMemHostAlloc", true);
    struct fake_memory *m;

    (void)flags;
    if (!result)
        result = fake_memory_new(FAKE_HOST, NULL, -1, bytes, &m);
    if (!result)
        *memory = m->at;
    return end(result);
}

ENTRY int cuMemFreeHost(void *memory)
{
    int result = begin("cuMemFreeHost", false);

    if (!result)
        result = fake_memory_free(FAKE_HOST, memory);
    return end(result);
}

ENTRY int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    int result = begin("cuMemHostRegister_v2", true);
    struct fake_memory *m;

    (void)flags;
    if (!result && fake_memory_of((uint64_t)(uintptr_t)memory, 1))
        result = ALREADY_REGISTERED;
    if (!result)
        result = fake_memory_new(FAKE_REGISTERED, memory, -1, bytes, &m);
    return end(result);
}

ENTRY int cuMemHostUnregister(void *memory)
{
    int result = begin("cuMemHostUnregister", false);

    if (!result)
        result = fake_memory_free(FAKE_REGISTERED, memory);
    return end(result);
}

ENTRY int cuMemHostGetDevicePointer_v2(uint64_t *device, void *memory,
                                       unsigned flags)
{
    int result = begin("cuMemHostGetDevicePointer_v2", true);

    if (!result && (flags || !fake_memory_of((uint64_t)(uintptr_t)memory, 1)))
        result = INVALID_VALUE;
    *device = (uint64_t)(uintptr_t)memory;
    return end(result);
}

ENTRY int cuMemAlloc_v2(uint64_t *at, size_t bytes)
{
    int result = begin("cuMemAlloc_v2", true);
    struct fake_memory *m;

    if (!result)
        result = fake_memory_new(FAKE_DEVICE, NULL, -1, bytes, &m);
    if (!result) {
        m->device = current_device();
        *at = (uint64_t)(uintptr_t)m->at;
    }
    return end(result);
}

/* Waits for the device, as the real function does. Other processes must have
 * closed the memory. */
ENTRY int cuMemFree_v2(uint64_t at)
{
    int result = begin("cuMemFree_v2", false);
    const struct fake_memory *m = fake_memory_of(at, 1);
    const int user =
        !result && m && m->kind == FAKE_DEVICE ? fake_user_of(m) : 0;

    if (user) {
        fprintf(stderr, "fake CUDA: memory is freed that process %d has open\n",
                user);
        freed_open = true;
    }
    fake_stream_wait(NULL);
    if (!result)
        result = fake_memory_free(FAKE_DEVICE, (void *)(uintptr_t)at);
    return end(result);
}

ENTRY int cuPointerGetAttribute(void *value, int attribute, uint64_t pointer)
{
    int result = begin("cuPointerGetAttribute", false);
    const struct fake_memory *m = fake_memory_of(pointer, 1);

    if (!result && (!m || (attribute != 2 && attribute != 8)))
        result = INVALID_VALUE;
    if (!result && attribute == 8) /* attribute: is the memory managed? */
        *(unsigned *)value = 0;
    else if (!result)
        *(unsigned *)value =
            m->kind == FAKE_DEVICE || m->kind == FAKE_MAPPED ? 2 : 1;
    return end(result);
}

ENTRY int cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes,
                                  uint64_t pointer)
{
    int result = begin("cuMemGetAddressRange_v2", true);
    const struct fake_memory *m = fake_memory_of(pointer, 1);

    if (!result && (!m || m->kind != FAKE_DEVICE))
        result = INVALID_VALUE;
    if (!result) {
        *base = (uint64_t)(uintptr_t)m->at;
        *bytes = m->bytes;
    }
    return end(result);
}

/* CUipcMemHandle, as documented: passed by value. */
struct ipc_handle {
    char reserved[64];
};

/* The handle is of a whole allocation, and `at` must be its first byte. */
ENTRY int cuIpcGetMemHandle(struct ipc_handle *handle, uint64_t at)
{
    int result = begin("cuIpcGetMemHandle", true);
    const struct fake_memory *m = fake_memory_of(at, 1);

    if (!result && (!m || (uint64_t)(uintptr_t)m->at != at))
        result = INVALID_VALUE;
    if (!result)
        result = fake_ipc_get(m, handle);
    return end(result);
}

ENTRY int cuIpcOpenMemHandle_v2(uint64_t *at, struct ipc_handle handle,
                                unsigned flags)
{
    int result = begin("cuIpcOpenMemHandle_v2", true);

    if (!result && flags != 1) /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
        result = INVALID_VALUE;
    if (!result)
        result = fake_ipc_open(&handle, current_device(), at);
    return end(result);
}

/* Waits for the device, as cuMemFree() does. */
ENTRY int cuIpcCloseMemHandle(uint64_t at)
{
    int result = begin("cuIpcCloseMemHandle", true);

    fake_stream_wait(NULL);
    if (!result)
        result = fake_ipc_close(at);
    return end(result);
}

/* --- copies ------------------------------------------------------------------------ */

static int copy(const char *name, struct fake_stream *stream,
                const struct fake_operation *o)
{
    int result = begin(name, true);

    if (!result && !fake_stream_is_one(stream))
        result = INVALID_HANDLE;
    for (size_t i = 0; i < o->rows && !result; i++)
        if (!fake_memory_of(o->to + i * o->to_pitch, o->bytes) ||
            !fake_memory_of(o->from + i * o->from_pitch, o->bytes))
            result = INVALID_VALUE;
    if (!result)
        result = fake_stream_add(stream, o);
    return end(result);
}

ENTRY int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes,
                        struct fake_stream *stream)
{
    return copy("cuMemcpyAsync", stream,
                &(struct fake_operation){.what = FAKE_COPY,
                                         .to = to,
                                         .from = from,
                                         .bytes = bytes,
                                         .rows = 1});
}

/* CUDA_MEMCPY2D, as documented. */
struct memcpy_2d {
    size_t srcXInBytes, srcY;
    int srcMemoryType;
    const void *srcHost;
    uint64_t srcDevice;
    void *srcArray;
    size_t srcPitch;
    size_t dstXInBytes, dstY;
    int dstMemoryType;
    void *dstHost;
    uint64_t dstDevice;
    void *dstArray;
    size_t dstPitch;
    size_t WidthInBytes, Height;
};

ENTRY int cuMemcpy2DAsync_v2(const struct memcpy_2d *what,
                             struct fake_stream *stream)
{
    const size_t most = (size_t)fake_setting("refused_pitch", 0x7fffffff);

    if (what->srcXInBytes || what->srcY || what->dstXInBytes || what->dstY ||
        what->srcMemoryType != 4 || what->dstMemoryType != 4 ||
        what->srcPitch < what->WidthInBytes ||
        what->dstPitch < what->WidthInBytes || what->srcPitch > most ||
        what->dstPitch > most)
        return INVALID_VALUE;
    return copy("cuMemcpy2DAsync_v2", stream,
                &(struct fake_operation){.what = FAKE_COPY,
                                         .to = what->dstDevice,
                                         .from = what->srcDevice,
                                         .bytes = what->WidthInBytes,
                                         .rows = what->Height,
                                         .to_pitch = what->dstPitch,
                                         .from_pitch = what->srcPitch});
}

static int copy_now(const char *name, uint64_t to, uint64_t from, size_t bytes,
                    uint64_t device, const void *host)
{
    int result = begin(name, true);
    unsigned char *there = result ? NULL : fake_access(device, bytes);

    if (!result && !there)
        result = INVALID_VALUE;
    if (!result && to == device)
        memcpy(there, host, bytes);
    else if (!result)
        memcpy((void *)(uintptr_t)to, there, bytes);
    (void)from;
    return end(result);
}

ENTRY int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    return copy_now("cuMemcpyHtoD_v2", to, 0, bytes, to, from);
}

ENTRY int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    return copy_now("cuMemcpyDtoH_v2", (uint64_t)(uintptr_t)to, from, bytes,
                    from, NULL);
}

/* --- many copies by one call ------------------------------------------------------- */

/* CUmemcpyAttributes */
struct attributes {
    int order, from_place[2], to_place[2];
    unsigned flags;
};

static int batch(const char *name, const uint64_t *to, const uint64_t *from,
                 const size_t *bytes, size_t n, const struct attributes *attrs,
                 const size_t *first, size_t attrs_n,
                 struct fake_stream *stream)
{
    int result = begin(name, true);

    if (!result && !fake_stream_is_one(stream))
        result = INVALID_HANDLE;
    /* The fake supports only one entry of attributes, which applies to all
     * copies. */
    if (!result &&
        (!n || attrs_n != 1 || first[0] || attrs->order != 1 || attrs->flags ||
         n > (size_t)fake_setting("batch_max", 4096)))
        result = INVALID_VALUE;
    for (size_t i = 0; i < n && !result; i++)
        if (!fake_memory_of(to[i], bytes[i]) ||
            !fake_memory_of(from[i], bytes[i]))
            result = INVALID_VALUE;
    for (size_t i = 0; i < n && !result; i++)
        result = bytes[i] ? fake_stream_add(stream,
                                            &(struct fake_operation){
                                                .what = FAKE_COPY,
                                                .to = to[i],
                                                .from = from[i],
                                                .bytes = bytes[i],
                                                .rows = 1,
                                            })
                          : INVALID_VALUE;
    return end(result);
}

ENTRY int cuMemcpyBatchAsync_v2(const uint64_t *to, const uint64_t *from,
                                const size_t *bytes, size_t n,
                                const struct attributes *attrs,
                                const size_t *first, size_t attrs_n,
                                struct fake_stream *stream)
{
    if (fake_setting("batch", 2) < 2)
        return NOT_SUPPORTED;
    return batch("cuMemcpyBatchAsync_v2", to, from, bytes, n, attrs, first,
                 attrs_n, stream);
}

ENTRY int cuMemcpyBatchAsync(const uint64_t *to, const uint64_t *from,
                             const size_t *bytes, size_t n,
                             const struct attributes *attrs,
                             const size_t *first, size_t attrs_n,
                             size_t *failed, struct fake_stream *stream)
{
    if (fake_setting("batch", 2) < 1)
        return NOT_SUPPORTED;
    *failed = 0;
    return batch("cuMemcpyBatchAsync", to, from, bytes, n, attrs, first,
                 attrs_n, stream);
}
