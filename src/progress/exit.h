// SPDX-License-Identifier: Apache-2.0
/*
 * A program may end by exit(), or by a return from main(), without having
 * destroyed its communicators. Then it notifies the other ranks, so that their
 * errors say that it was neither killed nor crashed.
 *
 * The notification is a word in the control windows of the peers. A function
 * that exit() calls writes it; after a signal, a crash or _exit() there is
 * none.
 */
#ifndef SHUNTI_EXIT_H
#define SHUNTI_EXIT_H

struct shunt_comm;

/* Install the function that exit() calls. Any thread may call this. */
void shunti_exit_watch(void);

/* The exit status of `rank`; -1: no notification from `rank` has arrived. */
int shunti_exit_of(const struct shunt_comm *comm, int rank);

#endif
