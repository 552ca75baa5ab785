// SPDX-License-Identifier: Apache-2.0
/*
 * Conformance: the first put of rdma to a peer, which makes the connection. The
 * devices are those of the stand-in for libibverbs (tests/verbs), which counts
 * queue pairs.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/transports/cases.h"
#include "tests/verbs/outages.h"

#ifdef FAILING_MEMORY
#include "tests/harness/failing_memory.h"

#define LAST MEMORY
#define memory_nth(n) failing_memory_nth(n)
#define memory_failed() failing_memory_failed()
#else /* the thread sanitizer has its own malloc() */
#define LAST CALLS
#define memory_nth(n) ((void)(n))
#define memory_failed() false
#endif

#define BYTES ((size_t)1 << 20)
#define SIGNAL BYTES

static void open_with(struct rank *r, const char *words)
{
    setenv("SHUNT_TEST_VERBS", words, 1);
    world_open(r);
}

/* Returns a put of `bytes` bytes from `source`, with a signal of the value of
 * the first byte. */
static struct shunt_transport_put put_of(const struct window *w, int peer,
                                         const unsigned char *source,
                                         size_t bytes)
{
    return (struct shunt_transport_put){
        .local = source,
        .remote = w->remote[peer],
        .bytes = bytes,
        .signal = w->remote[peer],
        .signal_offset = SIGNAL,
        .signal_value = source[0],
    };
}

/* Put to rank `to`, and at the same time receive a put of rank `from`. A rank
 * that is -1 is skipped. */
static void exchange(struct rank *r, struct window *w, int to, int from,
                     size_t bytes, unsigned char byte)
{
    unsigned char *source = malloc(BYTES);

    CHECK(r, source, "no memory");
    memset(source, byte, BYTES);
    world_barrier(r);
    if (to >= 0) {
        const struct shunt_transport_put put = put_of(w, to, source, bytes);

        world_put(r, to, &put);
    }
    if (from >= 0) {
        UNTIL(r, word_load(window_word(w, SIGNAL)) == byte);
        for (size_t i = 0; i < bytes; i++)
            CHECK(r, w->addr[i] == byte, "byte %zu", i);
    }
    UNTIL(r, to < 0 || r->t->flush(r->eps[to]) == SHUNT_OK);
    world_barrier(r);
    free(source);
}

static void check_count(struct rank *r, int expected)
{
    const int count = outages_queue_pairs(r);

    CHECK(r, count == expected, "%d queue pairs, not %d", count, expected);
    CHECK(r, outages_counter(r, "queue pairs") == (uint64_t)expected,
          "the transport counts %d", (int)outages_counter(r, "queue pairs"));
    world_barrier(r);
}

/* Ranks 0 and 1 put to each other at the same time, rank 2 to 3, and later rank
 * 0 to 3. Checks the number of queue pairs, with two rails. */
static void first_puts(struct rank *r, const char *words, size_t bytes)
{
    static const int to[4] = {1, 0, 3, -1}, from[4] = {1, 0, -1, 2};
    struct window w;

    open_with(r, words);
    window_create(r, &w, BYTES + 64);
    check_count(r, 0);
    exchange(r, &w, to[r->rank], from[r->rank], bytes, 1);
    check_count(r, 2);
    exchange(r, &w, r->rank == 0 ? 3 : -1, r->rank == 3 ? 0 : -1, bytes, 2);
    check_count(r, r->rank == 0 || r->rank == 3 ? 4 : 2);
    window_destroy(r, &w);
    world_close(r);
}

void case_rdma_first_puts(struct rank *r)
{
    first_puts(r, "nasty,devices=2", 64);
    first_puts(r, "nasty,devices=2", BYTES);
    open_with(r, "nasty,devices=2"); /* without puts there is never a queue
                                      * pair */
    check_count(r, 0);
    world_close(r);
}

