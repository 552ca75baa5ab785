// SPDX-License-Identifier: Apache-2.0
/* The memory that plans take up: shunt_moe_memory(). */
#include <string.h>
#include <sys/stat.h>

#include <shunt/moe_waves.h>

#include "moe/plan.h"
#include "moe/route.h"
#include "src/base/handle.h"
#include "src/base/segment.h"
#include "src/comm.h"
#include "src/progress/turns.h"

/* Bytes of the pages that a window of this rank has, according to the
 * kernel. */
static size_t resident(const struct shunti_window *window)
{
    struct stat file;

    if (!window || !window->segment || fstat(window->segment->fd, &file))
        return 0;
    return (size_t)file.st_blocks * 512;
}

/* Bytes of a plan's lists and counts of rows. */
static size_t lists_of(const struct shunti_plan *plan)
{
    size_t bytes = plan->terms_max * sizeof(*plan->terms) +
                   plan->first_max * sizeof(*plan->first) +
                   plan->loads.count_max * sizeof(*plan->loads.count) +
                   plan->parts.mark_max * sizeof(*plan->parts.mark);
    const size_t ranks = (size_t)plan->moe->nranks;

    if (plan->waves.left)
        bytes += ranks * ranks * sizeof(*plan->waves.left);

    for (int d = 0; d < SHUNTI_TOWARDS; d++) {
        const struct shunti_direction *direction = &plan->direction[d];

        if (direction->state && direction->route->bytes)
            bytes += direction->route->bytes(direction->state);
    }
    for (size_t w = 0; w < plan->waves.made; w++)
        bytes += lists_of(plan->waves.plan[w]);
    return bytes;
}

void shunt_moe_memory(const struct shunt_moe *handle,
                      struct shunt_moe_memory *memory, size_t memory_size)
{
    const struct shunt_moe *moe =
        shunti_handle_object(SHUNTI_HANDLE_MOE, handle);
    struct shunt_moe_memory all = {0};

    if (!memory)
        return;
    if (moe) {
        shunti_comm_enter(moe->comm);
        all.rows_most = moe->pages_most;
        all.lists = moe->key_max * sizeof(*moe->key) +
                    moe->expert_max * sizeof(*moe->expert) +
                    moe->columns_max * sizeof(*moe->columns) +
                    moe->messages.out_max + moe->messages.in_max;
        for (int i = 0; i < moe->config.plans_in_flight; i++) {
            const struct shunti_place *at = &moe->places[i];

            all.rows += resident(at->window);
            for (int d = 0; d < SHUNTI_TOWARDS; d++)
                all.network += resident(at->rail[d].window);
        }
        for (int i = 0; i <= moe->config.plans_in_flight; i++)
            all.lists += lists_of(&moe->plans[i]);
        shunti_comm_leave(moe->comm);
    }
    memcpy(memory, &all, memory_size < sizeof(all) ? memory_size : sizeof(all));
}
