// SPDX-License-Identifier: Apache-2.0
/*
 * Blame: the rank whose call does not agree with those of the other ranks, and
 * the error text about it.
 *
 * If an operation passes data through other ranks (collectives/two_level.h),
 * not every rank sees a disagreement by itself. Then a rank that sees it sends
 * the blame to the other ranks, and all record the same error.
 */
#ifndef SHUNTI_BLAME_H
#define SHUNTI_BLAME_H

#include <stdint.h>

#include <shunt/status.h>

struct shunt_request;

struct shunti_blame {
    /* the rank that made a bad call, or another call than this rank */
    int rank;
    int reporter; /* the rank that noticed the bad call */
    /* SHUNT_ERR_MISMATCH, or the error of the bad call */
    enum shunt_status status;
    uint32_t signature; /* signature of the call that `rank` made */
    /* If the signatures agree: the argument that differs, as `rank` passed it
     * and as the reporter passed it. */
    uint64_t argument, expected;
};

/* Record the blame as the error of `request`, unless `request` already has an
 * error that says more. */
void shunti_blame_record(struct shunt_request *request,
                         const struct shunti_blame *blame);

/* Record the blame for a call that has the same signature on `rank`, on the
 * reporter and on this rank, but not the same argument. */
void shunti_blame_argument(struct shunt_request *request,
                           const struct shunti_blame *blame);

#endif
