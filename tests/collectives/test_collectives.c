// SPDX-License-Identifier: Apache-2.0
/*
 * Collectives with several processes; the ranks run rank_collectives.c. This
 * file sets the circumstances: numbers of ranks, transports, protocols,
 * algorithms.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/harness.h"

TestSuite(collectives, .timeout = 240);

/* Separates two cases of a list (rank_main.h, --together). */
#define THEN "+"
#define LIST(...)         \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

static void add_env(struct harness_job *job, const char *const *env)
{
    int n = 0;

    while (job->env[n])
        n++;
    for (int i = 0; env && env[i]; i++)
        job->env[n++] = env[i];
}

/* Run one case in a job of its own. */
static void run(const char *const *env, int ranks, const char *name,
                const char *arg1, const char *arg2, const char *arg3)
{
    struct harness_job job = {
        .program = "rank_collectives",
        .args = {name, arg1, arg2, arg3},
        .ranks = ranks,
        .timeout_s = 90,
    };

    add_env(&job, env);
    harness_check(&job);
}

/* Run several cases in one job. */
static void check_list(struct harness_job *job, const char *const *list)
{
    job->program = "rank_collectives";
    job->timeout_s = 90;
    job->args[0] = "--together";
    for (int i = 0; list[i]; i++)
        job->args[i + 1] = list[i];
    harness_check(job);
}

static void run_list(const char *const *env, int ranks, const char *const *list)
{
    struct harness_job job = {.ranks = ranks};

    add_env(&job, env);
    check_list(&job, list);
}

/* Run cases on virtual nodes: "0,0,1" is three ranks, of which the last is on a
 * node of its own. across: how another node is reached (rank_main.h). */
static void run_list_on(const char *nodes, const char *across,
                        const char *const *env, const char *const *list)
{
    char variable[2][64];
    struct harness_job job = {.env = {variable[0], variable[1]}, .ranks = 1};

    for (const char *c = nodes; *c; c++)
        job.ranks += *c == ',';
    snprintf(variable[0], sizeof(variable[0]), "SHUNT_TEST_NODES=%s", nodes);
    snprintf(variable[1], sizeof(variable[1]), "SHUNT_TEST_ACROSS=%s", across);
    add_env(&job, env);
    check_list(&job, list);
}

static const int sizes[] = {1, 2, 3, 4, 8};
enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

/* True if, of several jobs whose settings run the same code, only one is
 * run. */
static bool is_few(void)
{
    return harness_sanitized() || harness_brief();
}

/* How many of sizes[] are used. Eight ranks show a sanitizer nothing new: seven
 * ranks run all kinds, too, on several nodes (on_layouts). */
static int sizes_used(void)
{
    return is_few() ? SIZES - 1 : SIZES;
}

/* Random calls of one collective. */
static void one_kind(const char *kind)
{
    char seed[16];

    for (int i = 0; i < sizes_used(); i++) {
        snprintf(seed, sizeof(seed), "%d", 100 + i);
        run(NULL, sizes[i], "random", kind, seed, "60");
    }
}

Test(collectives, barrier)
{
    one_kind("barrier");
    run(NULL, 5, "barrier_holds", NULL, NULL, NULL);
}

Test(collectives, broadcast)
{
    one_kind("broadcast");
}

Test(collectives, allgather)
{
    one_kind("allgather");
}

Test(collectives, allgatherv)
{
    one_kind("allgatherv");
}

Test(collectives, reduce_scatter)
{
    one_kind("reduce_scatter");
}

Test(collectives, reduce_scatterv)
{
    one_kind("reduce_scatterv");
}

Test(collectives, allreduce)
{
    one_kind("allreduce");
}

Test(collectives, alltoall)
{
    one_kind("alltoall");
}

Test(collectives, alltoallv)
{
    one_kind("alltoallv");
}

Test(collectives, in_flight)
{
    for (int i = 0; i < sizes_used(); i++)
        run(NULL, sizes[i], "in_flight", "5", "10", NULL);
}

Test(collectives, same_bits)
{
    for (int i = 0; i < sizes_used(); i++)
        run(NULL, sizes[i], "same_bits", NULL, NULL, NULL);
}

Test(collectives, late_look)
{
    for (int i = 0; i < sizes_used(); i++)
        run(NULL, sizes[i], "late_look", NULL, NULL, NULL);
}

