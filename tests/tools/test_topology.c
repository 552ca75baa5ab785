// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info --topology prints nodes and rails, and measures every class of
 * pairs.
 */

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/harness.h"

TestSuite(topology, .timeout = 60);

/* Runs shunt-info on `ranks` ranks. node: the SHUNT_NODE of each rank, or
 * NULL. */
static struct harness *start(int ranks, const char *node, const char *option)
{
    char path[512], script[640];
    struct harness_job job = {
        .program = path,
        .args = {"--topology", option},
        .ranks = ranks,
        .no_launch = ranks == 0,
    };

    snprintf(path, sizeof(path), "%s/tools/shunt-info",
             getenv("SHUNT_TEST_BUILD"));
    if (node) {
        snprintf(script, sizeof(script),
                 "set -- %s; shift $RANK; SHUNT_NODE=node$1 exec '%s' "
                 "--topology %s",
                 node, path, option ? option : "");
        job.program = "/bin/sh";
        job.args[0] = "-c";
        job.args[1] = script;
    }
    return harness_start(&job);
}

static void expect(struct harness *h, const char *part)
{
    cr_assert(harness_wait(h), "%s", harness_story(h));
    cr_assert(strstr(harness_rank(h, 0)->out, part), "no '%s' in\n%s", part,
              harness_rank(h, 0)->out);
}

Test(topology, one_rank_is_told_what_to_do)
{
    struct harness *h = start(0, NULL, NULL);

    expect(h, "1 rank on 1 node, started by no launcher");
    expect(h, "shunt-run -n 4 -- shunt-info --topology");
    harness_finish(h);
}

Test(topology, rank_0_alone_speaks)
{
    struct harness *h = start(3, NULL, NULL);

    expect(h, "3 ranks on 1 node");
    expect(h, "    ranks 0-2 ");
    expect(h, "of one node (0 - 1)        shm");
    cr_assert(!strstr(harness_rank(h, 0)->out, "across"));
    for (int r = 1; r < 3; r++)
        cr_assert_eq(harness_rank(h, r)->out_bytes, 0);
    harness_finish(h);
}

Test(topology, rails_of_uneven_nodes)
{
    struct harness *h = start(6, "0 1 1 2 2 2", NULL);

    expect(h, "6 ranks on 3 nodes");
    expect(h, "\n       0        0          1          3");
    expect(h, "\n       1        0*         2          4");
    expect(h, "\n       2        0*         1*         5");
    harness_finish(h);
}

static int whole(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItem(object, name);

    cr_assert(item, "no %s", name);
    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : item->valueint;
}

Test(topology, json)
{
    struct harness *h = start(6, "0 1 1 2 2 2", "--json");
    const cJSON *nodes, *classes;
    cJSON *json;

    cr_assert(harness_wait(h), "%s", harness_story(h));
    json = cJSON_Parse(harness_rank(h, 0)->out);
    cr_assert(json, "%s", harness_rank(h, 0)->out);
    nodes = cJSON_GetObjectItem(json, "nodes");
    cr_assert_eq(cJSON_GetArraySize(nodes), 3);
    for (int n = 0, rank = 0; n < 3; n++) {
        const cJSON *ranks =
            cJSON_GetObjectItem(cJSON_GetArrayItem(nodes, n), "ranks");

        cr_assert_eq(cJSON_GetArraySize(ranks), n + 1);
        for (int l = 0; l <= n; l++)
            cr_assert_eq(whole(cJSON_GetArrayItem(ranks, l), "rank"), rank++);
    }
    classes = cJSON_GetObjectItem(json, "classes");
    cr_assert_eq(cJSON_GetArraySize(classes), 2);
    for (int i = 0; i < 2; i++) {
        const cJSON *c = cJSON_GetArrayItem(classes, i);

        cr_assert_eq(whole(c, "one_node"), i == 0);
        cr_assert_eq(whole(c, "a"), i == 0);
        cr_assert_eq(whole(c, "b"), i == 0 ? 2 : 1);
        cr_assert_gt(whole(c, "latency_ns"), 0);
        cr_assert_gt(cJSON_GetObjectItem(c, "bandwidth")->valuedouble, 1e6);
    }
    cJSON_Delete(json);
    harness_finish(h);
}
