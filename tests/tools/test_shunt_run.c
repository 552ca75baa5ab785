// SPDX-License-Identifier: Apache-2.0
/* shunt-run: its exit statuses, complete lines of output, and no process left
 * behind. */

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/harness.h"

TestSuite(shunt_run, .timeout = 60);

/* Starts shunt-run with these arguments (at most 20), under the harness. */
#define RUN(...) start((const char *[]){__VA_ARGS__, NULL})

static struct harness *start(const char **args)
{
    struct harness_job job = {
        .program = getenv("SHUNT_RUN"),
        .timeout_s = 40,
        .no_launch = true,
    };

    cr_assert(job.program, "SHUNT_RUN is not set");
    for (int i = 0; args[i]; i++)
        job.args[i] = args[i];
    return harness_start(&job);
}

static void expect_exit(struct harness *h, int exit_code)
{
    harness_wait(h);
    cr_assert_eq(harness_rank(h, 0)->exit_code, exit_code, "%s",
                 harness_story(h));
}

static const char *out(struct harness *h)
{
    return harness_rank(h, 0)->out;
}

static const char *err(struct harness *h)
{
    return harness_rank(h, 0)->err;
}

static int lines(const char *text)
{
    int n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

/* Returns the number of processes whose command line contains `text`. */
static int processes_with(const char *text)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    int n = 0;

    cr_assert(proc);
    while ((entry = readdir(proc))) {
        char path[64];
        char line[4096];
        size_t length;
        FILE *file;

        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof(path), "/proc/%.20s/cmdline", entry->d_name);
        file = fopen(path, "r");
        if (!file)
            continue;
        length = fread(line, 1, sizeof(line) - 1, file);
        fclose(file);
        for (size_t i = 0; i < length; i++)
            if (line[i] == '\0')
                line[i] = ' ';
        line[length] = '\0';
        n += strstr(line, text) != NULL;
    }
    closedir(proc);
    return n;
}

/* Returns a number of seconds that no other process has in its command line. */
static const char *unique_seconds(void)
{
    static char text[32];

    snprintf(text, sizeof(text), "9999.%d", (int)getpid());
    return text;
}

Test(shunt_run, success)
{
    struct harness *h = RUN("-n", "3", "true");

    expect_exit(h, 0);
    cr_assert_str_empty(out(h));
    cr_assert_str_empty(err(h));
    harness_finish(h);
}

/* shunt-run accepts -np, as other launchers do. The command may have an option
 * -np, too. */
Test(shunt_run, np)
{
    struct harness *h = RUN("--no-prefix", "-np", "3", "echo", "-np", "7");

    expect_exit(h, 0);
    cr_assert_str_eq(out(h), "-np 7\n-np 7\n-np 7\n");
    harness_finish(h);
}

Test(shunt_run, environment)
{
    struct harness *h =
        RUN("-n", "2", "--env", "COLOUR=red green", "sh", "-c",
            "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR "
            "$COLOUR; test $MASTER_PORT -gt 0 && "
            "echo ${#SHUNT_SECRET}");

    expect_exit(h, 0);
    cr_assert(strstr(out(h), "[0] 0 0 2 2 127.0.0.1 red green\n"), "%s",
              out(h));
    cr_assert(strstr(out(h), "[1] 1 1 2 2 127.0.0.1 red green\n"), "%s",
              out(h));
    cr_assert(strstr(out(h), "[1] 64\n"), "%s", out(h));
    harness_finish(h);
}

Test(shunt_run, secrets_differ)
{
    struct harness *a = RUN("sh", "-c", "echo $SHUNT_SECRET");
    struct harness *b = RUN("sh", "-c", "echo $SHUNT_SECRET");

    expect_exit(a, 0);
    expect_exit(b, 0);
    cr_assert_str_neq(out(a), out(b));
    harness_finish(a);
    harness_finish(b);
}

Test(shunt_run, one_rank_is_left_alone)
{
    struct harness *h = RUN("printf", "a\\nb");

    expect_exit(h, 0);
    cr_assert_str_eq(out(h), "a\nb");
    harness_finish(h);
}

