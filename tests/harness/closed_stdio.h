// SPDX-License-Identifier: Apache-2.0
/*
 * A rank program that closes its descriptors 0 to 2 and goes on printing to them:
 * nothing of the library may have these numbers.
 *
 * A set is a bit for each descriptor, 1 to CLOSED_STDIO_ALL.
 */
#ifndef SHUNT_TEST_CLOSED_STDIO_H
#define SHUNT_TEST_CLOSED_STDIO_H

#define CLOSED_STDIO_ALL 7

/* Output of the test itself goes to duplicates from now on. 0, or 1 as of CHECK. */
int closed_stdio_keep(void);

void closed_stdio_close(int set);
/* Give them back what they were. */
int closed_stdio_open(int set);

/* Print to all of the set. That must be EBADF: nothing has these numbers. 0, or 1
 * as of CHECK, which names what came before. */
int closed_stdio_print(int set, const char *after);

#endif
