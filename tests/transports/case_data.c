// SPDX-License-Identifier: Apache-2.0
/* Conformance: connecting, memory, put, get. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/transports/blocks.h"
#include "tests/transports/cases.h"

#define CHANNELS 8

void case_connect(struct rank *r)
{
    unsigned caps[MAX_RANKS] = {0};

    for (int p = 0; p < r->nranks; p++) {
        if (p == r->rank)
            continue;
        caps[p] = r->t->caps(r->eps[p]);
        CHECK(r, r->t->alive(r->eps[p]) && !r->t->left(r->eps[p]), "%d", p);
        EXPECT(r, SHUNT_OK, r->t->flush(r->eps[p]));
        /* An endpoint that is connected stays connected. */
        EXPECT(r, SHUNT_OK,
               r->t->connect(r->ctx, p, r->board->slot[p], r->board->len[p],
                             &r->eps[p]));
    }
    CHECK(r, r->t->wait_fd(r->ctx) >= 0, "no descriptor");
    world_put_slot(r, caps, sizeof(caps));
    for (int p = 0; p < r->nranks; p++) {
        unsigned theirs[MAX_RANKS];

        memcpy(theirs, r->board->slot[p], sizeof(theirs));
        CHECK(r, theirs[r->rank] == caps[p], "%#x here, %#x at rank %d",
              caps[p], theirs[r->rank], p);
    }
}

/* Every rank writes a block of every rank's memory, through the mapping. */
void case_map(struct rank *r)
{
    const size_t block = 5000;
    struct window w;

    window_create(r, &w, block * (size_t)r->nranks);
    for (int p = 0; p < r->nranks; p++) {
        if (w.map[p])
            block_fill(w.map[p] + (size_t)r->rank * block, r->rank + p, 0,
                       block);
    }
    world_barrier(r);
    for (int p = 0; p < r->nranks; p++) {
        if (!w.map[p])
            continue;
        for (size_t i = 0; i < block; i++) {
            CHECK(r,
                  w.addr[(size_t)p * block + i] == block_byte(r->rank + p, i),
                  "byte %zu of rank %d", i, p);
            CHECK(r,
                  w.map[p][(size_t)p * block + i] == w.map[p][0] ||
                      w.map[p][(size_t)r->rank * block + i] ==
                          block_byte(r->rank + p, i),
                  "what we wrote to rank %d", p);
        }
    }
    window_destroy(r, &w);
}

/* Check that a put wrote exactly `bytes` bytes at `offset` of a lane. They must
 * be the bytes of rank `from` from `first` on. */
static void check_put(struct rank *r, const unsigned char *lane,
                      size_t lane_bytes, size_t offset, size_t bytes, int from,
                      size_t first)
{
    const size_t end = offset + bytes;
    size_t at = block_empty(lane, offset);

    CHECK(r, at == offset, "size %zu: byte %zu of rank %d", bytes, at, from);
    at = offset + block_alike(lane + offset, from, first, bytes);
    CHECK(r, at == end, "size %zu: byte %zu of rank %d", bytes, at, from);
    at = end + block_empty(lane + end, lane_bytes - end);
    CHECK(r, at == lane_bytes, "size %zu: byte %zu of rank %d", bytes, at,
          from);
}

