// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of test_helper.c. Their calls must advance while they are outside
 * of the library (SHUNT_PROGRESS=auto). No thread may exist if it would be of
 * no use.
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/comm/swap.h"
#include "tests/harness/failing_threads.h"
#include "tests/harness/rank_main.h"

/* The number of helper threads of this process. */
static int helpers(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    int count = 0;

    while (tasks && (task = readdir(tasks))) {
        char path[300], name[32] = "";
        FILE *file;

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
        file = fopen(path, "r");
        if (!file)
            continue;
        if (fgets(name, sizeof(name), file))
            count += !strncmp(name, "shunt-helper", 12);
        fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return count;
}

/* Waits until there are `wanted` helpers, because a joined thread is listed for
 * a moment longer. */
static int helpers_settle(int wanted)
{
    time_t end = time(NULL) + 20;

    while (helpers() != wanted && time(NULL) < end)
        sched_yield();
    return helpers();
}

/* --- news between ranks, sent without the library ------------------------- */

enum news { AWAY, DONE };

static atomic_bool posted[2]; /* used if ranks are threads */

/* The file by which processes send this news. argv[0] is a path at which no
 * rank has made a file yet. */
static void file_of(const struct rank *self, enum news news, char path[600])
{
    snprintf(path, 600, "%s%s", self->argv[0], news == AWAY ? ".away" : "");
}

static void tell(const struct rank *self, enum news news)
{
    char path[600];
    FILE *file;

    if (self->threads) {
        atomic_store(&posted[news], true);
        return;
    }
    file_of(self, news, path);
    file = fopen(path, "w");
    if (file)
        fclose(file);
}

static bool has_news(const struct rank *self, enum news news)
{
    struct stat st;
    char path[600];

    if (self->threads)
        return atomic_load(&posted[news]);
    file_of(self, news, path);
    return stat(path, &st) == 0;
}

static int await_news(const struct rank *self, enum news news)
{
    const time_t end = time(NULL) + 30;

    while (!has_news(self, news) && time(NULL) < end)
        sched_yield();
    CHECK(has_news(self, news), "%s",
          news == AWAY ? "rank 0 has not started"
                       : "the last rank still waits for rank 0");
    return 0;
}

/* Rank 0 starts first. So its starting call cannot receive anything from the
 * others. */
static int start_and_leave(struct swap *swap, const struct rank *self,
                           struct shunt_comm *comm)
{
    if (self->rank)
        CHECK_RUN(await_news(self, AWAY));
    CHECK_RUN(swap_start(swap, self, comm, 0));
    if (self->rank == 0)
        tell(self, AWAY);
    return 0;
}

/* The other ranks' calls must end while rank 0 is outside of the library. */
static int stay_away(const struct rank *self, struct shunt_comm *comm,
                     struct swap *swap)
{
    if (self->rank == 0)
        CHECK_RUN(await_news(self, DONE));
    CHECK_OK(comm, shunt_wait(&swap->request));
    if (self->rank == self->size - 1)
        tell(self, DONE);
    return 0;
}

/* --- the cases ----------------------------------------------------------------- */

static int caller_is_away(const struct rank *self)
{
    struct shunt_comm_stats stats;
    struct shunt_comm *dup;
    struct swap swap;

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &dup));
    CHECK_RUN(swap_init(&swap, self, (size_t)8 << 20));
    CHECK_RUN(start_and_leave(&swap, self, dup));
    CHECK(self->threads || self->rank || helpers() == 1, "%d helpers",
          helpers());
    CHECK_RUN(stay_away(self, dup, &swap));
    CHECK_RUN(swap_check(&swap, self, 0));
    CHECK_OK(dup, shunt_comm_get_stats(dup, &stats, sizeof(stats)));
    CHECK(self->rank || stats.helped >= 1, "nobody helped");
    CHECK_OK(dup, shunt_comm_finish(dup));
    shunt_comm_destroy(dup);
    CHECK(self->threads || helpers_settle(0) == 0, "%d helpers stay",
          helpers());
    swap_finish(&swap);
    return 0;
}

static void nap(int hundreds_of_us)
{
    struct timespec t = {.tv_nsec = hundreds_of_us * 100000L};

    nanosleep(&t, NULL);
}

/* Small messages fit into the kernel's buffers and need no helper. The other
 * ranks' calls must end while rank 0 is away, and no thread may be created. */
