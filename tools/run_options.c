// SPDX-License-Identifier: Apache-2.0
/* shunt-run's command line: what it understands, and its help. */

#include "tools/run_options.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cli/cli.h"
#include "tools/run_sink.h"

#define MAX_RANKS 4096
#define MAX_SECONDS 999999999

static bool set_variable(void *object, const char *text, struct cli_line *line)
{
    const char *equals = strchr(text, '=');

    (void)object;
    if (!equals || equals == text)
        return cli_wrong(line, "--env: '%s' is not NAME=TEXT", text);
    char *name = strndup(text, (size_t)(equals - text));
    if (!name || setenv(name, equals + 1, 1))
        cli_wrong(line, "--env: no memory for '%s'", text);
    free(name);
    return !line->why[0];
}

#define AT(field) CLI_AT(struct run_options, field)

static const struct cli_row rows[] = {
    {"ranks", 'n', "N", CLI_WHOLE, "number of ranks; also -np N", AT(ranks),
     .least = 1, .most = MAX_RANKS},
    {"live", 0, NULL, CLI_FLAG,
     "only rank 0 writes to the terminal, without a prefix: for programs that "
     "draw a progress line",
     AT(output), .value = OUTPUT_LIVE},
    {"raw", 0, NULL, CLI_FLAG, "pass all output through as it is", AT(output),
     .value = OUTPUT_RAW},
    {"no-prefix", 0, NULL, CLI_FLAG, "the same as --raw", AT(output),
     .value = OUTPUT_RAW},
    {"tag", 0, "TEXT", CLI_TEXT,
     "lines begin with [TEXT rank] instead of [rank]", AT(tag)},
    {"bind", 0, "WHERE", CLI_CHOICE,
     "pin rank i to core i, and again from core 0 behind the last one",
     AT(bind), CLI_NAMES({"none", false}, {"core", true})},
    {"env", 0, "NAME=TEXT", CLI_CALL,
     "set a variable for all ranks; may be repeated", .take = set_variable},
    {"timeout", 0, "S", CLI_REAL,
     "stop the job after S seconds; exit status 124", AT(timeout),
     .most = MAX_SECONDS, .quiet = true},
    {"grace", 0, "S", CLI_REAL,
     "when a rank fails, or on Ctrl-C, give the others S seconds to end by "
     "themselves; after Ctrl-C and --timeout also the reader of the output",
     AT(grace), .most = MAX_SECONDS},
    {"keep-going", 0, NULL, CLI_FLAG, "when a rank fails, let the others run",
     AT(keep_going)},
};

static const struct run_options defaults = {.ranks = 1, .grace = 6};

static const struct cli_program program = {
    .name = "shunt-run",
    .usage =
        "usage: shunt-run [-n RANKS] [OPTION...] [--] COMMAND [ARGUMENT...]\n"
        "\n"
        "Starts COMMAND as RANKS processes on this host, which find each "
        "other\n"
        "through RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,\n"
        "MASTER_PORT and SHUNT_SECRET.\n",
    .rows = rows,
    .nrows = sizeof(rows) / sizeof(rows[0]),
    .defaults = &defaults,
    .runs_command = true,
    .end =
        "Exit status: 0 when every rank succeeded, else that of the first to\n"
        "fail, 128 + signal when a signal killed it. 2: wrong usage. 124: "
        "timed\n"
        "out. 126, 127: COMMAND cannot be run, or is not found.\n"
        "\n"
        "Output of more than one rank is written in whole lines with the rank\n"
        "in front; that of a single rank is left alone. Standard input goes "
        "to\n"
        "rank 0, unless it is a terminal.\n"
        "\n"
        "The ranks' files of SHUNT_TRACE=FILE and SHUNT_FLIGHT_RECORDER=FILE "
        "are\n"
        "one FILE at the end, unless the name has %r or %p in it.\n"
        "\n"
        "Examples:\n"
        "  shunt-run -n 4 shunt-train --steps 200\n"
        "  shunt-run -n 2 --bind core shunt-perf alltoallv\n"
        "  shunt-run -n 4 --env SHUNT_TRACE=trace.json ./my-program\n"
        "  shunt-run -n 8 --env SHUNT_LOG=info --timeout 60 ./my-program\n",
};

/* Parse the command line. Other launchers have "-np 4", which getopt reads as
 * "-n p". */
static enum cli_result parse(struct run_options *options, int argc, char **argv,
                             struct cli_line *line)
{
    static char n[] = "-n";
    enum cli_result result;

    for (;;) {
        *options = defaults;
        result = cli_parse(&program, options, argc, argv, line);
        if (result != CLI_BAD || optind < 2 || optind > argc ||
            strcmp(argv[optind - 1], "-np") != 0)
            return result;
        argv[optind - 1] = n;
    }
}

int run_options_parse(struct run_options *options, int argc, char **argv)
{
    struct cli_line line;

    switch (parse(options, argc, argv, &line)) {
    case CLI_EXIT:
        return 0;
    case CLI_LOST:
        run_say("%s", line.why);
        return 1;
    case CLI_BAD:
        run_say("%s; try shunt-run --help", line.why);
        return EXIT_USAGE;
    case CLI_RUN:
        break;
    }
    if (line.operands == argc) {
        run_say("no command; try shunt-run --help");
        return EXIT_USAGE;
    }
    options->command = argv + line.operands;
    if (options->ranks == 1 && !options->tag)
        options->output = OUTPUT_RAW;
    return -1;
}
