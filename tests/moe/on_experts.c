// SPDX-License-Identifier: Apache-2.0
/* The cases of rank_experts.c on one host and between virtual nodes. */
#include "tests/harness/together.h"

#include <stdlib.h>
#include <string.h>

static const char *const cases[] = {
    "refresh",
    "refresh_of_windows",
    "reduce",
    "move",
    "move_in_place",
    "under_way",
    "refused",
    "mismatch",
    "plans_of_old_placements",
    "old_plan_by_mistake",
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

static const struct setting {
    const char *name;
    struct harness_job job;
} settings[] = {
    {"3 ranks on one node", {.ranks = 3}},
    {"2 ranks that stream",
     {.ranks = 2, .env = {"SHUNT_CMA=off", "SHUNT_EAGER=64"}}},
    {"2x2, SHM puts",
     {.ranks = 4,
      .env = {"SHUNT_TEST_NODES=0,0,1,1", "SHUNT_TEST_ACROSS=shm (put)",
              "SHUNT_TRANSPORTS=shm"}}},
    {"2x2, TCP between nodes, zero copy",
     {.ranks = 4,
      .env = {"SHUNT_TEST_NODES=0,0,1,1", "SHUNT_TEST_ACROSS=tcp (put)",
              "SHUNT_TRANSPORTS=shm,tcp", "SHUNT_ZCOPY_MIN=256",
              "SHUNT_MOE_RECORDS=0"}}},
    {"1, 2 and 3, late and out of order",
     {.ranks = 6,
      .env = {"SHUNT_TEST_NODES=0,1,1,2,2,2", "SHUNT_TEST_ACROSS=fault (put)",
              "SHUNT_TRANSPORTS=fault+shm",
              "SHUNT_FAULT=delay=20,reorder,seed=5"}}},
    {"1, 2 and 3, a progress thread",
     {.ranks = 6,
      .env = {"SHUNT_TEST_NODES=0,1,1,2,2,2", "SHUNT_TRANSPORTS=shm,tcp",
              "SHUNT_PROGRESS=thread"}}},
    {"six nodes",
     {.ranks = 7,
      .env = {"SHUNT_TEST_NODES=0,1,2,3,4,5,5", "SHUNT_TEST_ACROSS=shm (put)",
              "SHUNT_TRANSPORTS=shm"}}},
    {"2x2, UCX between nodes",
     {.ranks = 4,
      .env = {"SHUNT_TEST_NODES=0,0,1,1", "SHUNT_TEST_ACROSS=ucx (put)",
              "SHUNT_TRANSPORTS=shm,ucx"}}},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

static const char *const example[] = {"worked_example"};

int main(void)
{
    struct tap tap = {0};

    for (size_t s = 0; s < SETTINGS; s++) {
        struct together t = {
            .setting = settings[s].name,
            .job = settings[s].job,
            .cases = cases,
            .count = CASES,
        };

        t.job.program = "rank_experts";
        t.job.timeout_s = 60;
        if (strstr(t.setting, "UCX") && !getenv("SHUNT_TEST_UCX"))
            continue; /* UCX was not built */
        together_run(&tap, &t);
        if (t.job.ranks != 4)
            continue;
        t.cases = example;
        t.count = 1;
        together_run(&tap, &t);
    }
    return tap_end(&tap);
}
