// SPDX-License-Identifier: Apache-2.0
/* Lists all plugins: finds their files, and loads and probes them. */
#include "src/plugin/plugin_list.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/plugin/plugin_files.h"

static bool list_add(struct shunti_plugin_list *list, const char *folder,
                     const char *name)
{
    struct shunti_transport_entry *grown, *e;

    for (size_t i = 0; i < list->count; i++)
        if (!strcmp(list->item[i].name, name))
            return true; /* the file in an earlier folder is used */
    grown = realloc(list->item, (list->count + 1) * sizeof(*grown));
    if (!grown)
        return false;
    list->item = grown;
    e = &grown[list->count];
    memset(e, 0, sizeof(*e));
    strcpy(e->name, name);
    if (asprintf(&e->path, "%s/" SHUNTI_PLUGIN_PREFIX "%s" SHUNTI_PLUGIN_SUFFIX,
                 folder, name) < 0) {
        e->path = NULL;
        return false;
    }
    list->count++;
    return true;
}

/* Add the plugin files of a folder. Returns 0, or an errno if this process
 * lacks memory or descriptors. A folder that does not exist has none. */
static int list_folder(struct shunti_plugin_list *list, const char *folder)
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
        size_t around =
            strlen(SHUNTI_PLUGIN_PREFIX) + strlen(SHUNTI_PLUGIN_SUFFIX);

        if (len <= around || len - around >= sizeof(name) ||
            strncmp(d->d_name, SHUNTI_PLUGIN_PREFIX,
                    strlen(SHUNTI_PLUGIN_PREFIX)) ||
            strcmp(d->d_name + len - strlen(SHUNTI_PLUGIN_SUFFIX),
                   SHUNTI_PLUGIN_SUFFIX))
            continue;
        memcpy(name, d->d_name + strlen(SHUNTI_PLUGIN_PREFIX), len - around);
        name[len - around] = '\0';
        ok = !shunti_plugin_name_is_valid(name) || list_add(list, folder, name);
    }
    closedir(dir);
    return ok ? 0 : ENOMEM;
}

static int by_score(const void *a, const void *b)
{
    const struct shunti_transport_entry *x = a, *y = b;
    if (x->far != y->far)
        return x->far ? 1 : -1;
    if (x->score != y->score)
        return x->score < y->score ? 1 : -1;
    return strcmp(x->name, y->name);
}

bool shunti_plugin_probe(const struct shunt_transport *t,
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

/* Load and probe an entry. engines: also probe copy engines, which may start
 * the driver of a device. */
static void load_entry(struct shunti_transport_entry *e, bool engines)
{
    char why[sizeof(e->why)];

    e->transport = shunti_transport_find(e->name, e->why, sizeof(e->why));
    if (e->transport)
        e->score = e->transport->score;
    if (e->transport)
        e->usable = shunti_plugin_probe(e->transport, &e->estimate, e->why,
                                        sizeof(e->why));
    else if ((e->engine = shunti_engine_find(e->name, why, sizeof(why))))
        e->usable = engines && !e->engine->probe(shunti_transport_host(),
                                                 e->why, sizeof(e->why));
}

struct shunti_plugin_list shunti_plugin_list(bool far)
{
    struct shunti_plugin_folders *f = shunti_plugin_find_folders();
    struct shunti_plugin_list list = {0};

    list.cut = f ? 0 : ENOMEM;
    for (size_t i = 0; f && i < f->count && !list.cut; i++)
        list.cut = list_folder(&list, f->path[i]);
    free(f);
    for (size_t i = 0; i < list.count; i++) {
        struct shunti_transport_entry *e = &list.item[i];

        e->score = INT_MIN;
        e->far = shunti_plugin_file_is_far(e->path, &e->score);
        if (far || !e->far)
            load_entry(e, far);
    }
    if (list.count)
        qsort(list.item, list.count, sizeof(*list.item), by_score);
    return list;
}

struct shunti_transport_entry *shunti_transport_list(size_t *count)
{
    struct shunti_plugin_list list = shunti_plugin_list(true);

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
