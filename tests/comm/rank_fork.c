// SPDX-License-Identifier: Apache-2.0
/* The ranks of test_fork.c: children of fork() that use the library. */
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/comm/fork_calls.h"
#include "tests/harness/rank_main.h"

enum { BARRIERS = 200, FORKS = 5, WORDS = 1 << 15, BUSY_FORKS = 100 };
#define BLOCK ((size_t)4 << 20)

static unsigned char byte_of(int from, int to, size_t i)
{
    return (unsigned char)(from * 31 + to * 7 + (int)(i % 251));
}

/* Runs a rank of the child's communicator. The rank's waits check all
 * communicators of the thread. */
static void *be_rank(void *arg)
{
    const struct shunt_id *id = arg;
    static atomic_int ranks;
    const int rank = atomic_fetch_add(&ranks, 1);
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_comm *comm = NULL;
    enum shunt_status st;

    config.transports = "inproc";
    st = shunt_comm_create(id, 2, rank, &config, &comm);
    for (int i = 0; i < BARRIERS && !st; i++) {
        if (rank)
            sched_yield(); /* so that the other rank waits */
        st = shunt_barrier(comm);
    }
    shunt_comm_destroy(comm);
    return st ? arg : NULL;
}

static int be_child(void)
{
    struct shunt_id id;
    pthread_t other;
    void *bad = &id;
    bool failed;

    if (shunt_id_create(&id) || pthread_create(&other, NULL, be_rank, &id))
        return 1;
    failed = be_rank(&id);
    pthread_join(other, &bad);
    return failed || bad;
}

/* Blocks of the parent are under way while children wait for calls of their
 * own. The blocks must still arrive. */
static int child_waits(const struct rank *self)
{
    const size_t all = BLOCK * (size_t)self->size;
    unsigned char *send = malloc(all), *recv = calloc(all, 1);
    struct shunt_request *request;

    CHECK(send && recv, "no memory");
    for (int r = 0; r < self->size; r++)
        for (size_t i = 0; i < BLOCK; i++)
            send[(size_t)r * BLOCK + i] = byte_of(self->rank, r, i);
    CHECK_OK(self->comm, shunt_alltoall_start(self->comm, send, recv, BLOCK,
                                              SHUNT_U8, &request));
    for (int k = 0; k < FORKS && self->rank == 0; k++) {
        const pid_t child = fork();
        int status = -1;

        CHECK(child >= 0, "fork: %s", strerror(errno));
        if (!child)
            _exit(be_child());
        CHECK(waitpid(child, &status, 0) == child && !status,
              "the child ended with %x", status);
    }
    CHECK_OK(self->comm, shunt_wait(&request));
    for (int r = 0; r < self->size; r++)
        for (size_t i = 0; i < BLOCK; i++)
            CHECK(recv[(size_t)r * BLOCK + i] == byte_of(r, self->rank, i),
                  "byte %zu of rank %d", i, r);
    free(send);
    free(recv);
    return 0;
}

/* --- children that use what they inherited ---------------------------------- */

/* destroyed by a destructor, as an object in C++ */
static struct fork_world *at_exit;

__attribute__((destructor)) static void destructor(void)
{
    if (at_exit)
        fork_world_destroy(at_exit);
}

enum way { CALLS, DESTROYS, EXITS, DESTRUCTOR, ALL, STAYS, WAYS };

static const char *const way_names[WAYS] = {"calls",      "destroys", "exits",
                                            "destructor", "all",      "stays"};

/* Runs the child. */
static void live(struct fork_world *w, enum way way)
{
    if (way == CALLS || way == ALL || way == STAYS)
        if (fork_calls_try(w, w->self->argc > 2 ? w->self->argv[2] : NULL))
            _exit(1);
    if (way == DESTROYS || way == ALL)
        fork_world_destroy(w);
    if (way == DESTRUCTOR)
        at_exit = w;
    if (way == STAYS)
        pause();
    if (way == CALLS)
        _exit(0);
    exit(0);
}