Test(shunt_run, lines_stay_whole)
{
    /* Four ranks write 2000 lines each, in pieces. */
    struct harness *h =
        RUN("-n", "4", "sh", "-c",
            "i=0; while [ $i -lt 2000 ]; do printf 'line '; printf '%s' \"$i "
            "of \"; echo $RANK; i=$((i+1)); done; printf 'no end'");
    int seen[4] = {0};
    int ends = 0;
    char *save = NULL;

    expect_exit(h, 0);
    for (char *line = strtok_r(harness_rank(h, 0)->out, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        int rank, number, of, used = 0;

        if (sscanf(line, "[%d] line %d of %d%n", &rank, &number, &of, &used) ==
            3) {
            cr_assert_eq(line[used], '\0', "%s", line);
            cr_assert(rank == of && rank >= 0 && rank < 4, "%s", line);
            cr_assert_eq(number, seen[rank]++, "%s", line);
        } else {
            cr_assert_str_eq(line + 3, " no end");
            ends++;
        }
    }
    cr_assert_eq(ends, 4);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(seen[i], 2000);
    harness_finish(h);
}

Test(shunt_run, very_long_line)
{
    struct harness *h =
        RUN("-n", "2", "sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x");
    size_t count = 0;

    expect_exit(h, 0);
    for (const char *c = out(h); *c; c++)
        count += *c == 'x';
    cr_assert_eq(count, 600000);
    harness_finish(h);
}

Test(shunt_run, carriage_returns)
{
    struct harness *h =
        RUN("-n", "2", "sh", "-c", "printf '\\rstep 1\\rstep 2\\ndone\\r\\n'");

    expect_exit(h, 0);
    cr_assert(strstr(out(h), "[1] step 1\r"), "%s", out(h));
    cr_assert(strstr(out(h), "[1] step 2\n"), "%s", out(h));
    cr_assert(strstr(out(h), "[1] done\r\n"), "%s", out(h));
    harness_finish(h);
}

Test(shunt_run, streams_and_tag)
{
    struct harness *h = RUN("-n", "2", "--tag", "job", "sh", "-c",
                            "echo to out; echo to err >&2");

    expect_exit(h, 0);
    cr_assert(strstr(out(h), "[job 1] to out\n"), "%s", out(h));
    cr_assert(strstr(err(h), "[job 0] to err\n"), "%s", err(h));
    cr_assert_eq(lines(out(h)), 2);
    cr_assert_eq(lines(err(h)), 2);
    harness_finish(h);
}

Test(shunt_run, raw)
{
    struct harness *h = RUN("-n", "2", "--raw", "echo", "x");

    expect_exit(h, 0);
    cr_assert_str_eq(out(h), "x\nx\n");
    harness_finish(h);
}

Test(shunt_run, status_of_the_one_that_failed)
{
    struct harness *h =
        RUN("-n", "4", "sh", "-c", "test $RANK != 2 || exit 41");

    expect_exit(h, 41);
    cr_assert(strstr(err(h), "rank 2 failed with exit status 41"), "%s",
              err(h));
    harness_finish(h);
}

Test(shunt_run, status_of_the_first_to_fail)
{
    /* Rank 0 fails when it notices that rank 1 has ended. */
    char folder[] = "/tmp/shunt-run-test-XXXXXX";
    char script[512];
    char command[128];
    struct harness *h;

    cr_assert(mkdtemp(folder));
    snprintf(script, sizeof(script),
             "cd %s; if [ $RANK = 1 ]; then echo $$ > tmp; mv tmp pid; "
             "kill -SEGV $$; fi; until [ -f pid ]; do sleep 0.02; done; "
             "while kill -0 $(cat pid) 2>/dev/null; do sleep 0.02; done; "
             "exit 5",
             folder);
    h = RUN("-n", "2", "--grace", "30", "sh", "-c", script);
    expect_exit(h, 128 + SIGSEGV);
    cr_assert(strstr(err(h), "rank 1 was killed by signal 11"), "%s", err(h));
    cr_assert(strstr(err(h), "rank 0 failed with exit status 5"), "%s", err(h));
    harness_finish(h);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

Test(shunt_run, survivors_may_speak)
{
    /* The other ranks notice the loss and report it. No SIGTERM may end them
     * before. */
    struct harness *h = RUN("-n", "3", "--grace", "20", "sh", "-c",
                            "if [ $RANK = 1 ]; then kill -9 $$; fi; "
                            "trap 'echo cut off; exit 1' TERM; sleep 0.3; "
                            "echo rank 1 is lost >&2; exit 1");

    expect_exit(h, 128 + SIGKILL);
    cr_assert(strstr(err(h), "[0] rank 1 is lost"), "%s", err(h));
    cr_assert(strstr(err(h), "[2] rank 1 is lost"), "%s", err(h));
    cr_assert_not(strstr(out(h), "cut off"), "%s", out(h));
    cr_assert_lt(harness_clock(h), 15);
    harness_finish(h);
}

Test(shunt_run, survivors_are_stopped)
{
    const char *seconds = unique_seconds();
    char script[256];
    struct harness *h;

    snprintf(script, sizeof(script),
             "if [ $RANK = 0 ]; then exit 7; fi; trap '' TERM; sleep %s",
             seconds);
    h = RUN("-n", "3", "--grace", "0.2", "sh", "-c", script);
    expect_exit(h, 7);
    cr_assert_lt(harness_clock(h), 15);
    cr_assert_eq(processes_with(seconds), 0);
    harness_finish(h);
}

Test(shunt_run, keep_going)
{
    struct harness *h =
        RUN("-n", "3", "--keep-going", "--grace", "0", "sh", "-c",
            "test $RANK = 0 && exit 9; sleep 0.5; "
            "echo still here");

    expect_exit(h, 9);
    cr_assert(strstr(out(h), "[1] still here"), "%s", out(h));
    cr_assert(strstr(out(h), "[2] still here"), "%s", out(h));
    harness_finish(h);
}

Test(shunt_run, timeout)
{
    const char *seconds = unique_seconds();
    struct harness *h = RUN("-n", "2", "--timeout", "0.3", "sleep", seconds);

    expect_exit(h, 124);
    cr_assert(strstr(err(h), "not finished after 0.3 s"), "%s", err(h));
    cr_assert_eq(processes_with(seconds), 0);
    harness_finish(h);
}

/* shunt-run must not wait for daemons that ranks leave, but must end them. */
Test(shunt_run, no_orphans)
{
    const char *seconds = unique_seconds();
    char script[256];
    struct harness *h;

    snprintf(script, sizeof(script),
             "setsid sleep %s & sleep %s & echo started", seconds, seconds);
    h = RUN("-n", "2", "sh", "-c", script);
    expect_exit(h, 0);
    cr_assert_eq(lines(out(h)), 2, "%s", out(h));
    cr_assert_lt(harness_clock(h), 15);
    cr_assert_eq(processes_with(seconds), 0);
    harness_finish(h);
}

static void interrupted(int signo)
{
    const char *seconds = unique_seconds();
    char script[256];
    struct harness *h;

    snprintf(script, sizeof(script), "echo ready; exec sleep %s", seconds);
    h = RUN("-n", "3", "sh", "-c", script);
    for (int i = 0; i < 3; i++) {
        char ready[32];

        snprintf(ready, sizeof(ready), "[%d] ready", i);
        cr_assert(harness_await(h, 0, ready), "%s", harness_story(h));
    }
    kill(harness_rank(h, 0)->pid, signo);
    if (signo == SIGKILL) {
        harness_wait(h);
        cr_assert_eq(harness_rank(h, 0)->signal, SIGKILL);
    } else {
        expect_exit(h, 128 + signo);
    }
    /* After SIGKILL the kernel may remove the process a moment later. */
    for (int i = 0; processes_with(seconds) > 0; i++) {
        cr_assert_lt(i, 500, "ranks outlive their launcher");
        usleep(10000);
    }
    harness_finish(h);
}

Test(shunt_run, ctrl_c)
{
    interrupted(SIGINT);
}

Test(shunt_run, terminated)
{
    interrupted(SIGTERM);
}

Test(shunt_run, killed)
{
    interrupted(SIGKILL);
}

/* A rank that cleans up after the signal must get the time to do so. */
Test(shunt_run, signal_is_forwarded)
{
    struct harness *h = RUN("-n", "2", "sh", "-c",
                            "trap 'echo saving; exit 0' INT; echo ready; "
                            "while :; do sleep 0.05; done");

    cr_assert(harness_await(h, 0, "[0] ready"), "%s", harness_story(h));
    cr_assert(harness_await(h, 0, "[1] ready"), "%s", harness_story(h));
    kill(harness_rank(h, 0)->pid, SIGINT);
    expect_exit(h, 128 + SIGINT);
    cr_assert(strstr(out(h), "[0] saving\n"), "%s", out(h));
    cr_assert(strstr(out(h), "[1] saving\n"), "%s", out(h));
    harness_finish(h);
}

/* The reader of the output closes the pipe, as in `shunt-run ... | head`. */
Test(shunt_run, reader_is_gone)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "/bin/sh",
        .args = {"-c", "{ $SHUNT_RUN -n 2 yes; echo status $? >&2; } | "
                       "head -n 1"},
        .timeout_s = 40,
    });

    cr_assert(harness_wait(h), "%s", harness_story(h));
    /* the line of the first rank, whichever it is */
    cr_assert(!strcmp(out(h), "[0] y\n") || !strcmp(out(h), "[1] y\n"), "%s",
              out(h));
    /* shunt-run must end as if by SIGPIPE, without an error text. */
    cr_assert_str_eq(err(h), "status 141\n");
    harness_finish(h);
}

