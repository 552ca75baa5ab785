// SPDX-License-Identifier: Apache-2.0
/* shunt-info prints complete output, and its exit status has a meaning. */

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/harness/harness.h"

TestSuite(shunt_info, .timeout = 60);

static struct harness *run(const char *option, const char *env, int exit_code)
{
    char path[512];
    struct harness *h;

    snprintf(path, sizeof(path), "%s/tools/shunt-info",
             getenv("SHUNT_TEST_BUILD"));
    h = harness_start(&(struct harness_job){
        .program = path, .args = {option}, .env = {env}, .no_launch = true});
    harness_wait(h);
    cr_assert_eq(harness_rank(h, 0)->exit_code, exit_code, "%s",
                 harness_story(h));
    return h;
}

static void expect(struct harness *h, const char *part)
{
    cr_assert(strstr(harness_rank(h, 0)->out, part), "no '%s' in\n%s", part,
              harness_rank(h, 0)->out);
    harness_finish(h);
}

Test(shunt_info, overview)
{
    expect(run(NULL, NULL, 0), "shm           usable");
}

static int order(const char *out, const char *first, const char *second)
{
    const char *a = strstr(out, first), *b = strstr(out, second);

    return a && b && a < b;
}

/* Transports that wrap others are last, each in one line. If only transports
 * are asked for, they have more lines. */
Test(shunt_info, wrappers_are_last)
{
    struct harness *h = run(NULL, NULL, 0);
    const char *out = harness_rank(h, 0)->out;

    cr_assert(order(out, "\n  shm  ", "\n  fault  "), "%s", out);
    cr_assert(order(out, "\n  inproc  ", "\n  fault  "), "%s", out);
    const char *line = strstr(out, "\n  fault  ") + 1;
    line = strchr(line, '\n') + 1;
    cr_assert(!strncmp(line, "  trace  ", 9), "%s", out);
    cr_assert(!strncmp(strchr(line, '\n'), "\n  chosen ", 10), "%s", out);
    harness_finish(h);
    expect(run("-t", NULL, 0), "nomap: peers'");
}

Test(shunt_info, copy_engines)
{
    expect(run("-t", NULL, 0), "dma           not used: SHUNT_ENGINE does not");
    expect(run("-t", "SHUNT_ENGINE=dma", 0),
           "\nCopy engines, in the order of SHUNT_ENGINE (dma)\n  dma ");
}

/* The list has the network devices of the kernel without the loopback. There
 * may be none. */
Test(shunt_info, network_devices)
{
    struct harness *h = run("--json", NULL, 0);
    cJSON *json = cJSON_Parse(harness_rank(h, 0)->out);
    const cJSON *network = cJSON_GetObjectItem(json, "network"), *device;
    char path[512];

    cr_assert(cJSON_IsArray(network));
    cJSON_ArrayForEach(device, network)
    {
        const char *name = cJSON_GetObjectItem(device, "name")->valuestring;

        cr_assert_str_neq(name, "lo");
        snprintf(path, sizeof(path), "/sys/class/net/%s", name);
        if (!strcmp(cJSON_GetObjectItem(device, "kind")->valuestring,
                    "interface"))
            cr_assert_eq(access(path, F_OK), 0, "%s", path);
    }
    cJSON_Delete(json);
    harness_finish(h);
    expect(run("-m", NULL, 0), "\nNetwork devices\n  ");
}

Test(shunt_info, variables)
{
    expect(run("--env", NULL, 0), "SHUNT_TIMEOUT\n");
    /* Variables of folders above the core, and of a binding that this program
     * lacks. */
    expect(run("--env", NULL, 0), "SHUNT_MOE_CHUNK\n");
    expect(run("--env", "SHUNT_MPI=off", 0), "SHUNT_MPI=off\n");
    expect(run("--env", "SHUNT_MPI=maybe", 1), "off|on|force");
    expect(run("--env", "SHUNT_TIMEOUT=soon", 1), "not valid");
}

/* Mistakes are listed with every option, but never values that may be
 * secret. */
Test(shunt_info, mistakes_are_listed)
{
    static const char *const parts[] = {NULL, "--env", "-t", "-m"};

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        expect(run(parts[i], "SHUNT_SPIN=fast", 1),
               "SHUNT_SPIN='fast' is not valid: it takes a number");
        struct harness *h = run(parts[i], "SHUNT_SECRTE=swordfish", 1);
        cr_assert(!strstr(harness_rank(h, 0)->out, "swordfish"));
        expect(h, "SHUNT_SECRTE: there is no such variable; the nearest name "
                  "is SHUNT_SECRET\n");
        expect(run(parts[i], "SHUNT_ALGORITHM=flat,allgather=tow_level", 1),
               "'allgather=tow_level' names no algorithm");
        expect(run(parts[i], "SHUNT_ALGORITHM=broadcast=atuo", 1),
               "'broadcast=atuo' names no algorithm");
        expect(run(parts[i], "SHUNT_ALGORITHM=flat,star:4k", 1),
               "'star:4k' has no range of sizes such as 0-16k");
        h = run(parts[i], "SHUNT_ALGORITHM=auto,flat,allgather=auto", 0);
        cr_assert(!strstr(harness_rank(h, 0)->out, "names no algorithm"));
        harness_finish(h);
        expect(run(parts[i], "SHUNT_LOG=inof", 1), "SHUNT_LOG='inof'");
    }
    struct harness *h = run("--json", "SHUNT_TIMOUT=3", 1);
    cJSON *json = cJSON_Parse(harness_rank(h, 0)->out);
    const cJSON *m =
        cJSON_GetArrayItem(cJSON_GetObjectItem(json, "mistakes"), 0);
    cr_assert_str_eq(cJSON_GetObjectItem(m, "name")->valuestring,
                     "SHUNT_TIMOUT");
    cr_assert_str_eq(cJSON_GetObjectItem(m, "nearest")->valuestring,
                     "SHUNT_TIMEOUT");
    cJSON_Delete(json);
    harness_finish(h);
}

