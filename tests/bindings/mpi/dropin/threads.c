// SPDX-License-Identifier: Apache-2.0
/*
 * Threads, each with its own communicator, make calls in an order that differs
 * between ranks.
 */

#include "check.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 4, MAX_RANKS = 64, ROUNDS = 25 };

struct worker {
    int number;
    MPI_Comm comm;
    uint64_t key;
};

static uint64_t number_of(const struct worker *w, int round, int from, int to)
{
    uint64_t key = mix(w->key, (uint64_t)(w->number * 1000 + round));
    return mix(mix(key, (uint64_t)from), (uint64_t)to);
}

/* Make an exchange and a sum on `comm`, whose ranks are in the world's
 * order. */
static void exchange(const struct worker *w, MPI_Comm comm, int round)
{
    uint64_t in[MAX_RANKS], out[MAX_RANKS], sum = 0, want = 0;
    int ones[MAX_RANKS], displs[MAX_RANKS];

    for (int r = 0; r < world_size; r++) {
        in[r] = number_of(w, round, world_rank, r);
        ones[r] = 1;
        displs[r] = r;
    }
    MPI(MPI_Alltoallv(in, ones, displs, MPI_UINT64_T, out, ones, displs,
                      MPI_UINT64_T, comm));
    for (int r = 0; r < world_size; r++) {
        CHECK(out[r] == number_of(w, round, r, world_rank));
        want += number_of(w, round, r, r);
    }
    uint64_t mine = number_of(w, round, world_rank, world_rank);
    MPI(MPI_Allreduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, comm));
    CHECK(sum == want);
}

static void pause_of(const struct worker *w, int round)
{
    uint64_t key = mix(mix(w->key, (uint64_t)world_rank),
                       (uint64_t)(w->number * 100 + round));
    if (round == 0 || key % 16 == 0)
        usleep((useconds_t)(key / 16 % 4000));
}

static void *use_own(void *arg)
{
    struct worker *w = arg;

    for (int round = 0; round < ROUNDS; round++) {
        pause_of(w, round);
        exchange(w, w->comm, round);
    }
    return NULL;
}

/* The threads themselves make and free communicators. */
static void *make_and_free(void *arg)
{
    struct worker *w = arg;

    for (int round = 0; round < 6; round++) {
        MPI_Comm comm;
        pause_of(w, round);
        MPI(MPI_Comm_dup(w->comm, &comm));
        exchange(w, comm, round);
        exchange(w, w->comm, round + 100);
        MPI(MPI_Comm_free(&comm));
    }
    return NULL;
}

/* One thread waits in collective calls while another one sends messages. */
static void *send_messages(void *arg)
{
    struct worker *w = arg;
    int next = (world_rank + 1) % world_size, got;
    int previous = (world_rank + world_size - 1) % world_size;

    for (int round = 0; round < 5 * ROUNDS; round++) {
        int mine = world_rank * 1000 + round;
        MPI(MPI_Sendrecv(&mine, 1, MPI_INT, next, 4, &got, 1, MPI_INT, previous,
                         4, w->comm, MPI_STATUS_IGNORE));
        CHECK(got == previous * 1000 + round);
    }
    return NULL;
}

static void start(void *(*const work[THREADS])(void *))
{
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    uint64_t key = fresh();
    int order[THREADS];

    for (int t = 0; t < THREADS; t++) {
        workers[t] = (struct worker){t, MPI_COMM_NULL, key};
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &workers[t].comm));
    }
    for (int t = 0; t < THREADS; t++)
        order[t] = (t + world_rank) % THREADS;
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_create(&threads[order[t]], NULL, work[order[t]],
                             &workers[order[t]]) == 0);
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_join(threads[t], NULL) == 0);
    for (int t = 0; t < THREADS; t++)
        MPI(MPI_Comm_free(&workers[t].comm));
}

static void case_own_comms(int variant)
{
    (void)variant;
    start((void *(*const[])(void *)){use_own, use_own, use_own, use_own});
}

static void case_made_in_threads(int variant)
{
    (void)variant;
    start((void *(*const[])(void *)){make_and_free, make_and_free,
                                     make_and_free, use_own});
}

static void case_messages(int variant)
{
    (void)variant;
    start((void *(*const[])(void *)){use_own, send_messages, use_own,
                                     make_and_free});
}

/* Threads take turns with one communicator. MPI allows that, as long as only
 * one thread at a time is in a call. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int turns;

static void *take_turns(void *arg)
{
    struct worker *w = arg;

    for (bool done = false; !done;) {
        pthread_mutex_lock(&turn);
        /* On every rank, it is the turn of the worker with the same number. */
        if (turns % THREADS == w->number) {
            struct worker shared = {0, MPI_COMM_WORLD, w->key};
            exchange(&shared, MPI_COMM_WORLD, turns);
            turns++;
        }
        done = turns > THREADS * 6 + w->number;
        pthread_mutex_unlock(&turn);
        usleep(100);
    }
    return NULL;
}

static void case_turns(int variant)
{
    (void)variant;
    turns = 0;
    start((void *(*const[])(void *)){take_turns, take_turns, take_turns,
                                     take_turns});
}

static const struct check_case cases[] = {
    {"own_comms", case_own_comms, 0, 1},
    {"made_in_threads", case_made_in_threads, 0, 1},
    {"messages_beside", case_messages, 0, 1},
    {"turns", case_turns, 0, 1},
    {0},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases, MPI_THREAD_MULTIPLE, NULL, NULL);
}
