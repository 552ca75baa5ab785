// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of test_engine.c. The copy engine copies large blocks in windows,
 * in calls that were started. It does not copy small blocks, nor the blocks of
 * blocking calls. It copies nothing after it has failed, if no call can use it,
 * or if it is slower.
 */

#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

enum { LARGE = 300001, SMALL = 9999, CALLS = 3, ROUNDS = 10 };

static unsigned char byte_of(int from, int to, int call, size_t i)
{
    return (unsigned char)(from * 31 + to * 7 + call * 101 + (int)(i % 241));
}

static int engine_bytes(const struct rank *self, uint64_t *bytes)
{
    struct shunt_comm_stats stats;

    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &stats, sizeof(stats)));
    *bytes = stats.bytes_engine;
    return 0;
}

static void fill(const struct rank *self, unsigned char *send, int call,
                 size_t block)
{
    for (int to = 0; to < self->size; to++)
        for (size_t i = 0; i < block; i++)
            send[(size_t)to * block + i] = byte_of(self->rank, to, call, i);
}

static int check(const struct rank *self, const unsigned char *recv, int call,
                 size_t block)
{
    for (int from = 0; from < self->size; from++)
        for (size_t i = 0; i < block; i++)
            CHECK(recv[(size_t)from * block + i] ==
                      byte_of(from, self->rank, call, i),
                  "call %d, byte %zu of rank %d", call, i, from);
    return 0;
}

static int window(const struct rank *self, size_t bytes, unsigned char **at)
{
    void *memory;

    CHECK_OK(self->comm, shunt_mem_alloc(self->comm, bytes, &memory));
    *at = memory;
    return 0;
}

/* Several calls are under way at once, each on its own memory. */
static int started(const struct rank *self)
{
    const size_t all = (size_t)self->size * LARGE;
    unsigned char *send[CALLS], *recv[CALLS];
    uint64_t before, after;

    for (int c = 0; c < CALLS; c++)
        if (window(self, all, &send[c]) || window(self, all, &recv[c]))
            return 1;
    for (int round = 0; round < ROUNDS; round++) {
        struct shunt_request *requests[CALLS];

        if (engine_bytes(self, &before))
            return 1;
        for (int c = 0; c < CALLS; c++) {
            fill(self, send[c], round * CALLS + c, LARGE);
            memset(recv[c], 0, all);
            CHECK_OK(self->comm,
                     shunt_alltoall_start(self->comm, send[c], recv[c], LARGE,
                                          SHUNT_U8, &requests[c]));
        }
        CHECK_OK(self->comm, shunt_wait_all(requests, CALLS));
        for (int c = 0; c < CALLS; c++)
            if (check(self, recv[c], round * CALLS + c, LARGE))
                return 1;
        if (engine_bytes(self, &after))
            return 1;
        CHECK(after - before == (uint64_t)CALLS * (uint64_t)self->size * LARGE,
              "the engine moved %llu B", (unsigned long long)(after - before));
    }
    for (int c = 0; c < CALLS; c++) {
        CHECK_OK(self->comm, shunt_mem_free(self->comm, send[c]));
        CHECK_OK(self->comm, shunt_mem_free(self->comm, recv[c]));
    }
    return 0;
}

/* Make one call, on windows that hold all blocks. */
static int exchange(const struct rank *self, unsigned char *send,
                    unsigned char *recv, int call)
{
    struct shunt_request *request;

    fill(self, send, call, LARGE);
    memset(recv, 0, (size_t)self->size * LARGE);
    CHECK_OK(self->comm, shunt_alltoall_start(self->comm, send, recv, LARGE,
                                              SHUNT_U8, &request));
    CHECK_OK(self->comm, shunt_wait(&request));
    return check(self, recv, call, LARGE);
}

/* argv[0]: how many copies the engine must make (without an argument: all). All
 * data must be right, whether or not the engine copied it. */
static int made_just(const struct rank *self)
{
    const size_t all = (size_t)self->size * LARGE;
    const uint64_t copies = self->argc ? strtoull(self->argv[0], NULL, 10)
                                       : (uint64_t)self->size * ROUNDS;
    unsigned char *send, *recv;
    uint64_t bytes;

    if (window(self, all, &send) || window(self, all, &recv))
        return 1;
    for (int round = 0; round < ROUNDS; round++)
        if (exchange(self, send, recv, round))
            return 1;
    if (engine_bytes(self, &bytes))
        return 1;
    CHECK(bytes == copies * LARGE, "the engine moved %llu B",
          (unsigned long long)bytes);
    CHECK_OK(self->comm, shunt_mem_free(self->comm, send));
    CHECK_OK(self->comm, shunt_mem_free(self->comm, recv));
    return 0;
}

