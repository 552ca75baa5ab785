// SPDX-License-Identifier: Apache-2.0
/* Tests what init leaves behind in a process. The ranks run rank_birth.c. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "tests/harness/harness.h"

TestSuite(birth, .timeout = 60);

#define PROGRAM "rank_birth"

static bool have_ucx(void)
{
    char path[512];
    const char *folder = getenv("SHUNT_PLUGIN_PATH");

    snprintf(path, sizeof(path), "%s/shunt_ucx.so", folder ? folder : ".");
    return access(path, R_OK) == 0;
}

Test(birth, on_one_host_nothing_listens)
{
    harness_check(&(struct harness_job){
        .program = PROGRAM, .args = {"ports", "nothing"}, .ranks = 3});
}

/* The ports must be closed when all ranks are connected. */
Test(birth, tcp_listens_no_more)
{
    harness_check(&(struct harness_job){.program = PROGRAM,
                                        .args = {"ports", "nothing"},
                                        .env = {"SHUNT_TRANSPORTS=tcp"},
                                        .ranks = 3});
}

/* Virtual nodes are connected by UCX, which need not be reachable from
 * outside. */
Test(birth, on_one_host_ucx_listens_on_loopback)
{
    if (!have_ucx())
        cr_skip_test("no UCX");
    harness_check(&(struct harness_job){.program = PROGRAM,
                                        .args = {"ports", "loopback"},
                                        .env = {"SHUNT_TRANSPORTS=ucx"},
                                        .ranks = 3});
}

/* On one host, the sockets of a split, a dup or a shrink listen on loopback,
 * too. Ranks that share no memory connect in another way. */
Test(birth, on_one_host_later_births_listen_on_loopback)
{
    struct harness_job job = {
        .program = PROGRAM, .args = {"ports_of_later_births"}, .ranks = 4};

    harness_check(&job);
    if (!have_ucx())
        return;
    job.env[0] = "SHUNT_TEST_NODES=0,0,1,1";
    harness_check(&job);
}

Test(birth, on_one_host_ucx_is_not_loaded)
{
    harness_check(&(struct harness_job){
        .program = PROGRAM, .args = {"not_loaded", "libucp"}, .ranks = 2});
    harness_check(&(struct harness_job){
        .program = PROGRAM, .args = {"not_loaded", "shunt_ucx"}, .ranks = 2});
}

Test(birth, signal_handlers_stay)
{
    harness_check(&(struct harness_job){
        .program = PROGRAM, .args = {"handlers", "shm"}, .ranks = 2});
    if (have_ucx())
        harness_check(&(struct harness_job){.program = PROGRAM,
                                            .args = {"handlers", "ucx"},
                                            .env = {"SHUNT_TRANSPORTS=ucx"},
                                            .ranks = 2});
}

/* --- wrong environments of ranks ------------------------------------------ */

/* Runs the shell code `what` before each rank's program. The code may change
 * the environment. `text`: the arguments of the case `fails`, which are the
 * seconds and the error texts. */
static void mistake(int ranks, const char *what, const char *const *text)
{
    struct harness_job job = {.program = "/bin/sh", .ranks = ranks};
    static char script[1024];
    size_t n = 3;

    snprintf(script, sizeof(script), "%s; exec %s/rank_birth fails \"$@\"",
             what, getenv("SHUNT_TEST_BIN"));
    job.args[0] = "-c";
    job.args[1] = script;
    job.args[2] = "sh";
    for (; *text; text++)
        job.args[n++] = *text;
    harness_check(&job);
}

#define MISTAKE(ranks, what, ...) \
    mistake(ranks, what, (const char *const[]){__VA_ARGS__, NULL})

/* Makes ranks connect as if they were on several hosts. Otherwise they connect
 * to a unix socket. */
#define FAR "export SHUNT_HOST=127.0.0.1 SHUNT_PORT=$((MASTER_PORT + 1)); "

Test(birth, another_secret)
{
    const char *what = "[ $RANK != 2 ] || export SHUNT_SECRET=haddock";

    MISTAKE(3, what, "2", "rank 2 was given another SHUNT_SECRET",
            "rank 2 was given another SHUNT_SECRET", "another SHUNT_SECRET?");
    MISTAKE(3, FAR "[ $RANK != 2 ] || export SHUNT_SECRET=haddock", "2",
            "rank 2 was given another SHUNT_SECRET",
            "rank 2 was given another SHUNT_SECRET", "another SHUNT_SECRET?");
}

/* srun starts ranks on hosts in an order that the user gave, so that rank 0 is
 * not on the first host of Slurm's list. All ranks must get an error, even
 * those on hosts that cannot know that. */