/* A first put wakes a sleeping peer, which then connects. */
void case_rdma_first_put_wakes(struct rank *r)
{
    struct window w;

    open_with(r, "rc");
    window_create(r, &w, BYTES + 64);
    if (r->rank == 0)
        world_signal(r, &w, 1, SIGNAL, 7, 0);
    else
        world_sleep_until(r, window_word(&w, SIGNAL), 7);
    world_barrier(r);
    window_destroy(r, &w);
    world_close(r);
}

/* Rank 1 dies after some steps of connecting; with more ranks, there are more
 * steps. The other ranks name it in their errors, and still put to each
 * other. */
void case_rdma_first_put_killed(struct rank *r)
{
    static const unsigned char source[64] = {5};
    enum shunt_status st;
    struct window w;

    open_with(r, "rc,devices=2");
    window_create(r, &w, BYTES + 64);
    world_barrier(r);
    if (r->rank == 1) {
        UNTIL(r, outages_queue_pairs(r) >= r->nranks - 2);
        for (int i = 0; i < r->nranks - 2; i++)
            r->t->progress(r->ctx);
        raise(SIGKILL);
    } else {
        const struct shunt_transport_put put = put_of(&w, 1, source, 64);

        do
            UNTIL(r, (st = r->t->put(r->eps[1], &put)) != SHUNT_IN_PROGRESS);
        while (st == SHUNT_OK);
        EXPECT(r, SHUNT_ERR_PEER, st);
        CHECK(r, strstr(r->t->error(r->ctx), "rank 1"), "%s",
              r->t->error(r->ctx));
        UNTIL(r, !r->t->alive(r->eps[1]));
        CHECK(r, !r->t->left(r->eps[1]), "it was killed");
    }
    for (int p = 0; p < r->nranks; p++)
        if (p != 1 && p != r->rank)
            world_signal(r, &w, p, SIGNAL + 8 * (size_t)r->rank, 9, 0);
    for (int p = 0; p < r->nranks; p++)
        if (p != 1 && p != r->rank)
            UNTIL(r, word_load(window_word(&w, SIGNAL + 8 * (size_t)p)) == 9);
    /* A rank that left meanwhile has received the put. */
    for (int p = 0; p < r->nranks; p++)
        if (p != 1 && p != r->rank)
            UNTIL(r, r->t->flush(r->eps[p]) != SHUNT_IN_PROGRESS);
    r->t->close(r->ctx);
    r->ctx = NULL;
    close(w.fd);
}

/* Rank 1 leaves while others connect: the other ranks see that it left, and do
 * not hang. */
void case_rdma_first_put_left(struct rank *r)
{
    static const unsigned char source[64] = {5};
    enum shunt_status st;
    struct window w;

    open_with(r, "rc");
    window_create(r, &w, BYTES + 64);
    world_barrier(r);
    if (r->rank == 1) {
        UNTIL(r, outages_queue_pairs(r) >= 1);
    } else {
        const struct shunt_transport_put put = put_of(&w, 1, source, 64);

        UNTIL(r, (st = r->t->put(r->eps[1], &put)) != SHUNT_IN_PROGRESS);
        CHECK(r, st == SHUNT_OK || st == SHUNT_ERR_PEER, "%d", (int)st);
        UNTIL(r, !r->t->alive(r->eps[1]));
        CHECK(r, r->t->left(r->eps[1]), "it has left");
    }
    r->t->close(r->ctx);
    r->ctx = NULL;
    close(w.fd);
}

/* The operations that fail, from the n-th time on or only the n-th time: calls
 * to libibverbs, or allocations. */
enum what { CALLS, MEMORY };

static void arm(struct rank *r, enum what what, int n)
{
    char word[32];

    if (what == CALLS) {
        snprintf(word, sizeof(word), "calls=%d", n);
        outages_do(r, 0, word);
    } else {
        memory_nth(n);
    }
}

/* Both ranks put while the n-th call or allocation fails on one of them. If a
 * put fails, it fails on both, with a reason. Returns false if there were fewer
 * than n calls or allocations. */
