// SPDX-License-Identifier: Apache-2.0
/* The choice between the ring and reads by the kernel; see pair_costs.h. */
#include "src/wire/pair_costs.h"

#include "src/base/log.h"
#include "src/comm.h"

enum {
    SMALLEST = 8192,
    /* One of this many chunks is timed, because reading a clock twice takes 1
     * or 2 % of the copy of a chunk. */
    CHUNKS_PER_TIMING = 4,
    /* Blocks of the smallest class before its first trial; by then new memory
     * has been touched. Larger classes need fewer: times(). */
    FIRST = 24,
    /* Blocks of the smallest class in a trial. Larger classes need fewer. */
    TRIES = 4,
    /* After so many blocks the next trial begins in any case. */
    AGAIN = 1000,
    /* A trial also begins if the cost of the protocol in use has changed, as it
     * does when ranks move to other CPUs. But CHANGED_FIRST blocks must have
     * passed. This number doubles, up to CHANGED_LAST, each time that such a
     * trial changes nothing. */
    CHANGED_FIRST = 16,
    CHANGED_LAST = 512,
    /* After this many blocks sent without one received, the traffic is
     * one-way. */
    FRESH = 64,
};
/* A cost has changed if it is higher or lower by this factor. */
#define CHANGED 1.5f
/* The protocol in use stays unless the other one is cheaper by this factor. */
#define CLEARLY 0.9f

_Static_assert(SHUNTI_WAYS_CLASSES <= 16, "a set of them has 16 bits");

size_t shunti_pair_costs_class_bytes(int class)
{
    return (size_t)SMALLEST << class;
}

static int class_of(size_t bytes)
{
    int class = 0;

    while (class < SHUNTI_WAYS_CLASSES - 1 && bytes >= (size_t)SMALLEST * 2)
        class ++, bytes /= 2;
    return class;
}

/* Update a cost with a measurement. A rank that was interrupted measures too
 * much, perhaps a hundred times the cost, and never too little. So a lower
 * measurement replaces the cost at once, and a higher one raises it in small
 * steps. */
static void learn(float *cost, size_t bytes, uint64_t ns)
{
    const float seen = (float)ns * 65536 / (float)bytes;

    if (*cost == 0 || seen < *cost)
        *cost = seen;
    else
        *cost += (seen < *cost * 2 ? seen - *cost : *cost) / 8;
}

/* The number of blocks for a class. Larger classes need fewer. */
static int times(int of_smallest, int class)
{
    int n = of_smallest >> class / 2;

    return n > 2 ? n : 2;
}

bool shunti_pair_costs_learn(const struct shunt_comm *comm, int peer)
{
    const struct shunti_peer *p = &comm->peers[peer];

    /* Chunks smaller than the smallest class are not worth measuring. */
    return comm->tune.read_min == SIZE_MAX &&
           comm->control.layout.chunk >= SMALLEST && p->control &&
           p->caps & SHUNT_TRANSPORT_GET;
}

/* --- words that a pair exchanges ----------------------------------------- */

/* The bits of the word, from the highest: the cost of copies into the ring
 * (`into`), the classes to try (`tries`), the classes to read (`wants`). */
#define BITS SHUNTI_WAYS_CLASSES
#define ALL ((1u << BITS) - 1)

static void send_costs(struct shunt_comm *comm, int peer)
{
    struct shunti_peer *p = &comm->peers[peer];
    struct shunti_pair_costs *w = &p->costs;
    const size_t at = comm->control.layout.words +
                      (size_t)comm->rank * comm->control.layout.word_stride +
                      SHUNTI_WORD_WAYS * 64;

    w->into_sent = w->into;
    __atomic_store_n((uint64_t *)(void *)(p->control + at),
                     (uint64_t)w->into << 2 * BITS |
                         (uint64_t)w->tries << BITS | w->wants,
                     __ATOMIC_RELAXED);
}

