// SPDX-License-Identifier: Apache-2.0
/*
 * Tests of SHUNT_ALGORITHM. Every row of the table can be forced where it is
 * possible, and gives the right results. Entries without an effect are
 * reported. test_select.c tests which row an entry chooses.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/algorithms.h"
#include "src/base/kind.h"
#include "tests/harness/harness.h"

TestSuite(forced, .timeout = 240);

#define ON_NODES "SHUNT_NODE=n$((RANK / 2)) "

/* -- what is chosen, by shunt-info -------------------------------------------
 */

/* Run shunt-info on four ranks: on two nodes, or on one. */
static struct harness *table(bool nodes, const char *setting)
{
    static const char *const scripts[] = {
        "exec $SHUNT_TEST_BUILD/tools/shunt-info --algorithms",
        ON_NODES "exec $SHUNT_TEST_BUILD/tools/shunt-info --algorithms"};
    struct harness *h = harness_start(&(struct harness_job){
        .program = "/bin/sh",
        .args = {"-c", scripts[nodes]},
        .env = {setting, "SHUNT_LOG=warn", "SHUNT_TRANSPORTS=shm,tcp"},
        .ranks = 4});

    cr_assert(harness_wait(h), "%s", harness_story(h));
    return h;
}

static void says(bool nodes, const char *setting, const char *line)
{
    struct harness *h = table(nodes, setting);

    cr_assert(strstr(harness_rank(h, 0)->out, line), "%s: no '%s' in\n%s",
              setting, line, harness_rank(h, 0)->out);
    harness_finish(h);
}

Test(forced, between_nodes)
{
    says(true, "SHUNT_ALGORITHM=flat", "  alltoallv        flat\n");
    says(true, "SHUNT_ALGORITHM=two_level", "  alltoallv        two_level\n");
    says(true, "SHUNT_ALGORITHM=flat,alltoallv=two_level",
         "  alltoallv        two_level\n");
    says(true, "SHUNT_ALGORITHM=allgather=flat,two_level",
         "  allgather        two_level\n");
    says(true, "SHUNT_ALGORITHM=allreduce=two_level_lanes",
         "  allreduce        two_level_lanes\n");
    says(true, "SHUNT_ALGORITHM=allreduce=segments",
         "  allreduce        flat_segments\n");
    says(true, "SHUNT_ALGORITHM=allreduce=direct:0-5000,lanes",
         "  allreduce        flat_direct up to 5000, two_level_lanes\n");
    says(true, "SHUNT_CARRY=3k", "a relay forwards blocks of up to 3k ");
}

Test(forced, on_one_node)
{
    says(false, "SHUNT_ALGORITHM=", "  broadcast        star\n");
    says(false, "SHUNT_ALGORITHM=flat",
         "  barrier          flat\n  broadcast        flat\n");
    says(false, "SHUNT_ALGORITHM=barrier=star", "  barrier          star\n");
    says(false, "SHUNT_ALGORITHM=star,star:8k-,broadcast=flat:16k-",
         "  barrier          star\n"
         "  broadcast        star up to 16383, flat\n");
    says(false, "SHUNT_ALGORITHM=allreduce=segments,allreduce=auto:1k-1m",
         "  allreduce        flat_segments up to 1023, flat_direct up to 32k, "
         "flat_segments\n");
}

Test(forced, names_and_where_they_are_possible)
{
    says(false, "SHUNT_ALGORITHM=",
         "SHUNT_ALGORITHM can name\n"
         "  barrier          star (on one node whose memory is mapped), flat, "
         "two_level (between nodes), dissemination (between nodes)\n");
}

/* -- what has no effect ------------------------------------------------------
 */

static int times(const char *text, const char *part)
{
    int count = 0;

    for (; (text = strstr(text, part)); text += strlen(part))
        count++;
    return count;
}

/* A wrong entry has no effect, and rank 0 reports it. */
Test(forced, names_of_no_algorithm_are_reported)
{
    static const char setting[] =
        "SHUNT_ALGORITHM=barrier=flat,barrier=nonsense,level,flat:k-4";

    for (int nodes = 0; nodes < 2; nodes++) {
        struct harness *h = table(nodes, setting);
        const char *err = harness_rank(h, 0)->err;

        cr_assert(strstr(harness_rank(h, 0)->out, "  barrier          flat\n"));
        cr_assert(strstr(err, "'barrier=nonsense' is ignored, it names no"),
                  "%s", err);
        cr_assert(strstr(err, "'level' is ignored, it names no"), "%s", err);
        cr_assert(strstr(err, "'flat:k-4' is ignored, it has no range"), "%s",
                  err);
        cr_assert(!strstr(err, "'barrier=flat'"), "%s", err);
        cr_assert(!strstr(harness_rank(h, 1)->err, "ignored"));
        harness_finish(h);
    }
}

/* The first communicators of rank_collectives are the world and duplicates of
 * it. */
static void reports(const char *setting, const char *const *parts)
{
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_collectives",
        .args = {"--together", "random", "all", "61", "20", "+", "random",
                 "all", "62", "20"},
        .ranks = 3,
        .env = {"SHUNT_TRANSPORTS=shm", "SHUNT_LOG=warn", setting}});
    int warnings = 0;

    cr_assert(harness_wait(h), "%s", harness_story(h));
    for (int i = 0; parts[i]; i++) {
        cr_expect(strstr(harness_rank(h, 0)->err, parts[i]), "no '%s' in\n%s",
                  parts[i], harness_rank(h, 0)->err);
        warnings++;
    }
    for (int r = 0; r < 3; r++)
        warnings -= times(harness_rank(h, r)->err, "SHUNT_ALGORITHM");
    cr_expect_eq(warnings, 0, "%s", harness_story(h));
    harness_finish(h);
}

