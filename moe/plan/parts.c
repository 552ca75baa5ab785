// SPDX-License-Identifier: Apache-2.0
/* Plans in parts; see parts.h. */
#include "moe/plan/parts.h"

#include <string.h>

#include "collectives/alltoall.h"
#include "moe/layout/growing_array.h"
#include "moe/plan.h"
#include "moe/plan/received_counts.h"
#include "src/comm.h"
#include "src/progress/turns.h"
#include "src/trace/track.h"
#include "src/wire/failure.h"

static size_t local_of(const struct shunt_moe *moe, int rank)
{
    return (size_t)shunti_placement_count(moe->placement, rank);
}

/* The number of experts of this rank when the plan was made. */
static size_t local_here(const struct shunti_plan *plan)
{
    return (size_t)shunti_placement_count(plan->placement, plan->moe->rank);
}

/* --- bounds ------------------------------------------------------------------- */

size_t shunti_parts_token(const struct shunti_plan *plan, int bound)
{
    return plan->tokens * (size_t)bound / (size_t)plan->parts.count;
}

/* The marks of a source at an inner bound. */
static const uint32_t *mark_of(const struct shunti_plan *plan, int bound,
                               int source)
{
    const size_t inner = (size_t)plan->parts.count - 1;
    const size_t at = (size_t)source * inner + (size_t)bound - 1;

    return plan->parts.mark + at * (1 + local_here(plan));
}

size_t shunti_parts_rows(const struct shunti_plan *plan, int bound, int source,
                         size_t i)
{
    if (!bound)
        return 0;
    if (bound == plan->parts.count)
        return shunti_received_rows_from(&plan->received, source, i);
    return mark_of(plan, bound, source)[1 + i];
}

size_t shunti_parts_tokens(const struct shunti_plan *plan, int bound,
                           int source)
{
    if (!bound)
        return 0;
    return bound == plan->parts.count ? plan->received.source_tokens[source]
                                      : mark_of(plan, bound, source)[0];
}

/* --- rows of a cut ------------------------------------------------------------- */

struct shunti_ranges shunti_ranges_of(const struct shunti_plan *plan,
                                      struct shunti_cut cut)
{
    return (struct shunti_ranges){
        .plan = plan, .cut = cut, .row = plan->received.offset[0]};
}

bool shunti_ranges_next(struct shunti_ranges *ranges,
                        struct shunti_range *range)
{
    const struct shunti_plan *plan = ranges->plan;
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_placement *p = plan->placement;
    const int32_t *expert = shunti_placement_local(p, moe->rank);
    const size_t local = local_here(plan);

    while (ranges->local < local) {
        const size_t i = ranges->local;
        const int s = ranges->source;
        const size_t all = shunti_received_rows_from(&plan->received, s, i);
        const size_t before = shunti_parts_rows(plan, ranges->cut.from, s, i);

        *range = (struct shunti_range){
            .local = i,
            .source = s,
            .row = ranges->row + before,
            .count = shunti_parts_rows(plan, ranges->cut.to, s, i) - before,
        };
        if (!moe->config.pad_to_capacity)
            ranges->row += all;
        else if (shunti_placement_target(p, s, expert[i]) == moe->rank)
            ranges->row += plan->padded[s];
        if (++ranges->source == moe->nranks) {
            ranges->source = 0;
            ranges->row = plan->received.offset[++ranges->local];
        }
        if (range->count)
            return true;
    }
    return false;
}

size_t shunti_parts_lent(const struct shunti_plan *plan, struct shunti_cut cut)
{
    struct shunti_ranges ranges = shunti_ranges_of(plan, cut);
    struct shunti_range range;
    size_t rows = 0;

    if (shunti_cut_is_whole(plan, cut))
        return plan->received.lent;
    while (shunti_ranges_next(&ranges, &range))
        rows += range.source != plan->moe->rank ? range.count : 0;
    return rows;
}

