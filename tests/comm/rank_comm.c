// SPDX-License-Identifier: Apache-2.0
/* The ranks of test_comm.c: creating, using and ending communicators. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Checks that `comm` works: the sum of every rank's `value` must be `want`. */
static int check_sum(const struct rank *self, struct shunt_comm *comm,
                     int64_t value, int64_t want)
{
    int64_t sum = -1;

    CHECK_OK(comm,
             shunt_allreduce(comm, &value, &sum, 1, SHUNT_I64, SHUNT_SUM));
    CHECK(sum == want, "rank %d: sum %ld, not %ld", self->rank, (long)sum,
          (long)want);
    return 0;
}

/* --- queries, groups ------------------------------------------------------------ */

static int queries(const struct rank *self)
{
    int r, mates = 0;

    CHECK(shunt_comm_rank(self->comm) == self->rank, "rank");
    CHECK(shunt_comm_size(self->comm) == self->size, "size");
    CHECK(shunt_comm_nodes(self->comm) == 1, "one host is one node, not %d",
          shunt_comm_nodes(self->comm));
    for (r = 0; r < self->size; r++)
        mates += shunt_comm_node(self->comm, r) == 0;
    CHECK(mates == self->size, "%d ranks on node 0", mates);
    CHECK(shunt_comm_local_size(self->comm) == self->size, "local size");
    CHECK(shunt_comm_local_rank(self->comm) >= 0 &&
              shunt_comm_local_rank(self->comm) < self->size,
          "local rank %d", shunt_comm_local_rank(self->comm));
    CHECK(shunt_comm_node(self->comm, self->size) == -1, "no such rank");
    CHECK(shunt_comm_async_status(self->comm) == SHUNT_OK, "alive");
    return 0;
}

static int split_by_parity(const struct rank *self)
{
    struct shunt_comm *half;
    int mine = (self->size + 1 - self->rank % 2) / 2;
    int64_t want = 0;
    int r;

    /* Keys reverse the order. */
    CHECK_OK(self->comm,
             shunt_comm_split(self->comm, self->rank % 2, -self->rank, &half));
    CHECK(shunt_comm_size(half) == mine, "size %d, not %d",
          shunt_comm_size(half), mine);
    CHECK(shunt_comm_rank(half) == mine - 1 - self->rank / 2, "rank %d",
          shunt_comm_rank(half));
    for (r = self->rank % 2; r < self->size; r += 2)
        want += r;
    if (check_sum(self, half, self->rank, want))
        return 1;
    CHECK_OK(half, shunt_comm_finish(half));
    shunt_comm_destroy(half);
    return check_sum(self, self->comm, 1, self->size);
}

static int split_leaves_some_out(const struct rank *self)
{
    struct shunt_comm *rest;

    CHECK_OK(self->comm,
             shunt_comm_split(self->comm, self->rank ? 7 : -1, 0, &rest));
    CHECK(!rest == !self->rank, "rank 0 alone is left out");
    if (rest && check_sum(self, rest, 1, self->size - 1))
        return 1;
    shunt_comm_destroy(rest);
    return 0;
}

static int dup_is_independent(const struct rank *self)
{
    struct shunt_request *a, *b;
    struct shunt_comm *twin;
    int64_t one = 1, x = 0, y = 0;

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &twin));
    /* The operations are started in different orders on different ranks, on two
     * communicators. */
    if (self->rank % 2) {
        CHECK_OK(twin, shunt_allreduce_start(twin, &one, &y, 1, SHUNT_I64,
                                             SHUNT_SUM, &b));
        CHECK_OK(self->comm, shunt_allreduce_start(self->comm, &one, &x, 1,
                                                   SHUNT_I64, SHUNT_SUM, &a));
    } else {
        CHECK_OK(self->comm, shunt_allreduce_start(self->comm, &one, &x, 1,
                                                   SHUNT_I64, SHUNT_SUM, &a));
        CHECK_OK(twin, shunt_allreduce_start(twin, &one, &y, 1, SHUNT_I64,
                                             SHUNT_SUM, &b));
    }
    CHECK_OK(self->comm, shunt_wait(&a));
    CHECK_OK(twin, shunt_wait(&b));
    CHECK(x == self->size && y == self->size, "%ld %ld", (long)x, (long)y);
    CHECK_OK(twin, shunt_comm_finish(twin));
    shunt_comm_destroy(twin);
    return 0;
}

