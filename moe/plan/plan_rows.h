// SPDX-License-Identifier: Apache-2.0
/* The rows of a plan: their bytes on the wire, and the gaps between them. */
#ifndef SHUNTI_PLAN_ROWS_H
#define SHUNTI_PLAN_ROWS_H

#include <stddef.h>
#include <stdint.h>

#include "moe/plan.h"

/* Bytes of a row on the wire, in the form in which dispatch sends it to memory
 * that is not mapped. */
size_t shunti_wire_bytes(const struct shunt_moe *moe);

/* Zero those rows of `rows` (total, hidden) that no token fills. */
void shunti_plan_zero_gaps(const struct shunti_plan *plan, void *rows);
/* List the rows that no token fills, unless `rows` is NULL. Returns their
 * number. */
size_t shunti_plan_list_gaps(const struct shunti_plan *plan, uint32_t *rows);

#endif
