// SPDX-License-Identifier: Apache-2.0
/*
 * The registry of transports.
 *
 * A plugin that was loaded stays: its code may be running in some thread, and
 * its descriptor is handed around by pointer. What could not be loaded is not
 * remembered, so that a path repaired by setenv() works.
 */
#include "src/plugin.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/env.h"
#include "src/error.h"
#include "src/log.h"
#include "src/shunt-build.h"

#define PREFIX "shunt_"
#define SUFFIX ".so"
#define FOLDERS_MAX 16
#define FILE_MAX (PATH_MAX + SHUNTI_TRANSPORT_NAME_MAX + 16)

struct loaded {
    struct loaded *next;
    const struct shunt_transport *transport;
    char path[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct loaded *loaded; /* under lock; entries are never freed */

/* -- what plugins get --------------------------------------------------------- */

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

const struct shunt_transport_host *shunti_transport_host(void)
{
    static const struct shunt_transport_host host = {
        .abi = SHUNT_TRANSPORT_ABI,
        .log = host_log,
        .env = shunti_env_raw,
        .find = host_find,
    };

    return &host;
}

/* -- where they are ----------------------------------------------------------- */

struct folders {
    char path[FOLDERS_MAX][PATH_MAX];
    size_t count;
};

__attribute__((format(printf, 2, 3))) static void
add_folder(struct folders *f, const char *format, ...)
{
    va_list args;
    int n;

    if (f->count == FOLDERS_MAX)
        return;
    va_start(args, format);
    n = vsnprintf(f->path[f->count], sizeof(f->path[0]), format, args);
    va_end(args);
    if (n <= 0 || (size_t)n >= sizeof(f->path[0]))
        return;
    for (size_t i = 0; i < f->count; i++)
        if (!strcmp(f->path[i], f->path[f->count]))
            return;
    f->count++;
}

/* NULL: no memory. */
static struct folders *find_folders(void)
{
    struct folders *f = calloc(1, sizeof(*f));
    const char *path = shunti_env_string("SHUNT_PLUGIN_PATH");
    char ours[PATH_MAX];
    Dl_info info;
    char *slash;

    if (!f)
        return NULL;
    while (path && *path) {
        size_t len = strcspn(path, ":");

        if (len)
            add_folder(f, "%.*s", (int)len, path);
        path += len;
        path += *path == ':';
    }
    /* Beside this code: libshunt.so, or (shunt-info, tests) a program that has
     * it built in, in the build tree or a prefix's bin/. */
    if (dladdr((void *)(uintptr_t)find_folders, &info) && info.dli_fname &&
        realpath(info.dli_fname, ours) && (slash = strrchr(ours, '/'))) {
        *slash = '\0';
        add_folder(f, "%s/shunt", ours);
        add_folder(f, "%s/transports", ours);
        if (strncmp(slash + 1, "libshunt", strlen("libshunt")) &&
            (slash = strrchr(ours, '/'))) {
            *slash = '\0';
            add_folder(f, "%s/transports", ours);
            add_folder(f, "%s/%s", ours, SHUNT_PLUGIN_LIBDIR);
        }
    }
    return f;
}

static bool valid_name(const char *name)
{
    size_t len = strlen(name);

    return len && len < SHUNTI_TRANSPORT_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

/* -- loading ------------------------------------------------------------------ */

struct operation {
    const char *name;
    size_t offset;
};

/* clang-format off */
#define OPERATION(op) {#op, offsetof(struct shunt_transport, op)}
/* clang-format on */

/* Every operation must be there: what a transport lacks it answers itself. */
static const struct operation operations[] = {
    OPERATION(probe),  OPERATION(open),     OPERATION(close),
    OPERATION(error),  OPERATION(address),  OPERATION(connect),
    OPERATION(caps),   OPERATION(reg),      OPERATION(dereg),
    OPERATION(import), OPERATION(release),  OPERATION(map),
    OPERATION(put),    OPERATION(get),      OPERATION(flush),
    OPERATION(wake),   OPERATION(progress), OPERATION(wait_fd),
    OPERATION(arm),    OPERATION(disarm),   OPERATION(alive),
    OPERATION(left),
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

/* A knob of `t` that cannot be its own, or NULL. */
static const char *foreign_knob(const struct shunt_transport *t)
{
    const struct shunt_transport_knob *knob;

    for (knob = t->knobs; knob && knob->name; knob++)
        if (!owns(t->name, knob->name))
            return knob->name;
    return NULL;
}

/* Take its knobs into the table of variables. */
static void declare_knobs(const struct shunt_transport *t)
{
    const struct shunt_transport_knob *knob;

    for (knob = t->knobs; knob && knob->name; knob++) {
        const struct shunti_env_row row = {
            .name = knob->name,
            .type = SHUNTI_ENV_STRING,
            .fallback = knob->fallback,
            .help = knob->help,
        };

        if (!shunti_env_declare(&row))
            shunti_warn("plugin", "no room for the variable %s of transport %s",
                        knob->name, t->name);
    }
}

/* Is it one of ours, and whole? `why` says what not. */
static bool check(const struct shunt_transport *t, const char *name,
                  const char *path, char *why, size_t why_len)
{
    const char *missing;

    if (!t) {
        snprintf(why, why_len, "%s does not export %s: it is no transport",
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
    } else if ((missing = foreign_knob(t))) {
        snprintf(why, why_len,
                 "%s declares the variable '%s', which is none of its own "
                 "(SHUNT_<NAME>, or SHUNT_<NAME>_...)",
                 path, missing);
    } else {
        return true;
    }
    return false;
}

static struct loaded *find_loaded(const char *name)
{
    for (struct loaded *l = loaded; l; l = l->next)
        if (!strcmp(l->transport->name, name))
            return l;
    return NULL;
}

/* Under lock. */
static const struct shunt_transport *load(const char *name, const char *path,
                                          char *why, size_t why_len)
{
    struct loaded *entry = malloc(sizeof(*entry) + strlen(path) + 1);
    void *handle = entry ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const struct shunt_transport *t;

    if (!handle) {
        const char *error = entry ? dlerror() : "no memory";

        snprintf(why, why_len, "%s could not be loaded: %s", path,
                 error ? error : "?");
        free(entry);
        return NULL;
    }
    t = dlsym(handle, SHUNT_TRANSPORT_SYMBOL);
    if (!check(t, name, path, why, why_len)) {
        dlclose(handle);
        free(entry);
        return NULL;
    }
    declare_knobs(t);
    entry->transport = t;
    strcpy(entry->path, path);
    entry->next = loaded;
    loaded = entry;
    shunti_debug("plugin", "loaded %s", path);
    return t;
}

/* The file of `name` in the first folder that has one; false: `why` says where
 * it was looked for. */
static bool locate(const char *name, char *path, size_t len, char *why,
                   size_t why_len)
{
    struct folders *f = find_folders();
    bool found = false;
    size_t used;

    if (!f) {
        snprintf(why, why_len, "no memory to look for transports");
        return false;
    }
    for (size_t i = 0; i < f->count && !found; i++) {
        snprintf(path, len, "%s/" PREFIX "%s" SUFFIX, f->path[i], name);
        found = !access(path, F_OK);
    }
    if (!found)
        used = (size_t)snprintf(why, why_len, "no " PREFIX "%s" SUFFIX " in",
                                name);
    for (size_t i = 0; !found && i < f->count && used < why_len; i++)
        used += (size_t)snprintf(why + used, why_len - used, "%s %s",
                                 i ? "," : "", f->path[i]);
    free(f);
    return found;
}

const struct shunt_transport *shunti_transport_find(const char *name, char *why,
                                                    size_t why_len)
{
    const struct shunt_transport *t = NULL;
    char path[FILE_MAX];
    struct loaded *l;

    if (why_len)
        why[0] = '\0';
    if (!valid_name(name)) {
        snprintf(why, why_len, "'%s' cannot be the name of a transport", name);
        return NULL;
    }
    pthread_mutex_lock(&lock);
    l = find_loaded(name);
    if (l)
        t = l->transport;
    else if (locate(name, path, sizeof(path), why, why_len))
        t = load(name, path, why, why_len);
    pthread_mutex_unlock(&lock);
    return t;
}

/* -- what is known of a file -------------------------------------------------- */

/* Does the file hold SHUNT_TRANSPORT_FAR_MARK? One that cannot be read is left
 * to the loader, which says why. */
static bool file_is_far(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *bytes = MAP_FAILED;
    bool far = false;

    if (fd < 0)
        return false;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0)
        bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes != MAP_FAILED) {
        far = memmem(bytes, (size_t)st.st_size, SHUNT_TRANSPORT_FAR_MARK,
                     strlen(SHUNT_TRANSPORT_FAR_MARK)) != NULL;
        munmap(bytes, (size_t)st.st_size);
    }
    return far;
}

/* -- listing ------------------------------------------------------------------ */

struct list {
    struct shunti_transport_entry *item;
    size_t count;
    int cut; /* errno, if it is not all of them; else 0 */
};

static bool list_add(struct list *list, const char *folder, const char *name)
{
    struct shunti_transport_entry *grown, *e;

    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->item[i].name, name))
            return true; /* an earlier folder's counts */
    grown = realloc(list->item, (list->count + 1) * sizeof(*grown));
    if (!grown)
        return false;
    list->item = grown;
    e = &grown[list->count];
    memset(e, 0, sizeof(*e));
    strcpy(e->name, name);
    if (asprintf(&e->path, "%s/" PREFIX "%s" SUFFIX, folder, name) < 0) {
        e->path = NULL;
        return false;
    }
    list->count++;
    return true;
}

/* The plugin files of a folder. Returns errno of what this process lacks for
 * that, or 0; a folder that is not there has none. */
static int list_folder(struct list *list, const char *folder)
{
    char name[SHUNTI_TRANSPORT_NAME_MAX];
    DIR *dir = opendir(folder);
    struct dirent *d;
    bool ok = true;

    if (!dir)
        return errno == ENOMEM || errno == EMFILE || errno == ENFILE ? errno
                                                                     : 0;
    while (ok && (d = readdir(dir))) {
        size_t len = strlen(d->d_name);
        size_t around = strlen(PREFIX) + strlen(SUFFIX);

        if (len <= around || len - around >= sizeof(name) ||
            strncmp(d->d_name, PREFIX, strlen(PREFIX)) ||
            strcmp(d->d_name + len - strlen(SUFFIX), SUFFIX))
            continue;
        memcpy(name, d->d_name + strlen(PREFIX), len - around);
        name[len - around] = '\0';
        ok = !valid_name(name) || list_add(list, folder, name);
    }
    closedir(dir);
    return ok ? 0 : ENOMEM;
}

static int by_score(const void *a, const void *b)
{
    const struct shunti_transport_entry *x = a, *y = b;
    int sx = x->transport ? x->transport->score : INT_MIN;
    int sy = y->transport ? y->transport->score : INT_MIN;

    if (x->far != y->far)
        return x->far ? 1 : -1;
    if (sx != sy)
        return sx < sy ? 1 : -1;
    return strcmp(x->name, y->name);
}

static bool probe(const struct shunt_transport *t,
                  struct shunt_transport_estimate *estimate, char *why,
                  size_t why_len)
{
    enum shunt_status st;

    *estimate = (struct shunt_transport_estimate){0};
    if (why_len)
        why[0] = '\0';
    st = t->probe(shunti_transport_host(), estimate, why, why_len);
    if (st && why_len && !why[0])
        snprintf(why, why_len, "%s", shunt_strerror(st));
    return !st;
}

static void load_entry(struct shunti_transport_entry *e)
{
    e->transport = shunti_transport_find(e->name, e->why, sizeof(e->why));
    if (e->transport)
        e->usable = probe(e->transport, &e->estimate, e->why, sizeof(e->why));
}

/* Every plugin file; those that are far are loaded only if `far`. */
static struct list list_plugins(bool far)
{
    struct folders *f = find_folders();
    struct list list = {0};

