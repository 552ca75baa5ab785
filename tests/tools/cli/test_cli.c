// SPDX-License-Identifier: Apache-2.0
/*
 * Command lines as a user may type them, parsed by one table with a row of each
 * kind.
 */

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cli.h"

struct object {
    int ranks;
    size_t bytes;
    uint64_t seed;
    float rate;
    double seconds;
    bool live, json, fp8, overlap;
    int tests;
    int dtype, output;
    const char *tag, *file;
    int sizes[3], nsizes;
    int few[2], nfew;
    int64_t any;
    int calls;
};

enum { OWN = 7 };

static bool take_even(void *object, const char *text, struct cli_line *line)
{
    struct object *o = object;

    if (strlen(text) % 2)
        return cli_wrong(line, "--even: '%s' has an odd length", text);
    o->calls++;
    return true;
}

#define AT(field) CLI_AT(struct object, field)

static const struct cli_row rows[] = {
    {.kind = CLI_HEADING, .help = "Numbers:"},
    {"ranks", 'n', "N", CLI_WHOLE, "processes", AT(ranks), .least = 1,
     .most = 64},
    {"bytes", 'b', "SIZE", CLI_SIZE, "of a block", AT(bytes)},
    {"seed", 0, "N", CLI_WHOLE, "of everything", AT(seed)},
    {"rate", 0, "X", CLI_REAL, "a float", AT(rate)},
    {"seconds", 0, "S", CLI_REAL, "a double", AT(seconds), .least = 0.5,
     .most = 10},
    {"sizes", 0, "N,...", CLI_LIST, "some", .least = 1,
     CLI_LIST_AT(struct object, sizes, nsizes)},
    {.kind = CLI_HEADING, .help = "Others:"},
    {"live", 'l', NULL, CLI_FLAG, "a flag", AT(live)},
    {"raw", 'r', NULL, CLI_FLAG, "another value", AT(output), .value = 2},
    {"dtype", 0, "TYPE", CLI_CHOICE, "of elements", AT(dtype),
     CLI_NAMES({"f32", 4}, {"bf16", 9}), .mark = OWN},
    {"fp8", 0, "WHETHER", CLI_CHOICE, "into a bool", AT(fp8),
     CLI_NAMES({"no", false}, {"yes", true})},
    {"tag", 0, "TEXT", CLI_TEXT, "a text", AT(tag)},
    {"json", 0, "FILE", CLI_TEXT, "an argument that may be missing", AT(file),
     .optional = true, .with = offsetof(struct object, json)},
    {"overlap", 0, "N", CLI_WHOLE, "another", AT(tests), .optional = true,
     .with = offsetof(struct object, overlap)},
    {"even", 0, "TEXT", CLI_CALL, "a function", .take = take_even},
    {"any", 0, "N", CLI_WHOLE, "of either sign", AT(any), .least = -0x1p63},
    {"few", 0, "N,...", CLI_LIST, "numbers of int",
     CLI_LIST_AT(struct object, few, nfew)},
};

static const struct object defaults = {.ranks = 3, .bytes = 65536, .dtype = 4};

static struct cli_program program = {
    .name = "test-cli",
    .usage = "Usage: test-cli [OPTION...]\n",
    .rows = rows,
    .nrows = sizeof(rows) / sizeof(rows[0]),
    .defaults = &defaults,
    .end = "Examples:\n  test-cli\n",
};

static struct object o;
static struct cli_line line;
static char *args[40];

static enum cli_result parse(char *const *given)
{
    int n = 1;

    args[0] = (char *)"test-cli";
    for (; given[n - 1]; n++)
        args[n] = given[n - 1];
    args[n] = NULL;
    o = defaults;
    return cli_parse(&program, &o, n, args, &line);
}

#define PARSE(...) parse((char *[]){__VA_ARGS__, NULL})
#define GOOD(...) cr_assert_eq(PARSE(__VA_ARGS__), CLI_RUN, "%s", line.why)
#define BAD(text, ...)                         \
    cr_assert_eq(PARSE(__VA_ARGS__), CLI_BAD); \
    cr_assert(strstr(line.why, text), "%s", line.why)

