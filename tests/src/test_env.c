// SPDX-License-Identifier: Apache-2.0
/* Variables, log and error texts. */

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "src/base/env.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/kernels/cpu.h"
#include "src/trace/trace.h"
#include "tests/harness/harness.h"

TestSuite(env, .timeout = 30);
TestSuite(log, .timeout = 30);
TestSuite(error, .timeout = 30);

static char path[] = "/tmp/shunt-test-log-XXXXXX";
static char text[65536];

/* Makes messages go to a file from now on. */
static void log_to_file(const char *levels)
{
    close(mkstemp(path));
    setenv("SHUNT_LOG", levels, 1);
    setenv("SHUNT_LOG_FILE", path, 1);
    shunti_log_reset();
}

static const char *logged(void)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof(text) - 1);

    close(fd);
    unlink(path);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* -- variables ----------------------------------------------------------------
 */

Test(env, sizes)
{
    static const struct {
        const char *text;
        size_t bytes;
    } good[] = {{"0", 0},           {"17", 17},       {"64k", 65536},
                {"64K", 65536},     {"64KiB", 65536}, {"2m", 2097152},
                {"1g", 1073741824}, {"12b", 12}};
    static const char *const bad[] = {
        "",    "k",    "-1",   " 1",           "1 k",
        "1kk", "0x10", "1.5k", "99999999999g", "99999999999999999999",
        "1e3"};
    size_t bytes;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        cr_assert(shunti_parse_size(good[i].text, &bytes), "%s", good[i].text);
        cr_assert_eq(bytes, good[i].bytes, "%s", good[i].text);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_assert(!shunti_parse_size(bad[i], &bytes), "%s", bad[i]);
}

Test(env, getters_take_values_and_defaults)
{
    unsetenv("SHUNT_EAGER");
    unsetenv("SHUNT_TIMEOUT");
    unsetenv("SHUNT_PROGRESS");
    cr_assert_eq(shunti_env_size("SHUNT_EAGER"), SHUNTI_ENV_AUTO);
    cr_assert_eq(shunti_env_number("SHUNT_TIMEOUT"), 120);
    cr_assert_str_eq(shunti_env_choice("SHUNT_PROGRESS"), "auto");
    cr_assert_null(shunti_env_string("SHUNT_NODE"));
    cr_assert_lt(shunti_env_number("SHUNT_SPIN"), 0);

    setenv("SHUNT_EAGER", "4k", 1);
    setenv("SHUNT_TIMEOUT", "2.5", 1);
    setenv("SHUNT_PROGRESS", "thread", 1);
    setenv("SHUNT_NODE", "", 1); /* empty is the same as unset */
    cr_assert_eq(shunti_env_size("SHUNT_EAGER"), 4096);
    cr_assert_eq(shunti_env_number("SHUNT_TIMEOUT"), 2.5);
    cr_assert_str_eq(shunti_env_choice("SHUNT_PROGRESS"), "thread");
    cr_assert_null(shunti_env_string("SHUNT_NODE"));
    cr_assert(!shunti_env_is_set("SHUNT_NODE"));
}

Test(env, nonsense_counts_as_the_default)
{
    log_to_file("warn");
    setenv("SHUNT_EAGER", "lots", 1);
    setenv("SHUNT_TIMEOUT", "-3", 1);
    setenv("SHUNT_PROGRESS", "threads", 1);
    cr_assert_eq(shunti_env_size("SHUNT_EAGER"), SHUNTI_ENV_AUTO);
    cr_assert_eq(shunti_env_number("SHUNT_TIMEOUT"), 120);
    cr_assert_str_eq(shunti_env_choice("SHUNT_PROGRESS"), "auto");
    /* 0 is refused: it would end every wait at once */
    setenv("SHUNT_TIMEOUT", "0", 1);
    cr_assert_eq(shunti_env_number("SHUNT_TIMEOUT"), 120);
    setenv("SHUNT_TIMEOUT", "auto", 1);
    cr_assert_eq(shunti_env_number("SHUNT_TIMEOUT"), 120);
    cr_assert_str_empty(logged()); /* mistakes are in the report only */
}

