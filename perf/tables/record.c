// SPDX-License-Identifier: Apache-2.0
/*
 * A measured row in machine-readable form.
 */
#include "perf/tables/record.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "perf/base/perf.h"

static struct perf_field *add(struct perf_record *r, const char *key)
{
    if (r->n == PERF_MAX_FIELDS)
        perf_die(PERF_EXIT_FAILED, "PERF_MAX_FIELDS is too small");
    struct perf_field *f = &r->field[r->n++];
    snprintf(f->key, sizeof(f->key), "%s", key);
    f->kind = PERF_FIELD_ABSENT;
    return f;
}

void perf_record_number(struct perf_record *r, const char *key, bool known,
                        double value)
{
    struct perf_field *f = add(r, key);

    if (r->skip)
        return;
    f->kind = known ? PERF_FIELD_NUMBER : PERF_FIELD_NULL;
    f->number = value;
}

void perf_record_text(struct perf_record *r, const char *key, const char *value)
{
    struct perf_field *f = add(r, key);

    if (r->skip || !value)
        return;
    f->kind = PERF_FIELD_TEXT;
    f->text = value;
}

/* Write a JSON string. Control characters are left out. */
static void json_text(FILE *to, const char *text)
{
    putc('"', to);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putc('\\', to);
        if ((unsigned char)*text >= ' ')
            putc(*text, to);
    }
    putc('"', to);
}

void perf_record_json(FILE *to, const struct perf_record *r)
{
    const char *before = "{";

    for (int i = 0; i < r->n; i++) {
        const struct perf_field *f = &r->field[i];
        if (f->kind == PERF_FIELD_ABSENT)
            continue;
        fprintf(to, "%s\"%s\": ", before, f->key);
        before = ", ";
        if (f->kind == PERF_FIELD_NUMBER)
            fprintf(to, "%.12g", f->number);
        else if (f->kind == PERF_FIELD_TEXT)
            json_text(to, f->text);
        else
            fputs("null", to);
    }
    fputs("}\n", to);
}

static void csv_text(FILE *to, const char *text)
{
    if (!strpbrk(text, ",\"\n\r")) {
        fputs(text, to);
        return;
    }
    putc('"', to);
    for (; *text; text++) {
        if (*text == '"')
            putc('"', to);
        putc(*text, to);
    }
    putc('"', to);
}

void perf_record_csv_head(FILE *to, const struct perf_record *r)
{
    for (int i = 0; i < r->n; i++)
        fprintf(to, "%s%s", i ? "," : "", r->field[i].key);
    putc('\n', to);
}

void perf_record_csv(FILE *to, const struct perf_record *r)
{
    for (int i = 0; i < r->n; i++) {
        const struct perf_field *f = &r->field[i];
        if (i)
            putc(',', to);
        if (f->kind == PERF_FIELD_NUMBER)
            fprintf(to, "%.12g", f->number);
        else if (f->kind == PERF_FIELD_TEXT)
            csv_text(to, f->text);
    }
    putc('\n', to);
}

int perf_record_csv_fits(FILE *file, const struct perf_record *r)
{
    char *line = NULL, *wanted = NULL;
    size_t room = 0, bytes = 0;
    ssize_t got = 0;
    struct stat is;

    /* A pipe has no earlier rows that could be read. */
    if (fstat(fileno(file), &is) == 0 && S_ISREG(is.st_mode)) {
        rewind(file);
        got = getline(&line, &room, file);
        fseek(file, 0, SEEK_END);
    }
    FILE *head = open_memstream(&wanted, &bytes);
    if (!head)
        perf_die(PERF_EXIT_FAILED, "no memory");
    perf_record_csv_head(head, r);
    if (fclose(head) != 0)
        perf_die(PERF_EXIT_FAILED, "no memory");
    int fits = got <= 0 ? 0 : strcmp(line, wanted) == 0 ? 1 : -1;
    free(line);
    free(wanted);
    return fits;
}
