// SPDX-License-Identifier: Apache-2.0
/*
 * A batch on an exchange whose experts have copies with shares: its plan, its
 * calls, and the gradients of its experts, checked against shared_rows.h.
 */
#ifndef SHUNT_TEST_BATCH_H
#define SHUNT_TEST_BATCH_H

#include "tests/moe/shared_rows.h"

struct batch {
    const struct rank *self;
    const struct routing *r;
    const struct places *p;
    uint64_t number;
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    float *y, *dx; /* (tokens of the batch, HIDDEN) */
};

/* The gradients of this rank's experts, in descending order of experts. */
struct gradients {
    float first[EXPERTS_MAX][FIRST + 1], second[EXPERTS_MAX][SECOND];
};

/* The configuration of an exchange for batches like `r`. */
struct shunt_moe_config batch_config(const struct routing *r,
                                     const struct places *p);

/* Allocates memory for the results of tokens. */
void batch_results(struct batch *b);

int batch_plan_with(struct batch *b,
                    const struct shunt_moe_plan_options *options);
int batch_plan(struct batch *b, int parts);

/* Checks the ranges of the plan, by their definition. */
int batch_check_ranges(const struct batch *b);

/* Loads must be those of experts, not of copies. */
int batch_check_loads(const struct batch *b);

/* Makes all four calls, and checks rows and bytes. */
int batch_exchange(struct batch *b);

/* Sums the gradients of the experts' rows. The result is stored in `g`, or
 * added to `g` if `add` is true. */
int batch_reduce(const struct batch *b, struct gradients *g, bool add);

/* Gradients must be the sum over the first `batches` batches. Those of experts
 * with another home must be unchanged. */
int gradients_check(const struct rank *self, struct routing *const *batch,
                    uint64_t batches, const int32_t *home,
                    const struct gradients *g);

#endif
