// SPDX-License-Identifier: Apache-2.0
/*
 * A communicator keeps scratch memory for the next operation of any
 * communicator. All communicators together keep a limited number of bytes.
 */

#include <criterion/criterion.h>
#include <malloc.h>
#include <stdint.h>
#include <string.h>

#include "src/base/scratch.h"
#include "src/comm.h"

#define MIB ((size_t)1 << 20)

TestSuite(scratch, .timeout = 30);

static struct shunt_comm comms[8];

/* The bytes that malloc() has allocated; 0 under sanitizers, where that is not
 * known. */
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
    /* The memory is kept as long as one of the communicators exists. */
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
    /* The block that was freed last is used first, because caches may have
     * parts of it. */
    cr_assert_eq(shunti_scratch_get(16 * MIB), memory[7]);
    shunti_scratch_put(&comms[7], memory[7]);
    for (int i = 0; i < 8; i++) {
        shunti_scratch_leave(&comms[i]);
        shunti_scratch_leave(&comms[i]); /* as when a communicator is freed */
    }
    cr_assert_leq(in_use(), before + MIB);
}

/* A block is used again for a size that fits into it and is at least a quarter
 * of its own. Of several such blocks the smallest is used. */
Test(scratch, the_block_that_fits_best)
{
    void *one = shunti_scratch_get(1 * MIB),
         *three = shunti_scratch_get(3 * MIB),
         *eight = shunti_scratch_get(8 * MIB), *again, *second;

    shunti_scratch_put(&comms[0], eight);
    shunti_scratch_put(&comms[0], three);
    shunti_scratch_put(&comms[0], one);
    again = shunti_scratch_get(2 * MIB);
    cr_expect_eq(again, three);
    shunti_scratch_put(&comms[0], again);
    again = shunti_scratch_get(3 * MIB + 1);
    cr_expect_eq(again, eight);
    shunti_scratch_put(&comms[0], again);
    again = shunti_scratch_get(2 * MIB);
    /* the block has exactly four times that size */
    second = shunti_scratch_get(2 * MIB);
    cr_expect_eq(again, three);
    cr_expect_eq(second, eight);
    shunti_scratch_put(&comms[0], second);
    shunti_scratch_put(&comms[0], again);
    again = shunti_scratch_get(MIB / 8);
    cr_expect_neq(again, one);
    shunti_scratch_put(&comms[0], again);
    shunti_scratch_leave(&comms[0]);
}

/* A block must have all bytes that were asked for, even if it was used for
 * fewer bytes before. */
Test(scratch, every_byte_is_there)
{
    static const size_t sizes[] = {
        0,     1,      63,     64,     65,          65535,   65536,
        65537, 131071, 131073, 200000, MIB / 2 + 1, MIB - 1, 2 * MIB + 1};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned char *memory = shunti_scratch_get(sizes[i]);
        /* malloc()'s block begins a cache line before this address. */
        const size_t room = malloc_usable_size(memory - 64) - 64;

        cr_expect_geq(room, sizes[i], "%zu of %zu bytes", room, sizes[i]);
        memset(memory, (int)i, sizes[i]);
        shunti_scratch_put(&comms[0], memory);
    }
    shunti_scratch_leave(&comms[0]);
    cr_expect_null(shunti_scratch_get(SIZE_MAX));
    cr_expect_null(shunti_scratch_get(SIZE_MAX - 64));
}

/* A block that is larger than the limit of all kept blocks is freed at once. */
Test(scratch, a_block_that_is_too_large_to_keep)
{
    const size_t before = in_use();
    void *kept = shunti_scratch_get(16 * MIB);

    shunti_scratch_put(&comms[0], kept);
    shunti_scratch_put(&comms[0],
                       shunti_scratch_get(SHUNTI_SCRATCH_KEPT + MIB));
    cr_expect_leq(in_use(), before + 17 * MIB);
    cr_expect_eq(shunti_scratch_get(16 * MIB), kept);
    shunti_scratch_put(&comms[0], kept);
    shunti_scratch_leave(&comms[0]);
}