static int small_ones_rest(const struct rank *self)
{
    struct shunt_comm_stats stats;
    struct swap swap;

    CHECK_RUN(swap_init(&swap, self, 8));
    for (int k = 1; k < 20; k++) {
        CHECK_RUN(swap_start(&swap, self, self->comm, k));
        nap(k % 4);
        CHECK_OK(self->comm, shunt_wait(&swap.request));
        CHECK_RUN(swap_check(&swap, self, k));
    }
    CHECK_RUN(start_and_leave(&swap, self, self->comm));
    CHECK(helpers() == 0, "%d helpers", helpers());
    CHECK_RUN(stay_away(self, self->comm, &swap));
    CHECK_RUN(swap_check(&swap, self, 0));
    CHECK(helpers() == 0, "%d helpers", helpers());
    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &stats, sizeof(stats)));
    CHECK(stats.helped == 0, "helped %d times", (int)stats.helped);
    swap_finish(&swap);
    return 0;
}

/* Blocking calls must create no thread, even if they take long. */
static int blocking_calls(const struct rank *self)
{
    const size_t bytes = (size_t)4 << 20;
    unsigned char *send = calloc((size_t)self->size, bytes),
                  *recv = calloc((size_t)self->size, bytes);
    int32_t one = 1, sum;

    CHECK(send && recv, "no memory");
    for (int k = 0; k < 5; k++) {
        CHECK_OK(self->comm,
                 shunt_alltoall(self->comm, send, recv, bytes, SHUNT_U8));
        CHECK_OK(self->comm, shunt_allreduce(self->comm, &one, &sum, 1,
                                             SHUNT_I32, SHUNT_SUM));
        CHECK_OK(self->comm,
                 shunt_broadcast(self->comm, recv, bytes, SHUNT_U8, 0));
        CHECK_OK(self->comm, shunt_barrier(self->comm));
        CHECK(helpers() == 0, "%d helpers", helpers());
    }
    free(send);
    free(recv);
    return 0;
}

/* In these cases a helper is of no use, and must not exist: ranks map each
 * other, or the environment turns helpers off. */
static int none_helps(const struct rank *self)
{
    struct shunt_comm_stats stats;
    struct swap swap;

    CHECK_RUN(swap_init(&swap, self, (size_t)1 << 20));
    for (int k = 0; k < 5; k++) {
        CHECK_RUN(swap_start(&swap, self, self->comm, k));
        CHECK(helpers() == 0, "%d helpers", helpers());
        CHECK_OK(self->comm, shunt_wait(&swap.request));
        CHECK_RUN(swap_check(&swap, self, k));
    }
    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &stats, sizeof(stats)));
    CHECK(stats.helped == 0, "helped %d times", (int)stats.helped);
    swap_finish(&swap);
    return 0;
}

/* When the caller returns, the helper may or may not hold the communicator. */
static int comes_back(const struct rank *self)
{
    struct shunt_comm *comms[2] = {self->comm, NULL};
    struct shunt_comm_stats stats;
    struct swap swaps[2];

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &comms[1]));
    for (int c = 0; c < 2; c++)
        CHECK_RUN(swap_init(&swaps[c], self, (size_t)100 << 10));
    for (int k = 0; k < (self->threads ? 15 : 60); k++) {
        enum shunt_status st;

        for (int c = 0; c < 2; c++)
            CHECK_RUN(swap_start(&swaps[c], self, comms[c], k));
        nap((k * 7 + self->rank * 3) % 7);
        CHECK_OK(comms[1],
                 shunt_comm_get_stats(comms[1], &stats, sizeof(stats)));
        nap((k * 5 + self->rank) % 4);
        /* A wait on one communicator progresses the other one, too. It may have
         * to take that one back from the helper. */
        CHECK_OK(comms[k % 2], shunt_wait(&swaps[k % 2].request));
        while ((st = shunt_test(&swaps[1 - k % 2].request)) ==
               SHUNT_IN_PROGRESS)
            nap(k % 3);
        CHECK_OK(comms[1 - k % 2], st);
        for (int c = 0; c < 2; c++)
            CHECK_RUN(swap_check(&swaps[c], self, k));
    }
    CHECK_OK(comms[1], shunt_comm_finish(comms[1]));
    shunt_comm_destroy(comms[1]);
    for (int c = 0; c < 2; c++)
        swap_finish(&swaps[c]);
    return 0;
}

