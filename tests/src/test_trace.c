// SPDX-License-Identifier: Apache-2.0
/* Timelines are complete JSON, even of a rank that was killed. */

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/trace/trace.h"

static char folder[] = "/tmp/shunt-test-trace-XXXXXX";

static void set_up(void)
{
    char path[128];

    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/trace", folder);
    setenv("SHUNT_TRACE", path, 1);
    shunti_trace_reset();
}

static void tear_down(void)
{
    rmdir(folder);
}

TestSuite(trace, .timeout = 30, .init = set_up, .fini = tear_down);

/* Parses a timeline, and removes its file. */
static cJSON *parse(const char *name)
{
    char path[128], *text = NULL;
    size_t len = 0;
    cJSON *json;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    f = fopen(path, "r");
    cr_assert(f, "%s", path);
    if (getdelim(&text, &len, '\0', f) < 0)
        cr_assert_fail("%s is empty", path);
    fclose(f);
    unlink(path);
    json = cJSON_ParseWithOpts(text, NULL, true);
    cr_assert(json && cJSON_IsArray(json), "not JSON: %.500s", text);
    free(text);
    return json;
}

static int count(const cJSON *json, const char *phase)
{
    const cJSON *event;
    int n = 0;

    cJSON_ArrayForEach(event, json) n +=
        !strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, phase);
    return n;
}

/* Exactly one event names this thread `name`. */
static void expect_thread(const cJSON *json, const char *name)
{
    const cJSON *event, *args;
    int n = 0;

    cJSON_ArrayForEach(event, json)
    {
        if (strcmp(cJSON_GetObjectItem(event, "name")->valuestring,
                   "thread_name"))
            continue;
        args = cJSON_GetObjectItem(event, "args");
        cr_assert_str_eq(cJSON_GetObjectItem(args, "name")->valuestring, name);
        cr_assert_eq(cJSON_GetObjectItem(event, "tid")->valueint,
                     (int)syscall(SYS_gettid));
        n++;
    }
    cr_assert_eq(n, 1, "%d names", n);
}

Test(trace, events_of_all_kinds)
{
    const cJSON *event;
    cJSON *json;

    cr_assert(shunti_trace_enabled());
    /* this span is dropped */
    shunti_trace_span(0, "before the beginning", 1, 2, NULL);
    shunti_trace_begin(2, 4);
    shunti_trace_begin(2, 4);
    shunti_trace_thread(2, "main");
    shunti_trace_span(2, "a \"quoted\\name\"\n", 1234567, 1235678,
                      "{\"bytes\":4096}");
    shunti_trace_instant(2, "now", 5, NULL);
    shunti_trace_counter(2, "bytes", 5, 0.5);
    shunti_trace_counter(2, "bytes", 5, 1.0 / 0.0); /* JSON has no infinity */
    shunti_trace_flush(2);
    json = parse("trace.2");
    cr_assert_eq(count(json, "M"), 3);
    cr_assert_eq(count(json, "X"), 1);
    cr_assert_eq(count(json, "i"), 1);
    cr_assert_eq(count(json, "C"), 1);
    cJSON_ArrayForEach(event, json)
    {
        cr_assert_eq(cJSON_GetObjectItem(event, "pid")->valueint, 2);
        if (!strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, "X")) {
            cr_assert_str_eq(cJSON_GetObjectItem(event, "name")->valuestring,
                             "a \"quoted\\name\"\n");
            cr_assert_float_eq(cJSON_GetObjectItem(event, "ts")->valuedouble,
                               1234.567, 1e-9);
            cr_assert_float_eq(cJSON_GetObjectItem(event, "dur")->valuedouble,
                               1.111, 1e-9);
        }
    }
    cJSON_Delete(json);
    shunti_trace_reset();
}

Test(trace, split_communicators_share_the_process_file)
{
    cJSON *json;

    shunti_log_set_rank(3); /* rank 3 of 4 */
    shunti_trace_begin(3, 4);
    /* rank 1 of 2 in the communicator of every second process */
    shunti_log_set_rank(1);
    shunti_trace_begin(1, 2);
    shunti_trace_span(3, "world", 1, 2, NULL);
    shunti_trace_span(1, "half", 1, 2, NULL);
    shunti_trace_flush(1);
    json = parse("trace.3");
    cr_assert_eq(count(json, "X"), 2);
    cJSON_Delete(json); /* there is no trace.1, so the folder can be removed */
    shunti_trace_reset();
    cr_assert_eq(rmdir(folder), 0);
}

