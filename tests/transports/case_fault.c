// SPDX-License-Identifier: Apache-2.0
/* The effects of SHUNT_FAULT. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/transports/cases.h"

static void open_with(struct rank *r, const char *program)
{
    setenv("SHUNT_FAULT", program, 1);
    world_open(r);
}

static enum shunt_status put_word(struct rank *r, struct window *w, int peer,
                                  size_t offset, uint64_t value, int channel)
{
    struct shunt_transport_put put = {
        .signal = w->remote[peer],
        .signal_offset = offset,
        .signal_value = value,
        .channel = channel,
    };

    return r->t->put(r->eps[peer], &put);
}

/* Flush all peers: a transport may send puts as late as in flush(). */
static void flush_all(struct rank *r)
{
    for (int p = 0; p < r->nranks; p++) {
        if (p != r->rank)
            UNTIL(r, r->t->flush(r->eps[p]) == SHUNT_OK);
    }
}

/* An unknown word is an error, whose text lists the valid words. */
void case_fault_words(struct rank *r)
{
    static const char *const bad[] = {"maybe", "nomap=1",
                                      "delay", "delay=x",
                                      "seed=", "nomap,delay=5,fial=3"};
    struct shunt_transport_params params = {
        .host = &world_host,
        .options = r->options,
        .nranks = 1,
    };
    struct shunt_transport_estimate estimate;
    struct shunt_transport_ctx *ctx;
    char why[4096];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("SHUNT_FAULT", bad[i], 1);
        EXPECT(r, SHUNT_ERR_INVALID,
               r->t->open(&params, &ctx, why, sizeof(why)));
        CHECK(r, strstr(why, "understood") && strstr(why, "silence=N"), "%s",
              why);
    }
    setenv("SHUNT_FAULT", "", 1);
    EXPECT(r, SHUNT_OK, r->t->probe(&world_host, &estimate, why, sizeof(why)));
    CHECK(r, strstr(why, "reorder: "), "%s", why);
    params.options = "";
    EXPECT(r, SHUNT_ERR_UNSUPPORTED,
           r->t->open(&params, &ctx, why, sizeof(why)));
    params.options = "nosuch";
    EXPECT(r, SHUNT_ERR_UNSUPPORTED,
           r->t->open(&params, &ctx, why, sizeof(why)));
}

/* A delayed get ends after the call and wakes a sleeper, or let_go() ends
 * it. */
void case_fault_get(struct rank *r)
{
    const int peer = 1 - r->rank;
    uint64_t mine = 42, found[2] = {0, 0}, address = (uint64_t)(uintptr_t)&mine;
    enum shunt_status ended[2];
    struct shunt_transport_get get = {.bytes = 8};

    open_with(r, "delay=20000,fixed");
    world_put_slot(r, &address, sizeof(address));
    memcpy(&get.address, r->board->slot[peer], sizeof(get.address));
    if (r->t->caps(r->eps[peer]) & SHUNT_TRANSPORT_GET) {
        get.local = &found[0];
        get.status = &ended[0];
        EXPECT(r, SHUNT_OK, r->t->get(r->eps[peer], &get));
        CHECK(r, ended[0] == SHUNT_IN_PROGRESS && !found[0], "%d", ended[0]);
        world_sleep_until(r, &found[0], 42);
        CHECK(r, ended[0] == SHUNT_OK, "%d", ended[0]);

        get.local = &found[1];
        get.status = &ended[1];
        EXPECT(r, SHUNT_OK, r->t->get(r->eps[peer], &get));
        UNTIL(r, r->t->let_go(r->eps[peer], false) != SHUNT_IN_PROGRESS);
        CHECK(r, ended[1] != SHUNT_IN_PROGRESS, "%d", ended[1]);
        if (ended[1] != SHUNT_OK) { /* the get failed, so its data must never
                                     * arrive */
            const enum shunt_status how = ended[1];
            const double due = world_now() + 0.025;

            UNTIL(r, world_now() > due);
            CHECK(r, !found[1] && ended[1] == how, "%llu, %d",
                  (unsigned long long)found[1], ended[1]);
        }
    } else {
        CHECK(r, !strstr(r->options, "shm") || getenv("SHUNT_CMA"),
              "processes of a host can read each other");
    }
    world_barrier(r);
}