TestSuite(cli, .timeout = 30);

Test(cli, values_of_each_kind)
{
    GOOD("-n", "64", "--bytes=4k", "--seed", "18446744073709551615", "--rate",
         "1e-3", "--seconds", "0.5", "--sizes", "3,1", "-l", "--raw", "--dtype",
         "bf16", "--fp8", "yes", "--tag", "a b", "--even=ab");
    cr_assert_eq(o.ranks, 64);
    cr_assert_eq(o.bytes, 4096);
    cr_assert_eq(o.seed, UINT64_MAX);
    cr_assert(o.rate == 1e-3f && o.seconds == 0.5);
    cr_assert(o.nsizes == 2 && o.sizes[0] == 3 && o.sizes[1] == 1);
    cr_assert(o.live && o.output == 2 && o.dtype == 9 && o.fp8);
    cr_assert_str_eq(o.tag, "a b");
    cr_assert_eq(o.calls, 1);
    GOOD("-b", "3G", "--seed", "0x10", "--ranks", "1e1");
    cr_assert(o.bytes == (size_t)3 << 30 && o.seed == 16 && o.ranks == 10);
    GOOD("-b0", "-rln2", "--sizes", ",1,,2,");
    cr_assert(o.bytes == 0 && o.ranks == 2 && o.live && o.output == 2);
    cr_assert(o.nsizes == 2 && o.sizes[1] == 2);
}

/* A leading zero has no meaning: numbers are decimal, or hexadecimal after
 * 0x. */
Test(cli, bases_of_numbers)
{
    GOOD("--seed", "010", "--any", "-010", "-b", "010k", "--seconds", "010");
    cr_assert(o.seed == 10 && o.any == -10 && o.bytes == 10240);
    cr_assert(o.seconds == 10);
    GOOD("--seed", "0XfF", "--any", "-0x10", "-b", "0x10k", "--rate", "0x10");
    cr_assert(o.seed == 255 && o.any == -16 && o.bytes == 16384);
    cr_assert(o.rate == 16);
    BAD("'0o10' is no whole number", "--seed", "0o10");
    BAD("'0b1' is no whole number", "--seed", "0b1");
    BAD("'0x' is no whole number", "--seed", "0x");
}

Test(cli, bad_values)
{
    BAD("--ranks: 'two' is no whole number from 1 to 64", "-n", "two");
    BAD("'3x'", "--ranks", "3x");
    BAD("'1.5'", "--ranks", "1.5");
    BAD("''", "--ranks", "");
    BAD("from 1 to 64", "--ranks", "0");
    BAD("from 1 to 64", "--ranks", "65");
    BAD("from 1 to 64", "--ranks", "18446744073709551617");
    BAD("from 1 to 64", "--ranks", "1e300");
    BAD("no whole number, 0 or more", "--seed", "-1");
    BAD("no size such as", "-b", "8q");
    BAD("no size such as", "-b", "k");
    BAD("no size such as", "-b", "-1");
    BAD("no size such as", "-b", "99999999999999999999g");
    BAD("no size such as", "-b", "18446744073709551615k");
    GOOD("-b", "4611686018427387903");
    BAD("no size such as", "-b", "4611686018427387904"); /* 2^62 */
    BAD("no size such as", "-b", "4194304t");            /* also 2^62 */
    BAD("no size such as", "-b", "18446744073709551615");
    BAD("no number, 0 or more", "--rate", "nan");
    BAD("no number, 0 or more", "--rate", "inf");
    BAD("no number, 0 or more", "--rate", "1e39"); /* too large for a float */
    BAD("no number from 0.5 to 10", "--seconds", "0.49");
    BAD("no number from 0.5 to 10", "--seconds", "11");
    BAD("'f64' is none of f32|bf16", "--dtype", "f64");
    BAD("'bf61' is none of f32|bf16; the nearest is bf16", "--dtype", "bf61");
    BAD("at most 3 numbers", "--sizes", "1,2,3,4");
    BAD("'0'", "--sizes", "1,0");
    BAD("no whole number", "--sizes", "");
    BAD("'4294967297' is no whole number from 0 to 2147483647", "--few",
        "4294967297");
    PARSE("--any", "x");
    cr_assert_str_eq(line.why, "--any: 'x' is no whole number");
    BAD("odd length", "--even", "abc");
}

