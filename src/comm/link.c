// SPDX-License-Identifier: Apache-2.0
/*
 * Measuring links; see link.h.
 *
 * For each pair a word of the control window counts messages. Rank 0 raises its
 * word at the peer, and asks for an answer to some of these messages. To
 * answer, the peer raises its own word at rank 0 to the same number. To measure
 * bytes, rank 0 first writes to the ring of streams, which is not in use yet.
 */
#include "src/comm/link.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/forks.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/comm/init_rounds.h"
#include "src/op/note.h"
#include "src/progress/wait.h"
#include "src/trace/trace.h"
#include "src/wire/contexts.h"
#include "src/wire/failure.h"
#include "src/wire/nodes.h"
#include "src/wire/wire.h"

/* Bits of the word, above the number. */
#define ANSWER (UINT64_C(1) << 62)
#define DONE (UINT64_C(1) << 63)

/* The numbers of single messages, of bursts of BURST messages, and of bulk
 * transfers that are timed; the best of each counts. */
enum { PINGS = 12, BURSTS = 3, BURST = 24, BULKS = 4 };
#define BULK_BYTES ((size_t)128 << 10)

/* The time that a rank takes to write a note and to read one (0.2 us, measured
 * with two ranks of a node). The least time of a byte: copied at 20 GB/s. */
#define NOTE_SECONDS 2e-7
#define LEAST_BYTE_SECONDS 5e-11

/* A waiting rank sleeps after every LOOKS-th check of the word, and yields the
 * CPU after the others. */
#define LOOKS 64

/* The usual cost of shared memory, used inside a node if rank 0 has no local
 * peer to measure with. */
static const struct shunti_link usual_inside = {1e-6, 2e-7, 1.5e-10};

struct pair {
    struct shunti_init *init;
    struct shunt_comm *comm;
    int peer;
    uint64_t sent, seen; /* last number sent; the peer's word as last read */
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

/* Pause once. Returns an error if a put has failed, here or on a rank that
 * reports it, or if another rank ends the init. */
static enum shunt_status pause_a_little(struct shunti_init *init,
                                        uint64_t *deadline_ns)
{
    const enum shunt_status st = shunti_comm_check(init->comm);

    return st ? st : shunti_init_pause(init, deadline_ns);
}

/* Wait until the peer's word differs from its last value (pair->seen); *value
 * is the new one. */
static enum shunt_status await(struct pair *pair, uint64_t *value)
{
    struct shunt_comm *comm = pair->comm;
    const struct shunti_peer *p = &comm->peers[pair->peer];
    const unsigned char *at = comm->control.base + word_of(comm, pair->peer);
    enum shunt_status st = SHUNT_OK;

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
                               shunti_init_name(pair->init, pair->peer));
        if (shunti_init_is_late(pair->init, &pair->deadline_ns))
            return shunti_fail(NULL, SHUNT_ERR_TIMEOUT,
                               "rank %d does not answer, while links were "
                               "measured",
                               shunti_init_name(pair->init, pair->peer));
        if (looks % LOOKS)
            sched_yield();
        else
            st = pause_a_little(pair->init, &pair->deadline_ns);
        if (st)
            return st;
    }
}

/* --- the peer's side ------------------------------------------------------ */

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

/* --- rank 0's side -------------------------------------------------------- */

/* Write `bytes` of any content to the peer's ring. */
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

/* The seconds from the first of `messages` messages, or of `bytes`, to an
 * answer. */
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

/* The best time of a copy to mapped memory. The bytes have arrived when they
 * are written, so no answer is needed. */
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
    /* Add NOTE_SECONDS, because a note is more work than a raised word. Noise
     * must not make a cost zero. */
    link->latency = there_and_back / 2;
    link->gap =
        NOTE_SECONDS + at_least((burst - there_and_back) / (BURST - 1), 0);
    link->byte =
        at_least((bulk - there_and_back) / (double)bytes, LEAST_BYTE_SECONDS);
    return SHUNT_OK;
}

/* --- earlier measurements ---------------------------------------- */

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

/* --- the measurement ------------------------------------------------------ */

/* The lowest rank of rank 0's node other than 0; -1: there is none. */
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

/* Wait until everything is sent. Sending may need progress by this rank, and
 * the next call may be much later. */
static enum shunt_status see_off(struct shunti_init *init, uint64_t deadline_ns)
{
    struct shunt_comm *comm = init->comm;
    enum shunt_status st = SHUNT_OK;

    while (!st && !shunti_all_sent(comm)) {
        if (shunti_init_is_late(init, &deadline_ns))
            return shunti_fail(NULL, SHUNT_ERR_TIMEOUT,
                               "a link takes nothing, while it was measured");
        if (comm->deferred.first)
            shunti_control_retry(comm);
        st = pause_a_little(init, &deadline_ns);
    }
    return st;
}

/* Measure with both peers; on rank 0. */
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

static enum shunt_status first_rank(struct shunti_init *init,
                                    uint64_t deadline_ns,
                                    struct shunti_links *links)
{
    const struct shunt_comm *comm = init->comm;
    struct pair local_peer = {.init = init,
                              .comm = init->comm,
                              .peer = local_peer_of_first(comm),
                              .deadline_ns = deadline_ns};
    struct pair rail_peer = {.init = init,
                             .comm = init->comm,
                             .peer = rail_peer_of_first(comm),
                             .deadline_ns = deadline_ns};
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
    return st ? st : see_off(init, deadline_ns);
}

enum shunt_status shunti_links_measure(struct shunti_init *init,
                                       struct shunti_links *links)
{
    struct shunt_comm *comm = init->comm;
    uint64_t deadline = shunti_init_deadline(init);
    struct pair pair = {.init = init, .comm = comm, .deadline_ns = deadline};

    memset(links, 0, sizeof(*links));
    if (comm->nodes == 1)
        return SHUNT_OK;
    if (comm->rank == 0)
        return first_rank(init, deadline, links);
    if (comm->rank == local_peer_of_first(comm) ||
        comm->rank == rail_peer_of_first(comm))
        return answer(&pair);
    return SHUNT_OK;
}

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {.lock = &memory_lock};

    shunti_fork_watch(&fork);
}
