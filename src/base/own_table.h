// SPDX-License-Identifier: Apache-2.0
/*
 * A thread with its own table of descriptors, which is empty except for 0 to 2.
 *
 * A process at its limit (`ulimit -n`) can open nothing, not even the socket
 * that would notify the other ranks. The limit holds for a table, and each
 * thread may have its own table. So a thread with a new table can open sockets
 * again.
 *
 * Such a thread must not touch a communicator, whose descriptors are in the
 * other table.
 */
#ifndef SHUNTI_OWN_TABLE_H
#define SHUNTI_OWN_TABLE_H

#include <stdbool.h>

/*
 * Run work(arg) in such a thread, and wait for its end. Threads that work()
 * starts share the table, and may continue.
 *
 * meanwhile  called by the calling thread, again and again until work() has
 *            ended.
 *
 * False: the system refuses the thread or its table; work() did not run.
 */
bool shunti_own_table_run(void (*work)(void *arg), void (*meanwhile)(void *arg),
                          void *arg);

/* Is the calling thread one that runs such a work()? */
bool shunti_own_table_is_here(void);

#endif