Test(collectives, nothing_at_all)
{
    for (int i = 0; i < sizes_used(); i++)
        run(NULL, sizes[i], "nothing_at_all", NULL, NULL, NULL);
}

Test(collectives, huge_count)
{
    run(NULL, 2, "huge_count", NULL, NULL, NULL);
}

Test(collectives, huge_offsets)
{
    run(NULL, 2, "huge_offsets", NULL, NULL, NULL);
}

Test(collectives, mismatch)
{
    run(NULL, 2, "mismatch", NULL, NULL, NULL);
    run(NULL, 4, "mismatch", NULL, NULL, NULL);
}

Test(collectives, any_roots)
{
    static const char *const seeds[] = {"1", "2", "3"};

    for (int n = 2; n <= 5; n++)
        for (int i = 0; i < (harness_brief() ? 1 : 3); i++)
            run(NULL, n, "any_roots", seeds[i], NULL, NULL);
}

Test(collectives, mismatch_figures)
{
    run(NULL, 2, "mismatch_figures", NULL, NULL, NULL);
    run(NULL, 3, "mismatch_figures", NULL, NULL, NULL);
}

Test(collectives, refusals)
{
    run(NULL, 2, "refusals", NULL, NULL, NULL);
    run(NULL, 5, "refusals", NULL, NULL, NULL);
}

Test(collectives, both_ways)
{
    run(NULL, 2, "both_ways", NULL, NULL, NULL);
    run(NULL, 4, "both_ways", NULL, NULL, NULL);
}

Test(collectives, runs_ahead)
{
    run(NULL, 2, "runs_ahead", NULL, NULL, NULL);
    run(NULL, 5, "runs_ahead", NULL, NULL, NULL);
}

Test(collectives, late_errors_wait)
{
    run(NULL, 2, "late_errors_wait", NULL, NULL, NULL);
    run(NULL, 5, "late_errors_wait", NULL, NULL, NULL);
}

Test(collectives, told_among_broadcasts)
{
    run(NULL, 2, "told_among_broadcasts", NULL, NULL, NULL);
    run(NULL, 5, "told_among_broadcasts", NULL, NULL, NULL);
}

Test(collectives, root_goes)
{
    run(NULL, 2, "root_goes", NULL, NULL, NULL);
    run(NULL, 5, "root_goes", NULL, NULL, NULL);
}

Test(collectives, no_communicator)
{
    run(NULL, 1, "no_communicator", NULL, NULL, NULL);
}

/* -- circumstances -----------------------------------------------------------
 */

/* Cases of all sorts under the setting `env`. */
static void under(const char *const *env)
{
    static const int few[] = {2, 3, 4};
    static const char *const list[] = {
        "random", "all",      "21", "60",        THEN, "in_flight",
        "22",     "5",        THEN, "same_bits", THEN, "error_bound",
        THEN,     "mismatch", THEN, "refusals",  THEN, "refused_by_all",
        NULL,
    };

    for (int i = 0; i < 3; i++)
        /* A power of two shows a sanitizer nothing new. */
        if (!is_few() || few[i] == 3)
            run_list(env, few[i], list);
}

Test(collectives, without_raw_reads)
{
    under((const char *const[]){"SHUNT_CMA=off", NULL});
}

Test(collectives, raw_reads_always)
{
    under((const char *const[]){"SHUNT_READ_MIN=1", NULL});
}

/* Everything is cut into many pieces. */
Test(collectives, tiny_ring)
{
    under((const char *const[]){"SHUNT_EAGER=512", "SHUNT_CHUNK=1024",
                                "SHUNT_CHUNKS=2", "SHUNT_CMA=off", NULL});
}

Test(collectives, mixed_memory)
{
    static const char *const env[] = {"SHUNT_ALLREDUCE_DIRECT=0",
                                      "SHUNT_CHUNK=1024", "SHUNT_CHUNKS=2",
                                      "SHUNT_CMA=off", NULL};

    for (int i = 0; i < sizes_used(); i++)
        run(env, sizes[i], "mixed_memory", NULL, NULL, NULL);
}

Test(collectives, allreduce_in_segments)
{
    under((const char *const[]){"SHUNT_ALLREDUCE_DIRECT=0", NULL});
}

Test(collectives, allreduce_direct)
{
    under((const char *const[]){"SHUNT_ALLREDUCE_DIRECT=1g", NULL});
}