/* A reader that reads late must get all output, even that of a job that
 * fails. */
Test(shunt_run, reader_is_slow)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "/bin/sh",
        .args = {"-c", "{ $SHUNT_RUN -n 2 sh -c 'seq 1 30000; exit 3'; "
                       "echo status $? >&2; } | { sleep 1; wc -l; }"},
        .timeout_s = 40,
    });

    cr_assert(harness_wait(h), "%s", harness_story(h));
    cr_assert_str_eq(out(h), "60000\n");
    cr_assert(strstr(err(h), "status 3\n"), "%s", err(h));
    harness_finish(h);
}

Test(shunt_run, command_not_found)
{
    struct harness *h = RUN("-n", "4", "/nonesuch/program");

    expect_exit(h, 127);
    cr_assert_eq(lines(err(h)), 1, "said once: %s", err(h));
    cr_assert(strstr(err(h), "/nonesuch/program: No such file"), "%s", err(h));
    harness_finish(h);
}

Test(shunt_run, command_cannot_run)
{
    struct harness *h = RUN("-n", "2", "/etc/passwd");

    expect_exit(h, 126);
    harness_finish(h);
}

/* Only rank 0 has shunt-run's stdin, which is a shell here, so no other rank
 * can be started. shunt-run then kills rank 0, and must not report that. */
