// SPDX-License-Identifier: Apache-2.0
/*
 * The program of the ranks that tests/verbs/kills kills or stops:
 *
 *     rank_kills small | large | windows [shrink]
 *
 * The ranks make rounds of small calls, of exchanges that keep MiBs under way
 * to each rank, or of creating and freeing windows. They stop when a call
 * fails, or (not with `windows`) when some rank has received SIGUSR1. They
 * print, with seconds of the monotonic clock:
 *
 *     in the loop
 *     lost R R at T, destroyed in S: TEXT    a call failed
 *     N rounds                               the run ended without an error
 *     N queue pairs                          with `windows`: when a call failed
 *     N go on                                with `shrink`: the survivors,
 *                                            whose rounds were all right
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shunt/shunt.h>

#define BLOCK ((size_t)8 << 20)

static volatile sig_atomic_t to_end;

static void on_signal(int number)
{
    (void)number;
    to_end = 1;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static unsigned char byte_of(int from, int to, int64_t round)
{
    return (unsigned char)(from * 31 + to * 7 + round);
}

static enum shunt_status exchange(struct shunt_comm *comm, unsigned char *send,
                                  unsigned char *recv, int64_t round)
{
    const int rank = shunt_comm_rank(comm), size = shunt_comm_size(comm);
    enum shunt_status st;

    for (int r = 0; r < size; r++)
        memset(send + (size_t)r * BLOCK, byte_of(rank, r, round), BLOCK);
    st = shunt_alltoall(comm, send, recv, BLOCK, SHUNT_U8);
    for (int r = 0; !st && r < size; r++)
        for (size_t i = 0; i < BLOCK; i += 509)
            if (recv[(size_t)r * BLOCK + i] != byte_of(r, rank, round))
                abort();
    return st;
}

/* Create and free a window, whose part has another size on each rank. */
static enum shunt_status use_window(struct shunt_comm *comm, int64_t round)
{
    const size_t bytes = (size_t)(shunt_comm_rank(comm) + round % 3) * 4096;
    void *window = NULL;
    enum shunt_status st = shunt_mem_alloc(comm, bytes, &window);

    if (!st && bytes)
        memset(window, (int)round, bytes);
    return st ? st : shunt_mem_free(comm, window);
}

/* Print the number of queue pairs that the stand-in for libibverbs counts
 * (now.h). */
static void say_queue_pairs(void)
{
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*count)(void) = NULL;

    if (library)
        *(void **)&count = dlsym(library, "verbs_count");
    if (count)
        printf("%d queue pairs\n", count());
}

static void say_lost(struct shunt_comm *comm)
{
    const double at = now();
    char text[512], names[128] = "";
    size_t count = 0, len = 0;
    const int *lost;
    double began;

    snprintf(text, sizeof(text), "%s", shunt_last_error(comm));
    if (!shunt_comm_lost(comm, &lost, &count))
        for (size_t i = 0; i < count && len + 8 < sizeof(names); i++)
            len += (size_t)snprintf(names + len, sizeof(names) - len, " %d",
                                    lost[i]);
    began = now();
    shunt_comm_destroy(comm);
    printf("lost%s at %.6f, destroyed in %.6f: %s\n", names, at, now() - began,
           text);
}

/* The survivors make a communicator, and run some rounds. */
static void go_on(struct shunt_comm *comm, unsigned char *send,
                  unsigned char *recv)
{
    struct shunt_comm *fewer;
    enum shunt_status st = shunt_comm_shrink(comm, &fewer);

    if (st) {
        printf("no communicator: %s\n", shunt_last_error(comm));
        shunt_comm_destroy(comm);
        return;
    }
    for (int64_t round = 0; !st && round < 5; round++)
        st = send ? exchange(fewer, send, recv, round) : shunt_barrier(fewer);
    if (!st)
        st = shunt_comm_finish(fewer);
    if (st)
        printf("it fails, too: %s\n", shunt_last_error(fewer));
    else
        printf("%d go on\n", shunt_comm_size(fewer));
    shunt_comm_destroy(fewer);
    shunt_comm_destroy(comm);
}

int main(int argc, char **argv)
{
    const int large = argc > 1 && !strcmp(argv[1], "large");
    const int windows = argc > 1 && !strcmp(argv[1], "windows");
    const int shrink = argc > 2 && !strcmp(argv[2], "shrink");
    unsigned char *send = NULL, *recv = NULL;
    struct shunt_comm *comm;
    int64_t round = 0, end = 0;
    enum shunt_status st;

    signal(SIGUSR1, on_signal);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (shunt_comm_create_env(NULL, &comm)) {
        printf("no communicator: %s\n", shunt_last_error(NULL));
        return 1;
    }
    if (large) {
        send = malloc((size_t)shunt_comm_size(comm) * BLOCK);
        recv = malloc((size_t)shunt_comm_size(comm) * BLOCK);
        if (!send || !recv)
            return 1;
    }
    st = windows ? use_window(comm, 0) : shunt_barrier(comm);
    printf("in the loop\n");
    for (; !st && windows; round++)
        st = use_window(comm, round);
    if (windows)
        say_queue_pairs();
    for (; !st && !end; round++) {
        int64_t mine = to_end;

        st = large ? exchange(comm, send, recv, round) : SHUNT_OK;
        if (!st)
            st = shunt_allreduce(comm, &mine, &end, 1, SHUNT_I64, SHUNT_MAX);
    }
    if (st && shrink) {
        go_on(comm, send, recv);
    } else if (st) {
        say_lost(comm);
    } else {
        shunt_comm_destroy(comm);
        printf("%lld rounds\n", (long long)round);
    }
    free(send);
    free(recv);
    return 0;
}
