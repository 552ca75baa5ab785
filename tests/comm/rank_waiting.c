// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of test_waiting.c and on_hosts. They wait while operations on other
 * communicators are under way, and with a progress thread.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shunt/shunt.h>

#include "tests/comm/swap.h"
#include "tests/comm/waiting.h"

double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void sleep_s(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};

    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

long argument(const struct rank *self, int i, long otherwise)
{
    return i < self->argc ? atol(self->argv[i]) : otherwise;
}

/* --- two communicators ------------------------------------------------------ */

struct pair {
    struct shunt_comm *a, *b;
    struct swap x, y; /* on `a` and on `b` */
};

static int pair_init(struct pair *pair, const struct rank *self, size_t bytes)
{
    pair->a = self->comm;
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &pair->b));
    CHECK_RUN(swap_init(&pair->x, self, bytes));
    return swap_init(&pair->y, self, bytes);
}

static int pair_finish(struct pair *pair)
{
    CHECK_OK(pair->b, shunt_comm_finish(pair->b));
    shunt_comm_destroy(pair->b);
    swap_finish(&pair->x);
    swap_finish(&pair->y);
    return 0;
}

static int pair_check(const struct pair *pair, const struct rank *self,
                      int round)
{
    CHECK_RUN(swap_check(&pair->x, self, round));
    return swap_check(&pair->y, self, round);
}

static bool is_even(const struct rank *self, int round)
{
    return (self->rank + round) % 2 == 0;
}

#define ROUNDS 4
#define BLOCK ((size_t)100 << 10) /* more than the rings can hold */

/* Some ranks wait for the requests {A, B}, others for {B, A}. */
static int wait_all_in_other_order(const struct rank *self)
{
    struct pair pair;

    CHECK_RUN(pair_init(&pair, self, BLOCK));
    for (int k = 0; k < ROUNDS; k++) {
        struct shunt_request *requests[2];
        bool even = is_even(self, k);

        CHECK_RUN(swap_start(&pair.x, self, pair.a, k));
        CHECK_RUN(swap_start(&pair.y, self, pair.b, k));
        requests[even] = pair.x.request;
        requests[!even] = pair.y.request;
        CHECK_OK(pair.a, shunt_wait_all(requests, 2));
        CHECK(!requests[0] && !requests[1], "requests are NULL");
        CHECK_RUN(pair_check(&pair, self, k));
    }
    return pair_finish(&pair);
}

/* Some ranks start on B, call on A and then wait on B. Others call on B
 * first. */
static int start_here_call_there(const struct rank *self)
{
    struct pair pair;

    CHECK_RUN(pair_init(&pair, self, BLOCK));
    for (int k = 0; k < ROUNDS; k++) {
        if (is_even(self, k)) {
            CHECK_RUN(swap_start(&pair.y, self, pair.b, k));
            CHECK_RUN(swap_block(&pair.x, self, pair.a, k));
            CHECK_OK(pair.b, shunt_wait(&pair.y.request));
        } else {
            CHECK_RUN(swap_block(&pair.y, self, pair.b, k));
            CHECK_RUN(swap_block(&pair.x, self, pair.a, k));
        }
        CHECK_RUN(pair_check(&pair, self, k));
    }
    return pair_finish(&pair);
}

static int test_until_done(struct shunt_comm *comm,
                           struct shunt_request **request)
{
    const double start = now_s();
    enum shunt_status st;

    while ((st = shunt_test(request)) == SHUNT_IN_PROGRESS)
        CHECK(now_s() - start < 20, "tested for 20 s");
    CHECK_OK(comm, st);
    return 0;
}

/* A rank that only tests one communicator must progress the other, too. */
static int test_in_other_order(const struct rank *self)
{
    struct pair pair;

    CHECK_RUN(pair_init(&pair, self, BLOCK));
    for (int k = 0; k < 4; k++) {
        CHECK_RUN(swap_start(&pair.x, self, pair.a, k));
        CHECK_RUN(swap_start(&pair.y, self, pair.b, k));
        if (is_even(self, k)) {
            CHECK_RUN(test_until_done(pair.a, &pair.x.request));
            CHECK_OK(pair.b, shunt_wait(&pair.y.request));
        } else {
            CHECK_RUN(test_until_done(pair.b, &pair.y.request));
            CHECK_OK(pair.a, shunt_wait(&pair.x.request));
        }
        CHECK_RUN(pair_check(&pair, self, k));
    }
    return pair_finish(&pair);
}