Test(cli, bad_options)
{
    BAD("--ranks needs N", "--ranks");
    BAD("--ranks needs N", "-n");
    BAD("--tag needs TEXT", "--ranks", "2", "--tag");
    BAD("--live takes no value", "--live=1");
    BAD("--help takes no value", "--help=1");
    BAD("unknown option -x", "-lx");
    BAD("--rnaks; the nearest is --ranks", "--rnaks=3");
    BAD("unknown option --zzzzzzzzzz", "--zzzzzzzzzz");
    cr_assert(!strstr(line.why, "nearest"), "%s", line.why);
    BAD("short for several options: --seed --seconds", "--se", "2");
}

Test(cli, abbreviations_operands_and_two_dashes)
{
    GOOD("a", "--rank", "5", "b", "--", "--live");
    cr_assert(o.ranks == 5 && !o.live);
    cr_assert_eq(line.operands, 4);
    cr_assert_str_eq(args[4], "a");
    cr_assert_str_eq(args[5], "b");
    cr_assert_str_eq(args[6], "--live");
    cr_assert_null(args[7]);
    program.runs_command = true;
    GOOD("-n", "2", "command", "-n", "x", "--live");
    cr_assert(o.ranks == 2 && !o.live);
    cr_assert_str_eq(args[line.operands], "command");
    GOOD("--", "--live");
    cr_assert_str_eq(args[line.operands], "--live");
    BAD("unknown option", "--nonesuch", "true");
    program.runs_command = false;
}

Test(cli, arguments_that_may_be_missing)
{
    GOOD("--json");
    cr_assert(o.json && !o.file);
    GOOD("--json=there", "x");
    cr_assert(o.json);
    cr_assert_str_eq(o.file, "there");
    GOOD("--json", "x"); /* x is an operand */
    cr_assert(!o.file && line.operands == 2);
    cr_assert(line.given & cli_bit(&program, "json"));
    GOOD("--overlap=5");
    cr_assert(o.overlap && o.tests == 5);
    GOOD("--overlap=5", "--overlap");
    cr_assert(o.overlap && o.tests == 0);
    cr_assert(!(line.given & cli_bit(&program, "ranks")));
    cr_assert_eq(cli_bit(&program, "nonesuch"), 0);
}

/* A value that is printed and parsed again has the same bits. */
Test(cli, values_survive_printing)
{
    struct object other = {0};
    char text[512];

    GOOD("-n", "7", "-b", "1536", "--seed", "18446744073709551615", "--rate",
         "0.1", "--seconds", "3.3333333333333335", "--sizes", "5,6,7",
         "--dtype", "bf16", "--fp8", "yes", "--tag", "t");
    for (int i = 0; i < program.nrows; i++) {
        cli_print(&rows[i], &o, text, sizeof(text));
        /* parsing a text would keep the pointer */
        if (rows[i].kind == CLI_TEXT)
            cr_assert_str_eq(text, *text ? "t" : "");
        else if (*text)
            cr_assert(cli_read(&rows[i], &other, text, &line), "%s", line.why);
    }
    cr_assert(other.ranks == 7 && other.bytes == 1536);
    cr_assert_eq(other.seed, UINT64_MAX);
    cr_assert(other.rate == 0.1f && other.seconds == 3.3333333333333335);
    cr_assert(other.nsizes == 3 && other.sizes[2] == 7 && other.dtype == 9);
    cr_assert(other.fp8);
}

Test(cli, digests)
{
    struct object a = defaults, b = defaults;

    cr_assert_eq(cli_digest(&program, &a, -1), cli_digest(&program, &b, -1));
    b.tag = "texts do not count";
    cr_assert_eq(cli_digest(&program, &a, -1), cli_digest(&program, &b, -1));
    b.dtype = 9;
    cr_assert_neq(cli_digest(&program, &a, -1), cli_digest(&program, &b, -1));
    cr_assert_eq(cli_digest(&program, &a, OWN), cli_digest(&program, &b, OWN));
    b.overlap = true;
    cr_assert_neq(cli_digest(&program, &a, OWN), cli_digest(&program, &b, OWN));
}

