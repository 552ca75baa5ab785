// SPDX-License-Identifier: Apache-2.0
/*
 * Checks of arguments. A call that is made of other collectives begins with one
 * all-gather: each rank sends its arguments, and whether they are valid. So all
 * ranks learn of a bad call before anything else is done.
 */
#ifndef SHUNTI_ARGUMENT_CHECK_H
#define SHUNTI_ARGUMENT_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

struct shunt_comm;
struct shunti_options;

/* The first field of the struct that each rank contributes. */
struct shunti_argument_check {
    int64_t status; /* error of this rank's call; SHUNT_OK: none */
    char why[192];  /* text of that error */
};

/*
 * Gather all ranks' arguments. Collective; the caller must not hold the
 * communicator.
 *
 * options  with the purpose of the call that checks its arguments.
 * mine     (bytes) begins with a struct shunti_argument_check.
 * all      (nranks, bytes) after the call; the caller frees it. NULL: no
 *          memory.
 *
 * Errors: this rank's own error; SHUNT_ERR_REMOTE for an error of another rank;
 * errors of the all-gather. The texts begin with the purpose's name.
 */
enum shunt_status
shunti_argument_checks_gather(struct shunt_comm *comm,
                              const struct shunti_options *options,
                              const void *mine, size_t bytes, void **all);

#endif