/* Puts of many sizes and offsets, which change no byte beside them. */
void case_put(struct rank *r)
{
    static const size_t sizes[] = {0, 1, 7, 8, 63, 4096, 100001, 1 << 20};
    const size_t lane = (1 << 20) + 64;
    const size_t signals = lane * (size_t)r->nranks;
    unsigned char *source = malloc(1 << 20);
    struct window w;

    CHECK(r, source, "no memory");
    window_create(r, &w, signals + 8 * (size_t)r->nranks);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        size_t offset = 3 + s % 5;

        memset(w.addr, BLOCK_NONE, signals);
        world_barrier(r);
        block_fill(source, r->rank, s, sizes[s]);
        for (int p = 0; p < r->nranks; p++) {
            struct shunt_transport_put put = {
                .local = source,
                .remote = w.remote[p],
                .offset = (size_t)r->rank * lane + offset,
                .bytes = sizes[s],
                .signal = w.remote[p],
                .signal_offset = signals + 8 * (size_t)r->rank,
                .signal_value = s + 1,
                .channel = (int)s % CHANNELS,
            };

            if (p != r->rank)
                world_put(r, p, &put);
        }
        for (int p = 0; p < r->nranks; p++) {
            if (p == r->rank)
                continue;
            UNTIL(r,
                  word_load(window_word(&w, signals + 8 * (size_t)p)) == s + 1);
            check_put(r, w.addr + (size_t)p * lane, lane, offset, sizes[s], p,
                      s);
        }
        /* After flush the source may be overwritten. */
        for (int p = 0; p < r->nranks; p++) {
            if (p != r->rank)
                UNTIL(r, r->t->flush(r->eps[p]) == SHUNT_OK);
        }
        world_barrier(r);
    }
    window_destroy(r, &w);
    free(source);
}

/* Puts whose size leaves a tail, with a gap between two of them. */
#define TAILED_PUTS ((size_t)400)
#define TAILED_GAP 9

static size_t head_bytes(size_t k)
{
    static const size_t bytes[] = {0, 1, 64, 3000};

    return bytes[k % 4];
}

static size_t tail_bytes(size_t k)
{
    static const size_t bytes[] = {0, 1, 4096, 61440, 90001};

    return bytes[k % 5];
}

static size_t tailed_bytes(void)
{
    size_t bytes = 0;

    for (size_t k = 0; k < TAILED_PUTS; k++)
        bytes += head_bytes(k) + tail_bytes(k) + TAILED_GAP;
    return (bytes + 7) & ~(size_t)7; /* signals follow, which must be aligned */
}

static void put_tailed(struct rank *r, struct window *w, int peer,
                       unsigned char *local, unsigned char *tail)
{
    const size_t lane = tailed_bytes(), ours = (size_t)r->rank * lane;
    const size_t signals = lane * (size_t)r->nranks;
    size_t at = 0;

    for (size_t k = 0; k < TAILED_PUTS; k++) {
        const size_t head = head_bytes(k), more = tail_bytes(k);
        const size_t first = k % 3 ? more / (k % 3) : 0;
        const struct shunt_transport_put put = {
            .local = local + at,
            .remote = w->remote[peer],
            .offset = ours + at,
            .bytes = head,
            .signal = w->remote[peer],
            .signal_offset = signals + 8 * (size_t)r->rank,
            .signal_value = k + 1,
            .tail = {{tail, first}, {tail + first, more - first}},
        };

        block_fill(local + at, r->rank, at, head);
        block_fill(tail, r->rank, at + head, more);
        world_put(r, peer, &put);
        memset(tail, 0x55, more);
        at += head + more + TAILED_GAP;
    }
}

static void check_tailed(struct rank *r, const unsigned char *got, int from)
{
    size_t at = 0;

    for (size_t k = 0; k < TAILED_PUTS; k++) {
        const size_t bytes = head_bytes(k) + tail_bytes(k);
        size_t good = block_alike(got + at, from, at, bytes);

        if (good == bytes)
            good += block_empty(got + at + bytes, TAILED_GAP);
        CHECK(r, good == bytes + TAILED_GAP, "put %zu: byte %zu of rank %d", k,
              good, from);
        at += bytes + TAILED_GAP;
    }
}

/* The caller overwrites the tail as soon as put() returns. There are more puts
 * than sockets have room for, while no peer makes progress. */