static const char help[] =
    "Usage: test-cli [OPTION...]\n"
    "\n"
    "Numbers:\n"
    "  -n, --ranks N      processes (3)\n"
    "  -b, --bytes SIZE   of a block (64k)\n"
    "      --seed N       of everything (0)\n"
    "      --rate X       a float (0)\n"
    "      --seconds S    a double\n"
    "      --sizes N,...  some\n"
    "\n"
    "Others:\n"
    "  -l, --live         a flag\n"
    "  -r, --raw          another value\n"
    "      --dtype TYPE   of elements: f32|bf16 (f32)\n"
    "      --fp8 WHETHER  into a bool: no|yes (no)\n"
    "      --tag TEXT     a text\n"
    "      --json[=FILE]  an argument that may be missing\n"
    "      --overlap[=N]  another\n"
    "      --even TEXT    a function\n"
    "      --any N        of either sign (0)\n"
    "      --few N,...    numbers of int\n"
    "  -h, --help         this text\n"
    "  -V, --version      the version\n"
    "\n"
    "Examples:\n"
    "  test-cli\n";

Test(cli, help_is_aligned)
{
    char *text = NULL;
    size_t length;
    FILE *to = open_memstream(&text, &length);

    cli_help(&program, false, to);
    fclose(to);
    cr_assert_str_eq(text, help);
    free(text);
    to = open_memstream(&text, &length);
    cli_print_item(to, 8, "a",
                   "What is longer than seventy-nine columns goes on "
                   "in a new line, below the first.");
    cli_print_item(to, 4, "head", "too long for the column");
    fclose(to);
    cr_assert_str_eq(text, "  a     What is longer than seventy-nine columns "
                           "goes on in a new line, below\n"
                           "        the first.\n"
                           "  head\n"
                           "    too long for the column\n");
    free(text);
}

/* --help shows the options that a beginner needs first. */
Test(cli, brief_help)
{
    static const struct cli_row some[] = {
        {.kind = CLI_HEADING, .help = "Numbers:"},
        {"ranks", 'n', "N", CLI_WHOLE, "processes", AT(ranks), .least = 1,
         .first = true},
        {"seed", 0, "N", CLI_WHOLE, "of everything", AT(seed)},
    };
    static const struct cli_program many = {
        .name = "many",
        .usage = "Usage: many, at length\n",
        .rows = some,
        .nrows = 3,
        .defaults = &defaults,
        .end = "All examples\n",
        .brief_usage = "Usage: many\n",
        .brief_end = "Example\n",
    };
    char *text = NULL;
    size_t length;
    FILE *to = open_memstream(&text, &length);

    cli_help(&many, false, to);
    fclose(to);
    cr_assert_str_eq(text,
                     "Usage: many\n\n"
                     "Options to begin with, of 2 (--help all lists them):\n"
                     "  -n, --ranks N  processes (3)\n"
                     "  -h, --help     this text; --help all: all options\n"
                     "  -V, --version  the version\n\nExample\n");
    free(text);
    to = open_memstream(&text, &length);
    cli_help(&many, true, to);
    fclose(to);
    cr_assert_str_eq(text,
                     "Usage: many, at length\n\nNumbers:\n"
                     "  -n, --ranks N  processes (3)\n"
                     "      --seed N   of everything (0)\n"
                     "  -h, --help     this text; --help all: all options\n"
                     "  -V, --version  the version\n\nAll examples\n");
    free(text);
}

Test(cli, help_and_version_end_the_line)
{
    cr_assert_eq(PARSE("--help", "--nonesuch"), CLI_EXIT);
    cr_assert_eq(PARSE("-h"), CLI_EXIT);
    cr_assert_eq(PARSE("--vers"), CLI_EXIT);
    cr_assert_eq(PARSE("-V"), CLI_EXIT);
}