Test(shunt_run, rank_cannot_start)
{
    const char *seconds = unique_seconds();
    char script[256];
    struct harness *h;

    snprintf(script, sizeof(script),
             "exec $SHUNT_RUN -n 3 /dev/stdin -c 'exec sleep %s' < /bin/sh",
             seconds);
    h = harness_start(&(struct harness_job){
        .program = "/bin/sh",
        .args = {"-c", script},
        .timeout_s = 40,
    });
    expect_exit(h, 126);
    cr_assert_eq(lines(err(h)), 1, "%s", err(h));
    cr_assert(strstr(err(h), "cannot run /dev/stdin"), "%s", err(h));
    cr_assert_eq(processes_with(seconds), 0);
    harness_finish(h);
}

Test(shunt_run, wrong_usage)
{
    static const char *const bad[][4] = {
        {"-n", "0", "true"},         {"-n", "two", "true"},
        {"-n", "3x", "true"},        {"--bind", "moon", "true"},
        {"--timeout", "-1", "true"}, {"--env", "novalue", "true"},
        {"--nonesuch", "true"},      {"-n", "2"},
        {"--env", "=text", "true"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct harness *h =
            start((const char *[]){bad[i][0], bad[i][1], bad[i][2], NULL});

        expect_exit(h, 2);
        cr_assert(strstr(err(h), "--help"), "row %zu: %s", i, err(h));
        harness_finish(h);
    }
}

Test(shunt_run, options_end_at_the_command)
{
    struct harness *h = RUN("-n", "1", "echo", "-n", "x", "--raw");

    expect_exit(h, 0);
    cr_assert_str_eq(out(h), "x --raw");
    harness_finish(h);
}

Test(shunt_run, binds_to_cores)
{
    struct harness *h =
        RUN("-n", "4", "--bind", "core", "sh", "-c",
            "grep Cpus_allowed_list /proc/self/status | cut -f 2");
    int cpus[CPU_SETSIZE], count = 0;
    cpu_set_t ours;

    expect_exit(h, 0);
    cr_assert_eq(sched_getaffinity(0, sizeof(ours), &ours), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &ours))
            cpus[count++] = cpu;
    /* Each rank has one core, so a plain number is printed. The ranks use the
     * CPUs in turn. */
    cr_assert_eq(lines(out(h)), 4, "%s", out(h));
    for (int r = 0; r < 4; r++) {
        char line[32];

        snprintf(line, sizeof(line), "[%d] %d\n", r, cpus[r % count]);
        cr_assert(strstr(out(h), line), "no '%s' in '%s'", line, out(h));
    }
    harness_finish(h);
}

