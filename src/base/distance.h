// SPDX-License-Identifier: Apache-2.0
/*
 * How similar two names are, to name the nearest one in an error. Programs have
 * a copy of this for their options (cli/).
 */
#ifndef SHUNTI_DISTANCE_H
#define SHUNTI_DISTANCE_H

enum { SHUNTI_NAME_MAX = 64 }; /* a longer name is similar to no other */

/* The number of letters to change, add, remove, or swap with their neighbor to
 * turn one name into the other. Ignores case. */
unsigned shunti_distance(const char *a, const char *b);

#endif
