// SPDX-License-Identifier: Apache-2.0
/* Printing and parsing checkpoint.json, and its checksum. */
#include "train/step/manifest.h"

#include "train/base/error.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 6, MOST_PIECES = 4096 * 64 };

uint64_t checksum(const void *data, size_t bytes)
{
    const unsigned char *from = data;
    uint64_t h = 0xcbf29ce484222325u ^ bytes;

    /* Each round is a bijection, both of h and of the word. */
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, from + at, bytes - at < 8 ? bytes - at : 8);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return h;
}

/* --- the checksum --------------------------------------------------------- */

/* Print the end of the file: the checksum of the first `body` bytes of
 * `text`. */
static int print_end(char *to, size_t room, const char *text, size_t body)
{
    return snprintf(to, room, ",\n\t\"checksum\":\t\"%016" PRIx64 "\"\n}\n",
                    checksum(text, body));
}

/* Add the checksum to an object that cJSON printed. */
static char *seal(const char *json)
{
    char end[64], *text = NULL;
    size_t body = strlen(json);

    body -= body >= 2 && strcmp(json + body - 2, "\n}") == 0 ? 2 : 0;
    print_end(end, sizeof(end), json, body);
    return asprintf(&text, "%.*s%s", (int)body, json, end) < 0 ? NULL : text;
}

static bool is_sealed(const char *text, size_t length)
{
    char end[64];
    /* The end has the same length for every checksum. */
    size_t tail = (size_t)print_end(end, sizeof(end), text, 0);

    if (length < tail)
        return false;
    print_end(end, sizeof(end), text, length - tail);
    return memcmp(text + length - tail, end, tail) == 0;
}

/* --- printing ------------------------------------------------------------- */

static bool add_hex(cJSON *to, const char *name, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%016" PRIx64, value);
    return cJSON_AddStringToObject(to, name, text) != NULL;
}

static bool add_file(cJSON *list, const struct data_file *f)
{
    cJSON *to = cJSON_CreateObject();

    cJSON_AddItemToArray(list, to);
    return to && cJSON_AddStringToObject(to, "name", f->name) &&
           cJSON_AddNumberToObject(to, "bytes", (double)f->bytes);
}

static bool add_record(cJSON *list, const struct record *r)
{
    cJSON *to = cJSON_CreateObject();

    cJSON_AddItemToArray(list, to);
    return to && cJSON_AddStringToObject(to, "name", r->name) &&
           cJSON_AddStringToObject(to, "file", r->file) &&
           cJSON_AddNumberToObject(to, "begin", (double)r->begin) &&
           cJSON_AddNumberToObject(to, "count", (double)r->count) &&
           cJSON_AddNumberToObject(to, "at", (double)r->at) &&
           add_hex(to, "sum", r->sum);
}

static bool add_all(cJSON *json, const struct manifest *m)
{
    if (!cJSON_AddNumberToObject(json, "format", FORMAT) ||
        !cJSON_AddNumberToObject(json, "step", (double)m->info.step) ||
        !cJSON_AddNumberToObject(json, "steps", (double)m->info.steps) ||
        !cJSON_AddNumberToObject(json, "ranks", (double)m->info.ranks) ||
        !add_hex(json, "text", m->info.text_hash))
        return false;
    cJSON *set = cJSON_AddObjectToObject(json, "settings");
    for (size_t i = 0; i < m->settings; i++)
        if (!cJSON_AddStringToObject(set, m->setting[i].name,
                                     m->setting[i].value))
            return false;
    cJSON *files = cJSON_AddArrayToObject(json, "files");
    for (size_t i = 0; i < m->files; i++)
        if (!add_file(files, &m->file[i]))
            return false;
    cJSON *pieces = cJSON_AddArrayToObject(json, "pieces");
    for (size_t i = 0; i < m->records; i++)
        if (m->record[i].count && !add_record(pieces, &m->record[i]))
            return false;
    return files && pieces;
}

char *manifest_print(const struct manifest *m)
{
    cJSON *json = cJSON_CreateObject();
    char *text = json && add_all(json, m) ? cJSON_Print(json) : NULL;
    char *sealed = text ? seal(text) : NULL;

    if (!sealed)
        train_error("out of memory");
    cJSON_Delete(json);
    free(text);
    return sealed;
}

/* --- parsing -------------------------------------------------------------- */

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

