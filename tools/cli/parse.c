// SPDX-License-Identifier: Apache-2.0
/*
 * Parse a command line by getopt_long(), and explain what is wrong with it.
 */
#include "tools/cli/cli.h"

#include <assert.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/version.h>

#include "src/base/distance.h"

/* For row i, getopt_long() returns FIRST + i, above any letter. */
enum { ROWS_MAX = 128, FIRST = 256, HELP = FIRST + ROWS_MAX, VERSION };

struct tables {
    struct option names[ROWS_MAX + 3];
    char letters[2 + 2 * ROWS_MAX + 3]; /* for getopt_long(): "+:b:h" */
};

static void make_tables(const struct cli_program *program, struct tables *t)
{
    char *letter = t->letters;
    int n = 0;

    if (program->runs_command)
        *letter++ = '+';
    *letter++ = ':'; /* explain() reports errors */
    for (int i = 0; i < program->nrows; i++) {
        const struct cli_row *row = &program->rows[i];

        if (row->kind == CLI_HEADING)
            continue;
        t->names[n++] = (struct option){.name = row->name,
                                        .has_arg = row->optional   ? 2
                                                   : row->argument ? 1
                                                                   : 0,
                                        .val = FIRST + i};
        if (row->letter) {
            *letter++ = row->letter;
            if (row->argument)
                *letter++ = ':';
        }
    }
    t->names[n++] = (struct option){.name = "help", .val = HELP};
    t->names[n++] = (struct option){.name = "version", .val = VERSION};
    t->names[n] = (struct option){.name = NULL};
    strcpy(letter, "hV");
}

/* The row for a return value of getopt_long(); NULL: none. */
static const struct cli_row *row_at(const struct cli_program *program,
                                    int option)
{
    if (option >= FIRST)
        return option < FIRST + program->nrows ? &program->rows[option - FIRST]
                                               : NULL;
    for (int i = 0; i < program->nrows; i++)
        if (program->rows[i].letter && program->rows[i].letter == option)
            return &program->rows[i];
    return NULL;
}

/* Report an unknown long option, `text` = "--stepz=3". It may be the beginning
 * of several names, or of none. */
static void unknown_name(const struct tables *t, const char *text,
                         struct cli_line *line)
{
    size_t length = strcspn(text + 2, "=");
    char name[64], all[256] = "";
    const char *best = "";
    unsigned least = 64;
    int begun = 0;

    snprintf(name, sizeof(name), "%.*s", (int)length, text + 2);
    for (const struct option *o = t->names; o->name; o++) {
        unsigned far = shunti_distance(name, o->name);

        if (far < least) {
            least = far;
            best = o->name;
        }
        if (strncmp(o->name, name, strlen(name)))
            continue;
        begun++;
        snprintf(all + strlen(all), sizeof(all) - strlen(all), " --%s",
                 o->name);
    }
    if (begun > 1)
        cli_wrong(line, "--%s is short for several options:%s", name, all);
    else if (least <= 1 + length / 3)
        cli_wrong(line, "unknown option --%s; the nearest is --%s", name, best);
    else
        cli_wrong(line, "unknown option --%s", name);
}

/* Report what is wrong after '?' or ':'. optopt is the option, or 0 for a long
 * one that is unknown. */
static void explain(const struct cli_program *program, const struct tables *t,
                    int result, char **argv, struct cli_line *line)
{
    const struct cli_row *row = optopt ? row_at(program, optopt) : NULL;

    if (result == ':')
        cli_wrong(line, "--%s needs %s", row->name, row->argument);
    else if (row)
        cli_wrong(line, "--%s takes no value", row->name);
    else if (optopt >= HELP)
        cli_wrong(line, "--%s takes no value",
                  optopt == HELP ? "help" : "version");
    else if (optopt)
        cli_wrong(line, "unknown option -%c", optopt);
    else
        unknown_name(t, argv[optind - 1], line);
}

static bool take(const struct cli_program *program, const struct cli_row *row,
                 void *object, struct cli_line *line)
{
    line->given |= (cli_set)1 << (row - program->rows);
    if (row->optional) {
        *((bool *)object + row->with) = true;
        if (!optarg) {
            memset((char *)object + row->at, 0, row->size);
            return true;
        }
    }
    return cli_read(row, object, optarg, line);
}

/* The result after --help or --version. */
static enum cli_result printed(struct cli_line *line)
{
    const char *why = cli_lost(stdout);

    if (why)
        cli_wrong(line, "cannot write to stdout: %s", why);
    return why ? CLI_LOST : CLI_EXIT;
}

enum cli_result cli_parse(const struct cli_program *program, void *object,
                          int argc, char **argv, struct cli_line *line)
{
    struct tables t;
    int result;

    assert(program->nrows <= ROWS_MAX);
    make_tables(program, &t);
    *line = (struct cli_line){0};
    optind = 0; /* glibc: parse from the start, even the second time */
    while ((result = getopt_long(argc, argv, t.letters, t.names, NULL)) != -1) {
        if (result == '?' || result == ':') {
            explain(program, &t, result, argv, line);
            return CLI_BAD;
        }
        if (result == 'h' || result == HELP) {
            cli_help(program, optind < argc && !strcmp(argv[optind], "all"),
                     stdout);
            return printed(line);
        }
        if (result == 'V' || result == VERSION) {
            printf("%s %s\n", program->name, SHUNT_VERSION);
            return printed(line);
        }
        if (!take(program, row_at(program, result), object, line))
            return CLI_BAD;
    }
    line->operands = optind;
    return CLI_RUN;
}

void cli_usage_error(const struct cli_program *program, const char *why)
{
    fprintf(stderr, "%s: %s; see %s --help\n", program->name, why,
            program->name);
    exit(2);
}

void cli_parse_or_exit(const struct cli_program *program, void *object,
                       int argc, char **argv, struct cli_line *line)
{
    switch (cli_parse(program, object, argc, argv, line)) {
    case CLI_EXIT:
        exit(0);
    case CLI_LOST:
        fprintf(stderr, "%s: %s\n", program->name, line->why);
        exit(1);
    case CLI_BAD:
        cli_usage_error(program, line->why);
    case CLI_RUN:
        break;
    }
}

const struct cli_row *cli_row_of(const struct cli_program *program,
                                 const char *name)
{
    for (int i = 0; i < program->nrows; i++)
        if (program->rows[i].kind != CLI_HEADING &&
            !strcmp(program->rows[i].name, name))
            return &program->rows[i];
    return NULL;
}

cli_set cli_bit(const struct cli_program *program, const char *name)
{
    const struct cli_row *row = cli_row_of(program, name);

    return row ? (cli_set)1 << (row - program->rows) : 0;
}