    list.cut = f ? 0 : ENOMEM;
    for (size_t i = 0; f && i < f->count && !list.cut; i++)
        list.cut = list_folder(&list, f->path[i]);
    free(f);
    for (size_t i = 0; i < list.count; i++) {
        struct shunti_transport_entry *e = &list.item[i];

        e->far = file_is_far(e->path);
        if (far || !e->far)
            load_entry(e);
    }
    if (list.count)
        qsort(list.item, list.count, sizeof(*list.item), by_score);
    return list;
}

struct shunti_transport_entry *shunti_transport_list(size_t *count)
{
    struct list list = list_plugins(true);

    *count = list.count;
    return list.item;
}

void shunti_transport_list_destroy(struct shunti_transport_entry *list,
                                   size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i].path);
    free(list);
}

/* -- choosing ----------------------------------------------------------------- */

/* "shm, inproc and fault exist" for messages. */
static void list_names(char *text, size_t len)
{
    struct list list = list_plugins(false);
    size_t used = 0;

    snprintf(text, len, "none was found (see shunt-info)");
    for (size_t i = 0; i < list.count && used < len; i++)
        used += (size_t)snprintf(text + used, len - used, "%s%s", i ? ", " : "",
                                 list.item[i].name);
    shunti_transport_list_destroy(list.item, list.count);
}

