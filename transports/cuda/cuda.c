// SPDX-License-Identifier: Apache-2.0
/*
 * The copy engine of a GPU: asynchronous copies of the CUDA driver. They run on
 * the engine's own streams, in the primary context of the device, which is also
 * the context of the CUDA runtime. The engine copies between the memory of
 * devices, and between devices and page-locked memory of the host. It has no
 * thread: poll() finds copies that ended, or the driver reports them.
 *
 * The engine waits only for its own copies. Writes by the caller's streams must
 * have ended before the caller passes the memory to Shunt.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/engine.h>

#include "transports/cuda/copies.h"
#include "transports/cuda/driver.h"
#include "transports/cuda/memory.h"
#include "transports/cuda/sharing.h"

/* --- settings ----------------------------------------------------------------- */

#define DEVICE "SHUNT_CUDA_DEVICE"
#define STREAMS "SHUNT_CUDA_STREAMS"
#define SIGNAL "SHUNT_CUDA_SIGNAL"

static const struct shunt_transport_knob knobs[] = {
    {DEVICE, "auto",
     "The GPU that copies, a number as CUDA counts them. auto: that of the "
     "context which the thread has current when it makes the first "
     "communicator, else the first GPU."},
    {STREAMS, "2", "Streams on which the GPU copies at once, 1 to 8."},
    {SIGNAL, "auto",
     "How the GPU marks the end of a copy: memory (it writes a word), event, "
     "or "
     "auto, which is memory where the GPU can."},
    {NULL, NULL, NULL},
};

static const char *setting(const struct shunt_transport_host *host,
                           const char *name)
{
    const struct shunt_transport_knob *knob = knobs;
    const char *value = host->env ? host->env(name) : NULL;

    while (strcmp(knob->name, name) != 0)
        knob++;
    return value ? value : knob->fallback;
}

static bool number(const char *text, int least, int most, int *value)
{
    char *end;
    const long n = strtol(text, &end, 10);

    if (*text < '0' || *text > '9' || *end || n < least || n > most)
        return false;
    *value = (int)n;
    return true;
}

/* --- the device ----------------------------------------------------------------- */

/* Write the text of a failed call of the driver to `why`. */
static enum shunt_status say(const struct cuda_driver *driver, const char *call,
                             int result, char *why, size_t why_len)
{
    cuda_driver_say(driver, call, result, why, why_len);
    return SHUNT_ERR_SYSTEM;
}

/* Returns the device of the thread's current context, or 0 if it has none. */
static int current_device(const struct cuda_driver *driver)
{
    void *context = NULL;
    int device = 0;

    if (driver->context_current(&context) || !context ||
        driver->context_device(&device))
        return 0;
    return device;
}

static enum shunt_status choose_device(const struct cuda_driver *driver,
                                       const struct shunt_transport_host *host,
                                       int *device, char *why, size_t why_len)
{
    const char *text = setting(host, DEVICE);
    int count = 0, ordinal = 0, result = driver->device_count(&count);

    if (result)
        return say(driver, "cuDeviceGetCount", result, why, why_len);
    if (!count) {
        snprintf(why, why_len, "the NVIDIA driver sees no GPU");
        return SHUNT_ERR_UNSUPPORTED;
    }
    if (!strcmp(text, "auto")) {
        *device = current_device(driver);
        return SHUNT_OK;
    }
    if (!number(text, 0, count - 1, &ordinal)) {
        snprintf(why, why_len,
                 DEVICE "=%s is neither auto nor the number of one of %d GPUs, "
                        "from 0 on",
                 text, count);
        return SHUNT_ERR_INVALID;
    }
    result = driver->device_get(device, ordinal);
    return result ? say(driver, "cuDeviceGet", result, why, why_len) : SHUNT_OK;
}

/* Choose the device. It must have unified addressing, as devices have since
 * CUDA 4 on 64 bits. */
static enum shunt_status find_device(const struct cuda_driver *driver,
                                     const struct shunt_transport_host *host,
                                     int *device, char *why, size_t why_len)
{
    enum shunt_status st = choose_device(driver, host, device, why, why_len);
    int unified = 0, result;

    if (st)
        return st;
    result = driver->device_attribute(
        &unified, CUDA_ATTRIBUTE_UNIFIED_ADDRESSING, *device);
    if (result)
        return say(driver, "cuDeviceGetAttribute", result, why, why_len);
    if (!unified) {
        snprintf(why, why_len, "GPU %d has no unified addressing", *device);
        return SHUNT_ERR_UNSUPPORTED;
    }
    return SHUNT_OK;
}

