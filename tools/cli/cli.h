// SPDX-License-Identifier: Apache-2.0
/*
 * Command lines of programs: a table says what each option is called, what it
 * takes, where the value goes, and what --help says of it. Underneath is
 * getopt_long(), so options may be abbreviated, may stand behind operands, and
 * end at "--". (argp of glibc was considered: it neither reads nor checks
 * values, and it prints errors itself, whereas shunt-train returns them.)
 *
 * Numbers are decimal, also with a leading 0, or hexadecimal after 0x.
 *
 * Every program takes -h, --help, --help all, -V and --version besides its rows.
 * Errors are texts that say what is allowed.
 */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cli_kind {
    CLI_HEADING, /* no option: `help` stands above the rows that follow */
    CLI_FLAG,    /* sets an integer of any size to `value`, or to 1 */
    CLI_WHOLE,   /* a whole number, into an integer of 4 or 8 bytes */
    CLI_SIZE,    /* bytes below 2^62; k, m, g or t: powers of 1024 */
    CLI_REAL,    /* a number, into a float or a double */
    CLI_CHOICE,  /* one of `names`, into an integer of any size */
    CLI_TEXT,    /* a const char *; points into argv */
    CLI_LIST,    /* whole numbers with commas between them */
    CLI_CALL,    /* whatever `take` makes of it */
};

struct cli_name {
    const char *name; /* NULL ends an array */
    int value;
};

/* Rows of a program: a bit for each. */
__extension__ typedef unsigned __int128 cli_set;

/* What came of a command line. */
struct cli_line {
    int operands;   /* index of the first argument that is no option */
    cli_set given;  /* the rows that the user gave */
    char why[1024]; /* of an error */
};

struct cli_row {
    const char *name;     /* without "--" */
    char letter;          /* of the short option; 0: none */
    const char *argument; /* what it is called; NULL: there is none */
    enum cli_kind kind;
    const char *help; /* wrapped as needed; see cli_help() for what follows */

    size_t at, size;    /* the field's place in the object, and its bytes */
    double least, most; /* of a number; most 0: no limit */
    const struct cli_name *names;
    int value; /* of a flag */
    int room;  /* of a list: numbers it may have */
    /* A list: the place of an int, its length. With `optional`: of a bool,
     * which is set with or without an argument. */
    size_t with;
    bool optional; /* the argument may be missing (NULL, 0): --json[=FILE] */
    bool quiet;    /* `help` says what the choices and the default are */
    bool first;    /* one to begin with: see brief_usage */
    int mark;      /* the program's own */

    /* CLI_CALL: false after cli_wrong(). */
    bool (*take)(void *object, const char *text, struct cli_line *line);
};

/* For rows: .at and .size of a field. */
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
    const char *usage;          /* of --help, as it stands, from "Usage:" on */
    const struct cli_row *rows; /* at most 128 */
    int nrows;
    const void *defaults; /* an object, for --help; NULL: all zero */
    bool runs_command;    /* options end at the first operand */
    void (*more)(FILE *to, int column); /* --help after the rows, or NULL */
    const char *end;                    /* its last lines, or NULL */
    /* For a program with many options: --help shows these two in place of `usage` and
     * `end`, and between them the rows that are `first`; --help all shows everything.
     * NULL: so does --help. */
    const char *brief_usage, *brief_end;
};

/* CLI_EXIT: --help or --version has been printed. CLI_LOST: not all of it could
 * be written; line->why says why. */
enum cli_result { CLI_RUN, CLI_EXIT, CLI_BAD, CLI_LOST };

/* Reads the command line into `object`, which holds the defaults. Operands may
 * be moved behind the options in `argv`. */
enum cli_result cli_parse(const struct cli_program *program, void *object,
                          int argc, char **argv, struct cli_line *line);

/* The same for a program of one process: ends it after --help, and on a mistake
 * with status 2 and a line on stderr. */
void cli_parse_or_exit(const struct cli_program *program, void *object,
                       int argc, char **argv, struct cli_line *line);
/* Flush `stream`, after each row of a table and at the end of a program. Not NULL:
 * something that was printed is lost, as on a full disk, and why. */
const char *cli_lost(FILE *stream);
/* The same for stdout at the end of a program; false: a line on stderr has said
 * why. */
bool cli_written(const char *program);

/* "NAME: why; see NAME --help" to stderr, and exit(2). */
_Noreturn void cli_usage_error(const struct cli_program *program,
                               const char *why);

/* Reads one value, as if given; false: line->why says what is wrong. */
bool cli_read(const struct cli_row *row, void *object, const char *text,
              struct cli_line *line);
/* The value as a text that is read back as the same bits; "" for flags that
 * are not set, for texts that are NULL, for CLI_CALL and headings. */
void cli_print(const struct cli_row *row, const void *object, char *to,
               size_t room);

const struct cli_row *cli_row_of(const struct cli_program *program,
                                 const char *name);
/* The bit of a row in `given`; 0: there is no such row. */
cli_set cli_bit(const struct cli_program *program, const char *name);

/* A number that two objects share only if their values are equal: those of
 * all rows but CLI_TEXT, CLI_CALL, and the ones with a mark of `without`. */
uint64_t cli_digest(const struct cli_program *program, const void *object,
                    int without);

/* For `take`. `what` names the option in an error. */
bool cli_wrong(struct cli_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool cli_real(struct cli_line *line, const char *what, const char *text,
              double least, double most, double *value);
bool cli_whole(struct cli_line *line, const char *what, const char *text,
               double least, double most, uint64_t *value);
bool cli_choice(struct cli_line *line, const char *what, const char *text,
                const struct cli_name *names, int *value);
/* "?" if there is none. */
const char *cli_name_of(const struct cli_name *names, int value);

/* --help: the usage, a line or more for each row, what else there is. Behind
 * the help of a row stand its choices and its default, unless it is quiet or
 * the default is outside of the row's range.
 *
 * all  false: only what brief_usage says, if there is one. */
void cli_help(const struct cli_program *program, bool all, FILE *to);
/* "  head    text", the text wrapped from `column` on. */
void cli_print_item(FILE *to, int column, const char *head, const char *text);
/* Words of `text` in lines of 79 columns; all but the first are indented. */
void cli_wrap(FILE *to, const char *text, int indent);

#endif
