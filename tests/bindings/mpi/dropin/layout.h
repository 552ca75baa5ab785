// SPDX-License-Identifier: Apache-2.0
/*
 * Datatypes whose every byte is known: beside each MPI datatype its own list of
 * where the elements are, written down by hand and never asked of MPI. All
 * layouts of a group have the same signature, repeated: so one rank may send
 * what another receives by another layout.
 */

#ifndef LAYOUT_H
#define LAYOUT_H

#include "check.h"

enum { LAYOUT_ELEMENTS = 12, LAYOUTS = 24 };

/* Messages are in units of UNIT elements, of which every layout has a divisor.
 */
enum { UNIT = 12 };

struct layout {
    const char *name;
    MPI_Datatype type;
    bool derived;
    int n; /* elements */
    ptrdiff_t at[LAYOUT_ELEMENTS];
    int size[LAYOUT_ELEMENTS];
    ptrdiff_t extent;
};

/* Signature of ints, or of (double, int, char). */
enum signature { INTS, MIXED, SIGNATURES };

struct layouts {
    int n;
    struct layout of[LAYOUTS];
    /* No bytes at all, in any number. */
    struct layout nothing;
};

void layouts_make(struct layouts *set, enum signature signature);
void layouts_free(struct layouts *set);

/* The bytes that `count` of them touch, relative to their origin. Nothing: 0,
 * 0. */
void layout_span(const struct layout *l, int count, ptrdiff_t *lo,
                 ptrdiff_t *hi);

/* Elements of a message: its key tells its bytes. `first` is the element of
 * the message that the block begins with. */
void layout_set(struct memory *m, ptrdiff_t at, const struct layout *l,
                int count, uint64_t key, int first);
void layout_expect(struct memory *m, ptrdiff_t at, const struct layout *l,
                   int count, uint64_t key, int first);

/* The same layout at an address of its own, for MPI_BOTTOM. To be freed. */
MPI_Datatype layout_at(const struct layout *l, const void *address);

#endif
