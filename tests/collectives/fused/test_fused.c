// SPDX-License-Identifier: Apache-2.0
/*
 * The fused calls with several processes; the ranks run rank_fused.c. Every
 * result is compared with one reference. So if both pass, fused and unfused
 * calls have the same bits.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/harness.h"

TestSuite(fused, .timeout = 240);

static void run_list(const char *const *list, int ranks, const char *const *env)
{
    struct harness_job job = {
        .program = "rank_fused", .ranks = ranks, .timeout_s = 120};

    for (int i = 0; list[i]; i++)
        job.args[i] = list[i];
    for (int i = 0; env && env[i]; i++)
        job.env[i] = env[i];
    harness_check(&job);
}

/* Products of all shapes with few rows. */
static void run(const char *seed, int ranks, const char *const *env)
{
    run_list((const char *const[]){"--together", "shapes", seed, "7", "+",
                                   "delays", seed, "20", "+", "interleaved",
                                   seed, "+", "only_there", "+", "destroyed",
                                   NULL},
             ranks, env);
}

/* Like run(), with up to `most` rows. Sanitizers find nothing new in these
 * large products, which take most of the time. So a brief run has them on two
 * ranks only. */
static void run_large(const char *most, const char *seed, int ranks,
                      const char *const *env)
{
    run(seed, ranks, env);
    if (!harness_sanitized() && (!harness_brief() || ranks == 2))
        run_list((const char *const[]){"--together", "shapes", seed, most, "+",
                                       "plain", "+", "own_columns", NULL},
                 ranks, env);
}

#define ENV(...)          \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

Test(fused, one_host)
{
    for (int n = 1; n <= 4; n++)
        run_large("4099", "1", n, NULL);
}

Test(fused, unfused)
{
    run_large("1024", "1", 2, ENV("SHUNT_FUSED=off"));
    run("1", 4,
        ENV("SHUNT_FUSED=off", "SHUNT_TEST_NODES=0,0,1,1",
            "SHUNT_TRANSPORTS=shm"));
}

static const char *delayed_calls(void)
{
    return harness_sanitized() ? "20" : "100";
}

Test(fused, random_delays)
{
    harness_check(
        &(struct harness_job){.program = "rank_fused",
                              .args = {"delays", "3", delayed_calls()},
                              .ranks = 3});
    harness_check(&(struct harness_job){
        .program = "rank_fused",
        .args = {"delays", "4", delayed_calls()},
        .env = {"SHUNT_TEST_NODES=0,0,1,1", "SHUNT_TRANSPORTS=shm"},
        .ranks = 4});
}

/* Two nodes of one rank, two nodes of two, and nodes of two and one. Messages
 * are delayed at random, and overtake each other. */
Test(fused, random_delays_between_nodes)
{
    static const struct {
        const char *nodes, *seed;
        int ranks;
    } table[] = {
        {"SHUNT_TEST_NODES=0,1", "5", 2},
        {"SHUNT_TEST_NODES=0,0,1,1", "6", 4},
        {"SHUNT_TEST_NODES=0,0,1", "7", 3},
    };

    for (int i = 0; i < 3; i++)
        harness_check(&(struct harness_job){
            .program = "rank_fused",
            .args = {"delays", table[i].seed, delayed_calls()},
            .env = {table[i].nodes, "SHUNT_TRANSPORTS=shm,fault+tcp",
                    "SHUNT_FAULT=delay=20,reorder"},
            .ranks = table[i].ranks});
}

/* If links are measured, or on one node, several parts are sent together. */
Test(fused, as_it_pays)
{
    run("12", 3, ENV("SHUNT_FUSED=auto"));
    run("13", 4,
        ENV("SHUNT_FUSED=auto", "SHUNT_TEST_NODES=0,0,1,1",
            "SHUNT_TRANSPORTS=shm,tcp"));
}

Test(fused, progress_thread)
{
    run("2", 3, ENV("SHUNT_PROGRESS=thread"));
}

Test(fused, without_raw_reads)
{
    run("3", 3, ENV("SHUNT_CMA=off", "SHUNT_EAGER=512"));
}

Test(fused, late_and_out_of_order)
{
    run("4", 3,
        ENV("SHUNT_TRANSPORTS=fault+shm",
            "SHUNT_FAULT=nomap,noget,delay=20,reorder,seed=5"));
    run("5", 4,
        ENV("SHUNT_TRANSPORTS=fault+shm", "SHUNT_TEST_NODES=0,0,1,1",
            "SHUNT_FAULT=delay=20,reorder,seed=6"));
}

Test(fused, nodes)
{
    run("6", 2, ENV("SHUNT_TRANSPORTS=shm", "SHUNT_TEST_NODES=0,1"));
    run_large("1024", "7", 3,
              ENV("SHUNT_TRANSPORTS=shm", "SHUNT_TEST_NODES=0,1,1"));
    run("8", 4,
        ENV("SHUNT_TRANSPORTS=shm", "SHUNT_TEST_NODES=0,0,1,1",
            "SHUNT_ALGORITHM=two_level"));
    run("9", 4,
        ENV("SHUNT_TRANSPORTS=shm", "SHUNT_TEST_NODES=0,1,0,1",
            "SHUNT_ALGORITHM=flat"));
}

Test(fused, nodes_tcp)
{
    run_large("1024", "10", 4,
              ENV("SHUNT_TEST_NODES=0,0,1,1", "SHUNT_TRANSPORTS=shm,tcp",
                  "SHUNT_TEST_ACROSS=tcp (put)"));
    run("11", 3,
        ENV("SHUNT_TEST_NODES=0,1,2", "SHUNT_TRANSPORTS=shm,fault+tcp",
            "SHUNT_FAULT=delay=10,reorder"));
}