/* Rank 0 has the terminal itself. The output of the other ranks goes through
 * shunt-run. */
Test(shunt_run, live)
{
    char text[4096] = "";
    size_t length = 0;
    ssize_t n;
    int master;
    pid_t pid = forkpty(&master, NULL, NULL, NULL);

    if (pid < 0)
        cr_skip_test("no pseudo terminals here: %s", strerror(errno));
    if (pid == 0) {
        execl(getenv("SHUNT_RUN"), "shunt-run", "-n", "2", "--live", "sh", "-c",
              "if [ -t 1 ]; then echo $RANK terminal; else echo $RANK pipe; fi",
              (char *)NULL);
        _exit(127);
    }
    while (length < sizeof(text) - 1 &&
           (n = read(master, text + length, sizeof(text) - 1 - length)) > 0)
        length += (size_t)n;
    text[length] = '\0';
    close(master);
    cr_assert(strstr(text, "0 terminal\r\n"), "%s", text);
    cr_assert(strstr(text, "[1] 1 pipe\r\n"), "%s", text);
    cr_assert_not(strstr(text, "[0]"), "%s", text);
}

/* Launchers that run at the same time must not choose the same ports. */
Test(shunt_run, ports_are_reserved)
{
    enum { JOBS = 20 };
    struct harness *jobs[JOBS];
    int ports[JOBS];

    for (int i = 0; i < JOBS; i++)
        jobs[i] = RUN("-n", "1", "sh", "-c",
                      "echo $MASTER_PORT; echo ready; "
                      "exec sleep 1000");
    for (int i = 0; i < JOBS; i++) {
        cr_assert(harness_await(jobs[i], 0, "ready"), "%s",
                  harness_story(jobs[i]));
        cr_assert_eq(sscanf(out(jobs[i]), "%d", &ports[i]), 1);
    }
    /* The next port belongs to the job, too. */
    for (int i = 0; i < JOBS; i++)
        for (int k = 0; k < i; k++)
            cr_assert_gt(abs(ports[i] - ports[k]), 1);
    for (int i = 0; i < JOBS; i++)
        harness_finish(jobs[i]);
}

Test(shunt_run, help_and_version)
{
    struct harness *h = RUN("--help");

    expect_exit(h, 0);
    cr_assert(strstr(out(h), "usage: shunt-run"));
    harness_finish(h);
    h = RUN("--version");
    expect_exit(h, 0);
    cr_assert(strstr(out(h), "shunt-run "));
    harness_finish(h);
}