Test(collectives, progress_thread)
{
    under((const char *const[]){"SHUNT_PROGRESS=thread", NULL});
}

Test(collectives, put_only)
{
    under((const char *const[]){"SHUNT_TRANSPORTS=fault+shm",
                                "SHUNT_FAULT=nomap,noget", NULL});
}

/* Reads of plain memory complete later than the step that started them. */
Test(collectives, late_raw_reads)
{
    under((const char *const[]){"SHUNT_TRANSPORTS=fault+shm",
                                "SHUNT_FAULT=delay=100,seed=4",
                                "SHUNT_READ_MIN=1", "SHUNT_EAGER=512", NULL});
    run((const char *const[]){"SHUNT_TRANSPORTS=fault+shm",
                              "SHUNT_FAULT=delay=5000,fixed",
                              "SHUNT_READ_MIN=1", "SHUNT_EAGER=512", NULL},
        3, "late_reads", "5000", NULL, NULL);
}

Test(collectives, late_and_out_of_order)
{
    under((const char *const[]){"SHUNT_TRANSPORTS=fault+shm",
                                "SHUNT_FAULT=nomap,delay=20,reorder,seed=5",
                                NULL});
}

Test(collectives, late_and_in_pieces)
{
    under((const char *const[]){"SHUNT_TRANSPORTS=fault+shm",
                                "SHUNT_FAULT=nomap,noget,delay=10,reorder",
                                "SHUNT_EAGER=1024", "SHUNT_CHUNK=4096",
                                "SHUNT_CHUNKS=2", NULL});
}

/* -- reads that fail ---------------------------------------------------------
 */

static const char *const bad_reads[] = {
    "SHUNT_TRANSPORTS=fault+shm",
    "SHUNT_FAULT=badget=20,rank=1",
    "SHUNT_READ_MIN=1",
    "SHUNT_EAGER=512",
    NULL,
};

Test(collectives, failed_reads)
{
    run(bad_reads, 2, "failed_reads", "all", "41", "120");
    run(bad_reads, 4, "failed_reads", "all", "42", "120");
}

Test(collectives, failed_reads_in_segments)
{
    const char *const env[] = {bad_reads[0],
                               bad_reads[1],
                               bad_reads[2],
                               bad_reads[3],
                               "SHUNT_ALLREDUCE_DIRECT=0",
                               NULL};

    run(env, 3, "failed_reads", "allreduce", "43", "60");
    run(env, 4, "failed_reads", "allreduce", "44", "60");
}

Test(collectives, failed_reads_that_are_late)
{
    const char *const env[] = {bad_reads[0],
                               "SHUNT_FAULT=badget=20,rank=1,delay=100",
                               bad_reads[2], bad_reads[3], NULL};

    run(env, 4, "failed_reads", "all", "46", "60");
}

Test(collectives, failed_late_reads_in_flight)
{
    static const char *const delays[] = {"SHUNT_FAULT=badget=5,rank=0,delay="
                                         "10000,seed=2",
                                         "SHUNT_FAULT=badget=3,rank=0,delay="
                                         "2000,seed=3"};

    for (int i = 0; i < 2; i++)
        run_list_on("0,0,0,1,1,1", "fault (put)",
                    (const char *const[]){bad_reads[0], delays[i], bad_reads[2],
                                          bad_reads[3],
                                          "SHUNT_ALGORITHM=two_level", NULL},
                    LIST("failed_reads_in_flight"));
}

/* Ranks are threads, so reading memory that another rank has unmapped
 * crashes. */
Test(collectives, input_goes_after_failed_reads)
{
    static const char *const faults[] = {
        "SHUNT_FAULT=badget=2,rank=0,delay=20000",
        "SHUNT_FAULT=badget=3,rank=0,delay=5000,seed=2"};

    for (int i = 0; i < 2; i++)
        harness_check(&(struct harness_job){
            .program = "rank_collectives",
            .args = {"input_goes"},
            .threads = 4,
            .env = {"SHUNT_TRANSPORTS=fault+inproc", faults[i],
                    "SHUNT_ALLREDUCE_DIRECT=0", "SHUNT_READ_MIN=1",
                    "SHUNT_EAGER=512"},
            .timeout_s = 60,
        });
}

/* Rank 1 reads large blocks, of which some reads fail, and receives smaller
 * ones as streams. */
