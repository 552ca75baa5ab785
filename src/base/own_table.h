// SPDX-License-Identifier: Apache-2.0
/*
 * A thread with a table of descriptors of its own, which is empty but for 0 to 2.
 *
 * A process at its limit (`ulimit -n`) can open nothing, not even the socket by which
 * it would tell the other ranks so. The limit is one of the table, and each thread may
 * have its own table. So a thread with a new one can open sockets as before.
 *
 * Such a thread must not touch a communicator: the descriptors of that are in the
 * other table.
 */
#ifndef SHUNTI_OWN_TABLE_H
#define SHUNTI_OWN_TABLE_H

#include <stdbool.h>

/*
 * Run work(arg) in such a thread, and wait for its end. Threads that work() starts
 * share the table, and may go on.
 *
 * meanwhile  called by the calling thread, again and again until work() has ended.
 *
 * False: there is no thread, or the system refuses the table; work() did not run.
 */
bool shunti_own_table_run(void (*work)(void *arg), void (*meanwhile)(void *arg),
                          void *arg);

/* Is this the thread of such a work()? */
bool shunti_own_table_is_here(void);

#endif