/* Writes to *words whether the device can mark the end of a copy by writing a
 * word (write_value), and whether SHUNT_CUDA_SIGNAL allows it. */
static enum shunt_status signals(const struct cuda_driver *driver,
                                 const struct shunt_transport_host *host,
                                 int device, bool *words, char *why,
                                 size_t why_len)
{
    const char *text = setting(host, SIGNAL);
    int can = 0;

    if (driver->write_value &&
        driver->device_attribute(&can, CUDA_ATTRIBUTE_STREAM_MEM_OPS_64,
                                 device))
        can = 0;
    *words = can && strcmp(text, "event") != 0;
    if (!strcmp(text, "auto") || !strcmp(text, "event") ||
        (!strcmp(text, "memory") && can))
        return SHUNT_OK;
    if (!strcmp(text, "memory"))
        snprintf(why, why_len,
                 SIGNAL "=memory: GPU %d, or its driver, cannot; leave it at "
                        "auto",
                 device);
    else
        snprintf(why, why_len, SIGNAL "=%s is none of auto, memory, event",
                 text);
    return SHUNT_ERR_INVALID;
}

/* --- the plugin --------------------------------------------------------------- */

static enum shunt_status cuda_probe(const struct shunt_transport_host *host,
                                    char *why, size_t why_len)
{
    const struct cuda_driver *driver = cuda_driver(why, why_len);
    enum shunt_status st;
    char name[128] = "";
    int device = 0, version = 0;
    bool words;

    if (!driver)
        return SHUNT_ERR_UNSUPPORTED;
    st = find_device(driver, host, &device, why, why_len);
    if (!st)
        st = signals(driver, host, device, &words, why, why_len);
    if (st)
        /* A GPU whose driver calls fail is reported as not usable. */
        return st == SHUNT_ERR_SYSTEM ? SHUNT_ERR_UNSUPPORTED : st;
    (void)driver->device_name(name, sizeof(name) - 1, device);
    (void)driver->version(&version);
    snprintf(why, why_len, "GPU %d, %s, CUDA %d.%d; %s", device,
             name[0] ? name : "without a name", version / 1000,
             version % 1000 / 10,
             words ? "it marks the end of a copy itself"
                   : "events mark the end of a copy");
    return SHUNT_OK;
}

/* Free the events, streams and words. The engine's context is current. */
static void take_down(struct shunt_engine_ctx *ctx)
{
    const struct cuda_driver *driver = ctx->driver;

    for (int i = 0; i < CUDA_SLOTS; i++)
        if (ctx->slot[i].event)
            (void)driver->event_destroy(ctx->slot[i].event);
    for (int s = 0; s < ctx->streams; s++)
        (void)driver->stream_destroy(ctx->stream[s]);
    if (ctx->words)
        (void)driver->host_free(ctx->words);
}

static int make_streams(struct shunt_engine_ctx *ctx, int count,
                        const char **call)
{
    int result = 0;

    *call = "cuStreamCreate";
    while (ctx->streams < count && !result) {
        result = ctx->driver->stream_create(&ctx->stream[ctx->streams],
                                            CUDA_STREAM_NON_BLOCKING);
        ctx->streams += !result;
    }
    return result;
}

static int make_words(struct shunt_engine_ctx *ctx, const char **call)
{
    void *memory = NULL;
    int result =
        ctx->driver->host_alloc(&memory, CUDA_SLOTS * sizeof(*ctx->words),
                                CUDA_HOST_PORTABLE | CUDA_HOST_DEVICEMAP);

    *call = "cuMemHostAlloc";
    if (result)
        return result;
    ctx->words = memory;
    memset(memory, 0, CUDA_SLOTS * sizeof(*ctx->words));
    *call = "cuMemHostGetDevicePointer";
    return ctx->driver->host_device_pointer(&ctx->words_device, memory, 0);
}

static int make_events(struct shunt_engine_ctx *ctx, const char **call)
{
    int result = 0;

    *call = "cuEventCreate";
    for (int i = 0; i < CUDA_SLOTS && !result; i++)
        result = ctx->driver->event_create(&ctx->slot[i].event,
                                           CUDA_EVENT_DISABLE_TIMING);
    return result;
}