static bool fail_at(struct rank *r, enum what what, int n, int whose)
{
    static const unsigned char source[64] = {5};
    const bool ours = r->rank == whose;
    const int peer = !r->rank;
    enum shunt_status st = SHUNT_OK;
    struct window w;

    setenv("SHUNT_TEST_VERBS", "rc", 1);
    world_open(r);
    window_create(r, &w, BYTES + 64);
    world_barrier(r);
    const struct shunt_transport_put put = put_of(&w, peer, source, 64);

    arm(r, what, ours ? n : 0);
    UNTIL(r, (st = r->t->put(r->eps[peer], &put)) != SHUNT_IN_PROGRESS);
    if (ours)
        atomic_store(&r->board->flags[0],
                     what == CALLS ? st != SHUNT_OK : memory_failed());
    arm(r, what, 0);
    if (st) {
        const char *why = r->t->error(r->ctx);

        CHECK(r, strstr(why, "memory"), "%s", why);
        CHECK(r, ours || strstr(why, "broke there: "), "%s", why);
        UNTIL(r, !r->t->alive(r->eps[peer]));
        CHECK(r, !r->t->left(r->eps[peer]), "it has not left");
    } else {
        UNTIL(r, word_load(window_word(&w, SIGNAL)) == 5);
    }
    world_barrier(r);
    r->t->close(r->ctx);
    r->ctx = NULL;
    close(w.fd);
    world_barrier(r);
    return atomic_load(&r->board->flags[0]);
}

void case_rdma_first_put_fails(struct rank *r)
{
    /* Calls: a registration, receive requests, a queue pair and its three state
     * changes. Allocations: lines, targets, rails and their logs, and as many
     * by the stand-in. */
    static const int least[] = {6, 8};

    for (enum what what = CALLS; what <= LAST; what++) {
        for (int whose = 0; whose < 2; whose++) {
            int n = 0;

            while (fail_at(r, what, n + 1, whose))
                n++;
            CHECK(r, n >= least[what], "only %d can fail", n);
        }
    }
}

/* Memory and queue pairs that one peer costs besides its rings, with 1 to 4
 * rails. */
void case_rdma_first_put_costs(struct rank *r)
{
    static const char *const devices[] = {
        "mean0", "mean0,mean1", "mean0,mean1,mean2", "mean0,mean1,mean2,mean3"};
    const uint64_t most = (uint64_t)64 << 10;

    for (int rails = 1; rails <= 4; rails++) {
        struct window w;
        uint64_t bytes;

        setenv("SHUNT_RDMA_DEVICE", devices[rails - 1], 1);
        open_with(r, "nasty,devices=4");
        window_create(r, &w, BYTES + 64);
        for (unsigned char k = 1; k <= 4; k++)
            exchange(r, &w, !r->rank, !r->rank, BYTES, k);
        check_count(r, rails);
        bytes = outages_counter(r, "bytes of memory a peer");
        CHECK(r, bytes > 0 && bytes <= most, "%d rails: %llu bytes", rails,
              (unsigned long long)bytes);
        window_destroy(r, &w);
        world_close(r);
    }
}

/* A device whose queues have no room for all peers, connected or not, is
 * refused when the context is opened. A device with exactly enough room is
 * accepted. */
void case_rdma_queues_too_small(struct rank *r)
{
    struct shunt_transport_params params = {
        .host = &world_host, .options = "", .nranks = 8, .unreached = 3};
    struct shunt_transport_ctx *ctx = NULL;
    char why[1024] = "";

    setenv("SHUNT_TEST_VERBS", "devices=3,depth=224", 1);
    setenv("SHUNT_RDMA_DEVICE", "mean0", 1);
    EXPECT(r, SHUNT_ERR_UNSUPPORTED,
           r->t->open(&params, &ctx, why, sizeof(why)));
    CHECK(r,
          strstr(why, "mean0:1 has room for 224 completions, and 416 are "
                      "needed"),
          "%s", why);
    setenv("SHUNT_RDMA_DEVICE", "mean0,mean1,mean2", 1);
    EXPECT(r, SHUNT_OK, r->t->open(&params, &ctx, why, sizeof(why)));
    r->t->close(ctx);
}

