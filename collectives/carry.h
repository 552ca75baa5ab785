// SPDX-License-Identifier: Apache-2.0
/* Alltoall in two levels: which blocks are carried (alltoall_two_level.c). */
#ifndef SHUNTI_CARRY_H
#define SHUNTI_CARRY_H

#include <stddef.h>

struct shunt_comm;

/* alltoall and alltoallv in two levels send blocks of more bytes directly. */
size_t shunti_carry_limit(const struct shunt_comm *comm);

#endif
