// SPDX-License-Identifier: Apache-2.0
/*
 * Creates a communicator while one rank, the victim, is at its limit of
 * descriptors (`ulimit -n`):
 *
 *     rank_descriptors dup|split|id VICTIM FIRST STEP
 *     rank_descriptors first VICTIM N
 *
 * The victim has n descriptors left, for n = FIRST, FIRST + STEP, ..., up to
 * the first n that is enough. The call must fail on all ranks or on none, in
 * time, with a text that names the victim. The old communicator must still
 * work, and the same call must succeed when it is repeated. `id` creates the
 * new communicator from an id, so that the library does not use the old one.
 *
 * `first` creates the first communicator of the processes, and must fail.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

enum { MAX_RANKS = 8, SECONDS = 2 /* SHUNT_TIMEOUT is much longer */ };

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The limit of a call, which is longer in builds with sanitizers. */
static double limit_s(void)
{
    const char *slowness = getenv("SHUNT_TEST_SLOWNESS");

    return SECONDS * (slowness ? atof(slowness) : 1);
}

/* Leave this process `n` descriptors that are not in use. */
static void leave_descriptors(int n, struct rlimit limit)
{
    rlim_t end = 0;

    for (; n >= 0; end++)
        n -= fcntl((int)end, F_GETFD) < 0;
    limit.rlim_cur = end - 1;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Rank 0 makes the id, and sends the others the id or its error. Stores the id
 * in *given. */
static enum shunt_status give_id(const struct rank *self,
                                 struct shunt_id *given)
{
    struct {
        int32_t status;
        struct shunt_id id;
    } word = {.status = SHUNT_OK};
    enum shunt_status st;

    if (self->rank == 0)
        word.status = shunt_id_create(&word.id);
    st = shunt_broadcast(self->comm, &word, sizeof(word), SHUNT_U8, 0);
    *given = word.id;
    return st ? st : (enum shunt_status)word.status;
}

/* Makes a communicator. Stores the error text in `why`; it is empty if the text
 * of another rank's error is not known. */
static enum shunt_status make(const struct rank *self, struct shunt_comm **made,
                              char why[512])
{
    const char *call = self->argv[-1];
    struct shunt_id id;
    enum shunt_status st;

    why[0] = '\0';
    if (!strcmp(call, "id")) {
        st = give_id(self, &id);
        if (st) {
            if (self->rank == 0)
                snprintf(why, 512, "%s", shunt_last_error(NULL));
            return st;
        }
        st = shunt_comm_create(&id, self->size, self->rank, NULL, made);
        snprintf(why, 512, "%s", st ? shunt_last_error(NULL) : "");
        return st;
    }
    st = !strcmp(call, "dup")
             ? shunt_comm_dup(self->comm, made)
             : shunt_comm_split(self->comm, 0, -self->rank, made);
    snprintf(why, 512, "%s", st ? shunt_last_error(self->comm) : "");
    return st;
}

/* Checks the error of a call in which `victim` had `n` descriptors left. */
static int check_text(const struct rank *self, enum shunt_status st, int victim,
                      int n, const char *why)
{
    char name[32];

    snprintf(name, sizeof(name), "rank %d", victim);
    if (self->rank != victim) {
        CHECK(!why[0] || strstr(why, name),
              "%d descriptors: does not name rank %d: %s", n, victim, why);
        return 0;
    }
    CHECK(strstr(why, "raise `ulimit -n`"), "%d descriptors: %s: %s", n,
          shunt_strerror(st), why);
    return 0;
}

/* Makes a communicator while the victim has `n` descriptors left. *refused is
 * true if it needs more. */
static int make_with(const struct rank *self, int victim, int n, bool *refused)
{
    struct shunt_comm *made = NULL;
    int32_t mine, all[MAX_RANKS];
    struct rlimit limit;
    enum shunt_status st;
    double began, took;
    char why[512];

    getrlimit(RLIMIT_NOFILE, &limit);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    began = now_s();
    if (self->rank == victim)
        leave_descriptors(n, limit);
    st = make(self, &made, why);
    setrlimit(RLIMIT_NOFILE, &limit);
    took = now_s() - began;
    if (getenv("DESCRIPTORS_SAYS"))
        rank_say("%d: %.1f s: %d %s", n, took, (int)st, why);
    CHECK(took < limit_s(), "%d descriptors: %.1f s: %s", n, took, why);
    CHECK(!st == !(!made), "%d descriptors: %s", n, why);
    if (st)
        CHECK_RUN(check_text(self, st, victim, n, why));
    mine = st;
    CHECK_OK(self->comm, shunt_allgather(self->comm, &mine, all, 1, SHUNT_I32));
    for (int r = 0; r < self->size; r++)
        CHECK(!all[victim] == !all[r], "%d descriptors: rank %d: %s", n, r,
              shunt_strerror((enum shunt_status)all[r]));
    *refused = st;
    if (made)
        CHECK_OK(made, shunt_barrier(made));
    shunt_comm_destroy(made);
    return 0;
}

static int made_from_another(const struct rank *self)
{
    const int victim = atoi(self->argv[0]);
    const int first = atoi(self->argv[1]), step = atoi(self->argv[2]);
    bool refused = true;
    int n;

    CHECK(self->size <= MAX_RANKS && victim < self->size && step > 0,
          "arguments");
    for (n = first; refused; n += step) {
        struct shunt_comm *made = NULL;
        char why[512];

        CHECK_RUN(make_with(self, victim, n, &refused));
        CHECK_OK(self->comm, make(self, &made, why));
        CHECK_OK(made, shunt_barrier(made));
        shunt_comm_destroy(made);
    }
    CHECK(n - step >= 3, "%d descriptors are enough", n - step);
    return 0;
}

/* The name of a rank's socket. The ranks of a job have one parent. */
static socklen_t name_of(int rank, struct sockaddr_un *name)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(name->sun_path + 1, sizeof(name->sun_path) - 1,
             "shunt-descriptors-%ld-%d", (long)getppid(), rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       strlen(name->sun_path + 1));
}

