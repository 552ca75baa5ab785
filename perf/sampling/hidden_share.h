// SPDX-License-Identifier: Apache-2.0
/* The share of an exchange that overlapped with a computation, as text. */
#ifndef SHUNT_PERF_HIDDEN_SHARE_H
#define SHUNT_PERF_HIDDEN_SHARE_H

#include <stddef.h>

/* Returns "89 % of the shorter one is hidden" for a share of 0.89. A share
 * outside of 0 to 100 % becomes a sentence instead: either both together took
 * longer than one after the other, or one was disturbed when it was measured
 * alone. */
const char *perf_hidden_text(double share, char *text, size_t size);

/* Returns how much longer a layer takes than its computation alone, in
 * microseconds and in percent; without a percentage if it takes no longer. */
const char *perf_exposed_text(double us, double compute, char *text,
                              size_t size);

#endif
