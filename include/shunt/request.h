// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Requests: what a `_start` call returns, and how to finish it.
 *
 * The collectives (coll.h) have a `_start`, and so have dispatch, combine and
 * their gradients (moe.h). It returns at once; where it returns an error there
 * is no request. The other calls that all ranks make together (for
 * communicators, memory, exchanges and plans) block, and have none.
 *
 * Operations advance inside test and wait, of any request of the communicator,
 * in blocking calls on it, and on its progress thread if it has one
 * (SHUNT_PROGRESS=thread). A thread that tests, or waits in any call that
 * blocks, also advances the operations that it left under way on other
 * communicators (those on which it made the latest call). So requests of several
 * communicators may be waited for and tested in any order, another one on each
 * rank. What fails meanwhile is told by that operation's own test or wait.
 * Buffers given to `_start` are borrowed until the request is done: what is
 * read may be given to other calls to read, what is written to none. Arrays of
 * counts and displacements are copied.
 *
 * Any number of requests may be under way; memory is the limit. Of the calls on
 * a communicator, the 16 from the oldest unfinished one on advance; those
 * behind them wait for it. (Dispatch, combine and their gradients count twice
 * where they travel by SHUNT_MOE_FLAT.) Several requests of one plan: see
 * shunt_moe_buffer().
 */
#ifndef SHUNT_REQUEST_H
#define SHUNT_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_request;

/**
 * Advance, and say whether `*request` is done. Other communicators of this
 * thread advance, too.
 *
 * request  in/out; set to NULL when it is done (it is then freed).
 *          A NULL request is done.
 *
 * Returns SHUNT_IN_PROGRESS, or the operation's final status.
 * Local; never blocks.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_test(struct shunt_request **request);

/**
 * Wait until `*request` is done; frees it and sets it to NULL.
 * Spins briefly, then sleeps; bounded by SHUNT_TIMEOUT.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_wait(struct shunt_request **request);

/**
 * Wait for `count` requests, of any communicators and in any order (NULL entries
 * are done).
 * All are finished also when one fails; returns the first failure by index.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_wait_all(struct shunt_request **requests, size_t count);

#ifdef __cplusplus
}
#endif

#endif
