// SPDX-License-Identifier: Apache-2.0
/* The ranks whose timelines trace.py checks. */

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

#define LARGE ((size_t)256 << 10)

/* Makes an all-gather of 8 bytes from each rank, and large broadcasts from rank
 * 1: one of memory in a window, and one of other memory. */
static int calls(const struct rank *self)
{
    int64_t mine = self->rank, all[16];
    char *much = malloc(LARGE);
    void *window;

    CHECK(much && self->size <= 16, "%d ranks", self->size);
    memset(much, self->rank, LARGE);
    CHECK_OK(self->comm, shunt_allgather(self->comm, &mine, all, 1, SHUNT_I64));
    CHECK_OK(self->comm, shunt_mem_alloc(self->comm, LARGE, &window));
    CHECK_OK(self->comm,
             shunt_broadcast(self->comm, window, LARGE, SHUNT_U8, 1));
    CHECK_OK(self->comm, shunt_mem_free(self->comm, window));
    CHECK_OK(self->comm, shunt_broadcast(self->comm, much, LARGE, SHUNT_U8, 1));
    CHECK(much[LARGE - 1] == 1, "not rank 1's");
    free(much);
    return 0;
}

/* Makes each call on tokens once, in the modes of SHUNT_MOE_MODE. */
static int tokens(const struct rank *self)
{
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    const int32_t experts[2] = {0, self->size - 1};
    float x[2] = {1, 2}, y[2];
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    void *rows;
    size_t total;

    config.hidden = 1;
    config.dtype = SHUNT_F32;
    config.experts = self->size;
    config.topk = 1;
    config.max_tokens = 2;
    config.weights = SHUNT_MOE_PLAIN_SUM;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &config, &moe));
    CHECK_OK(self->comm, shunt_moe_plan_create(moe, experts, NULL, 2, &plan));
    rows = shunt_moe_buffer(plan, SHUNT_MOE_ROWS);
    total = self->rank == 0 || self->rank == self->size - 1 ? (size_t)self->size
                                                            : 0;
    CHECK_OK(self->comm, shunt_moe_dispatch(plan, x, rows, total));
    CHECK_OK(self->comm, shunt_moe_combine(plan, rows, NULL, y));
    CHECK(y[0] == 1 && y[1] == 2, "%g and %g", (double)y[0], (double)y[1]);
    CHECK_OK(self->comm,
             shunt_moe_combine_backward(plan, x, NULL, rows, total, NULL));
    CHECK_OK(self->comm, shunt_moe_dispatch_backward(plan, rows, y));
    shunt_moe_destroy(moe);
    return 0;
}

/* Each of two ranks has copies of the other rank's experts. The copies are far
 * apart in a window. */
static int copies(const struct rank *self)
{
    enum { EXPERTS = 4, EACH = 20000, STRIDE = 3 * EACH };

    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    struct shunt_moe_replica replicas[EXPERTS];
    struct shunt_moe_array array = {.bytes = EACH, .stride = STRIDE};
    struct shunt_moe_state state = {
        .size = sizeof(state), .array = &array, .arrays = 1};
    struct shunt_moe *moe;

    for (int e = 0; e < EXPERTS; e++)
        replicas[e] = (struct shunt_moe_replica){e, e < EXPERTS / 2};
    config.hidden = 1;
    config.dtype = SHUNT_F32;
    config.experts = EXPERTS;
    config.topk = 1;
    config.max_tokens = 1;
    config.weights = SHUNT_MOE_PLAIN_SUM;
    config.replicas = replicas;
    config.nreplicas = EXPERTS;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &config, &moe));
    CHECK_OK(self->comm,
             shunt_mem_alloc(self->comm, (size_t)EXPERTS * STRIDE, &array.at));
    CHECK_OK(self->comm, shunt_moe_replicas_refresh(moe, &state));
    CHECK_OK(self->comm, shunt_mem_free(self->comm, array.at));
    shunt_moe_destroy(moe);
    return 0;
}

/* --- tracks --------------------------------------------------------------- */

enum { ROUNDS = 20, BYTES = 512 << 10 };

/* Computes for at least `ms` milliseconds. */
static void busy(unsigned ms)
{
    const uint64_t began = shunt_trace_begin();
    struct timespec t0, t;

    clock_gettime(CLOCK_MONOTONIC, &t0);
    do
        clock_gettime(CLOCK_MONOTONIC, &t);
    while ((t.tv_sec - t0.tv_sec) * 1000 + (t.tv_nsec - t0.tv_nsec) / 1000000 <
           (long)ms);
    shunt_trace_end("busy", began);
}

static int helped(struct shunt_comm *comm, bool *yes)
{
    struct shunt_comm_stats stats;

    CHECK_OK(comm, shunt_comm_get_stats(comm, &stats, sizeof(stats)));
    *yes = stats.helped > 0;
    return 0;
}

/* Makes blocking and started calls. Each is within a span "call", computing is
 * within spans "busy", and all of it is within "measured". If `until_helped` is
 * true, continues until the helper has helped. The ranks take turns in starting
 * the exchange late, so that it is under way on the others while they
 * compute. */