/* Some ranks create a communicator, from A or from B, before they wait. Others
 * wait first. */
static int dup_meanwhile(const struct rank *self)
{
    struct pair pair;

    CHECK_RUN(pair_init(&pair, self, BLOCK));
    for (int k = 0; k < 6; k++) {
        struct shunt_comm *from = k % 4 < 2 ? pair.a : pair.b, *twin;
        const bool even = is_even(self, k);

        CHECK_RUN(swap_start(&pair.x, self, pair.a, k));
        if (!even)
            CHECK_OK(pair.a, shunt_wait(&pair.x.request));
        CHECK_OK(from, shunt_comm_dup(from, &twin));
        if (even)
            CHECK_OK(pair.a, shunt_wait(&pair.x.request));
        CHECK_RUN(swap_check(&pair.x, self, k));
        CHECK_OK(twin, shunt_comm_finish(twin));
        shunt_comm_destroy(twin);
    }
    return pair_finish(&pair);
}

/* Several operations are under way at a time. Each rank starts and waits for
 * them in an order of its own. */
static int many_communicators(const struct rank *self)
{
    enum { COMMS = 20 };
    struct shunt_request *requests[COMMS];
    struct shunt_comm *comms[COMMS];
    struct swap swaps[COMMS];
    unsigned random = 77u + (unsigned)self->rank;
    int order[COMMS];

    for (int i = 0; i < COMMS; i++) {
        CHECK_OK(self->comm, shunt_comm_dup(self->comm, &comms[i]));
        CHECK_RUN(swap_init(&swaps[i], self, 20000));
        order[i] = i;
    }
    for (int k = 0; k < 5; k++) {
        for (int i = COMMS - 1; i > 0; i--) {
            int j =
                (int)((random = random * 1103515245u + 12345u) >> 16) % (i + 1);
            int swapped = order[i];

            order[i] = order[j];
            order[j] = swapped;
        }
        for (int i = 0; i < COMMS; i++)
            CHECK_RUN(swap_start(&swaps[order[i]], self, comms[order[i]], k));
        for (int i = 0; i < COMMS; i++)
            requests[i] = swaps[order[COMMS - 1 - i]].request;
        CHECK_OK(comms[0], shunt_wait_all(requests, COMMS));
        for (int i = 0; i < COMMS; i++)
            CHECK_RUN(swap_check(&swaps[i], self, k));
    }
    for (int i = 0; i < COMMS; i++) {
        CHECK_OK(comms[i], shunt_comm_finish(comms[i]));
        shunt_comm_destroy(comms[i]);
        swap_finish(&swaps[i]);
    }
    return 0;
}

/* --- several threads of a rank --------------------------------------------- */

struct helper {
    const struct rank *self;
    struct pair *pair;
    int round;
    int failed;
};

static int wait_and_block(struct helper *helper)
{
    struct pair *pair = helper->pair;

    CHECK_OK(pair->a, shunt_wait(&pair->x.request));
    CHECK_RUN(swap_check(&pair->x, helper->self, helper->round));
    return swap_block(&pair->x, helper->self, pair->a, helper->round);
}

static void *help(void *arg)
{
    struct helper *helper = arg;

    helper->failed = wait_and_block(helper);
    return NULL;
}

/* One thread starts an operation, another thread waits for it. Meanwhile the
 * first thread waits on another communicator. */
static int handed_to_a_thread(const struct rank *self)
{
    struct pair pair;

    CHECK_RUN(pair_init(&pair, self, BLOCK));
    for (int k = 0; k < 6; k++) {
        struct helper helper = {self, &pair, k, 0};
        pthread_t thread;

        CHECK_RUN(swap_start(&pair.x, self, pair.a, k));
        CHECK(!pthread_create(&thread, NULL, help, &helper), "thread");
        for (int i = 0; i < 3; i++)
            CHECK_RUN(swap_block(&pair.y, self, pair.b, k));
        pthread_join(thread, NULL);
        CHECK_RUN(helper.failed);
        CHECK_RUN(pair_check(&pair, self, k));
    }
    return pair_finish(&pair);
}

