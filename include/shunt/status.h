// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Status codes, and the texts of errors.
 *
 *     if (status != SHUNT_OK)
 *         puts(shunt_last_error(comm));
 */
#ifndef SHUNT_STATUS_H
#define SHUNT_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SHUNT_API __attribute__((visibility("default")))
#define SHUNT_NODISCARD __attribute__((warn_unused_result))
#else
#define SHUNT_API
#define SHUNT_NODISCARD
#endif

/**
 * The result of a call: 0 is success, negative an error, positive in progress.
 * shunt_last_error() has the details.
 */
enum shunt_status {
    /** Done. */
    SHUNT_OK = 0,
    /** Not finished: test or wait again. Never returned by a blocking call. */
    SHUNT_IN_PROGRESS = 1,
    /** A bad argument on this rank. In a collective call the other ranks get
     * SHUNT_ERR_REMOTE; nothing else was sent. Also: a child of fork() uses an
     * object that its parent made; no other rank is informed of that
     * (comm.h). */
    SHUNT_ERR_INVALID = -1,
    /** Arguments that must agree across ranks differ; the text names rank and
     * argument. */
    SHUNT_ERR_MISMATCH = -2,
    /** The call failed on another rank, which the text names. */
    SHUNT_ERR_REMOTE = -3,
    /** Out of memory. */
    SHUNT_ERR_MEMORY = -4,
    /** The operating system refused something; the text says what. */
    SHUNT_ERR_SYSTEM = -5,
    /** A rank is lost. The communicator is dead: destroy or shrink it. */
    SHUNT_ERR_PEER = -6,
    /** A rank did not join the call within SHUNT_TIMEOUT seconds. The
     * communicator is dead. */
    SHUNT_ERR_TIMEOUT = -7,
    /** shunt_comm_abort() was called on some rank. */
    SHUNT_ERR_ABORTED = -8,
    /** Not supported for these types, or on this machine. */
    SHUNT_ERR_UNSUPPORTED = -9,
    /** A caller's buffer is too small; the text says the size needed. */
    SHUNT_ERR_OVERFLOW = -10,
    /** Too many requests or plans are in flight; finish one first. */
    SHUNT_ERR_BUSY = -11,
};

struct shunt_comm;

/** Return a short English text for any integer; never NULL. Static storage. */
SHUNT_API const char *shunt_strerror(enum shunt_status status);

/**
 * Return the text of the last failed call: what failed, on which rank, and what
 * to do.
 *
 * comm    the communicator whose last failure is wanted, also that of a call
 *         with its exchanges, plans or requests; NULL: the last failure on this
 *         thread, of any communicator or of a call without one (create, bad
 *         handle).
 *
 * The test or wait that returns a request's failure also sets its text, even if
 * another request has failed since; shunt_wait_all() sets that of the status
 * that it returns. The text is valid until the next call on `comm` (or on this
 * thread); never NULL. With a progress thread, copy it before the next call.
 */
SHUNT_API const char *shunt_last_error(const struct shunt_comm *comm);

#ifdef __cplusplus
}
#endif

#endif
