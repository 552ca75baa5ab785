// SPDX-License-Identifier: Apache-2.0
/* Kinds of memory that an engine copies between. */
#ifndef PLACES_H
#define PLACES_H

#include <stdbool.h>
#include <stddef.h>

struct place {
    const char *name;
    void *(*take)(size_t bytes);
    void (*give_back)(void *memory);
    /* From and to the host's memory, at once. */
    void (*write)(void *to, const void *from, size_t bytes);
    void (*read)(void *to, const void *from, size_t bytes);
};

struct places {
    const struct place *pair[3][2]; /* from, to */
    int pairs;
    const struct place *refused; /* NULL: it takes all */
};

extern const struct place place_host;
/* memory of a GPU, and page-locked memory of the host for a GPU */
extern const struct place place_device, place_pinned;

const struct places *places_of(const char *engine);
/* Call them before the first and after the last use. False: the reason was
 * printed. */
bool places_begin(const char *engine);
void places_end(void);

#endif
