// SPDX-License-Identifier: Apache-2.0
/* The cases of rank_shares.c on one host and between virtual nodes. */
#include "tests/harness/together.h"

static const char *const cases[] = {
    "same_bits",          "batch",           "waves",    "refused",
    "last_expert_alone",  "options_refused", "mismatch", "gradients_refused",
    "gradients_mismatch",
};
#define CASES_OF_ONE 3 /* the other cases need a rank 1 that makes a mistake */
#define CASES (sizeof(cases) / sizeof(cases[0]))

#define N22 "SHUNT_TEST_NODES=0,0,1,1"
#define N222 "SHUNT_TEST_NODES=0,0,1,1,2,2"
#define N44 "SHUNT_TEST_NODES=0,0,0,0,1,1,1,1"
#define N123 "SHUNT_TEST_NODES=0,1,1,2,2,2"

static const struct setting {
    const char *name;
    struct harness_job job;
} settings[] = {
    {"1 rank", {.ranks = 1}},
    {"2 ranks that stream",
     {.ranks = 2, .env = {"SHUNT_CMA=off", "SHUNT_EAGER=64"}}},
    {"4 ranks, flat", {.ranks = 4, .env = {"SHUNT_MOE_MODE=flat"}}},
    {"8 ranks, few records", {.ranks = 8, .env = {"SHUNT_MOE_RECORDS=0"}}},
    {"2x2, TCP between nodes, few records",
     {.ranks = 4,
      .env = {N22, "SHUNT_TEST_ACROSS=tcp (put)", "SHUNT_TRANSPORTS=shm,tcp",
              "SHUNT_MOE_RECORDS=0"}}},
    {"3x2, two levels, a row at a time",
     {.ranks = 6,
      .env = {N222, "SHUNT_TRANSPORTS=shm,tcp", "SHUNT_MOE_MODE=two-level",
              "SHUNT_MOE_CHUNK=1"}}},
    {"2x4, two levels, SHM puts",
     {.ranks = 8,
      .env = {N44, "SHUNT_TRANSPORTS=shm", "SHUNT_MOE_MODE=two-level"}}},
    {"1, 2 and 3, two levels there, flat home",
     {.ranks = 6,
      .env = {N123, "SHUNT_TRANSPORTS=shm,tcp",
              "SHUNT_MOE_MODE=two-level,flat"}}},
    {"1, 2 and 3, all-gather, late and out of order",
     {.ranks = 6,
      .env = {N123, "SHUNT_TEST_ACROSS=fault (put)",
              "SHUNT_TRANSPORTS=fault+shm",
              "SHUNT_FAULT=delay=20,reorder,seed=5",
              "SHUNT_MOE_MODE=allgather"}}},
    {"2x2, a progress thread",
     {.ranks = 4,
      .env = {N22, "SHUNT_TRANSPORTS=shm,tcp", "SHUNT_PROGRESS=thread"}}},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

int main(void)
{
    struct tap tap = {0};

    for (size_t s = 0; s < SETTINGS; s++) {
        struct together t = {
            .setting = settings[s].name,
            .job = settings[s].job,
            .cases = cases,
            .count = settings[s].job.ranks > 1 ? CASES : CASES_OF_ONE,
        };

        /* A brief run has a third of the cases in each setting. The next
         * setting has the next third. */
        if (harness_brief() && t.job.ranks > 1) {
            t.count = CASES / 3;
            t.cases += s % 3 * CASES / 3;
        }
        t.job.program = "rank_shares";
        t.job.timeout_s = 60;
        together_run(&tap, &t);
    }
    return tap_end(&tap);
}
