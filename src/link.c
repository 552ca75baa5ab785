// SPDX-License-Identifier: Apache-2.0
/*
 * Measuring links; see link.h.
 *
 * A word of the control window, for each pair, counts messages. Rank 0 raises
 * the peer's, and asks with some of them for an answer, which is that the peer
 * raises ours to the same number. For bytes it writes to the ring of streams
 * first, which nobody uses yet.
 */
#include "src/link.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "src/comm.h"
#include "src/contexts.h"
#include "src/error.h"
#include "src/log.h"
#include "src/nodes.h"
#include "src/note.h"
#include "src/trace.h"
#include "src/wait.h"
#include "src/wire.h"

/* Bits of the word beside the number. */
#define ANSWER (UINT64_C(1) << 62)
#define DONE (UINT64_C(1) << 63)

/* Single messages, and bursts of so many, and transfers; the best of each. */
enum { PINGS = 12, BURSTS = 3, BURST = 24, BULKS = 4 };
#define BULK_BYTES ((size_t)128 << 10)

/* To write a note and to look at one (0.2 us for each of two ranks of a node),
 * and to copy a byte at 20 GB/s. */
#define NOTE_SECONDS 2e-7
#define LEAST_BYTE_SECONDS 5e-11

/* Looks without a nap in between. */
#define LOOKS 64

/* Inside a node, where rank 0 has no local peer: shared memory as it commonly
 * is. */
static const struct shunti_link usual_inside = {1e-6, 2e-7, 1.5e-10};

struct pair {
    struct shunt_comm *comm;
    int peer;
    uint64_t sent, seen; /* numbers */
    uint64_t deadline_ns;
};

static size_t word_of(const struct shunt_comm *comm, int writer)
{
    return comm->control.layout.words +
           (size_t)writer * comm->control.layout.word_stride +
           SHUNTI_WORD_LINK * 64;
}

static void raise_word(struct pair *pair, uint64_t value)
{
    struct shunt_comm *comm = pair->comm;
    struct shunti_peer *p = &comm->peers[pair->peer];
    const size_t at = word_of(comm, comm->rank);

    if (!p->control) {
        shunti_control_put(comm, pair->peer, 0, NULL, 0, at, value);
        return;
    }
    /* Pairs with the acquire in await(), on the other side. */
    __atomic_store_n((uint64_t *)(void *)(p->control + at), value,
                     __ATOMIC_RELEASE);
    p->transport->wake(p->ep);
}

/* The peer's word, once it is no longer what we saw last. */
static enum shunt_status await(struct pair *pair, uint64_t *value)
{
    struct shunt_comm *comm = pair->comm;
    const struct shunti_peer *p = &comm->peers[pair->peer];
    const unsigned char *at = comm->control.base + word_of(comm, pair->peer);

    for (unsigned looks = 1;; looks++) {
        *value = __atomic_load_n((const uint64_t *)(const void *)at,
                                 __ATOMIC_ACQUIRE);
        if (*value != pair->seen) {
            pair->seen = *value;
            return SHUNT_OK;
        }
        shunti_transports_progress(comm);
        if (comm->deferred.first)
            shunti_control_retry(comm);
        if (!p->transport->alive(p->ep))
            return shunti_fail(NULL, SHUNT_ERR_PEER,
                               "rank %d is lost, while links were measured",
                               pair->peer);
        if (shunti_now_ns() > pair->deadline_ns)
            return shunti_fail(NULL, SHUNT_ERR_TIMEOUT,
                               "rank %d does not answer, while links were "
                               "measured",
                               pair->peer);
        if (looks % LOOKS)
            sched_yield();
        else
            shunti_transports_nap(comm, 1);
    }
}

/* --- the other side ------------------------------------------------------- */

static enum shunt_status answer(struct pair *pair)
{
    for (;;) {
        uint64_t value;
        enum shunt_status st = await(pair, &value);

        if (st || value & DONE)
            return st;
        if (value & ANSWER)
            raise_word(pair, value);
    }
}