static void *destroy(void *arg)
{
    shunt_comm_destroy(arg);
    return NULL;
}

/* Another thread destroys a communicator with an operation under way, while
 * this thread waits elsewhere. */
static int destroyed_by_a_thread(const struct rank *self)
{
    struct pair pair;

    CHECK_RUN(pair_init(&pair, self, BLOCK));
    for (int k = 0; k < 10; k++) {
        struct shunt_comm *twin;
        enum shunt_status st;
        pthread_t thread;

        CHECK_OK(pair.a, shunt_comm_dup(pair.a, &twin));
        swap_fill(&pair.x, self, k);
        st = shunt_alltoall_start(twin, pair.x.send, pair.x.recv, pair.x.bytes,
                                  SHUNT_U8, &pair.x.request);
        /* Another rank may have destroyed its communicator before. */
        CHECK(!st || st == SHUNT_ERR_PEER, "%s", rank_why(twin, st));
        CHECK(!pthread_create(&thread, NULL, destroy, twin), "thread");
        for (int i = 0; i < 3; i++)
            CHECK_RUN(swap_block(&pair.y, self, pair.b, k));
        CHECK_RUN(swap_check(&pair.y, self, k));
        pthread_join(thread, NULL);
    }
    return pair_finish(&pair);
}

/* --- failures --------------------------------------------------------------- */

/* The last rank leaves A while the others wait on B. Their operation on A must
 * have an error when they wait for it, and B must still work. */
static int lost_elsewhere(const struct rank *self)
{
    const int last = self->size - 1;
    enum shunt_status st;
    struct shunt_comm *a;
    struct pair pair;
    char name[32];

    CHECK_RUN(pair_init(&pair, self, 1000));
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &a));
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    if (self->rank == last) {
        shunt_comm_destroy(a);
        sleep_s(0.3); /* so that the others wait by then */
        CHECK_RUN(swap_block(&pair.y, self, pair.b, 0));
        return pair_finish(&pair);
    }
    st = shunt_alltoall_start(a, pair.x.send, pair.x.recv, pair.x.bytes,
                              SHUNT_U8, &pair.x.request);
    CHECK_RUN(swap_block(&pair.y, self, pair.b, 0));
    CHECK_RUN(swap_check(&pair.y, self, 0));
    if (!st)
        st = shunt_wait(&pair.x.request);
    snprintf(name, sizeof(name), "rank %d", last);
    CHECK(st == SHUNT_ERR_PEER, "%s: %s", shunt_strerror(st),
          shunt_last_error(a));
    CHECK(strstr(shunt_last_error(a), name), "names %s: %s", name,
          shunt_last_error(a));
    shunt_comm_destroy(a);
    return pair_finish(&pair);
}

/* A rank may start an operation long before a peer does, as long as no rank
 * waits for it. The timeout counts only the time of waits. */
static int begun_long_before(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct rank twins = *self;
    struct pair pair;

    if (self->config)
        config = *self->config;
    config.timeout = 1;
    if (self->id)
        CHECK_OK(NULL, shunt_comm_create(self->id, self->size, self->rank,
                                         &config, &twins.comm));
    else
        CHECK_OK(NULL, shunt_comm_create_env(&config, &twins.comm));
    CHECK_RUN(pair_init(&pair, &twins, 1000));
    if (self->rank == 0)
        CHECK_RUN(swap_start(&pair.x, self, pair.a, 0));
    for (int i = 0; i < 4; i++) {
        if (self->rank == 1)
            sleep_s(0.4);
        CHECK_RUN(swap_block(&pair.y, self, pair.b, i));
    }
    if (self->rank != 0)
        CHECK_RUN(swap_start(&pair.x, self, pair.a, 0));
    CHECK_OK(pair.a, shunt_wait(&pair.x.request));
    CHECK_RUN(swap_check(&pair.x, self, 0));
    CHECK_RUN(pair_finish(&pair));
    CHECK_OK(twins.comm, shunt_comm_finish(twins.comm));
    shunt_comm_destroy(twins.comm);
    return 0;
}

