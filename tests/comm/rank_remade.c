// SPDX-License-Identifier: Apache-2.0
/*
 * Creates a communicator from another one while system calls fail on one rank.
 * Each call by which that rank asks the kernel for something fails in turn. The
 * creation must fail on all ranks or on none, in time, with a text that names
 * the rank. The old communicator must still work, and the same creation must
 * succeed when it is repeated.
 *
 *     rank_remade dup|split VICTIM
 *
 * With REMADE_SAYS in the environment it prints the call that failed, and the
 * errors.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shunt/shunt.h>

#include "tests/harness/failing_calls.h"
#include "tests/harness/rank_main.h"

enum { MAX_RANKS = 8, SECONDS = 2 /* SHUNT_TIMEOUT is much longer */ };

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int sum_on(struct shunt_comm *comm, const char *what)
{
    const int size = shunt_comm_size(comm);
    int32_t mine = 1 + shunt_comm_rank(comm), sum = 0;

    CHECK_OK(comm, shunt_allreduce(comm, &mine, &sum, 1, SHUNT_I32, SHUNT_SUM));
    CHECK(sum == size * (size + 1) / 2, "%s: sum %d", what, sum);
    return 0;
}

static enum shunt_status make(const struct rank *self, struct shunt_comm **made)
{
    if (!strcmp(self->argv[-1], "dup"))
        return shunt_comm_dup(self->comm, made);
    return shunt_comm_split(self->comm, 0, -self->rank, made);
}

/* Creates a communicator while call n of the victim fails. *was is true if the
 * victim makes so many calls. */
static int make_without(const struct rank *self, int victim, long n, bool *was)
{
    struct shunt_comm *made = NULL;
    int32_t mine[2], all[MAX_RANKS][2];
    const double began = now_s();
    enum shunt_status st;
    const char *lacks;
    char why[512], name[16];

    snprintf(name, sizeof(name), "rank %d", victim);
    if (self->rank == victim)
        failing_calls_nth(n);
    st = make(self, &made);
    failing_calls_nth(0);
    lacks = self->rank == victim ? failing_calls_failed() : NULL;
    snprintf(why, sizeof(why), "%s",
             st ? shunt_last_error(self->comm) : "no error");
    if (getenv("REMADE_SAYS"))
        rank_say("%ld %s: %d %s", n, lacks ? lacks : "", (int)st, why);
    CHECK(now_s() - began < SECONDS, "%ld: %.1f s: %s", n, now_s() - began,
          why);
    CHECK(!st == !(!made), "%ld: %s", n, why);
    CHECK(!st || self->rank == victim || strstr(why, name),
          "%ld: does not name rank %d: %s", n, victim, why);
    mine[0] = lacks != NULL;
    mine[1] = st;
    CHECK_OK(self->comm, shunt_allgather(self->comm, mine, all, 2, SHUNT_I32));
    for (int r = 0; r < self->size; r++)
        CHECK(!all[r][1] == !st, "%ld: rank %d: %s; rank %d: %s", n, self->rank,
              why, r, shunt_strerror((enum shunt_status)all[r][1]));
    *was = all[victim][0];
    CHECK(*was || !st, "nothing failed, but %s", why);
    if (made)
        CHECK_RUN(sum_on(made, "the new one"));
    shunt_comm_destroy(made);
    return 0;
}

static int remade(const struct rank *self)
{
    const int victim = atoi(self->argv[0]);
    bool was = true;
    long n = 1;

    CHECK(self->size <= MAX_RANKS && victim < self->size, "arguments");
    for (; was; n++) {
        struct shunt_comm *made = NULL;

        CHECK_RUN(make_without(self, victim, n, &was));
        CHECK_RUN(sum_on(self->comm, "the old one"));
        CHECK_OK(self->comm, make(self, &made));
        CHECK_RUN(sum_on(made, "once more"));
        shunt_comm_destroy(made);
    }
    CHECK(n > 5, "only %ld calls", n);
    if (self->rank == 0)
        rank_say("%ld calls failed", n - 2);
    return 0;
}

static const struct rank_case cases[] = {
    {"dup", remade, .no_threads = true, .min_ranks = 2},
    {"split", remade, .no_threads = true, .min_ranks = 2},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