Test(birth, rank_0_on_another_host_than_slurms_first)
{
    static const char by_srun[] =
        "export SHUNT_PORT=$((MASTER_PORT + 1)) SLURM_PROCID=$RANK "
        "SLURM_STEP_NUM_TASKS=$WORLD_SIZE SLURM_JOB_ID=9 SLURM_STEP_ID=0 "
        "SLURM_STEP_NUM_NODES=3 SLURM_STEP_NODELIST=127.0.0.[1-3]; "
        "case $RANK in "
        "0) export SLURM_NODEID=2 SLURM_GTIDS=0;; "
        "1|3) export SLURM_NODEID=1 SLURM_GTIDS=1,3;; "
        "*) export SLURM_NODEID=0 SLURM_GTIDS=2,4;; esac; "
        "unset RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT";

    MISTAKE(5, by_srun, "5", "rank 0 is not on 127.0.0.1, the first host of");
    MISTAKE(5, by_srun, "5", "set SHUNT_HOST to an address of rank 0's host");
}

/* One rank has a smaller or a larger size than the others. Ranks may then
 * connect to different places. */
Test(birth, another_size)
{
    MISTAKE(4, "[ $RANK != 0 ] || export WORLD_SIZE=2", "2", "there are");
    MISTAKE(4, "[ $RANK != 0 ] || export WORLD_SIZE=5", "2", "there are");
    MISTAKE(4, "[ $RANK != 1 ] || export WORLD_SIZE=5", "2", "there are");
    MISTAKE(4, FAR "[ $RANK != 1 ] || export WORLD_SIZE=3", "2", "there are");
}

Test(birth, a_rank_that_ended_before_another_came)
{
    /* Rank 1 fails while it joins. Rank 2 joins after rank 0 has noticed
     * that. */
    MISTAKE(3,
            "[ $RANK != 1 ] || export WORLD_SIZE=7; [ $RANK != 2 ] || sleep 1",
            "2", "there are");
}

/* Another program listens on the port until rank 0 ends. Rank 0 starts when
 * rank 1 has given up. */
Test(birth, the_port_is_in_use)
{
    MISTAKE(2,
            FAR "[ $RANK != 0 ] || { f=$(mktemp); python3 -c \"\n"
                "import socket\n"
                "s = socket.create_server(('127.0.0.1', $SHUNT_PORT))\n"
                "s.settimeout(1.5)\n"
                "visits = 0\n"
                "while True:\n"
                "    try:\n"
                "        visitor = s.accept()[0]\n"
                "        visits += 1\n"
                "        visitor.send(b'hello')\n"
                "    except TimeoutError:\n"
                "        print('met' if visits else '', end='', flush=True)\n"
                "    except OSError:\n"
                "        pass\n" /* the visitor has left */
                "\" > $f & "
                "while [ ! -s $f ]; do sleep 0.1; done; rm $f; }",
            "6", "set SHUNT_PORT to a free", "what listens there is not Shunt");
}

/* --- other users ---------------------------------------------------------------- */

/* A process that has changed its user cannot be traced, so the leak sanitizer
 * cannot check it. */
#define UNTRACED "export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0; "

/* One rank is another user. There is no secret, so the kernel tells the ranks
 * whose socket it is. */
#define OTHER(rank)                                           \
    UNTRACED "unset SHUNT_SECRET; [ $RANK != " #rank " ] || " \
             "export OTHER_USER=65534; export SHUNT_TIMEOUT=1"

Test(birth, another_user_does_not_join)
{
    if (geteuid())
        cr_skip_test("only root can be another user");
    MISTAKE(2, OTHER(1), "5", "rank 1 did not join", "another user");
    MISTAKE(2, FAR OTHER(1), "5", "rank 1 did not join", "another user");
}

Test(birth, another_user_is_not_rank_0)
{
    if (geteuid())
        cr_skip_test("only root can be another user");
    MISTAKE(2, OTHER(0), "5", "rank 1 did not join", "another user");
    MISTAKE(2, FAR OTHER(0), "5", "rank 1 did not join", "another user");
}

/* A user with the secret may join. But if that user's shared memory is refused,
 * ranks must not use the network instead. */
Test(birth, another_user_is_not_reached_over_the_network)
{
    if (geteuid())
        cr_skip_test("only root can be another user");
    MISTAKE(2, UNTRACED FAR "[ $RANK != 1 ] || export OTHER_USER=65534", "5",
            "another user");
}

/* Returns the number of lines in all ranks' stderr that contain `text`. */
static int said(const char *what, const char *text)
{
    struct harness_job job = {.program = "/bin/sh", .ranks = 3};
    char script[512];
    struct harness *h;
    int n = 0;

    snprintf(script, sizeof(script), "%s; exec %s/rank_birth joins", what,
             getenv("SHUNT_TEST_BIN"));
    job.args[0] = "-c";
    job.args[1] = script;
    h = harness_start(&job);
    cr_assert(harness_wait(h), "%s", harness_story(h));
    for (int r = 0; r < job.ranks; r++)
        for (const char *at = harness_rank(h, r)->err; (at = strstr(at, text));
             at++)
            n++;
    harness_finish(h);
    return n;
}

