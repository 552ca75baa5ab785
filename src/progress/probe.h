// SPDX-License-Identifier: Apache-2.0
/*
 * Liveness probe: which of the ranks that this rank waits for are alive, and
 * waiting as well?
 *
 * When nothing arrives, not every rank that an operation awaits is to blame. A
 * rank that is already in the next operation may wait for a local peer, which
 * in turn waits for a rank on a host that is cut off. So shortly before its
 * timeout a rank probes the ranks that it awaits, by a word in their control
 * windows. A rank that waits inside the library answers: at once if it waits in
 * this communicator, and with its next visit (parked.h) if it waits in another
 * one. A rank that does not answer is blamed: it is cut off, stopped, or
 * somewhere else in its program.
 *
 * If all awaited ranks answered, one of them will find out which rank is
 * missing. The rank that probes waits for that rank's report. But the reporting
 * rank may have begun to wait much later, or may itself wait for a rank that
 * began later. So a reply also has its sender's *decision time*: the time when
 * the sender, or a rank that it waits for, will know which rank is missing.
 */
#ifndef SHUNTI_PROBE_H
#define SHUNTI_PROBE_H

#include <stdbool.h>
#include <stdint.h>

struct shunt_comm;
struct shunt_request;

/* Part of a communicator: its latest probe. probe.c writes it. liveness.c
 * writes the fields behind `answered`. wait.c closes the probe when a message
 * of a peer arrived on another communicator, and writes `visited` and
 * `elsewhere_ns`. */
struct shunti_probe {
    uint64_t number;   /* number of this rank's latest probe; 0: none */
    uint64_t doorbell; /* value of the doorbell at the last look */
    /* number of ranks that the probe was sent to, and of those that answered */
    int sent, answered;
    uint64_t last_ns; /* when the last probe or reply arrived */
    /* number of the operation that the probe was sent for */
    uint64_t seq;
    /* the probe is under way; its replies decide which ranks a timeout
     * blames */
    bool open;
    /* how often the timeout was extended because all had answered */
    uint8_t extensions;
    /* latest decision time in the replies of the awaited ranks, when the
     * timeout was extended; 0: none */
    uint64_t decision_ns;
    /* the thread that sends replies now is in a call on another communicator */
    bool visited;
    uint64_t elsewhere_ns; /* the decision time of that call */
};

/* Start a new probe of all peers that `request` awaits. */
void shunti_probe_start(const struct shunt_request *request);

/* Start a new probe of all peers whose connections are alive. */
void shunti_probe_all(struct shunt_comm *comm);

/* Extend the probe to peers that `request` began to await after the probe had
 * started. True if there are any. */
bool shunti_probe_more(const struct shunt_request *request);

/* Has `peer` answered the latest probe? */
bool shunti_probe_answered(const struct shunt_comm *comm, int peer);

/* Has `peer` answered from a call on another communicator, with nothing under
 * way in this one? */
bool shunti_probe_elsewhere(const struct shunt_comm *comm, int peer);

/*
 * The decision time of this rank: the time when this rank, or a rank that it
 * waits for, will know which rank is missing. For this rank itself, this is
 * when its timeout first ends. A time in the past means that no such rank is
 * known.
 */
uint64_t shunti_probe_decision_ns(const struct shunt_comm *comm);

/* The number of ns until the decision time of `peer`, at the time of its answer
 * to the latest probe; 0: it has none. */
uint64_t shunti_probe_decision_of(const struct shunt_comm *comm, int peer);

/* Answer the probes of other ranks. True if a probe or a reply has arrived.
 * That does not mean that an operation makes progress. */
bool shunti_probe_poll(struct shunt_comm *comm);

#endif