static int many_in_a_row(const struct rank *self)
{
    int i;

    for (i = 0; i < 10; i++) {
        struct shunt_comm *twin;

        CHECK_OK(self->comm, shunt_comm_dup(self->comm, &twin));
        if (check_sum(self, twin, i, (int64_t)i * self->size))
            return 1;
        CHECK_OK(twin, shunt_comm_finish(twin));
        shunt_comm_destroy(twin);
    }
    return 0;
}

/* --- windows ---------------------------------------------------------------------- */

static int windows_come_and_go(const struct rank *self)
{
    int i;

    for (i = 0; i < 20; i++) {
        size_t bytes = self->rank == i % self->size
                           ? 0
                           : (size_t)(1 + i) * 10007 + (size_t)self->rank;
        unsigned char *p;
        void *window;

        CHECK_OK(self->comm, shunt_mem_alloc(self->comm, bytes, &window));
        CHECK(!window == !bytes, "%zu bytes", bytes);
        p = window;
        if (p) {
            CHECK(p[0] == 0 && p[bytes - 1] == 0, "zeroed");
            CHECK((uintptr_t)p % 4096 == 0, "page aligned");
            memset(p, i, bytes);
        }
        CHECK_OK(self->comm, shunt_mem_free(self->comm, window));
    }
    return 0;
}

/* Makes an alltoall from a window. Blocks for ranks of the same node must be
 * mapped. All other blocks must be sent, even if the transport could map
 * them. */
static int check_traffic(struct shunt_comm *comm)
{
    enum { BLOCK = 100000 };
    const size_t n = (size_t)shunt_comm_size(comm);
    const size_t mates = (size_t)shunt_comm_local_size(comm) - 1;
    struct shunt_comm_stats before, after;
    unsigned char *recv = malloc(n * BLOCK);
    void *send;

    CHECK(recv, "memory");
    CHECK_OK(comm, shunt_mem_alloc(comm, n * BLOCK, &send));
    memset(send, 1 + shunt_comm_rank(comm), n * BLOCK);
    CHECK_OK(comm, shunt_comm_get_stats(comm, &before, sizeof(before)));
    CHECK_OK(comm, shunt_alltoall(comm, send, recv, BLOCK, SHUNT_U8));
    CHECK_OK(comm, shunt_comm_get_stats(comm, &after, sizeof(after)));
    for (size_t i = 0; i < n * BLOCK; i++)
        CHECK(recv[i] == 1 + i / BLOCK, "byte %zu is %d", i, recv[i]);
    CHECK(after.bytes_mapped - before.bytes_mapped == mates * BLOCK,
          "%zu B were mapped",
          (size_t)(after.bytes_mapped - before.bytes_mapped));
    CHECK(after.bytes_read == before.bytes_read, "%zu B were read",
          (size_t)(after.bytes_read - before.bytes_read));
    CHECK(after.bytes_remote - before.bytes_remote == (n - 1 - mates) * BLOCK,
          "%zu B were sent",
          (size_t)(after.bytes_remote - before.bytes_remote));
    CHECK_OK(comm, shunt_mem_free(comm, send));
    free(recv);
    return 0;
}

/* rank_main.c has checked the links of self->comm. */
static int nodes_share_no_memory(const struct rank *self)
{
    struct shunt_comm *part;

    CHECK_RUN(check_traffic(self->comm));
    CHECK_OK(self->comm,
             shunt_comm_split(self->comm, self->rank % 2, 0, &part));
    for (int r = 0; r < shunt_comm_size(part); r++) {
        int old = 2 * r + self->rank % 2;

        CHECK(!strcmp(shunt_comm_transport(part, r),
                      shunt_comm_transport(self->comm, old)),
              "rank %d: %s, before %s", old, shunt_comm_transport(part, r),
              shunt_comm_transport(self->comm, old));
    }
    CHECK_RUN(check_traffic(part));
    CHECK_OK(part, shunt_comm_finish(part));
    shunt_comm_destroy(part);
    return 0;
}

