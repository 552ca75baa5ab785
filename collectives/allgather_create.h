// SPDX-License-Identifier: Apache-2.0
/* The part that all algorithms of allgather between nodes share. */
#ifndef SHUNTI_ALLGATHER_CREATE_H
#define SHUNTI_ALLGATHER_CREATE_H

#include "collectives/allgather.h"
#include "collectives/two_level.h"

/* Create a request for any of the algorithms between nodes. All ranks must pass
 * the same counts. Requests of allgatherv have the class `class_v`. The other
 * parameters are those of shunti_two_level_create(). */
enum shunt_status shunti_allgather_create(
    const struct shunti_coll *call, const struct shunti_class *class,
    const struct shunti_class *class_v,
    const struct shunti_two_level_hooks *hooks, uint32_t signature,
    enum shunti_phases phases, const struct shunti_allgather *args,
    size_t own_bytes, struct shunt_request **request,
    struct shunti_two_level **x);

#endif
