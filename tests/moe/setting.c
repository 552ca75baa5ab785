// SPDX-License-Identifier: Apache-2.0
/* The cases that can run in a setting, and how to start them; see setting.h. */
#include "tests/moe/setting.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/together.h"

/* Does the environment of the setting contain `text`? */
static bool has(const struct setting *s, const char *text)
{
    for (int i = 0; i < 3 && s->env[i]; i++)
        if (strstr(s->env[i], text))
            return true;
    return false;
}

bool setting_fits(const struct setting *s, const char *name)
{
    if (has(s, "ucx") && !getenv("SHUNT_TEST_UCX")) /* UCX was not built */
        return false;
    if (strcmp(name, "worked_example") == 0)
        return s->ranks == 4;
    /* On one node, with mapped memory, no call in these cases has anything to
     * wait for. */
    if (strcmp(name, "interleavings") == 0 ||
        strcmp(name, "one_plan_overlaps") == 0)
        return s->ranks == 2 || s->node || s->env[0];
    if (strcmp(name, "large") == 0) /* the reference takes 15 s of CPU time */
        return s->ranks == 2 && !harness_sanitized();
    /* The rank that does not call sleeps outside of the library, where late
     * messages are not delivered. */
    if (strcmp(name, "s15_timeout_names") == 0)
        return s->ranks >= 2 && !has(s, "delay");
    if (strcmp(name, "s11_stale_on_one_rank") == 0 ||
        strcmp(name, "destroyed_on_one_rank") == 0 ||
        strcmp(name, "wrong_exchange_on_one_rank") == 0 ||
        strcmp(name, "exchanges_swapped") == 0 ||
        strcmp(name, "overflow_not_retried") == 0 ||
        strcmp(name, "texts_name_calls") == 0 ||
        strcmp(name, "texts_name_plans") == 0 ||
        strcmp(name, "texts_of_requests") == 0 || strncmp(name, "s18_", 4) == 0)
        return s->ranks >= 2;
    return true;
}

/* Memory for the strings of a job that depend on its setting. */
struct texts {
    char nodes[64];
    char across[64];
};

static struct harness_job job_of(const struct setting *s, const char *more,
                                 struct texts *texts)
{
    struct harness_job job = {
        .program = "rank_moe",
        .env = {s->env[0], s->env[1], s->env[2]},
        .ranks = s->ranks,
        .timeout_s = 60,
    };
    int n = 0;

    while (job.env[n])
        n++;
    if (more)
        job.env[n++] = more;
    if (s->node) {
        snprintf(texts->nodes, sizeof(texts->nodes), "SHUNT_TEST_NODES=%s",
                 s->node);
        snprintf(texts->across, sizeof(texts->across), "SHUNT_TEST_ACROSS=%s",
                 s->across);
        job.env[n++] = texts->nodes;
        job.env[n++] = texts->across;
    }
    return job;
}

struct harness *setting_start(const struct setting *s, const char *name,
                              const char *arg, const char *more)
{
    struct texts texts;
    struct harness_job job = job_of(s, more, &texts);

    job.args[0] = name;
    job.args[1] = arg;
    return harness_start(&job);
}

/* This case waits for SHUNT_TIMEOUT, which makes its communicator unusable. */
static const char late[] = "s15_timeout_names";

enum { BRIEFLY = 4 };

void setting_run(struct tap *tap, const struct setting *s,
                 const char *const *cases, size_t count)
{
    static size_t settings_run;
    const size_t offset = settings_run++;
    const char *shared[HARNESS_ARGS / 2];
    struct harness *waiting = NULL;
    struct texts texts;
    int n = 0;

    for (size_t i = 0; i < count; i++) {
        if (!setting_fits(s, cases[i]) ||
            (harness_brief() && (i + offset) % BRIEFLY != 0))
            continue;
        if (strcmp(cases[i], late) == 0) /* runs at the same time as the
                                            others */
            waiting = setting_start(s, late, NULL, "SHUNT_TIMEOUT=1");
        else
            shared[n++] = cases[i];
    }
    together_run(tap, &(struct together){
                          .setting = s->name,
                          .job = job_of(s, NULL, &texts),
                          .cases = shared,
                          .count = n,
                      });
    if (waiting) {
        harness_wait(waiting);
        tap_line(tap, late, s->name, waiting);
        harness_finish(waiting);
    }
}
