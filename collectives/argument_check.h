// SPDX-License-Identifier: Apache-2.0
/*
 * Checks of arguments: at the beginning of a call that is made of other collectives, each
 * rank says whether its arguments are right, and what they are, in one
 * all-gather. So all ranks learn of a wrong call before anything is done.
 */
#ifndef SHUNTI_ARGUMENT_CHECK_H
#define SHUNTI_ARGUMENT_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

struct shunt_comm;

/* The first field of what is gathered. */
struct shunti_argument_check {
    int64_t status; /* of this rank's call so far */
    char why[192];  /* if it is wrong */
};

/*
 * Tell, and hear. Collective; the communicator is not held.
 *
 * purpose  of the call: src/base/kind.h.
 * mine     (bytes), which begin with a struct shunti_argument_check.
 * all      (nranks, bytes) after the call: the caller frees it. NULL: there was
 *          no memory.
 *
 * Errors: this rank's own; SHUNT_ERR_REMOTE for that of another rank; those of
 * the all-gather. The texts begin with the purpose's name.
 */
enum shunt_status shunti_argument_checks_gather(struct shunt_comm *comm,
                                                uint32_t purpose,
                                                const void *mine, size_t bytes,
                                                void **all);

#endif
