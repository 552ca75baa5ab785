// SPDX-License-Identifier: Apache-2.0
/* Loads the CUDA driver; see driver.h. */
#include "transports/cuda/driver.h"
#include "transports/cuda/entries.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"

static const struct {
    const char *name;
    size_t offset;
    bool optional;
} entries[] = {
#define ENTRY(symbol, member, optional) \
    {#symbol, offsetof(struct cuda_driver, member), optional},
    CUDA_DRIVER_ENTRIES(ENTRY) CUDA_DRIVER_OLD_ENTRIES(ENTRY)
#undef ENTRY
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cuda_driver driver;
static bool ready;

void cuda_driver_say(const struct cuda_driver *d, const char *call, int result,
                     char *text, size_t len)
{
    const char *name = NULL, *words = NULL;

    if (d->error_name(result, &name) || !name)
        name = "an unknown CUresult";
    if (d->error_text(result, &words) || !words)
        words = "no description";
    snprintf(text, len, "%s: %s (%d: %s)", call, name, result, words);
}

static bool find_entries(void *library, char *why, size_t why_len)
{
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        void *entry = dlsym(library, entries[i].name);

        if (!entry && !entries[i].optional) {
            snprintf(why, why_len,
                     LIBRARY " has no %s: the driver is older than CUDA %d.%d; "
                             "update it",
                     entries[i].name, CUDA_DRIVER_MIN / 1000,
                     CUDA_DRIVER_MIN % 1000 / 10);
            return false;
        }
        memcpy((char *)&driver + entries[i].offset, &entry, sizeof(entry));
    }
    return true;
}

static bool start(char *why, size_t why_len)
{
    int version = 0, result = driver.version(&version);

    if (!result && version < CUDA_DRIVER_MIN) {
        snprintf(why, why_len,
                 "the driver supports CUDA %d.%d, and %d.%d is needed: update "
                 "it",
                 version / 1000, version % 1000 / 10, CUDA_DRIVER_MIN / 1000,
                 CUDA_DRIVER_MIN % 1000 / 10);
        return false;
    }
    result = driver.init(0);
    if (result == CUDA_NO_DEVICE)
        snprintf(why, why_len, "no GPU that CUDA can use%s",
                 "; if there should be one, look at CUDA_VISIBLE_DEVICES and "
                 "at what nvidia-smi says");
    else if (result)
        cuda_driver_say(&driver, "cuInit", result, why, why_len);
    return !result;
}

static bool load(char *why, size_t why_len)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        const char *error = dlerror();

        snprintf(why, why_len, "no NVIDIA driver here: %s",
                 error ? error : LIBRARY " was not loaded");
        return false;
    }
    /* Never unload the driver, even after an error: it may have started
     * threads. */
    return find_entries(library, why, why_len) && start(why, why_len);
}

const struct cuda_driver *cuda_driver(char *why, size_t why_len)
{
    pthread_mutex_lock(&lock);
    ready = ready || load(why, why_len);
    pthread_mutex_unlock(&lock);
    return ready ? &driver : NULL;
}