static int bad_window_calls(const struct rank *self)
{
    enum shunt_status st;
    void *window = NULL;
    int nothing;

    st = shunt_mem_alloc(self->comm, 64, self->rank ? &window : NULL);
    CHECK(st == (self->rank ? SHUNT_ERR_REMOTE : SHUNT_ERR_INVALID),
          "alloc: %s", shunt_strerror(st));
    if (self->rank)
        CHECK(strstr(shunt_last_error(self->comm), "rank 0"), "names it: %s",
              shunt_last_error(self->comm));
    CHECK(!window, "nothing was given");
    CHECK_OK(self->comm, shunt_mem_alloc(self->comm, 64, &window));
    st = shunt_mem_free(self->comm, self->rank ? window : (void *)&nothing);
    CHECK(st == (self->rank ? SHUNT_ERR_REMOTE : SHUNT_ERR_INVALID), "free: %s",
          shunt_strerror(st));
    return check_sum(self, self->comm, 1, self->size);
}

/* --- creations that fail -------------------------------------------------- */

static int bad_creation(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_comm *comm = (struct shunt_comm *)(uintptr_t)1;
    struct shunt_id id;

    (void)self;
    memset(&id, 0x5a, sizeof(id));
    CHECK_STATUS(NULL, shunt_comm_create(&id, 2, 0, NULL, &comm),
                 SHUNT_ERR_INVALID);
    CHECK(!comm, "comm is NULL after a failure");
    CHECK_STATUS(NULL, shunt_comm_create(NULL, 2, 0, NULL, &comm),
                 SHUNT_ERR_INVALID);
    CHECK_OK(NULL, shunt_id_create(&id));
    CHECK_STATUS(NULL, shunt_comm_create(&id, 2, 2, NULL, &comm),
                 SHUNT_ERR_INVALID);
    CHECK(strstr(shunt_last_error(NULL), "this is rank 2"), "%s",
          shunt_last_error(NULL));
    CHECK_STATUS(NULL, shunt_comm_create(&id, 0, 0, NULL, &comm),
                 SHUNT_ERR_INVALID);
    /* A signature has 15 bits for the root, so there may be at most 32768
     * ranks. */
    CHECK_STATUS(NULL, shunt_comm_create(&id, 32769, 0, NULL, &comm),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(NULL, shunt_comm_create(&id, 1, 0, NULL, NULL),
                 SHUNT_ERR_INVALID);
    config.size = 3;
    CHECK_STATUS(NULL, shunt_comm_create_env(&config, &comm),
                 SHUNT_ERR_INVALID);
    shunt_comm_destroy(NULL);
    shunt_comm_abort(NULL);
    CHECK_STATUS(NULL, shunt_comm_shrink(NULL, &comm), SHUNT_ERR_INVALID);
    CHECK(shunt_comm_size(NULL) == 0 && shunt_comm_rank(NULL) == -1, "NULL");
    return 0;
}

/* If one rank passes bad arguments, the others must get an error at once. */
static int bad_creation_is_reported(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    double t0 = now_s();
    struct shunt_comm *comm;
    enum shunt_status st;

    if (self->rank == 1)
        config.size = 3;
    st = shunt_comm_create_env(&config, &comm);
    CHECK(st == (self->rank == 1 ? SHUNT_ERR_INVALID : SHUNT_ERR_REMOTE),
          "%s: %s", shunt_strerror(st), shunt_last_error(NULL));
    CHECK(now_s() - t0 < 10, "after %.1f s", now_s() - t0);
    CHECK(self->rank == 1 || strstr(shunt_last_error(NULL), "rank 1"), "%s",
          shunt_last_error(NULL));
    return 0;
}

static int unknown_transport(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_comm *comm;
    enum shunt_status st;

    config.transports = self->rank ? "shm" : "pigeon";
    config.timeout = 10;
    st = shunt_comm_create_env(&config, &comm);
    CHECK(st == (self->rank ? SHUNT_ERR_REMOTE : SHUNT_ERR_INVALID), "%s: %s",
          shunt_strerror(st), shunt_last_error(NULL));
    CHECK(strstr(shunt_last_error(NULL), "pigeon"), "%s",
          shunt_last_error(NULL));
    return 0;
}

/* Communicators made from this one must use the same list of transports, even
 * if it is long. */
static int long_list_of_transports(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_comm *comm, *dup;
    char list[400];

    snprintf(list, sizeof(list), "^%300s", "inproc");
    config.transports = list;
    CHECK_OK(NULL, shunt_comm_create_env(&config, &comm));
    CHECK_OK(comm, shunt_comm_dup(comm, &dup));
    if (check_sum(self, dup, 1, self->size))
        return 1;
    CHECK_OK(dup, shunt_comm_finish(dup));
    shunt_comm_destroy(dup);
    CHECK_OK(comm, shunt_comm_finish(comm));
    shunt_comm_destroy(comm);
    return 0;
}

/* --- aborts, lost ranks, early destroys ----------------------------------- */

static int abort_wakes_everyone(const struct rank *self)
{
    enum shunt_status st = shunt_barrier(self->comm);

    /* Rank 0 may leave the barrier and abort while others are still in it. */
    CHECK(!st || (self->rank && st == SHUNT_ERR_ABORTED), "%s",
          rank_why(self->comm, st));
    if (self->rank == 0)
        shunt_comm_abort(self->comm);
    CHECK_STATUS(self->comm, shunt_barrier(self->comm), SHUNT_ERR_ABORTED);
    CHECK(strstr(shunt_last_error(self->comm), "rank 0"), "%s",
          shunt_last_error(self->comm));
    CHECK_STATUS(self->comm, shunt_barrier(self->comm), SHUNT_ERR_ABORTED);
    CHECK(shunt_comm_async_status(self->comm) == SHUNT_ERR_ABORTED, "async");
    return 0;
}

/* A rank starts all-gathers and aborts. Afterwards the others make another
 * call. That call must end as aborted, and not as a mismatch. */
static int abort_ends_other_calls(const struct rank *self)
{
    for (int round = 0; round < 4 * self->size; round++) {
        struct shunt_request *request[8];
        int32_t in = 0, out[8][64];
        struct shunt_comm *twin;

        CHECK_OK(self->comm, shunt_comm_dup(self->comm, &twin));
        if (self->rank == round % self->size) {
            for (int i = 0; i < 8; i++)
                CHECK_OK(twin, shunt_allgather_start(twin, &in, out[i], 1,
                                                     SHUNT_I32, &request[i]));
            shunt_comm_abort(twin);
            CHECK(shunt_wait_all(request, 8) == SHUNT_ERR_ABORTED, "its own");
        }
        CHECK_OK(self->comm, shunt_barrier(self->comm));
        CHECK_STATUS(twin, shunt_barrier(twin), SHUNT_ERR_ABORTED);
        shunt_comm_destroy(twin);
        CHECK_OK(self->comm, shunt_barrier(self->comm));
    }
    return 0;
}

static int check_peer_lost(const struct rank *self, enum shunt_status st,
                           int lost_rank)
{
    char name[32];
    const int *lost;
    size_t n;

    snprintf(name, sizeof(name), "rank %d", lost_rank);
    CHECK(st == SHUNT_ERR_PEER, "%s: %s", shunt_strerror(st),
          shunt_last_error(self->comm));
    CHECK(strstr(shunt_last_error(self->comm), name), "names %s: %s", name,
          shunt_last_error(self->comm));
    CHECK_OK(self->comm, shunt_comm_lost(self->comm, &lost, &n));
    CHECK(n == 1 && lost[0] == lost_rank, "%zu lost", n);
    return 0;
}

static int early_destroy_is_a_loss(const struct rank *self)
{
    struct shunt_comm *twin;
    enum shunt_status st;

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &twin));
    /* Wait until every rank has created the twin. Creation may rightly fail if
     * another rank has left the communicator already. */
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    if (self->rank == 1) {
        shunt_comm_destroy(twin);
        return 0;
    }
    st = shunt_barrier(twin);
    CHECK(st == SHUNT_ERR_PEER, "%s", shunt_strerror(st));
    CHECK(strstr(shunt_last_error(twin), "rank 1"), "%s",
          shunt_last_error(twin));
    shunt_comm_destroy(twin);
    return 0;
}

