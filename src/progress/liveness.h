// SPDX-License-Identifier: Apache-2.0
/*
 * Is every rank that we wait for still there? Operations without news for
 * SHUNT_TIMEOUT, and ranks that a transport reports as gone, end the
 * communicator with an error that names the rank.
 *
 * Before a timeout, a rank probes the ranks that it waits for (probe.h): those
 * that wait, too, answer, and are not to blame.
 */
#ifndef SHUNTI_LIVENESS_H
#define SHUNTI_LIVENESS_H

#include <stdint.h>

struct shunt_comm;

/* Of a communicator: for how long nothing has come. liveness.c writes it;
 * init.c sets the timeout, and wait.c last_event_ns, when a wait begins and
 * when a peer was heard of in another communicator. */
struct shunti_liveness {
    double timeout;         /* seconds without news; of calls */
    uint64_t last_event_ns; /* when something last came from a peer */
    uint64_t events_seen;   /* of contexts.events */
    int first_crash; /* 1 + the first rank found gone that had not left */
};

/* The probe begins so long before the timeout. */
uint64_t shunti_liveness_notice_ns(const struct shunt_comm *comm);

/* Answer probes, and keep the time if anything else has come from a peer. */
void shunti_liveness_note_events(struct shunt_comm *comm);

/* Has the oldest operation waited too long without news? Then probe, or fail.
 * Returns when to look again. */
uint64_t shunti_liveness_check_time(struct shunt_comm *comm, uint64_t now_ns);

/* Fail if a rank is gone that an operation under way needs. */
void shunti_liveness_look(struct shunt_comm *comm);

#endif
