// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Requests: what a `_start` call returns, and how to finish it.
 *
 *     status = shunt_allreduce_start(comm, send, recv, n, SHUNT_F32, SHUNT_SUM,
 *                                    &request);
 *     ... compute something else ...
 *     status = shunt_wait(&request);
 *
 * These calls have a `_start` form: the collectives (coll.h), dispatch, combine
 * and their gradients (moe.h), and the calls that send state of experts
 * (moe_experts.h, moe_gradients.h). A `_start` form returns at once; if it
 * returns an error, there is no request. Only the `_start` form of a fused
 * product first waits for all ranks (fused.h). The other collective calls (on
 * communicators, memory, exchanges and plans) block and have no `_start` form.
 *
 * Buffers. The library borrows the buffers of a `_start` call until its request
 * is done. Other calls may read a buffer that the request only reads. They must
 * not use a buffer that it writes. Arrays of counts and displacements are
 * copied. For several requests of one plan see shunt_moe_buffer().
 *
 * Progress. Operations advance
 *
 *   - in a test or wait of any request of the communicator, and in blocking
 *     calls on it;
 *   - on the progress thread of the communicator, if it has one
 *     (SHUNT_PROGRESS=thread);
 *   - on a helper thread of the process. By default (SHUNT_PROGRESS=auto) it
 *     serves communicators that span nodes, while their callers have been
 *     outside of the library for longer than 0.1 ms. shunt_notify() makes it
 *     advance one request, whatever the setting.
 *
 * In a fused product only the transfers advance in these ways; the rest is
 * computed in a test or wait of its own request.
 *
 * Several communicators. A thread that tests, or waits in any blocking call,
 * also advances the pending operations of its other communicators (those on
 * which it made the latest call). So requests of several communicators may be
 * waited for and tested in any order, which may differ between ranks. If such
 * an operation fails meanwhile, its own test or wait returns the error.
 *
 * Limits. Any number of requests may be pending; memory is the limit. Of the
 * calls on a communicator only 16 advance: the oldest unfinished one and the 15
 * behind it. Later ones wait until the oldest is done. (Dispatch, combine and
 * their gradients count twice in mode SHUNT_MOE_FLAT, and each part of them
 * counts.)
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
 * Advance pending operations, also those of this thread's other communicators,
 * and test whether `*request` is done.
 *
 * request  in/out; freed and set to NULL when it is done. A NULL request is
 *          done.
 *
 * Returns SHUNT_IN_PROGRESS, or the operation's final status.
 * Local; never blocks.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_test(struct shunt_request **request);

/**
 * Wait until `*request` is done; frees it and sets it to NULL. Polls briefly,
 * then sleeps; bounded by SHUNT_TIMEOUT.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_wait(struct shunt_request **request);

/**
 * Wait for `count` requests, of any communicators and in any order. NULL
 * entries are done. Waits for all of them even if one fails, and returns the
 * failure with the lowest index.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_wait_all(struct shunt_request **requests, size_t count);

/**
 * Call done(arg) once when `request` is done, also with an error.
 *
 * request  under way, or NULL, which is done.
 * done     must not use this library, and should be short: other operations
 *          wait for it. At most one for each request.
 *
 * The thread that ends the request calls done(). If the request is done
 * already, shunt_notify() calls done(). The caller must still test or wait for
 * the request, which frees it. The request may still have to send data that
 * other ranks need.
 *
 * Such a request advances while its caller is outside of the library, whatever
 * SHUNT_PROGRESS says. A helper thread of the process takes the communicator
 * over after 0.1 ms, or later if earlier calls on the communicator followed
 * each other at shorter intervals. SHUNT_TIMEOUT counts from this call, as in a
 * wait. If the communicator is destroyed first, that ends the request.
 *
 * Errors: SHUNT_ERR_INVALID, done is NULL; SHUNT_ERR_BUSY, the request has a
 * callback already; SHUNT_ERR_SYSTEM, no thread can be made; SHUNT_ERR_MEMORY;
 * SHUNT_ERR_UNSUPPORTED, a fused product, or a call on memory of a GPU, which
 * only a test or a wait of its own completes. The request is still under way.
 * Local.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_notify(struct shunt_request *request, void (*done)(void *arg), void *arg);

/**
 * As shunt_notify(), but add 1 to an eventfd (eventfd(2)), which becomes
 * readable: for poll() or epoll(), with other descriptors of the program.
 *
 * fd  borrowed until the request is done. Several requests may share an
 *     eventfd; its value is the number of requests that are done. A pipe or a
 *     socket works as well: 8 bytes are written to it for each request. No
 *     thread waits for the descriptor, whether it blocks or not (O_NONBLOCK).
 *     If it is full, or an eventfd at its maximum, nothing is added, since it
 *     is readable already.
 *
 * Errors: as shunt_notify(); SHUNT_ERR_INVALID, fd is not open, or cannot be
 * written to.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_notify_fd(struct shunt_request *request, int fd);

#ifdef __cplusplus
}
#endif

#endif
