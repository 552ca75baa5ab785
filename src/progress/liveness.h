// SPDX-License-Identifier: Apache-2.0
/*
 * Liveness: are the ranks that this rank waits for still there? Two things end
 * the communicator, with an error that names the rank: an operation for which
 * nothing arrives within SHUNT_TIMEOUT, and an awaited rank that its transport
 * reports as gone.
 *
 * Before a timeout, a rank probes the ranks that it waits for (probe.h). Ranks
 * that are waiting as well answer, and are not to blame.
 */
#ifndef SHUNTI_LIVENESS_H
#define SHUNTI_LIVENESS_H

#include <stdint.h>

struct shunt_comm;

/* Part of a communicator: the time since something arrived from a peer.
 * liveness.c writes it. init.c sets the timeout. wait.c sets last_event_ns when
 * a wait begins, and when a message of a peer arrived on another
 * communicator. */
struct shunti_liveness {
    /* timeout of calls: seconds without a message from a peer */
    double timeout;
    uint64_t last_event_ns; /* when the last event arrived from a peer */
    uint64_t events_seen;   /* value of contexts.events at the last look */
    /* 1 + the first rank found gone that had neither left nor exited; 0:
     * none */
    int first_crash;
};

/* The notice: the probe begins this many ns before the timeout. */
uint64_t shunti_liveness_notice_ns(const struct shunt_comm *comm);

/* Answer probes. If anything else has arrived from a peer, set
 * last_event_ns. */
void shunti_liveness_note_events(struct shunt_comm *comm);

/* If the oldest operation has waited too long without news, probe, or fail.
 * Returns the time of the next look. */
uint64_t shunti_liveness_check_time(struct shunt_comm *comm, uint64_t now_ns);

/* Fail if an operation under way needs a rank that is gone. */
void shunti_liveness_look(struct shunt_comm *comm);

#endif
