// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of test_notify.c: each is notified of the end of a request without
 * calling the library meanwhile.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/comm/swap.h"
#include "tests/harness/failing_threads.h"
#include "tests/harness/rank_main.h"

/* --- an exchange -------------------------------------------------------------- */

enum { ROOM = 5 }; /* exchanges under way at a time */

struct swaps {
    struct swap of[ROOM];
    int count;
};

static int swaps_start(struct swaps *s, const struct rank *self,
                       struct shunt_comm *comm, size_t bytes, int count)
{
    s->count = count;
    for (int k = 0; k < count; k++) {
        CHECK_RUN(swap_init(&s->of[k], self, bytes));
        CHECK_RUN(swap_start(&s->of[k], self, comm, k));
    }
    return 0;
}

static int swaps_end(struct swaps *s, const struct rank *self,
                     struct shunt_comm *comm)
{
    for (int k = 0; k < s->count; k++) {
        CHECK_OK(comm, shunt_wait(&s->of[k].request));
        CHECK_RUN(swap_check(&s->of[k], self, k));
        swap_finish(&s->of[k]);
    }
    return 0;
}

/* --- notifications -------------------------------------------------------------- */

/* Reads the descriptor until `count` requests are done, outside of the
 * library. */
static int await_fd(int fd, uint64_t count)
{
    uint64_t sum = 0, value;

    while (sum < count) {
        struct pollfd p = {.fd = fd, .events = POLLIN};

        CHECK(poll(&p, 1, 30000) == 1, "%d of %d are done", (int)sum,
              (int)count);
        CHECK(read(fd, &value, sizeof(value)) == (ssize_t)sizeof(value),
              "read: %s", strerror(errno));
        sum += value;
    }
    CHECK(sum == count, "%d of %d", (int)sum, (int)count);
    CHECK(read(fd, &value, sizeof(value)) < 0 && errno == EAGAIN,
          "told more than once");
    return 0;
}