/* The times at which this rank left a communicator, and at which it had its
 * sum. */
struct leaving {
    double gone, summed;
};

static int sum_and_leave(const struct rank *self, struct leaving *times)
{
    int64_t one = self->rank + 1, sum = -1;
    struct shunt_comm *twin;

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &twin));
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    CHECK_OK(twin, shunt_allreduce(twin, &one, &sum, 1, SHUNT_I64, SHUNT_SUM));
    times->summed = now_s();
    CHECK(sum == self->size * (self->size + 1) / 2, "sum %lld", (long long)sum);
    shunt_comm_destroy(twin);
    times->gone = now_s();
    return 0;
}

/* Rank 1 has its sum and leaves while rank 0 still lacks a part from rank 2.
 * The test delays that part. With argv[0], one of several attempts must have
 * this order. */
static int done_and_gone(const struct rank *self)
{
    const bool must = self->argc;
    bool met = false;

    for (int i = 0; i < (must ? 10 : 1) && !met; i++) {
        struct leaving all[64], mine;

        CHECK_RUN(sum_and_leave(self, &mine));
        CHECK_OK(self->comm, shunt_allgather(self->comm, &mine, all,
                                             sizeof(mine), SHUNT_U8));
        met = all[1].gone < all[0].summed;
    }
    CHECK(met || !must, "rank 1 never left before rank 0 had its sum");
    return 0;
}

