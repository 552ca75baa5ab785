// SPDX-License-Identifier: Apache-2.0
/* Rows by expert; see loads.h. */
#include "moe/plan/loads.h"

#include <string.h>

#include <shunt/moe_experts.h>

#include "moe/layout/growing_array.h"
#include "moe/layout/split.h"
#include "moe/plan.h"
#include "moe/plan/lifetime.h"
#include "moe/plan/records.h"
#include "src/base/error.h"
#include "src/comm.h"

static size_t experts_of(const struct shunti_plan *plan)
{
    return (size_t)plan->moe->config.experts;
}

/* True if the counts of all ranks are known: with shares (split.h), or from
 * records. */
static bool are_by_source(const struct shunt_moe *moe)
{
    return moe->placement->shares || shunti_records_have_counts(moe);
}

static const uint32_t *counts_of(const struct shunt_moe *moe, int source)
{
    return moe->placement->shares ? shunti_split_counts(moe, source)
                                  : shunti_record(moe, source).expert;
}

bool shunti_loads_prepare(struct shunti_plan *plan)
{
    const size_t sources =
        are_by_source(plan->moe) ? (size_t)plan->moe->nranks : 1;

    return shunti_grow(&plan->loads.count, &plan->loads.count_max,
                       sources * experts_of(plan), sizeof(*plan->loads.count));
}

void shunti_loads_keep(struct shunti_plan *plan)
{
    const struct shunt_moe *moe = plan->moe;
    const size_t experts = experts_of(plan);
    struct shunti_loads *loads = &plan->loads;

    loads->by_source = are_by_source(moe);
    if (!loads->by_source)
        memset(loads->count, 0, experts * sizeof(*loads->count));
    for (size_t s = 0; s < (size_t)moe->nranks && loads->by_source; s++)
        memcpy(loads->count + s * experts, counts_of(moe, (int)s),
               experts * sizeof(*loads->count));
}

void shunti_loads_add(struct shunti_plan *plan, int32_t expert, uint32_t rows)
{
    if (!plan->loads.by_source)
        plan->loads.count[expert] += rows;
}

/* --- loads for the caller -------------------------------------------------------- */

/* The plan of a handle, for the call `name`; NULL: *status says why. */
static const struct shunti_plan *plan_for(const struct shunt_moe_plan *handle,
                                          const char *name, const void *loads,
                                          enum shunt_status *status)
{
    const struct shunti_plan *plan = shunti_plan_of(handle);

    *status = SHUNT_OK;
    if (!plan)
        *status = shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: plan is %s", name,
                              shunti_plan_missing(handle));
    else if (!loads)
        *status = shunti_fail(&plan->moe->comm->error, SHUNT_ERR_INVALID,
                              "%s: loads is NULL", name);
    return *status ? NULL : plan;
}

enum shunt_status shunt_moe_loads(const struct shunt_moe_plan *handle,
                                  int64_t *loads)
{
    enum shunt_status st;
    const struct shunti_plan *plan = plan_for(handle, "moe_loads", loads, &st);
    size_t experts, sources;

    if (!plan)
        return st;
    experts = experts_of(plan);
    sources = plan->loads.by_source ? (size_t)plan->moe->nranks : 1;
    memset(loads, 0, experts * sizeof(*loads));
    for (size_t s = 0; s < sources; s++)
        for (size_t e = 0; e < experts; e++)
            loads[e] += plan->loads.count[s * experts + e];
    return SHUNT_OK;
}

enum shunt_status shunt_moe_loads_by_source(const struct shunt_moe_plan *handle,
                                            int64_t *loads)
{
    enum shunt_status st;
    const struct shunti_plan *plan =
        plan_for(handle, "moe_loads_by_source", loads, &st);
    size_t n;

    if (!plan)
        return st;
    n = (size_t)plan->moe->nranks * experts_of(plan);
    if (!plan->loads.by_source)
        return shunti_fail(
            &plan->moe->comm->error, SHUNT_ERR_UNSUPPORTED,
            "moe_loads_by_source: this rank was told the counts of its own "
            "experts only: set SHUNT_MOE_RECORDS to %zu or more on rank 0, or "
            "use source_count of shunt_moe_plan_rows()",
            (size_t)plan->moe->nranks *
                shunti_record_bytes(plan->moe->config.experts,
                                    plan->moe->nranks, plan->moe->nodes,
                                    plan->moe->routes.pieces));
    for (size_t i = 0; i < n; i++)
        loads[i] = plan->loads.count[i];
    return SHUNT_OK;
}