/* Make calls until rank argv[0] is killed. The error must name that rank. */
static int killed(const struct rank *self)
{
    const size_t all = (size_t)self->size * LARGE;
    struct shunt_request *requests[CALLS];
    unsigned char *send, *recv[CALLS];
    enum shunt_status st = SHUNT_OK;
    char name[32];

    snprintf(name, sizeof(name), "rank %d", atoi(self->argv[0]));
    if (window(self, all, &send))
        return 1;
    for (int c = 0; c < CALLS; c++)
        recv[c] = malloc(all);
    for (int round = 0; !st; round++) {
        int started = 0;

        while (started < CALLS && !st) {
            st = shunt_alltoall_start(self->comm, send, recv[started], LARGE,
                                      SHUNT_U8, &requests[started]);
            started += !st;
        }
        for (int c = 0; c < started; c++) {
            enum shunt_status end = shunt_wait(&requests[c]);

            st = st ? st : end;
        }
        if (round == 5)
            rank_say("in the loop");
    }
    for (int c = 0; c < CALLS; c++)
        free(recv[c]);
    CHECK(st == SHUNT_ERR_PEER && strstr(shunt_last_error(self->comm), name),
          "%s: %s", shunt_strerror(st), shunt_last_error(self->comm));
    return 0;
}

/* The engine must not make these copies: those of blocking calls, whose caller
 * waits anyway, and small ones, which are copied faster than submitted. */
static int not_for_these(const struct rank *self)
{
    const size_t all = (size_t)self->size * LARGE;
    struct shunt_request *request;
    unsigned char *send, *recv;
    uint64_t before, after;

    if (window(self, all, &send) || window(self, all, &recv) ||
        engine_bytes(self, &before))
        return 1;
    fill(self, send, 1, LARGE);
    CHECK_OK(self->comm,
             shunt_alltoall(self->comm, send, recv, LARGE, SHUNT_U8));
    if (check(self, recv, 1, LARGE))
        return 1;
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    fill(self, send, 2, SMALL);
    CHECK_OK(self->comm, shunt_alltoall_start(self->comm, send, recv, SMALL,
                                              SHUNT_U8, &request));
    CHECK_OK(self->comm, shunt_wait(&request));
    if (check(self, recv, 2, SMALL) || engine_bytes(self, &after))
        return 1;
    CHECK(after == before, "the engine moved %llu B",
          (unsigned long long)(after - before));
    CHECK_OK(self->comm, shunt_mem_free(self->comm, send));
    CHECK_OK(self->comm, shunt_mem_free(self->comm, recv));
    return 0;
}

/* One rank aborts the communicator while copies are under way. Every call ends,
 * and its memory may be freed at once. */
static int aborted(const struct rank *self)
{
    const size_t all = (size_t)self->size * LARGE;
    struct shunt_request *requests[CALLS] = {NULL};
    unsigned char *send, *recv[CALLS];
    enum shunt_status st = SHUNT_OK;

    if (window(self, all, &send))
        return 1;
    fill(self, send, 0, LARGE);
    for (int c = 0; c < CALLS; c++)
        recv[c] = malloc(all);
    for (int c = 0; c < CALLS && !st; c++)
        st = shunt_alltoall_start(self->comm, send, recv[c], LARGE, SHUNT_U8,
                                  &requests[c]);
    if (self->rank == 0)
        shunt_comm_abort(self->comm);
    for (int c = 0; c < CALLS; c++) {
        enum shunt_status end = shunt_wait(&requests[c]);

        CHECK(end == SHUNT_OK || end == SHUNT_ERR_ABORTED, "call %d: %d", c,
              (int)end);
        free(recv[c]);
    }
    return 0;
}

/* Communicators are created and destroyed while another one is busy. The engine
 * stays open for the one that is left. The engine writes to a descriptor after
 * a copy; that must never be a descriptor of the program. */
