// SPDX-License-Identifier: Apache-2.0
/*
 * Attributes that decide what is inlined into the path of a small call.
 *
 * The time of a small call on one host is the time of its instructions. Two in
 * five instructions only passed control from one small function to the next:
 * saved registers, arguments by pointer, tests whose outcome the caller knew.
 * Measured: docs/lessons.md, "A small call is instructions".
 */
#ifndef SHUNTI_INLINE_H
#define SHUNTI_INLINE_H

/* Inline all that this function calls, as far as the optimizer sees the
 * callees. Only for the paths of small calls, because each such function
 * becomes large. */
#define SHUNTI_FLATTEN __attribute__((flatten))

/* Never inline: for code that a small call seldom runs. */
#define SHUNTI_NOINLINE __attribute__((noinline))

#endif
