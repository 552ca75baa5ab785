// SPDX-License-Identifier: Apache-2.0
/* The kinds of memory between which an engine copies. */
#ifndef PLACES_H
#define PLACES_H

#include <stdbool.h>
#include <stddef.h>

struct place {
    const char *name;
    void *(*take)(size_t bytes);
    void (*give_back)(void *memory);
    /* Copy from and to the host's memory, synchronously. */
    void (*write)(void *to, const void *from, size_t bytes);
    void (*read)(void *to, const void *from, size_t bytes);
};

struct places {
    const struct place *pair[3][2]; /* pairs of source and target */
    int pairs;
    const struct place *refused; /* memory that the engine refuses; NULL: it
                                  * accepts all kinds */
};

extern const struct place place_host;
/* memory of a GPU, and page-locked memory of the host for a GPU */
extern const struct place place_device, place_pinned;

const struct places *places_of(const char *engine);
/* Call places_begin() before the first use, and places_end() after the last
 * one. places_begin() returns false on an error, which it has printed. */
bool places_begin(const char *engine);
void places_end(void);

#endif