static void count_call(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

static int await_calls(atomic_int *calls, int count)
{
    const time_t end = time(NULL) + 30;

    while (atomic_load(calls) < count && time(NULL) < end)
        sched_yield();
    CHECK(atomic_load(calls) == count, "%d calls, not %d", atomic_load(calls),
          count);
    return 0;
}

static int open_fd(int *fd)
{
    *fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    CHECK(*fd >= 0, "eventfd: %s", strerror(errno));
    return 0;
}

/* --- the cases ------------------------------------------------------------------ */

static int notified_of_size(const struct rank *self, size_t bytes)
{
    atomic_int calls = 0;
    struct swaps s;
    int fd;

    CHECK_RUN(open_fd(&fd));
    CHECK_RUN(swaps_start(&s, self, self->comm, bytes, ROOM));
    for (int k = ROOM; k-- > 0;) { /* in any order */
        CHECK_OK(self->comm, shunt_notify_fd(s.of[k].request, fd));
        CHECK_OK(self->comm, shunt_notify(s.of[k].request, count_call, &calls));
    }
    CHECK_RUN(await_fd(fd, ROOM));
    CHECK_RUN(await_calls(&calls, ROOM));
    CHECK_RUN(swaps_end(&s, self, self->comm));
    CHECK(atomic_load(&calls) == ROOM, "%d calls", atomic_load(&calls));
    close(fd);
    return 0;
}

static int notified_of_small(const struct rank *self)
{
    for (int k = 0; k < 20; k++)
        CHECK_RUN(notified_of_size(self, 8));
    return notified_of_size(self, 5000);
}

static int notified_of_large(const struct rank *self)
{
    CHECK_RUN(notified_of_size(self, (size_t)300 << 10));
    return notified_of_size(self, (size_t)3 << 20);
}

/* Some requests have notifications, while the caller waits for others, tests,
 * and makes calls. */
static int notified_among_calls(const struct rank *self)
{
    for (int k = 0; k < 30; k++) {
        atomic_int calls = 0;
        int32_t one = 1, sum;
        struct swaps s;

        CHECK_RUN(swaps_start(&s, self, self->comm, (size_t)64 << 10, ROOM));
        for (int i = k % 2; i < ROOM; i += 2)
            CHECK_OK(self->comm,
                     shunt_notify(s.of[i].request, count_call, &calls));
        if (k % 3 == 0)
            CHECK_OK(self->comm, shunt_wait(&s.of[k % ROOM].request));
        if (k % 3 == 1) {
            CHECK_OK(self->comm, shunt_allreduce(self->comm, &one, &sum, 1,
                                                 SHUNT_I32, SHUNT_SUM));
            CHECK(sum == self->size, "sum %d", (int)sum);
        }
        CHECK_RUN(await_calls(&calls, k % 2 ? 2 : 3));
        CHECK_RUN(swaps_end(&s, self, self->comm));
    }
    return 0;
}

/* Each rank waits for a request on another communicator than its neighbours, so
 * it must progress both. The notification is requested before both requests
 * have started in some rounds, and afterwards in others. */
static int notified_across(const struct rank *self)
{
    struct shunt_comm *comm[2] = {self->comm};

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &comm[1]));
    for (int k = 0; k < 4; k++) {
        const int own = (self->rank + k) % 2, order = k / 2;
        atomic_int calls = 0;
        struct swaps s[2];

        for (int i = 0; i < 2; i++) {
            const int which = order ? own ^ i : own ^ !i;

            CHECK_RUN(
                swaps_start(&s[which], self, comm[which], (size_t)3 << 20, 1));
            if (which == own)
                CHECK_OK(comm[own], shunt_notify(s[own].of[0].request,
                                                 count_call, &calls));
        }
        CHECK_RUN(await_calls(&calls, 1));
        for (int i = 0; i < 2; i++)
            CHECK_RUN(swaps_end(&s[i], self, comm[i]));
    }
    shunt_comm_destroy(comm[1]);
    return 0;
}

/* A root's wait returns before the other ranks have entered. The notification
 * must have been made by then. */
static int notified_by_root(const struct rank *self)
{
    struct shunt_request *request;
    struct shunt_comm *other;
    atomic_int calls = 0;

    if (shunt_comm_nodes(self->comm) > 1)
        return 0; /* between nodes a broadcast waits for all ranks */
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &other));
    for (int k = 0; k < 10; k++) {
        int32_t numbers[2000] = {self->rank ? 0 : 7 + k};

        if (self->rank)
            CHECK_OK(other, shunt_barrier(other));
        CHECK_OK(self->comm,
                 shunt_broadcast_start(self->comm, numbers, k % 2 ? 2000 : 20,
                                       SHUNT_I32, 0, &request));
        CHECK_OK(self->comm, shunt_notify(request, count_call, &calls));
        CHECK_OK(self->comm, shunt_wait(&request));
        CHECK(atomic_load(&calls) == k + 1, "told %d times of %d",
              atomic_load(&calls), k + 1);
        CHECK(numbers[0] == 7 + k, "got %d", (int)numbers[0]);
        if (!self->rank)
            CHECK_OK(other, shunt_barrier(other));
    }
    shunt_comm_destroy(other);
    return 0;
}

/* A request that is already done must be notified at once. */
static int notified_late(const struct rank *self)
{
    atomic_int calls = 0;
    struct swaps s;
    int fd;

    CHECK_RUN(open_fd(&fd));
    CHECK_OK(self->comm, shunt_notify(NULL, count_call, &calls));
    CHECK(atomic_load(&calls) == 1, "no request is a request that is done");
    CHECK_OK(self->comm, shunt_notify_fd(NULL, fd));
    CHECK_RUN(await_fd(fd, 1));
    CHECK_RUN(swaps_start(&s, self, self->comm, 100, 1));
    CHECK_OK(self->comm, shunt_notify_fd(s.of[0].request, fd));
    CHECK_RUN(await_fd(fd, 1));
    CHECK_OK(self->comm, shunt_notify(s.of[0].request, count_call, &calls));
    CHECK(atomic_load(&calls) == 2, "not told at once");
    CHECK_RUN(swaps_end(&s, self, self->comm));
    close(fd);
    return 0;
}