Test(fused, wrong_calls)
{
    static const char *const how[][2] = {
        {"SHUNT_TEST_NODES=0,0,0"},
        {"SHUNT_TEST_NODES=0,1,1"},
        {"SHUNT_TEST_NODES=0,1,1", "SHUNT_ALGORITHM=two_level"},
    };

    for (int i = 0; i < 3; i++)
        harness_check(&(struct harness_job){
            .program = "rank_fused",
            .args = {"--together", "refusals", "+", "null", "+", "mismatches",
                     "+", "other_call", "+", "mixed"},
            .ranks = 3,
            .env = {"SHUNT_TRANSPORTS=shm", how[i][0], how[i][1]},
        });
}

Test(fused, parts)
{
    static const char *const nodes[] = {"SHUNT_TEST_NODES=0,0",
                                        "SHUNT_TEST_NODES=0,1"};
    static const char *const how[] = {"SHUNT_FUSED=always", "SHUNT_FUSED=off"};

    for (int i = 0; i < 4; i++)
        harness_check(&(struct harness_job){
            .program = "rank_fused",
            .args = {"parts"},
            .ranks = 2,
            .env = {"SHUNT_TRANSPORTS=shm", nodes[i / 2], how[i % 2]}});
}

/* On one node everything is sent together, and the log gives the reason. */
Test(fused, one_node_is_unfused)
{
    static const char *const said[] = {"gemm_reduce_scatter: product and",
                                       "allgather_gemm: product and"};
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_fused",
        .args = {"parts"},
        .ranks = 2,
        .env = {"SHUNT_FUSED=auto", "SHUNT_LOG=info", "SHUNT_LOG_FILE"}});

    cr_assert(harness_wait(h), "%s", harness_story(h));
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(harness_rank(h, 0)->err, said[i]);

        cr_assert(at && strstr(at, "one node"), "%s", harness_story(h));
        cr_assert(!strstr(at + 1, said[i]), "twice: %s", harness_story(h));
    }
    harness_finish(h);
}

/* -- a rank is lost ---------------------------------------------------------- */

static void lose(const char *tile, const char *gather, const char *env)
{
    struct harness *h =
        harness_start(&(struct harness_job){.program = "rank_fused",
                                            .args = {"lost", tile, gather},
                                            .ranks = 3,
                                            .env = {"SHUNT_TIMEOUT=20", env}});

    cr_assert(harness_await_end(h, 0) && harness_await_end(h, 1) &&
                  harness_await_end(h, 2),
              "%s", harness_story(h));
    cr_assert(harness_rank(h, 1)->signal == SIGKILL, "%s", harness_story(h));
    cr_assert(harness_rank(h, 0)->exit_code == 0, "%s", harness_story(h));
    cr_assert(harness_rank(h, 2)->exit_code == 0, "%s", harness_story(h));
    harness_finish(h);
}

Test(fused, lost_rank)
{
    static const char *const tiles[] = {"1", "2", "5"};

    for (int i = 0; i < 3; i++) {
        if (harness_sanitized() && i != 1)
            continue;
        /* on one node there is one panel, of two tiles */
        lose(i ? "2" : "1", "0", "SHUNT_TRANSPORTS=shm");
        lose(tiles[i], "0", "SHUNT_TEST_NODES=0,1,1");
        lose(tiles[i], "1", "SHUNT_TRANSPORTS=shm");
        lose(tiles[i], "1", "SHUNT_TEST_NODES=0,1,1");
    }
}

/* -- communication during computation -------------------------------------- */

/* Sums are under way while panels are computed, on any transport. */
Test(fused, panels_are_under_way)
{
    static const struct {
        int ranks;
        const char *env[3];
    } table[] = {
        {3,
         {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_TEST_NODES=0,1,2",
          "SHUNT_FAULT=nomap,delay=20"}},
        {2, {"SHUNT_TRANSPORTS=shm", "SHUNT_TEST_NODES=0,1"}},
        {4, {"SHUNT_TRANSPORTS=shm,tcp", "SHUNT_TEST_NODES=0,0,1,1"}},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct harness_job job = {.program = "rank_overlap",
                                  .args = {"panels_ahead"},
                                  .ranks = table[i].ranks};

        for (int e = 0; e < 3 && table[i].env[e]; e++)
            job.env[e] = table[i].env[e];
        harness_check(&job);
    }
}

/* Tiles and puts both take a given time. Both times are far longer than what
 * else the machine does meanwhile. */
Test(fused, takes_no_longer_than_its_bound)
{
    static const char *const words[] = {"scatter", "gather"};

    for (int i = 0; i < 2; i++)
        harness_check(&(struct harness_job){
            .program = "rank_overlap",
            .args = {"within_bound", words[i]},
            .env = {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_TEST_NODES=0,1",
                    "SHUNT_PROGRESS=thread", "SHUNT_FAULT=delay=20000,fixed"},
            .ranks = 2});
}

/* With a small ring, the chunks of an all-gather arrive one after the other. */
Test(fused, chunks_wait_for_their_own_gather)
{
    harness_check(&(struct harness_job){
        .program = "rank_overlap",
        .args = {"own_gather"},
        .env = {"SHUNT_TRANSPORTS=fault+shm", "SHUNT_TEST_NODES=0,1",
                "SHUNT_FAULT=nomap,delay=2000,fixed", "SHUNT_ZCOPY_MIN=1g",
                "SHUNT_CHUNK=16k", "SHUNT_CHUNKS=2"},
        .ranks = 2});
}
