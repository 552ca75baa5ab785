// SPDX-License-Identifier: Apache-2.0
/*
 * Conformance: the rails of rdma between two ranks with two devices each. The
 * devices are those of the stand-in for libibverbs (tests/verbs).
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/transports/cases.h"
#include "tests/verbs/outages.h"

#define LARGE ((size_t)3 << 20)
#define SMALL ((size_t)512)
#define PUTS 16

static void open_with(struct rank *r, const char *words)
{
    setenv("SHUNT_TEST_VERBS", words, 1);
    world_open(r);
    world_all_signal(r); /* the first puts connect the rails */
}

bool case_rdma_is_row_of_own_nics(void)
{
    const char *words = getenv("SHUNT_TEST_VERBS");

    return words && !strncmp(words, "nasty", 5) && !strstr(words, "devices=");
}

/* Returns byte i of put `k`. */
static uint64_t contents(uint64_t k, size_t i)
{
    return (k + 1) * 1000003 + i;
}

static size_t bytes_of(uint64_t k)
{
    return k % 4 == 3 ? LARGE : SMALL;
}

/* Rank 0 starts each put after rank 1 has checked the one before. Rank 1 calls
 * progress() only while it waits for a put. `at_half` is called while put PUTS
 * / 2 is in progress. */
static void put_all(struct rank *r, struct window *w,
                    void (*at_half)(struct rank *r))
{
    uint64_t *source = malloc(LARGE);

    CHECK(r, source, "no memory");
    for (uint64_t k = 0; k < PUTS; k++) {
        const size_t bytes = bytes_of(k);
        unsigned pending = 0;
        struct shunt_transport_put put = {
            .local = source,
            .remote = w->remote[1],
            .bytes = bytes,
            .signal = w->remote[1],
            .signal_offset = LARGE,
            .signal_value = k + 1,
            .pending = k % 4 == 3 ? &pending : NULL,
        };

        if (r->rank == 1) {
            const uint64_t *there = (const uint64_t *)(void *)w->addr;

            UNTIL(r, word_load(window_word(w, LARGE)) == k + 1);
            for (size_t i = 0; i < bytes / 8; i++)
                CHECK(r, there[i] == contents(k, i), "put %d, word %zu", (int)k,
                      i);
            world_signal(r, w, 0, LARGE, k + 1, 0);
            continue;
        }
        for (size_t i = 0; i < bytes / 8; i++)
            source[i] = contents(k, i);
        world_put(r, 1, &put);
        if (k == PUTS / 2 + 1 && at_half)
            at_half(r);
        UNTIL(r, word_load(window_word(w, LARGE)) == k + 1);
        UNTIL(r, pending == 0);
    }
    UNTIL(r, r->t->flush(r->eps[!r->rank]) == SHUNT_OK);
    world_barrier(r);
    CHECK(r, r->rank == 0 || word_load(window_word(w, LARGE)) == PUTS,
          "one more signal");
    free(source);
}

/* Payload is sent over both rails. */
void case_rdma_rails(struct rank *r)
{
    struct window w;
    double one, other;

    open_with(r, "nasty,devices=2");
    CHECK(r, outages_counter(r, "rails") == 2, "there are not two rails");
    window_create(r, &w, LARGE + 8);
    put_all(r, &w, NULL);
    if (r->rank == 0) {
        one = (double)outages_counter(r, "bytes by mean0:1");
        other = (double)outages_counter(r, "bytes by mean1:1");
        CHECK(r, one > 0.9 * other && other > 0.9 * one,
              "%.0f bytes went over the first, %.0f over the second", one,
              other);
    }
    window_destroy(r, &w);
    world_close(r);
}

/* Memory lent for puts is returned, in whatever order the puts' requests and
 * the other side's reports complete. No other traffic is needed for that. */