static int parse_file(const cJSON *json, struct data_file *f)
{
    if (get_text(json, "name", f->name, sizeof(f->name)) ||
        get_size(json, "bytes", &f->bytes))
        return -1;
    return strchr(f->name, '/') ? bad_manifest("a file's name") : 0;
}

/* Parse a record, and check that its piece is within one of the files. */
static int parse_record(const cJSON *json, const struct manifest *m,
                        struct record *r)
{
    if (get_text(json, "name", r->name, sizeof(r->name)) ||
        get_text(json, "file", r->file, sizeof(r->file)) ||
        get_size(json, "begin", &r->begin) ||
        get_size(json, "count", &r->count) || get_size(json, "at", &r->at) ||
        get_hex(json, "sum", &r->sum))
        return -1;
    for (size_t i = 0; i < m->files; i++)
        if (strcmp(m->file[i].name, r->file) == 0 && r->count <= SIZE_MAX / 8 &&
            r->at + r->count * sizeof(float) <= m->file[i].bytes)
            return 0;
    return bad_manifest("a piece");
}

static int parse_setting(const cJSON *json, struct setting *s)
{
    const char *value = cJSON_IsString(json) ? json->valuestring : NULL;

    if (!value || strlen(json->string) >= sizeof(s->name) ||
        strlen(value) >= sizeof(s->value))
        return bad_manifest("a setting");
    strcpy(s->name, json->string);
    strcpy(s->value, value);
    return 0;
}

/* Find the array or object `name`, and allocate zeroed memory for its
 * elements. */
static const cJSON *get_array(const cJSON *json, const char *name, size_t size,
                              void **memory)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, name);
    int n = cJSON_GetArraySize(list);

    if (n <= 0 || n > MOST_PIECES) {
        bad_manifest(name);
        return NULL;
    }
    *memory = calloc((size_t)n, size);
    if (!*memory)
        train_error("out of memory");
    return *memory ? list : NULL;
}

static int parse(struct manifest *m, const cJSON *json)
{
    double value = 0;
    uint64_t step = 0, steps = 0, ranks = 0;
    void *memory = NULL;
    const cJSON *item;

    if (get_number(json, "format", &value))
        return -1;
    if (value != FORMAT)
        return train_error(MANIFEST " is of format %g, and this shunt-train "
                                    "knows %d only: go on with the one that "
                                    "wrote it, or start anew in another folder",
                           value, FORMAT);
    if (get_size(json, "step", &step) || get_size(json, "steps", &steps) ||
        get_size(json, "ranks", &ranks) ||
        get_hex(json, "text", &m->info.text_hash))
        return -1;
    m->info.step = step;
    m->info.steps = steps;
    m->info.ranks = ranks;

    const cJSON *set =
        get_array(json, "settings", sizeof(*m->setting), &memory);
    m->setting = memory;
    if (!set)
        return -1;
    for (item = set->child; item; item = item->next)
        if (parse_setting(item, &m->setting[m->settings++]))
            return -1;
    memory = NULL;
    const cJSON *list = get_array(json, "files", sizeof(*m->file), &memory);
    m->file = memory;
    if (!list)
        return -1;
    for (item = list->child; item; item = item->next)
        if (parse_file(item, &m->file[m->files++]))
            return -1;
    memory = NULL;
    list = get_array(json, "pieces", sizeof(*m->record), &memory);
    m->record = memory;
    if (!list)
        return -1;
    for (item = list->child; item; item = item->next)
        if (parse_record(item, m, &m->record[m->records++]))
            return -1;
    return 0;
}

int manifest_parse(struct manifest *m, const char *where, const char *text,
                   size_t length)
{
    cJSON *json = cJSON_Parse(text);
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(json, "format");
    bool older = cJSON_IsNumber(format) && format->valuedouble == 1;
    int st = -1;

    memset(m, 0, sizeof(*m));
    /* Format 1 had no checksum. A file of format 1 is refused as old, not as
     * damaged. */
    if (!older && !is_sealed(text, length))
        train_error("%s is damaged: its checksum is wrong", where);
    else if (!json)
        train_error("%s is no JSON, or memory is short; the checkpoint cannot "
                    "be used",
                    where);
    else
        st = parse(m, json);
    cJSON_Delete(json);
    if (st != 0)
        manifest_free(m);
    return st;
}

void manifest_free(struct manifest *m)
{
    free(m->setting);
    free(m->file);
    free(m->record);
    memset(m, 0, sizeof(*m));
}
