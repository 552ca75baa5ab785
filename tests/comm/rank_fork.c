// SPDX-License-Identifier: Apache-2.0
/* What ranks do in test_fork.c: children of fork() that use the library. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

enum { BARRIERS = 200, FORKS = 5 };
#define BLOCK ((size_t)4 << 20)

static unsigned char byte_of(int from, int to, size_t i)
{
    return (unsigned char)(from * 31 + to * 7 + (int)(i % 251));
}

/* A rank of the child's communicator: its waits look at all that the thread
 * owns. */
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
            sched_yield(); /* so that the other one waits */
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

/* Blocks are under way when children wait for calls of their own: they are the
 * parent's, and complete. */
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

static const struct rank_case cases[] = {
    {"child_waits", child_waits, .min_ranks = 2, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
