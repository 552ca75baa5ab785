// SPDX-License-Identifier: Apache-2.0
/*
 * Handles of plans: addresses in a reserved range, one for each plan that a
 * place ever holds. Only the first page of the range is memory; it says whose
 * range it is.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "plan.h"

#define RANGE ((uintptr_t)1 << 24)

struct owner {
    struct shunti_plan *plan;
};

enum shunt_status shunti_handles_init(struct shunti_plan *plan)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *at =
        mmap(NULL, 2 * RANGE, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (at == MAP_FAILED)
        return SHUNT_ERR_MEMORY;
    before = -(uintptr_t)at & (RANGE - 1);
    if (before)
        munmap(at, before);
    plan->at.range = at + before;
    if (before != RANGE)
        munmap(plan->at.range + RANGE, RANGE - before);
    if (mprotect(plan->at.range, page, PROT_READ | PROT_WRITE)) {
        shunti_handles_finish(plan);
        return SHUNT_ERR_MEMORY;
    }
    ((struct owner *)(void *)plan->at.range)->plan = plan;
    plan->at.generation = 0;
    return SHUNT_OK;
}

void shunti_handles_finish(struct shunti_plan *plan)
{
    if (plan->at.range)
        munmap(plan->at.range, RANGE);
    plan->at.range = NULL;
}

const struct shunt_moe_plan *shunti_handle_next(struct shunti_plan *plan)
{
    uintptr_t at = sizeof(struct owner) +
                   plan->at.generation++ % (RANGE - sizeof(struct owner));

    plan->handle = (const void *)(plan->at.range + at);
    return plan->handle;
}

struct shunti_plan *shunti_handle_place(const struct shunt_moe_plan *handle)
{
    uintptr_t range = (uintptr_t)handle & ~(RANGE - 1);

    return ((const struct owner *)range)->plan;
}