/* Only the third put of rank 1 fails. */
void case_fault_fail(struct rank *r)
{
    const int peer = 1 - r->rank;
    struct window w;

    open_with(r, "fail=3,rank=1");
    window_create(r, &w, 64);
    for (uint64_t k = 1; k <= 5; k++) {
        bool hit = r->rank == 1 && k == 3;

        EXPECT(r, hit ? SHUNT_ERR_SYSTEM : SHUNT_OK,
               put_word(r, &w, peer, 8 * k, k, 0));
    }
    flush_all(r);
    world_barrier(r);
    for (uint64_t k = 1; k <= 5; k++)
        CHECK(r,
              word_load(window_word(&w, 8 * k)) ==
                  (r->rank == 0 && k == 3 ? 0 : k),
              "put %d", (int)k);
    world_barrier(r);
    window_destroy(r, &w);
}

/* Rank 0 loses rank 2 at its second put to it, and only rank 0 does. */
void case_fault_die(struct rank *r)
{
    struct window w;

    open_with(r, "die=2,peer=2,rank=0");
    window_create(r, &w, 64);
    for (uint64_t k = 1; k <= 3; k++) {
        for (int p = 0; p < r->nranks; p++) {
            bool hit = r->rank == 0 && p == 2 && k >= 2;

            if (p == r->rank)
                continue;
            EXPECT(r, hit ? SHUNT_ERR_PEER : SHUNT_OK,
                   put_word(r, &w, p, 8 * (size_t)r->rank, k, 0));
            r->t->progress(r->ctx);
            CHECK(r, r->t->alive(r->eps[p]) == !hit, "rank %d", p);
            CHECK(r, !r->t->left(r->eps[p]), "rank %d", p);
        }
    }
    UNTIL(r, r->rank != 2 || word_load(window_word(&w, 0)) > 0);
    world_barrier(r);
    CHECK(r, r->rank != 2 || word_load(window_word(&w, 0)) == 1, "and no more");
    world_barrier(r);
    r->t->dereg(r->ctx, w.reg);
    close(w.fd);
}

/* Rank 0 loses rank 2 after some time, and only rank 0 does. */
void case_fault_fade(struct rank *r)
{
    struct window w;

    open_with(r, "fade=100000,peer=2,rank=0");
    window_create(r, &w, 64);
    UNTIL(r, r->rank != 0 || !r->t->alive(r->eps[2]));
    for (int p = 0; p < r->nranks; p++) {
        bool hit = r->rank == 0 && p == 2;

        if (p == r->rank)
            continue;
        EXPECT(r, hit ? SHUNT_ERR_PEER : SHUNT_OK,
               put_word(r, &w, p, 8 * (size_t)r->rank, 1, 0));
        CHECK(r, r->t->alive(r->eps[p]) == !hit, "rank %d", p);
        CHECK(r, !r->t->left(r->eps[p]), "rank %d", p);
    }
    world_barrier(r);
    r->t->dereg(r->ctx, w.reg);
    close(w.fd);
}

