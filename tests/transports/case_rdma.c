// SPDX-License-Identifier: Apache-2.0
/*
 * Conformance: only for rdma. The stand-in for libibverbs (tests/verbs) causes
 * errors of NICs. A real device has no such errors, and the cases pass.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/transports/cases.h"
#include "tests/verbs/outages.h"

/* Bytes that rank 0 is putting when its NIC fails. */
#define LARGE ((size_t)1 << 20)

static void close_in_time(struct rank *r)
{
    const double start = world_now();

    r->t->close(r->ctx);
    r->ctx = NULL;
    CHECK(r, world_now() - start < 2, "close() took %.1f s",
          world_now() - start);
}

/*
 * Rank 0 puts until its device fails. Then rank 0 and all other ranks report
 * each other as lost, not as left. No memory of the caller is in use any more,
 * and all ranks end in time.
 */
void case_rdma_device_fails(struct rank *r)
{
    unsigned char *source = calloc(1, LARGE);
    const bool harmed = getenv("SHUNT_TEST_VERBS") != NULL;
    unsigned pending = 0;
    struct window w;

    CHECK(r, source, "no memory");
    if (harmed && r->rank == 0) {
        const bool ib = strstr(getenv("SHUNT_TEST_VERBS"), ",ib");

        setenv("SHUNT_TEST_VERBS",
               ib ? "event=device@40,ib" : "event=device@40", 1);
    }
    world_open(r);
    window_create(r, &w, LARGE);
    for (int p = 1; harmed && r->rank == 0 && p < r->nranks; p++) {
        struct shunt_transport_put put = {
            .local = source,
            .remote = w.remote[p],
            .bytes = LARGE,
            .pending = &pending,
        };
        const struct shunt_transport_put after = {.signal = w.remote[p]};
        enum shunt_status st = SHUNT_OK;

        for (int i = 0; st >= SHUNT_OK; i++) {
            put.bytes = i % 2 ? 64 : LARGE;
            UNTIL(r, (st = r->t->put(r->eps[p], &put)) != SHUNT_IN_PROGRESS);
        }
        /* Or connecting failed, because the device had failed before. */
        CHECK(r, st == SHUNT_ERR_PEER || (p > 1 && st == SHUNT_ERR_SYSTEM),
              "%d: %s", (int)st, r->t->error(r->ctx));
        UNTIL(r, !r->t->alive(r->eps[p]));
        CHECK(r, !r->t->left(r->eps[p]), "rank %d", p);
        EXPECT(r, SHUNT_ERR_PEER, r->t->put(r->eps[p], &after));
        EXPECT(r, SHUNT_OK, r->t->let_go(r->eps[p], true));
    }
    CHECK(r, pending == 0, "%u puts still need their memory", pending);
    if (harmed && r->rank > 0) {
        UNTIL(r, !r->t->alive(r->eps[0]));
        CHECK(r, !r->t->left(r->eps[0]), "rank 0");
    }
    world_barrier(r);
    for (int p = 0; p < r->nranks; p++)
        CHECK(r,
              p == r->rank ||
                  r->t->alive(r->eps[p]) == !(harmed && r->rank * p == 0),
              "rank %d", p);
    world_barrier(r);
    close_in_time(r);
    close(w.fd);
    free(source);
}

static uint64_t requests(struct rank *r)
{
    struct shunt_transport_counter all[20];
    const size_t count = r->t->counters(r->ctx, all, 20);

    for (size_t i = 0; i < count && i < 20; i++)
        if (!strcmp(all[i].name, "work requests"))
            return all[i].value;
    FAIL(r, "work requests are not counted");
}

/* Returns the number of devices of the stand-in, each of which is a rail.
 * Returns 1 for other devices. */
static uint64_t devices(void)
{
    const char *words = getenv("SHUNT_TEST_VERBS");
    const char *count = words ? strstr(words, "devices=") : NULL;

    return count ? strtoul(count + strlen("devices="), NULL, 10) : 1;
}

/* A put that fits in one request takes one request, including its signal. A
 * larger put of n fragments takes n + 1. */