static uint64_t costs_from(const struct shunt_comm *comm, int peer)
{
    const unsigned char *at = comm->control.base + comm->control.layout.words +
                              (size_t)peer * comm->control.layout.word_stride +
                              SHUNTI_WORD_WAYS * 64;

    return __atomic_load_n((const uint64_t *)(const void *)at,
                           __ATOMIC_RELAXED);
}

/* --- what copies cost ----------------------------------------------------- */

static bool due(uint8_t *chunks)
{
    if (*chunks) {
        --*chunks;
        return false;
    }
    *chunks = CHUNKS_PER_TIMING - 1;
    return true;
}

bool shunti_pair_costs_time_into(struct shunt_comm *comm, int peer)
{
    return shunti_pair_costs_learn(comm, peer) &&
           due(&comm->peers[peer].costs.into_chunks);
}

bool shunti_pair_costs_time_out(struct shunt_comm *comm, int peer)
{
    struct shunti_pair_costs *w = &comm->peers[peer].costs;

    return shunti_pair_costs_learn(comm, peer) &&
           (due(&w->out_chunks) || (w->tries | w->their_tries) != 0);
}

void shunti_pair_costs_into(struct shunt_comm *comm, int peer, size_t bytes,
                            uint64_t ns)
{
    struct shunti_pair_costs *w = &comm->peers[peer].costs;

    if (bytes < SMALLEST)
        return;
    learn(&w->into, bytes, ns);
    if (w->into > w->into_sent * 1.2f || w->into < w->into_sent * 0.8f)
        send_costs(comm, peer);
}

void shunti_pair_costs_out(struct shunt_comm *comm, int peer, size_t bytes,
                           uint64_t ns)
{
    if (bytes >= SMALLEST)
        learn(&comm->peers[peer].costs.out, bytes, ns);
}

void shunti_pair_costs_was_read(struct shunt_comm *comm, int peer, size_t whole,
                                size_t bytes, uint64_t ns)
{
    if (bytes >= SMALLEST && shunti_pair_costs_learn(comm, peer))
        learn(&comm->peers[peer].costs.read[class_of(whole)], bytes, ns);
}

/* --- the choice ----------------------------------------------------------- */

float shunti_pair_costs_ring_cost(const struct shunt_comm *comm, int peer)
{
    const struct shunti_pair_costs *w = &comm->peers[peer].costs;
    const float into = (float)(costs_from(comm, peer) >> 2 * BITS);

    return w->out + (into > 0 ? into : w->out);
}

bool shunti_pair_costs_in_trial(const struct shunt_comm *comm, int peer,
                                int class)
{
    const struct shunti_pair_costs *w = &comm->peers[peer].costs;

    return (w->tries | w->their_tries) >> class & 1;
}

/* Begin a trial of the protocol that the last block did not use. Reset the cost
 * of that protocol, which is out of date. */
static void begin_trial(struct shunti_pair_costs *w, int class)
{
    const unsigned bit = 1u << class;

    w->before = (uint16_t)((w->before & ~bit) | (w->last_read & bit));
    if (w->last_read & bit)
        w->into = w->out = 0;
    else
        w->read[class] = 0;
    w->into_chunks = w->out_chunks = 0;
    w->taken[class] = 0;
}

/* Set the choice for a class, and for the next larger classes, up to the first
 * one that has a choice of its own. */
static void want(struct shunti_pair_costs *w, int class, bool read)
{
    do {
        w->wants =
            (uint16_t)((w->wants & ~(1u << class)) | (unsigned)read << class);
        class ++;
    } while (class < SHUNTI_WAYS_CLASSES && w->chosen[class] == 0);
}