/* Room for one more; NULL: an error. */
static struct shunti_candidate *add_candidate(struct shunti_candidates *out,
                                              const char *name,
                                              const char *options)
{
    struct shunti_candidate *c = &out->item[out->count];

    if (out->count == SHUNTI_TRANSPORTS_MAX) {
        shunti_fail(NULL, SHUNT_ERR_INVALID, "more than %d transports",
                    SHUNTI_TRANSPORTS_MAX);
        return NULL;
    }
    if (strlen(options) >= sizeof(c->options)) {
        shunti_fail(NULL, SHUNT_ERR_INVALID,
                    "the options '%s' of transport %s are too long", options,
                    name);
        return NULL;
    }
    strcpy(c->name, name);
    strcpy(c->options, options);
    out->count++;
    return c;
}

static bool is_far(const char *name)
{
    char path[FILE_MAX], why[64];

    return valid_name(name) &&
           locate(name, path, sizeof(path), why, sizeof(why)) &&
           file_is_far(path);
}

/* A word "name" or "name+options" of the user's list. */
static enum shunt_status add_wanted(struct shunti_candidates *out,
                                    const char *word)
{
    char name[SHUNTI_TRANSPORT_NAME_MAX] = "", why[512], known[256];
    size_t len = strcspn(word, "+");
    const char *options = word[len] ? word + len + 1 : "";
    const struct shunt_transport *t = NULL;
    struct shunti_candidate *c;
    bool far = false;

    snprintf(why, sizeof(why), "no transport has such a name");
    if (len && len < sizeof(name)) {
        memcpy(name, word, len);
        far = is_far(name);
        if (!far)
            t = shunti_transport_find(name, why, sizeof(why));
    }
    if (!t && !far) {
        list_names(known, sizeof(known));
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "transport '%s': %s; there are: %s", word, why,
                           known);
    }
    c = add_candidate(out, name, options);
    if (!c)
        return SHUNT_ERR_INVALID;
    c->transport = t;
    c->far = far;
    c->wanted = true;
    if (t && !probe(t, &c->estimate, why, sizeof(why)))
        return shunti_fail(NULL, SHUNT_ERR_UNSUPPORTED,
                           "transport %s does not work here: %s", name, why);
    return SHUNT_OK;
}