void case_rdma_rails_lend(struct rank *r)
{
    const size_t bytes = 100000;
    unsigned char *source = calloc(1, bytes);
    struct window w;

    CHECK(r, source, "no memory");
    open_with(r, "nasty,devices=2");
    window_create(r, &w, bytes);
    for (int i = 0; i < 300; i++) {
        unsigned pending = 0;

        for (int k = 0; k < 4; k++)
            world_put(r, !r->rank,
                      &(struct shunt_transport_put){
                          .local = source,
                          .remote = w.remote[!r->rank],
                          .bytes = k % 2 ? 64 : bytes,
                          .pending = k % 2 ? NULL : &pending,
                      });
        UNTIL(r, pending == 0);
        world_barrier(r);
    }
    window_destroy(r, &w);
    world_close(r);
    free(source);
}

static void kill_device(struct rank *r)
{
    outages_do(r, 0, "fatal");
}

/* A device fails permanently: its rail stays lost, but no put is lost. */
void case_rdma_rail_dies(struct rank *r)
{
    struct window w;

    open_with(r, "nasty,devices=2,ghosts");
    window_create(r, &w, LARGE + 8);
    put_all(r, &w, kill_device);
    CHECK(r, outages_counter(r, "rails") == 1, "the rail is not down");
    CHECK(r, outages_counter(r, "rails lost") == 1, "it was not lost once");
    window_destroy(r, &w);
    world_close(r);
}

/* The limit for close() in seconds. On an idle machine close() returns at once,
 * but other tests may run at the same time. */
enum { SOON_S = 5 };

/* All rails fail during a put: both ranks notice in time, and their errors
 * contain the reason. */
void case_rdma_rails_gone(struct rank *r)
{
    unsigned char *source = calloc(1, LARGE);
    const struct shunt_transport_put nothing = {.bytes = 0};
    unsigned pending = 0;
    double start;
    struct window w;

    CHECK(r, source, "no memory");
    open_with(r, "rc,devices=2");
    window_create(r, &w, LARGE);
    if (r->rank == 0) {
        const struct shunt_transport_put put = {
            .local = source,
            .remote = w.remote[1],
            .bytes = LARGE,
            .pending = &pending,
        };

        for (int i = 0; i < 4; i++)
            world_put(r, 1, &put);
        outages_do(r, 0, "down");
        outages_do(r, 1, "down");
    }
    world_barrier(r);
    outages_await_loss(r);
    CHECK(r, !r->t->left(r->eps[!r->rank]), "it has not left");
    EXPECT(r, SHUNT_ERR_PEER, r->t->put(r->eps[!r->rank], &nothing));
    CHECK(r, strstr(r->t->error(r->ctx), r->rank ? "rank 0" : "rank 1"), "%s",
          r->t->error(r->ctx));
    /* The error has the reason, or says that the other rank reported it
     * first. */
    CHECK(r,
          r->rank == 1 || strstr(r->t->error(r->ctx), "mean") ||
              strstr(r->t->error(r->ctx), "connection broke"),
          "%s", r->t->error(r->ctx));
    EXPECT(r, SHUNT_OK, r->t->let_go(r->eps[!r->rank], true));
    CHECK(r, pending == 0, "%u puts need their memory", pending);
    world_barrier(r);
    start = world_now();
    r->t->close(r->ctx);
    r->ctx = NULL;
    CHECK(r, world_now() - start < SOON_S, "close() took %.1f s",
          world_now() - start);
    free(source);
}

/* The port of the only rail stays down while nothing is in progress: a sleeping
 * rank notices. */
void case_rdma_port_asleep(struct rank *r)
{
    setenv("SHUNT_TEST_VERBS", "rc", 1);
    world_open(r);
    world_all_signal(r);
    world_barrier(r);
    outages_do(r, 0, "down");
    while (r->t->alive(r->eps[!r->rank])) {
        struct pollfd pfd = {.fd = r->t->wait_fd(r->ctx), .events = POLLIN};
        const bool armed = r->t->arm(r->ctx) == SHUNT_OK;
        const int n = armed ? poll(&pfd, 1, 3000) : 1;

        r->t->disarm(r->ctx);
        CHECK(r, n > 0, "it is not woken up");
        r->t->progress(r->ctx);
    }
    world_barrier(r);
    r->t->close(r->ctx);
    r->ctx = NULL;
}

