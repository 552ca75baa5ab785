// SPDX-License-Identifier: Apache-2.0
/*
 * Blame: which rank's call does not agree with the others', and the text that
 * says so.
 *
 * If an operation passes data through other ranks (collectives/two_level.h),
 * not every rank sees a disagreement by itself. Then the rank that sees it
 * sends the blame to the others, and each records the same error.
 */
#ifndef SHUNTI_BLAME_H
#define SHUNTI_BLAME_H

#include <stdint.h>

#include <shunt/status.h>

struct shunt_request;

struct shunti_blame {
    int rank;     /* made a bad call, or a call that differs from this rank's */
    int reporter; /* the rank that noticed it */
    enum shunt_status status; /* SHUNT_ERR_MISMATCH, or why `rank` refused */
    uint32_t signature;       /* of the call that `rank` made */
    /* If the signatures agree: the argument that differs, as `rank` passed it
     * and as the reporter passed it. */
    uint64_t argument, expected;
};

/* Record the blame as the error of `request`, unless `request` already has an
 * error that says more. */
void shunti_blame_record(struct shunt_request *request,
                         const struct shunti_blame *blame);

/* The same for a call whose signature agrees on `rank`, on the reporter and on
 * this rank, while an argument differs. */
void shunti_blame_argument(struct shunt_request *request,
                           const struct shunti_blame *blame);

#endif