void case_rdma_requests(struct rank *r)
{
    enum { PUTS = 10 };
    static const struct {
        size_t bytes;
        uint64_t requests;
    } puts[] = {{0, 1}, {8, 1}, {4096, 1}, {8192, 1}, {LARGE, 5}};
    unsigned char *source = calloc(1, LARGE);
    struct window w;

    CHECK(r, source, "no memory");
    window_create(r, &w, LARGE + 8);
    if (r->rank == 0) { /* The first put also connects. */
        world_put(r, 1,
                  &(struct shunt_transport_put){
                      .local = source, .remote = w.remote[1], .bytes = 8});
        UNTIL(r, r->t->flush(r->eps[1]) == SHUNT_OK);
        /* A rail that connects later would add the request that probes it. */
        UNTIL(r, outages_counter(r, "rails") >= devices());
    }
    world_barrier(r);
    for (size_t s = 0; s < sizeof(puts) / sizeof(puts[0]); s++) {
        const uint64_t before = requests(r);
        const struct shunt_transport_put put = {
            .local = source,
            .remote = w.remote[!r->rank],
            .bytes = puts[s].bytes,
            .signal = w.remote[!r->rank],
            .signal_offset = LARGE,
            .signal_value = s + 1,
        };

        if (r->rank == 0) {
            for (int i = 0; i < PUTS; i++) {
                world_put(r, 1, &put);
                UNTIL(r, !r->t->busy(r->ctx));
            }
            CHECK(r, requests(r) - before == PUTS * puts[s].requests,
                  "%d puts of %zu bytes took %llu", PUTS, puts[s].bytes,
                  (unsigned long long)(requests(r) - before));
            UNTIL(r, r->t->flush(r->eps[1]) == SHUNT_OK);
        }
        world_barrier(r);
    }
    window_destroy(r, &w);
    free(source);
}

/* A window and a source that are too large for RLIMIT_MEMLOCK: the error says
 * what to do, and the connection stays. */
void case_rdma_pinned(struct rank *r)
{
    const size_t bytes = (size_t)8 << 20;
    unsigned char *source = calloc(1, bytes);
    const struct shunt_transport_memory memory = {
        .addr = source, .bytes = bytes, .fd = -1};
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
    struct shunt_transport_reg *reg = NULL;
    struct shunt_transport_put put = {.local = source, .bytes = bytes};
    size_t len = sizeof(key);
    struct window w;

    CHECK(r, source, "no memory");
    setenv("SHUNT_TEST_VERBS", r->rank == 0 ? "pinned=4096" : "rc", 1);
    world_open(r);
    if (r->rank == 0) {
        EXPECT(r, SHUNT_ERR_SYSTEM,
               r->t->reg(r->ctx, &memory, key, &len, &reg));
        CHECK(r, strstr(r->t->error(r->ctx), "ulimit -l"), "%s",
              r->t->error(r->ctx));
    }
    window_create(r, &w, r->rank == 0 ? 4096 : bytes);
    world_all_signal(r);
    put.remote = w.remote[!r->rank];
    if (r->rank == 0) {
        EXPECT(r, SHUNT_ERR_SYSTEM, r->t->put(r->eps[1], &put));
        CHECK(r, strstr(r->t->error(r->ctx), "ulimit -l"), "%s",
              r->t->error(r->ctx));
        put.bytes = 1 << 20;
        world_put(r, 1, &put);
        UNTIL(r, r->t->flush(r->eps[1]) == SHUNT_OK);
    }
    world_barrier(r);
    window_destroy(r, &w);
    world_close(r);
    free(source);
}

/* Fill with random words of 8 bytes. */
static void fill_with(void *to, size_t bytes, uint64_t seed)
{
    uint64_t *words = to;

    for (size_t i = 0; i < bytes / 8; i++)
        words[i] = seed * 1000003 + i;
}

/* A device must be able to register one piece */
#define PIECE ((size_t)136 << 10)

/* Both ranks put to windows that are registered in pieces. The source is
 * registered in advance, or only for the put. Both ranks make the same puts, so
 * each knows the contents of the other's. */