/* Calls in a loop until a rank is killed from outside. The error must name that
 * rank. */
static int killed(const struct rank *self)
{
    int victim = atoi(self->argv[0]);
    double t0 = now_s(), last = t0;
    int64_t one = 1, sum;
    enum shunt_status st;
    int i;

    for (i = 0; now_s() - t0 < 20; i++) {
        st = shunt_allreduce(self->comm, &one, &sum, 1, SHUNT_I64, SHUNT_SUM);
        if (st)
            break;
        last = now_s();
        if (i == 10)
            rank_say("in the loop");
    }
    CHECK(now_s() - last < 5, "took %.1f s to notice", now_s() - last);
    return check_peer_lost(self, st, victim);
}

/* Runs killed(). Then the survivors continue with a smaller communicator. */
static int killed_then_shrink(const struct rank *self)
{
    struct shunt_comm *smaller;

    if (killed(self))
        return 1;
    CHECK_OK(self->comm, shunt_comm_shrink(self->comm, &smaller));
    CHECK(shunt_comm_size(smaller) == self->size - 1, "size %d",
          shunt_comm_size(smaller));
    if (check_sum(self, smaller, 1, self->size - 1))
        return 1;
    CHECK_OK(smaller, shunt_comm_finish(smaller));
    shunt_comm_destroy(smaller);
    return 0;
}

/* The victim is killed. Rank 0 needs nothing from it. Rank 1, from which rank 0
 * needs a block, sees that the victim has ended, and leaves without a
 * message. */
static int killed_before_one_leaves(const struct rank *self)
{
    const int victim = atoi(self->argv[0]);
    const int32_t mine = (int32_t)getpid();
    struct pollfd ended = {.events = POLLIN};
    struct shunt_comm *twin;
    int32_t pids[3];
    int64_t word = 0;
    enum shunt_status st;
    const int *lost;
    size_t count;

    CHECK_OK(self->comm,
             shunt_allgather(self->comm, &mine, pids, 1, SHUNT_I32));
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &twin));
    CHECK_OK(twin, shunt_barrier(twin));
    ended.fd = (int)syscall(SYS_pidfd_open, pids[victim], 0);
    CHECK(ended.fd >= 0, "%s", strerror(errno));
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    rank_say("in the loop");
    if (self->rank == victim)
        for (;;)
            pause();
    if (self->rank == 0) {
        st = shunt_broadcast(twin, &word, 1, SHUNT_I64, 1);
        CHECK(st == SHUNT_ERR_PEER, "%s", shunt_strerror(st));
        CHECK_OK(twin, shunt_comm_lost(twin, &lost, &count));
        CHECK(count == 1 && lost[0] == victim, "%zu lost: %s", count,
              shunt_last_error(twin));
    } else {
        CHECK(poll(&ended, 1, 20000) == 1, "rank %d lives", victim);
    }
    shunt_comm_destroy(twin);
    close(ended.fd);
    return 0;
}

