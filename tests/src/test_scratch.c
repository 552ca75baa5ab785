// SPDX-License-Identifier: Apache-2.0
/*
 * Scratch is kept for the next operation, of whichever communicator, and is
 * bounded for all of them together.
 */

#include <criterion/criterion.h>
#include <malloc.h>
#include <stdint.h>
#include <string.h>

#include "src/comm.h"
#include "src/scratch.h"

#define MIB ((size_t)1 << 20)

TestSuite(scratch, .timeout = 30);

static struct shunt_comm comms[8];

/* Bytes that malloc() has given out; under sanitizers that is not known, and 0.
 */
static size_t in_use(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

Test(scratch, communicators_share_what_is_kept)
{
    void *first = shunti_scratch_get(3 * MIB), *again;

    cr_assert(first);
    cr_assert_eq((uintptr_t)first % 64, 0);
    shunti_scratch_put(&comms[0], first);
    again = shunti_scratch_get(3 * MIB);
    cr_assert_eq(again, first);
    shunti_scratch_put(&comms[1], again);
    /* It is there for as long as one of them is. */
    shunti_scratch_leave(&comms[0]);
    cr_assert_eq(shunti_scratch_get(3 * MIB), first);
    shunti_scratch_put(&comms[1], first);
    shunti_scratch_leave(&comms[1]);
}

Test(scratch, many_communicators_keep_no_more_than_one)
{
    const size_t before = in_use();
    void *memory[8];

    for (int i = 0; i < 8; i++)
        memory[i] = shunti_scratch_get(16 * MIB);
    for (int i = 0; i < 8; i++)
        shunti_scratch_put(&comms[i], memory[i]);
    cr_assert_leq(in_use(), before + 33 * MIB);
    /* The latest, of which the caches may have something. */
    cr_assert_eq(shunti_scratch_get(16 * MIB), memory[7]);
    shunti_scratch_put(&comms[7], memory[7]);
    for (int i = 0; i < 8; i++) {
        shunti_scratch_leave(&comms[i]);
        shunti_scratch_leave(&comms[i]); /* as when one is freed */
    }
    cr_assert_leq(in_use(), before + MIB);
}
