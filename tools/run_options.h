// SPDX-License-Identifier: Apache-2.0
/* shunt-run's command line. */

#ifndef SHUNT_TOOLS_RUN_OPTIONS_H
#define SHUNT_TOOLS_RUN_OPTIONS_H

#include <stdbool.h>

enum {
    EXIT_USAGE = 2,
    EXIT_TIMEOUT = 124,
    EXIT_LAUNCH = 126,
    EXIT_NOT_FOUND = 127,
};

enum run_output { OUTPUT_PREFIX, OUTPUT_LIVE, OUTPUT_RAW };

struct run_options {
    int ranks;
    enum run_output output;
    bool bind;
    bool keep_going;
    double timeout; /* seconds; 0: none */
    double grace;   /* seconds */
    const char *tag;
    char **command;
};

/* Returns the exit status when there is nothing to run, else -1. */
int run_options_parse(struct run_options *options, int argc, char **argv);

#endif