Test(birth, a_public_secret_is_warned_of_once)
{
    static const char warning[] = "SHUNT_SECRET is not set";

    cr_expect_eq(said(FAR "unset SHUNT_SECRET", warning), 1);
    cr_expect_eq(said("unset SHUNT_SECRET", warning), 0, "by unix socket");
    cr_expect_eq(said(FAR "true", warning), 0, "with a secret");
    cr_expect_eq(said(FAR "unset SHUNT_SECRET; export SHUNT_LOG=off", warning),
                 0);
}

/* --- a rank that is silent --------------------------------------------------------- */

Test(birth, a_silent_root_is_blamed)
{
    harness_check(&(struct harness_job){
        .program = "rank_birth",
        .args = {"silent_root"},
        .ranks = 3,
        .env = {"SHUNT_TIMEOUT=2"},
    });
}

/* A rank of a split is lost, or stops, when all others have connected to it.
 * Each rank's error must name it by its number in the old communicator, which
 * ends. */
static void lose_inside(const char *how)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = PROGRAM,
        .args = {"lost_inside", how},
        .ranks = 4,
        .env = {"SHUNT_TIMEOUT=3"},
    });

    for (int r = 0; r < 4; r++)
        if (r != 1) {
            cr_assert(harness_await_end(h, r), "%s", harness_story(h));
            cr_expect(harness_rank(h, r)->exit_code == 0, "rank %d: %s", r,
                      harness_story(h));
        }
    harness_signal(h, 1, SIGKILL);
    harness_wait(h);
    harness_finish(h);
}

Test(birth, a_rank_that_dies_inside_is_named)
{
    lose_inside("kill");
}

Test(birth, a_rank_that_stops_inside_is_named)
{
    lose_inside("stop");
}

/* --- limits of the system ------------------------------------------------- */

Test(birth, limits_are_named)
{
    MISTAKE(2, "ulimit -f 0", "5", "raise `ulimit -f`");
    MISTAKE(2, "ulimit -n 10", "5", "raise `ulimit -n`");
    MISTAKE(2, "ulimit -n 12", "5", "raise `ulimit -n`");
    MISTAKE(2, "ulimit -n 14", "5", "raise `ulimit -n`");
    MISTAKE(2, "export NO_SYSTEM_CALL=memfd", "5", "seccomp");
    MISTAKE(2, "export NO_SYSTEM_CALL=eventfd", "5", "seccomp");
    MISTAKE(3, "export NO_SYSTEM_CALL=getrandom", "5", "no random numbers");
    MISTAKE(3, "export NO_SYSTEM_CALL=accept4", "5", "seccomp");
    MISTAKE(3, "export NO_SYSTEM_CALL=getsockopt", "5", "getsockopt");
    MISTAKE(3, "[ $RANK != 0 ] || export NO_SYSTEM_CALL=getsockopt", "5",
            "getsockopt");
    MISTAKE(3, "[ $RANK != 1 ] || export NO_SYSTEM_CALL=getsockopt", "5",
            "getsockopt");
    MISTAKE(3,
            "export SHUNT_TRANSPORTS=fault+tcp SHUNT_FAULT=apart,rank=1,peer=2",
            "5", "no transport reaches rank 2");
    MISTAKE(8, "export SHUNT_TRANSPORTS=tcp; ulimit -n 16", "5",
            "raise `ulimit -n`");
    if (have_ucx())
        MISTAKE(8, "export SHUNT_TRANSPORTS=ucx; ulimit -n 40", "5",
                "raise `ulimit -n` to");
}

/* The rank can open only the descriptors that comm_create_env() needs first.
 * The second way is for Linux before 5.9, which has no close_range(). */
Test(birth, a_rank_without_descriptors_tells_the_others)
{
    MISTAKE(3, "[ $RANK != 1 ] || ulimit -n 4", "2", "raise `ulimit -n`");
    MISTAKE(3,
            "[ $RANK != 1 ] || { ulimit -n 4; "
            "export NO_SYSTEM_CALL=close_range; }",
            "2", "raise `ulimit -n`");
}

/* The root's process must not end before it has sent the error to all ranks,
 * even if its thread does that late. */
Test(birth, all_ranks_learn_it_before_the_root_ends)
{
    MISTAKE(6, "export SLOW_ROOT=1 NO_SYSTEM_CALL=eventfd", "5", "seccomp");
}

/* A rank that gives up may have ended before the root writes to it again. The
 * root must still read the reason that the rank sent. */
Test(birth, the_reason_of_a_rank_that_ended_is_read)
{
    MISTAKE(3,
            "export SLOW_ROOT=1; "
            "[ $RANK != 1 ] || export NO_SYSTEM_CALL=getsockopt",
            "5", "getsockopt");
}

Test(birth, few_things_are_enough)
{
    cr_expect_eq(said("ulimit -n 24", "rank"), 0);
    cr_expect_eq(said("ulimit -s 64", "rank"), 0);
}