void case_tail(struct rank *r)
{
    const size_t lane = tailed_bytes(), signals = lane * (size_t)r->nranks;
    unsigned char *local = malloc(lane), *tail = malloc(100000);
    struct window w;

    CHECK(r, local && tail, "no memory");
    window_create(r, &w, signals + 8 * (size_t)r->nranks);
    memset(w.addr, BLOCK_NONE, signals);
    world_barrier(r);
    for (int p = 0; p < r->nranks; p++) {
        if (p == r->rank || !(r->t->caps(r->eps[p]) & SHUNT_TRANSPORT_TAIL))
            continue;
        put_tailed(r, &w, p, local, tail);
        UNTIL(r, r->t->flush(r->eps[p]) == SHUNT_OK);
    }
    for (int p = 0; p < r->nranks; p++) {
        if (p == r->rank || !(r->t->caps(r->eps[p]) & SHUNT_TRANSPORT_TAIL))
            continue;
        UNTIL(r, word_load(window_word(&w, signals + 8 * (size_t)p)) ==
                     TAILED_PUTS);
        check_tailed(r, w.addr + (size_t)p * lane, p);
    }
    world_barrier(r);
    window_destroy(r, &w);
    free(local);
    free(tail);
}

/*
 * The payload arrives before the signal. On every channel to every peer, one
 * message at a time is in progress. A rank that sees the signal must see the
 * whole payload.
 */
struct stress {
    size_t payload;  /* bytes of a slot */
    size_t payloads; /* offsets in the window */
    size_t signals;
    size_t acks;
};

static size_t lane_of(int peer, int channel)
{
    return (size_t)peer * CHANNELS + (size_t)channel;
}

static void stress_send(struct rank *r, struct window *w,
                        const struct stress *s, int peer, int channel,
                        uint64_t sequence, uint64_t *source)
{
    size_t lane = lane_of(r->rank, channel);
    size_t words = 1 + (size_t)(world_random(r) % (s->payload / 8));
    struct shunt_transport_put put = {
        .local = source,
        .remote = w->remote[peer],
        .offset = s->payloads + lane * s->payload,
        .bytes = words * 8,
        .signal = w->remote[peer],
        .signal_offset = s->signals + lane * 8,
        .signal_value = sequence << 16 | words,
        .channel = channel,
    };

    for (size_t i = 0; i < words; i++)
        source[i] = sequence * 0x10001 + i;
    world_put(r, peer, &put);
}

static void stress_receive(struct rank *r, struct window *w,
                           const struct stress *s, int peer, int channel,
                           uint64_t *seen)
{
    size_t lane = lane_of(peer, channel);
    uint64_t signal = word_load(window_word(w, s->signals + lane * 8));
    uint64_t sequence = signal >> 16, words = signal & 0xffff;
    const uint64_t *payload = window_word(w, s->payloads + lane * s->payload);

    if (sequence == *seen)
        return;
    CHECK(r, sequence == *seen + 1, "signal %llu after %llu",
          (unsigned long long)sequence, (unsigned long long)*seen);
    *seen = sequence;
    for (uint64_t i = 0; i < words; i++)
        CHECK(r, payload[i] == sequence * 0x10001 + i,
              "message %llu of rank %d, channel %d: word %llu is not there",
              (unsigned long long)sequence, peer, channel,
              (unsigned long long)i);
    world_signal(r, w, peer, s->acks + lane_of(r->rank, channel) * 8, sequence,
                 channel);
}

void case_stress(struct rank *r)
{
    const int n = r->nranks;
    const size_t lanes = (size_t)n * CHANNELS;
    const struct stress s = {
        .payload = 512,
        .payloads = 0,
        .signals = 512 * lanes,
        .acks = 520 * lanes,
    };
    const uint64_t rounds = 3000 / (uint64_t)(n * n);
    uint64_t *sources = calloc(lanes, s.payload);
    uint64_t *sent = calloc(lanes, 8), *seen = calloc(lanes, 8);
    double deadline = world_now() + world_patience;
    size_t open = (size_t)(n - 1) * CHANNELS * 2;
    struct window w;

    CHECK(r, sources && sent && seen, "no memory");
    window_create(r, &w, 528 * lanes);
    while (open > 0) {
        open = 0;
        for (int p = 0; p < n; p++) {
            for (int c = 0; c < CHANNELS; c++) {
                size_t lane = lane_of(p, c);
                uint64_t acked;

                if (p == r->rank)
                    continue;
                acked = word_load(window_word(&w, s.acks + lane * 8));
                /* The peer sends the ack after it has read the payload, so the
                 * source is free. */
                if (acked == sent[lane] && sent[lane] < rounds)
                    stress_send(r, &w, &s, p, c, ++sent[lane],
                                sources + lane * s.payload / 8);
                stress_receive(r, &w, &s, p, c, &seen[lane]);
                open += acked < rounds;
                open += seen[lane] < rounds;
            }
        }
        if (world_now() > deadline)
            FAIL(r, "%zu lanes are not through", open);
        world_relax(r);
    }
    world_barrier(r);
    window_destroy(r, &w);
    free(sources);
    free(sent);
    free(seen);
}

