// SPDX-License-Identifier: Apache-2.0
#include "tests/moe/setting.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/harness.h"

/* Does the environment say so? */
static bool has(const struct setting *s, const char *text)
{
    for (int i = 0; i < 3 && s->env[i]; i++)
        if (strstr(s->env[i], text))
            return true;
    return false;
}

bool setting_fits(const struct setting *s, const char *name)
{
    if (has(s, "ucx") && !getenv("SHUNT_TEST_UCX")) /* it was not built */
        return false;
    if (strcmp(name, "worked_example") == 0)
        return s->ranks == 4;
    /* Plain memory of one node has nothing that they could wait for. */
    if (strcmp(name, "interleavings") == 0 ||
        strcmp(name, "one_plan_overlaps") == 0)
        return s->ranks == 2 || s->node || s->env[0];
    if (strcmp(name, "large") == 0) /* 15 s of a CPU for the reference */
        return s->ranks == 2 && !harness_sanitized();
    /* The rank that does not come is asleep outside the library, where what is
     * late is not delivered either. */
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

struct harness *setting_start(const struct setting *s, const char *name,
                              const char *arg, const char *more)
{
    struct harness_job job = {
        .program = "rank_moe",
        .args = {name, arg},
        .env = {s->env[0], s->env[1], s->env[2]},
        .ranks = s->ranks,
        .timeout_s = 60,
    };
    char nodes[64], across[64];
    int n = 0;

    while (job.env[n])
        n++;
    if (more)
        job.env[n++] = more;
    if (s->node) {
        snprintf(nodes, sizeof(nodes), "SHUNT_TEST_NODES=%s", s->node);
        snprintf(across, sizeof(across), "SHUNT_TEST_ACROSS=%s", s->across);
        job.env[n++] = nodes;
        job.env[n++] = across;
    }
    return harness_start(&job);
}

void setting_check(const struct setting *s, const char *name)
{
    bool slow = strcmp(name, "s15_timeout_names") == 0;
    struct harness *h =
        setting_start(s, name, NULL, slow ? "SHUNT_TIMEOUT=1" : NULL);

    cr_assert(harness_wait(h), "%s, %s: %s", name, s->name, harness_story(h));
    harness_finish(h);
}
