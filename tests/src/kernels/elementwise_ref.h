// SPDX-License-Identifier: Apache-2.0
/* Element-wise kernels, one element after another; see elementwise_ref.c. */
#ifndef TESTS_ELEMENTWISE_REF_H
#define TESTS_ELEMENTWISE_REF_H

#include "src/kernels/elementwise.h"

extern const struct shunti_elementwise elementwise_ref;

#endif