Test(env, one_word_or_two)
{
    const struct shunti_env_row *row = shunti_env_row_of("SHUNT_MOE_MODE");
    static const char *const good[] = {"flat", "two-level,flat", "Auto,FLAT"};
    static const char *const bad[] = {
        "fast", "flat,", ",flat", "flat,fast", "flat,flat,flat", "flat flat"};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        cr_assert(shunti_env_valid(row, good[i]), "%s", good[i]);
        setenv("SHUNT_MOE_MODE", good[i], 1);
        cr_assert_str_eq(shunti_env_pair("SHUNT_MOE_MODE"), good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cr_assert(!shunti_env_valid(row, bad[i]), "%s", bad[i]);
        setenv("SHUNT_MOE_MODE", bad[i], 1);
        cr_assert_str_eq(shunti_env_pair("SHUNT_MOE_MODE"), "auto");
    }
}

/* "inf", and numbers that are as good as infinite, become a finite number that
 * can be computed with. */
Test(env, seconds_without_end)
{
    static const char *const endless[] = {"inf", "INF", "20000000000",
                                          "99999999999999999999"};

    for (size_t i = 0; i < sizeof(endless) / sizeof(*endless); i++) {
        setenv("SHUNT_TIMEOUT", endless[i], 1);
        cr_assert_eq(shunti_env_number("SHUNT_TIMEOUT"), SHUNTI_NEVER_SECONDS,
                     "%s", endless[i]);
    }
    cr_assert_eq(shunti_ns(INFINITY), 1000000000000000000u);
    cr_assert_eq(shunti_ns(2e10), 1000000000000000000u);
    cr_assert_eq(shunti_ns(2.5), 2500000000u);
    cr_assert_eq(shunti_ns(-1), 0u);
    cr_assert_eq(shunti_ns(NAN), 0u);
}

/* Log with the levels that hold if SHUNT_LOG is unset. */
static void log_by_default(void)
{
    log_to_file("off");
    unsetenv("SHUNT_LOG");
    shunti_log_reset();
}

static size_t lines_of(const char *all)
{
    size_t n = 0;

    for (; *all; all++)
        n += *all == '\n';
    return n;
}

Test(env, mistakes_are_reported_once)
{
    log_by_default();
    setenv("SHUNT_EAGER", "lots", 1);
    setenv("SHUNT_PROGRESS", "threads", 1);
    setenv("SHUNT_TIMOEUT", "3", 1);
    setenv("SHUNT_SECRT", "swordfish", 1);
    setenv("SHUNT_CHUNKS", "", 1); /* empty is the same as unset */
    /* upper and lower case are the same */
    setenv("SHUNT_MOE_MODE", "Two-Level", 1);
    /* variables of tests are ignored */
    setenv("SHUNT_TEST_ANYTHING", "1", 1);
    shunti_env_report();
    shunti_env_report();
    logged();
    cr_assert_eq(lines_of(text), 4, "%s", text);
    cr_assert(strstr(text, "SHUNT_EAGER='lots' is not valid: it takes bytes"),
              "%s", text);
    cr_assert(strstr(text, "caller|thread|auto; using auto"), "%s", text);
    cr_assert(strstr(text, "SHUNT_TIMOEUT is set, but"), "%s", text);
    cr_assert(strstr(text, "nearest name is SHUNT_TIMEOUT "), "%s", text);
    cr_assert(strstr(text, "nearest name is SHUNT_SECRET "), "%s", text);
    cr_assert(!strstr(text, "swordfish"), "%s", text);
}

/* The ranks create several communicators. The report must be one line, by rank
 * 0. */
static void expect_one_line(int ranks, int threads)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_comm",
        .args = {"split_by_parity"},
        .env = {"SHUNT_SPINN=3", "SHUNT_LOG", "SHUNT_LOG_FILE"},
        .ranks = ranks,
        .threads = threads,
    });
    int lines = 0;

    cr_assert(harness_wait(h), "%s", harness_story(h));
    for (int r = 0; r < ranks; r++)
        for (const char *at = harness_rank(h, r)->err;
             (at = strstr(at, "SHUNT_SPINN")); at++) {
            cr_assert_eq(r, 0);
            lines++;
        }
    cr_assert_eq(lines, 1, "%d lines", lines);
    cr_assert(strstr(harness_rank(h, 0)->err, "SHUNT_SPIN "), "%s",
              harness_rank(h, 0)->err);
    harness_finish(h);
}

