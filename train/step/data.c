// SPDX-License-Identifier: Apache-2.0
/* Reading, splitting and sampling text. */
#include "train/step/data.h"

#include "src/base/fnv.h"
#include "train/base/error.h"
#include "train/workload/random.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    BLOCK = 2048,
    BLOCKS_IN = 10, /* one of this many blocks is held out */
    FILES_IN = 16,  /* one of this many files is held out, the first is
                       FIRST_FILE */
    FIRST_FILE = 8,
};

/* --- reading -------------------------------------------------------------- */

static int append(struct text *text, const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;

    if (!f || fstat(fileno(f), &st) != 0) {
        int error = errno;
        if (f)
            fclose(f);
        return train_error("cannot read %s: %s", path, strerror(error));
    }
    /* Read in pieces: the size of a pipe is not known beforehand, and a file
     * may grow while it is read. */
    size_t room = text->length + (size_t)st.st_size + 1;
    for (;;) {
        uint8_t *grown = realloc(text->bytes, room);
        if (!grown) {
            fclose(f);
            return train_error("out of memory for %s", path);
        }
        text->bytes = grown;
        text->length += fread(grown + text->length, 1, room - text->length, f);
        if (text->length < room)
            break;
        room += room / 2 + BLOCK;
    }
    int failed = ferror(f);
    fclose(f);
    uint64_t *ends = realloc(text->end, (text->files + 1) * sizeof(*ends));
    if (!ends)
        return train_error("out of memory for %s", path);
    text->end = ends;
    ends[text->files++] = text->length;
    return failed ? train_error("cannot read %s: %s", path,
                                S_ISDIR(st.st_mode) ? "it is a folder"
                                                    : "error while reading")
                  : 0;
}

int text_read_files(char *const *paths, size_t count, struct text *text)
{
    memset(text, 0, sizeof(*text));
    for (size_t i = 0; i < count; i++) {
        if (append(text, paths[i])) {
            text_free(text);
            return -1;
        }
    }
    return 0;
}

struct list {
    char **paths;
    size_t count, room;
};

static int wanted(const char *name)
{
    const char *dot = strrchr(name, '.');

    if (strcmp(name, "meson.build") == 0)
        return 1;
    return dot && (strcmp(dot, ".c") == 0 || strcmp(dot, ".h") == 0 ||
                   strcmp(dot, ".md") == 0);
}

/* Did meson or ninja make this folder? The folder then has no text of this
 * project. */
static int is_build_folder(const char *path)
{
    char file[4200];
    struct stat st;

    snprintf(file, sizeof(file), "%s/build.ninja", path);
    return stat(file, &st) == 0;
}

static int add_path(struct list *list, const char *path)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        char **grown = realloc(list->paths, room * sizeof(*grown));
        if (!grown)
            return train_error("out of memory");
        list->paths = grown;
        list->room = room;
    }
    list->paths[list->count] = strdup(path);
    if (!list->paths[list->count])
        return train_error("out of memory");
    list->count++;
    return 0;
}

static int walk(struct list *list, const char *folder, int depth)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int st = 0;

    if (!dir)
        return depth ? 0 /* skip a folder that was removed or is not readable */
                     : train_error("cannot read the folder %s: %s", folder,
                                   strerror(errno));
    while (st == 0 && (entry = readdir(dir))) {
        char path[4096];
        struct stat info;
        if (entry->d_name[0] == '.')
            continue;
        int n = snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (n < 0 || (size_t)n >= sizeof(path) || lstat(path, &info) != 0)
            continue;
        if (S_ISDIR(info.st_mode) && depth < 16 && !is_build_folder(path))
            st = walk(list, path, depth + 1);
        else if (S_ISREG(info.st_mode) && wanted(entry->d_name))
            st = add_path(list, path);
    }
    closedir(dir);
    return st;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int text_read_tree(const char *root, struct text *text)
{
    struct list list = {0};
    int st = walk(&list, root, 0);

    memset(text, 0, sizeof(*text));
    if (st == 0) {
        if (list.count)
            qsort(list.paths, list.count, sizeof(*list.paths), by_name);
        st = text_read_files(list.paths, list.count, text);
    }
    for (size_t i = 0; i < list.count; i++)
        free(list.paths[i]);
    free(list.paths);
    return st;
}

void text_free(struct text *text)
{
    free(text->bytes);
    free(text->end);
    memset(text, 0, sizeof(*text));
}