/* --- full descriptors ----------------------------------------------------- */

enum { FULL_PIPE, FULL_EVENTFD, FULL_SOCKET, FULL_KINDS };

/* Makes blocking descriptors that are full: fds[0] is read from, fds[1] is
 * written to. */
static int fill(int kind, int fds[2])
{
    const uint64_t most = UINT64_MAX - 1;
    char page[4096] = "";
    ssize_t n;

    if (kind == FULL_EVENTFD) {
        fds[0] = fds[1] = eventfd(0, EFD_CLOEXEC);
        CHECK(fds[0] >= 0 && write(fds[1], &most, sizeof(most)) > 0,
              "eventfd: %s", strerror(errno));
        return 0;
    }
    CHECK(!(kind == FULL_PIPE
                ? pipe2(fds, O_CLOEXEC)
                : socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds)),
          "%s", strerror(errno));
    CHECK(!fcntl(fds[1], F_SETFL, O_NONBLOCK), "%s", strerror(errno));
    do
        n = write(fds[1], page, sizeof(page));
    while (n > 0);
    do
        n = write(fds[1], page, 1);
    while (n > 0);
    CHECK(n < 0 && errno == EAGAIN, "%s", strerror(errno));
    CHECK(!fcntl(fds[1], F_SETFL, 0), "%s", strerror(errno));
    return 0;
}

/* Neither the caller nor its waits may block on a full descriptor. The
 * descriptor must stay full and blocking. */
static int full_descriptors(const struct rank *self)
{
    for (int kind = 0; kind < FULL_KINDS; kind++) {
        struct pollfd p = {.events = POLLIN};
        atomic_int calls = 0;
        struct swaps s;
        int fds[2];

        CHECK_RUN(fill(kind, fds));
        CHECK_OK(self->comm, shunt_notify_fd(NULL, fds[1]));
        CHECK_RUN(swaps_start(&s, self, self->comm, 100, 2));
        for (int k = 0; k < 2; k++)
            CHECK_OK(self->comm, shunt_notify_fd(s.of[k].request, fds[1]));
        CHECK_OK(self->comm, shunt_notify(s.of[1].request, count_call, &calls));
        CHECK_RUN(await_calls(&calls, 1));
        CHECK_RUN(swaps_end(&s, self, self->comm));
        p.fd = fds[0];
        CHECK(poll(&p, 1, 0) == 1, "kind %d is not readable", kind);
        CHECK(!(fcntl(fds[1], F_GETFL) & O_NONBLOCK), "a flag was changed");
        close(fds[0]);
        if (fds[1] != fds[0])
            close(fds[1]);
    }
    return 0;
}

/* A pipe with room gets a word for each request. Writing to a pipe without a
 * reader must cause no signal. */
static int by_pipe(const struct rank *self)
{
    int fds[2];
    struct swaps s;

    CHECK(!pipe2(fds, O_CLOEXEC), "pipe: %s", strerror(errno));
    CHECK_RUN(swaps_start(&s, self, self->comm, 100, ROOM));
    for (int k = 0; k < ROOM; k++)
        CHECK_OK(self->comm, shunt_notify_fd(s.of[k].request, fds[1]));
    for (int k = 0; k < ROOM; k++) {
        uint64_t value = 0;

        CHECK(read(fds[0], &value, sizeof(value)) == sizeof(value) &&
                  value == 1,
              "word %d is %d", k, (int)value);
    }
    CHECK_RUN(swaps_end(&s, self, self->comm));
    close(fds[0]);
    CHECK_OK(self->comm, shunt_notify_fd(NULL, fds[1]));
    close(fds[1]);
    return 0;
}