Test(env, one_rank_of_a_job_reports)
{
    expect_one_line(4, 0);
    expect_one_line(1, 4);
}

static void expect_nearest(void *arg, const struct shunti_env_mistake *m)
{
    const char *const *names = arg;

    if (!strcmp(m->name, names[0]))
        cr_assert_str_eq(m->nearest, names[1]);
}

Test(env, nearest_names)
{
    static const char *const names[][2] = {
        {"SHUNT_TRANSPORT", "SHUNT_TRANSPORTS"},
        {"SHUNT_LOGFILE", "SHUNT_LOG_FILE"},
        {"SHUNT_EAGRE", "SHUNT_EAGER"},
        {"SHUNT_LOG_LEVEL", "SHUNT_LOG_FILE"},
        {"SHUNT_ALLREDUCE_DIRCT", "SHUNT_ALLREDUCE_DIRECT"},
        {"SHUNT_Timeout", "SHUNT_TIMEOUT"},
        {"SHUNT_PROT", "SHUNT_PORT"},
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        setenv(names[i][0], "1", 1);
        cr_assert_eq(shunti_env_mistakes(expect_nearest, (void *)names[i]), 1);
        unsetenv(names[i][0]);
    }
    cr_assert_eq(shunti_env_mistakes(expect_nearest, (void *)names[0]), 0);
}

Test(env, every_row_is_whole)
{
    const struct shunti_env_row *row;
    size_t i;

    for (i = 0; (row = shunti_env_row_at(i)); i++) {
        cr_assert(!strncmp(row->name, "SHUNT_", 6), "%s", row->name);
        cr_assert(row->help && strlen(row->help) > 20, "%s", row->name);
        cr_assert((row->type == SHUNTI_ENV_CHOICE ||
                   row->type == SHUNTI_ENV_PAIR) == (row->choices != NULL),
                  "%s", row->name);
        cr_assert(!row->fallback || shunti_env_valid(row, row->fallback),
                  "%s's default", row->name);
        for (size_t j = 0; j < i; j++)
            cr_assert_str_neq(row->name, shunti_env_row_at(j)->name);
    }
    cr_assert_gt(i, 10);
}

/* Rows that other folders declare must be there without a call of these
 * folders. All names that src/kernels/cpu.c knows must be valid values of its
 * row. */
