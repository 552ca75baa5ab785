// SPDX-License-Identifier: Apache-2.0
/*
 * Whose call does not agree with the others', and the text that says so.
 *
 * Where an operation goes through several hands (collectives/two_level.h), not
 * every rank sees a disagreement by itself. Then the rank that sees it tells
 * the others, and each records the same error.
 */
#ifndef SHUNTI_BLAME_H
#define SHUNTI_BLAME_H

#include <stdint.h>

#include <shunt/status.h>

struct shunt_request;

struct shunti_blame {
    int rank;     /* made a bad call, or another one than this rank */
    int reporter; /* noticed it */
    enum shunt_status status; /* SHUNT_ERR_MISMATCH, or why `rank` refused */
    uint32_t signature;       /* of the call of `rank` */
    /* If the signatures agree: the argument that does not, as `rank` has it and
     * as the reporter has it. */
    uint64_t argument, expected;
};

/* Record the error of `request`, unless it has one that says more. */
void shunti_blame_record(struct shunt_request *request,
                         const struct shunti_blame *blame);

/* The same for a call whose signature agrees with the reporter's and ours, and
 * whose argument does not. */
void shunti_blame_argument(struct shunt_request *request,
                           const struct shunti_blame *blame);

#endif
