// SPDX-License-Identifier: Apache-2.0
//
// Writing and reading checkpoints; see checkpoint.h for their form.
#include "checkpoint.h"

#include "error.h"
#include "files.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANIFEST "checkpoint.json"

enum { FORMAT = 1, NAME = 24, FILE_NAME = 64, MOST_PIECES = 4096 };

// What rank 0 is told of each piece, and what checkpoint.json says of it.
struct record {
    char name[NAME];
    char file[FILE_NAME];
    uint64_t begin, count;
    uint64_t at;  // bytes into the file
    uint64_t sum; // checksum of the piece
};

static uint64_t checksum(const float *data, size_t count)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &data[i], sizeof(bits));
        h = (h ^ bits) * 0x100000001b3u;
    }
    return h;
}

// -- the settings that must be the same when a run goes on --------------------

struct setting {
    const char *name; // of the option
    double value;
};

enum { SETTINGS = 11 };

static void settings(const struct options *o, struct setting s[SETTINGS])
{
    const struct model_config *m = &o->model;

    s[0] = (struct setting){"layers", (double)m->layers};
    s[1] = (struct setting){"dim", (double)m->dim};
    s[2] = (struct setting){"heads", (double)m->heads};
    s[3] = (struct setting){"seq", (double)m->seq};
    s[4] = (struct setting){"experts", (double)m->experts};
    s[5] = (struct setting){"topk", (double)m->topk};
    s[6] = (struct setting){"expert-hidden", (double)m->expert_hidden};
    s[7] = (struct setting){"shared-expert", (double)m->shared_hidden};
    s[8] = (struct setting){"renormalise", m->renormalise};
    s[9] = (struct setting){"batch", (double)o->batch};
    s[10] = (struct setting){"seed", (double)o->seed};
}

// -- writing ------------------------------------------------------------------

static int write_pieces(const struct options *o, const char *file,
                        const struct piece *pieces, size_t count,
                        struct record *records)
{
    char path[4096];
    struct new_file f;
    uint64_t at = 0;

    snprintf(path, sizeof(path), "%s/%s", o->checkpoint, file);
    if (new_file_open(&f, path))
        return -1;
    for (size_t i = 0; i < count; i++) {
        const struct piece *p = &pieces[i];
        struct record *r = &records[i];
        snprintf(r->name, sizeof(r->name), "%s", p->name);
        snprintf(r->file, sizeof(r->file), "%s", file);
        r->begin = p->begin;
        r->count = p->count;
        r->at = at;
        r->sum = checksum(p->data, p->count);
        at += p->count * sizeof(float);
        // errors are looked at by the commit
        fwrite(p->data, sizeof(float), p->count, f.stream);
    }
    return new_file_commit(&f);
}

static int add_hex(cJSON *to, const char *name, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%016" PRIx64, value);
    return cJSON_AddStringToObject(to, name, text) != NULL;
}

static int write_manifest(const struct options *o,
                          const struct checkpoint_info *info,
                          const struct record *records, size_t count, int ranks)
{
    struct setting s[SETTINGS];
    struct new_file f;
    char path[4096];
    cJSON *json = cJSON_CreateObject();
    int ok = json != NULL;

    settings(o, s);
    ok = ok && cJSON_AddNumberToObject(json, "format", FORMAT) &&
         cJSON_AddNumberToObject(json, "step", (double)info->step) &&
         cJSON_AddNumberToObject(json, "steps", (double)info->steps) &&
         cJSON_AddNumberToObject(json, "ranks", ranks) &&
         add_hex(json, "text", info->text_hash);
    cJSON *set = ok ? cJSON_AddObjectToObject(json, "settings") : NULL;
    for (int i = 0; set && i < SETTINGS; i++)
        ok = ok && cJSON_AddNumberToObject(set, s[i].name, s[i].value);
    cJSON *list = ok ? cJSON_AddArrayToObject(json, "pieces") : NULL;
    for (size_t i = 0; list && i < count; i++) {
        const struct record *r = &records[i];
        cJSON *p = cJSON_CreateObject();
        if (!r->count) {
            cJSON_Delete(p);
            continue;
        }
        ok = ok && p && cJSON_AddStringToObject(p, "name", r->name) &&
             cJSON_AddStringToObject(p, "file", r->file) &&
             cJSON_AddNumberToObject(p, "begin", (double)r->begin) &&
             cJSON_AddNumberToObject(p, "count", (double)r->count) &&
             cJSON_AddNumberToObject(p, "at", (double)r->at) &&
             add_hex(p, "sum", r->sum);
        cJSON_AddItemToArray(list, p);
    }
    char *text = ok && set && list ? cJSON_Print(json) : NULL;
    cJSON_Delete(json);
    if (!text)
        return train_error("out of memory");
    snprintf(path, sizeof(path), "%s/" MANIFEST, o->checkpoint);
    int st = new_file_open(&f, path);
    if (st == 0) {
        fputs(text, f.stream);
        fputc('\n', f.stream);
        st = new_file_commit(&f);
    }
    free(text);
    return st;
}

