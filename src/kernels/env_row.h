// SPDX-License-Identifier: Apache-2.0
/*
 * A row of the table of environment variables (src/base/env.h). It is defined
 * in the lowest folder so that every folder can declare the variables that it
 * uses.
 */
#ifndef SHUNTI_ENV_ROW_H
#define SHUNTI_ENV_ROW_H

#include <stdbool.h>

enum shunti_env_type {
    SHUNTI_ENV_STRING,
    SHUNTI_ENV_CHOICE,  /* one of the words in `choices`, of either case */
    SHUNTI_ENV_PAIR,    /* one or two of the words, separated by a comma */
    SHUNTI_ENV_BOOL,    /* 1/0, yes/no, on/off, true/false */
    SHUNTI_ENV_SIZE,    /* bytes, with k, m, g (powers of 1024), or "auto" */
    SHUNTI_ENV_NUMBER,  /* a number >= 0, or "auto" */
    SHUNTI_ENV_SECONDS, /* a number > 0 */
    SHUNTI_ENV_LEVELS,  /* levels of messages: log.h */
};

struct shunti_env_row {
    const char *name;
    enum shunti_env_type type;
    const char *fallback; /* the default, as text; NULL: unset */
    const char *choices;  /* of CHOICE and PAIR: "caller|thread" */
    const char *help;     /* one or two sentences */
    bool secret;          /* the value is never printed */
    bool from_rank_0;     /* rank 0's value holds on all ranks: shared_env.h */
};

#endif
