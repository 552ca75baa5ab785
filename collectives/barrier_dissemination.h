// SPDX-License-Identifier: Apache-2.0
/* The barrier between many nodes. */
#ifndef SHUNTI_BARRIER_DISSEMINATION_H
#define SHUNTI_BARRIER_DISSEMINATION_H

#include <stdint.h>

#include <shunt/status.h>

struct shunt_request;
struct shunti_coll;

/* Create a barrier of ceil(log2(nodes)) rounds. */
enum shunt_status shunti_barrier_dissemination(const struct shunti_coll *call,
                                               uint32_t signature,
                                               struct shunt_request **request);

#endif