/* Many puts in progress on one channel: a signal covers all puts before it. */
void case_order(struct rank *r)
{
    enum { N = 2000 };
    const int to = (r->rank + 1) % r->nranks;
    const int from = (r->rank + r->nranks - 1) % r->nranks;
    uint64_t *source = malloc(N * sizeof(*source));
    uint64_t known = 0;
    double deadline = world_now() + world_patience;
    struct window w;
    int sent = 0;

    CHECK(r, source, "no memory");
    window_create(r, &w, (N + 1) * 8);
    while (sent < N || known < N) {
        if (sent < N) {
            struct shunt_transport_put put = {
                .local = &source[sent],
                .remote = w.remote[to],
                .offset = 8 + 8 * (size_t)sent,
                .bytes = 8,
                /* Every third put has a signal, which covers the puts before
                 * it, too. */
                .signal = sent % 3 == 2 || sent == N - 1 ? w.remote[to] : NULL,
                .signal_offset = 0,
                .signal_value = (uint64_t)sent + 1,
                .channel = 5,
            };

            source[sent] = (uint64_t)sent * 3 + 1;
            world_put(r, to, &put);
            sent++;
        }
        uint64_t signal = word_load(window_word(&w, 0));

        CHECK(r, signal >= known, "the signal went back from %llu to %llu",
              (unsigned long long)known, (unsigned long long)signal);
        for (; known < signal; known++)
            CHECK(r, *window_word(&w, 8 + 8 * known) == known * 3 + 1,
                  "put %llu of rank %d came after the signal of %llu",
                  (unsigned long long)known, from, (unsigned long long)signal);
        if (world_now() > deadline)
            FAIL(r, "stuck at %d sent, %llu known", sent,
                 (unsigned long long)known);
        world_relax(r);
    }
    world_barrier(r);
    window_destroy(r, &w);
    free(source);
}

/* After flush all payload has arrived, with or without signals. */
void case_flush(struct rank *r)
{
    enum { N = 100 };
    const size_t lane = 1024 * N;
    unsigned char *source = malloc(lane);
    struct window w;

    CHECK(r, source, "no memory");
    block_fill(source, r->rank, 0, lane);
    window_create(r, &w, lane * (size_t)r->nranks);
    for (int k = 0; k < N; k++) {
        for (int p = 0; p < r->nranks; p++) {
            struct shunt_transport_put put = {
                .local = source + 1024 * (size_t)k,
                .remote = w.remote[p],
                .offset = lane * (size_t)r->rank + 1024 * (size_t)k,
                .bytes = 1024,
                .channel = k % CHANNELS,
            };

            if (p != r->rank)
                world_put(r, p, &put);
        }
    }
    for (int p = 0; p < r->nranks; p++) {
        if (p != r->rank)
            UNTIL(r, r->t->flush(r->eps[p]) == SHUNT_OK);
    }
    memset(source, 0, lane); /* after flush() the source may be overwritten */
    world_barrier(r);
    for (int p = 0; p < r->nranks; p++) {
        size_t good = lane;

        if (p != r->rank)
            good = block_alike(w.addr + lane * (size_t)p, p, 0, lane);
        CHECK(r, good == lane, "byte %zu of rank %d after its flush", good, p);
    }
    world_barrier(r);
    window_destroy(r, &w);
    free(source);
}