// Files of older checkpoints, and what interrupted writing left.
static void remove_others(const struct options *o, size_t step)
{
    char keep[32], path[4096];
    DIR *dir = opendir(o->checkpoint);
    struct dirent *entry;

    if (!dir)
        return;
    snprintf(keep, sizeof(keep), "step-%08zu.", step);
    while ((entry = readdir(dir))) {
        const char *name = entry->d_name, *rank = strstr(name, ".rank-");
        size_t length = strlen(name);
        bool temporary = length > 4 && strcmp(name + length - 4, ".tmp") == 0;
        if (strncmp(name, "step-", 5) != 0 || !rank)
            continue;
        if (strncmp(name, keep, strlen(keep)) == 0 && !temporary)
            continue;
        snprintf(path, sizeof(path), "%s/%s", o->checkpoint, name);
        unlink(path);
    }
    closedir(dir);
}

int checkpoint_write(struct team *team, const struct options *o,
                     const struct checkpoint_info *info,
                     const struct piece *pieces, size_t count)
{
    size_t most = count * (size_t)team->size;
    struct record *own = calloc(count, sizeof(*own));
    struct record *all = calloc(most, sizeof(*all));
    char file[FILE_NAME];
    int st = own && all ? 0 : train_error("out of memory");

    snprintf(file, sizeof(file), "step-%08zu.rank-%d-of-%d", info->step,
             team->rank, team->size);
    if (st == 0 && team->rank == 0)
        st = make_folder(o->checkpoint);
    st = team_agree(team, st == 0, "checkpoint");
    if (st == 0)
        st = team_agree(team, write_pieces(o, file, pieces, count, own) == 0,
                        "checkpoint");
    // The same number of pieces on every rank: see trainer.c.
    if (st == 0)
        st = team_gather(team, own, all, count * sizeof(*own));
    if (st == 0 && team->rank == 0)
        st = write_manifest(o, info, all, most, team->size);
    st = team_agree(team, st == 0, "checkpoint");
    if (st == 0 && team->rank == 0)
        remove_others(o, info->step);
    free(own);
    free(all);
    return st;
}

// -- reading ------------------------------------------------------------------

struct checkpoint {
    char folder[4096];
    struct record *records;
    size_t count;
};

static int bad_manifest(const char *what)
{
    return train_error("%s of " MANIFEST " is missing or no good; the "
                       "checkpoint cannot be used",
                       what);
}

static int get_number(const cJSON *json, const char *name, double *value)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);

    if (!cJSON_IsNumber(item) || item->valuedouble < 0)
        return bad_manifest(name);
    *value = item->valuedouble;
    return 0;
}

static int get_size(const cJSON *json, const char *name, uint64_t *value)
{
    double v = 0;

    if (get_number(json, name, &v))
        return -1;
    if (v > 9e15)
        return bad_manifest(name);
    *value = (uint64_t)v;
    return 0;
}

static int get_text(const cJSON *json, const char *name, char *to, size_t room)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);

    if (!cJSON_IsString(item) || strlen(item->valuestring) >= room)
        return bad_manifest(name);
    memcpy(to, item->valuestring, strlen(item->valuestring) + 1);
    return 0;
}

static int get_hex(const cJSON *json, const char *name, uint64_t *value)
{
    char text[24], *end;

    if (get_text(json, name, text, sizeof(text)))
        return -1;
    *value = strtoull(text, &end, 16);
    return *text && !*end ? 0 : bad_manifest(name);
}

static int parse_record(const cJSON *json, struct record *r)
{
    if (get_text(json, "name", r->name, sizeof(r->name)) ||
        get_text(json, "file", r->file, sizeof(r->file)) ||
        get_size(json, "begin", &r->begin) ||
        get_size(json, "count", &r->count) || get_size(json, "at", &r->at) ||
        get_hex(json, "sum", &r->sum))
        return -1;
    return strchr(r->file, '/') ? bad_manifest("a file's name") : 0;
}

static int parse(const char *text, const struct options *o,
                 struct checkpoint *c, struct checkpoint_info *info)
{
    struct setting s[SETTINGS];
    double value = 0;
    uint64_t step = 0, steps = 0;
    cJSON *json = cJSON_Parse(text);

    if (!json)
        return train_error(MANIFEST " is no JSON; the checkpoint cannot be "
                                    "used");
    int st = get_number(json, "format", &value);
    if (st == 0 && value != FORMAT)
        st = train_error("this checkpoint is of format %g, and only %d is "
                         "known here",
                         value, FORMAT);
    st = st || get_size(json, "step", &step) ||
                 get_size(json, "steps", &steps) ||
                 get_hex(json, "text", &info->text_hash)
             ? -1
             : 0;
    info->step = step;
    info->steps = steps;

