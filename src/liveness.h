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