/* Create streams and words or events. The engine's context is current. */
static int set_up(struct shunt_engine_ctx *ctx, int streams, bool words,
                  const char **call)
{
    int pitch = 0, result = make_streams(ctx, streams, call);

    if (!result)
        result = words ? make_words(ctx, call) : make_events(ctx, call);
    if (!result) {
        *call = "cuDeviceGetAttribute";
        result = ctx->driver->device_attribute(&pitch, CUDA_ATTRIBUTE_MAX_PITCH,
                                               ctx->device);
        ctx->max_pitch = pitch > 0 ? (size_t)pitch : 0;
    }
    if (result)
        take_down(ctx);
    return result;
}

static int start(struct shunt_engine_ctx *ctx, int streams, bool words,
                 const char **call)
{
    const struct cuda_driver *driver = ctx->driver;
    void *ours;
    int result = driver->context_retain(&ctx->context, ctx->device);

    *call = "cuDevicePrimaryCtxRetain";
    if (result)
        return result;
    result = driver->context_push(ctx->context);
    *call = "cuCtxPushCurrent";
    if (!result) {
        result = set_up(ctx, streams, words, call);
        (void)driver->context_pop(&ours);
    }
    if (result)
        (void)driver->context_release(ctx->device);
    return result;
}

static enum shunt_status cuda_open(const struct shunt_engine_params *params,
                                   struct shunt_engine_ctx **out, char *why,
                                   size_t why_len)
{
    const struct cuda_driver *driver = cuda_driver(why, why_len);
    struct shunt_engine_ctx *ctx;
    enum shunt_status st;
    int device = 0, streams, result;
    const char *call;
    bool words;

    *out = NULL;
    if (!driver)
        return SHUNT_ERR_UNSUPPORTED;
    st = find_device(driver, params->host, &device, why, why_len);
    if (!st)
        st = signals(driver, params->host, device, &words, why, why_len);
    if (st)
        return st;
    if (!number(setting(params->host, STREAMS), 1, CUDA_STREAMS, &streams)) {
        snprintf(why, why_len, STREAMS "=%s is no number from 1 to %d",
                 setting(params->host, STREAMS), CUDA_STREAMS);
        return SHUNT_ERR_INVALID;
    }
    ctx = calloc(1, sizeof(*ctx));
    if (!ctx) {
        snprintf(why, why_len, "no memory");
        return SHUNT_ERR_MEMORY;
    }
    ctx->driver = driver;
    ctx->device = device;
    (void)driver->device_name(ctx->name, sizeof(ctx->name) - 1, device);
    pthread_mutex_init(&ctx->lock, NULL);
    result = start(ctx, streams, words, &call);
    if (result) {
        (void)say(driver, call, result, why, why_len);
        pthread_mutex_destroy(&ctx->lock);
        free(ctx);
        return SHUNT_ERR_SYSTEM;
    }
    *out = ctx;
    return SHUNT_OK;
}

/* Leaks all memory if the device hangs, since it may still write to it. */
static void cuda_close(struct shunt_engine_ctx *ctx)
{
    void *ours;

    if (!ctx || atomic_load_explicit(&ctx->hangs, memory_order_acquire) ||
        !cuda_drain(ctx))
        return;
    if (!ctx->driver->context_push(ctx->context)) {
        take_down(ctx);
        (void)ctx->driver->context_pop(&ours);
    }
    (void)ctx->driver->context_release(ctx->device);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
}

static size_t cuda_counters(const struct shunt_engine_ctx *ctx,
                            struct shunt_transport_counter *counters,
                            size_t room)
{
    const struct shunt_transport_counter all[] = {
        {"messages", atomic_load_explicit(&ctx->copies, memory_order_relaxed)},
        {"bytes", atomic_load_explicit(&ctx->bytes, memory_order_relaxed)},
        {"retries", atomic_load_explicit(&ctx->full, memory_order_relaxed)},
    };
    const size_t count = sizeof(all) / sizeof(all[0]);

    for (size_t i = 0; i < count && i < room; i++)
        counters[i] = all[i];
    return count;
}

extern const struct shunt_engine shunt_engine_v5;

__attribute__((visibility("default")))
const struct shunt_engine shunt_engine_v5 = {
    .abi = SHUNT_ENGINE_ABI,
    .name = "cuda",
    .summary = "copies from, to and between NVIDIA GPUs, by their copy engines",
    .probe = cuda_probe,
    .open = cuda_open,
    .close = cuda_close,
    .submit = cuda_submit,
    .poll = cuda_poll,
    .failed = cuda_failed,
    .counters = cuda_counters,
    .knobs = knobs,
    .memory = &cuda_memory,
    .caps = SHUNT_ENGINE_SCATTERS,
    .give_up = cuda_give_up,
    .sharing = &cuda_sharing,
};
