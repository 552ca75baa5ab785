// SPDX-License-Identifier: Apache-2.0
/* Windows that ranks free in different ways; the ranks run rank_windows.c. */
#include <criterion/criterion.h>

#include "tests/harness/harness.h"

TestSuite(windows, .timeout = 120);

static void at_sizes(const char *name)
{
    harness_case("rank_windows", name, 2);
    harness_case("rank_windows", name, 4);
    /* No rank maps another rank's memory. Windows are made in another way, but
     * ranks must agree in the same way. */
    harness_check(&(struct harness_job){
        .program = "rank_windows",
        .args = {name},
        .ranks = 3,
        .env = {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap"},
    });
}

Test(windows, freed_by_ranks_without)
{
    at_sizes("freed_by_ranks_without");
}

Test(windows, refused_by_one)
{
    at_sizes("refused_by_one");
}

Test(windows, freed_in_another_order)
{
    at_sizes("freed_in_another_order");
}

Test(windows, forgotten)
{
    at_sizes("forgotten");
}

Test(windows, not_had_by_one)
{
    at_sizes("not_had_by_one");
}

Test(windows, registrations)
{
    at_sizes("registrations");
}

Test(windows, freed_while_in_use)
{
    at_sizes("freed_while_in_use");
}

Test(windows, too_large_for_one)
{
    at_sizes("too_large_for_one");
}

Test(windows, too_large_after_a_late_error)
{
    at_sizes("too_large_after_a_late_error");
}
