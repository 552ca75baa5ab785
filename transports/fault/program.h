// SPDX-License-Identifier: Apache-2.0
/* The program of the fault transport: the words of SHUNT_FAULT. */
#ifndef SHUNT_FAULT_PROGRAM_H
#define SHUNT_FAULT_PROGRAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fault_program {
    bool nomap;
    bool noget;
    uint64_t badget; /* each so-manieth read fails; 0: none */
    uint64_t delay;  /* nanoseconds; 0: none */
    bool fixed;      /* it is always that, not at random up to that */
    bool reorder;
    uint64_t seed;
    uint64_t fail, die, silence; /* numbers of a put, from 1; 0: never */
    int rank;                    /* -1: every rank */
    int peer;                    /* -1: every peer */
};

/* NULL text: the empty program. false: `why` says which word is wrong. */
bool fault_program_parse(const char *text, struct fault_program *program,
                         char *why, size_t why_len);

/* A line for each word: what probe() says, which shunt-info prints. */
void fault_program_words(char *text, size_t len);

#endif
