// SPDX-License-Identifier: Apache-2.0
/* Requests of allgather between nodes. */
#include "collectives/allgather_create.h"

#include "src/base/kind.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"

enum shunt_status shunti_allgather_create(
    const struct shunti_coll *call, const struct shunti_class *class,
    const struct shunti_class *class_v,
    const struct shunti_two_level_hooks *hooks, uint32_t signature,
    enum shunti_phases phases, const struct shunti_allgather *a,
    size_t own_bytes, struct shunt_request **request,
    struct shunti_two_level **x)
{
    const bool v = signature >> 24 == SHUNTI_KIND_ALLGATHERV;
    enum shunt_status st =
        shunti_two_level_create(call, v ? class_v : class, hooks, signature,
                                phases, own_bytes, request, x);

    if (st)
        return st;
    (*x)->agreed = true;
    (*x)->argument = v ? shunti_blocks_digest(call->comm, &a->blocks)
                       : a->blocks.count * shunt_dtype_size(a->blocks.dtype);
    return SHUNT_OK;
}