/* --- rank 0's ------------------------------------------------------------- */

/* Write `bytes` to the peer's ring; what, does not matter. */
static void write_ring(struct pair *pair, size_t bytes)
{
    struct shunt_comm *comm = pair->comm;
    struct shunti_peer *p = &comm->peers[pair->peer];
    const size_t chunk = comm->control.layout.chunk;
    const size_t ring = comm->control.layout.ring +
                        (size_t)comm->rank * comm->control.layout.ring_stride;

    for (size_t done = 0; done < bytes; done += chunk) {
        size_t len = bytes - done < chunk ? bytes - done : chunk;

        if (p->control)
            memcpy(p->control + ring + done, comm->control.base + ring, len);
        else
            shunti_control_put(
                comm, pair->peer, ring + done,
                p->outbox + SHUNTI_DEPTH * comm->control.layout.slot_bytes +
                    done,
                len, word_of(comm, comm->rank), ++pair->sent);
    }
}

/* So many messages, or bytes, and an answer: the seconds. */
static enum shunt_status time_one(struct pair *pair, int messages, size_t bytes,
                                  double *seconds)
{
    uint64_t began = shunti_now_ns(), value;
    enum shunt_status st;

    if (bytes)
        write_ring(pair, bytes);
    while (--messages > 0)
        raise_word(pair, ++pair->sent);
    raise_word(pair, ++pair->sent | ANSWER);
    st = await(pair, &value);
    *seconds = (double)(shunti_now_ns() - began) * 1e-9;
    return st;
}

static enum shunt_status best_of(struct pair *pair, int times, int messages,
                                 size_t bytes, double *best)
{
    enum shunt_status st = SHUNT_OK;

    *best = 0;
    for (int i = 0; i < times && !st; i++) {
        double seconds;

        st = time_one(pair, messages, bytes, &seconds);
        if (i == 0 || seconds < *best)
            *best = seconds;
    }
    return st;
}

/* Where memory is mapped, to write bytes is all; no need to ask. */
static double best_copy(struct pair *pair, size_t bytes)
{
    double best = 0;

    for (int i = 0; i < BULKS; i++) {
        uint64_t began = shunti_now_ns();
        double seconds;

        write_ring(pair, bytes);
        seconds = (double)(shunti_now_ns() - began) * 1e-9;
        if (i == 0 || seconds < best)
            best = seconds;
    }
    return best;
}

static double at_least(double value, double least)
{
    return value > least ? value : least;
}

static enum shunt_status measure(struct pair *pair, struct shunti_link *link)
{
    const struct shunti_layout *l = &pair->comm->control.layout;
    const size_t ring = l->chunks * l->chunk;
    const size_t bytes = ring < BULK_BYTES ? ring : BULK_BYTES;
    double there_and_back, burst, bulk;
    enum shunt_status st;

    st = best_of(pair, PINGS, 1, 0, &there_and_back);
    if (!st)
        st = best_of(pair, BURSTS, BURST, 0, &burst);
    if (!st && pair->comm->peers[pair->peer].control)
        bulk = there_and_back + best_copy(pair, bytes);
    else if (!st)
        st = best_of(pair, BULKS, 1, bytes, &bulk);
    if (st)
        return st;
    /* A note is more work than a raised word, and noise must not make anything
     * free. */
    link->latency = there_and_back / 2;
    link->gap =
        NOTE_SECONDS + at_least((burst - there_and_back) / (BURST - 1), 0);
    link->byte =
        at_least((bulk - there_and_back) / (double)bytes, LEAST_BYTE_SECONDS);
    return SHUNT_OK;
}

/* --- what has been measured before ---------------------------------------- */

#define REMEMBERED 16

static struct {
    char shape[192];
    struct shunti_links links;
} memory[REMEMBERED];
static unsigned memories;
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

static bool recall(const char *shape, struct shunti_links *links)
{
    bool found = false;

    pthread_mutex_lock(&memory_lock);
    for (int i = 0; i < REMEMBERED && !found; i++) {
        found = !strcmp(memory[i].shape, shape);
        if (found)
            *links = memory[i].links;
    }
    pthread_mutex_unlock(&memory_lock);
    return found;
}