static void put_pieces(struct rank *r, const char *word)
{
    enum { PUTS = 60 };
    const size_t bytes = 20 * PIECE + 4096;
    unsigned char *source = calloc(1, bytes), *right = calloc(1, bytes);
    struct shunt_transport_memory memory = {.bytes = bytes, .fd = -1};
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
    struct shunt_transport_reg *reg;
    size_t len = sizeof(key);
    struct window w;

    CHECK(r, source && right, "no memory");
    outages_do(r, 0, word);
    world_open(r);
    memory.addr = source;
    EXPECT(r, SHUNT_OK, r->t->reg(r->ctx, &memory, key, &len, &reg));
    window_create(r, &w, bytes);
    r->random = 77; /* both ranks make the same puts */
    for (uint64_t k = 0; k < PUTS; k++) {
        const size_t n = (size_t)(world_random(r) % (bytes / 2)) / 8 * 8;
        const size_t from = (size_t)(world_random(r) % (bytes - n)) / 8 * 8;
        const size_t to = (size_t)(world_random(r) % (bytes - n)) / 8 * 8;
        const struct shunt_transport_put put = {
            .local = source + from,
            .reg = k % 2 ? reg : NULL,
            .remote = w.remote[!r->rank],
            .offset = to,
            .bytes = n,
        };

        fill_with(source + from, n, k);
        fill_with(right + to, n, k);
        world_put(r, !r->rank, &put);
        UNTIL(r, r->t->flush(r->eps[!r->rank]) == SHUNT_OK);
        world_barrier(r);
        CHECK(r, !memcmp(w.addr, right, bytes), "put %d is wrong", (int)k);
        world_barrier(r);
    }
    r->t->dereg(r->ctx, reg);
    window_destroy(r, &w);
    world_close(r);
    free(source);
    free(right);
}

/* Tests devices that can register only little memory at once, whether they
 * report that or not. Tests a device for which a window is too large. */
void case_rdma_pieces(struct rank *r)
{
    const size_t bytes = 55 * PIECE;
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
    struct shunt_transport_memory memory = {.bytes = bytes, .fd = -1};
    struct shunt_transport_reg *reg;
    size_t len = sizeof(key);

    put_pieces(r, "mr=136");
    put_pieces(r, "modest=140");
    outages_do(r, 0, "devices=2");
    put_pieces(r, "mr=200");
    outages_do(r, 0, "devices=1");
    outages_do(r, 0, "mr=136");
    world_open(r);
    memory.addr = calloc(1, bytes);
    CHECK(r, memory.addr, "no memory");
    EXPECT(r, SHUNT_ERR_UNSUPPORTED,
           r->t->reg(r->ctx, &memory, key, &len, &reg));
    CHECK(r,
          strstr(r->t->error(r->ctx), "takes 139264 at once") &&
              strstr(r->t->error(r->ctx), "SHUNT_RDMA_DEVICE"),
          "%s", r->t->error(r->ctx));
    free(memory.addr);
    world_close(r);
}

/* Returns how many requests a put of this size takes from memory that is not
 * registered: one if the put is copied, two if its memory is registered. */
static uint64_t requests_of(struct rank *r, struct window *w, size_t bytes)
{
    static unsigned char source[64 << 10];
    const uint64_t before = requests(r);
    const struct shunt_transport_put put = {
        .local = source, .remote = w->remote[1], .bytes = bytes};

    world_put(r, 1, &put);
    UNTIL(r, !r->t->busy(r->ctx));
    return requests(r) - before;
}

/* Tests which puts are copied and which are registered: if registration is
 * slow, if it is free, and if SHUNT_RDMA_COPY sets the limit. */
void case_rdma_crossover(struct rank *r)
{
    static const struct {
        const char *word, *asked;
        size_t copied;
    } trials[] = {
        {"reg=5000", NULL, 24576},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        {"reg=0", NULL, 8192}, /* costs no more than malloc(), if no sanitizer
                                * slows that */
#endif
        {"reg=0", "9000", 9000},
        {"reg=0", "8192", 8192},
        {"reg=0", "24576", 24576},
    };
    struct window w;

    for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
        const size_t most = trials[i].copied;

        outages_do(r, 0, trials[i].word);
        if (trials[i].asked)
            setenv("SHUNT_RDMA_COPY", trials[i].asked, 1);
        else
            unsetenv("SHUNT_RDMA_COPY");
        world_open(r);
        window_create(r, &w, 64 << 10);
        if (r->rank == 0) {
            /* Connect, and wait until no request is left to post. */
            world_signal(r, &w, 1, (64 << 10) - 8, 1, 0);
            UNTIL(r, r->t->flush(r->eps[1]) == SHUNT_OK);
            UNTIL(r, !r->t->busy(r->ctx));
            CHECK(r, requests_of(r, &w, most) == 1, "trial %d: registered",
                  (int)i);
            CHECK(r, requests_of(r, &w, most + 1) == 2, "trial %d: copied",
                  (int)i);
            UNTIL(r, r->t->flush(r->eps[1]) == SHUNT_OK);
        }
        world_barrier(r);
        window_destroy(r, &w);
        world_close(r);
    }
}