/* The timeout is infinite: by the environment or, with "configured", by the
 * configuration. */
static int late_rank(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_comm *comm;

    if (self->argc && !strcmp(self->argv[0], "configured"))
        config.timeout = config.call_timeout = INFINITY;
    CHECK_OK(NULL, shunt_comm_create_env(&config, &comm));
    if (self->rank == 1)
        sleep_s(0.6);
    CHECK_OK(comm, shunt_barrier(comm));
    CHECK_OK(comm, shunt_comm_finish(comm));
    shunt_comm_destroy(comm);
    return 0;
}

/* The last rank makes no call until all others have reported their errors. If
 * it is a process, it stops, and test_waiting.c continues it. */
static int be_absent(const struct rank *self, atomic_int *here)
{
    if (!self->threads) {
        raise(SIGSTOP);
        return 0;
    }
    while (atomic_load(here) < self->size - 1)
        sleep_s(1e-3);
    return 0;
}

/* The error must name the last rank and no other rank. */
static int names_the_last(const struct rank *self, struct shunt_comm *comm,
                          enum shunt_status st)
{
    const int *lost;
    size_t count;

    CHECK_STATUS(comm, st, SHUNT_ERR_TIMEOUT);
    CHECK_OK(comm, shunt_comm_lost(comm, &lost, &count));
    CHECK(count == 1 && lost[0] == self->size - 1, "%zu lost: %s", count,
          shunt_last_error(comm));
    return 0;
}

static int with_shared_id(const struct rank *self,
                          const struct shunt_comm_config *config,
                          struct shunt_id *id, struct shunt_comm **comm)
{
    if (self->rank == 0)
        CHECK_OK(NULL, shunt_id_create(id));
    CHECK_OK(self->comm,
             shunt_broadcast(self->comm, id, sizeof(*id), SHUNT_U8, 0));
    if (comm)
        CHECK_OK(NULL,
                 shunt_comm_create(id, self->size, self->rank, config, comm));
    return 0;
}

/* All ranks wait on A. The last rank stops when rank 1 has received its
 * message, but rank 0 has not. So rank 1 waits only for rank 0. Rank 0 enters
 * after rank 1 has waited for longer than its timeout. Rank 1 must not give up
 * before, and each failing call must name the last rank. */
static int late_witness(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_request *request = NULL;
    struct shunt_comm *a, *made;
    enum shunt_status st;
    struct shunt_id id;

    config.call_timeout = 1;
    CHECK_RUN(with_shared_id(self, &config, &id, &a));
    CHECK_RUN(with_shared_id(self, NULL, &id, NULL));
    if (self->rank == self->size - 1) {
        CHECK_OK(a, shunt_barrier_start(a, &request));
        raise(SIGSTOP); /* test_waiting.c continues it */
        CHECK(shunt_wait(&request), "it was not missed");
    } else {
        config.timeout = 3.5;
        CHECK(self->rank ||
                  shunt_comm_create(&id, self->size, 0, &config, &made),
              "made without the others");
        st = shunt_barrier(a);
        if (!st && self->rank)
            st = shunt_barrier(a);
        CHECK_RUN(names_the_last(self, a, st));
        rank_say("has its error");
    }
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    shunt_comm_destroy(a);
    return 0;
}

/* The last rank does not enter. Rank 0 waits on A. The others wait on B or,
 * with "birth", while they create a communicator. Each of them must answer
 * probes on a communicator on which it has nothing under way. */
static int absent_rank(const struct rank *self)
{
    static atomic_int here;
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    const bool birth = self->argc && !strcmp(self->argv[0], "birth");
    struct shunt_comm *a, *b, *c;
    struct shunt_id id;

    if (self->config)
        config = *self->config;
    config.call_timeout = 1;
    CHECK_RUN(with_shared_id(self, &config, &id, &a));
    CHECK_OK(a, shunt_comm_dup(a, &b));
    CHECK_RUN(with_shared_id(self, NULL, &id, NULL));
    if (self->rank == self->size - 1) {
        CHECK_RUN(be_absent(self, &here));
    } else if (self->rank == 0) {
        CHECK_RUN(names_the_last(self, a, shunt_barrier(a)));
    } else if (birth) {
        config.timeout = 2.5;
        CHECK(shunt_comm_create(&id, self->size, self->rank, &config, &c),
              "made without rank 0");
    } else {
        CHECK_RUN(names_the_last(self, b, shunt_barrier(b)));
    }
    atomic_fetch_add(&here, 1);
    if (!self->threads)
        rank_say("has its error");
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    shunt_comm_destroy(b);
    shunt_comm_destroy(a);
    return 0;
}

