// SPDX-License-Identifier: Apache-2.0
/* Cases of rank_moe that signal its ranks, or start them in a special way.
 * on_ranks.c runs the other cases. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "tests/harness/harness.h"

TestSuite(moe, .timeout = 120);

/* Kills rank 1 of a case that prints a line when it is in its loop. The other
 * ranks must exit soon, with status 0. */
static void kill_a_rank(const char *program, const char *name, int ranks,
                        const char *env1, const char *env2)
{
    struct harness *h = harness_start(&(struct harness_job){.program = program,
                                                            .args = {name},
                                                            .env = {env1, env2},
                                                            .ranks = ranks,
                                                            .timeout_s = 60});
    double killed;

    for (int r = 0; r < ranks; r++)
        cr_assert(harness_await(h, r, "in the loop"), "%s", harness_story(h));
    killed = harness_clock(h);
    harness_signal(h, 1, SIGKILL);
    harness_wait(h);
    cr_assert_eq(harness_rank(h, 1)->signal, SIGKILL);
    for (int r = 0; r < ranks; r++) {
        if (r == 1)
            continue;
        cr_assert_eq(harness_rank(h, r)->exit_code, 0, "%s", harness_story(h));
        cr_assert_lt(harness_rank(h, r)->ended_s - killed, 5);
    }
    harness_finish(h);
}

Test(moe, a_rank_is_killed)
{
    kill_a_rank("rank_moe", "loss", 3, "SHUNT_TEST_PARTS=1", NULL);
    kill_a_rank("rank_moe", "loss", 3, "SHUNT_TEST_PARTS=4", NULL);
}

/* The rank is killed while a plan with several waves is made, or while a wave's
 * rows are sent. */
Test(moe, a_rank_is_killed_in_a_wave)
{
    kill_a_rank("rank_moe", "loss_in_a_wave", 3, NULL, NULL);
    kill_a_rank("rank_moe", "loss_in_a_wave", 3, "SHUNT_MOE_MODE=flat", NULL);
    kill_a_rank("rank_moe", "loss_in_a_wave", 3, "SHUNT_TEST_NODES=0,0,1",
                "SHUNT_TRANSPORTS=shm,tcp");
}

/* The rank whose ids have 64 bits must log a hint, and no other rank may. */
Test(moe, ids_of_64_bits)
{
    static const char said[] = "if its elements have 64 bits";
    struct harness *h = harness_start(
        &(struct harness_job){.program = "rank_moe",
                              .args = {"wide_ids"},
                              .env = {"SHUNT_LOG=info", "SHUNT_LOG_FILE"},
                              .ranks = 2});

    cr_assert(harness_wait(h), "%s", harness_story(h));
    cr_assert(strstr(harness_rank(h, 0)->err, said), "%s", harness_story(h));
    cr_assert(!strstr(harness_rank(h, 1)->err, said), "%s", harness_story(h));
    harness_finish(h);
}

/* The pages of plans' windows on a kernel with larger pages than this one, and
 * on a kernel that refuses to take pages back. */
Test(moe, pages)
{
    static const char *const names[] = {"large_pages", "refused"};

    for (int i = 0; i < 2; i++)
        harness_check(&(struct harness_job){
            .program = "rank_pages", .args = {names[i]}, .ranks = 1});
}

/* The rank is killed while the state of experts is sent. */
Test(moe, a_rank_is_killed_in_a_refresh_or_a_move)
{
    kill_a_rank("rank_experts", "loss", 4, "SHUNT_TEST_NODES=0,0,1,1",
                "SHUNT_TRANSPORTS=shm,tcp");
}

/* The rank is killed while sums of gradients are sent home. */
Test(moe, a_rank_is_killed_in_a_reduction_of_gradients)
{
    kill_a_rank("rank_shares", "loss", 3, NULL, NULL);
    kill_a_rank("rank_shares", "loss", 4, "SHUNT_TEST_NODES=0,0,1,1",
                "SHUNT_TRANSPORTS=shm,tcp");
}

/* Sending rank 0's data takes so long that a call which waited for it would
 * sleep. */
Test(moe, a_packed_start_does_not_wait)
{
    struct harness *h = harness_start(
        &(struct harness_job){.program = "rank_moe",
                              .args = {"start_does_not_wait"},
                              .env = {"SHUNT_TRANSPORTS=fault+shm",
                                      "SHUNT_FAULT=nomap,delay="
                                      "200000,fixed",
                                      "SHUNT_MOE_MODE=flat"},
                              .ranks = 3,
                              .timeout_s = 60});

    cr_assert(harness_wait(h), "%s", harness_story(h));
    harness_finish(h);
}

/* If each exchange kept a descriptor, the limit would be reached. */
Test(moe, ten_thousand_exchanges)
{
    struct harness *h = harness_start(
        &(struct harness_job){.program = "rank_moe",
                              .args = {"exchanges_come_and_go", "10000"},
                              .ranks = 2,
                              .timeout_s = 60});

    cr_assert(harness_wait(h), "%s", harness_story(h));
    harness_finish(h);
}
