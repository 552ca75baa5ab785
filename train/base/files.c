// SPDX-License-Identifier: Apache-2.0
/* A new file: temporary name, fsync, rename, fsync of the folder. */
#include "train/base/files.h"

#include "train/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int is_plain_file(const char *path)
{
    struct stat st;

    return lstat(path, &st) != 0 || S_ISREG(st.st_mode);
}

int new_file_open(struct new_file *file, const char *path)
{
    memset(file, 0, sizeof(*file));
    file->path = strdup(path);
    if (!file->path || (is_plain_file(path) &&
                        asprintf(&file->temporary, "%s.tmp", path) < 0)) {
        file->temporary = NULL;
        new_file_discard(file);
        return train_error("out of memory");
    }
    file->stream = fopen(file->temporary ? file->temporary : path, "wb");
    if (file->stream)
        return 0;
    int error = errno;
    free(file->temporary); /* keep that file: this call did not create it */
    file->temporary = NULL;
    new_file_discard(file);
    return train_error("cannot write %s: %s", path, strerror(error));
}

static int sync_folder_of(const char *path)
{
    char *folder = strdup(path);
    int st = -1;

    if (!folder)
        return -1;
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        st = fsync(fd);
        close(fd);
    }
    free(folder);
    return st;
}

int new_file_commit(struct new_file *file)
{
    int st = ferror(file->stream) ? -1 : 0;

    if (st == 0)
        st = fflush(file->stream);
    if (st == 0 && file->temporary)
        st = fsync(fileno(file->stream));
    int error = errno;
    if (fclose(file->stream) != 0 && st == 0) {
        st = -1;
        error = errno;
    }
    file->stream = NULL;
    if (st == 0 && file->temporary &&
        rename(file->temporary, file->path) != 0) {
        st = -1;
        error = errno;
    }
    if (st != 0) {
        train_error("cannot write %s: %s", file->path, strerror(error));
        new_file_discard(file);
        return -1;
    }
    bool renamed = file->temporary != NULL;
    free(file->temporary);
    file->temporary = NULL;
    if (renamed && sync_folder_of(file->path) != 0)
        st = train_error("cannot write the folder of %s: %s", file->path,
                         strerror(errno));
    new_file_discard(file);
    return st;
}

void new_file_discard(struct new_file *file)
{
    if (file->stream)
        fclose(file->stream);
    if (file->temporary)
        unlink(file->temporary);
    free(file->temporary);
    free(file->path);
    memset(file, 0, sizeof(*file));
}

int make_folder(const char *path)
{
    char *part = strdup(path);
    int st = 0;

    if (!part)
        return train_error("out of memory");
    for (char *p = part + 1; st == 0; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char was = *p;
        *p = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            st = train_error("cannot make the folder %s: %s", part,
                             strerror(errno));
        *p = was;
        if (was == '\0')
            break;
    }
    free(part);
    return st;
}

char *read_text(const char *path, size_t *bytes, int *missing)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    size_t length = 0, room = 0;

    *missing = !f && errno == ENOENT;
    if (!f) {
        train_error("cannot read %s: %s", path, strerror(errno));
        return NULL;
    }
    do {
        room = room ? 2 * room : 16384;
        char *grown = realloc(text, room);
        if (!grown) {
            train_error("out of memory for %s", path);
            free(text);
            fclose(f);
            return NULL;
        }
        text = grown;
        length += fread(text + length, 1, room - 1 - length, f);
    } while (length == room - 1);
    text[length] = '\0';
    int failed = ferror(f);
    fclose(f);
    if (failed) {
        train_error("cannot read %s", path);
        free(text);
        return NULL;
    }
    if (bytes)
        *bytes = length;
    return text;
}