/* Get `bytes` bytes at `at` of rank p's memory, and check them. The byte behind
 * the destination must not change. */
static void get_checked(struct rank *r, int p, uint64_t address, size_t bytes,
                        size_t at, unsigned char *to)
{
    size_t good;

    memset(to, BLOCK_NONE, bytes + 1);
    EXPECT(r, SHUNT_OK, world_get(r, p, address, to, bytes));
    good = block_alike(to, p, at, bytes);
    CHECK(r, good == bytes, "byte %zu of %zu of rank %d", good, bytes, p);
    CHECK(r, to[bytes] == BLOCK_NONE, "wrote past the end");
}

void case_get(struct rank *r)
{
    static const size_t sizes[] = {0, 1, 3, 8, 4095, 4097, 1000003, 32 << 20};
    const size_t bytes = (32 << 20) + 4096;
    unsigned char *mine = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *to = malloc(bytes + 1);
    uint64_t address = (uint64_t)(uintptr_t)mine;

    CHECK(r, mine != MAP_FAILED && to, "no memory");
    munmap(mine + bytes, 4096);
    block_fill(mine, r->rank, 0, bytes);
    world_put_slot(r, &address, sizeof(address));
    for (int p = 0; p < r->nranks; p++) {
        struct shunt_transport_ep *ep = r->eps[p];

        if (p == r->rank)
            continue;
        memcpy(&address, r->board->slot[p], sizeof(address));
        if (!(r->t->caps(ep) & SHUNT_TRANSPORT_GET)) {
            EXPECT(r, SHUNT_ERR_UNSUPPORTED, world_get(r, p, address, to, 8));
            continue;
        }
        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
            get_checked(r, p, address + 13 * s, sizes[s], 13 * s, to);
        EXPECT(r, SHUNT_OK, world_get(r, p, 0, NULL, 0));
        if (r->threads)
            continue; /* with threads, a bad pointer is a crash */
        EXPECT(r, SHUNT_ERR_INVALID, world_get(r, p, 16, to, 8));
        EXPECT(r, SHUNT_ERR_INVALID,
               world_get(r, p, address + bytes - 5000, to, 6000));
        EXPECT(r, SHUNT_ERR_INVALID, world_get(r, p, (uint64_t)1 << 63, to, 1));
        get_checked(r, p, address, 100, 0, to); /* after the errors, get still
                                                 * works */
    }
    world_barrier(r);
    munmap(mine, bytes);
    free(to);
}

/* A window of more than 4 GiB, of which few pages are ever touched. */
void case_large(struct rank *r)
{
    const size_t bytes = ((size_t)5 << 30) + 4096;
    struct window w;

    window_create(r, &w, bytes);
    for (int p = 0; p < r->nranks; p++) {
        uint64_t value = (uint64_t)r->rank + 1;
        struct shunt_transport_put put = {
            .local = &value,
            .remote = w.remote[p],
            .offset = bytes - 8 * (size_t)(r->rank + 1),
            .bytes = 8,
        };

        if (p == r->rank)
            continue;
        world_put(r, p, &put);
        UNTIL(r, r->t->flush(r->eps[p]) == SHUNT_OK);
    }
    world_barrier(r);
    for (int p = 0; p < r->nranks; p++) {
        if (p == r->rank)
            continue;
        CHECK(r,
              *window_word(&w, bytes - 8 * (size_t)(p + 1)) == (uint64_t)p + 1,
              "rank %d", p);
        if (w.map[p])
            CHECK(r,
                  *(uint64_t *)(void *)(w.map[p] + bytes -
                                        8 * (size_t)(r->rank + 1)) ==
                      (uint64_t)r->rank + 1,
                  "rank %d", p);
    }
    world_barrier(r);
    window_destroy(r, &w);
}

