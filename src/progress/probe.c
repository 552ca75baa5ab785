// SPDX-License-Identifier: Apache-2.0
/*
 * Liveness probe; see probe.h.
 *
 * A probe is a number that this rank writes to its word in the peer's control
 * window. The reply is the same number in the peer's word in this rank's
 * control window. Polling one word for each rank would be too slow. So every
 * probe also changes one word that all ranks share, the doorbell.
 */
#include "src/progress/probe.h"

#include <string.h>

#include "src/comm.h"
#include "src/op/request.h"
#include "src/trace/trace.h"
#include "src/wire/wire.h"

/*
 * The bits of a reply: the number of the probe (32 bits); the ms until the
 * rank's decision time (31 bits); and whether the rank waits in a call on
 * another communicator.
 */
#define NUMBER UINT32_MAX
#define DECISION_SHIFT 32
#define DECISION_MAX (UINT64_C(0x7fffffff))
#define ELSEWHERE (UINT64_C(1) << 63)
#define NS_PER_MS 1000000u

static uint64_t load_word(const struct shunt_comm *comm, size_t at)
{
    return __atomic_load_n(
        (const uint64_t *)(const void *)(comm->control.base + at),
        __ATOMIC_ACQUIRE);
}

static void store_word(unsigned char *control, size_t at, uint64_t value)
{
    __atomic_store_n((uint64_t *)(void *)(control + at), value,
                     __ATOMIC_RELEASE);
}

/* The offset in a control window of a word that `writer` writes. */
static size_t word_offset(const struct shunt_comm *comm, int writer, int line)
{
    return comm->control.layout.words +
           (size_t)writer * comm->control.layout.word_stride +
           (size_t)line * 64;
}

static void send_probe(struct shunt_comm *comm, int peer)
{
    struct shunti_peer *p = &comm->peers[peer];
    size_t at = word_offset(comm, comm->rank, SHUNTI_WORD_PROBE);
    /* A value that no rank has written to the doorbell before. */
    uint64_t doorbell =
        (uint64_t)(comm->rank + 1) << 32 | (comm->probe.number & UINT32_MAX);

    p->probed = comm->probe.number;
    comm->probe.sent++;
    if (p->control) {
        store_word(p->control, at, comm->probe.number);
        store_word(p->control, comm->control.layout.doorbell, doorbell);
        p->transport->wake(p->ep);
    } else {
        shunti_control_put_rare(comm, peer, at, &comm->probe.number,
                                sizeof(comm->probe.number),
                                comm->control.layout.doorbell, doorbell);
    }
}

uint64_t shunti_probe_decision_ns(const struct shunt_comm *comm)
{
    const struct shunt_request *oldest = comm->operations.active;
    uint64_t since = comm->liveness.last_event_ns;

    if (!oldest || !oldest->begun_ns)
        return 0; /* this rank does not wait here */
    if (comm->probe.seq == oldest->seq && comm->probe.extensions)
        return comm->probe.decision_ns;
    if (since < oldest->begun_ns)
        since = oldest->begun_ns;
    return since + shunti_ns(comm->liveness.timeout);
}

/* The decision time of this rank, as the bits of a reply. */
static uint64_t decision_word(const struct shunt_comm *comm)
{
    const uint64_t now = shunti_now_ns();
    const uint64_t at = comm->probe.visited ? comm->probe.elsewhere_ns
                                            : shunti_probe_decision_ns(comm);
    const uint64_t ms = at > now ? 1 + (at - now) / NS_PER_MS : 0;

    return (ms < DECISION_MAX ? ms : DECISION_MAX) << DECISION_SHIFT;
}

static void send_reply(struct shunt_comm *comm, int peer, uint64_t number)
{
    struct shunti_peer *p = &comm->peers[peer];
    size_t at = word_offset(comm, comm->rank, SHUNTI_WORD_PROBE_REPLY);
    uint64_t reply = (number & NUMBER) | decision_word(comm);

    p->replied = number;
    if (comm->probe.visited && !comm->operations.active)
        reply |= ELSEWHERE;
    if (p->control) {
        store_word(p->control, at, reply);
        p->transport->wake(p->ep);
    } else {
        shunti_control_put_rare(comm, peer, 0, NULL, 0, at, reply);
    }
}

bool shunti_probe_more(const struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;
    bool any = false;

    for (int r = 0; r < comm->nranks; r++) {
        if (r == comm->rank || comm->peers[r].lost ||
            comm->peers[r].probed == comm->probe.number ||
            !request->class->awaits(request, r))
            continue;
        send_probe(comm, r);
        any = true;
    }
    return any;
}

void shunti_probe_start(const struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    comm->probe.number++;
    comm->probe.sent = comm->probe.answered = 0;
    comm->probe.open = true;
    shunti_probe_more(request);
}

void shunti_probe_all(struct shunt_comm *comm)
{
    comm->probe.number++;
    comm->probe.sent = comm->probe.answered = 0;
    for (int r = 0; r < comm->nranks; r++) {
        const struct shunti_peer *p = &comm->peers[r];

        if (r != comm->rank && !p->lost && p->transport->alive(p->ep))
            send_probe(comm, r);
    }
}

static uint64_t reply_of(const struct shunt_comm *comm, int peer)
{
    return load_word(comm, word_offset(comm, peer, SHUNTI_WORD_PROBE_REPLY));
}

bool shunti_probe_answered(const struct shunt_comm *comm, int peer)
{
    return (reply_of(comm, peer) & NUMBER) == (comm->probe.number & NUMBER);
}

bool shunti_probe_elsewhere(const struct shunt_comm *comm, int peer)
{
    return shunti_probe_answered(comm, peer) &&
           reply_of(comm, peer) & ELSEWHERE;
}

uint64_t shunti_probe_decision_of(const struct shunt_comm *comm, int peer)
{
    if (!shunti_probe_answered(comm, peer))
        return 0;
    return (reply_of(comm, peer) >> DECISION_SHIFT & DECISION_MAX) * NS_PER_MS;
}

/* Has this rank's latest probe got replies that were not counted yet? */
static bool count_replies(struct shunt_comm *comm)
{
    int answered = 0;

    if (comm->probe.answered == comm->probe.sent)
        return false;
    for (int r = 0; r < comm->nranks; r++)
        answered += r != comm->rank && shunti_probe_answered(comm, r);
    if (answered == comm->probe.answered)
        return false;
    comm->probe.answered = answered;
    return true;
}

bool shunti_probe_poll(struct shunt_comm *comm)
{
    uint64_t doorbell = load_word(comm, comm->control.layout.doorbell);
    bool replies = count_replies(comm);

    if (doorbell == comm->probe.doorbell)
        return replies;
    comm->probe.doorbell = doorbell;
    for (int r = 0; r < comm->nranks; r++) {
        uint64_t number;

        if (r == comm->rank)
            continue;
        number = load_word(comm, word_offset(comm, r, SHUNTI_WORD_PROBE));
        if (number != comm->peers[r].replied && !comm->peers[r].lost)
            send_reply(comm, r, number);
    }
    return true;
}
