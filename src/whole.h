// SPDX-License-Identifier: Apache-2.0
/*
 * What is compiled into one piece, and what stays out of it.
 *
 * A small call on one host takes as long as its instructions, and two in five
 * of these only led from one small function to the next: saved registers,
 * arguments by pointer, tests whose outcome the caller knew. Measured:
 * docs/performance.md, "A small call is instructions".
 */
#ifndef SHUNTI_WHOLE_H
#define SHUNTI_WHOLE_H

/* A function with all that it calls compiled into it, as far as the optimizer
 * sees: for the way of every small call, and only there, for each is large. */
#define SHUNTI_WHOLE __attribute__((flatten))

/* What such a way seldom takes. */
#define SHUNTI_APART __attribute__((noinline))

#endif