Test(collectives, failed_reads_and_streams)
{
    const char *const env[] = {bad_reads[0],
                               bad_reads[1],
                               "SHUNT_READ_MIN=16k",
                               bad_reads[3],
                               "SHUNT_CHUNK=1024",
                               "SHUNT_CHUNKS=2",
                               "SHUNT_ALLREDUCE_DIRECT=0",
                               NULL};

    run(env, 4, "failed_reads", "all", "45", "120");
}

Test(collectives, unreadable_input)
{
    const char *const env[] = {"SHUNT_READ_MIN=1", "SHUNT_ALLREDUCE_DIRECT=0",
                               NULL};

    run(env, 3, "unreadable_input", NULL, NULL, NULL);
    run(env, 5, "unreadable_input", NULL, NULL, NULL);
}

/* -- several nodes -----------------------------------------------------------
 */

static const char *const layouts[] = {
    "0,0,1,1", "0,0,0,0,1,1,1,1", "0,1,1,2,2,2", "0,1,0,2,1,2,2", "0,1,2",
};
enum { LAYOUTS = sizeof(layouts) / sizeof(*layouts) };

static void on_layouts(const char *across, const char *const *env,
                       const char *rounds)
{
    const char *const list[] = {
        "random", "all",
        "31",     rounds,
        THEN,     "in_flight",
        "32",     "5",
        THEN,     "same_bits",
        THEN,     "error_bound",
        THEN,     "nothing_at_all",
        THEN,     "mismatch",
        THEN,     "mismatch_figures",
        THEN,     "refusals",
        THEN,     "refused_by_all",
        THEN,     "barrier_holds",
        NULL,
    };

    for (int i = 0; i < LAYOUTS; i++) {
        const char *at = layouts[i];

        /* Nodes of one size, eight ranks, and ranks in the order of their nodes
         * show a sanitizer nothing new. */
        if (is_few() && i != 3)
            continue;
        run_list_on(at, across, env, list);
    }
}

/* Tests of algorithms put through shared memory between nodes, because UCX
 * would take longer. */
#define BY_SHM(...)                               \
    "shm (put)", (const char *const[])            \
    {                                             \
        "SHUNT_TRANSPORTS=shm", __VA_ARGS__, NULL \
    }

static void unless_long(void)
{
    if (!harness_long())
        cr_skip_test("takes long: make check-long");
}

Test(collectives, nodes_chosen)
{
    on_layouts(BY_SHM("SHUNT_ALGORITHM="), "120");
}

Test(collectives, nodes_flat)
{
    unless_long();
    on_layouts(BY_SHM("SHUNT_ALGORITHM=flat"), "120");
}

Test(collectives, nodes_two_level)
{
    on_layouts(BY_SHM("SHUNT_ALGORITHM=two_level"), "200");
}

/* With partials that are inline, streamed, and put without a copy. */
Test(collectives, nodes_doubling)
{
    static const char *const powers[] = {"0,0,1,1", "0,0,1,2,2,2,3",
                                         "0,1,2,3,4,5,6,7"};
    static const char *const list[] = {
        "random", "allreduce",      "37", "80",
        THEN,     "in_flight",      "38", "5",
        THEN,     "same_bits",      THEN, "error_bound",
        THEN,     "nothing_at_all", THEN, "mismatch",
        THEN,     "refusals",       NULL,
    };
    static const char *const doubling = "SHUNT_ALGORITHM=allreduce=doubling";

    for (size_t i = 0; i < sizeof(powers) / sizeof(*powers); i++) {
        if (!is_few() || i == 0)
            run_list_on(powers[i], BY_SHM(doubling), list);
        if (!is_few() || i == 1)
            run_list_on(powers[i],
                        BY_SHM(doubling, "SHUNT_EAGER=512", "SHUNT_CHUNK=1024",
                               "SHUNT_CHUNKS=2", "SHUNT_CMA=off"),
                        list);
        if (!is_few() || i == 2)
            run_list_on(powers[i], "tcp (put)",
                        (const char *const[]){
                            doubling, "SHUNT_TRANSPORTS=shm,tcp",
                            "SHUNT_ZCOPY_MIN=64", "SHUNT_EAGER=512", NULL},
                        list);
    }
}

/* Between eight nodes and more, some ranks send to others without receiving from
 * them, and some exchange nothing. */
