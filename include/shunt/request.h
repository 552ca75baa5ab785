// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Requests: what a `_start` call returns, and how to finish it.
 *
 * The collectives (coll.h) have a `_start` form, and so have dispatch, combine
 * and their gradients (moe.h). It returns at once; if it returns an error,
 * there is no request. The fused products have one, too, which first waits for
 * all ranks (fused.h). The other collective calls (on communicators, memory,
 * exchanges and plans) block and have no `_start` form.
 *
 * Operations advance inside test and wait, of any request of the communicator,
 * in blocking calls on it, and on its progress thread if it has one
 * (SHUNT_PROGRESS=thread). By default (SHUNT_PROGRESS=auto) a helper thread of the
 * process advances those of communicators that span nodes while their callers
 * are outside of the library for longer than 0.1 ms. shunt_notify() makes it
 * advance one request so, whatever the setting. Of a fused product only
 * its transfers advance so; the rest is computed in a test or wait of its own
 * request. A thread that tests, or waits in any blocking call, also advances
 * the pending operations of its other communicators (those on which it made the
 * latest call). So requests of several communicators may be
 * waited for and tested in any order, which may differ between ranks. If such
 * an operation fails meanwhile, its own test or wait returns the error. Buffers
 * passed to `_start` are borrowed until the request is done: other calls may
 * read a buffer that is only read, and may not use one that is written. Arrays
 * of counts and displacements are copied.
 *
 * Any number of requests may be pending; memory is the limit. Of the calls on a
 * communicator, the 16 that start with the oldest unfinished one advance; later
 * ones wait until that one is done. (Dispatch, combine and their gradients
 * count twice in mode SHUNT_MOE_FLAT, and each part of them counts.) For
 * several requests of one plan see shunt_moe_buffer().
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
 * Call done(arg) once when `request` is done, also with an error: from whatever
 * thread ends it, or in this call if it is done already. The request is then to
 * be tested or waited for as ever, which frees it, and may still have to send
 * what other ranks need.
 *
 * A request that somebody is to be told of advances while its caller is outside
 * of the library, whatever SHUNT_PROGRESS says: a helper thread of the process
 * takes the communicator over after 0.1 ms, or later if calls on it were less
 * apart. SHUNT_TIMEOUT counts from here, as in a wait. If the communicator is
 * destroyed first, that is the end of the request.
 *
 * request  under way, or NULL, which is done.
 * done     must not use this library, and should be short: other operations wait
 *          for it. At most one for each request.
 *
 * Errors: SHUNT_ERR_INVALID, done is NULL; SHUNT_ERR_BUSY, there is one already;
 * SHUNT_ERR_SYSTEM, no thread can be made; SHUNT_ERR_UNSUPPORTED, a fused
 * product, or a call on memory of a GPU, which only a test or a wait of its own
 * completes. The request goes on. Local.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_notify(struct shunt_request *request, void (*done)(void *arg), void *arg);

/**
 * As shunt_notify(), but add 1 to an eventfd (eventfd(2)), which becomes
 * readable: for poll() or epoll(), with other descriptors of the program.
 *
 * fd  borrowed until then. Several requests may share one; its value is the
 *     number of those that are done. A pipe or a socket does as well: it gets 8
 *     bytes for each. Whether it blocks or not (O_NONBLOCK), nothing waits for
 *     it: if it is full, or an eventfd at its maximum, it is readable already,
 *     and nothing is added.
 *
 * Errors: as above; SHUNT_ERR_INVALID, fd is not open, or cannot be written to.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_notify_fd(struct shunt_request *request, int fd);

#ifdef __cplusplus
}
#endif

#endif