/* The others have waited for the last rank, which is alive. The error must name
 * it, and no rank may be lost. */
static int names_the_last_alive(const struct rank *self,
                                struct shunt_comm *comm, enum shunt_status st)
{
    char name[32];
    const int *lost;
    size_t count;

    snprintf(name, sizeof(name), "rank %d", self->size - 1);
    CHECK_STATUS(comm, st, SHUNT_ERR_TIMEOUT);
    CHECK_OK(comm, shunt_comm_lost(comm, &lost, &count));
    CHECK(count == 0 && strstr(shunt_last_error(comm), name) &&
              strstr(shunt_last_error(comm), "alive"),
          "%zu lost: %s", count, shunt_last_error(comm));
    return 0;
}

/* The last rank does not enter, but answers probes, because it waits for
 * something else. Ranks that enter must not be named, no matter which rank
 * knows who is missing. */
static int polling_rank(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_request *request;
    struct shunt_comm *a, *b;
    struct shunt_id id;

    if (self->config)
        config = *self->config;
    config.call_timeout = 1;
    CHECK_RUN(with_shared_id(self, &config, &id, &a));
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &b));
    if (self->rank == self->size - 1) {
        CHECK_OK(b, shunt_barrier_start(b, &request));
        /* Wait until the others have their errors and enter. */
        while (!shunt_comm_async_status(a) && request) {
            enum shunt_status st = shunt_test(&request);

            CHECK(!st || st == SHUNT_IN_PROGRESS, "%s", shunt_last_error(b));
        }
        CHECK_OK(b, shunt_wait(&request));
    } else {
        CHECK_RUN(names_the_last_alive(self, a, shunt_barrier(a)));
        CHECK_OK(b, shunt_barrier(b));
    }
    shunt_comm_destroy(b);
    shunt_comm_destroy(a);
    return 0;
}

/* --- the progress thread ------------------------------------------------------ */

/* Makes a communicator of the same ranks, with other options. */
static int twin_create(struct rank *twin, struct shunt_comm_config *config)
{
    if (twin->id) {
        config->transports = "inproc";
        CHECK_OK(NULL, shunt_comm_create(twin->id, twin->size, twin->rank,
                                         config, &twin->comm));
    } else {
        CHECK_OK(NULL, shunt_comm_create_env(config, &twin->comm));
    }
    return 0;
}

/* With a progress thread, no sleep of a rank may last until its time limit.
 * Something must wake the rank. */
static int thread_is_woken(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    const size_t sizes[] = {(size_t)16 << 10, (size_t)1 << 20};
    struct shunt_comm_stats stats;
    struct rank twin = *self;

    config.progress_thread = 1;
    CHECK_RUN(twin_create(&twin, &config));
    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
        struct swap swap;

        CHECK_RUN(swap_init(&swap, &twin, sizes[s] / (size_t)self->size));
        for (int k = 0; k < (self->threads ? 10 : 60); k++) {
            CHECK_RUN(swap_start(&swap, &twin, twin.comm, k));
            /* When this rank calls, the thread is sometimes asleep and
             * sometimes not. */
            sleep_s((k * 7 + self->rank * 3) % 5 * 0.4e-3);
            CHECK_OK(twin.comm, shunt_wait(&swap.request));
            CHECK_RUN(swap_check(&swap, &twin, k));
            CHECK_OK(twin.comm,
                     shunt_comm_get_stats(twin.comm, &stats, sizeof(stats)));
            CHECK(!stats.sleeps_missed,
                  "round %d of %zu B: %d of %d sleeps were not woken", k,
                  sizes[s], (int)stats.sleeps_missed, (int)stats.sleeps);
        }
        swap_finish(&swap);
    }
    CHECK_OK(twin.comm, shunt_comm_finish(twin.comm));
    shunt_comm_destroy(twin.comm);
    return 0;
}

