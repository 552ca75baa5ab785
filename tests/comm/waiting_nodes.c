// SPDX-License-Identifier: Apache-2.0
/* Large collectives between nodes: calls in one order on all ranks, and waits
 * for them in other calls. */
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

#include "tests/collectives/table.h"
#include "tests/comm/waiting.h"

static const int kinds[] = {BROADCAST, ALLREDUCE, ALLGATHER, REDUCE_SCATTER,
                            ALLTOALL};

/* A collective whose blocks have `count` elements of i32. */
struct large {
    const struct collective *kind;
    int root;
    size_t count;
    int32_t *send, *recv;
    struct shunt_request *request;
};

static int32_t value(int rank, size_t i, int round)
{
    return (int32_t)((unsigned)rank * 1000003u + (unsigned)i * 17u +
                     (unsigned)round);
}

static int large_start(struct large *large, const struct rank *self,
                       struct shunt_comm *comm, int round)
{
    const size_t n = large->count, all = n * (size_t)self->size;
    const struct collective_call call = {.comm = comm,
                                         .send = large->send,
                                         .recv = large->recv,
                                         .count = n,
                                         .dtype = SHUNT_I32,
                                         .op = SHUNT_MAX,
                                         .root = large->root};

    memset(large->recv, 0, all * sizeof(*large->recv));
    for (size_t i = 0; i < all; i++)
        large->send[i] = value(self->rank, i, round);
    if (large->kind == &collectives[BROADCAST] && self->rank == large->root)
        memcpy(large->recv, large->send, n * sizeof(*large->recv));
    CHECK_OK(comm, large->kind->call(&call, &large->request));
    return 0;
}

static int32_t max_of(const struct rank *self, size_t i, int round)
{
    int32_t most = value(0, i, round);

    for (int r = 1; r < self->size; r++)
        if (value(r, i, round) > most)
            most = value(r, i, round);
    return most;
}

static int32_t wanted(const struct large *large, const struct rank *self,
                      size_t i, int round)
{
    const size_t n = large->count;
    const int from = large->kind->from_each ? (int)(i / n) : large->root;
    const size_t at =
        (large->kind->to_each ? (size_t)self->rank * n : 0) + i % n;

    return large->kind->reduces ? max_of(self, at, round)
                                : value(from, at, round);
}

static int large_check(const struct large *large, const struct rank *self,
                       int round)
{
    const size_t n =
        large->count * (large->kind->from_each ? (size_t)self->size : 1);

    for (size_t i = 0; i < n; i++)
        CHECK(large->recv[i] == wanted(large, self, i, round),
              "%s, round %d: element %zu", large->kind->name, round, i);
    return 0;
}

static int large_init(struct large *large, const struct rank *self,
                      const struct collective *kind, size_t bytes)
{
    const bool one = !kind->to_each && !kind->from_each;
    size_t all;

    large->kind = kind;
    large->count = bytes / sizeof(int32_t) / (one ? 1 : (size_t)self->size) + 1;
    all = large->count * (size_t)self->size * sizeof(int32_t);
    large->send = malloc(all);
    large->recv = malloc(all);
    CHECK(large->send && large->recv, "no memory");
    return 0;
}

static void large_finish(struct large *large)
{
    free(large->send);
    free(large->recv);
}

/* Sleeps for a time that differs between ranks. */
static void stagger(const struct rank *self, int round)
{
    unsigned random = (unsigned)(round * 64 + self->rank + 1) * 2654435761u;

    if (random >> 30 == 0)
        sleep_s((double)(random >> 16 & 0xff) * 20e-6);
}

/* Makes the communicator for cases between nodes. On real hosts it is that of
 * the environment. With "virtual" as the third argument each virtual node has
 * two ranks. */
