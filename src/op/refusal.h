// SPDX-License-Identifier: Apache-2.0
/* A call with bad arguments, as the other ranks see it. */
#ifndef SHUNTI_REFUSAL_H
#define SHUNTI_REFUSAL_H

#include <stdint.h>

#include <shunt/status.h>

struct shunt_comm;

/*
 * This rank's call was wrong: tell every peer, with the number that the
 * operation would have had. So their calls fail, with a text that names this
 * rank, instead of waiting. Returns `status`, and sets its text from `format`.
 */
enum shunt_status
shunti_request_refuse(struct shunt_comm *comm, uint32_t signature,
                      enum shunt_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
