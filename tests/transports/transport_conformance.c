// SPDX-License-Identifier: Apache-2.0
/*
 * Tests of the contract in include/shunt/transport.h, for any transport.
 *
 *     transport_conformance [--threads] [--case NAME] [--rounds N] NAME[+OPTIONS]
 *
 * prints TAP. Ranks are processes, or threads of one process. The environment
 * configures a wrapper (SHUNT_FAULT). --rounds: rounds of the case `remapped`,
 * which otherwise has only a few.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/transports/cases.h"

/* Cases that set what NICs do run in only one row of the suite. If such a case
 * is named by --case, it runs in any row that uses the stand-in for
 * libibverbs. */
static bool is_left_out(const struct test_case *c, const char *only)
{
    if (!c->own_nics)
        return false;
    return only ? !getenv("SHUNT_TEST_VERBS") : !case_rdma_is_row_of_own_nics();
}

static int run_all(const char *spec, const char *only, bool threads)
{
    char name[64];
    const char *plus = strchr(spec, '+');
    const struct shunt_transport *t;
    int number = 0, bad = 0;

    snprintf(name, sizeof(name), "%.*s",
             plus ? (int)(plus - spec) : (int)strlen(spec), spec);
    t = world_find(name);
    if (!t) {
        printf("Bail out! no transport %s\n", name);
        return 1;
    }
    for (const struct test_case *c = transport_cases; c->name; c++) {
        if ((only && strcmp(only, c->name)) || (c->processes && threads) ||
            (c->only && strcmp(c->only, name)) || is_left_out(c, only))
            continue;
        for (int i = 0; c->nranks[i]; i++) {
            double start = world_now();
            bool ok =
                world_run(c, t, plus ? plus + 1 : "", c->nranks[i], threads);

            printf("%sok %d - %s %s, %d %s # %.2f s\n", ok ? "" : "not ",
                   ++number, spec, c->name, c->nranks[i],
                   threads ? "threads" : "processes", world_now() - start);
            fflush(stdout);
            bad += !ok;
        }
    }
    printf("1..%d\n", number);
    return bad > 0 || number == 0;
}

int main(int argc, char **argv)
{
    const char *only = NULL, *spec = NULL;
    bool threads = false;
    struct rlimit limit;

    /* Threads share one table of descriptors. The usual limit of 1024 is too
     * low for them. */
    if (!getrlimit(RLIMIT_NOFILE, &limit)) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--threads"))
            threads = true;
        else if (!strcmp(argv[i], "--case") && i + 1 < argc)
            only = argv[++i];
        else if (!strcmp(argv[i], "--rounds") && i + 1 < argc)
            transport_rounds = atoi(argv[++i]);
        else
            spec = argv[i];
    }
    if (transport_rounds > 1000)
        world_patience += transport_rounds / 200.0;
    if (!spec) {
        fprintf(stderr, "usage: %s [--threads] [--case NAME] NAME[+OPTIONS]\n",
                argv[0]);
        return 2;
    }
    return run_all(spec, only, threads);
}