/* Each of the first requests of rank 0, and of the first that arrive at rank 1,
 * completes in error once: records, fragments, reports, and the requests that
 * connect rails. */
void case_rdma_requests_replayed(struct rank *r)
{
    static const char *const ways[2] = {"error", "receive"};

    setenv("SHUNT_TEST_VERBS", "srd,devices=2", 1);
    for (int way = 0; way < 2; way++) {
        for (int n = 1; n < 24; n++) {
            char word[32];
            struct window w;

            snprintf(word, sizeof(word), "%s=%d", ways[way],
                     r->rank == way ? n : 0);
            outages_do(r, 0, word);
            world_open(r);
            window_create(r, &w, LARGE + 8);
            put_all(r, &w, NULL);
            window_destroy(r, &w);
            world_close(r);
        }
    }
}

/* Requests fail as in case_rdma_requests_replayed(), with one device, where the
 * first request connects. Also tests other failures of a rail whose device and
 * port work. */
void case_rdma_last_rail(struct rank *r)
{
    static const char *const ways[] = {
        "error=", "receive=", "broken=", "event=qp@"};

    for (int way = 0; way < 4; way++) {
        for (int n = 2; n < 20; n += way < 2 ? 2 : 6) {
            char word[32];
            struct window w;

            snprintf(word, sizeof(word), "%s%d", ways[way],
                     (way == 1) == (r->rank == 1) ? n : 0);
            outages_do(r, 0, word);
            world_open(r);
            window_create(r, &w, LARGE + 8);
            put_all(r, &w, NULL);
            CHECK(r,
                  outages_counter(r, "rails") == 1 &&
                      outages_counter(r, "rails lost") == 1 &&
                      outages_counter(r, "rails back") == 1,
                  "%s: %d rails, lost %d times, back %d", word,
                  (int)outages_counter(r, "rails"),
                  (int)outages_counter(r, "rails lost"),
                  (int)outages_counter(r, "rails back"));
            window_destroy(r, &w);
            world_close(r);
        }
    }
}

/* The only rail fails again and again. Between failures, the same rank always
 * puts through the ring, so neither rank gives up the other. */
void case_rdma_last_rail_often(struct rank *r)
{
    enum { TIMES = 8 };
    static uint64_t source;
    struct window w;

    open_with(r, "rc");
    window_create(r, &w, 16);
    for (uint64_t k = 1; k <= TIMES; k++) {
        const uint64_t lost = outages_counter(r, "rails lost");

        source = k;
        if (r->rank == 0) {
            world_put(r, 1,
                      &(struct shunt_transport_put){.local = &source,
                                                    .remote = w.remote[1],
                                                    .offset = 8,
                                                    .bytes = 8});
            UNTIL(r, r->t->flush(r->eps[1]) == SHUNT_OK);
        }
        world_barrier(r);
        CHECK(r, r->rank == 0 || word_load(window_word(&w, 8)) == k, "put %d",
              (int)k);
        if ((uint64_t)r->rank == k % 2)
            outages_do(r, 0, "qp");
        UNTIL(r, !r->t->alive(r->eps[!r->rank]) ||
                     (outages_counter(r, "rails lost") > lost &&
                      outages_counter(r, "rails") == 1));
        CHECK(r, r->t->alive(r->eps[!r->rank]), "lost after %d times", (int)k);
        world_barrier(r);
    }
    window_destroy(r, &w);
    world_close(r);
}

/* From some moment on, no packets arrive, or no large ones. Both ranks notice
 * in time. */
