// SPDX-License-Identifier: Apache-2.0
/*
 * Calls of verbs that the kernel does not complete while a link is down:
 * connecting, and destroying a queue pair. A rank must notice in time that its
 * peer is lost, and must close in time. The queue pairs that close() leaves
 * behind must be destroyed when the link is up again.
 */
#include <stdlib.h>
#include <unistd.h>

#include "tests/transports/cases.h"
#include "tests/verbs/outages.h"

/* Longer than any step here may take. */
#define STUCK "rc,stuck=60000"
/* The limit for close() in seconds. It takes half a second on an idle machine,
 * and longer if other tests run. */
enum { SOON_S = 5 };

/* The board's flag: the link of rank 1 is down. */
enum { DOWN };

static void await_loss(struct rank *r)
{
    const double start = world_now();

    outages_await_loss(r);
    CHECK(r, world_now() - start < SOON_S, "lost after %.1f s",
          world_now() - start);
}

static void close_in_time(struct rank *r)
{
    const double start = world_now();

    r->t->close(r->ctx);
    r->ctx = NULL;
    CHECK(r, world_now() - start < SOON_S, "close() took %.1f s",
          world_now() - start);
    world_barrier(r);
    UNTIL(r, !outages_plug_in(r, 0));
    CHECK(r, outages_queue_pairs(r) == 0, "%d queue pairs are left",
          outages_queue_pairs(r));
    world_barrier(r);
}

/* The queue pair fails, and then the port, so the queue pair cannot be
 * destroyed. */
static void destroy(struct rank *r)
{
    world_open(r);
    world_all_signal(r); /* connects the ranks */
    if (r->rank == 1) {
        outages_do(r, 0, "qp");
        outages_do(r, 0, "down");
    }
    await_loss(r);
    world_barrier(r);
    if (r->rank == 1)
        CHECK(r, outages_queue_pairs(r) == 1, "it was destroyed");
    close_in_time(r);
}

/* The port fails before this rank receives the number of the peer's queue
 * pair. */
static void connect(struct rank *r)
{
    const uint64_t word = 1;
    struct shunt_transport_put put = {.local = &word, .bytes = sizeof(word)};
    struct window w;

    world_open(r);
    window_create(r, &w, sizeof(word));
    put.remote = w.remote[0];
    if (r->rank == 1) {
        EXPECT(r, SHUNT_IN_PROGRESS, r->t->put(r->eps[0], &put));
        CHECK(r, outages_queue_pairs(r) == 1, "it is not connecting");
        outages_do(r, 0, "down");
        atomic_store(&r->board->flags[DOWN], 1);
    } else {
        world_await_flag(r, DOWN, 1);
    }
    await_loss(r);
    close_in_time(r);
    close(w.fd);
}

void case_rdma_stuck(struct rank *r)
{
    setenv("SHUNT_TEST_VERBS", STUCK, 1);
    destroy(r);
    connect(r);
}
