// SPDX-License-Identifier: Apache-2.0
/*
 * Error texts: every error is a status and a text.
 *
 * The text is kept twice: in the thread that failed, and in the object that
 * failed, if it has a struct shunti_error. shunt_last_error() reads both.
 */
#ifndef SHUNTI_ERROR_H
#define SHUNTI_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

/* The last error text of an object, such as a communicator. Zeroed: no
 * error. */
struct shunti_error {
    char text[512];
};

/*
 * Keep the text, log it at debug level, and return `status`, so that a failure
 * is one line: `return shunti_fail(&comm->error, SHUNT_ERR_..., "...")`.
 *
 * error   NULL: only the thread keeps it.
 * format  what happened, with which rank and value, and what to do. The
 *         arguments may include an earlier error text. Truncated to the buffer.
 *         errno is preserved.
 */
enum shunt_status shunti_fail(struct shunti_error *error,
                              enum shunt_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Is a number that another rank sent the status of an error? */
static inline bool shunti_is_error(int64_t status)
{
    return status < 0 && status >= SHUNT_ERR_BUSY;
}

/* Make an earlier text the last error text again. */
void shunti_fail_again(struct shunti_error *error, const char *text);

/* This thread's last error text, or "no error". Valid until the thread's next
 * error. */
const char *shunti_error_last(void);

/* Advice, as the end of an error text, about an errno that a limit of the
 * system caused: "; raise `ulimit -n`". "" if there is none. */
const char *shunti_remedy(int error);

#endif