/* A rank that is stopped, but alive, must be given up after the timeout. */
static int silent(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_comm *comm;
    enum shunt_status st;
    double t0;

    config.timeout = 2;
    CHECK_OK(NULL, shunt_comm_create_env(&config, &comm));
    CHECK_OK(comm, shunt_barrier(comm));
    if (self->rank == 1) {
        rank_say("stopping");
        raise(SIGSTOP);
        return 0;
    }
    t0 = now_s();
    st = shunt_barrier(comm);
    CHECK(st == SHUNT_ERR_TIMEOUT, "%s: %s", shunt_strerror(st),
          shunt_last_error(comm));
    CHECK(strstr(shunt_last_error(comm), "rank 1"), "%s",
          shunt_last_error(comm));
    CHECK(now_s() - t0 > 1.5 && now_s() - t0 < 5, "after %.1f s", now_s() - t0);
    shunt_comm_destroy(comm);
    return 0;
}

/* True if the arguments name `rank`. */
static bool is_named(const struct rank *self, int rank)
{
    for (int i = 0; i < self->argc; i++)
        if (atoi(self->argv[i]) == rank)
            return true;
    return false;
}

/* Checks the calls of this rank, which was stopped for longer than the timeout
 * and now continues. */
static int come_back(struct shunt_comm *comm)
{
    struct shunt_comm *made = NULL;
    enum shunt_status st;

    st = shunt_barrier(comm);
    CHECK(st == SHUNT_ERR_TIMEOUT || st == SHUNT_ERR_PEER, "%s: %s",
          shunt_strerror(st), shunt_last_error(comm));
    for (int i = 0; i < 2; i++) {
        st = shunt_comm_shrink(comm, &made);
        CHECK(st < 0 && !made, "a communicator of its own, of %d ranks: %s",
              shunt_comm_size(made), shunt_strerror(st));
        CHECK(strstr(shunt_last_error(comm), "on without"), "%s",
              shunt_last_error(comm));
    }
    st = shunt_comm_dup(comm, &made);
    CHECK(st < 0 && !made, "dup: %s", shunt_strerror(st));
    return 0;
}

/* Rank 2 takes part in a split until each rank has all ids. Then it is killed,
 * stopped, or calls abort(). So the others wait for its message that it has
 * joined. Its key is 0, so it would be rank 3 of the new communicator. */
static int split_without(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    const bool stop = !strcmp(self->argv[0], "stop");
    unsigned char ticket[136] = {0}, tickets[4 * sizeof(ticket)];
    struct shunt_comm *comm, *half;
    enum shunt_status st, want;
    const int *lost;
    size_t count;
    double t0;

    config.timeout = stop ? 2 : 20;
    CHECK(self->size == 4, "%d ranks", self->size);
    CHECK_OK(NULL, shunt_comm_create_env(&config, &comm));
    CHECK_OK(comm, shunt_barrier(comm));
    if (self->rank == 2) {
        /* the exchange that shunt_comm_split() makes */
        for (int i = 0; i < 2; i++)
            CHECK_OK(comm, shunt_allgather(comm, ticket, tickets,
                                           sizeof(ticket), SHUNT_U8));
        rank_say("in the split");
        if (!strcmp(self->argv[0], "abort"))
            shunt_comm_abort(comm);
        else
            raise(stop ? SIGSTOP : SIGKILL);
        shunt_comm_destroy(comm);
        return 0;
    }
    t0 = now_s();
    st = shunt_comm_split(comm, 0, -self->rank, &half);
    want = !strcmp(self->argv[0], "abort") ? SHUNT_ERR_ABORTED
           : stop                          ? SHUNT_ERR_TIMEOUT
                                           : SHUNT_ERR_PEER;
    CHECK(st == want && !half, "%s: %s", shunt_strerror(st),
          shunt_last_error(comm));
    CHECK(now_s() - t0 < (stop ? 10 : 5), "after %.1f s", now_s() - t0);
    CHECK(strstr(shunt_last_error(comm), "rank 2"), "%s",
          shunt_last_error(comm));
    if (want != SHUNT_ERR_ABORTED) {
        CHECK_OK(comm, shunt_comm_lost(comm, &lost, &count));
        CHECK(count == 1 && lost[0] == 2, "%zu lost, rank %d", count,
              count ? lost[0] : -1);
    }
    CHECK_STATUS(comm, shunt_barrier(comm), want);
    shunt_comm_destroy(comm);
    return 0;
}

/* The named ranks are stopped. The others give them up, and go on without them.
 * Then the named ranks continue, and must not go on by themselves. */
