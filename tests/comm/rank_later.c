// SPDX-License-Identifier: Apache-2.0
/*
 * Creates further communicators beside an existing one that has a rank on each
 * host: from that one (dup, split, shrink), and from an id. on_hosts runs these
 * cases on hosts whose first address cannot be reached from other hosts.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

/* Each creation must end within this time, which is much shorter than
 * SHUNT_TIMEOUT. */
#define SECONDS 5.0

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Checks that `made` was created in time, works and has `size` ranks, then ends
 * it. Its creation began at `began`. */
static int use(struct shunt_comm *made, int size, const char *how, int maker,
               double began)
{
    int32_t one = 1, sum = 0;

    CHECK(now_s() - began < SECONDS, "%s, made on rank %d: %.1f s", how, maker,
          now_s() - began);
    CHECK(shunt_comm_size(made) == size, "%s: %d ranks, not %d", how,
          shunt_comm_size(made), size);
    CHECK_OK(made, shunt_allreduce(made, &one, &sum, 1, SHUNT_I32, SHUNT_SUM));
    CHECK(sum == size, "%s: sum %d, not %d", how, sum, size);
    CHECK_OK(made, shunt_comm_finish(made));
    shunt_comm_destroy(made);
    return 0;
}

/* Splits off all ranks from `maker` on; `maker` makes the id. */
static int split_from(const struct rank *self, int maker)
{
    struct shunt_comm *made = NULL;
    const double began = now_s();

    CHECK_OK(self->comm, shunt_comm_split(self->comm, self->rank >= maker,
                                          -self->rank, &made));
    return use(made, self->rank < maker ? maker : self->size - maker, "split",
               maker, began);
}

static int id_of(const struct rank *self, int maker)
{
    struct shunt_comm *made = NULL;
    struct shunt_id id;
    double began;

    if (self->rank == maker)
        CHECK_OK(NULL, shunt_id_create(&id));
    CHECK_OK(self->comm,
             shunt_broadcast(self->comm, &id, sizeof(id), SHUNT_U8, maker));
    began = now_s();
    CHECK_OK(NULL, shunt_comm_create(&id, self->size, self->rank, self->config,
                                     &made));
    return use(made, self->size, "id", maker, began);
}

static int made_later(const struct rank *self)
{
    struct shunt_comm *made = NULL;
    const double began = now_s();

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &made));
    CHECK_RUN(use(made, self->size, "dup", 0, began));
    for (int maker = 0; maker < self->size; maker++) {
        CHECK_RUN(split_from(self, maker));
        CHECK_RUN(id_of(self, maker));
    }
    return 0;
}

/* args: the rank that is lost. The lowest other rank makes the id. */
static int shrunk_later(const struct rank *self)
{
    const int victim = atoi(self->argv[0]);
    struct shunt_comm *made = NULL;
    enum shunt_status st = shunt_barrier(self->comm);
    const int *lost;
    size_t count;
    double began;

    if (self->rank == victim)
        _exit(st != SHUNT_OK);
    while (!st)
        st = shunt_barrier(self->comm);
    began = now_s();
    CHECK_OK(self->comm, shunt_comm_shrink(self->comm, &made));
    CHECK_OK(self->comm, shunt_comm_lost(self->comm, &lost, &count));
    CHECK(count == 1 && lost[0] == victim, "%zu lost, rank %d", count,
          count ? lost[0] : -1);
    return use(made, self->size - 1, "shrink", victim ? 0 : 1, began);
}

static const struct rank_case cases[] = {
    {"made_later", made_later, .min_ranks = 2},
    {"shrunk_later", shrunk_later, .breaks_comm = true, .no_threads = true,
     .min_ranks = 3},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