Test(collectives, nodes_dissemination)
{
    static const char *const many[] = {"0,1,2,3,4,5,6,7", "0,0,1,1,2,2,3,3,4,4",
                                       "0,0,1,2,2,3,4,4,5,5,6,7,8,8"};
    static const char *const list[] = {
        "random", "all",
        "33",     "30",
        THEN,     "in_flight",
        "34",     "8",
        THEN,     "same_bits",
        THEN,     "error_bound",
        THEN,     "nothing_at_all",
        THEN,     "mismatch",
        THEN,     "refusals",
        THEN,     "refused_by_all",
        THEN,     "barrier_holds",
        NULL,
    };
    static const char *const setting =
        "SHUNT_ALGORITHM=two_level,dissemination";

    if (!is_few())
        on_layouts(BY_SHM(setting), "40");
    for (size_t i = is_few(); i < sizeof(many) / sizeof(*many); i++)
        if (i < 2 || !harness_sanitized()) /* 14 ranks take half a minute */
            run_list_on(many[i], BY_SHM(setting), list);
}

/* Blocks between rail peers are late: streamed, and read. */
Test(collectives, nodes_shards)
{
    static const char *const many[] = {"0,1,2", "0,0,1,1,2,2", "0,1,0,2,1,2,2"};
    static const char *const list[] = {
        "random", "allreduce",      "35", "80",
        THEN,     "in_flight",      "36", "5",
        THEN,     "same_bits",      THEN, "error_bound",
        THEN,     "nothing_at_all", THEN, "mismatch",
        THEN,     "refusals",       NULL,
    };
    static const char *const shards = "SHUNT_ALGORITHM=allreduce=shards";

    for (size_t i = 0; i < sizeof(many) / sizeof(*many); i++) {
        if (!is_few() || i == 2)
            run_list_on(many[i],
                        BY_SHM(shards, "SHUNT_EAGER=512", "SHUNT_CHUNK=1024",
                               "SHUNT_CHUNKS=2", "SHUNT_CMA=off"),
                        list);
        if (!is_few() || i < 2)
            run_list_on(
                many[i], "fault (put)",
                (const char *const[]){shards, "SHUNT_TRANSPORTS=fault+shm",
                                      "SHUNT_FAULT=nomap,delay=10,reorder",
                                      "SHUNT_READ_MIN=1", NULL},
                list);
    }
}

Test(collectives, nodes_shards_failed_reads)
{
    const char *const env[] = {bad_reads[0],
                               bad_reads[1],
                               bad_reads[2],
                               bad_reads[3],
                               "SHUNT_ALGORITHM=allreduce=shards",
                               NULL};

    run_list_on(layouts[2], "fault (put)", env,
                LIST("failed_reads", "allreduce", "52", "60"));
    run_list_on(layouts[3], "fault (put)", env,
                LIST("failed_reads", "allreduce", "53", "60"));
}

/* A relay carries no block here, and every block in the next test. */
Test(collectives, nodes_nothing_carried)
{
    on_layouts(BY_SHM("SHUNT_ALGORITHM=two_level", "SHUNT_CARRY=0"), "40");
}

Test(collectives, nodes_all_carried)
{
    unless_long();
    on_layouts(BY_SHM("SHUNT_ALGORITHM=two_level", "SHUNT_CARRY=1g"), "40");
}

/* All blocks are read from where they arrive, in parts. */
#define IN_PARTS \
    "SHUNT_ALGORITHM=two_level", "SHUNT_RELAY_IN_PLACE=0", "SHUNT_RELAY_PART=64"

Test(collectives, nodes_in_place)
{
    on_layouts(BY_SHM(IN_PARTS), "80");
    on_layouts(BY_SHM(IN_PARTS, "SHUNT_READ_MIN=1", "SHUNT_EAGER=512"), "40");
}

/* Blocks that cannot be read are packed. */
Test(collectives, nodes_in_place_unread)
{
    unless_long();
    on_layouts(BY_SHM(IN_PARTS, "SHUNT_CMA=off", "SHUNT_EAGER=512",
                      "SHUNT_CHUNK=1024", "SHUNT_CHUNKS=2"),
               "40");
}

Test(collectives, nodes_in_place_engine)
{
    unless_long();
    on_layouts(BY_SHM(IN_PARTS, "SHUNT_ENGINE=dma", "SHUNT_DMA=on",
                      "SHUNT_ENGINE_MIN=64", "SHUNT_PROGRESS=thread"),
               "40");
}