static int nodes_init(const struct rank *self, struct rank *twin)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    bool fake =
        self->threads || (self->argc > 2 && !strcmp(self->argv[2], "virtual"));
    char name[32];

    *twin = *self;
    snprintf(name, sizeof(name), "node%d", self->rank / 2);
    if (fake)
        config.node = name;
    if (self->id) {
        config.transports = "fault+inproc";
        CHECK_OK(NULL, shunt_comm_create(self->id, self->size, self->rank,
                                         &config, &twin->comm));
    } else {
        CHECK_OK(NULL, shunt_comm_create_env(&config, &twin->comm));
    }
    return 0;
}

static int nodes_finish(struct rank *twin)
{
    CHECK_OK(twin->comm, shunt_comm_finish(twin->comm));
    shunt_comm_destroy(twin->comm);
    return 0;
}

static int small_call(struct shunt_comm *comm, const struct rank *self)
{
    int32_t one = self->rank, sum = -1;

    CHECK_OK(comm, shunt_allreduce(comm, &one, &sum, 1, SHUNT_I32, SHUNT_SUM));
    CHECK(sum == self->size * (self->size - 1) / 2, "sum %d", sum);
    return 0;
}

/* Starts a large operation on A, makes a small call on A and one on B, then
 * ends the large operation. The order is the same on all ranks. Arguments:
 * bytes, and rounds of each kind. */
static int same_order(const struct rank *self)
{
    const size_t bytes = (size_t)argument(self, 0, 1 << 20);
    const int rounds = (int)argument(self, 1, 2);
    struct shunt_comm *b;
    struct rank twin;

    CHECK_RUN(nodes_init(self, &twin));
    CHECK_OK(twin.comm, shunt_comm_dup(twin.comm, &b));
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        const struct collective *kind = &collectives[kinds[i]];
        struct large x = {.kind = kind};

        CHECK_RUN(large_init(&x, &twin, kind, bytes));
        for (int k = 0; k < rounds; k++) {
            x.root = k % twin.size;
            CHECK_RUN(large_start(&x, &twin, twin.comm, k));
            stagger(&twin, k);
            CHECK_RUN(small_call(twin.comm, &twin));
            CHECK_RUN(small_call(b, &twin));
            CHECK_OK(twin.comm, shunt_wait(&x.request));
            CHECK_RUN(large_check(&x, &twin, k));
        }
        large_finish(&x);
        if (self->rank == 0 && self->argc)
            rank_say("%s: %d rounds", kind->name, rounds);
    }
    CHECK_OK(b, shunt_comm_finish(b));
    shunt_comm_destroy(b);
    return nodes_finish(&twin);
}

/* A rank that returned from a small call must not be needed by the ranks still
 * in it. So it waits for them outside of the library. Ranks must be threads,
 * which can count returned ranks in memory. */
static int out_of_the_call(const struct rank *self)
{
    static atomic_int out; /* ranks that have returned, over all rounds */
    struct rank twin;
    int round = 0;

    CHECK_RUN(nodes_init(self, &twin));
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        const struct collective *kind = &collectives[kinds[i]];
        struct large x = {.kind = kind};

        CHECK_RUN(large_init(&x, &twin, kind, 3 << 20));
        for (int k = 0; k < twin.size; k++) {
            double start;

            x.root = k % twin.size;
            CHECK_RUN(large_start(&x, &twin, twin.comm, k));
            stagger(&twin, k);
            CHECK_RUN(small_call(twin.comm, &twin));
            round++;
            atomic_fetch_add(&out, 1);
            for (start = now_s(); atomic_load(&out) < round * twin.size;) {
                CHECK(now_s() - start < 20, "%s: %d of %d are out", kind->name,
                      atomic_load(&out) - (round - 1) * twin.size, twin.size);
                sleep_s(1e-4);
            }
            CHECK_OK(twin.comm, shunt_wait(&x.request));
            CHECK_RUN(large_check(&x, &twin, k));
        }
        large_finish(&x);
    }
    return nodes_finish(&twin);
}

const struct rank_case waiting_between_nodes[] = {
    {"same_order", same_order, .no_comm = true, .no_threads = true},
    {"out_of_the_call", out_of_the_call, .no_comm = true, .wants_id = true,
     .min_ranks = 2},
    {.name = NULL},
};