void case_rdma_last_rail_lost(struct rank *r)
{
    unsigned char *source = calloc(1, LARGE);

    CHECK(r, source, "no memory");
    for (int way = 0; way < 2; way++) {
        const struct shunt_transport_put nothing = {.bytes = 0};
        double start;
        struct window w;

        outages_do(r, 0, way == 0 ? "mtu=0" : "mtu=4096");
        world_open(r);
        window_create(r, &w, LARGE);
        world_all_signal(r); /* connects the rail */
        start = world_now();
        if (r->rank == 0) {
            if (way == 0)
                outages_do(r, 0, "lossy");
            world_put(r, 1,
                      &(struct shunt_transport_put){.local = source,
                                                    .remote = w.remote[1],
                                                    .bytes = LARGE});
        }
        if (way == 0)
            outages_await_loss(r);
        else /* the rail is connected again a few times */
            UNTIL(r, !r->t->alive(r->eps[!r->rank]));
        CHECK(r, world_now() - start < SOON_S, "after %.2f s",
              world_now() - start);
        EXPECT(r, SHUNT_ERR_PEER, r->t->put(r->eps[!r->rank], &nothing));
        CHECK(r, strstr(r->t->error(r->ctx), r->rank ? "rank 0" : "rank 1"),
              "%s", r->t->error(r->ctx));
        world_barrier(r);
        r->t->close(r->ctx);
        r->ctx = NULL;
        close(w.fd);
    }
    free(source);
}

#define DIRECT ((size_t)64 << 10)
#define TAUGHT 2 /* value of the signal from which direct puts go on */

/* Register the source, so that further puts from it are direct. */
static void register_and_teach(struct rank *r, struct window *w, void *source,
                               struct shunt_transport_reg **reg)
{
    const struct shunt_transport_memory memory = {
        .addr = source, .bytes = LARGE, .fd = -1};
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
    size_t len = sizeof(key);

    EXPECT(r, SHUNT_OK, r->t->reg(r->ctx, &memory, key, &len, reg));
    for (uint64_t value = 1; value <= TAUGHT; value++)
        world_signal(r, w, 1, LARGE, value, 0);
}

/* Rank 1 deregisters memory while puts of rank 0 to it are in progress. The
 * puts have no effect. Rank 0 gets an error and may reuse the puts' source.
 * Everything else continues. */
