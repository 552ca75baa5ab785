// SPDX-License-Identifier: Apache-2.0
/* How much of an exchange a computation has hidden, for people. */
#ifndef SHUNT_PERF_HIDDEN_SHARE_H
#define SHUNT_PERF_HIDDEN_SHARE_H

#include <stddef.h>

/* "89 % hidden". A share outside of 0 to 100 % is told in words: together both took
 * longer than one after the other, or one was disturbed when it was measured alone. */
const char *perf_hidden_text(double share, char *text, size_t size);

#endif