size_t shunti_parts_list(const struct shunti_plan *plan, struct shunti_cut cut,
                         uint32_t *rows)
{
    struct shunti_ranges ranges = shunti_ranges_of(plan, cut);
    struct shunti_range range;
    size_t n = 0;

    while (shunti_ranges_next(&ranges, &range))
        for (size_t i = 0; i < range.count; i++)
            rows[n++] = (uint32_t)(range.row + i);
    return n;
}

void shunti_parts_copy(const struct shunti_plan *plan, struct shunti_cut cut,
                       void *to, const void *from)
{
    const size_t bytes = plan->moe->row_bytes;
    struct shunti_ranges ranges = shunti_ranges_of(plan, cut);
    struct shunti_range range;

    while (shunti_ranges_next(&ranges, &range))
        if (range.source != plan->moe->rank)
            shunti_copy_payload((unsigned char *)to + range.row * bytes,
                                (const unsigned char *)from + range.row * bytes,
                                range.count * bytes);
}

/* --- calls --------------------------------------------------------------------- */

bool shunti_cut_is_whole(const struct shunti_plan *plan, struct shunti_cut cut)
{
    return cut.from == 0 && cut.to == plan->parts.count;
}

bool shunti_parts_may(const struct shunti_plan *plan, int call, int part)
{
    const uint32_t *made = plan->parts.made[call];
    const uint32_t *failed = plan->parts.failed[call];

    for (int i = 0; i < plan->parts.count; i++)
        if ((int32_t)(made[part] - made[i] - failed[i]) > 0)
            return false;
    return true;
}

void shunti_parts_begin(struct shunti_plan *plan, int call,
                        struct shunti_cut cut)
{
    const bool whole = shunti_cut_is_whole(plan, cut);

    for (int i = cut.from; i < cut.to; i++) {
        plan->parts.made[call][i]++;
        if (!whole)
            plan->parts.failed[call][i] = 0;
    }
}

void shunti_parts_end(struct shunti_plan *plan, int call, struct shunti_cut cut,
                      enum shunt_status status)
{
    const bool whole = shunti_cut_is_whole(plan, cut);

    for (int i = cut.from; i < cut.to && status; i++) {
        plan->parts.made[call][i]--;
        plan->parts.failed[call][i] += !whole;
    }
}

int shunti_parts_unfinished(const struct shunti_plan *plan)
{
    for (int call = 0; call < SHUNTI_PART_CALLS; call++)
        for (int i = 1; i < plan->parts.count; i++)
            if (plan->parts.made[call][i] != plan->parts.made[call][0])
                return call;
    return -1;
}

/* --- marks --------------------------------------------------------------------- */

/* Words of marks that each source sends to `rank`. */
static size_t mark_words(const struct shunt_moe *moe, int rank, int count)
{
    return (size_t)(count - 1) * (1 + local_of(moe, rank));
}

bool shunti_parts_prepare(struct shunti_plan *plan, int count)
{
    struct shunt_moe *moe = plan->moe;
    size_t out = 0;

    if (count == 1)
        return true;
    for (int r = 0; r < moe->nranks; r++)
        out += mark_words(moe, r, count);
    return shunti_messages_prepare(moe, out * sizeof(uint32_t), 0) &&
           shunti_grow(&plan->parts.mark, &plan->parts.mark_max,
                       (size_t)moe->nranks * mark_words(moe, moe->rank, count),
                       sizeof(uint32_t));
}

/* Write the marks of a bound into the message for each rank. rows: (experts)
 * this rank's rows before the bound, by position. tokens: (ranks) this rank's
 * distinct tokens before the bound. */
