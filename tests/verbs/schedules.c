// SPDX-License-Identifier: Apache-2.0
/*
 * Random schedules of puts and signals between two ranks, in both directions:
 *
 *     schedules [--messages N] [--seed S] [--outages N] [TRANSPORT]
 *
 * A message is a put of random size with a signal, on one of 8 channels. Or it
 * is two puts to the same bytes, of which the second has the signal and the
 * right content. Up to DEPTH messages of a channel are under way. Each rank
 * calls progress() at random moments, sends in bursts, and sometimes does
 * nothing for a while. Every signal must arrive once, in order, and not before
 * all of its payload.
 *
 * --outages: rails fail N times meanwhile (outages.h). The ranks put until all
 * outages have happened, however many messages that takes. Without it, several
 * rails must carry about equally many bytes.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/transports/world.h"
#include "tests/verbs/outages.h"

#define CHANNELS 8
#define DEPTH 4
#define LARGEST ((size_t)600 << 10)

static uint64_t messages = 4000, first_seed = 1;
static int outages;

/* Everything about message `k` of a channel follows from its number. */
struct message {
    size_t bytes;
    uint64_t contents;
    bool twice;
};

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static struct message message_of(int from, int channel, uint64_t k)
{
    const uint64_t random =
        mix(first_seed * 1000003 + k * 64 + (uint64_t)(channel * 2 + from));
    const unsigned kind = random % 100;
    const size_t most = kind < 70   ? 256
                        : kind < 90 ? 9000
                        : kind < 98 ? 20000
                                    : LARGEST;

    return (struct message){
        .bytes = (size_t)(mix(random) % most) / 8 * 8,
        .contents = random | 1,
        .twice = mix(random + 1) % 8 == 0,
    };
}

static void fill(unsigned char *to, const struct message *m, uint64_t contents)
{
    for (size_t i = 0; i < m->bytes; i += 8) {
        const uint64_t word = contents + i;

        memcpy(to + i, &word, 8);
    }
}

/* The messages between this rank and the other one. */
struct way {
    struct window w;
    unsigned char *source; /* the source of puts; behind it, wrong content */
    struct shunt_transport_reg *source_reg; /* registration of the source, used
                                             * by half of the channels */
    uint64_t sent[CHANNELS], seen[CHANNELS];
    uint64_t done; /* messages sent, of all channels */
    bool stop;
};

static size_t place(int channel, uint64_t k)
{
    return ((size_t)channel * DEPTH + (size_t)(k % DEPTH)) * LARGEST;
}

#define PLACES ((size_t)CHANNELS * DEPTH * LARGEST)

static size_t signal_at(int channel)
{
    return PLACES + (size_t)channel * 8;
}

static size_t ack_at(int channel)
{
    return PLACES + (size_t)(CHANNELS + channel) * 8;
}

static void send_one(struct rank *r, struct way *way, int channel)
{
    const uint64_t k = way->sent[channel] + 1;
    const struct message m = message_of(r->rank, channel, k);
    const int peer = 1 - r->rank;
    struct shunt_transport_put put = {
        .local = way->source + place(channel, k),
        .reg = channel % 2 ? way->source_reg : NULL,
        .remote = way->w.remote[peer],
        .offset = place(channel, k),
        .bytes = m.bytes,
        .channel = channel,
    };

    if (m.twice && m.bytes) {
        struct shunt_transport_put wrong = put;

        wrong.local = way->source + PLACES + place(channel, k);
        fill(way->source + PLACES + place(channel, k), &m, ~m.contents);
        world_put(r, peer, &wrong);
    }
    fill(way->source + place(channel, k), &m, m.contents);
    put.signal = way->w.remote[peer];
    put.signal_offset = signal_at(channel);
    put.signal_value = k;
    world_put(r, peer, &put);
    way->sent[channel] = k;
    way->done++;
}

static void check(struct rank *r, struct way *way, int channel, uint64_t k)
{
    const struct message m = message_of(1 - r->rank, channel, k);
    const unsigned char *at = way->w.addr + place(channel, k);

    for (size_t i = 0; i < m.bytes; i += 8) {
        uint64_t word;

        memcpy(&word, at + i, 8);
        CHECK(r, word == m.contents + i,
              "channel %d, message %llu of %zu bytes: its signal is here, and "
              "byte %zu is not",
              channel, (unsigned long long)k, m.bytes, i);
    }
}

static void receive(struct rank *r, struct way *way)
{
    for (int c = 0; c < CHANNELS; c++) {
        const uint64_t now = word_load(window_word(&way->w, signal_at(c)));
        const uint64_t before = way->seen[c];

        CHECK(r, now >= before && now - before <= DEPTH,
              "channel %d: signal %llu after %llu", c, (unsigned long long)now,
              (unsigned long long)before);
        while (way->seen[c] < now)
            check(r, way, c, ++way->seen[c]);
        if (now > before)
            world_signal(r, &way->w, 1 - r->rank, ack_at(c), now, c);
    }
}

static uint64_t total(const uint64_t *all)
{
    uint64_t sum = 0;

    for (int c = 0; c < CHANNELS; c++)
        sum += all[c];
    return sum;
}

/* Check that each device has carried about the same number of bytes. */
static void check_balance(struct rank *r)
{
    struct shunt_transport_counter all[20];
    const size_t count = r->t->counters(r->ctx, all, 20);
    uint64_t least = UINT64_MAX, most = 0;

    for (size_t i = 0; i < count && i < 20; i++) {
        if (strncmp(all[i].name, "bytes by ", 9) != 0)
            continue;
        least = all[i].value < least ? all[i].value : least;
        most = all[i].value > most ? all[i].value : most;
    }
    CHECK(r, most == 0 || (double)least >= 0.9 * (double)most,
          "a device carried %llu bytes, another %llu",
          (unsigned long long)least, (unsigned long long)most);
}