    const cJSON *set = cJSON_GetObjectItemCaseSensitive(json, "settings");
    settings(o, s);
    for (int i = 0; st == 0 && i < SETTINGS; i++) {
        st = get_number(set, s[i].name, &value);
        if (st == 0 && value != s[i].value)
            st = train_error("the checkpoint was made with --%s %g, not %g",
                             s[i].name, value, s[i].value);
    }
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "pieces"), *p;
    int n = cJSON_GetArraySize(list);
    if (st == 0 && (n <= 0 || n > MOST_PIECES * 64))
        st = bad_manifest("pieces");
    if (st == 0) {
        c->records = calloc((size_t)n, sizeof(*c->records));
        st = c->records ? 0 : train_error("out of memory");
    }
    if (st == 0)
        cJSON_ArrayForEach(p, list) st =
            st || parse_record(p, &c->records[c->count++]) ? -1 : 0;
    cJSON_Delete(json);
    return st;
}

int checkpoint_open(struct team *team, const struct options *o,
                    struct checkpoint **checkpoint,
                    struct checkpoint_info *info)
{
    struct checkpoint *c = calloc(1, sizeof(*c));
    char path[4200], *text = NULL;
    int missing = 0, st = c ? 0 : train_error("out of memory");
    uint64_t length = 0; // with '\0'; 0: none

    // Rank 0 reads it for all: then all go by the same one.
    snprintf(path, sizeof(path), "%s/" MANIFEST, o->checkpoint);
    if (st == 0 && team->rank == 0) {
        text = read_text(path, &missing);
        st = text || missing ? 0 : -1;
        length = text ? strlen(text) + 1 : 0;
    }
    st = team_agree(team, st == 0, "resuming");
    if (st == 0)
        st = team_broadcast(team, &length, sizeof(length), 0);
    if (st == 0 && length) {
        if (team->rank != 0)
            text = malloc(length);
        st = team_agree(team, text != NULL, "resuming");
        if (st == 0)
            st = team_broadcast(team, text, length, 0);
        if (st == 0) {
            snprintf(c->folder, sizeof(c->folder), "%s", o->checkpoint);
            st = parse(text, o, c, info);
        }
    }
    free(text);
    if (st != 0 || !length) {
        checkpoint_close(c);
        return st;
    }
    *checkpoint = c;
    return 1;
}

void checkpoint_close(struct checkpoint *c)
{
    if (!c)
        return;
    free(c->records);
    free(c);
}

// The part of a record that lies in `p`, if any: reads all of the record, since
// its checksum covers all of it.
static int read_record(const struct checkpoint *c, const struct record *r,
                       const struct piece *p, size_t *filled)
{
    uint64_t begin = r->begin > p->begin ? r->begin : p->begin;
    uint64_t end = r->begin + r->count, p_end = p->begin + p->count;
    char path[4200];

    end = end < p_end ? end : p_end;
    if (strcmp(r->name, p->name) != 0 || begin >= end)
        return 0;
    snprintf(path, sizeof(path), "%s/%s", c->folder, r->file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return train_error("cannot read %s: %s", path, strerror(errno));
    size_t bytes = r->count * sizeof(float), got = 0;
    // A manifest that lies about sizes must not make us allocate at will.
    off_t size = lseek(fd, 0, SEEK_END);
    if (r->count > SIZE_MAX / 8 || size < 0 || r->at + bytes > (uint64_t)size) {
        close(fd);
        return train_error("%s is too short; the checkpoint is damaged", path);
    }
    float *all = malloc(bytes);
    while (all && got < bytes) {
        ssize_t n =
            pread(fd, (char *)all + got, bytes - got, (off_t)(r->at + got));
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    close(fd);
    int st = 0;
    if (!all)
        st = train_error("out of memory");
    else if (got < bytes || checksum(all, r->count) != r->sum)
        st = train_error("%s is damaged: its checksum is wrong", path);
    else
        memcpy(p->data + (begin - p->begin), all + (begin - r->begin),
               (end - begin) * sizeof(float));
    free(all);
    *filled += end - begin;
    return st;
}

int checkpoint_read(struct team *team, struct checkpoint *c,
                    const struct piece *pieces, size_t count)
{
    int st = 0;

    for (size_t i = 0; i < count && st == 0; i++) {
        size_t filled = 0;
        for (size_t j = 0; j < c->count && st == 0; j++)
            st = read_record(c, &c->records[j], &pieces[i], &filled);
        if (st == 0 && filled != pieces[i].count)
            st = train_error("the checkpoint has %zu of %zu elements of %s",
                             filled, pieces[i].count, pieces[i].name);
    }
    return team_agree(team, st == 0, "resuming");
}