enum shunt_status shunti_candidate_load(struct shunti_candidate *c, char *why,
                                        size_t why_len)
{
    if (c->transport)
        return SHUNT_OK;
    c->transport = shunti_transport_find(c->name, why, why_len);
    if (!c->transport)
        return SHUNT_ERR_UNSUPPORTED;
    if (c->transport->score > 0 || c->wanted)
        return SHUNT_OK;
    snprintf(why, why_len, "it must be asked for in SHUNT_TRANSPORTS");
    c->transport = NULL;
    return SHUNT_ERR_UNSUPPORTED;
}

static bool is_listed(char *const *words, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(words[i], name))
            return true;
    return false;
}

/* An exclusion of what is not there is a spelling mistake. */
static enum shunt_status check_excluded(char *const *words, size_t nwords,
                                        const struct shunti_transport_entry *e,
                                        size_t count)
{
    char known[256];

    for (size_t i = 0; i < nwords; i++) {
        size_t j = 0;

        while (j < count && strcmp(words[i], e[j].name))
            j++;
        if (j < count)
            continue;
        list_names(known, sizeof(known));
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "transport '%s', which is not to be used, does not "
                           "exist; there are: %s",
                           words[i], known);
    }
    return SHUNT_OK;
}

static enum shunt_status add_all_but(struct shunti_candidates *out,
                                     char *const *words, size_t nwords)
{
    char why[512] = "no plugin was found; is SHUNT_PLUGIN_PATH right?";
    struct list list = list_plugins(false);
    enum shunt_status st =
        list.cut ? shunti_fail(NULL,
                               list.cut == ENOMEM ? SHUNT_ERR_MEMORY
                                                  : SHUNT_ERR_SYSTEM,
                               "cannot list the transports: %s%s",
                               strerror(list.cut), shunti_remedy(list.cut))
                 : check_excluded(words, nwords, list.item, list.count);

    for (size_t i = 0; !st && i < list.count; i++) {
        struct shunti_transport_entry *e = &list.item[i];
        struct shunti_candidate *c;

        if (is_listed(words, nwords, e->name))
            continue;
        if (!e->far && (!e->transport || !e->usable)) {
            snprintf(why, sizeof(why), "%s: %.400s", e->name, e->why);
            shunti_info("plugin", "transport %s", why);
        } else if (e->far || e->transport->score > 0) {
            c = add_candidate(out, e->name, "");
            if (!c) {
                st = SHUNT_ERR_INVALID;
                break;
            }
            c->transport = e->transport;
            c->estimate = e->estimate;
            c->far = e->far;
        }
    }
    shunti_transport_list_destroy(list.item, list.count);
    if (!st && !out->count)
        st = shunti_fail(NULL, SHUNT_ERR_UNSUPPORTED,
                         "no transport works here (%s); shunt-info lists them",
                         why);
    return st;
}

