// SPDX-License-Identifier: Apache-2.0
/*
 * Loads plugins, transports and copy engines, and keeps them.
 *
 * A loaded plugin is never unloaded: some thread may run its code, and other
 * code holds pointers to its descriptor. A failure to load is not remembered,
 * so that a path corrected by setenv() works.
 */
#include "src/plugin/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/error.h"
#include "src/base/forks.h"
#include "src/base/log.h"
#include "src/plugin/plugin_files.h"
#include "src/plugin/transport_defaults.h"

/* A plugin is either a transport or a copy engine. */
struct loaded {
    struct loaded *next;
    const char *name;
    /* The plugin's descriptor, with defaults for what it leaves out. */
    struct shunt_transport transport;
    const struct shunt_engine *engine; /* NULL: the plugin is a transport */
    char path[];
};

/* Recursive, because a plugin may fork while it is being loaded. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct loaded *loaded; /* protected by `lock`; entries are never freed */

/* --- what the library offers to plugins ----------------------------------- */

__attribute__((format(printf, 3, 4))) static void
host_log(int level, const char *transport, const char *format, ...)
{
    char text[768];
    va_list args;

    if (level < SHUNTI_LOG_ERROR || level > SHUNTI_LOG_DEBUG ||
        level >
            atomic_load_explicit(&shunti_log_threshold, memory_order_relaxed))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    shunti_log_write((enum shunti_log_level)level, transport, "%s", text);
}

static const struct shunt_transport *host_find(const char *name)
{
    char why[256];
    const struct shunt_transport *t =
        shunti_transport_find(name, why, sizeof(why));

    if (!t)
        shunti_info("plugin", "%s", why);
    return t;
}

void (*shunti_transport_meanwhile)(void);

static void host_meanwhile(void)
{
    if (shunti_transport_meanwhile)
        shunti_transport_meanwhile();
}

const struct shunt_transport_host *shunti_transport_host(void)
{
    static const struct shunt_transport_host host = {
        .abi = SHUNT_TRANSPORT_ABI,
        .log = host_log,
        .env = shunti_env_raw,
        .find = host_find,
        .remedy = shunti_remedy,
        .meanwhile = host_meanwhile,
    };

    return &host;
}

/* --- loading -------------------------------------------------------------- */

struct operation {
    const char *name;
    size_t offset;
};

/* clang-format off */
#define OPERATION(op) {#op, offsetof(struct shunt_transport, op)}
/* clang-format on */

/* The operations that every plugin has. The others have defaults
 * (transport_defaults.c). */
static const struct operation operations[] = {
    OPERATION(open),     OPERATION(close),   OPERATION(error),
    OPERATION(address),  OPERATION(connect), OPERATION(reg),
    OPERATION(dereg),    OPERATION(import),  OPERATION(release),
    OPERATION(put),      OPERATION(flush),   OPERATION(wake),
    OPERATION(progress), OPERATION(wait_fd), OPERATION(arm),
    OPERATION(alive),    OPERATION(left),
};

#undef OPERATION

static const char *missing_operation(const struct shunt_transport *t)
{
    for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
        void (*op)(void);

        memcpy(&op, (const char *)t + operations[i].offset, sizeof(op));
        if (!op)
            return operations[i].name;
    }
    return NULL;
}

/* Does the variable `name` belong to `plugin`? */
static bool owns(const char *plugin, const char *name)
{
    size_t n = strlen(plugin);

    if (strncmp(name, "SHUNT_", 6) || strncasecmp(name + 6, plugin, n))
        return false;
    return !name[6 + n] || name[6 + n] == '_';
}

/* A knob whose name is not valid for `plugin`, or NULL. */
static const char *foreign_knob(const char *plugin,
                                const struct shunt_transport_knob *knob)
{
    for (; knob && knob->name; knob++)
        if (!owns(plugin, knob->name))
            return knob->name;
    return NULL;
}

/* Add the knobs of a plugin to the table of variables. */
static void declare_knobs(const char *plugin,
                          const struct shunt_transport_knob *knob)
{
    for (; knob && knob->name; knob++) {
        const struct shunti_env_row row = {
            .name = knob->name,
            .type = SHUNTI_ENV_STRING,
            .fallback = knob->fallback,
            .help = knob->help,
        };

        if (!shunti_env_declare(&row))
            shunti_warn("plugin", "no room for the variable %s of plugin %s",
                        knob->name, plugin);
    }
}

/* Is this a transport with the right ABI number and all mandatory operations?
 * If not, `why` says why. */
static bool check(const struct shunt_transport *t, const char *name,
                  const char *path, char *why, size_t why_len)
{
    const char *missing;

    if (!t) {
        snprintf(why, why_len, "%s does not export %s: it is not a transport",
                 path, SHUNT_TRANSPORT_SYMBOL);
    } else if (t->abi != SHUNT_TRANSPORT_ABI) {
        snprintf(why, why_len,
                 "%s was built for version %u of the transport interface, this "
                 "library has version %u: rebuild it",
                 path, t->abi, SHUNT_TRANSPORT_ABI);
    } else if (!t->name || strcmp(t->name, name)) {
        snprintf(why, why_len,
                 "%s calls itself '%s'; file and transport must have the same "
                 "name",
                 path, t->name ? t->name : "");
    } else if ((missing = missing_operation(t))) {
        snprintf(why, why_len, "%s lacks the operation '%s'", path, missing);
    } else if ((missing = foreign_knob(t->name, t->knobs))) {
        snprintf(why, why_len,
                 "%s declares the variable '%s', which is not one of its own "
                 "(SHUNT_<NAME>, or SHUNT_<NAME>_...)",
                 path, missing);
    } else {
        return true;
    }
    return false;
}

