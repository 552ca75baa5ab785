// SPDX-License-Identifier: Apache-2.0
/*
 * Measures what a transport costs: two ranks, pinned to cores 0 and 1.
 *
 *     transport_latency [--threads | --enter PID,PID] NAME[+OPTIONS]
 *
 * Not a test: its figures depend on the machine. Spinning: a ping-pong of a put
 * with a signal, while the peer polls. Sleeping: the same ping-pong, but both
 * ranks sleep until each signal. wake(): a call while no rank sleeps.
 * progress(): a call with nothing to do. Streams: puts of one size, several
 * under way at a time, each acknowledged by a signal; both sides sleep when
 * they have nothing to do. With only one under way, the next put starts when
 * the last one was acknowledged. CPU is the CPU time of both processes per
 * second, without the kernel's work in the background.
 *
 * --enter puts each rank into the network, PID and mount namespaces of a
 * process: the first process of a host made of namespaces. For root only.
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/transports/world.h"

static int hosts[2]; /* --enter */

static void pin(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The first put of a pair may have to connect it. */
static void put_when_connected(struct rank *r, int peer,
                               const struct shunt_transport_put *put)
{
    enum shunt_status st = SHUNT_IN_PROGRESS;

    UNTIL(r, (st = r->t->put(r->eps[peer], put)) != SHUNT_IN_PROGRESS);
    EXPECT(r, SHUNT_OK, st);
}

/* Half the time of a round trip in nanoseconds, in the best and in the median
 * block. On a busy machine the best block shows the cost of the transport. */
struct figure {
    double best, median;
};

static struct figure ping_pong(struct rank *r, struct window *w, size_t offset,
                               bool sleep, int blocks, int rounds)
{
    double *times = calloc((size_t)blocks, sizeof(*times));
    const int peer = 1 - r->rank;
    uint64_t *word = window_word(w, offset);
    uint64_t k = 0;
    struct figure figure;

    for (int b = 0; b < blocks; b++) {
        double start = world_now();

        for (int i = 0; i < rounds; i++) {
            struct shunt_transport_put put = {
                .signal = w->remote[peer],
                .signal_offset = offset,
            };

            k++;
            put.signal_value = k;
            if (r->rank == 0)
                put_when_connected(r, peer, &put);
            if (sleep) {
                world_sleep_until(r, word, k);
            } else {
                while (word_load(word) != k)
                    r->t->progress(r->ctx);
            }
            if (r->rank == 1)
                put_when_connected(r, peer, &put);
        }
        times[b] = (world_now() - start) / rounds / 2 * 1e9;
    }
    qsort(times, (size_t)blocks, sizeof(*times), by_value);
    figure = (struct figure){times[0], times[blocks / 2]};
    free(times);
    return figure;
}

/* Returns how many blocks of this ping-pong take about two seconds. The number
 * is the same on both ranks. The word at `offset` must not be in use. */
static int blocks_of(struct rank *r, struct window *w, size_t offset,
                     bool sleep, int rounds)
{
    struct figure first = ping_pong(r, w, offset, sleep, 1, rounds);
    double n = 1e9 / first.best / rounds;
    int blocks = n > 1000 ? 1000 : n < 10 ? 10 : (int)n;

    world_put_slot(r, &blocks, sizeof(blocks));
    memcpy(&blocks, r->board->slot[0], sizeof(blocks));
    return blocks;
}

static double cost(struct rank *r, bool wake)
{
    const int n = 100000;
    double start = world_now();

    for (int i = 0; i < n; i++) {
        if (wake)
            r->t->wake(r->eps[1 - r->rank]);
        else
            r->t->progress(r->ctx);
    }
    return (world_now() - start) / n * 1e9;
}

/* -- streams ---------------------------------------------------------------- */

#define STREAM_AREA ((size_t)16 << 20)

static double cpu(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* Wait until the word has reached a value, or, if it is NULL, until the
 * transport has room. */
static void await(struct rank *r, const uint64_t *word, uint64_t value)
{
    struct pollfd pfd = {.fd = r->t->wait_fd(r->ctx), .events = POLLIN};
    double deadline = world_now() + world_patience;

    for (int i = 0; word_load(word) < value; i++) {
        if (r->t->progress(r->ctx) || i % 4)
            continue;
        if (r->t->arm(r->ctx) == SHUNT_OK && word_load(word) < value)
            poll(&pfd, 1, 100);
        r->t->disarm(r->ctx);
        if (world_now() > deadline)
            FAIL(r, "nothing comes");
    }
}

static void stream_send(struct rank *r, struct window *w, size_t bytes,
                        uint64_t count, uint64_t window)
{
    const size_t slots = STREAM_AREA / bytes;
    static unsigned char source[STREAM_AREA];

    for (uint64_t k = 0; k < count; k++) {
        struct shunt_transport_put put = {
            .local = source + k % slots * bytes,
            .remote = w->remote[1],
            .offset = 4096 + k % slots * bytes,
            .bytes = bytes,
            .signal = w->remote[1],
            .signal_offset = 0,
            .signal_value = k + 1,
        };

        if (k >= window)
            await(r, window_word(w, 64), k + 1 - window);
        world_put(r, 1, &put);
    }
    await(r, window_word(w, 64), count);
}

static void stream_receive(struct rank *r, struct window *w, uint64_t count)
{
    uint64_t seen = 0;

    while (seen < count) {
        await(r, window_word(w, 0), seen + 1);
        seen = word_load(window_word(w, 0));
        world_signal(r, w, 0, 64, seen, 0);
    }
}

static void stream(struct rank *r, size_t bytes, uint64_t window)
{
    const char *seconds = getenv("STREAM_SECONDS");
    double want = seconds ? atof(seconds) : 0.5, took = 0, used;
    uint64_t count = 4 + (4 << 20) / (bytes + 4096);
    struct window w;

    /* The first pass only finds how many puts the second pass needs to take the
     * wanted time. */
    for (int pass = 0; pass < 2; pass++) {
        double start;

        window_create(r, &w, 4096 + STREAM_AREA);
        start = world_now();
        used = cpu();
        if (r->rank == 0)
            stream_send(r, &w, bytes, count, window);
        else
            stream_receive(r, &w, count);
        took = world_now() - start;
        used = cpu() - used;
        world_put_slot(r, &used, sizeof(used));
        if (r->rank == 0) {
            double theirs;

            memcpy(&theirs, r->board->slot[1], sizeof(theirs));
            if (pass)
                printf("%8zu bytes, %2d at a time %9.2f MB/s %9.2f us each, "
                       "cpu %3.0f%% + %3.0f%%\n",
                       bytes, (int)window,
                       (double)count * (double)bytes / took * 1e-6,
                       took / (double)count * 1e6, used / took * 100,
                       theirs / took * 100);
            fflush(stdout);
            count = (uint64_t)((double)count * want / took) + 4;
        }
        world_put_slot(r, &count, sizeof(count));
        memcpy(&count, r->board->slot[0], sizeof(count));
        world_barrier(r);
        window_destroy(r, &w);
    }
}

static void enter_host(int pid)
{
    static const char *const kinds[] = {"net", "pid", "mnt"};
    char path[64];
    int status;
    pid_t child;

    for (int i = 0; i < 3; i++) {
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, kinds[i]);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || setns(fd, 0)) {
            perror(path);
            exit(1);
        }
        close(fd);
    }
    child = fork(); /* only a child is in the other PID namespace */
    if (child) {
        waitpid(child, &status, 0);
        exit(!WIFEXITED(status) || WEXITSTATUS(status));
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

static void measure(struct rank *r)
{
    static const size_t sizes[] = {8,       4096,    16384,  65536,
                                   1 << 18, 1 << 20, 4 << 20};
    struct figure spinning, sleeping;
    int blocks;
    struct window w;

    if (hosts[r->rank])
        enter_host(hosts[r->rank]);
    world_open(r);
    if (!hosts[r->rank])
        pin(r->rank);
    window_create(r, &w, 4096);
    blocks = blocks_of(r, &w, 256, false, 100);
    spinning = ping_pong(r, &w, 0, false, blocks, 100);
    world_barrier(r);
    blocks = blocks_of(r, &w, 384, true, 20);
    sleeping = ping_pong(r, &w, 128, true, blocks, 20);
    world_barrier(r);
    if (r->rank == 0) {
        printf("one way, spinning   %8.0f ns, median %8.0f\n", spinning.best,
               spinning.median);
        printf("one way, sleeping   %8.0f ns, median %8.0f\n", sleeping.best,
               sleeping.median);
        printf("wake(), none asleep %8.1f ns\n", cost(r, true));
        printf("progress(), idle    %8.1f ns\n", cost(r, false));
        fflush(stdout);
    }
    world_barrier(r);
    window_destroy(r, &w);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        stream(r, sizes[i], 1);
        if (sizes[i] < 4 << 20)
            stream(r, sizes[i], 4);
        stream(r, sizes[i], sizes[i] < 1 << 20 ? 16 : 2);
    }
}

int main(int argc, char **argv)
{
    const struct test_case c = {
        .name = "latency", .run = measure, .bare = true};
    const char *spec = argc > 1 ? argv[argc - 1] : "shm";
    const char *plus = strchr(spec, '+');
    const struct shunt_transport *t;
    char name[64];

    snprintf(name, sizeof(name), "%.*s",
             plus ? (int)(plus - spec) : (int)strlen(spec), spec);
    t = world_find(name);
    if (!t)
        return 1;
    if (argc > 3 && !strcmp(argv[1], "--enter") &&
        sscanf(argv[2], "%d,%d", &hosts[0], &hosts[1]) != 2)
        return 2;
    return !world_run(&c, t, plus ? plus + 1 : "", 2,
                      argc > 2 && !strcmp(argv[1], "--threads"));
}