static int one_way(const struct rank *self, enum way way, bool forks)
{
    struct fork_world w;
    pid_t child = -1;
    int status = 0;

    CHECK_RUN(fork_world_make(&w, self));
    if (forks) {
        CHECK_RUN(fork_world_begin(&w));
        child = fork();
        CHECK(child >= 0, "fork: %s", strerror(errno));
        if (!child)
            live(&w, way);
    }
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    if (!forks)
        CHECK_RUN(fork_world_begin(&w));
    if (forks && way != STAYS)
        CHECK(waitpid(child, &status, 0) == child && !status,
              "the child that %s ended with %x", way_names[way], status);
    CHECK_RUN(fork_world_use(&w));
    CHECK_RUN(fork_world_end(&w));
    if (!forks || way != STAYS)
        return 0;
    CHECK(!waitpid(child, &status, WNOHANG),
          "the child that stays ended with "
          "%x",
          status);
    kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    return 0;
}

/* child_calls RANK [WAY [CALL]]: rank RANK forks, once for each way. The child
 * makes every call with the inherited handles. */
static int child_calls(const struct rank *self)
{
    const int forker = self->argc ? atoi(self->argv[0]) : 0;

    for (int way = 0; way < WAYS; way++)
        if (self->argc < 2 || !strcmp(self->argv[1], way_names[way]))
            CHECK_RUN(one_way(self, way, self->rank == forker));
    return 0;
}

/* --- communicators of a child's own ----------------------------------------- */

/* Runs one of two processes that have nothing in common but the id. */
static int be_one_of_two(const struct shunt_id *id, int rank, bool refused)
{
    static const char *const nodes[] = {"first", "second"};
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    static int64_t send[2 * WORDS], recv[2 * WORDS];
    struct shunt_comm *comm = NULL;
    int64_t mine = rank + 1, sum = 0;

    if (getenv("SHUNT_TEST_NODES"))
        config.node = nodes[rank];
    for (int i = 0; i < 2 * WORDS; i++)
        send[i] = rank * 1000000 + i;
    if (refused) {
        CHECK_STATUS(NULL, shunt_comm_create(id, 2, rank, &config, &comm),
                     SHUNT_ERR_UNSUPPORTED);
        CHECK(strstr(shunt_last_error(NULL), "fork()"), "%s",
              shunt_last_error(NULL));
        return 0;
    }
    CHECK_OK(NULL, shunt_comm_create(id, 2, rank, &config, &comm));
    for (int k = 0; k < 10; k++) {
        CHECK_OK(comm,
                 shunt_allreduce(comm, &mine, &sum, 1, SHUNT_I64, SHUNT_SUM));
        CHECK(sum == 3, "the sum is %lld", (long long)sum);
        CHECK_OK(comm, shunt_alltoall(comm, send, recv, WORDS, SHUNT_I64));
        for (int i = 0; i < 2 * WORDS; i++)
            CHECK(recv[i] == i / WORDS * 1000000 + rank * WORDS + i % WORDS,
                  "word %d", i);
    }
    CHECK_OK(comm, shunt_comm_finish(comm));
    shunt_comm_destroy(comm);
    return 0;
}

/* Runs a child, and a child of that child. The second child inherits both
 * communicators, that of the rank and that of the first child. */
static int be_two(struct fork_world *w, bool refused)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_comm *alone = NULL;
    struct shunt_id id;
    int status = -1;
    pid_t child;

    CHECK_OK(NULL, shunt_id_create(&id));
    CHECK_OK(NULL, shunt_comm_create(&id, 1, 0, &config, &alone));
    CHECK_OK(NULL, shunt_id_create(&id));
    child = fork();
    CHECK(child >= 0, "fork: %s", strerror(errno));
    if (!child) {
        CHECK_STATUS(alone, shunt_barrier(alone), SHUNT_ERR_INVALID);
        shunt_comm_destroy(alone);
        _exit(be_one_of_two(&id, 1, refused) || fork_calls_try(w, NULL));
    }
    CHECK_RUN(be_one_of_two(&id, 0, refused));
    CHECK(waitpid(child, &status, 0) == child && !status,
          "the child's child ended with %x", status);
    CHECK_OK(alone, shunt_barrier(alone));
    shunt_comm_destroy(alone);
    return fork_calls_try(w, NULL);
}

