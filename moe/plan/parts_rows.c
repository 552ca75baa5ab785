// SPDX-License-Identifier: Apache-2.0
/* The rows of a part, for shunt_moe_part_rows(); see parts.h. */
#include <string.h>

#include "moe/layout/growing_array.h"
#include "moe/plan.h"
#include "moe/plan/lifetime.h"
#include "moe/plan/parts.h"
#include "src/base/error.h"
#include "src/comm.h"

/* The answer for a part: the index of each expert's first range, then the first
 * row of each range, then the number of its rows. */
struct answer {
    size_t *first_range, *offset, *count;
};

static struct answer answer_of(const struct shunti_plan *plan, int part)
{
    const struct shunt_moe *moe = plan->moe;
    const size_t local =
        (size_t)shunti_placement_count(plan->placement, moe->rank);
    const size_t most = local * (size_t)moe->nranks;
    size_t *at = plan->parts.answers + (size_t)part * (local + 1 + 2 * most);

    return (struct answer){at, at + local + 1, at + local + 1 + most};
}

/* Make the answer for a part. Ranges without a gap between them become one. */
static void make_answer(struct shunti_plan *plan, int part, size_t local)
{
    struct shunti_ranges ranges =
        shunti_ranges_of(plan, (struct shunti_cut){part, part + 1});
    const struct answer answer = answer_of(plan, part);
    struct shunti_range range;
    size_t n = 0, expert = 0;

    answer.first_range[0] = 0;
    while (shunti_ranges_next(&ranges, &range)) {
        while (expert < range.local)
            answer.first_range[++expert] = n;
        if (n > answer.first_range[expert] &&
            answer.offset[n - 1] + answer.count[n - 1] == range.row) {
            answer.count[n - 1] += range.count;
            continue;
        }
        answer.offset[n] = range.row;
        answer.count[n++] = range.count;
    }
    while (expert < local)
        answer.first_range[++expert] = n;
}

/* Make the answers for all parts, once. False: no memory. */
static bool make_answers(struct shunti_plan *plan, size_t local)
{
    const size_t each = local + 1 + 2 * local * (size_t)plan->moe->nranks;

    if (plan->parts.has_answers)
        return true;
    if (!shunti_grow(&plan->parts.answers, &plan->parts.answers_max,
                     (size_t)plan->parts.count * each, sizeof(size_t)))
        return false;
    for (int p = 0; p < plan->parts.count; p++)
        make_answer(plan, p, local);
    plan->parts.has_answers = true;
    return true;
}

static struct shunt_moe_part_rows part_rows(const struct shunti_plan *plan,
                                            int part, size_t local)
{
    const struct answer answer = answer_of(plan, part);
    struct shunt_moe_part_rows rows = {
        .first_token = shunti_parts_token(plan, part),
        .local_experts = (int)local,
        .first_range = answer.first_range,
        .offset = answer.offset,
        .count = answer.count,
    };

    rows.tokens = shunti_parts_token(plan, part + 1) - rows.first_token;
    for (size_t i = 0; i < answer.first_range[local]; i++)
        rows.rows += answer.count[i];
    return rows;
}

enum shunt_status shunt_moe_part_rows(struct shunt_moe_plan *handle, int part,
                                      struct shunt_moe_part_rows *rows,
                                      size_t rows_size)
{
    struct shunti_plan *plan = shunti_plan_of(handle);
    struct shunt_moe_part_rows all = {0};
    enum shunt_status st = SHUNT_OK;
    size_t local;

    if (!rows)
        return shunti_fail(plan ? &plan->moe->comm->error : NULL,
                           SHUNT_ERR_INVALID, "moe_part_rows: rows is NULL");
    if (!plan) {
        st = shunti_fail(NULL, SHUNT_ERR_INVALID, "moe_part_rows: plan is %s",
                         shunti_plan_missing(handle));
    } else if (plan->waves.cut) {
        st = shunti_fail(&plan->moe->comm->error, SHUNT_ERR_INVALID,
                         "moe_part_rows: the plan is in %d waves: ask each of "
                         "shunt_moe_plan_wave()",
                         plan->waves.count);
    } else if (part < 0 || part >= plan->parts.count) {
        st = shunti_fail(&plan->moe->comm->error, SHUNT_ERR_INVALID,
                         "moe_part_rows: there is no part %d: the plan has %d, "
                         "from 0",
                         part, plan->parts.count);
    } else {
        local =
            (size_t)shunti_placement_count(plan->placement, plan->moe->rank);
        if (make_answers(plan, local))
            all = part_rows(plan, part, local);
        else
            st = shunti_fail(&plan->moe->comm->error, SHUNT_ERR_MEMORY,
                             "moe_part_rows: no memory");
    }
    memcpy(rows, &all, rows_size < sizeof(all) ? rows_size : sizeof(all));
    return st;
}
