// SPDX-License-Identifier: Apache-2.0
/* Refusals: how the other ranks learn that a rank made a call with bad
 * arguments. */
#ifndef SHUNTI_REFUSAL_H
#define SHUNTI_REFUSAL_H

#include <stdint.h>

#include <shunt/status.h>

struct shunt_comm;

/*
 * Send every peer a refusal in the place of this rank's call, which was bad.
 * `signature` has the purpose of the call, if there is one. The refusal has the
 * number that the operation would have had. So the peers'
 * calls fail, with a text that names this rank, instead of waiting. Returns
 * `status`, and sets its text from `format`.
 */
enum shunt_status
shunti_request_refuse(struct shunt_comm *comm, uint32_t signature,
                      enum shunt_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
