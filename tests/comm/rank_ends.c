// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of test_ends.c. One of them ends in one of several ways, and the
 * others must report that way. In other cases, ranks make calls on two
 * communicators in different orders.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

static void end_by(const char *how)
{
    if (!strcmp(how, "kill"))
        raise(SIGKILL);
    if (!strcmp(how, "_exit"))
        _exit(3);
    exit(atoi(how));
}

static int check_lost(struct shunt_comm *comm, int want)
{
    const int *lost;
    size_t count;

    CHECK_OK(comm, shunt_comm_lost(comm, &lost, &count));
    CHECK(count == (want >= 0), "%zu lost: %s", count, shunt_last_error(comm));
    CHECK(want < 0 || lost[0] == want, "rank %d is lost, not %d: %s", lost[0],
          want, shunt_last_error(comm));
    return 0;
}

/* Rank 1 ends as argv[0] says. The error texts of all others must contain
 * argv[1]. They must also contain argv[2], except on ranks that get the error
 * from another rank. No text may say that a killed rank exited. */
static int ends(const struct rank *self)
{
    enum shunt_status st = shunt_barrier(self->comm);

    if (self->rank == 1)
        end_by(self->argv[0]);
    /* Rank 1 may have returned from the first barrier and ended while another
     * rank is still in it. */
    if (!st)
        st = shunt_barrier(self->comm);
    CHECK(st == SHUNT_ERR_PEER, "%s: %s", shunt_strerror(st),
          shunt_last_error(self->comm));
    CHECK(strstr(shunt_last_error(self->comm), self->argv[1]), "%s",
          shunt_last_error(self->comm));
    CHECK(strstr(shunt_last_error(self->comm), self->argv[2]) ||
              strstr(shunt_last_error(self->comm), "noticed"),
          "%s", shunt_last_error(self->comm));
    CHECK(atoi(self->argv[0]) || !strcmp(self->argv[0], "0") ||
              !strstr(shunt_last_error(self->comm), "exit status"),
          "%s", shunt_last_error(self->comm));
    return check_lost(self->comm, 1);
}

/* Opens a descriptor that becomes readable when the process of `rank` has
 * ended. */
static int open_process(const struct rank *self, int rank, int *fd)
{
    const int32_t mine = (int32_t)getpid();
    int32_t pids[8];

    CHECK(self->size <= 8, "%d ranks", self->size);
    CHECK_OK(self->comm,
             shunt_allgather(self->comm, &mine, pids, 1, SHUNT_I32));
    *fd = (int)syscall(SYS_pidfd_open, pids[rank], 0);
    CHECK(*fd >= 0, "%s", strerror(errno));
    return 0;
}

static int await_end(int fd)
{
    struct pollfd ended = {.fd = fd, .events = POLLIN};

    CHECK(poll(&ended, 1, 20000) == 1, "it lives");
    close(fd);
    return 0;
}

/* Rank 2 is killed. Rank 1 notices that in a communicator of ranks 1 and 2. Its
 * program gives up and ends. Rank 0 waits only for rank 1, but must name rank
 * 2. */
static int one_gives_up(const struct rank *self)
{
    struct shunt_comm *child;
    int32_t word = 0;
    int first, second;
    enum shunt_status st;

    CHECK_OK(self->comm,
             shunt_comm_split(self->comm, self->rank ? 1 : -1, 0, &child));
    CHECK_RUN(open_process(self, 1, &first));
    CHECK_RUN(open_process(self, 2, &second));
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    if (self->rank == 2)
        raise(SIGKILL);
    if (self->rank == 1) {
        CHECK_RUN(await_end(second));
        st = shunt_barrier(child);
        CHECK(st == SHUNT_ERR_PEER, "%s", shunt_strerror(st));
        exit(1);
    }
    CHECK_RUN(await_end(second));
    CHECK_RUN(await_end(first));
    st = shunt_broadcast(self->comm, &word, 1, SHUNT_I32, 1);
    CHECK(st == SHUNT_ERR_PEER, "%s", shunt_strerror(st));
    CHECK(strstr(shunt_last_error(self->comm), "rank 2 is lost"), "%s",
          shunt_last_error(self->comm));
    return check_lost(self->comm, 2);
}

/* Rank 0 calls on the first of two communicators, the others on the second one.
 * No rank is lost, and the texts must say what is wrong. */
