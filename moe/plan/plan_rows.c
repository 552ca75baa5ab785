// SPDX-License-Identifier: Apache-2.0
/* The rows of a plan, and answers about them; see plan_rows.h. */
#include "moe/plan/plan_rows.h"

#include <string.h>

#include <shunt/moe_waves.h>

#include "moe/layout/shares.h"
#include "moe/layout/split.h"
#include "moe/plan/lifetime.h"
#include "moe/plan/pages.h"
#include "src/kernels/fp8.h"

size_t shunti_wire_bytes(const struct shunt_moe *moe)
{
    return moe->config.wire == SHUNT_MOE_WIRE_FP8
               ? shunti_fp8_bytes(moe->config.hidden)
               : moe->row_bytes;
}

/* Call `gap` for each range of rows that no token fills. */
static void for_each_gap(const struct shunti_plan *plan,
                         void (*gap)(void *arg, size_t row, size_t count),
                         void *arg)
{
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_placement *p = plan->placement;
    const int32_t *expert = shunti_placement_local(p, moe->rank);
    size_t local = (size_t)shunti_placement_count(p, moe->rank);

    for (size_t i = 0; i < local; i++) {
        size_t at = plan->received.offset[i];

        for (int s = 0; s < moe->nranks && moe->config.pad_to_capacity; s++) {
            size_t used = shunti_received_rows_from(&plan->received, s, i);

            if (shunti_placement_target(p, s, expert[i]) != moe->rank)
                continue;
            gap(arg, at + used, plan->padded[s] - used);
            at += plan->padded[s];
        }
        at = plan->received.offset[i] + plan->received.count[i];
        gap(arg, at, plan->received.offset[i + 1] - at);
    }
}

struct zeroing {
    unsigned char *rows;
    size_t bytes; /* bytes of a row */
};

static void zero(void *arg, size_t row, size_t count)
{
    const struct zeroing *z = arg;

    memset(z->rows + row * z->bytes, 0, count * z->bytes);
}

void shunti_plan_zero_gaps(const struct shunti_plan *plan, void *rows)
{
    struct zeroing z = {rows, plan->moe->row_bytes};

    if (rows) /* NULL: no rows and no gaps, and memset() must not get NULL */
        for_each_gap(plan, zero, &z);
}

struct listing {
    uint32_t *rows;
    size_t count;
};

static void list(void *arg, size_t row, size_t count)
{
    struct listing *l = arg;

    for (size_t i = 0; i < count; i++, l->count++)
        if (l->rows)
            l->rows[l->count] = (uint32_t)(row + i);
}

size_t shunti_plan_list_gaps(const struct shunti_plan *plan, uint32_t *rows)
{
    struct listing l = {rows, 0};

    for_each_gap(plan, list, &l);
    return l.count;
}

/* --- rows for the caller --------------------------------------------------------- */

/* Add up what the waves of a plan send. */
static void add_up_traffic(const struct shunti_plan *plan,
                           struct shunt_moe_rows *rows)
{
    rows->bytes_sent = rows->network_rows = rows->network_rows_plain = 0;
    rows->network_dispatch_bytes = 0;
    rows->network_combine_rows = rows->network_combine_bytes = 0;
    for (int w = 0; w < plan->waves.count; w++) {
        const struct shunti_plan *wave = shunti_wave_of(plan, w);
        const struct shunti_direction *there =
            shunti_plan_direction(wave, SHUNTI_TO_EXPERTS);
        const struct shunti_direction *home =
            shunti_plan_direction(wave, SHUNTI_HOME);

        rows->bytes_sent += there->bytes_sent;
        rows->network_rows += there->network.rows;
        rows->network_rows_plain += wave->network_rows_plain;
        rows->network_dispatch_bytes += there->network.dispatch_bytes;
        rows->network_combine_rows += home->network.combine_rows;
        rows->network_combine_bytes += home->network.combine_bytes;
    }
}

static void fill_rows(const struct shunti_plan *plan,
                      struct shunt_moe_rows *rows)
{
    const struct shunt_moe *moe = plan->moe;
    const struct shunti_direction *there =
        shunti_plan_direction(plan, SHUNTI_TO_EXPERTS);
    const struct shunti_direction *home =
        shunti_plan_direction(plan, SHUNTI_HOME);

    *rows = (struct shunt_moe_rows){
        .local_experts = shunti_placement_count(plan->placement, moe->rank),
        .expert = shunti_placement_local(shunti_placement_real(plan->placement),
                                         moe->rank),
        .count = plan->received.count,
        .offset = plan->received.offset,
        .total = plan->received.total,
        .source_count = plan->received.source_count,
        .source_tokens = plan->received.source_tokens,
        .tokens = plan->tokens,
        .kept = plan->kept,
        .dropped = plan->dropped,
        .bytes_sent = there->bytes_sent,
        .mode = there->mode,
        .network_rows = there->network.rows,
        .network_rows_plain = plan->network_rows_plain,
        .network_dispatch_bytes = there->network.dispatch_bytes,
        .network_combine_bytes = home->network.combine_bytes,
        .network_combine_rows = home->network.combine_rows,
        .combine_mode = home->mode,
        .parts = plan->parts.count,
        .range = shunti_split_ranges_here(plan),
        .leaf_rows = moe->config.leaf_rows,
        .first_token = plan->wave.first_token,
        .waves = plan->waves.count,
        .wave = plan->wave.number,
    };
    if (plan->waves.cut)
        add_up_traffic(plan, rows);
}

void shunt_moe_plan_rows(const struct shunt_moe_plan *handle,
                         struct shunt_moe_rows *rows, size_t rows_size)
{
    const struct shunti_plan *plan = shunti_plan_of(handle);
    struct shunt_moe_rows all = {0};

    if (!rows)
        return;
    if (plan)
        fill_rows(plan, &all);
    memcpy(rows, &all, rows_size < sizeof(all) ? rows_size : sizeof(all));
}

void *shunt_moe_buffer(const struct shunt_moe_plan *handle,
                       enum shunt_moe_buffer which)
{
    const struct shunti_plan *plan = shunti_plan_of(handle);

    if (!plan || (int)which < SHUNT_MOE_ROWS || which > SHUNT_MOE_DROWS ||
        !plan->received.total)
        return NULL;
    for (int w = 0; w < plan->waves.count; w++)
        shunti_pages_use(shunti_wave_of(plan, w), which);
    return shunti_plan_buffer(plan, which);
}

struct shunt_moe_plan *shunt_moe_plan_wave(struct shunt_moe_plan *handle,
                                           int wave)
{
    struct shunti_plan *plan = shunti_plan_of(handle);

    if (!plan || wave < 0 || wave >= plan->waves.count)
        return NULL;
    return (struct shunt_moe_plan *)(uintptr_t)shunti_wave_of(plan, wave)
        ->handle;
}
