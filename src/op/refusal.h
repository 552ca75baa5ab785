// SPDX-License-Identifier: Apache-2.0
/* Refusals: messages by which a rank reports to all others that its call had
 * bad arguments. */
#ifndef SHUNTI_REFUSAL_H
#define SHUNTI_REFUSAL_H

#include <stdint.h>

#include <shunt/status.h>

struct shunt_comm;

/*
 * Send every peer a refusal in the place of this rank's call, which was bad.
 * `signature` includes the purpose of the call, if there is one. The refusal
 * has the number that the operation would have had. So the peers' calls do not
 * wait, but fail with a text that names this rank. Returns `status`, and sets
 * this rank's error text from `format`.
 */
enum shunt_status
shunti_request_refuse(struct shunt_comm *comm, uint32_t signature,
                      enum shunt_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
