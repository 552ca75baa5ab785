// SPDX-License-Identifier: Apache-2.0
/* Other ranks must report how a rank has ended. */
#include <criterion/criterion.h>

#include "tests/harness/harness.h"

#define PROGRAM "rank_ends"

static const char *const on_nodes[] = {"SHUNT_TEST_NODES=0,0,0",
                                       "SHUNT_TEST_NODES=0,1,2"};

/* Ranks `one` and `other` must exit with status 0. */
static void check(const char *const *args, const char *nodes, int one,
                  int other)
{
    struct harness *h = harness_start(
        &(struct harness_job){.program = PROGRAM,
                              .args = {args[0], args[1], args[2], args[3]},
                              .env = {nodes},
                              .ranks = 3});

    harness_wait(h);
    cr_assert(!harness_timed_out(h), "%s", harness_story(h));
    cr_expect(harness_rank(h, one)->exit_code == 0, "%s", harness_story(h));
    cr_expect(harness_rank(h, other)->exit_code == 0, "%s", harness_story(h));
    harness_finish(h);
}

/* Returning from main() must look like exit(). */
Test(ends, three_causes_three_texts)
{
    static const char *const ways[][4] = {
        {"ends", "0", "rank 1", "without shunt_comm_finish() (exit status 0)"},
        {"ends", "3", "rank 1", "without shunt_comm_finish() (exit status 3)"},
        {"ends", "kill", "rank 1", "its process was killed, or crashed"},
        {"ends", "_exit", "rank 1", "its process was killed, or crashed"},
    };

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
        check(ways[i], on_nodes[0], 0, 2);
}

/* Between nodes a connection ends. The exit of the process is reported before
 * that. */
Test(ends, three_causes_between_nodes)
{
    static const char *const ways[][4] = {
        {"ends", "0", "rank 1", "without shunt_comm_finish() (exit status 0)"},
        {"ends", "3", "rank 1", "without shunt_comm_finish() (exit status 3)"},
        {"ends", "kill", "rank 1", "is lost: "},
    };

    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
        check(ways[i], on_nodes[1], 0, 2);
}

Test(ends, the_killed_rank_is_named_and_not_the_one_that_gave_up)
{
    static const char *const args[4] = {"one_gives_up"};

    for (int i = 0; i < 2; i++)
        check(args, on_nodes[i], 0, 0);
}

Test(ends, nobody_is_lost_where_calls_cross)
{
    for (int i = 0; i < 2; i++)
        harness_check(&(struct harness_job){.program = PROGRAM,
                                            .args = {"crossed"},
                                            .env = {on_nodes[i]},
                                            .ranks = 3});
}

Test(ends, the_text_of_a_call_stays_when_another_rank_aborts)
{
    for (int i = 0; i < 2; i++)
        harness_check(&(struct harness_job){.program = PROGRAM,
                                            .args = {"aborted_later"},
                                            .env = {on_nodes[i]},
                                            .ranks = 3});
}
