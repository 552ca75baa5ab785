// SPDX-License-Identifier: Apache-2.0
/*
 * Roll call: who of those that we wait for is waiting, too?
 *
 * When nothing comes, the ranks that an operation awaits are not all to blame:
 * one that has crossed into the next operation awaits a mate who still waits
 * for somebody of a host that is cut off. So shortly before its time is out a
 * rank asks those that it waits for, by a word in their control windows. A rank
 * that waits in the library itself answers: at once if it waits in this
 * communicator, with its next visit (aside.h) if in another one. Who does not
 * answer is the one to name: it is cut off, stopped, or somewhere else in its
 * program. If all answer, one of them will know better, and gets the time for
 * it.
 */
#ifndef SHUNTI_ROLLCALL_H
#define SHUNTI_ROLLCALL_H

#include <stdbool.h>

struct shunt_comm;
struct shunt_request;

/* Put a new question to all that `request` awaits. */
void shunti_roll_call(const struct shunt_request *request);

/* Put the question to those that `request` has come to await since then. True
 * if there are any. */
bool shunti_roll_call_more(const struct shunt_request *request);

/* Has `peer` answered it? */
bool shunti_roll_answered(const struct shunt_comm *comm, int peer);

/* Answer who asks us. True if a question or an answer has come, which is no
 * sign that what we wait for goes on. */
bool shunti_roll_look(struct shunt_comm *comm);

#endif
