// SPDX-License-Identifier: Apache-2.0
/*
 * Values of options: read from a text, and printed as one.
 */
#include "tools/cli/cli.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/distance.h"
#include "src/base/fnv.h"

static const char units[] = "kmgt";

bool cli_wrong(struct cli_line *line, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(line->why, sizeof(line->why), format, args);
    va_end(args);
    return false;
}

/* Returns " from 1 to 10" or ", 1 or more"; "" if any 64-bit number is
 * allowed. */
static const char *range(double least, double most, char *to, size_t room)
{
    if (least <= -0x1p63)
        to[0] = '\0';
    else if (most > 0)
        snprintf(to, room, " from %.15g to %.15g", least, most);
    else
        snprintf(to, room, ", %.15g or more", least);
    return to;
}

static bool within(double value, double least, double most)
{
    return value >= least && (most <= 0 || value <= most);
}

static bool real(struct cli_line *line, const char *what, const char *text,
                 bool is_float, double least, double most, double *value)
{
    char allowed[80], *end;

    errno = 0;
    *value = strtod(text, &end);
    if (end == text || *end || errno ||
        !(fabs(*value) <= (is_float ? (double)FLT_MAX : DBL_MAX)) ||
        !within(*value, least, most))
        return cli_wrong(line, "%s: '%s' is no number%s", what, text,
                         range(least, most, allowed, sizeof(allowed)));
    return true;
}

bool cli_real(struct cli_line *line, const char *what, const char *text,
              double least, double most, double *value)
{
    return real(line, what, text, false, least, most, value);
}

/* Read decimal, hexadecimal (0x10), or floating point (1e6) as far as a double
 * is exact. 010 is ten. */
static bool read_integer(const char *text, uint64_t *value)
{
    bool hex = text[0] == '0' && (text[1] | 0x20) == 'x';
    char *end;

    errno = 0;
    *value = strtoull(text, &end, hex ? 16 : 10);
    if (end != text && !*end)
        return !errno;
    errno = 0;
    double real = strtod(text, &end);
    if (end == text || *end || errno || !(fabs(real) <= 0x1p53) ||
        real != floor(real))
        return false;
    *value = (uint64_t)(int64_t)real;
    return true;
}

/* Read a size with or without a unit. Sizes are limited so that the sum of a
 * few sizes does not overflow. */
static bool read_size(const char *text, uint64_t *value)
{
    size_t length = strlen(text);
    const char *unit =
        length ? strchr(units, tolower((unsigned char)text[length - 1])) : NULL;
    int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    char number[64];

    if (unit)
        length--;
    if (length >= sizeof(number))
        return false;
    memcpy(number, text, length);
    number[length] = '\0';
    if (!read_integer(number, value) || *value > (UINT64_MAX >> 2) >> shift)
        return false;
    *value <<= shift;
    return true;
}

static bool whole(struct cli_line *line, const char *what, const char *text,
                  bool sized, double least, double most, uint64_t *value)
{
    bool negative = text[strspn(text, " \t")] == '-';
    char allowed[80];

    if (!(sized ? read_size : read_integer)(text, value) ||
        (negative && least >= 0) ||
        !within(negative ? (double)(int64_t)*value : (double)*value, least,
                most))
        return cli_wrong(line, "%s: '%s' is no %s%s", what, text,
                         sized ? "size such as 8, 4k or 64m" : "whole number",
                         sized && least <= 0 && most <= 0
                             ? ""
                             : range(least, most, allowed, sizeof(allowed)));
    return true;
}

bool cli_whole(struct cli_line *line, const char *what, const char *text,
               double least, double most, uint64_t *value)
{
    return whole(line, what, text, false, least, most, value);
}

bool cli_choice(struct cli_line *line, const char *what, const char *text,
                const struct cli_name *names, int *value)
{
    char all[768] = "";
    const char *nearest = "";
    unsigned least = UINT_MAX;

    for (const struct cli_name *n = names; n->name; n++) {
        const unsigned far = shunti_distance(text, n->name);

        if (strcmp(n->name, text) == 0) {
            *value = n->value;
            return true;
        }
        if (far < least) {
            least = far;
            nearest = n->name;
        }
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s%s",
                 n == names ? "" : "|", n->name);
    }
    if (least > 1 + strlen(text) / 3)
        return cli_wrong(line, "%s: '%s' is none of %s", what, text, all);
    return cli_wrong(line, "%s: '%s' is none of %s; the nearest is %s", what,
                     text, all, nearest);
}

const char *cli_name_of(const struct cli_name *names, int value)
{
    for (; names->name; names++)
        if (names->value == value)
            return names->name;
    return "?";
}

static void store(void *at, size_t size, uint64_t value)
{
    if (size == sizeof(uint8_t))
        *(uint8_t *)at = (uint8_t)value;
    else if (size == sizeof(uint32_t))
        *(uint32_t *)at = (uint32_t)value;
    else
        *(uint64_t *)at = value;
}

static uint64_t load(const void *at, size_t size)
{
    if (size == sizeof(uint8_t))
        return *(const uint8_t *)at;
    if (size == sizeof(uint32_t))
        return *(const uint32_t *)at;
    return *(const uint64_t *)at;
}

static double load_real(const void *at, size_t size)
{
    return size == sizeof(float) ? (double)*(const float *)at
                                 : *(const double *)at;
}

/* The largest number that a field may have; 0: any. */
static double most_of(const struct cli_row *row)
{
    return row->most <= 0 && row->size == sizeof(int) ? INT32_MAX : row->most;
}