/* child_makes_its_own [refused]: the child makes a communicator with the
 * transports of its parent. With `refused`, these transports must refuse
 * that. */
static int child_makes_its_own(const struct rank *self)
{
    struct fork_world w;
    int status = -1;
    pid_t child;

    CHECK_RUN(fork_world_make(&w, self));
    CHECK_RUN(fork_world_begin(&w));
    child = fork();
    CHECK(child >= 0, "fork: %s", strerror(errno));
    if (!child)
        exit(be_two(&w, self->argc > 0));
    CHECK_RUN(fork_world_use(&w));
    CHECK(waitpid(child, &status, 0) == child && !status,
          "the child ended with %x", status);
    return fork_world_end(&w);
}

/* Returns a port that is free, or 0 if there is none. */
static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool bound = !bind(fd, (struct sockaddr *)&at, len) &&
                       !getsockname(fd, (struct sockaddr *)&at, &len);

    close(fd);
    return bound ? ntohs(at.sin_port) : 0;
}

/* A child that lives on must not hold the port of an id, because the parent
 * needs it for its next id. `raw`: the child has not run its fork() handlers
 * yet. */
static int leave_a_child(bool raw)
{
    struct shunt_comm *alone;
    struct shunt_id id;
    char port[16];
    pid_t child;
    int status;

    snprintf(port, sizeof(port), "%d", free_port());
    setenv("SHUNT_PORT", port, 1);
    CHECK_OK(NULL, shunt_id_create(&id));
    child = raw ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    CHECK(child >= 0, "fork: %s", strerror(errno));
    if (!child)
        for (;;)
            pause();
    CHECK_OK(NULL, shunt_comm_create(&id, 1, 0, NULL, &alone));
    CHECK_OK(NULL, shunt_id_create(&id));
    kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child, "waitpid");
    shunt_comm_destroy(alone);
    return 0;
}

/* A child joins a communicator by an id that its parent made. */
static int child_of_root(const struct rank *self)
{
    struct shunt_id id;
    int status = -1;
    pid_t child;

    (void)self;
    CHECK_OK(NULL, shunt_id_create(&id));
    child = fork();
    CHECK(child >= 0, "fork: %s", strerror(errno));
    if (!child)
        _exit(be_one_of_two(&id, 1, false));
    CHECK_RUN(be_one_of_two(&id, 0, false));
    CHECK(waitpid(child, &status, 0) == child && !status,
          "the child that joins ended with %x", status);
    CHECK_RUN(leave_a_child(false));
    CHECK_RUN(leave_a_child(true));
    return 0;
}

/* --- the helper forks -------------------------------------------------------- */

static sem_t notified;

/* Called by the helper thread. The child does not have that thread. */
static void fork_and_tell(void *arg)
{
    pid_t *child = arg;

    *child = fork();
    if (!*child)
        _exit(be_child());
    sem_post(&notified);
}

static int count_helpers(void)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;
    int n = 0;

    while (tasks && (task = readdir(tasks))) {
        char path[300], name[32] = "";
        FILE *f;

        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
        f = fopen(path, "r");
        if (f && fgets(name, sizeof(name), f))
            n += !strcmp(name, "shunt-helper\n");
        if (f)
            fclose(f);
    }
    if (tasks)
        closedir(tasks);
    return n;
}

/* Makes a socket by which rank 0 lets rank 1 continue, without the library. */
static int make_signal(int rank)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "shunt-fork-%d",
             (int)getppid());
    if (rank ? bind(fd, (struct sockaddr *)&at, sizeof(at))
             : connect(fd, (struct sockaddr *)&at, sizeof(at)))
        return -1;
    return fd;
}