/* Check the output of --algorithms on rank 0 of two ranks that share a CPU. */
static void expect_algorithms(const char *env, const char *more,
                              const char *part)
{
    static const char script[] =
        "cpu=$(taskset -cp $$ | sed 's/.*: *\\([0-9]*\\).*/\\1/'); "
        "exec taskset -c $cpu $SHUNT_TEST_BUILD/tools/shunt-info --algorithms";
    struct harness *h =
        harness_start(&(struct harness_job){.program = "/bin/sh",
                                            .args = {"-c", script},
                                            .ranks = 2,
                                            .env = {env, more}});

    cr_assert(harness_wait(h), "%s", harness_story(h));
    expect(h, part);
}

Test(shunt_info, algorithms)
{
    expect_algorithms("SHUNT_TRANSPORTS=shm", NULL,
                      "  barrier          star\n  broadcast        star\n");
    expect_algorithms("SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap",
                      "  barrier          flat\n  broadcast        flat\n");
}

/* Check the output of --ways on rank 0 of two ranks. */
static void expect_way(const char *env, const char *more, const char *part,
                       const char *or_part)
{
    char path[512];
    struct harness *h;
    const char *out;

    snprintf(path, sizeof(path), "%s/tools/shunt-info",
             getenv("SHUNT_TEST_BUILD"));
    h = harness_start(&(struct harness_job){
        .program = path, .args = {"--ways"}, .ranks = 2, .env = {env, more}});
    cr_assert(harness_wait(h), "%s", harness_story(h));
    out = harness_rank(h, 0)->out;
    cr_assert(strstr(out, part) || strstr(out, or_part), "no '%s' in\n%s", part,
              out);
    cr_assert_str_eq(harness_rank(h, 1)->out, "");
    harness_finish(h);
}

/* Check the costs if the kernel lets ranks read each other's memory. The
 * cheaper protocol depends on the CPUs of the ranks, but both must have been
 * measured. */
static void expect_costs(void)
{
    char path[512];
    struct harness *h;
    const char *out, *costs;
    double ring, read, large;

    snprintf(path, sizeof(path), "%s/tools/shunt-info",
             getenv("SHUNT_TEST_BUILD"));
    h = harness_start(
        &(struct harness_job){.program = path, .args = {"--ways"}, .ranks = 2});
    cr_assert(harness_wait(h), "%s", harness_story(h));
    out = harness_rank(h, 0)->out;
    costs = strstr(out, "64 KiB cost");
    if (costs) {
        cr_assert_eq(sscanf(costs,
                            "64 KiB cost %lf us through shared memory; by the "
                            "kernel %lf us in the smallest blocks, %lf us",
                            &ring, &read, &large),
                     3, "%s", out);
        cr_assert(ring > 0 && read > 0 && large > 0, "%s", out);
    } else {
        cr_assert(strstr(out, "the kernel does not let"), "%s", out);
    }
    harness_finish(h);
}

Test(shunt_info, ways)
{
    const char *forbidden = "the kernel does not let";
    struct harness *h;

    expect_costs();
    expect_way("SHUNT_READ_MIN=65536", NULL,
               "read by the kernel from 65536 B on", forbidden);
    expect_way("SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap",
               "rank 1: not mapped", "rank 1: not mapped");
    h = run("--ways", NULL, 2);
    cr_assert(strstr(harness_rank(h, 0)->err, "start two or more"));
    harness_finish(h);
}

Test(shunt_info, secrets_stay_secret)
{
    struct harness *h = run("--env", "SHUNT_SECRET=swordfish", 0);

    cr_assert(!strstr(harness_rank(h, 0)->out, "swordfish"));
    expect(h, "SHUNT_SECRET=(set)");
    h = run("--json", "SHUNT_SECRET=swordfish", 0);
    cr_assert(!strstr(harness_rank(h, 0)->out, "swordfish"));
    harness_finish(h);
}

Test(shunt_info, settings_that_cannot_work)
{
    expect(run("-t", "SHUNT_TRANSPORTS=pigeon", 1), "pigeon");
    expect(run("-m", "RANK=zero", 1), "WORLD_SIZE");
    harness_finish(run("--no-such-option", NULL, 2));
    harness_finish(run("superfluous", NULL, 2));
}

/* Options are single letters here, so that one argument has two of them. */
Test(shunt_info, options_that_exclude_each_other)
{
    static const char *const pairs[] = {"-je", "-jt", "-jm", "-ja", "-jw",
                                        "-Ta", "-Tw", "-aw", "-Te", "-wt"};

    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++)
        harness_finish(run(pairs[i], NULL, 2));
    harness_finish(run("-etm", NULL, 0));
    harness_finish(run("-jT", "SHUNT_LOG=off", 0));
}

Test(shunt_info, help)
{
    expect(run("--help", NULL, 0), "Examples:");
    expect(run("--version", NULL, 0), "shunt-info 0.");
}

Test(shunt_info, json)
{
    struct harness *h = run("--json", NULL, 0);
    cJSON *json = cJSON_Parse(harness_rank(h, 0)->out);
    const cJSON *chosen;

    cr_assert(json, "%s", harness_rank(h, 0)->out);
    chosen = cJSON_GetObjectItem(json, "chosen");
    cr_assert_geq(cJSON_GetArraySize(chosen), 1);
    cr_assert_geq(cJSON_GetArraySize(cJSON_GetObjectItem(json, "variables")),
                  10);
    cJSON_Delete(json);
    harness_finish(h);
}
