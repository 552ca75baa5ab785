// SPDX-License-Identifier: Apache-2.0
/* Kinds and purposes of the calls on an exchange; see kinds.h. */
#include "moe/plan/kinds.h"

#include <stddef.h>
#include <stdio.h>

#include "src/op/blame.h"
#include "src/op/request.h"

/* "part 2" (counted from 0), or "all parts". */
static const char *name_part(uint64_t name, char *text, size_t len)
{
    const unsigned part = name & 0xff;

    if (!part)
        return "all parts";
    snprintf(text, len, "part %u", part - 1);
    return text;
}

static void mismatch(struct shunt_request *request,
                     const struct shunti_blame *blame)
{
    const unsigned theirs = (unsigned)(blame->argument >> 36);
    const unsigned plan = (unsigned)(blame->argument >> 8 & 0xfffffff);
    const unsigned expected = (unsigned)(blame->expected >> 8 & 0xfffffff);
    char part[20], ours[20];

    if (blame->argument >> 8 == blame->expected >> 8)
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: rank %d called with %s of plan number %u, "
                             "rank %d with %s",
                             shunti_request_name(request), blame->rank,
                             name_part(blame->argument, part, sizeof(part)),
                             plan, blame->reporter,
                             name_part(blame->expected, ours, sizeof(ours)));
    else if (theirs == blame->expected >> 36)
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
            (unsigned)(blame->expected >> 36));
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
