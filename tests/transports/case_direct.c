// SPDX-License-Identifier: Apache-2.0
/*
 * Conformance: direct puts of rdma, which are one request without a record.
 * Tests which puts are direct, and that they have the same effect as others.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/transports/cases.h"
#include "tests/verbs/outages.h"

#define LARGE ((size_t)256 << 10)
#define PLACE 24 /* offset of the payload */
#define ROUNDS 6

struct bench {
    struct window w; /* a place for the payload, and a signal word behind it */
    unsigned char *source;
    struct shunt_transport_reg *reg; /* registration of the source */
    uint64_t signal;                 /* value of the last signal */
    uint64_t round;
};

static size_t signal_at(void)
{
    return PLACE + LARGE;
}

static unsigned char contents(uint64_t round, size_t i)
{
    return (unsigned char)(round * 37 + i % 251);
}

static void fill(struct bench *b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        b->source[i] = contents(b->round, i);
}

static void put(struct rank *r, struct bench *b, size_t bytes, uint64_t step)
{
    world_put(r, 1,
              &(struct shunt_transport_put){
                  .local = b->source,
                  .reg = b->reg,
                  .remote = b->w.remote[1],
                  .offset = PLACE,
                  .bytes = bytes,
                  .signal = b->w.remote[1],
                  .signal_offset = signal_at(),
                  .signal_value = b->signal + step,
              });
}

/* Rank 1 waits for the put, checks it and signals back. Rank 0 waits for that
 * signal. */
static void meet(struct rank *r, struct bench *b, size_t bytes, uint64_t step)
{
    b->signal += step;
    if (r->rank == 1) {
        UNTIL(r, word_load(window_word(&b->w, signal_at())) == b->signal);
        for (size_t i = 0; i < bytes; i++)
            CHECK(r, b->w.addr[PLACE + i] == contents(b->round, i),
                  "round %d, %zu bytes: byte %zu", (int)b->round, bytes, i);
        world_signal(r, &b->w, 0, signal_at(), b->signal, 0);
    } else {
        UNTIL(r, word_load(window_word(&b->w, signal_at())) == b->signal);
    }
    b->round++;
}

static void put_and_meet(struct rank *r, struct bench *b, size_t bytes,
                         uint64_t step)
{
    if (r->rank == 0) {
        fill(b, bytes);
        put(r, b, bytes, step);
    }
    meet(r, b, bytes, step);
}

/* Check that `direct` of `all` puts were direct, and that each put was one work
 * request. Checks nothing with two rails: each rail reports only what arrived
 * over itself, so the numbers depend on chance. */
static void expect(struct rank *r, const uint64_t before[2], uint64_t direct,
                   uint64_t all)
{
    const uint64_t now[2] = {outages_counter(r, "direct") - before[0],
                             outages_counter(r, "work requests") - before[1]};

    if (r->rank == 0 && outages_counter(r, "rails") == 1)
        CHECK(r, now[0] == direct && now[1] == all,
              "%d puts were direct, and %d requests were posted, not %d and %d",
              (int)now[0], (int)now[1], (int)direct, (int)all);
}

static void count(struct rank *r, uint64_t counted[2])
{
    counted[0] = outages_counter(r, "direct");
    counted[1] = outages_counter(r, "work requests");
}

static void register_source(struct rank *r, struct bench *b)
{
    const struct shunt_transport_memory memory = {
        .addr = b->source, .bytes = LARGE, .fd = -1};
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
    size_t len = sizeof(key);

    EXPECT(r, SHUNT_OK, r->t->reg(r->ctx, &memory, key, &len, &b->reg));
}

/* Puts of any size up to a fragment are direct once the signal grows by the
 * same amount as before. */
static void put_all_sizes(struct rank *r, struct bench *b)
{
    static const size_t sizes[] = {0, 8, 65, 4096, 8192, 65536, LARGE};
    uint64_t before[2];

    put_and_meet(r, b, 8, 1);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        count(r, before);
        for (int i = 0; i < ROUNDS; i++)
            put_and_meet(r, b, sizes[s], 1);
        expect(r, before, ROUNDS, ROUNDS);
    }
    count(r, before);
    put_and_meet(r, b, 4096, 1000);
    put_and_meet(r, b, 4096, 1);
    expect(r, before, 0, 2);
    put_and_meet(r, b, 4096, 1);
    put_and_meet(r, b, 4096, 1);
    expect(r, before, 2, 4);
}

/* Puts are not direct if another put may still write to the same bytes, or if a
 * NIC cannot read their source. */
static void put_what_cannot_be(struct rank *r, struct bench *b)
{
    struct shunt_transport_reg *const reg = b->reg;
    uint64_t before[2];

    count(r, before);
    if (r->rank == 0) {
        world_put(r, 1,
                  &(struct shunt_transport_put){
                      .local = b->source + 7,
                      .reg = b->reg,
                      .remote = b->w.remote[1],
                      .offset = PLACE,
                      .bytes = 4096,
                  });
        fill(b, 8192);
    }
    put_and_meet(r, b, 8192, 1);
    expect(r, before, 1, 2);
    b->reg = NULL;
    count(r, before);
    put_and_meet(r, b, 4096, 1);
    expect(r, before, 0, 1);
    b->reg = reg;
}

void case_rdma_direct(struct rank *r)
{
    struct bench b = {.source = malloc(LARGE)};

    CHECK(r, b.source, "no memory");
    window_create(r, &b.w, signal_at() + 8);
    register_source(r, &b);
    put_all_sizes(r, &b);
    put_what_cannot_be(r, &b);
    /* Deregister the source while the NIC may still read from it. */
    if (r->rank == 0) {
        fill(&b, LARGE);
        put(r, &b, LARGE, 1);
    }
    r->t->dereg(r->ctx, b.reg);
    meet(r, &b, LARGE, 1);
    UNTIL(r, r->t->flush(r->eps[!r->rank]) == SHUNT_OK);
    world_barrier(r);
    window_destroy(r, &b.w);
    free(b.source);
}

/* A large put, or a put over another rail, may take effect without a report to
 * its sender: direct puts in the other direction report only what arrived over
 * their own rail. Even after many such puts there is room for the next one. */
void case_rdma_answered(struct rank *r)
{
    enum { ANSWERS = 400 };
    const size_t elsewhere = signal_at() + 8;
    struct bench b = {.source = malloc(LARGE)};

    CHECK(r, b.source, "no memory");
    window_create(r, &b.w, elsewhere + LARGE);
    register_source(r, &b);
    for (int i = 0; i < 3; i++)
        put_and_meet(r, &b, 8, 1);
    for (int i = 0; i < ANSWERS; i++) {
        if (i == 0 && r->rank == 0)
            world_put(r, 1,
                      &(struct shunt_transport_put){.local = b.source,
                                                    .remote = b.w.remote[1],
                                                    .offset = elsewhere,
                                                    .bytes = LARGE});
        put_and_meet(r, &b, i > 0 && i < 24 ? 16384 : 0, 1);
    }
    UNTIL(r, r->t->flush(r->eps[!r->rank]) == SHUNT_OK);
    world_barrier(r);
    r->t->dereg(r->ctx, b.reg);
    window_destroy(r, &b.w);
    free(b.source);
}