static int come_and_go(const struct rank *self)
{
    const size_t all = (size_t)self->size * LARGE;
    unsigned char *send, *recv;

    if (window(self, all, &send) || window(self, all, &recv))
        return 1;
    for (int i = 0; i < 20; i++) {
        unsigned char *send2, *recv2;
        struct shunt_request *request, *other;
        struct shunt_comm *copy;
        char byte;
        int ends[2];
        void *at;

        CHECK_OK(self->comm, shunt_comm_dup(self->comm, &copy));
        CHECK_OK(copy, shunt_mem_alloc(copy, all, &at));
        send2 = at;
        CHECK_OK(copy, shunt_mem_alloc(copy, all, &at));
        recv2 = at;
        fill(self, send, 2 * i, LARGE);
        fill(self, send2, 2 * i + 1, LARGE);
        CHECK_OK(self->comm, shunt_alltoall_start(self->comm, send, recv, LARGE,
                                                  SHUNT_U8, &request));
        CHECK_OK(copy, shunt_alltoall_start(copy, send2, recv2, LARGE, SHUNT_U8,
                                            &other));
        CHECK_OK(copy, shunt_wait(&other));
        if (check(self, recv2, 2 * i + 1, LARGE))
            return 1;
        CHECK_OK(copy, shunt_mem_free(copy, send2));
        CHECK_OK(copy, shunt_mem_free(copy, recv2));
        CHECK_OK(copy, shunt_comm_finish(copy));
        shunt_comm_destroy(copy);
        /* The pipe may reuse a descriptor number that the communicator had. */
        CHECK(!pipe2(ends, O_NONBLOCK), "no pipe");
        CHECK_OK(self->comm, shunt_wait(&request));
        if (check(self, recv, 2 * i, LARGE))
            return 1;
        CHECK(read(ends[0], &byte, 1) < 0, "something was written to a pipe");
        close(ends[0]);
        close(ends[1]);
    }
    CHECK_OK(self->comm, shunt_mem_free(self->comm, send));
    CHECK_OK(self->comm, shunt_mem_free(self->comm, recv));
    return 0;
}

/* A child of fork() has no engine, and does not wait for the parent's
 * engine. */
static int forked(const struct rank *self)
{
    int status = -1;
    pid_t child;

    if (started(self))
        return 1;
    child = fork();
    if (!child) {
        /* The child only destroys what it inherited. The parent's other ranks
         * do not take part. */
        shunt_comm_destroy(self->comm);
        _exit(42);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child &&
              WIFEXITED(status) && WEXITSTATUS(status) == 42,
          "the child ended with status %d", status);
    return started(self);
}

/* The engine is slower than the caller. Half of the first calls try it, and all
 * later calls do without it. */
static int learns(const struct rank *self)
{
    enum { BLOCK = 4 << 20, TRIALS = 16, MORE = 10 };
    const size_t all = (size_t)self->size * BLOCK;
    unsigned char *send, *recv;
    uint64_t bytes;

    if (window(self, all, &send) || window(self, all, &recv))
        return 1;
    for (int call = 0; call < TRIALS + MORE; call++) {
        struct shunt_request *request;

        CHECK_OK(self->comm, shunt_alltoall_start(self->comm, send, recv, BLOCK,
                                                  SHUNT_U8, &request));
        CHECK_OK(self->comm, shunt_wait(&request));
    }
    if (engine_bytes(self, &bytes))
        return 1;
    CHECK(bytes == TRIALS / 2 * all, "the engine moved %llu B",
          (unsigned long long)bytes);
    CHECK_OK(self->comm, shunt_mem_free(self->comm, send));
    CHECK_OK(self->comm, shunt_mem_free(self->comm, recv));
    return 0;
}

/* On any machine, run with more ranks than CPUs. */
static int crowded(const struct rank *self)
{
    cpu_set_t may, two;
    struct shunt_comm *comm;
    struct rank crowd = *self;
    int n = 0, failed;

    CPU_ZERO(&two);
    CHECK(!sched_getaffinity(0, sizeof(may), &may), "no affinity");
    for (int cpu = 0; cpu < CPU_SETSIZE && n < 2; cpu++)
        if (CPU_ISSET(cpu, &may)) {
            CPU_SET(cpu, &two);
            n++;
        }
    CHECK(!sched_setaffinity(0, sizeof(two), &two), "affinity is not set");
    CHECK_OK(NULL, shunt_comm_create_env(NULL, &comm));
    crowd.comm = comm;
    crowd.rank = shunt_comm_rank(comm);
    crowd.size = shunt_comm_size(comm);
    failed = made_just(&crowd);
    CHECK_OK(comm, shunt_comm_finish(comm));
    shunt_comm_destroy(comm);
    return failed;
}

static const struct rank_case cases[] = {
    {.name = "started", .run = started},
    {.name = "not_for_these", .run = not_for_these},
    {.name = "come_and_go", .run = come_and_go},
    {.name = "forked", .run = forked, .no_threads = true},
    {.name = "made_just", .run = made_just},
    {.name = "learns", .run = learns, .no_threads = true},
    {.name = "crowded", .run = crowded, .no_comm = true, .no_threads = true},
    {.name = "killed", .run = killed, .breaks_comm = true, .no_threads = true},
    {.name = "aborted", .run = aborted, .breaks_comm = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    setenv("SHUNT_ENGINE", "dma", 0);
    setenv("SHUNT_DMA", "on", 0);
    setenv("SHUNT_ENGINE_MIN", "10000", 0);
    return rank_main(argc, argv, cases);
}