uint64_t text_hash(const struct text *text)
{
    uint64_t hash = shunti_fnv(SHUNTI_FNV, text->bytes, text->length);

    /* The ends of files determine which text is held out. */
    for (size_t i = 0; i < text->files; i++)
        hash = shunti_fnv_step(hash, text->end[i]);
    return hash;
}

/* --- splitting ------------------------------------------------------------ */

const char *held_name(int kind)
{
    return kind == HELD_FILES ? "unseen files" : "unseen blocks";
}

static void put(uint8_t *to, size_t *length, const uint8_t *from, size_t bytes)
{
    memcpy(to + *length, from, bytes);
    *length += bytes;
}

/* Move every sixteenth file to the held-out text, and the rest to data->train,
 * which hold_blocks() splits further. */
static void hold_files(const struct text *text, struct data *data)
{
    struct held *held = &data->held[HELD_FILES];
    uint64_t begin = 0;

    for (size_t i = 0; i < text->files; begin = text->end[i++]) {
        size_t bytes = text->end[i] - begin;
        if (i % FILES_IN != FIRST_FILE) {
            put(data->train, &data->ntrain, text->bytes + begin, bytes);
            continue;
        }
        put(held->bytes, &held->length, text->bytes + begin, bytes);
        data->files++;
    }
    put(data->train, &data->ntrain, text->bytes + begin, text->length - begin);
}

static void hold_blocks(struct data *data)
{
    struct held *held = &data->held[HELD_BLOCKS];
    size_t all = data->ntrain, n;

    data->ntrain = 0;
    for (size_t at = 0; at < all; at += n) {
        n = all - at < BLOCK ? all - at : BLOCK;
        if (at / BLOCK % BLOCKS_IN == BLOCKS_IN - 1) {
            put(held->bytes, &held->length, data->train + at, n);
        } else {
            memmove(data->train + data->ntrain, data->train + at, n);
            data->ntrain += n;
        }
    }
}

int data_split(const struct text *text, size_t T, struct data *data)
{
    /* The training text and the held-out blocks must each have a sequence. The
     * blocks are a tenth of the text. */
    size_t needed = (T + 1 + BLOCK) * BLOCKS_IN;

    memset(data, 0, sizeof(*data));
    data->train = malloc(text->length + 1);
    for (int kind = 0; kind < HELD; kind++)
        data->held[kind].bytes = malloc(text->length + 1);
    if (!data->train || !data->held[0].bytes || !data->held[1].bytes) {
        data_free(data);
        return train_error("out of memory");
    }
    hold_files(text, data);
    /* Files that are too short for a window are not held out. */
    struct held *files = &data->held[HELD_FILES];
    if (files->length <= T) {
        files->length = data->files = data->ntrain = 0;
        put(data->train, &data->ntrain, text->bytes, text->length);
    }
    if (data->ntrain < needed) {
        size_t there = data->ntrain;
        data_free(data);
        return train_error("the text has %zu bytes, without files held out; "
                           "sequences of %zu positions need %zu. Give more "
                           "text with --data, or a smaller --seq",
                           there, T, needed);
    }
    hold_blocks(data);
    return 0;
}

void data_free(struct data *data)
{
    free(data->train);
    for (int kind = 0; kind < HELD; kind++)
        free(data->held[kind].bytes);
    memset(data, 0, sizeof(*data));
}

const uint8_t *data_sequence(const struct data *data, uint64_t seed,
                             size_t step, size_t place, size_t T)
{
    uint64_t key = random_key(seed, "data");
    uint64_t bits = random_bits(key, ((uint64_t)step << 24) + place);

    return data->train + bits % (data->ntrain - T);
}

size_t data_windows(const struct held *held, size_t T)
{
    return held->length ? (held->length - 1) / T : 0;
}

const uint8_t *data_window(const struct held *held, size_t i, size_t count,
                           size_t T)
{
    return held->bytes + i * data_windows(held, T) / count * T;
}

const uint8_t *data_prompt(const struct data *data, size_t *length)
{
    enum {
        PROMPT = 120,
        LINE = 400
    }; /* in bytes; the first line should end within LINE */
    const struct held *held =
        &data->held[data->files ? HELD_FILES : HELD_BLOCKS];
    const uint8_t *at = held->bytes, *line = NULL;
    size_t there = held->length;

    line = memchr(at, '\n', there < LINE ? there : LINE);
    if (line && (size_t)(line + 1 - at) < there) {
        there -= (size_t)(line + 1 - at);
        at = line + 1;
    }
    *length = there < PROMPT ? there : PROMPT;
    return at;
}
