// SPDX-License-Identifier: Apache-2.0
/*
 * For a rank program that closes its descriptors 0 to 2 and goes on printing to
 * them. The library must not use these numbers for its own files, because the
 * text would be written to them.
 *
 * A set has a bit for each of the three descriptors: 1 to CLOSED_STDIO_ALL.
 */
#ifndef SHUNT_TEST_CLOSED_STDIO_H
#define SHUNT_TEST_CLOSED_STDIO_H

#define CLOSED_STDIO_ALL 7

/* From now on the test's own output goes to duplicates. 0, or 1 as CHECK
 * returns. */
int closed_stdio_keep(void);

void closed_stdio_close(int set);
/* Opens the descriptors of `set` again, as they were. 0, or 1 as CHECK
 * returns. */
int closed_stdio_open(int set);

/* Prints to each descriptor of the set. This must fail with EBADF, because
 * nothing owns the number. `after`: what the test did before, for the error
 * text. 0, or 1 as CHECK returns. */
int closed_stdio_print(int set, const char *after);

#endif
