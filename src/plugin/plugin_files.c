// SPDX-License-Identifier: Apache-2.0
/* The files of plugins; see plugin_files.h. */
#include "src/plugin/plugin_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/own_file.h"
#include "src/shunt-build.h"
#include "transports/common/descriptor.h"

__attribute__((format(printf, 2, 3))) static void
add_folder(struct shunti_plugin_folders *f, const char *format, ...)
{
    va_list args;
    int n;

    if (f->count == SHUNTI_PLUGIN_FOLDERS_MAX)
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

/* The folders that SHUNT_PLUGIN_PATH names. */
static void add_named(struct shunti_plugin_folders *f)
{
    const char *path = shunti_env_string("SHUNT_PLUGIN_PATH");

    while (path && *path) {
        size_t len = strcspn(path, ":");

        if (len)
            add_folder(f, "%.*s", (int)len, path);
        path += len;
        path += *path == ':';
    }
}

/* Add the folders beside the object of this code: libshunt.so, or a program
 * that links it statically (shunt-info, tests), in the build tree or in
 * PREFIX/bin. */
static void add_ours(struct shunti_plugin_folders *f)
{
    char ours[PATH_MAX], *slash;

    if (!shunti_own_file((void *)(uintptr_t)shunti_plugin_find_folders, ours))
        return;
    slash = strrchr(ours, '/');
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

/* Does the folder contain plugins? An unrelated folder may have the same name,
 * such as that of the sources. */
static bool has_plugins(const char *folder)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool any = false;

    while (dir && !any && (entry = readdir(dir))) {
        const char *suffix = strrchr(entry->d_name, '.');

        any = suffix && !strcmp(suffix, SHUNTI_PLUGIN_SUFFIX) &&
              !strncmp(entry->d_name, SHUNTI_PLUGIN_PREFIX,
                       strlen(SHUNTI_PLUGIN_PREFIX));
    }
    if (dir)
        closedir(dir);
    return any;
}

struct shunti_plugin_folders *shunti_plugin_find_folders(void)
{
    struct shunti_plugin_folders *f = calloc(1, sizeof(*f));
    bool any = false;
    size_t named;

    if (!f)
        return NULL;
    add_named(f);
    named = f->count;
    add_ours(f);
    for (size_t i = named; i < f->count && !any; i++)
        any = has_plugins(f->path[i]);
    /* Used if the file of this code was moved by itself, or cannot be found. */
    if (!any)
        add_folder(f, "%s", SHUNT_PLUGIN_DIR);
    return f;
}

bool shunti_plugin_name_is_valid(const char *name)
{
    size_t len = strlen(name);

    return len && len < SHUNTI_TRANSPORT_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

bool shunti_plugin_locate(const char *name, char *path, size_t len, char *why,
                          size_t why_len)
{
    struct shunti_plugin_folders *f = shunti_plugin_find_folders();
    bool found = false;
    size_t used;

    if (!f) {
        snprintf(why, why_len, "no memory to look for transports");
        return false;
    }
    for (size_t i = 0; i < f->count && !found; i++) {
        snprintf(path, len,
                 "%s/" SHUNTI_PLUGIN_PREFIX "%s" SHUNTI_PLUGIN_SUFFIX,
                 f->path[i], name);
        found = !access(path, F_OK);
    }
    if (!found)
        used = (size_t)snprintf(
            why, why_len,
            "no " SHUNTI_PLUGIN_PREFIX "%s" SHUNTI_PLUGIN_SUFFIX " in", name);
    for (size_t i = 0; !found && i < f->count && used < why_len; i++)
        used += (size_t)snprintf(why + used, why_len - used, "%s %s",
                                 i ? "," : "", f->path[i]);
    free(f);
    return found;
}

/* Find the mark that is followed by its score. A plugin that was built with -g3
 * also contains the mark without a score, as the text of the macro. */
static bool find_mark(const char *bytes, size_t len, int *score)
{
    const size_t mark_len = strlen(SHUNT_TRANSPORT_FAR_MARK);
    const char *end = bytes + len, *at = bytes;

    while ((at = memmem(at, (size_t)(end - at), SHUNT_TRANSPORT_FAR_MARK,
                        mark_len))) {
        char number[12] = "", *rest;
        size_t n;

        at += mark_len;
        n = (size_t)(end - at);
        memcpy(number, at, n < sizeof(number) - 1 ? n : sizeof(number) - 1);
        *score = (int)strtol(number, &rest, 10);
        if (rest != number)
            return true;
    }
    return false;
}

bool shunti_plugin_file_is_far(const char *path, int *score)
{
    int fd = shunti_fd_lift(open(path, O_RDONLY | O_CLOEXEC)), found;
    struct stat st;
    void *bytes = MAP_FAILED;
    bool far;

    if (fd < 0)
        return false;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0)
        bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (bytes == MAP_FAILED)
        return false;
    far = find_mark(bytes, (size_t)st.st_size, &found);
    munmap(bytes, (size_t)st.st_size);
    if (far && score)
        *score = found;
    return far;
}
