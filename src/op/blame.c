// SPDX-License-Identifier: Apache-2.0
/* The error texts of calls that do not agree; see blame.h. */
#include "src/op/blame.h"

#include <stdio.h>

#include "src/op/request.h"

static void describe(uint32_t signature, char *text, size_t size)
{
    static const char *const op_names[] = {"",     " sum", " min",
                                           " max", " avg", " prod"};
    static const char *const dtype_names[] = {"",      " i8",  " u8",  " i32",
                                              " u32",  " i64", " u64", " f16",
                                              " bf16", " f32", " f64", " fp8"};
    const char *purpose = shunti_purpose_name(signature);
    const struct shunti_kind *kind = shunti_kind_of(signature);
    unsigned dtype = signature >> 20 & 15, op = signature >> 16 & 15;
    char root[32] = "";

    if (purpose) {
        snprintf(text, size, "%s (its %s)", purpose, kind->name);
        return;
    }
    if (kind->detail == SHUNTI_DETAIL_ROOT ||
        kind->detail == SHUNTI_DETAIL_ALGORITHM)
        snprintf(root, sizeof(root), ", %s %u",
                 kind->detail == SHUNTI_DETAIL_ROOT ? "root" : "algorithm",
                 signature & 0xffff & ~SHUNTI_TWO_LEVEL);
    snprintf(text, size, "%s%s%s%s%s", kind->name,
             dtype < sizeof(dtype_names) / sizeof(*dtype_names)
                 ? dtype_names[dtype]
                 : " ?",
             op < sizeof(op_names) / sizeof(*op_names) ? op_names[op] : " ?",
             root, signature & SHUNTI_TWO_LEVEL ? ", in two levels" : "");
}

void shunti_blame_record(struct shunt_request *request,
                         const struct shunti_blame *blame)
{
    char theirs[100], ours[100];

    if (request->error && !request->second_hand)
        return;
    if (blame->status != SHUNT_ERR_MISMATCH) {
        shunti_request_error(
            request, SHUNT_ERR_REMOTE,
            "%s: rank %d's call failed there: %s (its shunt_last_error says "
            "more)",
            shunti_request_name(request), blame->rank,
            shunt_strerror(blame->status));
        return;
    }
    if (blame->signature == request->signature) {
        shunti_blame_argument(request, blame);
        return;
    }
    if ((blame->signature ^ request->signature) == SHUNTI_TWO_LEVEL &&
        shunti_kind_of(blame->signature)->split_by_count) {
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: rank %d called with another count than this "
                             "rank",
                             shunti_request_name(request), blame->rank);
        return;
    }
    describe(blame->signature, theirs, sizeof(theirs));
    describe(request->signature, ours, sizeof(ours));
    shunti_request_error(request, SHUNT_ERR_MISMATCH,
                         "operation %llu: rank %d called %s, this rank %s",
                         (unsigned long long)request->seq, blame->rank, theirs,
                         ours);
}

void shunti_blame_argument(struct shunt_request *request,
                           const struct shunti_blame *blame)
{
    const struct shunti_kind *kind = shunti_kind_of(blame->signature);

    if (kind->mismatch)
        kind->mismatch(request, blame);
    else if (kind->counts)
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: rank %d and rank %d called with different "
                             "counts",
                             shunti_request_name(request), blame->rank,
                             blame->reporter);
    else
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: rank %d called with %llu B, rank %d with "
                             "%llu B",
                             shunti_request_name(request), blame->rank,
                             (unsigned long long)blame->argument,
                             blame->reporter,
                             (unsigned long long)blame->expected);
}