#define PARTS(...)        \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

Test(forced, no_effect_is_reported_once)
{
    reports("SHUNT_ALGORITHM=two_level",
            PARTS("'two_level' has no effect in a communicator of 1 node, it "
                  "is possible only between nodes; possible here: star, flat, "
                  "flat_direct, flat_segments\n"));
    reports("SHUNT_ALGORITHM=allreduce=lanes:64k-,flat",
            PARTS("'allreduce=lanes:64k-' has no effect in a communicator of 1 "
                  "node, it is possible only between nodes; possible here for "
                  "allreduce: flat_direct, flat_segments\n"));
    reports("SHUNT_ALGORITHM=broadcast=flat:4k-8k,barrier=flat:1-,star:0-",
            PARTS("'broadcast=flat:4k-8k' has no effect, later entries "
                  "override it\n",
                  "'barrier=flat:1-' has no effect, each barrier counts "
                  "as 0 bytes\n"));
    reports("SHUNT_ALGORITHM=auto,flat,broadcast=star:-4k,star:4097-,auto:1-9",
            PARTS(NULL));
}

Test(forced, cut_off_entries_are_reported)
{
    char setting[400] = "SHUNT_ALGORITHM=flat";

    for (int i = 10; i < 32; i++)
        sprintf(setting + strlen(setting), ",star:%d-%d", i, i);
    reports(setting, PARTS(NULL));
    strcat(setting, ",star:32-32");
    reports(setting, PARTS("'star:32-32' is ignored, the value has more than "
                           "255 characters\n"));
}

/* -- the results -------------------------------------------------------------
 */

/* Run random calls of one collective with its algorithm forced, on one node or
 * on several. */
static void runs(const struct shunti_row *row, const char *nodes)
{
    char algorithm[80];
    struct harness_job job = {
        .program = "rank_collectives",
        .args = {"random", shunti_kind_name(row->kind), "63", "40"},
        .env = {"SHUNT_TRANSPORTS=shm", algorithm, nodes},
        .ranks = 4,
        .timeout_s = 90,
    };

    snprintf(algorithm, sizeof(algorithm), "SHUNT_ALGORITHM=%s=%s",
             shunti_kind_name(row->kind), row->name);
    harness_check(&job);
    if (!nodes) {
        job.ranks = 1;
        harness_check(&job);
    }
}

Test(forced, every_row_on_one_node)
{
    const struct shunti_row *row;

    for (size_t i = 0; (row = shunti_row_at(i)); i++)
        if (!row->possible->words || !strstr(row->possible->words, "between"))
            runs(row, NULL);
}

Test(forced, every_row_between_nodes)
{
    const struct shunti_row *row;

    for (size_t i = 0; (row = shunti_row_at(i)); i++)
        if (!row->possible->words || strstr(row->possible->words, "between")) {
            runs(row, "SHUNT_TEST_NODES=0,0,1,1");
            if (harness_sanitized())
                continue; /* three layouts take a minute */
            runs(row, "SHUNT_TEST_NODES=0,1,2,3");
            if (!row->possible->words ||
                !strcmp(row->possible->words, "between nodes"))
                runs(row, "SHUNT_TEST_NODES=0,1,2,1");
        }
}

/* Ranks whose counts disagree choose different algorithms. Each still gets an
 * error that names the rank at fault. */
Test(forced, ranges_and_wrong_calls)
{
    static const char *const settings[] = {
        "SHUNT_ALGORITHM=broadcast=star:-10,broadcast=flat:11-2000,"
        "broadcast=star:2001-50000,broadcast=flat:50001-,allreduce=direct:-15,"
        "allreduce=segments:16-",
        "SHUNT_ALGORITHM=broadcast=flat:-10,broadcast=star:11-2000,"
        "broadcast=flat:2001-50000,broadcast=star:50001-,"
        "allreduce=segments:-15,allreduce=direct:16-"};

    for (int i = 0; i < 2; i++)
        for (int n = 2; n <= 4; n++)
            harness_check(&(struct harness_job){
                .program = "rank_collectives",
                .args = {"--together", "mismatch", "mixed", "+", "any_roots",
                         "4", "+", "refusals", "+", "random", "all", "64",
                         "60"},
                .env = {"SHUNT_TRANSPORTS=shm", settings[i]},
                .ranks = n,
                .timeout_s = 90});
}

Test(forced, ranges_and_wrong_calls_between_nodes)
{
    static const char *const settings[] = {
        "SHUNT_ALGORITHM=two_level,dissemination:16-",
        "SHUNT_ALGORITHM=dissemination,two_level:16-",
        "SHUNT_ALGORITHM=dissemination,flat:64-"};
    static const char *const layouts[] = {"SHUNT_TEST_NODES=0,1,2,3",
                                          "SHUNT_TEST_NODES=0,0,1,1,2,2",
                                          "SHUNT_TEST_NODES=0,0,1,2"};

    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            harness_check(&(struct harness_job){
                .program = "rank_collectives",
                .args = {"--together", "mismatch", "mixed", "+", "refusals",
                         "+", "random", "all", "65", "60"},
                .env = {"SHUNT_TRANSPORTS=shm", settings[i], layouts[k]},
                .ranks = k == 1 ? 6 : 4,
                .timeout_s = 90});
}