/* Check that puts used every path that exists. */
static void check_paths(struct rank *r, const struct way *way)
{
    const uint64_t direct = outages_counter(r, "direct");
    const uint64_t behind = outages_counter(r, "immediates behind");
    const char *immediate = getenv("SHUNT_RDMA_IMMEDIATE");

    /* One message in 12 is large enough for an immediate behind its payload. */
    CHECK(r,
          immediate && !strcmp(immediate, "behind") ? behind > way->done / 24
                                                    : behind == 0,
          "%llu immediates of %llu messages went behind their payload",
          (unsigned long long)behind, (unsigned long long)way->done);
    /* On a busy machine puts may have to wait, and puts that waited are not
     * direct. */
    CHECK(r, direct > way->done / 16 && direct < way->done,
          "%llu puts of %llu messages were direct", (unsigned long long)direct,
          (unsigned long long)way->done);
    check_balance(r);
}

/* Returns whether this rank has sent all its messages and received all of the
 * other rank's. With outages, each rank publishes at the end how many messages
 * it has sent. */
static bool is_over(struct rank *r, struct way *way, struct outages *o)
{
    atomic_int *sent = r->board->flags + 4;
    int theirs;

    if (!outages)
        return way->done >= messages && total(way->seen) >= messages;
    if (!way->stop && outages_step(r, o)) {
        way->stop = true;
        atomic_store(&sent[r->rank], (int)way->done + 1);
    }
    outages_step(r, o);
    theirs = atomic_load(&sent[1 - r->rank]);
    return way->stop && theirs && total(way->seen) + 1 >= (uint64_t)theirs;
}

static void run(struct rank *r)
{
    struct outages o = {.wanted = outages};
    struct way *way = calloc(1, sizeof(*way));
    double deadline = world_now() + world_patience;
    struct shunt_transport_memory memory = {.bytes = 2 * PLACES, .fd = -1};
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
    size_t len = sizeof(key);

    CHECK(r, way, "no memory");
    way->source = calloc(2, PLACES);
    CHECK(r, way->source, "no memory");
    memory.addr = way->source;
    EXPECT(r, SHUNT_OK,
           r->t->reg(r->ctx, &memory, key, &len, &way->source_reg));
    window_create(r, &way->w, PLACES + 16 * CHANNELS);
    if (outages)
        world_all_signal(r); /* connects all rails */
    r->random += first_seed;
    while (!is_over(r, way, &o)) {
        const uint64_t before = way->done + total(way->seen);

        for (uint64_t i = world_random(r) % 12; i > 0; i--) {
            const int c = (int)(world_random(r) % CHANNELS);
            const uint64_t acked = word_load(window_word(&way->w, ack_at(c)));

            if ((outages ? !way->stop : way->done < messages) &&
                way->sent[c] - acked < DEPTH)
                send_one(r, way, c);
        }
        for (uint64_t i = world_random(r) % 3; i > 0; i--)
            r->t->progress(r->ctx);
        if (world_random(r) % 256 == 0)
            usleep((useconds_t)(world_random(r) % 500));
        receive(r, way);
        if (way->done + total(way->seen) > before)
            deadline = world_now() + world_patience;
        else
            sched_yield();
        if (world_now() > deadline)
            FAIL(r, "lost: %llu of %llu signals have come",
                 (unsigned long long)total(way->seen),
                 (unsigned long long)messages);
    }
    UNTIL(r, r->t->flush(r->eps[1 - r->rank]) == SHUNT_OK);
    world_barrier(r);
    for (int c = 0; c < CHANNELS; c++)
        CHECK(r, word_load(window_word(&way->w, signal_at(c))) == way->seen[c],
              "channel %d: one more signal", c);
    if (outages)
        fprintf(stderr,
                "# rank %d: %llu messages; %llu rails lost, %llu back, at the "
                "latest after %.2f s; %llu requests sent again\n",
                r->rank, (unsigned long long)way->done,
                (unsigned long long)outages_counter(r, "rails lost"),
                (unsigned long long)outages_counter(r, "rails back"), o.longest,
                (unsigned long long)outages_counter(r, "sent again"));
    else if (strcmp(r->t->name, "rdma") == 0)
        check_paths(r, way);
    r->t->dereg(r->ctx, way->source_reg);
    window_destroy(r, &way->w);
    free(way->source);
    free(way);
}

int main(int argc, char **argv)
{
    const struct test_case c = {.name = "schedules", .run = run};
    const char *name = "rdma";
    bool ok;

    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--messages") && i + 1 < argc)
            messages = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
            first_seed = strtoull(argv[++i], NULL, 10);
        else if (!strcmp(argv[i], "--outages") && i + 1 < argc)
            outages = atoi(argv[++i]);
        else
            name = argv[i];
    }
    world_patience = 10 + (double)messages / 1000 + outages / 20;
    const struct shunt_transport *t = world_find(name);

    if (!t) {
        printf("Bail out! no transport %s\n", name);
        return 1;
    }
    ok = world_run(&c, t, "", 2, false);
    printf("%sok 1 - %s: ", ok ? "" : "not ", name);
    if (outages)
        printf("%d outages", outages);
    else
        printf("%llu messages each way", (unsigned long long)messages);
    printf(", seed %llu\n1..1\n", (unsigned long long)first_seed);
    return !ok;
}