/* Returns whether some rank has recreated the queue pair of the second rail and
 * then destroyed it. */
static bool was_tried(struct rank *r, bool *made)
{
    const int count = outages_queue_pairs(r);

    *made = *made || count == 2;
    if (*made && count == 1)
        atomic_store(&r->board->flags[0], 1);
    return atomic_load(&r->board->flags[0]) != 0;
}

/* The prefix of a subnet changes on one side, and later on the other. In
 * between, that rail is not connected, because its LIDs are of two subnets (the
 * stand-in would report such a connection). The other rail sends everything. */
static void change_subnet(struct rank *r)
{
    bool made = false;

    if (r->rank == 0)
        outages_do(r, 1, "subnet");
    UNTIL(r, outages_counter(r, "rails") == 1);
    UNTIL(r, outages_queue_pairs(r) == 1);
    UNTIL(r, was_tried(r, &made));
    CHECK(r, outages_counter(r, "rails") == 1, "there is a rail too many");
    world_all_signal(r);
    if (r->rank == 1)
        outages_do(r, 1, "subnet");
    UNTIL(r, outages_counter(r, "rails") == 2);
    world_all_signal(r);
}

/* Two InfiniBand ports in different subnets do not form a rail, whatever the
 * order of the devices. Ranks without ports in a common subnet cannot be
 * connected. probe() lists the ports in use. */
void case_rdma_subnets(struct rank *r)
{
    static const char *const both[] = {"mean0,mean1", "mean1,mean0"};
    static const char *const one[] = {"mean0", "mean1"};
    struct shunt_transport_estimate estimate;
    enum shunt_status st;
    char why[1024];

    setenv("SHUNT_RDMA_DEVICE", both[r->rank], 1);
    setenv("SHUNT_RDMA_SL", "3", 1);
    open_with(r, "ib,subnets,devices=2,sl=3");
    world_all_signal(r);
    CHECK(r, outages_counter(r, "rails") == 2, "there are not two rails");
    EXPECT(r, SHUNT_OK, r->t->probe(&world_host, &estimate, why, sizeof(why)));
    CHECK(r,
          strstr(why, "mean0, port 1, LID ") &&
              strstr(why, " in subnet fe80::") &&
              strstr(why, "mean1, port 1, LID ") &&
              strstr(why, " in subnet fe80:0:0:1::"),
          "%s", why);
    world_barrier(r);
    change_subnet(r);
    world_close(r);
    setenv("SHUNT_RDMA_DEVICE", one[r->rank], 1);
    world_open_and_tell(r);
    UNTIL(r, (st = world_connect_step(r, !r->rank)) != SHUNT_IN_PROGRESS);
    EXPECT(r, SHUNT_ERR_UNSUPPORTED, st);
    CHECK(r,
          strstr(r->t->error(r->ctx),
                 r->rank ? "other subnets of InfiniBand (fe80::) than ours "
                           "(fe80:0:0:1::)"
                         : "other subnets of InfiniBand (fe80:0:0:1::) than "
                           "ours (fe80::)"),
          "%s", r->t->error(r->ctx));
    world_barrier(r);
    r->t->close(r->ctx);
    r->ctx = NULL;
}

/* Ports in different networks may be unable to reach each other. So they are
 * connected immediately, and if that fails another transport can be used. */
void case_rdma_networks(struct rank *r)
{
    enum shunt_status st;

    open_with(r, r->rank ? "net=1" : "net=2");
    check_count(r, 1);
    world_all_signal(r);
    world_close(r);
    world_open_and_tell(r);
    outages_do(r, 0, "lossy");
    world_barrier(r);
    UNTIL(r, (st = world_connect_step(r, !r->rank)) != SHUNT_IN_PROGRESS);
    EXPECT(r, SHUNT_ERR_UNSUPPORTED, st);
    CHECK(r, strstr(r->t->error(r->ctx), "is not reached by RDMA"), "%s",
          r->t->error(r->ctx));
    world_barrier(r);
    r->t->close(r->ctx);
    r->ctx = NULL;
}