static int crossed(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_comm *comm[2];
    const int mine = self->rank != 0;
    int32_t failed = 0, all;
    struct shunt_id id;
    enum shunt_status st;

    config.timeout = 2;
    if (self->rank == 0)
        CHECK_OK(NULL, shunt_id_create(&id));
    CHECK_OK(self->comm,
             shunt_broadcast(self->comm, &id, sizeof(id), SHUNT_U8, 0));
    CHECK_OK(NULL,
             shunt_comm_create(&id, self->size, self->rank, &config, &comm[0]));
    CHECK_OK(comm[0], shunt_comm_dup(comm[0], &comm[1]));
    CHECK_OK(comm[0], shunt_barrier(comm[0]));
    CHECK_OK(comm[1], shunt_barrier(comm[1]));
    for (int i = 0; i < 2; i++) {
        struct shunt_comm *c = comm[i ? !mine : mine];

        /* The first rank that gets an error continues with the other
         * communicator, where the others may still wait. */
        st = shunt_barrier(c);
        CHECK(!st || st == SHUNT_ERR_TIMEOUT, "%s", shunt_strerror(st));
        CHECK(!st || (strstr(shunt_last_error(c), "alive") &&
                      strstr(shunt_last_error(c), "in the same order")),
              "%s", shunt_last_error(c));
        CHECK_RUN(check_lost(c, -1));
        failed += st != SHUNT_OK;
    }
    /* If one rank failed first, the others may still complete both calls,
     * because all data that they need have arrived. */
    CHECK_OK(self->comm, shunt_allreduce(self->comm, &failed, &all, 1,
                                         SHUNT_I32, SHUNT_SUM));
    CHECK(all, "no call has failed");
    shunt_comm_destroy(comm[1]);
    shunt_comm_destroy(comm[0]);
    return 0;
}

/* Rank 1 aborts a communicator. This rank notices that in calls on another
 * communicator. The error text of its own earlier call must stay. */
static int keeps_text(const struct rank *self, struct shunt_comm *between,
                      struct shunt_comm *other)
{
    struct shunt_comm *comm = self->comm;
    struct shunt_request *begun, *under_way;
    char text[512];
    int32_t data = 0;
    enum shunt_status st;

    CHECK_OK(comm, shunt_barrier_start(comm, &begun));
    st = shunt_broadcast(comm, &data, 1, SHUNT_I32, self->size);
    CHECK(st == SHUNT_ERR_INVALID, "%s", rank_why(comm, st));
    snprintf(text, sizeof(text), "%s", shunt_last_error(comm));
    CHECK(strstr(text, "root"), "%s", text);
    CHECK_OK(between, shunt_barrier(between));
    CHECK_OK(other, shunt_barrier_start(other, &under_way));
    /* Each test also progresses the barrier of `comm`. */
    while (!shunt_comm_async_status(comm))
        CHECK(shunt_test(&under_way) == SHUNT_IN_PROGRESS, "no rank 1");
    CHECK(shunt_test(&under_way) == SHUNT_IN_PROGRESS, "no rank 1");
    CHECK(!strcmp(shunt_last_error(comm), text), "\"%s\" became \"%s\"", text,
          shunt_last_error(comm));
    CHECK(!strcmp(shunt_last_error(NULL), text), "\"%s\" became \"%s\"", text,
          shunt_last_error(NULL));
    st = shunt_wait(&begun);
    CHECK(st == SHUNT_ERR_ABORTED &&
              strstr(shunt_last_error(comm), "shunt_comm_abort()"),
          "%s", rank_why(comm, st));
    CHECK_OK(between, shunt_barrier(between));
    CHECK_OK(other, shunt_wait(&under_way));
    return 0;
}

static int aborted_later(const struct rank *self)
{
    struct shunt_comm *between, *other;
    enum shunt_status st;

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &between));
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &other));
    if (self->rank == 1) {
        CHECK_OK(between, shunt_barrier(between));
        shunt_comm_abort(self->comm);
        /* ranks on other nodes get the abort by this call, too */
        st = shunt_barrier(self->comm);
        CHECK(st == SHUNT_ERR_ABORTED, "%s", rank_why(self->comm, st));
        CHECK_OK(between, shunt_barrier(between));
        CHECK_OK(other, shunt_barrier(other));
    } else {
        CHECK_RUN(keeps_text(self, between, other));
    }
    shunt_comm_destroy(other);
    shunt_comm_destroy(between);
    return 0;
}

static const struct rank_case cases[] = {
    {"ends", ends, .breaks_comm = true, .no_threads = true, .min_ranks = 2},
    {"one_gives_up", one_gives_up, .breaks_comm = true, .no_threads = true,
     .min_ranks = 3},
    {"aborted_later", aborted_later, .breaks_comm = true, .min_ranks = 2},
    {"crossed", crossed, .no_threads = true, .min_ranks = 2},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
