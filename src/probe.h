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
 * this communicator, with its next visit (aside.h) if it waits in another one.
 * A rank that does not answer is blamed: it is cut off, stopped, or somewhere
 * else in its program. If all answered, one of them will know better, and is
 * given the time to report it.
 */
#ifndef SHUNTI_PROBE_H
#define SHUNTI_PROBE_H

#include <stdbool.h>

struct shunt_comm;
struct shunt_request;

/* Start a new probe of all peers that `request` awaits. */
void shunti_probe_start(const struct shunt_request *request);

/* Extend the probe to peers that `request` has come to await since it started.
 * True if there are any. */
bool shunti_probe_more(const struct shunt_request *request);

/* Has `peer` answered the latest probe? */
bool shunti_probe_answered(const struct shunt_comm *comm, int peer);

/* Answer the probes of others. True if a probe or a reply has arrived, which
 * does not mean that what we wait for makes progress. */
bool shunti_probe_poll(struct shunt_comm *comm);

#endif
