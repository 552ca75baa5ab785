// SPDX-License-Identifier: Apache-2.0
/* What ranks do while trace.py looks at their timelines. */

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

#define LARGE ((size_t)256 << 10)

/* An all-gather of 8 bytes from each, broadcasts of much from rank 1: of memory
 * in a window, and of other. */
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

/* One of each call on tokens, in the modes of SHUNT_MOE_MODE. */
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

/* Rank 1 misses a call, SHUNT_TIMEOUT is short. */
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
        pause(); /* until shunt-run ends us */
    CHECK_STATUS(
        self->comm,
        shunt_allreduce(self->comm, &mine, &sum, 1, SHUNT_I64, SHUNT_SUM),
        SHUNT_ERR_TIMEOUT);
    /* What the recorder wrote is there before the call returns. */
    return 7;
}

/* The file system takes no more, in the middle of a write. */
static int full(const struct rank *self)
{
    const struct rlimit limit = {100000, 100000};

    signal(SIGXFSZ, SIG_IGN);
    CHECK(!setrlimit(RLIMIT_FSIZE, &limit), "setrlimit");
    for (int i = 0; i < 3000; i++)
        CHECK_OK(self->comm, shunt_barrier(self->comm));
    return 0;
}

/* A forked child ends by exit() when its parent has written more. */
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
    /* Who is still in this one when rank 1 has left it may hear of the loss. */
    enum shunt_status st = shunt_barrier(self->comm);

    if (self->rank == 1)
        _exit(st ? 1 : 9);
    CHECK_STATUS(self->comm, shunt_barrier(self->comm), SHUNT_ERR_PEER);
    return 0;
}

static const struct rank_case cases[] = {
    {"calls", calls, .min_ranks = 2},
    {"tokens", tokens, .min_ranks = 2},
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
