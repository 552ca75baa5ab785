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
    bool apart;
    uint64_t badget; /* every N-th read fails; 0: none */
    uint64_t full;   /* nanoseconds without room for a read; 0: none */
    uint64_t delay;  /* nanoseconds; 0: none */
    bool fixed;      /* always `delay`, not a random time up to it */
    bool reorder;
    uint64_t seed;
    uint64_t fail, die, silence; /* numbers of a put, from 1; 0: never */
    uint64_t fade; /* nanoseconds until peers look lost; 0: never */
    int rank;      /* -1: every rank */
    int peer;      /* -1: every peer */
};

/* text: NULL for the empty program. False: `why` says which word is wrong. */
bool fault_program_parse(const char *text, struct fault_program *program,
                         char *why, size_t why_len);

/* Write a line for each word: probe() returns it, and shunt-info prints it. */
void fault_program_words(char *text, size_t len);

#endif