static int stopped_and_back(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_comm *comm, *smaller;
    enum shunt_status st;
    const int *lost;
    size_t count;

    config.timeout = 2;
    CHECK_OK(NULL, shunt_comm_create_env(&config, &comm));
    CHECK_OK(comm, shunt_barrier(comm));
    if (is_named(self, self->rank)) {
        rank_say("stopping");
        raise(SIGSTOP);
        CHECK_RUN(come_back(comm));
    } else {
        st = shunt_barrier(comm);
        CHECK(st == SHUNT_ERR_TIMEOUT, "%s: %s", shunt_strerror(st),
              shunt_last_error(comm));
        CHECK_OK(comm, shunt_comm_shrink(comm, &smaller));
        CHECK(shunt_comm_size(smaller) == self->size - self->argc, "size %d",
              shunt_comm_size(smaller));
        CHECK_OK(comm, shunt_comm_lost(comm, &lost, &count));
        CHECK(count == (size_t)self->argc, "%zu lost", count);
        for (size_t i = 0; i < count; i++)
            CHECK(is_named(self, lost[i]), "rank %d is lost", lost[i]);
        CHECK_RUN(check_sum(self, smaller, 1, self->size - self->argc));
        CHECK_OK(smaller, shunt_comm_finish(smaller));
        shunt_comm_destroy(smaller);
    }
    shunt_comm_destroy(comm);
    return 0;
}

/* A loss must be noticed in tests, too, not only in waits. */
static int killed_while_testing(const struct rank *self)
{
    int victim = atoi(self->argv[0]);
    struct shunt_request *request;
    double t0;
    enum shunt_status st;

    CHECK_OK(self->comm, shunt_barrier(self->comm));
    rank_say("in the loop");
    if (self->rank == victim)
        for (;;)
            pause();
    /* This rank may have noticed the loss before this call. */
    st = shunt_barrier_start(self->comm, &request);
    t0 = now_s();
    if (st == SHUNT_OK)
        do
            st = shunt_test(&request);
        while (st == SHUNT_IN_PROGRESS && now_s() - t0 < 20);
    return check_peer_lost(self, st, victim);
}

/* --- progress thread --------------------------------------------------------------------- */

/* Rank 1 starts a large exchange and never tests it. Rank 0 must be able to
 * finish it all the same, because rank 1 has a progress thread. */
static int thread_progresses(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    const size_t count = (size_t)8 << 20;
    struct shunt_request *request;
    unsigned char *send, *recv;
    struct shunt_comm *comm;
    int go = 0;

    config.progress_thread = 1;
    config.transports = self->threads ? "inproc" : NULL;
    if (self->threads)
        CHECK_OK(NULL, shunt_comm_create(self->id, self->size, self->rank,
                                         &config, &comm));
    else
        CHECK_OK(NULL, shunt_comm_create_env(&config, &comm));
    send = malloc(count * (size_t)self->size);
    recv = malloc(count * (size_t)self->size);
    CHECK(send && recv, "memory");
    memset(send, self->rank + 1, count * (size_t)self->size);
    CHECK_OK(comm,
             shunt_alltoall_start(comm, send, recv, count, SHUNT_U8, &request));
    if (self->rank == 0) {
        CHECK_OK(comm, shunt_wait(&request));
        CHECK(recv[count] == 2, "rank 1's block");
    }
    /* This broadcast on the other communicator makes rank 1 wait only after
     * rank 0 has finished. */
    if (self->comm)
        CHECK_OK(self->comm, shunt_broadcast(self->comm, &go, 1, SHUNT_I32, 0));
    if (self->rank != 0)
        CHECK_OK(comm, shunt_wait(&request));
    CHECK(recv[0] == 1, "rank 0's block");
    if (check_sum(self, comm, 1, self->size))
        return 1;
    CHECK_OK(comm, shunt_comm_finish(comm));
    shunt_comm_destroy(comm);
    free(send);
    free(recv);
    return 0;
}

/* The share of these bytes that is not 0, judged by the first byte of each
 * page. Another thread may be writing to them. */
static double share_written(const unsigned char *at, size_t bytes)
{
    const size_t page = 4096;
    size_t written = 0;

    for (size_t i = 0; i < bytes; i += page)
        written += __atomic_load_n(at + i, __ATOMIC_RELAXED) != 0;
    return (double)(written * page) / (double)bytes;
}