/* Cut "a, b,c" in place. */
static size_t split(char *text, char *words[SHUNTI_TRANSPORTS_MAX])
{
    size_t n = 0;
    char *save = NULL;

    for (char *w = strtok_r(text, ", \t", &save);
         w && n < SHUNTI_TRANSPORTS_MAX; w = strtok_r(NULL, ", \t", &save))
        words[n++] = w;
    return n;
}

enum shunt_status shunti_transport_candidates(const char *spec,
                                              struct shunti_candidates *out)
{
    char text[512], *words[SHUNTI_TRANSPORTS_MAX];
    enum shunt_status st = SHUNT_OK;
    bool except;
    size_t n;

    memset(out, 0, sizeof(*out));
    spec = spec ? spec : "";
    except = *spec == '^';
    if (strlen(spec) >= sizeof(text))
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "the list of transports is too long");
    strcpy(text, spec + except);
    n = split(text, words);
    if (strchr(spec + except, '^') || (except && !n))
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "transports '%s': give those to use ('shm,ucx'), or "
                           "those not to use after one ^ ('^shm,ucx')",
                           spec);
    if (except || !n)
        return add_all_but(out, words, n);
    for (size_t i = 0; !st && i < n; i++)
        st = add_wanted(out, words[i]);
    return st;
}

bool shunti_transport_is_there(const char *name)
{
    char path[FILE_MAX], why[256];

    return valid_name(name) &&
           locate(name, path, sizeof(path), why, sizeof(why));
}