void case_many_registrations(struct rank *r)
{
    enum { CYCLES = 100, AT_ONCE = 8 };
    static atomic_int done[MAX_RANKS];
    int before, after;

    atomic_store(&done[r->rank], 0);
    before = world_count_fds_still(r);
    for (int k = 0; k < CYCLES / AT_ONCE; k++) {
        struct window w[AT_ONCE];

        for (int i = 0; i < AT_ONCE; i++) {
            window_create_counted(r, &w[i], 4096 + (size_t)i * 1000,
                                  &done[r->rank]);
            w[i].addr[i] = (unsigned char)k;
        }
        for (int i = 0; i < AT_ONCE; i++)
            window_destroy(r, &w[(i + k) % AT_ONCE]);
    }
    after = world_count_fds_still(r);
    CHECK(r, atomic_load(&done[r->rank]) == CYCLES / AT_ONCE * AT_ONCE,
          "memory was given back %d times", atomic_load(&done[r->rank]));
    CHECK(r, after == before, "%d descriptors before, %d after", before, after);
}

/* Memory that is registered, but that no peer imports. The peers make no
 * progress meanwhile. */
void case_unimported(struct rank *r)
{
    enum { N = 300 };
    struct shunt_transport_reg *regs[N];
    size_t bytes = 8192;
    int before = world_count_fds_still(r);
    void *addr;
    int fd;

    fd = world_memfd(r, bytes);
    addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(r, addr != MAP_FAILED, "no memory");
    for (int i = 0; i < N; i++) {
        struct shunt_transport_memory memory = {
            .addr = addr, .bytes = bytes, .fd = fd};
        unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
        size_t len = sizeof(key);

        EXPECT(r, SHUNT_OK, r->t->reg(r->ctx, &memory, key, &len, &regs[i]));
    }
    for (int i = 0; i < N; i++)
        r->t->dereg(r->ctx, regs[i]);
    close(fd);
    munmap(addr, bytes);
    UNTIL(r, r->threads || world_count_fds() == before);
    world_barrier(r);
}

/* Each rank raises its word in all others' windows. */
static void raise_all(struct rank *r, struct window *w, uint64_t value)
{
    for (int p = 0; p < r->nranks; p++)
        if (p != r->rank)
            world_signal(r, w, p, 8 * (size_t)r->rank, value, 0);
}

/* Wait until every other rank has raised its word to at least `value`. */
static void await_all(struct rank *r, struct window *w, uint64_t value)
{
    for (int p = 0; p < r->nranks; p++)
        UNTIL(r, p == r->rank ||
                     word_load(window_word(w, 8 * (size_t)p)) >= value);
}

/* Two independent communicators of the same ranks. */
void case_two_worlds(struct rank *r)
{
    const size_t bytes = 8 * (size_t)r->nranks;
    struct rank other = *r;
    struct window w, v;

    window_create(r, &w, bytes);
    raise_all(r, &w, 1);
    await_all(r, &w, 1);
    world_barrier(r);
    other.secret[0] ^= 0x55;
    world_open(&other);
    window_create(&other, &v, bytes);
    raise_all(r, &w, 2);
    raise_all(&other, &v, 1);
    await_all(&other, &v, 1);
    world_barrier(&other);
    window_destroy(&other, &v);
    world_close_uncounted(&other);
    await_all(r, &w, 2);
    /* Two ranks of the first world may have connected to each other at the same
     * time. They may decide as late as this which connection to keep. */
    UNTIL(r, r->threads || world_count_fds() <= other.fds);
    for (int p = 0; p < r->nranks; p++)
        CHECK(r, p == r->rank || r->t->alive(r->eps[p]),
              "rank %d was lost with the other", p);
    raise_all(r, &w, 3);
    await_all(r, &w, 3);
    world_barrier(r);
    window_destroy(r, &w);
}

/* Memory that is not the host's is refused: no transport supports these kinds
 * yet. */
