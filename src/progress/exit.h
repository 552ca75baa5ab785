// SPDX-License-Identifier: Apache-2.0
/*
 * A program ends by exit(), or returns from main(), without having destroyed its
 * communicators: the other ranks are told, so that their errors say that it was
 * neither killed nor crashed.
 *
 * A word in the control windows of its peers says so. It is left by a function
 * that exit() calls; a signal, a crash and _exit() leave none.
 */
#ifndef SHUNTI_EXIT_H
#define SHUNTI_EXIT_H

struct shunt_comm;

/* From now on exit() is noticed. Any thread. */
void shunti_exit_watch(void);

/* With which status `rank` exited; -1: it did not, as far as is known. */
int shunti_exit_of(const struct shunt_comm *comm, int rank);

#endif