void case_rdma_withdrawn(struct rank *r)
{
    const char *words = getenv("SHUNT_TEST_VERBS");
    const bool here =
        case_rdma_is_row_of_own_nics() || (words && !strcmp(words, "rc"));
    unsigned char *source = calloc(1, LARGE), *target = calloc(1, LARGE);

    CHECK(r, source && target, "no memory");
    for (int round = 0; round < 24 && here; round++) {
        const bool direct = round >= 12;
        struct shunt_transport_memory memory = {
            .addr = target, .bytes = LARGE, .fd = -1, .brief = true};
        unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
        struct shunt_transport_remote *remote = NULL;
        struct shunt_transport_reg *reg = NULL, *source_reg = NULL;
        unsigned pending = 0;
        /* With two rails, puts from lent memory are not direct. */
        unsigned *counted = direct && round % 3 == 0 ? NULL : &pending;
        size_t len = sizeof(key);
        struct window w;

        outages_do(r, 0, round % 3 ? "devices=1" : "devices=2");
        world_open(r);
        window_create(r, &w, LARGE + 8);
        if (direct && r->rank == 0)
            register_and_teach(r, &w, source, &source_reg);
        if (r->rank == 1) {
            EXPECT(r, SHUNT_OK, r->t->reg(r->ctx, &memory, key, &len, &reg));
            memcpy(r->board->slot[2], key, len);
            r->board->len[2] = len;
        }
        world_barrier(r);
        if (r->rank == 0) {
            enum shunt_status st = SHUNT_OK;
            int refused = 0;

            EXPECT(r, SHUNT_OK,
                   r->t->import(r->eps[1], r->board->slot[2], r->board->len[2],
                                &remote));
            for (int i = 0; i < 4; refused += st != SHUNT_OK, i++)
                UNTIL(r, (st = r->t->put(
                              r->eps[1],
                              &(struct shunt_transport_put){
                                  .local = source,
                                  .reg = source_reg,
                                  .remote = remote,
                                  .bytes =
                                      (direct ? DIRECT : LARGE) - (size_t)i * 8,
                                  .signal = w.remote[1],
                                  .signal_offset = LARGE,
                                  .signal_value = TAUGHT + (uint64_t)i + 1,
                                  .pending = counted,
                              })) != SHUNT_IN_PROGRESS);
            UNTIL(r, pending == 0);
            for (; (st = r->t->flush(r->eps[1]));
                 refused += st == SHUNT_ERR_INVALID) {
                CHECK(r, st == SHUNT_IN_PROGRESS || st == SHUNT_ERR_INVALID,
                      "%s", r->t->error(r->ctx));
                world_relax(r);
            }
            CHECK(r, refused || !outages_counter(r, "rails lost"),
                  "nobody says that puts had no effect");
            atomic_fetch_add(&r->board->flags[direct ? 4 : 3], refused > 0);
            CHECK(r, !direct || outages_counter(r, "direct") > 0,
                  "no put was direct");
            world_signal(r, &w, 1, LARGE, TAUGHT + 5, 0);
        } else {
            for (uint64_t k = world_random(r) % 400; k > 0; k--)
                r->t->progress(r->ctx);
            r->t->dereg(r->ctx, reg);
            memset(target, 3, LARGE);
            /* Both ranks still agree on the value of the signal word. */
            UNTIL(r, word_load(window_word(&w, LARGE)) == TAUGHT + 5);
        }
        world_barrier(r);
        for (size_t i = 0; r->rank == 1 && i < LARGE; i++)
            CHECK(r, target[i] == 3, "byte %zu was written", i);
        world_barrier(r);
        CHECK(r, r->t->alive(r->eps[!r->rank]), "it is gone");
        *window_word(&w, LARGE) = 0;
        world_barrier(r);
        put_all(r, &w, NULL);
        if (remote)
            r->t->release(r->eps[1], remote);
        if (source_reg)
            r->t->dereg(r->ctx, source_reg);
        window_destroy(r, &w);
        world_close(r);
    }
    CHECK(r,
          !here || (atomic_load(&r->board->flags[3]) > 0 &&
                    atomic_load(&r->board->flags[4]) > 0),
          "all puts were faster");
    free(source);
    free(target);
}

/* Rank 0 imports memory of rank 1, which rank 1 then deregisters. Returns rank
 * 0's handle of the memory. */
static struct shunt_transport_remote *
import_and_withdraw(struct rank *r, struct shunt_transport_memory memory)
{
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
    struct shunt_transport_remote *remote = NULL;
    struct shunt_transport_reg *reg = NULL;
    size_t len = sizeof(key);

    if (r->rank == 1) {
        EXPECT(r, SHUNT_OK, r->t->reg(r->ctx, &memory, key, &len, &reg));
        memcpy(r->board->slot[2], key, len);
        r->board->len[2] = len;
    }
    world_barrier(r);
    if (r->rank == 0)
        EXPECT(r, SHUNT_OK,
               r->t->import(r->eps[1], r->board->slot[2], r->board->len[2],
                            &remote));
    world_barrier(r);
    if (r->rank == 1)
        r->t->dereg(r->ctx, reg);
    world_barrier(r);
    return remote;
}

/* Flush until no put is left. Rank 0 must get an error, because puts had no
 * effect. */
static void flush_refused(struct rank *r)
{
    enum shunt_status st;
    int refused = 0;

    while ((st = r->t->flush(r->eps[1])) != SHUNT_OK) {
        CHECK(r, st == SHUNT_IN_PROGRESS || st == SHUNT_ERR_INVALID, "%s",
              r->t->error(r->ctx));
        refused += st == SHUNT_ERR_INVALID;
        world_relax(r);
    }
    CHECK(r, refused, "nobody says that puts had no effect");
}