/* The helper ends a request, and then calls a function that forks. */
static int get_notified(struct shunt_comm *comm, int go)
{
    int64_t mine = 1, sum = 0;
    struct shunt_request *request;
    pid_t child = -1;
    int status = -1;

    CHECK_OK(comm, shunt_allreduce_start(comm, &mine, &sum, 1, SHUNT_I64,
                                         SHUNT_SUM, &request));
    CHECK_OK(comm, shunt_notify(request, fork_and_tell, &child));
    CHECK(send(go, "", 1, 0) == 1, "send: %s", strerror(errno));
    while (sem_wait(&notified))
        ;
    CHECK(waitpid(child, &status, 0) == child && !status,
          "the helper's child ended with %x", status);
    CHECK_OK(comm, shunt_wait(&request));
    CHECK(sum == 3, "the sum is %lld", (long long)sum);
    CHECK(count_helpers() == 1, "%d helper threads", count_helpers());
    return 0;
}

/* After these forks there must still be one helper, and operations under way
 * must be right. */
static int helper_forks(const struct rank *self)
{
    int64_t mine = 2, sum;
    int go = -1;
    char byte;

    sem_init(&notified, 0, 0);
    if (self->rank)
        go = make_signal(1);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    if (!self->rank)
        go = make_signal(0);
    CHECK(go >= 0, "socket: %s", strerror(errno));
    for (int k = 0; k < FORKS; k++) {
        if (!self->rank) {
            CHECK_RUN(get_notified(self->comm, go));
            continue;
        }
        CHECK(recv(go, &byte, 1, 0) == 1, "recv: %s", strerror(errno));
        CHECK_OK(self->comm, shunt_allreduce(self->comm, &mine, &sum, 1,
                                             SHUNT_I64, SHUNT_SUM));
    }
    close(go);
    return 0;
}

/* --- locks ------------------------------------------------------------------- */

static atomic_bool over;

/* Uses a communicator of one rank, with an exchange, a plan and memory. */
static int be_alone(void)
{
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    const int32_t idx[4] = {0, 1, 1, 0};
    struct shunt_comm *comm;
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    void *memory;

    config.hidden = 4;
    config.dtype = SHUNT_F32;
    config.experts = 2;
    config.topk = 1;
    config.max_tokens = 4;
    config.weights = SHUNT_MOE_PLAIN_SUM;
    CHECK_OK(NULL, shunt_comm_create_env(NULL, &comm));
    CHECK(shunt_comm_size(comm) == 1, "a launcher's variables are set");
    CHECK_OK(comm, shunt_mem_alloc(comm, 1 << 16, &memory));
    CHECK_OK(comm, shunt_moe_create(comm, &config, &moe));
    CHECK_OK(comm, shunt_moe_plan_create(moe, idx, NULL, 4, &plan));
    CHECK_OK(comm, shunt_barrier(comm));
    shunt_moe_plan_destroy(plan);
    shunt_comm_destroy(comm);
    return 0;
}

static void *be_busy(void *arg)
{
    bool *failed = arg;

    while (!atomic_load(&over) && !*failed)
        *failed = be_alone() != 0;
    return NULL;
}

/* Forks while other threads create and destroy objects. A child may find
 * neither a held lock nor an incomplete object. */
static int child_of_busy_threads(const struct rank *self)
{
    pthread_t thread[2];
    bool failed[2] = {false, false};
    int status = -1;

    (void)self;
    for (int i = 0; i < 2; i++)
        CHECK(!pthread_create(&thread[i], NULL, be_busy, &failed[i]), "thread");
    for (int k = 0; k < BUSY_FORKS; k++) {
        const pid_t child = fork();

        CHECK(child >= 0, "fork: %s", strerror(errno));
        if (!child) {
            alarm(20); /* ends the child if a lock is never released */
            _exit(be_alone());
        }
        CHECK(waitpid(child, &status, 0) == child && !status,
              "child %d ended with %x", k, status);
    }
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    CHECK(!failed[0] && !failed[1], "a thread failed");
    return 0;
}

static const struct rank_case cases[] = {
    {"child_waits", child_waits, .min_ranks = 2, .no_threads = true},
    {"child_calls", child_calls, .min_ranks = 2, .no_threads = true},
    {"child_of_busy_threads", child_of_busy_threads, .no_comm = true,
     .no_threads = true},
    {"helper_forks", helper_forks, .min_ranks = 2, .max_ranks = 2,
     .no_threads = true},
    {"child_of_root", child_of_root, .no_comm = true, .no_threads = true},
    {"child_makes_its_own", child_makes_its_own, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