Test(trace, more_than_a_buffer)
{
    cJSON *json;

    shunti_trace_begin(0, 1);
    for (int i = 0; i < 5000; i++)
        shunti_trace_span(0, "span", (uint64_t)i, (uint64_t)i + 1,
                          "{\"some\":\"arguments\",\"to\":\"fill\"}");
    shunti_trace_reset(); /* as at exit */
    json = parse("trace");
    cr_assert_eq(count(json, "X"), 5000);
    cJSON_Delete(json);
}

Test(trace, ends_at_its_limit)
{
    char path[128];
    struct stat st;
    cJSON *json;

    setenv("SHUNT_TRACE_MAX", "20k", 1);
    shunti_trace_begin(0, 1);
    for (int i = 0; i < 5000; i++)
        shunti_trace_span(0, "span", (uint64_t)i, (uint64_t)i + 1, NULL);
    shunti_trace_reset();
    snprintf(path, sizeof(path), "%s/trace", folder);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_leq(st.st_size, 20 << 10);
    cr_assert_gt(st.st_size, 19 << 10);
    json = parse("trace");
    cr_assert_gt(count(json, "X"), 100);
    cJSON_Delete(json);
}

/* The recorder writes the last events in their order, and only if a call
 * fails. */
Test(trace, the_recorder_writes_the_last_events_of_a_failure)
{
    const cJSON *event;
    char path[128];
    cJSON *json;
    int n = 0;

    unsetenv("SHUNT_TRACE");
    snprintf(path, sizeof(path), "%s/flight", folder);
    setenv("SHUNT_FLIGHT_RECORDER", path, 1);
    setenv("SHUNT_FLIGHT_RECORDER_SIZE", "32k", 1);
    shunti_trace_reset();
    shunti_trace_begin(0, 1);
    shunti_trace_thread(0, "main"); /* this is long before the last events */
    for (int i = 0; i < 5000; i++)
        shunti_trace_span(0, "span", (uint64_t)i * 1000,
                          (uint64_t)i * 1000 + 500, "{\"some\":1}");
    shunti_trace_flush(0);
    cr_assert_neq(access(path, F_OK), 0, "nothing has failed");
    shunti_trace_failed(0, "a \"reason\"");
    json = parse("flight");
    cJSON_ArrayForEach(event, json) n +=
        *cJSON_GetObjectItem(event, "ph")->valuestring == 'X';
    cr_assert(n > 50 && n < 120, "%d events in 32 KiB", n);
    n = 5000 - n;
    cJSON_ArrayForEach(event, json)
    {
        if (*cJSON_GetObjectItem(event, "ph")->valuestring == 'X')
            cr_assert_eq(cJSON_GetObjectItem(event, "ts")->valueint, n++);
    }
    cr_assert_eq(n, 5000);
    expect_thread(json, "main");
    event = cJSON_GetArrayItem(json, cJSON_GetArraySize(json) - 1);
    cr_assert_str_eq(cJSON_GetObjectItem(event, "name")->valuestring, "failed");
    cr_assert_str_eq(
        cJSON_GetObjectItem(cJSON_GetObjectItem(event, "args"), "why")
            ->valuestring,
        "a \"reason\"");
    cJSON_Delete(json);
    shunti_trace_reset();
    cr_assert_neq(access(path, F_OK), 0, "a second file at the end");
}

Test(trace, a_killed_rank_leaves_a_whole_file)
{
    pid_t pid = fork();
    int status;
    cJSON *json;

    if (!pid) {
        shunti_trace_begin(0, 1);
        for (uint64_t i = 0; i < 3000; i++)
            shunti_trace_span(0, "span", i, i + 1, "{\"some\":\"arguments\"}");
        raise(SIGKILL);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFSIGNALED(status));
    json = parse("trace");
    /* the events whose buffers were full, and so were written */
    cr_assert_gt(count(json, "X"), 1000);
    cJSON_Delete(json);
}

Test(trace, off_is_off)
{
    unsetenv("SHUNT_TRACE");
    shunti_trace_reset();
    cr_assert(!shunti_trace_enabled());
    shunti_trace_begin(0, 1);
    shunti_trace_span(0, "span", 1, 2, NULL);
    cr_assert_eq(rmdir(folder), 0, "nothing was written");
}

Test(trace, a_folder_that_is_not_there)
{
    setenv("SHUNT_TRACE", "/no/such/folder/trace", 1);
    shunti_trace_reset();
    shunti_trace_begin(0, 1);
    shunti_trace_span(0, "span", 1, 2, NULL);
    shunti_trace_flush(0);
}