/* Rank 1 sends nothing more, but the other ranks see it as alive. */
void case_fault_silence(struct rank *r)
{
    struct window w;

    open_with(r, "silence=3,rank=1");
    window_create(r, &w, 64);
    for (uint64_t k = 1; k <= 4; k++) {
        for (int p = 0; p < r->nranks; p++) {
            if (p != r->rank)
                EXPECT(r, SHUNT_OK,
                       put_word(r, &w, p, 8 * (size_t)r->rank, k, 0));
        }
    }
    flush_all(r);
    world_barrier(r);
    for (int p = 0; p < r->nranks; p++) {
        uint64_t good = p == 1 ? 1 : 4;

        if (p == r->rank)
            continue;
        CHECK(r,
              !(r->t->caps(r->eps[p]) &
                (SHUNT_TRANSPORT_MAP | SHUNT_TRANSPORT_GET)),
              "rank %d can be mapped", p);
        CHECK(r, word_load(window_word(&w, 8 * (size_t)p)) == good,
              "rank %d is heard", p);
        r->t->progress(r->ctx);
        CHECK(r, r->t->alive(r->eps[p]), "rank %d", p);
    }
    world_barrier(r);
    window_destroy(r, &w);
}

/* Make rounds of eight puts, each on its own channel. Returns how often a later
 * put arrived before an earlier one. */
static int count_overtakings(struct rank *r, struct window *w, uint64_t rounds)
{
    int overtakings = 0;

    for (uint64_t k = 1; k <= rounds; k++) {
        if (r->rank == 0) {
            for (int c = 0; c < 8; c++)
                world_signal(r, w, 1, 8 * (size_t)c, k, c);
            UNTIL(r, r->t->flush(r->eps[1]) == SHUNT_OK);
        } else {
            bool last = false, all = false;

            while (!all) {
                all = true;
                for (int c = 7; c >= 0; c--) {
                    bool here = word_load(window_word(w, 8 * (size_t)c)) == k;

                    overtakings += last && !here && c < 7;
                    last = here;
                    all = all && here;
                }
                last = false;
                world_relax(r);
            }
        }
        world_barrier(r);
    }
    return overtakings;
}

void case_fault_reorder(struct rank *r)
{
    struct window w;
    int n;

    open_with(r, "nomap,delay=300");
    window_create(r, &w, 64);
    n = count_overtakings(r, &w, 50);
    CHECK(r, n == 0, "%d overtakings without reorder", n);
    window_destroy(r, &w);
    world_close(r);

    open_with(r, "nomap,delay=300,reorder");
    window_create(r, &w, 64);
    n = count_overtakings(r, &w, 50);
    CHECK(r, r->rank == 0 || n > 0, "no overtaking");
    window_destroy(r, &w);
}

/* Rank 0's puts to rank 2 are delayed by the full 100 ms. Its puts to rank 1
 * are not, even if they follow a delayed one. */
void case_fault_peer(struct rank *r)
{
    bool met = false;
    struct window w;

    open_with(r, "nomap,delay=100000,fixed,rank=0,peer=2");
    window_create(r, &w, 64);
    /* Try again if this rank was held up for so long that the delayed put had
     * arrived. */
    for (uint64_t k = 1; k <= 10 && r->rank == 0 && !met; k++) {
        double began = world_now();

        EXPECT(r, SHUNT_OK, put_word(r, &w, 2, 0, k, 0));
        EXPECT(r, SHUNT_OK, put_word(r, &w, 1, 0, k, 0));
        UNTIL(r, r->t->flush(r->eps[1]) == SHUNT_OK);
        met = r->t->flush(r->eps[2]) == SHUNT_IN_PROGRESS;
        UNTIL(r, r->t->flush(r->eps[2]) == SHUNT_OK);
        CHECK(r, world_now() - began >= 0.1, "%g s", world_now() - began);
    }
    CHECK(r, r->rank || met, "puts to rank 1 wait for those to rank 2");
    /* Puts of other ranks are not delayed. */
    if (r->rank == 1) {
        EXPECT(r, SHUNT_OK, put_word(r, &w, 2, 8, 1, 0));
        UNTIL(r, r->t->flush(r->eps[2]) == SHUNT_OK);
    }
    UNTIL(r, r->rank != 2 || word_load(window_word(&w, 8)) == 1);
    world_barrier(r);
    CHECK(r, r->rank == 0 || word_load(window_word(&w, 0)) > 0, "nothing");
    world_barrier(r);
    window_destroy(r, &w);
}