Test(collectives, nodes_tiny_ring)
{
    unless_long();
    on_layouts(BY_SHM("SHUNT_ALGORITHM=two_level", "SHUNT_EAGER=512",
                      "SHUNT_CHUNK=1024", "SHUNT_CHUNKS=2", "SHUNT_CMA=off"),
               "40");
}

Test(collectives, nodes_raw_reads)
{
    on_layouts(BY_SHM("SHUNT_ALGORITHM=two_level", "SHUNT_READ_MIN=1"), "40");
}

Test(collectives, nodes_failed_reads)
{
    const char *const env[] = {bad_reads[0],
                               bad_reads[1],
                               bad_reads[2],
                               bad_reads[3],
                               "SHUNT_ALGORITHM=two_level",
                               NULL};
    const char *across = "fault (put)";

    run_list_on(layouts[0], across, env,
                LIST("failed_reads", "all", "46", "80"));
    run_list_on(layouts[3], across, env,
                LIST("failed_reads", "all", "47", "80"));
    run_list_on(layouts[0], across, env,
                LIST("failed_reads", "allreduce", "48", "40"));
    run_list_on(layouts[1], across, env,
                LIST("failed_reads", "allreduce", "49", "40"));
}

/* The case's own small allgather, which has no failed reads, must read
 * nothing. */
Test(collectives, nodes_in_place_failed_reads)
{
    const char *const env[] = {bad_reads[0],
                               bad_reads[1],
                               bad_reads[2],
                               bad_reads[3],
                               "SHUNT_ALGORITHM=two_level",
                               "SHUNT_RELAY_IN_PLACE=256",
                               "SHUNT_RELAY_PART=64",
                               NULL};

    /* in the last layout each rank is alone on its node */
    for (int i = 0; i < LAYOUTS - 1; i++)
        run_list_on(layouts[i], "fault (put)", env,
                    LIST("failed_reads", "allgather", "50", "40", THEN,
                         "failed_reads", "allgatherv", "51", "40"));
}

/* Ranks of one node do not map each other, either. */
Test(collectives, nodes_put_only)
{
    on_layouts("fault (put)",
               (const char *const[]){
                   "SHUNT_ALGORITHM=two_level", "SHUNT_TRANSPORTS=fault+shm",
                   "SHUNT_FAULT=nomap,noget,delay=10,reorder", NULL},
               "40");
}

Test(collectives, nodes_progress_thread)
{
    on_layouts(BY_SHM("SHUNT_ALGORITHM=two_level", "SHUNT_PROGRESS=thread"),
               "40");
}

Test(collectives, nodes_progress_auto)
{
    unless_long();
    on_layouts(BY_SHM("SHUNT_ALGORITHM=two_level", "SHUNT_PROGRESS=auto"),
               "40");
}

static void on_network(const char *network)
{
    char across[32], near[64], late[64];

    snprintf(across, sizeof(across), "%s (put)", network);
    snprintf(near, sizeof(near), "SHUNT_TRANSPORTS=shm,%s", network);
    snprintf(late, sizeof(late), "SHUNT_TRANSPORTS=shm,fault+%s", network);
    on_layouts(across, (const char *const[]){near, NULL}, "60");
    on_layouts(across,
               (const char *const[]){near, IN_PARTS, "SHUNT_ZCOPY_MIN=64",
                                     "SHUNT_EAGER=512", NULL},
               "40");
    run_list_on("0,0,1,1", across,
                (const char *const[]){near, "SHUNT_ALGORITHM=flat", NULL},
                LIST("random", "all", "33", "60"));
    run_list_on("0,0,1,1,2,2", across,
                (const char *const[]){near, "SHUNT_ALGORITHM=allreduce=shards",
                                      "SHUNT_EAGER=512", "SHUNT_READ_MIN=1",
                                      NULL},
                LIST("random", "allreduce", "35", "60"));
    run_list_on("0,1,1,2,2,2", "fault (put)",
                (const char *const[]){late, "SHUNT_FAULT=delay=10,reorder",
                                      "SHUNT_ALGORITHM=two_level", NULL},
                LIST("random", "all", "34", "60"));
}

Test(collectives, nodes_tcp)
{
    on_network("tcp");
}

Test(collectives, nodes_ucx)
{
    if (!getenv("SHUNT_TEST_UCX"))
        cr_skip_test("built without UCX");
    on_network("ucx");
}
