// SPDX-License-Identifier: Apache-2.0
/*
 * Conformance: rare puts (shunt_transport_put.rare). With every transport, rare
 * puts are in order with other puts. With rdma, a rare put makes no connection.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/transports/cases.h"
#include "tests/verbs/outages.h"

#define PUTS 96
#define BYTES ((size_t)192)
/* Bytes for each sender; its signal is at the end */
#define AREA (PUTS * BYTES + 64)

struct mail {
    struct rank *r;
    struct window w;
    unsigned char *sources; /* (PUTS x BYTES) */
    int sent[MAX_RANKS];
    uint64_t seen[MAX_RANKS];
};

static size_t signal_of(int sender)
{
    return (size_t)sender * AREA + PUTS * BYTES;
}

static unsigned char byte_of(int from, int number)
{
    return (unsigned char)(from * 31 + number + 1);
}

static void mail_open(struct mail *m, struct rank *r)
{
    memset(m, 0, sizeof(*m));
    m->r = r;
    window_create(r, &m->w, (size_t)r->nranks * AREA);
    m->sources = malloc(PUTS * BYTES);
    CHECK(r, m->sources, "no memory");
    for (int i = 0; i < PUTS; i++)
        memset(m->sources + (size_t)i * BYTES, byte_of(r->rank, i), BYTES);
    world_barrier(r);
}

/* Send the next put to this peer. */
static enum shunt_status send_next(struct mail *m, int peer, bool rare)
{
    struct rank *r = m->r;
    const size_t i = (size_t)m->sent[peer] % PUTS;
    const struct shunt_transport_put put = {
        .local = m->sources + i * BYTES,
        .remote = m->w.remote[peer],
        .offset = (size_t)r->rank * AREA + i * BYTES,
        .bytes = i % 3 ? BYTES : 0,
        .signal = m->w.remote[peer],
        .signal_offset = signal_of(r->rank),
        .signal_value = (uint64_t)m->sent[peer] + 1,
        .rare = rare,
    };
    const enum shunt_status st = r->t->put(r->eps[peer], &put);

    m->sent[peer] += st == SHUNT_OK;
    return st;
}

/* Check that all payload that this sender's signal covers has arrived, and that
 * the signal never decreases. */
static void look(struct mail *m, int sender)
{
    struct rank *r = m->r;
    const uint64_t value = word_load(window_word(&m->w, signal_of(sender)));

    CHECK(r, value >= m->seen[sender] && value <= PUTS,
          "rank %d: signal %d after %d", sender, (int)value,
          (int)m->seen[sender]);
    for (; m->seen[sender] < value; m->seen[sender]++) {
        const size_t i = (size_t)m->seen[sender];
        const unsigned char *at = m->w.addr + (size_t)sender * AREA + i * BYTES;

        for (size_t b = 0; i % 3 && b < BYTES; b++)
            CHECK(r, at[b] == byte_of(sender, (int)i),
                  "rank %d: byte %d of put %d is not there", sender, (int)b,
                  (int)i);
    }
}

static void mail_close(struct mail *m)
{
    free(m->sources);
    window_destroy(m->r, &m->w);
}

/* All ranks put to all. All puts are rare, except that neighbours also make
 * ordinary puts unless `only_rare`. */
static void exchange(struct mail *m, bool only_rare)
{
    struct rank *r = m->r;
    bool done = false;

    while (!done) {
        done = true;
        for (int p = 0; p < r->nranks; p++) {
            const bool rare = only_rare || p != (r->rank ^ 1) ||
                              m->sent[p] < 8 || world_random(r) % 2;

            if (p == r->rank)
                continue;
            if (m->sent[p] < PUTS)
                CHECK(r, send_next(m, p, rare) >= SHUNT_OK, "%s",
                      r->t->error(r->ctx));
            look(m, p);
            done = done && m->sent[p] == PUTS && m->seen[p] == PUTS;
        }
        world_relax(r);
    }
    for (int p = 0; p < r->nranks; p++)
        if (p != r->rank)
            UNTIL(r, r->t->flush(r->eps[p]) == SHUNT_OK);
}

void case_rare(struct rank *r)
{
    struct mail m;

    mail_open(&m, r);
    exchange(&m, false);
    mail_close(&m);
}

/* Only neighbours have queue pairs. Without ordinary puts, no ranks have any. A
 * rare put still wakes a sleeping rank. */
void case_rdma_rare(struct rank *r)
{
    for (int only_rare = 1; only_rare >= 0; only_rare--) {
        struct mail m;

        setenv("SHUNT_TEST_VERBS", "nasty,devices=2", 1);
        world_open(r);
        mail_open(&m, r);
        if (only_rare && r->rank == 1)
            world_sleep_until(r, window_word(&m.w, signal_of(0)), 1);
        if (only_rare && r->rank == 0)
            UNTIL(r, send_next(&m, 1, true) == SHUNT_OK);
        world_barrier(r);
        exchange(&m, only_rare);
        CHECK(r, outages_queue_pairs(r) == (only_rare ? 0 : 2),
              "%d queue pairs", outages_queue_pairs(r));
        CHECK(r,
              outages_counter(r, "by tcp") >=
                  (uint64_t)(r->nranks - 2 + only_rare) * PUTS,
              "by tcp: %d", (int)outages_counter(r, "by tcp"));
        world_barrier(r);
        mail_close(&m);
        world_close(r);
    }
}

/* Rank 1 dies while all ranks make rare puts to it. Their errors name rank 1,
 * in time, although they have not connected to it. They still put to each
 * other. */
void case_rdma_rare_killed(struct rank *r)
{
    struct mail m;

    setenv("SHUNT_TEST_VERBS", "rc", 1);
    world_open(r);
    mail_open(&m, r);
    if (r->rank == 1) {
        UNTIL(r, word_load(window_word(&m.w, signal_of(0))) > 3);
        raise(SIGKILL);
    } else {
        enum shunt_status st = SHUNT_OK;

        UNTIL(r, (st = send_next(&m, 1, true)) < SHUNT_OK);
        EXPECT(r, SHUNT_ERR_PEER, st);
        CHECK(r, strstr(r->t->error(r->ctx), "rank 1 is lost"), "%s",
              r->t->error(r->ctx));
        UNTIL(r, !r->t->alive(r->eps[1]));
        CHECK(r, !r->t->left(r->eps[1]), "it was killed");
    }
    for (int p = 0; p < r->nranks; p++)
        if (p != 1 && p != r->rank)
            UNTIL(r, send_next(&m, p, true) == SHUNT_OK);
    for (int p = 0; p < r->nranks; p++)
        if (p != 1 && p != r->rank)
            UNTIL(r, (look(&m, p), m.seen[p] == 1));
    CHECK(r, outages_queue_pairs(r) == 0, "%d queue pairs",
          outages_queue_pairs(r));
    /* A rank that left meanwhile has received the message. */
    for (int p = 0; p < r->nranks; p++)
        if (p != 1 && p != r->rank)
            UNTIL(r, r->t->flush(r->eps[p]) != SHUNT_IN_PROGRESS);
    free(m.sources);
    r->t->close(r->ctx);
    r->ctx = NULL;
    close(m.w.fd);
}