Test(env, every_folder_declares_its_own)
{
    static const char *const names[] = {"SHUNT_ALGORITHM", "SHUNT_MOE_MODE",
                                        "SHUNT_MPI", "SHUNT_MPI_STATS"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        cr_assert(shunti_env_row_of(names[i]), "%s", names[i]);
    for (int isa = 0; isa < SHUNTI_ISA_COUNT; isa++)
        cr_assert(shunti_env_valid(shunti_env_row_of("SHUNT_KERNELS"),
                                   shunti_isa_name((enum shunti_isa)isa)));
}

Test(env, only_the_table_can_be_read)
{
    setenv("SHUNT_NO_SUCH_VARIABLE", "1", 1);
    cr_assert_null(shunti_env_raw("SHUNT_NO_SUCH_VARIABLE"));
    cr_assert_null(shunti_env_raw("HOME"));
}

/* -- log ----------------------------------------------------------------------
 */

static void one_of_each(const char *subsystem)
{
    shunti_error(subsystem, "%s-error", subsystem);
    shunti_warn(subsystem, "%s-warn", subsystem);
    shunti_info(subsystem, "%s-info", subsystem);
    shunti_debug(subsystem, "%s-debug", subsystem);
}

Test(log, levels_by_subsystem)
{
    log_to_file("info,shm=debug,bootstrap=error,plugin=off");
    one_of_each("core");
    one_of_each("shm");
    one_of_each("bootstrap");
    one_of_each("plugin");
    logged();
    cr_assert(strstr(text, "core-info") && !strstr(text, "core-debug"));
    cr_assert(strstr(text, "shm-debug"));
    cr_assert(strstr(text, "bootstrap-error") &&
              !strstr(text, "bootstrap-warn"));
    cr_assert(!strstr(text, "plugin-error"));
}

Test(log, warnings_by_default)
{
    log_by_default();
    one_of_each("core");
    logged();
    cr_assert(strstr(text, "core-error") && strstr(text, "core-warn"));
    cr_assert(!strstr(text, "core-info"));
}

Test(log, off_is_silent)
{
    log_to_file("off");
    one_of_each("core");
    cr_assert_str_empty(logged());
    cr_assert(!shunti_log_wanted(SHUNTI_LOG_ERROR, "core"));
}

Test(log, a_misspelt_level_is_reported)
{
    log_to_file("inof");
    shunti_env_report();
    one_of_each("core");
    logged();
    cr_assert(strstr(text, "SHUNT_LOG='inof' is not valid"), "%s", text);
    cr_assert(strstr(text, "core-warn") && !strstr(text, "core-info"));
}

Test(log, errno_and_lines)
{
    log_to_file("debug");
    shunti_log_set_rank(3);
    errno = ENOTTY;
    shunti_info("core", "two\nlines, %s", "one message");
    cr_assert_eq(errno, ENOTTY);
    logged();
    cr_assert(strstr(text, "rank 3 info core: two lines, one message\n"), "%s",
              text);
}

Test(log, file_names)
{
    char out[32];

    cr_assert(shunti_expand_path("a.%r.%%", 12, out, sizeof(out)));
    cr_assert_str_eq(out, "a.12.%");
    cr_assert(shunti_expand_path("a.%r", -1, out, sizeof(out)));
    cr_assert_str_eq(out, "a.x");
    cr_assert(!shunti_expand_path("a.%r.and.much.more.than.that.here", 1, out,
                                  sizeof(out)));
}

static void *chatter(void *arg)
{
    shunti_log_set_rank(*(int *)arg);
    for (int i = 0; i < 200; i++)
        shunti_info("core", "message %d of rank %d, the end", i, *(int *)arg);
    return NULL;
}

Test(log, threads_do_not_mix)
{
    int rank[4] = {0, 1, 2, 3}, lines = 0, whole = 0;
    pthread_t threads[4];
    FILE *f;

    log_to_file("info");
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, chatter, &rank[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    f = fopen(path, "r");
    while (fgets(text, sizeof(text), f)) {
        int says, of;
        const char *p = strstr(text, "rank ");

        lines++;
        whole += p &&
                 sscanf(p, "rank %d info core: message %*d of rank %d", &says,
                        &of) == 2 &&
                 says == of && strstr(text, "the end\n");
    }
    fclose(f);
    unlink(path);
    cr_assert_eq(lines, 800);
    cr_assert_eq(whole, 800);
}

/* -- errors -------------------------------------------------------------------
 */

Test(error, every_status_has_a_text)
{
    for (int i = -100; i <= 100; i++) {
        const char *s = shunt_strerror((enum shunt_status)i);

        cr_assert(s && *s);
        cr_assert_eq(!strcmp(s, "unknown status"),
                     i > SHUNT_IN_PROGRESS || i < SHUNT_ERR_BUSY, "%d", i);
    }
}

static void *fail_apart(void *arg)
{
    (void)arg;
    shunti_fail(NULL, SHUNT_ERR_INVALID, "of another thread");
    return NULL;
}

Test(error, texts_are_the_threads_own)
{
    pthread_t thread;

    cr_assert_str_eq(shunt_last_error(NULL), "no error");
    errno = ENOTTY;
    cr_assert_eq(shunti_fail(NULL, SHUNT_ERR_PEER, "rank %d", 3),
                 SHUNT_ERR_PEER);
    cr_assert_eq(errno, ENOTTY);
    pthread_create(&thread, NULL, fail_apart, NULL);
    pthread_join(thread, NULL);
    cr_assert_str_eq(shunt_last_error(NULL), "rank 3");
    shunti_fail(NULL, SHUNT_ERR_PEER, "birth: %s", shunt_last_error(NULL));
    cr_assert_str_eq(shunt_last_error(NULL), "birth: rank 3");
}