static void end_trial(struct shunt_comm *comm, int peer, int class)
{
    struct shunti_pair_costs *w = &comm->peers[peer].costs;
    const float ring = shunti_pair_costs_ring_cost(comm, peer),
                read = w->read[class];
    const bool had = w->before >> class & 1;
    const bool now = had ? ring >= read * CLEARLY : read < ring * CLEARLY;

    w->tries &= (uint16_t) ~(1u << class);
    w->taken[class] = 0;
    if (now != had || !w->hold_off[class])
        w->hold_off[class] = CHANGED_FIRST;
    else if (w->hold_off[class] < CHANGED_LAST)
        w->hold_off[class] *= 2;
    if (read > 0 && w->out > 0) {
        w->chosen[class] = now ? read : ring;
        want(w, class, now);
        if (now != had)
            shunti_info("ways",
                        "rank %d: from rank %d, %d KiB and more: %s (64 KiB: "
                        "%.1f us by the ring, %.1f read)",
                        comm->rank, peer, (SMALLEST >> 10) << class,
                        now ? "read by the kernel" : "by the ring",
                        (double)ring / 1e3, (double)read / 1e3);
    }
    send_costs(comm, peer);
}

/* Join the trials that the peer has begun. */
static void follow(struct shunt_comm *comm, int peer, uint64_t word)
{
    struct shunti_pair_costs *w = &comm->peers[peer].costs;
    const uint16_t theirs = word >> BITS & ALL;
    const uint16_t changed = theirs ^ w->their_tries;

    if (!changed)
        return;
    w->their_tries = theirs;
    for (int class = 0; class < SHUNTI_WAYS_CLASSES; class ++) {
        const unsigned bit = 1u << class;

        if (!(changed & bit) || w->tries & bit)
            continue;
        if (theirs & bit)
            begin_trial(w, class);
        else if (w->fresh[class])
            end_trial(comm, peer, class);
    }
}

bool shunti_pair_costs_read(struct shunt_comm *comm, int peer, size_t bytes)
{
    struct shunti_pair_costs *w = &comm->peers[peer].costs;
    const int class = class_of(bytes);
    uint16_t wants, tries;
    uint64_t word;

    if (bytes < SMALLEST || !shunti_pair_costs_learn(comm, peer))
        return false;
    word = costs_from(comm, peer);
    follow(comm, peer, word);
    wants = word & ALL;
    tries = (uint16_t)(w->tries | w->their_tries);
    if (w->fresh[class]) {
        w->fresh[class]--;
        wants &= w->wants;
    }
    return (wants ^ tries) >> class & 1;
}

/* Has the cost of the protocol in use changed since the protocol was chosen? */
static bool changed(const struct shunti_pair_costs *w, int class, float cost)
{
    return w->taken[class] >= w->hold_off[class] &&
           (cost > w->chosen[class] * CHANGED ||
            cost < w->chosen[class] / CHANGED);
}

void shunti_pair_costs_received(struct shunt_comm *comm, int peer, size_t bytes,
                                bool read)
{
    struct shunti_pair_costs *w = &comm->peers[peer].costs;
    const int class = class_of(bytes);
    const unsigned bit = 1u << class;
    float cost;

    if (bytes < SMALLEST || !shunti_pair_costs_learn(comm, peer))
        return;
    follow(comm, peer, costs_from(comm, peer));
    w->fresh[class] = FRESH;
    w->last_read = (uint16_t)((w->last_read & ~bit) | (read ? bit : 0));
    if (w->tries & bit) {
        w->taken[class] += read != (w->before >> class & 1);
        if (w->taken[class] >= times(TRIES, class))
            end_trial(comm, peer, class);
        return;
    }
    if (w->taken[class] < UINT16_MAX)
        w->taken[class]++;
    cost = read ? w->read[class] : shunti_pair_costs_ring_cost(comm, peer);
    if (w->their_tries & bit ||
        (w->chosen[class] == 0
             ? w->taken[class] < times(FIRST, class)
             : w->taken[class] < AGAIN && !changed(w, class, cost)))
        return;
    if (w->taken[class] >= AGAIN)
        w->hold_off[class] = CHANGED_FIRST / 2;
    begin_trial(w, class);
    w->tries |= (uint16_t)bit;
    send_costs(comm, peer);
}