/* As check(), for a copy engine. */
static bool check_engine(const struct shunt_engine *e, const char *name,
                         const char *path, char *why, size_t why_len)
{
    const char *foreign;

    if (e->abi != SHUNT_ENGINE_ABI) {
        snprintf(why, why_len,
                 "%s was built for version %u of the engine interface, this "
                 "library has version %u: rebuild it",
                 path, e->abi, SHUNT_ENGINE_ABI);
    } else if (!e->name || strcmp(e->name, name)) {
        snprintf(why, why_len,
                 "%s calls itself '%s'; file and engine must have the same "
                 "name",
                 path, e->name ? e->name : "");
    } else if (!e->probe || !e->open || !e->close || !e->submit || !e->poll) {
        snprintf(why, why_len, "%s lacks an operation", path);
    } else if ((foreign = foreign_knob(e->name, e->knobs))) {
        snprintf(why, why_len,
                 "%s declares the variable '%s', which is not one of its own "
                 "(SHUNT_<NAME>, or SHUNT_<NAME>_...)",
                 path, foreign);
    } else {
        return true;
    }
    return false;
}

static struct loaded *find_loaded(const char *name)
{
    for (struct loaded *l = loaded; l; l = l->next)
        if (!strcmp(l->name, name))
            return l;
    return NULL;
}

/* The caller holds `lock`. */
static struct loaded *load(const char *name, const char *path, char *why,
                           size_t why_len)
{
    struct loaded *entry = calloc(1, sizeof(*entry) + strlen(path) + 1);
    void *handle = entry ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const struct shunt_transport *t;
    const struct shunt_engine *e;

    if (!handle) {
        const char *error = entry ? dlerror() : "no memory";

        snprintf(why, why_len, "%s could not be loaded: %s", path,
                 error ? error : "?");
        free(entry);
        return NULL;
    }
    t = dlsym(handle, SHUNT_TRANSPORT_SYMBOL);
    e = t ? NULL : dlsym(handle, SHUNT_ENGINE_SYMBOL);
    if (e ? !check_engine(e, name, path, why, why_len)
          : !check(t, name, path, why, why_len)) {
        dlclose(handle);
        free(entry);
        return NULL;
    }
    if (t) {
        entry->transport = *t;
        shunti_transport_complete(&entry->transport);
    }
    entry->engine = e;
    entry->name = t ? t->name : e->name;
    declare_knobs(entry->name, t ? t->knobs : e->knobs);
    strcpy(entry->path, path);
    entry->next = loaded;
    loaded = entry;
    shunti_debug("plugin", "loaded %s", path);
    return entry;
}

static const struct loaded *find(const char *name, char *why, size_t why_len)
{
    char path[SHUNTI_PLUGIN_FILE_MAX];
    struct loaded *l;

    if (why_len)
        why[0] = '\0';
    if (!shunti_plugin_name_is_valid(name)) {
        snprintf(why, why_len, "'%s' cannot be the name of a transport", name);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    l = find_loaded(name);
    if (!l && shunti_plugin_locate(name, path, sizeof(path), why, why_len))
        l = load(name, path, why, why_len);
    pthread_mutex_unlock(&lock);
    return l;
}

const struct shunt_transport *shunti_transport_find(const char *name, char *why,
                                                    size_t why_len)
{
    const struct loaded *l = find(name, why, why_len);

    if (l && l->engine)
        snprintf(why, why_len, "%s is a copy engine, not a transport", l->path);
    return l && !l->engine ? &l->transport : NULL;
}

const struct shunt_engine *shunti_engine_find(const char *name, char *why,
                                              size_t why_len)
{
    const struct loaded *l = find(name, why, why_len);

    if (l && !l->engine)
        snprintf(why, why_len, "%s is a transport, not a copy engine", l->path);
    return l ? l->engine : NULL;
}

bool shunti_transport_is_there(const char *name)
{
    char path[SHUNTI_PLUGIN_FILE_MAX], why[256];

    return shunti_plugin_name_is_valid(name) &&
           shunti_plugin_locate(name, path, sizeof(path), why, sizeof(why));
}

bool shunti_transport_is_far(const char *name)
{
    char path[SHUNTI_PLUGIN_FILE_MAX], why[64];

    return shunti_plugin_name_is_valid(name) &&
           shunti_plugin_locate(name, path, sizeof(path), why, sizeof(why)) &&
           shunti_plugin_file_is_far(path, NULL);
}

/* Reinitialize the lock. The child cannot unlock it, since its thread has
 * another id. */
static void forked(void)
{
    static const pthread_mutex_t fresh = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

    lock = fresh;
}

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {
        .lock = &lock,
        .outer = true,
        .in_child = forked,
    };

    shunti_fork_watch(&fork);
}