/* Waits for at most 20 s until 95 % of these bytes are written. Returns their
 * share. */
static double await_written(const unsigned char *at, size_t bytes)
{
    const double end = now_s() + 20;
    double share;

    do
        share = share_written(at, bytes);
    while (share < 0.95 && now_s() < end);
    return share;
}

/* An exchange must advance after its start, although no rank waits for it. With
 * argv[0] "tests" it advances in tests. Otherwise a thread of the library
 * advances it while the caller makes no calls: the helper does not touch a
 * communicator whose caller keeps calling. */
static int moves_before_wait(const struct rank *self)
{
    const size_t n = (size_t)self->size, block = (size_t)16 << 20;
    const bool tests = self->argc > 0;
    const double end = now_s() + 20;
    unsigned char *send = malloc(n * block), *recv = calloc(n, block);
    enum shunt_status st = SHUNT_IN_PROGRESS;
    struct shunt_request *request;

    CHECK(send && recv, "memory");
    memset(send, self->rank + 1, n * block);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    CHECK_OK(self->comm, shunt_alltoall_start(self->comm, send, recv, block,
                                              SHUNT_U8, &request));
    while (tests && st == SHUNT_IN_PROGRESS && now_s() < end)
        st = shunt_test(&request);
    CHECK(!tests || st == SHUNT_OK, "tests alone: %s",
          rank_why(self->comm, st));
    if (!tests) {
        const double share = await_written(recv, n * block);

        CHECK(share >= 0.95, "%.1f%% had arrived before the wait", 100 * share);
        CHECK_OK(self->comm, shunt_wait(&request));
    }
    for (size_t i = 0; i < n; i++)
        CHECK(recv[(i + 1) * block - 1] == i + 1, "block %zu", i);
    free(send);
    free(recv);
    return 0;
}

/* --- the table of cases --------------------------------------------------- */

static const struct rank_case cases[] = {
    {"queries", queries, .min_ranks = 1},
    {"split_by_parity", split_by_parity, .min_ranks = 2},
    {"split_leaves_some_out", split_leaves_some_out, .min_ranks = 2},
    {"dup_is_independent", dup_is_independent, .min_ranks = 1},
    {"many_in_a_row", many_in_a_row, .min_ranks = 1},
    {"windows_come_and_go", windows_come_and_go, .min_ranks = 1},
    {"bad_window_calls", bad_window_calls, .min_ranks = 2},
    {"bad_creation", bad_creation, .no_comm = true, .no_threads = true},
    {"bad_creation_is_reported", bad_creation_is_reported, .no_comm = true,
     .no_threads = true, .min_ranks = 2},
    {"unknown_transport", unknown_transport, .no_comm = true,
     .no_threads = true, .min_ranks = 2},
    {"long_list_of_transports", long_list_of_transports, .no_comm = true,
     .no_threads = true, .min_ranks = 2},
    {"nodes_share_no_memory", nodes_share_no_memory, .min_ranks = 2},
    {"abort_wakes_everyone", abort_wakes_everyone, .breaks_comm = true},
    {"abort_ends_other_calls", abort_ends_other_calls, .min_ranks = 2},
    {"early_destroy_is_a_loss", early_destroy_is_a_loss, .min_ranks = 2},
    {"done_and_gone", done_and_gone, .min_ranks = 3},
    {"killed", killed, .breaks_comm = true, .no_threads = true},
    {"killed_then_shrink", killed_then_shrink, .breaks_comm = true,
     .no_threads = true},
    {"killed_before_one_leaves", killed_before_one_leaves, .breaks_comm = true,
     .no_threads = true, .min_ranks = 3},
    {"killed_while_testing", killed_while_testing, .breaks_comm = true,
     .no_threads = true},
    {"silent", silent, .no_comm = true, .no_threads = true},
    {"split_without", split_without, .no_comm = true, .no_threads = true},
    {"stopped_and_back", stopped_and_back, .no_comm = true, .no_threads = true},
    {"moves_before_wait", moves_before_wait, .no_threads = true,
     .min_ranks = 2},
    {"thread_progresses", thread_progresses, .wants_id = true, .no_comm = true,
     .min_ranks = 2},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