/* Wait until all ranks have started, because a root that has failed waits for
 * late ranks for no more than 1.5 s. Each rank sends a byte to every other
 * one. */
static int await_all(const struct rank *self)
{
    const int own = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const struct timeval most = {.tv_sec = 20};
    const double began = now_s();
    struct sockaddr_un name;
    socklen_t length = name_of(self->rank, &name);
    char byte = 0;

    CHECK(own >= 0 && !bind(own, (struct sockaddr *)&name, length), "bind");
    setsockopt(own, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
    for (int r = 0; r < self->size; r++) {
        length = name_of(r, &name);
        while (r != self->rank &&
               sendto(own, &byte, 1, 0, (struct sockaddr *)&name, length) < 0) {
            CHECK(now_s() - began < 20, "rank %d has not started", r);
            usleep(1000);
        }
    }
    for (int r = 1; r < self->size; r++)
        CHECK(recv(own, &byte, 1, 0) == 1, "not all ranks have started");
    close(own);
    return 0;
}

static int made_first(const struct rank *self)
{
    const int victim = atoi(self->argv[0]), n = atoi(self->argv[1]);
    struct shunt_comm *comm;
    struct rlimit limit;
    enum shunt_status st;
    double began, took;
    char why[512];

    CHECK_RUN(await_all(self));
    began = now_s();
    /* The program has exactly as many open descriptors as its limit allows, and
     * the limit is not tiny. */
    for (int i = 0; i < 32; i++)
        CHECK(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3) >= 0, "dup");
    getrlimit(RLIMIT_NOFILE, &limit);
    if (self->rank == victim)
        leave_descriptors(n, limit);
    st = shunt_comm_create_env(NULL, &comm);
    setrlimit(RLIMIT_NOFILE, &limit);
    took = now_s() - began;
    snprintf(why, sizeof(why), "%s", st ? shunt_last_error(NULL) : "");
    CHECK(took < limit_s(), "%.1f s: %s", took, why);
    CHECK(st, "a communicator was made");
    CHECK_RUN(check_text(self, st, victim, n, why));
    return 0;
}

static const struct rank_case cases[] = {
    {"dup", made_from_another, .no_threads = true, .min_ranks = 2},
    {"split", made_from_another, .no_threads = true, .min_ranks = 2},
    {"id", made_from_another, .no_threads = true, .min_ranks = 2},
    {"first", made_first, .no_threads = true, .no_comm = true, .min_ranks = 2},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