static void expect_kinds_refused(struct rank *r)
{
    static const enum shunt_transport_memory_kind kinds[] = {
        SHUNT_TRANSPORT_DEVICE_MEMORY,
        SHUNT_TRANSPORT_DMABUF,
    };
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const struct shunt_transport_memory memory = {
            .kind = kinds[i], .bytes = 4096, .fd = -1};
        struct shunt_transport_reg *reg = NULL;
        size_t len = sizeof(key);

        EXPECT(r, SHUNT_ERR_UNSUPPORTED,
               r->t->reg(r->ctx, &memory, key, &len, &reg));
        CHECK(r, strlen(r->t->error(r->ctx)) > 10, "no text");
    }
}

void case_errors(struct rank *r)
{
    struct shunt_transport_remote *none = NULL;
    struct shunt_transport_ep *ep = NULL;
    unsigned char junk[SHUNT_TRANSPORT_ADDRESS_MAX] = {1, 2, 3};
    const int p = (r->rank + 1) % r->nranks;
    struct window w;
    size_t len = 3;

    EXPECT(r, SHUNT_ERR_OVERFLOW, r->t->address(r->ctx, junk, &len));
    EXPECT(r, SHUNT_ERR_INVALID, r->t->connect(r->ctx, p, junk, 3, &ep));
    CHECK(r, strlen(r->t->error(r->ctx)) > 10, "no text");
    EXPECT(r, SHUNT_ERR_INVALID, r->t->import(r->eps[p], junk, 24, &none));
    EXPECT(r, SHUNT_ERR_INVALID, r->t->import(r->eps[p], junk, 1, &none));
    expect_kinds_refused(r);
    window_create(r, &w, 4096);
    memset(w.addr, 7, 4096);
    world_barrier(r);
    struct shunt_transport_put bad[] = {
        {.local = junk, .remote = w.remote[p], .offset = 4090, .bytes = 8},
        {.local = junk, .remote = w.remote[p], .offset = 5000, .bytes = 1},
        {.local = junk,
         .remote = w.remote[p],
         .offset = 8,
         .bytes = SIZE_MAX - 4},
        {.signal = w.remote[p], .signal_offset = 4},
        {.signal = w.remote[p], .signal_offset = 4096},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        enum shunt_status st = r->t->put(r->eps[p], &bad[i]);

        if (st == SHUNT_OK) /* flush() reports the error later */
            UNTIL(r, (st = r->t->flush(r->eps[p])) != SHUNT_IN_PROGRESS);
        EXPECT(r, SHUNT_ERR_INVALID, st);
    }
    world_barrier(r);
    for (size_t i = 0; i < 4096; i++)
        CHECK(r, w.addr[i] == 7, "byte %zu was written", i);
    window_destroy(r, &w);
}

static uint64_t counter(const struct rank *r, const char *name)
{
    struct shunt_transport_counter all[20];
    size_t count = r->t->counters(r->ctx, all, 20);

    CHECK(r, count <= 20, "%zu counters", count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(all[i].name, name))
            return all[i].value;
    return 0;
}

/* A transport's counters agree with the calls that it received. */
void case_counters(struct rank *r)
{
    static unsigned char data[1000];
    const int p = (r->rank + 1) % r->nranks;
    struct shunt_transport_put put = {.local = data, .bytes = sizeof(data)};
    uint64_t messages, bytes;
    struct window w;

    if (!r->t->counters(r->ctx, NULL, 0))
        return;
    window_create(r, &w, 4096);
    world_barrier(r);
    messages = counter(r, "messages");
    bytes = counter(r, "bytes");
    put.remote = w.remote[p];
    for (int i = 0; i < 3; i++) {
        enum shunt_status st;

        UNTIL(r, (st = r->t->put(r->eps[p], &put)) != SHUNT_IN_PROGRESS);
        EXPECT(r, SHUNT_OK, st);
    }
    UNTIL(r, r->t->flush(r->eps[p]) == SHUNT_OK);
    CHECK(r, counter(r, "messages") == messages + 3, "%llu messages",
          (unsigned long long)(counter(r, "messages") - messages));
    CHECK(r, counter(r, "bytes") == bytes + 3 * sizeof(data), "%llu bytes",
          (unsigned long long)(counter(r, "bytes") - bytes));
    world_barrier(r);
    window_destroy(r, &w);
}