/* Many puts to deregistered memory, the first of them on a rail that fails.
 * When that put is sent again, all puts take effect at once. They are more than
 * the 8 bits of a report can distinguish from none. */
void case_rdma_refused_at_once(struct rank *r)
{
    enum { REFUSED = 200 };
    static unsigned char target[64], source[64];
    struct shunt_transport_remote *remote;

    open_with(r, "rc,devices=2");
    remote = import_and_withdraw(
        r, (struct shunt_transport_memory){
               .addr = target, .bytes = sizeof(target), .fd = -1});
    if (r->rank == 0) {
        const struct shunt_transport_put put = {
            .local = source, .remote = remote, .bytes = sizeof(source)};

        outages_do(r, 0, "lossy");
        for (int i = 0; i < REFUSED; i++)
            world_put(r, 1, &put);
        CHECK(r, !outages_counter(r, "rails lost"), "it has failed already");
        flush_refused(r);
        CHECK(r, outages_counter(r, "sent again"), "nothing was sent again");
        r->t->release(r->eps[1], remote);
    }
    world_barrier(r);
    world_close(r);
}

/* If memory is registered for one operation only, small puts to it are not
 * direct. So the peer's library refuses these puts. If its NIC refused them,
 * the rail would fail. */
void case_rdma_refused_small(struct rank *r)
{
    static unsigned char target[64], source[64];
    struct shunt_transport_memory memory = {
        .addr = source, .bytes = sizeof(source), .fd = -1};
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
    struct shunt_transport_remote *remote;
    struct shunt_transport_reg *reg;
    size_t len = sizeof(key);

    open_with(r, "rc");
    EXPECT(r, SHUNT_OK, r->t->reg(r->ctx, &memory, key, &len, &reg));
    memory.addr = target;
    memory.brief = true;
    remote = import_and_withdraw(r, memory);
    if (r->rank == 0) {
        world_put(r, 1,
                  &(struct shunt_transport_put){.local = source,
                                                .reg = reg,
                                                .remote = remote,
                                                .bytes = sizeof(source)});
        flush_refused(r);
        r->t->release(r->eps[1], remote);
    }
    world_barrier(r);
    CHECK(r, !outages_counter(r, "rails lost"), "a NIC has refused it");
    r->t->dereg(r->ctx, reg);
    world_close(r);
}

/* SHUNT_RDMA_DEVICE chooses the devices and their order. probe() says why other
 * devices are not used. */
void case_rdma_choice(struct rank *r)
{
    struct shunt_transport_estimate estimate;
    char why[1024];

    open_with(r, "devices=6");
    CHECK(r, outages_counter(r, "rails") == 4, "there are not four rails");
    EXPECT(r, SHUNT_OK, r->t->probe(&world_host, &estimate, why, sizeof(why)));
    CHECK(r, strstr(why, "mean3, port 1, GID 2; not used: mean4:1: 4 are used"),
          "%s", why);
    world_close(r);
    setenv("SHUNT_RDMA_DEVICE", "mean5,none,mean1:1,mean2:3", 1);
    world_open(r);
    world_all_signal(r);
    CHECK(r, outages_counter(r, "rails") == 2, "there are not two rails");
    outages_counter(r, "bytes by mean5:1");
    outages_counter(r, "bytes by mean1:1");
    EXPECT(r, SHUNT_OK, r->t->probe(&world_host, &estimate, why, sizeof(why)));
    CHECK(r,
          strstr(why, "mean5, port 1, GID 2; mean1, port 1") &&
              strstr(why, "no device none") && strstr(why, "no port 3"),
          "%s", why);
    world_close(r);
    setenv("SHUNT_RDMA_DEVICE", "none", 1);
    EXPECT(r, SHUNT_ERR_UNSUPPORTED,
           r->t->probe(&world_host, &estimate, why, sizeof(why)));
    CHECK(r, strstr(why, "no device none (SHUNT_RDMA_DEVICE)"), "%s", why);
}