static void write_marks(const struct shunti_plan *plan, int bound,
                        const uint32_t *rows, const uint32_t *tokens)
{
    const struct shunt_moe *moe = plan->moe;
    uint32_t *to = (uint32_t *)(void *)moe->messages.out;

    for (int r = 0; r < moe->nranks; r++) {
        const int32_t *expert = shunti_placement_local(moe->placement, r);
        const size_t local = local_of(moe, r);
        uint32_t *mark = to + (size_t)(bound - 1) * (1 + local);

        *mark++ = tokens[r];
        for (size_t i = 0; i < local; i++) {
            const struct shunti_order_expert *e = &moe->order.expert[expert[i]];

            *mark++ = e->rank == r ? rows[e->position >> SHUNTI_SLOT_BITS] : 0;
        }
        to += mark_words(moe, r, plan->parts.count);
    }
}

/* Count the rows and tokens before each bound, and write the marks. This rank's
 * terms are in the order of their sorted keys. */
static void count_marks(const struct shunti_plan *plan)
{
    const struct shunt_moe *moe = plan->moe;
    const size_t stride = shunti_sort_stride((size_t)moe->config.topk);
    const size_t ranks = (size_t)moe->nranks;
    uint32_t *rows = moe->order.rows;
    uint32_t *seen = moe->scratch, *tokens = seen + ranks;

    memset(rows, 0, (size_t)plan->placement->experts * sizeof(*rows));
    memset(seen, 0, 2 * ranks * sizeof(*seen));
    for (int b = 1; b < plan->parts.count; b++) {
        const size_t end = shunti_parts_token(plan, b);

        for (size_t t = shunti_parts_token(plan, b - 1); t < end; t++) {
            const uint32_t *key = moe->key + t * stride;

            for (size_t i = plan->first[t]; i < plan->first[t + 1]; i++) {
                const size_t r = (size_t)plan->terms[i].rank;

                rows[*key++ >> SHUNTI_SLOT_BITS]++;
                tokens[r] += seen[r] != t + 1;
                seen[r] = (uint32_t)t + 1;
            }
        }
        write_marks(plan, b, rows, tokens);
    }
}

/* True if the marks of a source rise from bound to bound, up to its counts. */
static bool are_possible(const struct shunti_plan *plan, int source)
{
    const size_t local = local_here(plan);

    for (int b = 0; b < plan->parts.count; b++) {
        if (shunti_parts_tokens(plan, b, source) >
            shunti_parts_tokens(plan, b + 1, source))
            return false;
        for (size_t i = 0; i < local; i++)
            if (shunti_parts_rows(plan, b, source, i) >
                shunti_parts_rows(plan, b + 1, source, i))
                return false;
    }
    return true;
}

/* Fail the communicator, because the other ranks have the plan, and would wait
 * for this rank in its calls. */
static enum shunt_status fail(struct shunt_comm *comm, int source)
{
    enum shunt_status st;

    shunti_comm_enter(comm);
    st = shunti_comm_fail(comm, SHUNT_ERR_MISMATCH, source,
                          "moe_plan_create: the parts of rank %d contradict "
                          "its counts",
                          source);
    st = shunti_comm_set_error(comm, st);
    shunti_comm_leave(comm);
    return st;
}

enum shunt_status shunti_parts_cut(struct shunti_plan *plan)
{
    struct shunt_moe *moe = plan->moe;
    const int n = moe->nranks, count = plan->parts.count;
    size_t *bytes = moe->messages.bytes;
    enum shunt_status st;

    memset(plan->parts.made, 0, sizeof(plan->parts.made));
    memset(plan->parts.failed, 0, sizeof(plan->parts.failed));
    plan->parts.has_answers = false;
    if (count == 1)
        return SHUNT_OK;
    count_marks(plan);
    for (int r = 0; r < n; r++) {
        bytes[r] = mark_words(moe, r, count) * sizeof(uint32_t);
        bytes[n + r] = mark_words(moe, moe->rank, count) * sizeof(uint32_t);
    }
    st = shunti_alltoallv(moe->comm, SHUNTI_IN_PLAN_CREATE, moe->messages.out,
                          bytes, NULL, plan->parts.mark, bytes + n, NULL,
                          SHUNT_U8);
    for (int s = 0; s < n && !st; s++)
        if (!are_possible(plan, s))
            st = fail(moe->comm, s);
    return st;
}