/* The communicator is destroyed while the helper may be progressing its
 * operations. */
static int destroyed_meanwhile(const struct rank *self)
{
    struct swap swap;

    CHECK_RUN(swap_init(&swap, self, (size_t)1 << 20));
    for (int k = 0; k < 10; k++) {
        struct shunt_comm *dup;
        enum shunt_status st;

        CHECK_OK(self->comm, shunt_comm_dup(self->comm, &dup));
        swap_fill(&swap, self, k);
        st = shunt_alltoall_start(dup, swap.send, swap.recv, swap.bytes,
                                  SHUNT_U8, &swap.request);
        CHECK(!st || st == SHUNT_ERR_PEER, "%s", shunt_last_error(dup));
        nap((k * 7 + self->rank * 3) % 5);
        shunt_comm_destroy(dup);
        if (!st)
            CHECK(shunt_wait(&swap.request) != SHUNT_IN_PROGRESS, "its end");
        CHECK(self->threads || helpers_settle(0) == 0, "%d helpers stay",
              helpers());
    }
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    swap_finish(&swap);
    return 0;
}

/* The child must have no helper, and the parent's helper must go on. */
static int forks(const struct rank *self)
{
    struct shunt_comm *dup;
    struct swap swap;
    int status;

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &dup));
    CHECK_RUN(swap_init(&swap, self, (size_t)8 << 20));
    CHECK_RUN(start_and_leave(&swap, self, dup));
    for (int k = 0; k < 5; k++) {
        pid_t child;

        nap(k);
        child = fork();
        CHECK(child >= 0, "fork: %s", strerror(errno));
        if (!child)
            _exit(helpers());
        CHECK(waitpid(child, &status, 0) == child && !status,
              "the child ended with %x", status);
        CHECK(self->rank || helpers() == 1, "%d helpers", helpers());
    }
    CHECK_RUN(stay_away(self, dup, &swap));
    CHECK_RUN(swap_check(&swap, self, 0));
    CHECK_OK(dup, shunt_comm_finish(dup));
    shunt_comm_destroy(dup);
    CHECK(helpers_settle(0) == 0, "%d helpers stay", helpers());
    swap_finish(&swap);
    return 0;
}

/* Creating a thread fails, so the caller must do all work alone. */
static int no_thread_to_be_had(const struct rank *self)
{
    if (failing_threads(true))
        CHECK_RUN(none_helps(self));
    failing_threads(false);
    return 0;
}

/* Rank 0's peer is lost while rank 0 is away. The wait must report that, and so
 * must the next calls. */
static int lost_while_away(const struct rank *self)
{
    struct swap swap;
    enum shunt_status st;

    CHECK_RUN(swap_init(&swap, self, (size_t)8 << 20));
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    if (self->rank == 1) {
        tell(self, DONE);
        _exit(0);
    }
    CHECK_RUN(swap_start(&swap, self, self->comm, 0));
    while (!has_news(self, DONE))
        sched_yield();
    while (!shunt_comm_async_status(self->comm))
        sched_yield(); /* only the helper can notice */
    st = shunt_wait(&swap.request);
    CHECK(st == SHUNT_ERR_PEER, "%s: %s", shunt_strerror(st),
          shunt_last_error(self->comm));
    CHECK(strstr(shunt_last_error(self->comm), "rank 1"), "names: %s",
          shunt_last_error(self->comm));
    swap_finish(&swap);
    return 0;
}

static const struct rank_case cases[] = {
    {"caller_is_away", caller_is_away, .min_ranks = 2},
    {"small_ones_rest", small_ones_rest, .min_ranks = 2, .no_threads = true},
    {"blocking_calls", blocking_calls, .no_threads = true},
    {"none_helps", none_helps, .no_threads = true},
    {"comes_back", comes_back, .min_ranks = 2},
    {"destroyed_meanwhile", destroyed_meanwhile, .min_ranks = 2},
    {"forks", forks, .min_ranks = 2, .no_threads = true},
    {"no_thread_to_be_had", no_thread_to_be_had, .no_threads = true},
    {"lost_while_away", lost_while_away, .breaks_comm = true, .min_ranks = 2,
     .max_ranks = 2, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    setenv("SHUNT_PROGRESS", "auto", 0);
    return rank_main(argc, argv, cases);
}
