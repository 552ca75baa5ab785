// SPDX-License-Identifier: Apache-2.0
/*
 * --help, from the same rows that are parsed.
 */
#include "tools/cli/cli.h"

#include <string.h>

enum { WIDTH = 79 };

void cli_wrap(FILE *to, const char *text, int indent)
{
    int column = indent;

    for (;;) {
        int word = (int)strcspn(text, " \n");

        if (column > indent && column + 1 + word > WIDTH) {
            fprintf(to, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            putc(' ', to);
            column++;
        }
        fprintf(to, "%.*s", word, text);
        column += word;
        text += word;
        if (*text == '\n' && text[1]) {
            fprintf(to, "\n%*s", indent, "");
            column = indent;
        }
        text += strspn(text, " \n");
        if (!*text)
            break;
    }
    putc('\n', to);
}

void cli_print_item(FILE *to, int column, const char *head, const char *text)
{
    int length = fprintf(to, "  %s", head);

    if (length + 2 > column)
        fprintf(to, "\n%*s", column, "");
    else
        fprintf(to, "%*s", column - length, "");
    cli_wrap(to, text, column);
}

/* The option as --help prints it: "-b, --begin SIZE", or, without a letter,
 * "    --json[=FILE]". */
static void head_of(const struct cli_row *row, char *to, size_t room)
{
    char letter[5] = "    ";

    if (row->letter)
        snprintf(letter, sizeof(letter), "-%c, ", row->letter);
    if (row->optional)
        snprintf(to, room, "%s--%s[=%s]", letter, row->name, row->argument);
    else
        snprintf(to, room, "%s--%s%s%s", letter, row->name,
                 row->argument ? " " : "", row->argument ? row->argument : "");
}

static int column_of(const struct cli_program *program)
{
    size_t longest = strlen("-V, --version");
    char head[80];

    for (int i = 0; i < program->nrows; i++) {
        if (program->rows[i].kind == CLI_HEADING)
            continue;
        head_of(&program->rows[i], head, sizeof(head));
        if (strlen(head) > longest)
            longest = strlen(head);
    }
    return (int)longest + 4;
}

/* Could a user type this default? If not, it stands for something that the help
 * explains, and is not shown. */
static bool shows_default(const struct cli_program *program,
                          const struct cli_row *row, char *value, size_t room)
{
    struct cli_row checked = *row;
    struct cli_line line;
    uint64_t scratch[32]; /* no field is larger */

    if (!program->defaults || row->quiet || row->optional ||
        row->kind == CLI_FLAG)
        return false;
    cli_print(row, program->defaults, value, room);
    if (!*value || row->kind == CLI_TEXT || row->kind == CLI_LIST)
        return *value;
    checked.at = 0;
    return row->size <= sizeof(scratch) &&
           cli_read(&checked, scratch, value, &line);
}

static void print_row(const struct cli_program *program,
                      const struct cli_row *row, FILE *to, int column)
{
    char head[80], value[200], text[1000];

    head_of(row, head, sizeof(head));
    snprintf(text, sizeof(text), "%s", row->help);
    if (row->kind == CLI_CHOICE && !row->quiet)
        for (const struct cli_name *n = row->names; n->name; n++)
            snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s",
                     n == row->names ? ": " : "|", n->name);
    if (shows_default(program, row, value, sizeof(value)))
        snprintf(text + strlen(text), sizeof(text) - strlen(text), " (%s)",
                 value);
    cli_print_item(to, column, head, text);
}

static void print_all(const struct cli_program *program, FILE *to, int column)
{
    fputs(program->usage, to);
    if (program->nrows && program->rows[0].kind != CLI_HEADING)
        putc('\n', to);
    for (int i = 0; i < program->nrows; i++) {
        const struct cli_row *row = &program->rows[i];
        if (row->kind == CLI_HEADING) {
            putc('\n', to);
            cli_wrap(to, row->help, 0);
        } else {
            print_row(program, row, to, column);
        }
    }
}

/* Print the options to begin with, and the number of all options. */
static void print_first(const struct cli_program *program, FILE *to, int column)
{
    int options = 0;

    for (int i = 0; i < program->nrows; i++)
        options += program->rows[i].kind != CLI_HEADING;
    fprintf(to, "%s\nOptions to begin with, of %d (--help all lists them):\n",
            program->brief_usage, options);
    for (int i = 0; i < program->nrows; i++)
        if (program->rows[i].first)
            print_row(program, &program->rows[i], to, column);
}

void cli_help(const struct cli_program *program, bool all, FILE *to)
{
    const bool brief = !all && program->brief_usage;
    const char *end = brief ? program->brief_end : program->end;
    int column = column_of(program);

    if (brief)
        print_first(program, to, column);
    else
        print_all(program, to, column);
    cli_print_item(to, column, "-h, --help",
                   program->brief_usage ? "this text; --help all: all options"
                                        : "this text");
    cli_print_item(to, column, "-V, --version", "the version");
    if (program->more && !brief)
        program->more(to, column);
    if (end)
        fprintf(to, "\n%s", end);
}
