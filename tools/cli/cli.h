// SPDX-License-Identifier: Apache-2.0
/*
 * Command lines of programs. A table has a row for each option: its name, its
 * argument, where the value is stored, and its help. getopt_long() does the
 * parsing. So options may be abbreviated, may follow operands, and end at "--".
 * (argp of glibc was considered: it neither reads nor checks values, and it
 * prints errors itself, whereas shunt-train returns them.)
 *
 * Numbers are decimal, also with a leading 0, or hexadecimal after 0x.
 *
 * Every program takes -h, --help, --help all, -V and --version besides its
 * rows. Error texts say what is allowed.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cli_kind {
    CLI_HEADING, /* not an option: `help` is a heading above the next rows */
    CLI_FLAG,    /* sets an integer of any size to `value`, or to 1 */
    CLI_WHOLE,   /* a whole number, into an integer of 4 or 8 bytes */
    CLI_SIZE,    /* bytes below 2^62; k, m, g or t: powers of 1024 */
    CLI_REAL,    /* a number, into a float or a double */
    CLI_CHOICE,  /* one of `names`, into an integer of any size */
    CLI_TEXT,    /* a const char *; points into argv */
    CLI_LIST,    /* whole numbers with commas between them */
    CLI_CALL,    /* a value that `take` reads */
};

struct cli_name {
    const char *name; /* NULL ends an array */
    int value;
};

/* Rows of a program: a bit for each. */
__extension__ typedef unsigned __int128 cli_set;

/* The result of parsing a command line. */
struct cli_line {
    int operands;   /* index of the first argument that is not an option */
    cli_set given;  /* the rows that were in the command line */
    char why[1024]; /* text of an error */
};

struct cli_row {
    const char *name;     /* without "--" */
    char letter;          /* letter of the short option; 0: none */
    const char *argument; /* name of the argument in the help; NULL: no
                             argument */
    enum cli_kind kind;
    const char *help; /* cli_help() adds choices and default */

    size_t at, size;    /* offset of the field in the object, and its bytes */
    double least, most; /* range of a number; most 0: no limit */
    const struct cli_name *names;
    int value; /* value that a flag sets */
    int room;  /* most numbers that a list may have */
    /* For a list: offset of an int, the number of numbers. For an `optional`
     * argument: offset of a bool, which is set if the option is given. */
    size_t with;
    bool optional; /* the argument may be missing (NULL, 0): --json[=FILE] */
    bool quiet;    /* do not add choices and default to `help` */
    bool first;    /* also in the short --help: see brief_usage */
    int mark;      /* for the program's own use: cli_digest() */

    /* For CLI_CALL: reads the value. Returns false after cli_wrong(). */
    bool (*take)(void *object, const char *text, struct cli_line *line);
};

/* Initializers of a row: the field of `type` that gets the value, and the names
 * of a choice. */
#define CLI_AT(type, field) \
    .at = offsetof(type, field), .size = sizeof(((type *)NULL)->field)
#define CLI_LIST_AT(type, field, count)                                    \
    .at = offsetof(type, field), .size = sizeof(((type *)NULL)->field[0]), \
    .room = (int)(sizeof(((type *)NULL)->field) /                          \
                  sizeof(((type *)NULL)->field[0])),                       \
    .with = offsetof(type, count)
#define CLI_NAMES(...)                 \
    .names = (const struct cli_name[]) \
    {                                  \
        __VA_ARGS__,                   \
        {                              \
            NULL, 0                    \
        }                              \
    }

struct cli_program {
    const char *name;
    const char *usage;          /* first text of --help, printed as it is;
                                 * begins with "Usage:" */
    const struct cli_row *rows; /* at most 128 */
    int nrows;
    const void *defaults; /* an object with the defaults, for --help; NULL: all
                             zero */
    bool runs_command;    /* options end at the first operand */
    void (*more)(FILE *to, int column); /* prints more after the rows, or
                                           NULL */
    const char *end;                    /* last text of --help, or NULL */
    /* For a program with many options. --help prints these two in place of
     * `usage` and `end`, and between them the rows that are `first`. --help all
     * prints everything. NULL: --help prints everything. */
    const char *brief_usage, *brief_end;
};

/* CLI_EXIT: --help or --version has been printed. CLI_LOST: the same, but not
 * all of it could be written; line->why says why. */
enum cli_result { CLI_RUN, CLI_EXIT, CLI_BAD, CLI_LOST };

/* Read the command line into `object`, which holds the defaults. May move
 * operands behind the options in `argv`. */
enum cli_result cli_parse(const struct cli_program *program, void *object,
                          int argc, char **argv, struct cli_line *line);

/* As cli_parse(), for a program of one process. Exits after --help, and with a
 * line on stderr after a mistake (status 2), or if --help was not written
 * (status 1). */
void cli_parse_or_exit(const struct cli_program *program, void *object,
                       int argc, char **argv, struct cli_line *line);
/* Flush `stream`. Call it after each row of a table, and at the end of a
 * program. Returns NULL, or why some of the output was lost, for example on a
 * full disk. */
const char *cli_lost(FILE *stream);
/* Flush stdout at the end of a program. Returns false, after a line on stderr,
 * if some of the output was lost. */
bool cli_written(const char *program);

/* "NAME: why; see NAME --help" to stderr, and exit(2). */
_Noreturn void cli_usage_error(const struct cli_program *program,
                               const char *why);

/* Read one value as if it were in the command line. Returns false if it is
 * wrong; line->why says why. */
bool cli_read(const struct cli_row *row, void *object, const char *text,
              struct cli_line *line);
/* Print the value as a text that is read back as the same bits. Prints "" for
 * flags that are not set, for texts that are NULL, and for CLI_CALL and
 * headings. */
void cli_print(const struct cli_row *row, const void *object, char *to,
               size_t room);

const struct cli_row *cli_row_of(const struct cli_program *program,
                                 const char *name);
/* The bit of a row in `given`; 0: there is no row of that name. */
cli_set cli_bit(const struct cli_program *program, const char *name);

/* A digest of the values of `object`. Two objects have the same digest only if
 * their values are equal. Rows of CLI_TEXT and CLI_CALL, and those whose mark
 * is `without`, are left out. */
uint64_t cli_digest(const struct cli_program *program, const void *object,
                    int without);

/* For `take`: report an error, or read a value. `what` names the option in an
 * error. */
bool cli_wrong(struct cli_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool cli_real(struct cli_line *line, const char *what, const char *text,
              double least, double most, double *value);
bool cli_whole(struct cli_line *line, const char *what, const char *text,
               double least, double most, uint64_t *value);
bool cli_choice(struct cli_line *line, const char *what, const char *text,
                const struct cli_name *names, int *value);
/* The name of `value`; "?" if it has none. */
const char *cli_name_of(const struct cli_name *names, int value);

/* Print --help: the usage, one or more lines for each row, and the program's
 * other texts. The help of a row is followed by its choices and its default,
 * unless the row is quiet or the default is outside of its range.
 *
 * all  false: only the short help (brief_usage), if the program has one. */
void cli_help(const struct cli_program *program, bool all, FILE *to);
/* Print "  head    text", with the text wrapped from `column` on. */
void cli_print_item(FILE *to, int column, const char *head, const char *text);
/* Print `text` in lines of 79 columns; all lines but the first are indented. */
void cli_wrap(FILE *to, const char *text, int indent);

#endif
