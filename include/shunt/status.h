// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Status codes, and how to read what went wrong.
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
 * What a call came to. 0 is success, negative an error, positive not ready.
 * The codes are few; the story is in shunt_last_error().
 */
enum shunt_status {
    /** Done. */
    SHUNT_OK = 0,
    /** Not finished yet: test or wait again. Never returned by blocking calls. */
    SHUNT_IN_PROGRESS = 1,
    /** A bad argument of this rank. Nothing was sent but the news of it. */
    SHUNT_ERR_INVALID = -1,
    /** What must agree across ranks does not; the text names rank and argument. */
    SHUNT_ERR_MISMATCH = -2,
    /** Another rank's call failed for a reason of its own; the text names it. */
    SHUNT_ERR_REMOTE = -3,
    /** Out of memory. */
    SHUNT_ERR_MEMORY = -4,
    /** The operating system refused something; the text says what. */
    SHUNT_ERR_SYSTEM = -5,
    /** A rank is gone. The communicator is dead: destroy or shrink it. */
    SHUNT_ERR_PEER = -6,
    /** A rank did not arrive in SHUNT_TIMEOUT seconds. The communicator is dead. */
    SHUNT_ERR_TIMEOUT = -7,
    /** shunt_comm_abort() was called on some rank. */
    SHUNT_ERR_ABORTED = -8,
    /** Not offered for these types, or on this machine. */
    SHUNT_ERR_UNSUPPORTED = -9,
    /** A caller's buffer is too small; the text says the size needed. */
    SHUNT_ERR_OVERFLOW = -10,
    /** Too many requests or plans are in flight; finish one first. */
    SHUNT_ERR_BUSY = -11,
};

struct shunt_comm;

/** A short English text for any status. Total: never NULL. Static storage. */
SHUNT_API const char *shunt_strerror(enum shunt_status status);

/**
 * The story of the last failed call: what, which rank, what to do.
 *
 * comm    that communicator's last failure, also of a call with an exchange, a
 *         plan or a request of it; NULL: the last failure on this thread,
 *         whatever it was of: where to look with several communicators, and
 *         for calls that had none (create, bad handle).
 *
 * A request that failed tells its story when it is tested or waited for, also
 * if another one failed since; shunt_wait_all() that of the status it returns.
 * The text lives until the next call on `comm` (or on this thread); never NULL.
 * With a progress thread, copy it before the next call.
 */
SHUNT_API const char *shunt_last_error(const struct shunt_comm *comm);

#ifdef __cplusplus
}
#endif

#endif