static int rounds(struct shunt_comm *comm, bool until_helped)
{
    const size_t ranks = (size_t)shunt_comm_size(comm);
    unsigned char *send = calloc(ranks, BYTES), *recv = calloc(ranks, BYTES);
    const uint64_t began = shunt_trace_begin();
    bool over = false;

    CHECK(send && recv && began, "no memory, or no timeline");
    for (int i = 0; i < ROUNDS || !over; i++) {
        struct shunt_request *request;
        int32_t all_over;
        uint64_t call;

        busy(1);
        call = shunt_trace_begin();
        CHECK_OK(comm, shunt_allreduce(comm, send, recv, BYTES / 4, SHUNT_F32,
                                       SHUNT_SUM));
        shunt_trace_end("call", call);
        if ((i + shunt_comm_rank(comm)) % 2)
            busy(1);
        call = shunt_trace_begin();
        CHECK_OK(comm, shunt_alltoall_start(comm, send, recv, BYTES, SHUNT_U8,
                                            &request));
        shunt_trace_end("call", call);
        busy(2);
        call = shunt_trace_begin();
        CHECK_OK(comm, shunt_wait(&request));
        over = true;
        if (until_helped && helped(comm, &over))
            return 1;
        all_over = over;
        CHECK_OK(comm, shunt_allreduce(comm, SHUNT_IN_PLACE, &all_over, 1,
                                       SHUNT_I32, SHUNT_MIN));
        over = all_over;
        shunt_trace_end("call", call);
    }
    shunt_trace_end("measured", began);
    free(send);
    free(recv);
    return 0;
}

static int tracks(const struct rank *self)
{
    return rounds(self->comm, false);
}

static int tracks_helped(const struct rank *self)
{
    return rounds(self->comm, true);
}

static void *run_rounds(void *comm)
{
    return (void *)(intptr_t)rounds(comm, false);
}

/* Two threads run rounds() at the same time, each on its own communicator. */
static int tracks_of_threads(const struct rank *self)
{
    struct shunt_comm *other;
    pthread_t thread;
    void *result;
    int failed;

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &other));
    CHECK(!pthread_create(&thread, NULL, run_rounds, other), "no thread");
    failed = rounds(self->comm, false);
    pthread_join(thread, &result);
    shunt_comm_destroy(other);
    return failed || result;
}

/* Rank 1 does not make a call, and SHUNT_TIMEOUT is short. */
static int timeout(const struct rank *self)
{
    enum { BLOCK = 100000 };
    int64_t mine = 1, sum;
    unsigned char *block = calloc(1, BLOCK),
                  *all = malloc((size_t)self->size * BLOCK);

    for (int i = 0; i < 100; i++)
        CHECK_OK(self->comm, shunt_barrier(self->comm));
    CHECK_OK(self->comm,
             shunt_allgather(self->comm, block, all, BLOCK, SHUNT_U8));
    free(all);
    free(block);
    if (self->rank == 1)
        pause(); /* until shunt-run ends this process */
    CHECK_STATUS(
        self->comm,
        shunt_allreduce(self->comm, &mine, &sum, 1, SHUNT_I64, SHUNT_SUM),
        SHUNT_ERR_TIMEOUT);
    /* The recorder's file is complete before the call returns. */
    return 7;
}

/* The file of the timeline may not grow further, in the middle of a write. */
static int full(const struct rank *self)
{
    const struct rlimit limit = {100000, 100000};

    signal(SIGXFSZ, SIG_IGN);
    CHECK(!setrlimit(RLIMIT_FSIZE, &limit), "setrlimit");
    for (int i = 0; i < 3000; i++)
        CHECK_OK(self->comm, shunt_barrier(self->comm));
    return 0;
}

/* A child of fork() ends by exit() after its parent has written more events.
 * The child must not write the events that it inherited. */
static int forks(const struct rank *self)
{
    int ends[2], status;
    char byte;
    pid_t child;

    CHECK_OK(self->comm, shunt_barrier(self->comm));
    CHECK(!pipe(ends), "pipe");
    child = fork();
    if (!child) {
        close(ends[1]);
        exit(read(ends[0], &byte, 1) == 1 ? 0 : 1);
    }
    for (int i = 0; i < 3000; i++)
        CHECK_OK(self->comm, shunt_barrier(self->comm));
    CHECK(write(ends[1], "", 1) == 1, "write");
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d",
          status);
    close(ends[0]);
    close(ends[1]);
    return 0;
}

static int lost(const struct rank *self)
{
    /* A rank that is still in this barrier when rank 1 leaves may get the loss
     * as an error. */
    enum shunt_status st = shunt_barrier(self->comm);

    if (self->rank == 1)
        _exit(st ? 1 : 9);
    CHECK_STATUS(self->comm, shunt_barrier(self->comm), SHUNT_ERR_PEER);
    return 0;
}

static const struct rank_case cases[] = {
    {"calls", calls, .min_ranks = 2},
    {"tokens", tokens, .min_ranks = 2},
    {"copies", copies, .min_ranks = 2, .max_ranks = 2},
    {"tracks", tracks, .min_ranks = 2, .no_threads = true},
    {"tracks_helped", tracks_helped, .min_ranks = 2, .no_threads = true},
    {"tracks_of_threads", tracks_of_threads, .min_ranks = 2,
     .no_threads = true},
    {"full", full, .min_ranks = 2, .no_threads = true},
    {"forks", forks, .min_ranks = 2, .no_threads = true},
    {"timeout", timeout, .breaks_comm = true, .no_threads = true,
     .min_ranks = 2},
    {"lost", lost, .breaks_comm = true, .no_threads = true, .min_ranks = 2},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