static int refused(int fd, const char *why)
{
    enum shunt_status st = shunt_notify_fd(NULL, fd);

    CHECK(fd >= 0, "%s", strerror(errno));
    CHECK(st == SHUNT_ERR_INVALID, "%s: %s", why, shunt_strerror(st));
    CHECK(strstr(shunt_last_error(NULL), why), "\"%s\"",
          shunt_last_error(NULL));
    return close(fd);
}

static int unfit_descriptors(const struct rank *self)
{
    int fds[2];

    (void)self;
    CHECK(!pipe2(fds, O_CLOEXEC), "pipe: %s", strerror(errno));
    CHECK_RUN(refused(fds[0], "read-only"));
    close(fds[1]);
    CHECK_RUN(refused(open("/dev/null", O_RDONLY | O_CLOEXEC), "read-only"));
    CHECK_RUN(refused(open("/dev/null", O_PATH | O_CLOEXEC), "read-only"));
    CHECK_RUN(refused(epoll_create1(EPOLL_CLOEXEC), "eventfd"));
    CHECK_RUN(refused(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), "eventfd"));
    return 0;
}

static int bad_arguments(const struct rank *self)
{
    atomic_int calls = 0;
    struct swaps s;
    int fd;

    CHECK_RUN(open_fd(&fd));
    /* One rank starts later, so that the requests of the others are under
     * way. */
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    CHECK(shunt_notify_fd(NULL, -1) == SHUNT_ERR_INVALID, "no descriptor");
    CHECK(shunt_notify(NULL, NULL, NULL) == SHUNT_ERR_INVALID, "no function");
    CHECK_RUN(swaps_start(&s, self, self->comm, (size_t)4 << 20, 1));
    CHECK(shunt_notify(s.of[0].request, NULL, NULL) == SHUNT_ERR_INVALID,
          "no function");
    CHECK(strstr(shunt_last_error(self->comm), "done is NULL"), "%s",
          shunt_last_error(self->comm));
    CHECK(shunt_notify_fd(s.of[0].request, -1) == SHUNT_ERR_INVALID,
          "no descriptor");
    CHECK(strstr(shunt_last_error(self->comm), "descriptor -1"), "%s",
          shunt_last_error(self->comm));
    CHECK_OK(self->comm, shunt_notify(s.of[0].request, count_call, &calls));
    if (!atomic_load(&calls)) {
        enum shunt_status st =
            shunt_notify(s.of[0].request, count_call, &calls);

        /* the request may have ended meanwhile, and was then notified at
         * once */
        CHECK(st == SHUNT_ERR_BUSY || (!st && atomic_load(&calls) == 2),
              "a second one: %s", shunt_strerror(st));
    }
    CHECK_RUN(swaps_end(&s, self, self->comm));
    close(fd);
    return 0;
}

/* Destroying a communicator ends its requests. */
static int destroyed_first(const struct rank *self)
{
    struct shunt_comm *dup;
    atomic_int calls = 0;
    struct swaps s;

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &dup));
    if (self->rank == 0) { /* no other rank makes this call */
        CHECK_RUN(swaps_start(&s, self, dup, (size_t)4 << 20, 2));
        CHECK_OK(dup, shunt_notify(s.of[1].request, count_call, &calls));
        CHECK(atomic_load(&calls) == 0, "told too early");
        shunt_comm_destroy(dup);
        CHECK(atomic_load(&calls) == 1, "%d calls", atomic_load(&calls));
    }
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    if (self->rank)
        shunt_comm_destroy(dup);
    else
        for (int k = 0; k < 2; k++) {
            CHECK(shunt_wait(&s.of[k].request) != SHUNT_OK, "its end");
            swap_finish(&s.of[k]);
        }
    return 0;
}

