// SPDX-License-Identifier: Apache-2.0
//
// shunt-run's command line: what it understands, and its help.

#include "tools/run_options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/version.h>

#include "tools/run_sink.h"

#define MAX_RANKS 4096

static void usage(FILE *to)
{
    fputs(
        "usage: shunt-run [-n RANKS] [OPTION...] [--] COMMAND [ARGUMENT...]\n"
        "\n"
        "Starts COMMAND as RANKS processes on this host, which find each "
        "other\n"
        "through RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,\n"
        "MASTER_PORT and SHUNT_SECRET.\n"
        "\n"
        "  -n, --ranks N       number of ranks (1)\n"
        "      --live          rank 0 has the terminal to itself, unprefixed,\n"
        "                      for programs that draw a progress line\n"
        "      --raw           pass all output through as it is\n"
        "      --no-prefix     the same\n"
        "      --tag TEXT      lines begin with [TEXT rank] instead of [rank]\n"
        "      --bind core     pin rank i to core i, round and round (none)\n"
        "      --env NAME=TEXT set a variable for all ranks; may be repeated\n"
        "      --timeout S     stop the job after S seconds; exit status 124\n"
        "      --grace S       when a rank fails, or on Ctrl-C, give the "
        "others\n"
        "                      S seconds to end by themselves (6); after "
        "Ctrl-C\n"
        "                      and --timeout also whoever reads our output\n"
        "      --keep-going    when a rank fails, let the others run\n"
        "  -h, --help\n"
        "      --version\n"
        "\n"
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
        "With SHUNT_TRACE=FILE, and SHUNT_FLIGHT_RECORDER=FILE, what the ranks "
        "wrote\n"
        "is one FILE at the end, unless it has %r or %p in it.\n"
        "\n"
        "Examples:\n"
        "  shunt-run -n 4 shunt-train --steps 200\n"
        "  shunt-run -n 2 --bind core shunt-perf alltoallv\n"
        "  shunt-run -n 4 --env SHUNT_TRACE=trace.json ./my-program\n"
        "  shunt-run -n 8 --env SHUNT_LOG=info --timeout 60 ./my-program\n",
        to);
}

static bool parse_seconds(const char *text, double *seconds)
{
    char *end;

    *seconds = strtod(text, &end);
    return end != text && *end == '\0' && *seconds >= 0 && *seconds < 1e9;
}

static bool parse_ranks(struct run_options *options, const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);

    options->ranks = (int)n;
    return end != text && *end == '\0' && n >= 1 && n <= MAX_RANKS;
}

static bool set_variable(char *text)
{
    char *equals = strchr(text, '=');

    if (!equals || equals == text)
        return false;
    *equals = '\0';
    setenv(text, equals + 1, 1);
    return true;
}

int run_options_parse(struct run_options *options, int argc, char **argv)
{
    enum { LIVE = 256, RAW, TAG, BIND, ENV, TIMEOUT, GRACE, KEEP, VERSION };
    static const struct option table[] = {
        {"ranks", required_argument, NULL, 'n'},
        {"live", no_argument, NULL, LIVE},
        {"raw", no_argument, NULL, RAW},
        {"no-prefix", no_argument, NULL, RAW},
        {"tag", required_argument, NULL, TAG},
        {"bind", required_argument, NULL, BIND},
        {"env", required_argument, NULL, ENV},
        {"timeout", required_argument, NULL, TIMEOUT},
        {"grace", required_argument, NULL, GRACE},
        {"keep-going", no_argument, NULL, KEEP},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, VERSION},
        {NULL, 0, NULL, 0},
    };
    int option;

    *options = (struct run_options){.ranks = 1, .grace = 6};
    /* '+': what follows the command is the command's. */
    while ((option = getopt_long(argc, argv, "+n:h", table, NULL)) != -1) {
        bool good = true;

        switch (option) {
        case 'n':
            good = parse_ranks(options, optarg);
            break;
        case LIVE:
            options->output = OUTPUT_LIVE;
            break;
        case RAW:
            options->output = OUTPUT_RAW;
            break;
        case TAG:
            options->tag = optarg;
            break;
        case BIND:
            options->bind = strcmp(optarg, "core") == 0;
            good = options->bind || strcmp(optarg, "none") == 0;
            break;
        case ENV:
            good = set_variable(optarg);
            break;
        case TIMEOUT:
            good = parse_seconds(optarg, &options->timeout);
            break;
        case GRACE:
            good = parse_seconds(optarg, &options->grace);
            break;
        case KEEP:
            options->keep_going = true;
            break;
        case 'h':
            usage(stdout);
            return 0;
        case VERSION:
            puts("shunt-run " SHUNT_VERSION);
            return 0;
        default:
            fputs("Try shunt-run --help.\n", stderr);
            return EXIT_USAGE;
        }
        if (!good) {
            run_say("'%s' makes no sense there; try shunt-run --help", optarg);
            return EXIT_USAGE;
        }
    }
    if (optind == argc) {
        run_say("no command; try shunt-run --help");
        return EXIT_USAGE;
    }
    options->command = argv + optind;
    if (options->ranks == 1 && !options->tag)
        options->output = OUTPUT_RAW;
    return -1;
}
