// SPDX-License-Identifier: Apache-2.0
/*
 * Datatypes of which every byte is known. Each MPI datatype has a list of the
 * offsets of its elements, which was written by hand, not obtained from MPI.
 * All layouts of a group have the same signature, repeated. So one rank may
 * send with one layout, and another rank receive with another layout.
 */

#ifndef LAYOUT_H
#define LAYOUT_H

#include "check.h"

enum { LAYOUT_ELEMENTS = 12, LAYOUTS = 24 };

/* Messages are multiples of UNIT elements. The number of elements of every
 * layout divides UNIT. */
enum { UNIT = 12 };

struct layout {
    const char *name;
    MPI_Datatype type;
    bool derived;
    int n; /* number of elements */
    ptrdiff_t at[LAYOUT_ELEMENTS];
    int size[LAYOUT_ELEMENTS];
    ptrdiff_t extent;
};

/* The signature of a group: ints, or (double, int, char). */
enum signature { INTS, MIXED, SIGNATURES };

struct layouts {
    int n;
    struct layout of[LAYOUTS];
    /* A datatype without bytes, of which any number is empty. */
    struct layout nothing;
};

void layouts_make(struct layouts *set, enum signature signature);
void layouts_free(struct layouts *set);

/* Set the range of bytes that `count` instances touch, relative to their
 * origin. For no bytes it is 0, 0. */
void layout_span(const struct layout *l, int count, ptrdiff_t *lo,
                 ptrdiff_t *hi);

/* Set, or expect, a block of a message. The message's key determines its bytes.
 * `first` is the number of the block's first element in the message. */
void layout_set(struct memory *m, ptrdiff_t at, const struct layout *l,
                int count, uint64_t key, int first);
void layout_expect(struct memory *m, ptrdiff_t at, const struct layout *l,
                   int count, uint64_t key, int first);

/* Returns a datatype of the layout at an absolute address, for MPI_BOTTOM. The
 * caller frees it. */
MPI_Datatype layout_at(const struct layout *l, const void *address);

#endif
