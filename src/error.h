// SPDX-License-Identifier: Apache-2.0
/*
 * Failing with a story: every error is a status and a sentence.
 *
 * The sentence of a communicator's failure lives in the communicator, and every
 * sentence in the thread that failed; shunt_last_error() reads them.
 */
#ifndef SHUNTI_ERROR_H
#define SHUNTI_ERROR_H

#include <stddef.h>

#include <shunt/status.h>

struct shunt_comm;

/*
 * Keep the sentence, log it at debug level, and return `status`, so that a
 * failure is one line: `return shunti_fail(comm, SHUNT_ERR_..., "...")`.
 *
 * comm    NULL: into the thread's buffer alone.
 * format  what happened, which rank and value, what to do. The arguments may
 *         include the former text (shunt_last_error()). Cut at the buffer's
 *         end. errno is preserved.
 */
enum shunt_status shunti_fail(struct shunt_comm *comm, enum shunt_status status,
                              const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A sentence that was kept before: it is the last again. */
void shunti_fail_again(struct shunt_comm *comm, const char *text);

/* What to do about an errno of the system's limits, as the end of a sentence:
 * "; raise `ulimit -n`"; "" if there is nothing to say. */
const char *shunti_remedy(int error);

/* Where a communicator keeps its sentence; implemented in comm.c. Never called
 * with NULL. */
char *shunti_comm_error_buffer(struct shunt_comm *comm, size_t *len);

#endif
