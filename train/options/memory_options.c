// SPDX-License-Identifier: Apache-2.0
/* Parses the options of memory.h, which needs the number of layers. */
#include "train/base/error.h"
#include "train/options/options.h"

int options_check_memory(struct options *o)
{
    struct memory_plan *plan = &o->memory_plan;

    *plan = (struct memory_plan){.above = o->recompute_above,
                                 .budget = o->activation_budget};
    for (size_t i = 0; i < o->nmemory; i++)
        if (memory_parse(plan, o->memory[i], o->model.layers))
            return -1;
    if (o->mpi &&
        (plan->budget || !memory_keeps(plan, o->model.layers, MEMORY_ROWS)))
        return train_error("--comm mpi keeps the rows of experts: leave out "
                           "--memory rows=..., layer=... and "
                           "--activation-budget");
    return 0;
}
