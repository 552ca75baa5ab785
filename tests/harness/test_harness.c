// SPDX-License-Identifier: Apache-2.0
/* Tests of the harness itself. The harness must not report success for a test
 * that failed. */

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/harness.h"

TestSuite(harness, .timeout = 30);

/* Run a script as `ranks` processes. */
static struct harness *shell(const char *script, int ranks, double timeout_s)
{
    return harness_start(&(struct harness_job){
        .program = "/bin/sh",
        .args = {"-c", script},
        .ranks = ranks,
        .timeout_s = timeout_s,
    });
}

Test(harness, collects_by_rank)
{
    struct harness *h =
        shell("echo out $RANK of $WORLD_SIZE; echo err $RANK >&2", 3, 20);
    char text[64];

    cr_assert(harness_wait(h), "%s", harness_story(h));
    for (int i = 0; i < 3; i++) {
        const struct harness_rank *r = harness_rank(h, i);

        snprintf(text, sizeof(text), "out %d of 3\n", i);
        cr_assert_str_eq(r->out, text);
        snprintf(text, sizeof(text), "err %d\n", i);
        cr_assert_str_eq(r->err, text);
    }
    harness_finish(h);
}

Test(harness, one_failure_is_a_failure)
{
    struct harness *h =
        shell("if [ $RANK = 1 ]; then echo no luck >&2; exit 3; fi", 3, 20);

    cr_assert_not(harness_wait(h));
    cr_assert_not(harness_ok(h));
    cr_assert_not(harness_timed_out(h));
    cr_assert_eq(harness_rank(h, 0)->exit_code, 0);
    cr_assert_eq(harness_rank(h, 1)->exit_code, 3);
    cr_assert(strstr(harness_story(h), "rank 1: exit status 3"), "%s",
              harness_story(h));
    cr_assert(strstr(harness_story(h), "no luck"), "%s", harness_story(h));
    harness_finish(h);
}

Test(harness, deadline_kills)
{
    struct harness *h = shell("exec sleep 1000", 2, 0.2);
    pid_t pid = harness_rank(h, 1)->pid;

    cr_assert_not(harness_wait(h));
    cr_assert(harness_timed_out(h));
    cr_assert(harness_clock(h) < 10);
    cr_assert_eq(harness_rank(h, 1)->signal, SIGKILL);
    cr_assert(kill(pid, 0) < 0 && errno == ESRCH);
    cr_assert(strstr(harness_story(h), "not finished"), "%s", harness_story(h));
    harness_finish(h);
}

Test(harness, asked_after_the_deadline)
{
    struct harness *h = shell("exit 0", 1, 20);
    siginfo_t ended;

    cr_assert_eq(
        waitid(P_PID, (id_t)harness_rank(h, 0)->pid, &ended, WEXITED | WNOWAIT),
        0);
    harness_allow(h, -1);
    cr_assert(harness_wait(h), "%s", harness_story(h));
    harness_finish(h);
}

Test(harness, children_of_ranks_die_too)
{
    /* The rank succeeds. It leaves a child that has no pipe open, but must be
     * killed. */
    struct harness *h =
        shell("sleep 1000 >/dev/null 2>&1 & echo $!; exit 0", 1, 20);
    int child = 0;

    cr_assert(harness_wait(h), "%s", harness_story(h));
    cr_assert_eq(sscanf(harness_rank(h, 0)->out, "%d", &child), 1);
    /* A zombie counts as dead, too: its new parent may not have collected it
     * yet. */
    for (int i = 0; i < 1000 && kill(child, 0) == 0; i++) {
        char path[64];
        char state = '?';
        FILE *stat;

        snprintf(path, sizeof(path), "/proc/%d/stat", child);
        stat = fopen(path, "r");
        if (!stat || fscanf(stat, "%*d %*s %c", &state) != 1 || state == 'Z') {
            if (stat)
                fclose(stat);
            break;
        }
        fclose(stat);
        usleep(10000);
        cr_assert_lt(i, 999, "child %d is in state %c", child, state);
    }
    harness_finish(h);
}

Test(harness, waits_for_a_state_then_kills)
{
    struct harness *h = shell("echo read; echo ready; exec sleep 1000", 2, 20);

    cr_assert(harness_await(h, 0, "ready"), "%s", harness_story(h));
    cr_assert(harness_await(h, 1, "ready"), "%s", harness_story(h));
    harness_signal(h, 0, SIGTERM);
    harness_signal(h, 1, SIGKILL);
    cr_assert(harness_await_end(h, 0));
    cr_assert_not(harness_wait(h));
    cr_assert_eq(harness_rank(h, 0)->signal, SIGTERM);
    cr_assert_eq(harness_rank(h, 1)->signal, SIGKILL);
    cr_assert_not(harness_timed_out(h));
    harness_finish(h);
}

Test(harness, state_that_never_comes)
{
    struct harness *h = shell("printf 'rea'; printf 'dy'", 1, 20);

    cr_assert_not(harness_await(h, 0, "ready"), "not a whole line");
    harness_finish(h);
}

Test(harness, much_output)
{
    struct harness *h = shell("seq 200000; seq 200000 >&2", 2, 25);

    cr_assert(harness_wait(h), "%s", harness_story(h));
    cr_assert(harness_rank(h, 0)->out_bytes == 1288895, "%zu bytes",
              harness_rank(h, 0)->out_bytes);
    cr_assert(harness_rank(h, 1)->err_bytes == 1288895);
    harness_finish(h);
}

Test(harness, environment)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "/bin/sh",
        .args = {"-c", "echo $A $RANK ${SHUNT_RUN-none} ${MASTER_PORT-none}"},
        .env = {"A=b c", "SHUNT_RUN", "RANK=7"},
        .no_launch = true,
    });

    cr_assert(harness_wait(h), "%s", harness_story(h));
    cr_assert_str_eq(harness_rank(h, 0)->out, "b c 7 none none\n");
    harness_finish(h);
}

Test(harness, program_that_is_not_there)
{
    struct harness *h =
        harness_start(&(struct harness_job){.program = "nonesuch", .ranks = 2});

    cr_assert_not(harness_wait(h));
    cr_assert(strstr(harness_story(h), "no program nonesuch"), "%s",
              harness_story(h));
    harness_finish(h);
    harness_finish(NULL);
}
