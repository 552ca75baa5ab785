// SPDX-License-Identifier: Apache-2.0
/* Kinds and purposes of the calls on an exchange; see kinds.h. */
#include "moe/kinds.h"

#include <stddef.h>

#include "src/blame.h"
#include "src/request.h"

static void mismatch(struct shunt_request *request,
                     const struct shunti_blame *blame)
{
    const unsigned theirs = (unsigned)(blame->argument >> 32);
    const unsigned plan = (unsigned)(blame->argument & UINT32_MAX);
    const unsigned expected = (unsigned)(blame->expected & UINT32_MAX);

    if (theirs == blame->expected >> 32)
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: rank %d called with plan number %u of this "
                             "exchange, rank %d with number %u (as they were "
                             "made, from 1)",
                             shunti_request_name(request), blame->rank, plan,
                             blame->reporter, expected);
    else
        shunti_request_error(
            request, SHUNT_ERR_MISMATCH,
            "%s: rank %d called with a plan of another exchange (made by "
            "operation %u) than rank %d (by operation %u): do all ranks make "
            "the calls of their layers in the same order?",
            shunti_request_name(request), blame->rank, theirs, blame->reporter,
            (unsigned)(blame->expected >> 32));
}

#define KIND(symbol, text)                                            \
    {                                                                 \
        .number = symbol, .name = text, .detail = SHUNTI_DETAIL_NONE, \
        .mismatch = mismatch,                                         \
    }

static const struct shunti_kind kinds[] = {
    KIND(SHUNTI_KIND_MOE_DISPATCH, "moe_dispatch"),
    KIND(SHUNTI_KIND_MOE_COMBINE, "moe_combine"),
    KIND(SHUNTI_KIND_MOE_COMBINE_BACKWARD, "moe_combine_backward"),
    KIND(SHUNTI_KIND_MOE_DISPATCH_BACKWARD, "moe_dispatch_backward"),
};

static const struct {
    enum shunti_purpose number;
    const char *name;
} purposes[] = {
    {SHUNTI_PURPOSE_MOE_CREATE, "moe_create"},
    {SHUNTI_PURPOSE_MOE_SET_PLACEMENT, "moe_set_placement"},
    {SHUNTI_PURPOSE_MOE_PLAN_CREATE, "moe_plan_create"},
    {SHUNTI_PURPOSE_MOE_DISPATCH, "moe_dispatch"},
    {SHUNTI_PURPOSE_MOE_COMBINE, "moe_combine"},
    {SHUNTI_PURPOSE_MOE_COMBINE_BACKWARD, "moe_combine_backward"},
    {SHUNTI_PURPOSE_MOE_DISPATCH_BACKWARD, "moe_dispatch_backward"},
};

__attribute__((constructor)) static void register_kinds(void)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        shunti_kind_register(&kinds[i]);
    for (size_t i = 0; i < sizeof(purposes) / sizeof(*purposes); i++)
        shunti_purpose_register(purposes[i].number, purposes[i].name);
}