/*
 * Puts fill the ring as far as possible without a report. Then follows the
 * longest put that fits into the ring, at the position that wastes most of the
 * ring's end. It has room as soon as the puts before it have taken effect. The
 * other rank sends nothing.
 */
void case_rdma_ring(struct rank *r)
{
    enum { LONGEST = 24576 };
    static const size_t first[] = {LONGEST, 192}, /* 385 and 4 lines */
        then[] = {1536, 1536, 1536, 1536, 1536, 1536,
                  1536, 1536, 1536, 1536, 64,   LONGEST}; /* 252, and 385 */
    static unsigned char source[LONGEST];
    struct shunt_transport_put put = {.local = source};
    struct window w;

    setenv("SHUNT_RDMA_COPY", "24576", 1);
    world_open(r);
    window_create(r, &w, LONGEST);
    put.remote = w.remote[!r->rank];
    for (size_t i = 0; r->rank == 0 && i < sizeof(first) / sizeof(*first);
         i++) {
        put.bytes = first[i];
        world_put(r, 1, &put);
    }
    UNTIL(r, r->rank == 1 || r->t->flush(r->eps[1]) == SHUNT_OK); /* 1 line */
    for (size_t i = 0; r->rank == 0 && i < sizeof(then) / sizeof(*then); i++) {
        put.bytes = then[i];
        world_put(r, 1, &put);
    }
    UNTIL(r, r->rank == 1 || r->t->flush(r->eps[1]) == SHUNT_OK);
    world_barrier(r);
    window_destroy(r, &w);
    world_close(r);
}

static void await_end_of(struct rank *r, pid_t pid)
{
    struct pollfd ended = {.events = POLLIN};

    ended.fd = (int)syscall(SYS_pidfd_open, pid, 0);
    CHECK(r, ended.fd >= 0 || errno == ESRCH, "%s", strerror(errno));
    CHECK(r, ended.fd < 0 || poll(&ended, 1, 10000) == 1, "it lives");
    if (ended.fd >= 0)
        close(ended.fd);
}

/* Rank 0 gives up its connection to rank 1, or leaves, while a put to rank 1 is
 * in progress. */
static void give_up(struct rank *r, struct window *w, unsigned char *source,
                    bool leave)
{
    unsigned pending = 0;
    const struct shunt_transport_put put = {
        .local = source,
        .remote = w->remote[1],
        .bytes = LARGE,
        .pending = &pending,
    };

    world_put(r, 1, &put);
    if (leave) {
        r->t->close(r->ctx);
        r->ctx = NULL;
        return;
    }
    EXPECT(r, SHUNT_OK, r->t->let_go(r->eps[1], true));
    CHECK(r, pending == 0, "%u puts still need their memory", pending);
}

/*
 * Rank 2 is killed. Rank 0 then gives up the connection to rank 1, or leaves,
 * and rank 1 finds out both at the same time. The loss of rank 2 comes first,
 * so that the error can name it.
 */
static void give_up_because_of_death(struct rank *r, bool leave)
{
    unsigned char *source = calloc(1, LARGE);
    struct window w;

    CHECK(r, source, "no memory");
    window_create(r, &w, LARGE);
    world_all_signal(r);
    if (r->rank == 2) {
        atomic_store(&r->board->flags[2], (int)getpid());
        raise(SIGKILL);
    }
    UNTIL(r, atomic_load(&r->board->flags[2]) != 0);
    await_end_of(r, atomic_load(&r->board->flags[2]));
    if (r->rank == 0) {
        give_up(r, &w, source, leave);
        atomic_store(&r->board->flags[0], 1);
        world_await_flag(r, 1, 1);
    } else {
        world_await_flag(r, 0, 1);
        UNTIL(r, !r->t->alive(r->eps[0]) || !r->t->alive(r->eps[2]));
        CHECK(r, r->t->alive(r->eps[0]),
              "it is gone before rank 2, or with it");
        CHECK(r, !r->t->left(r->eps[2]), "it was killed");
        UNTIL(r, !r->t->alive(r->eps[0]));
        CHECK(r, r->t->left(r->eps[0]) || !leave, "it had left");
        atomic_store(&r->board->flags[1], 1);
    }
    close(w.fd);
    if (r->ctx)
        r->t->close(r->ctx);
    r->ctx = NULL;
    free(source);
}

void case_rdma_death_first(struct rank *r)
{
    give_up_because_of_death(r, false);
}

void case_rdma_death_before_leaving(struct rank *r)
{
    give_up_because_of_death(r, true);
}
