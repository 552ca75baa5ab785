// SPDX-License-Identifier: Apache-2.0
/* Limits that several folders of src/ use. */
#ifndef SHUNTI_LIMITS_H
#define SHUNTI_LIMITS_H

/* Ranks of a communicator: a signature (kind.h) has 15 bits for the root. */
#define SHUNTI_RANKS_MAX 32768

#endif