/* Reads the counters while a progress thread changes them. */
static int counted_meanwhile(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_comm_stats stats = {0};
    struct shunt_peer_stats peer = {0};
    struct rank twin = *self;
    struct swap swap;
    int rounds = 0;

    config.progress_thread = 1;
    CHECK_RUN(twin_create(&twin, &config));
    CHECK_RUN(swap_init(&swap, &twin, (size_t)256 << 10));
    CHECK_RUN(swap_start(&swap, &twin, twin.comm, 0));
    while (stats.operations < 1 && ++rounds < 10000000) {
        CHECK_OK(twin.comm,
                 shunt_comm_get_stats(twin.comm, &stats, sizeof(stats)));
        CHECK_OK(twin.comm, shunt_comm_get_peer_stats(
                                twin.comm, (self->rank + 1) % self->size, &peer,
                                sizeof(peer)));
        sched_yield();
    }
    CHECK_OK(twin.comm, shunt_wait(&swap.request));
    CHECK_RUN(swap_check(&swap, &twin, 0));
    swap_finish(&swap);
    CHECK_OK(twin.comm, shunt_comm_finish(twin.comm));
    shunt_comm_destroy(twin.comm);
    return 0;
}

/* A transport that has no room for a read need not raise an event when it has
 * room again. So a rank must try again soon, and not sleep for half a
 * second. */
static int room_later(const struct rank *self)
{
    struct shunt_comm_stats stats;
    const int rounds = 8;
    struct swap swap;

    CHECK_RUN(swap_init(&swap, self, (size_t)16 << 10));
    for (int k = 0; k < rounds; k++) {
        CHECK_RUN(swap_block(&swap, self, self->comm, k));
        CHECK_RUN(swap_check(&swap, self, k));
    }
    swap_finish(&swap);
    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &stats, sizeof(stats)));
    CHECK(stats.bytes_read > 0, "nothing was read");
    CHECK(stats.seconds_waiting < rounds * 0.25,
          "%d calls waited for %g s, in %d sleeps", rounds,
          stats.seconds_waiting, (int)stats.sleeps);
    return 0;
}

/* --- the table of cases --------------------------------------------------- */

static const struct rank_case cases[] = {
    {"wait_all_in_other_order", wait_all_in_other_order, .min_ranks = 1},
    {"start_here_call_there", start_here_call_there, .min_ranks = 1},
    {"test_in_other_order", test_in_other_order, .min_ranks = 1},
    {"dup_meanwhile", dup_meanwhile, .min_ranks = 1},
    {"many_communicators", many_communicators, .min_ranks = 1},
    {"handed_to_a_thread", handed_to_a_thread, .min_ranks = 1},
    {"destroyed_by_a_thread", destroyed_by_a_thread, .min_ranks = 1},
    {"lost_elsewhere", lost_elsewhere, .min_ranks = 2},
    {"begun_long_before", begun_long_before, .no_comm = true, .wants_id = true,
     .min_ranks = 2},
    {"absent_rank", absent_rank, .min_ranks = 3},
    {"late_witness", late_witness, .min_ranks = 3, .no_threads = true},
    {"polling_rank", polling_rank, .min_ranks = 3},
    {"late_rank", late_rank, .no_comm = true, .no_threads = true},
    {.name = "room_later", .run = room_later, .no_threads = true},
    {"thread_is_woken", thread_is_woken, .no_comm = true, .wants_id = true},
    {"counted_meanwhile", counted_meanwhile, .no_comm = true, .wants_id = true},
    {.name = NULL},
};

static const struct rank_case *const tables[] = {
    cases,
    waiting_between_nodes,
    NULL,
};

int main(int argc, char **argv)
{
    /* Rings are smaller than blocks, so that both sides must make progress. For
     * processes the test sets these variables. */
    if (argc > 1 && !strcmp(argv[1], "--threads")) {
        setenv("SHUNT_CHUNK", "16k", 1);
        setenv("SHUNT_CHUNKS", "4", 1);
        setenv("SHUNT_READ_MIN", "1g", 1);
        setenv("SHUNT_FAULT", "nomap", 1);
    }
    return rank_main_tables(argc, argv, tables);
}
