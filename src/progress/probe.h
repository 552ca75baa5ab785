// SPDX-License-Identifier: Apache-2.0
/*
 * Liveness probe: which of the ranks that we wait for are alive and waiting,
 * too?
 *
 * When nothing arrives, not every rank that an operation awaits is to blame. A
 * rank that is already in the next operation may wait for a local peer, which
 * in turn waits for a rank on a host that is cut off. So shortly before its
 * timeout a rank probes the ranks that it awaits, by a word in their control
 * windows. A rank that waits inside the library answers: at once if it waits in
 * this communicator, with its next visit (parked.h) if it waits in another one.
 * A rank that does not answer is blamed: it is cut off, stopped, or somewhere
 * else in its program. If all answered, one of them will know better, and is
 * given the time to report it. It may have begun to wait much later than the rank
 * that asks, or wait for a rank that has. So a reply also says when its rank, or one
 * that it waits for, will know: its *verdict*.
 */
#ifndef SHUNTI_PROBE_H
#define SHUNTI_PROBE_H

#include <stdbool.h>
#include <stdint.h>

struct shunt_comm;
struct shunt_request;

/* Of a communicator: its latest probe. probe.c writes it; liveness.c writes
 * what follows `answered`, and wait.c closes it when a peer was heard of in
 * another communicator, and writes `visited` and `elsewhere_ns`. */
struct shunti_probe {
    uint64_t number;    /* of our latest probe; 0: none */
    uint64_t doorbell;  /* as last seen in our control window */
    int sent, answered; /* ranks, of this probe */
    uint64_t last_ns;   /* when a probe or a reply last came */
    uint64_t seq;       /* of the operation that it was sent for */
    bool open;          /* it decides which ranks a timeout blames */
    uint8_t extensions; /* of the timeout, because all had answered */
    uint64_t
        decision_ns; /* of the ranks that this one awaits, as they said when
                            the timeout was extended; 0: none */
    bool visited;    /* replies are sent from a call elsewhere: wait.c */
    uint64_t elsewhere_ns; /* the verdict of that call */
};

/* Start a new probe of all peers that `request` awaits. */
void shunti_probe_start(const struct shunt_request *request);

/* Start a new probe of all peers whose connections stand. */
void shunti_probe_all(struct shunt_comm *comm);

/* Extend the probe to peers that `request` has come to await since it started.
 * True if there are any. */
bool shunti_probe_more(const struct shunt_request *request);

/* Has `peer` answered the latest probe? */
bool shunti_probe_answered(const struct shunt_comm *comm, int peer);

/* Has it answered from a call on another communicator, with nothing under way in
 * this one? */
bool shunti_probe_elsewhere(const struct shunt_comm *comm, int peer);

/*
 * The verdict of this rank: when it, or a rank that it waits for, will know who is
 * missing. It does when its timeout ends for the first time. A time that has passed:
 * no rank is known that will.
 */
uint64_t shunti_probe_decision_ns(const struct shunt_comm *comm);

/* In how many ns the verdict of `peer` was due when it answered the latest probe; 0:
 * it has none. */
uint64_t shunti_probe_decision_of(const struct shunt_comm *comm, int peer);

/* Answer the probes of others. True if a probe or a reply has arrived, which
 * does not mean that what we wait for makes progress. */
bool shunti_probe_poll(struct shunt_comm *comm);

#endif