static bool read_list(const struct cli_row *row, const char *what, void *object,
                      const char *text, struct cli_line *line)
{
    char *at = (char *)object + row->at;
    int *count = (int *)((char *)object + row->with);

    for (*count = 0;; (*count)++) {
        char part[64];
        uint64_t value;

        text += strspn(text, ",");
        if (!*text && *count)
            return true;
        if (*count == row->room)
            return cli_wrong(line, "%s: at most %d numbers", what, row->room);
        snprintf(part, sizeof(part), "%.*s", (int)strcspn(text, ","), text);
        if (!cli_whole(line, what, part, row->least, most_of(row), &value))
            return false;
        store(at + (size_t)*count * row->size, row->size, value);
        text += strcspn(text, ",");
    }
}

static bool read_real(const struct cli_row *row, const char *what, void *at,
                      const char *text, struct cli_line *line)
{
    const bool is_float = row->size == sizeof(float);
    double value;

    if (!real(line, what, text, is_float, row->least, row->most, &value))
        return false;
    if (is_float)
        *(float *)at = (float)value;
    else
        *(double *)at = value;
    return true;
}

static bool read_integers(const struct cli_row *row, const char *what, void *at,
                          const char *text, struct cli_line *line)
{
    uint64_t value = 0;

    if (!whole(line, what, text, row->kind == CLI_SIZE, row->least,
               most_of(row), &value))
        return false;
    store(at, row->size, value);
    return true;
}

bool cli_read(const struct cli_row *row, void *object, const char *text,
              struct cli_line *line)
{
    char *at = (char *)object + row->at;
    char what[64];
    int value = 0;

    snprintf(what, sizeof(what), "--%s", row->name);
    switch (row->kind) {
    case CLI_HEADING:
        break;
    case CLI_FLAG:
        store(at, row->size, (uint64_t)(row->value ? row->value : 1));
        return true;
    case CLI_WHOLE:
    case CLI_SIZE:
        return read_integers(row, what, at, text, line);
    case CLI_REAL:
        return read_real(row, what, at, text, line);
    case CLI_CHOICE:
        if (!cli_choice(line, what, text, row->names, &value))
            return false;
        store(at, row->size, (uint64_t)value);
        return true;
    case CLI_TEXT:
        *(const char **)(void *)at = text;
        return true;
    case CLI_LIST:
        return read_list(row, what, object, text, line);
    case CLI_CALL:
        return row->take(object, text, line);
    }
    assert(!"a row without a value");
    return false;
}

/* -- printing -------------------------------------------------------------- */

static void print_real(double value, bool is_float, char *to, size_t room)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(to, room, "%.*g", digits, value);
        double back = strtod(to, NULL);
        if (is_float ? (float)back == (float)value : back == value)
            break;
    }
}

static void print_size(uint64_t value, char *to, size_t room)
{
    char suffix[2] = "";

    for (int unit = 0; value && value % 1024 == 0 && units[unit]; unit++) {
        value /= 1024;
        suffix[0] = units[unit];
    }
    snprintf(to, room, "%" PRIu64 "%s", value, suffix);
}

static void print_list(const struct cli_row *row, const void *object, char *to,
                       size_t room)
{
    const char *at = (const char *)object + row->at;
    int count = *(const int *)((const char *)object + row->with);

    for (int i = 0; i < count && strlen(to) < room - 1; i++)
        snprintf(to + strlen(to), room - strlen(to), "%s%" PRIu64, i ? "," : "",
                 load(at + (size_t)i * row->size, row->size));
}

void cli_print(const struct cli_row *row, const void *object, char *to,
               size_t room)
{
    const char *at = (const char *)object + row->at;

    to[0] = '\0';
    switch (row->kind) {
    case CLI_HEADING:
    case CLI_CALL:
        break;
    case CLI_FLAG:
        if (load(at, row->size))
            snprintf(to, room, "%d", (int)load(at, row->size));
        break;
    case CLI_WHOLE:
        snprintf(to, room, "%" PRIu64, load(at, row->size));
        break;
    case CLI_SIZE:
        print_size(load(at, row->size), to, room);
        break;
    case CLI_REAL:
        print_real(load_real(at, row->size), row->size == sizeof(float), to,
                   room);
        break;
    case CLI_CHOICE:
        snprintf(to, room, "%s",
                 cli_name_of(row->names, (int)load(at, row->size)));
        break;
    case CLI_TEXT:
        if (*(const char *const *)(const void *)at)
            snprintf(to, room, "%s", *(const char *const *)(const void *)at);
        break;
    case CLI_LIST:
        print_list(row, object, to, room);
        break;
    }
}

/* Each value is hashed with the zero at its end. */
uint64_t cli_digest(const struct cli_program *program, const void *object,
                    int without)
{
    uint64_t digest = SHUNTI_FNV;

    for (int i = 0; i < program->nrows; i++) {
        const struct cli_row *row = &program->rows[i];
        char value[512];

        if (row->kind == CLI_HEADING || row->kind == CLI_TEXT ||
            row->kind == CLI_CALL || row->mark == without)
            continue;
        cli_print(row, object, value, sizeof(value));
        digest = shunti_fnv(digest, value, strlen(value) + 1);
        /* An optional argument also has a flag. */
        if (row->optional)
            digest = shunti_fnv(digest,
                                (const unsigned char *)object + row->with, 1);
    }
    return digest;
}