static void remember(const char *shape, const struct shunti_links *links)
{
    pthread_mutex_lock(&memory_lock);
    snprintf(memory[memories % REMEMBERED].shape, sizeof(memory[0].shape), "%s",
             shape);
    memory[memories++ % REMEMBERED].links = *links;
    pthread_mutex_unlock(&memory_lock);
}

/* --- all together --------------------------------------------------------- */

/* The lowest rank but 0 of rank 0's node; -1: there is none. */
static int local_peer_of_first(const struct shunt_comm *comm)
{
    for (int r = 1; r < comm->nranks; r++)
        if (comm->peers[r].node == comm->peers[0].node)
            return r;
    return -1;
}

static int rail_peer_of_first(const struct shunt_comm *comm)
{
    return shunti_node_ranks(comm, 1)[0];
}

/* What we have told others needs us to go out; nobody is here for a while. */
static enum shunt_status see_off(struct shunt_comm *comm, uint64_t deadline_ns)
{
    while (!shunti_all_sent(comm)) {
        if (shunti_now_ns() > deadline_ns)
            return shunti_fail(NULL, SHUNT_ERR_TIMEOUT,
                               "a link takes nothing, while it was measured");
        if (comm->deferred.first)
            shunti_control_retry(comm);
        shunti_transports_nap(comm, 1);
    }
    return SHUNT_OK;
}

/* By rank 0, with those two. */
static enum shunt_status conduct(struct pair *local_peer,
                                 struct pair *rail_peer,
                                 struct shunti_links *links)
{
    enum shunt_status st = SHUNT_OK;

    links->inside = usual_inside;
    if (local_peer->peer >= 0)
        st = measure(local_peer, &links->inside);
    return st ? st : measure(rail_peer, &links->across);
}

static void report(const char *where, const struct shunti_link *link)
{
    shunti_info("link",
                "%s: latency %.1f us, a message more %.2f us, %.3g GB/s", where,
                link->latency * 1e6, link->gap * 1e6, 1e-9 / link->byte);
}

static enum shunt_status first_rank(struct shunt_comm *comm,
                                    uint64_t deadline_ns,
                                    struct shunti_links *links)
{
    struct pair local_peer = {comm, local_peer_of_first(comm), 0, 0,
                              deadline_ns};
    struct pair rail_peer = {comm, rail_peer_of_first(comm), 0, 0, deadline_ns};
    enum shunt_status st = SHUNT_OK;
    char shape[192];

    snprintf(shape, sizeof(shape), "%d of %d, %.48s, %.48s", comm->nranks,
             comm->nodes,
             local_peer.peer < 0 ? "" : comm->peers[local_peer.peer].how,
             comm->peers[rail_peer.peer].how);
    if (!recall(shape, links)) {
        st = conduct(&local_peer, &rail_peer, links);
        if (!st) {
            remember(shape, links);
            report("in a node", &links->inside);
            report("across", &links->across);
        }
    }
    if (local_peer.peer >= 0)
        raise_word(&local_peer, ++local_peer.sent | DONE);
    raise_word(&rail_peer, ++rail_peer.sent | DONE);
    return st ? st : see_off(comm, deadline_ns);
}

enum shunt_status shunti_links_measure(struct shunt_comm *comm,
                                       struct shunti_links *links)
{
    uint64_t deadline = shunti_now_ns() + shunti_ns(comm->liveness.timeout);
    struct pair pair = {comm, 0, 0, 0, deadline};

    memset(links, 0, sizeof(*links));
    if (comm->nodes == 1)
        return SHUNT_OK;
    if (comm->rank == 0)
        return first_rank(comm, deadline, links);
    if (comm->rank == local_peer_of_first(comm) ||
        comm->rank == rail_peer_of_first(comm))
        return answer(&pair);
    return SHUNT_OK;
}