/* Makes the file argv[0], which no rank has made before, as a signal to the
 * others. */
static void tell_others(const struct rank *self)
{
    FILE *file = fopen(self->argv[0], "w");

    if (file)
        fclose(file);
}

static bool has_arrived(const struct rank *self)
{
    struct stat st;

    return stat(self->argv[0], &st) == 0;
}

static int await_others(const struct rank *self)
{
    const time_t end = time(NULL) + 60;

    while (!has_arrived(self) && time(NULL) < end)
        sched_yield();
    CHECK(has_arrived(self), "rank 0 has not come so far");
    return 0;
}

/* Rank 1 is lost, or makes no call until SHUNT_TIMEOUT, which is short. */
static int notified_of_failure(const struct rank *self,
                               enum shunt_status wanted)
{
    enum shunt_status st;
    struct swaps s;
    int fd;

    CHECK_OK(self->comm, shunt_barrier(self->comm));
    if (self->rank == 1) {
        if (wanted == SHUNT_ERR_PEER)
            _exit(0);
        return await_others(self);
    }
    CHECK_RUN(open_fd(&fd));
    CHECK_RUN(swaps_start(&s, self, self->comm, (size_t)1 << 20, 1));
    CHECK_OK(self->comm, shunt_notify_fd(s.of[0].request, fd));
    CHECK_RUN(await_fd(fd, 1));
    st = shunt_wait(&s.of[0].request);
    CHECK(st == wanted, "%s: %s", shunt_strerror(st),
          shunt_last_error(self->comm));
    CHECK(strstr(shunt_last_error(self->comm), "rank 1"), "names: %s",
          shunt_last_error(self->comm));
    tell_others(self);
    swap_finish(&s.of[0]);
    close(fd);
    return 0;
}

static int notified_of_a_loss(const struct rank *self)
{
    return notified_of_failure(self, SHUNT_ERR_PEER);
}

static int notified_of_a_timeout(const struct rank *self)
{
    return notified_of_failure(self, SHUNT_ERR_TIMEOUT);
}

static int no_thread_to_be_had(const struct rank *self)
{
    atomic_int calls = 0;
    enum shunt_status st;
    struct swaps s;

    if (!failing_threads(true))
        return 0;
    if (self->rank)
        CHECK_RUN(await_others(self));
    CHECK_RUN(swaps_start(&s, self, self->comm, (size_t)4 << 20, 1));
    if (self->rank == 0) {
        st = shunt_notify(s.of[0].request, count_call, &calls);
        CHECK(st == SHUNT_ERR_SYSTEM, "%s", shunt_strerror(st));
        tell_others(self);
    }
    CHECK_RUN(swaps_end(&s, self, self->comm));
    CHECK(atomic_load(&calls) == 0, "told in spite of an error");
    failing_threads(false);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "notified_of_small", .run = notified_of_small},
    {.name = "notified_of_large", .run = notified_of_large},
    {.name = "notified_among_calls", .run = notified_among_calls},
    {.name = "notified_across", .run = notified_across, .min_ranks = 2},
    {.name = "notified_by_root", .run = notified_by_root},
    {.name = "notified_late", .run = notified_late},
    {.name = "full_descriptors", .run = full_descriptors},
    {.name = "by_pipe", .run = by_pipe},
    {.name = "unfit_descriptors", .run = unfit_descriptors},
    {.name = "bad_arguments", .run = bad_arguments},
    {"destroyed_first", destroyed_first, .min_ranks = 2},
    {"notified_of_a_loss", notified_of_a_loss, .breaks_comm = true,
     .min_ranks = 2, .max_ranks = 2, .no_threads = true},
    {"notified_of_a_timeout", notified_of_a_timeout, .breaks_comm = true,
     .min_ranks = 2, .max_ranks = 2, .no_threads = true},
    {"no_thread_to_be_had", no_thread_to_be_had, .min_ranks = 2,
     .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
