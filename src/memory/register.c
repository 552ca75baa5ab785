// SPDX-License-Identifier: Apache-2.0
/* Registering and deregistering memory of the caller; see registration.h. */
#include <stdbool.h>
#include <stdint.h>

#include <shunt/memory.h>

#include "src/base/error.h"
#include "src/comm.h"
#include "src/op/device.h"
#include "src/op/registration.h"
#include "src/progress/turns.h"
#include "src/wire/failure.h"

static bool is_memory(const void *ptr, size_t bytes)
{
    return ptr && bytes && bytes - 1 <= UINTPTR_MAX - (uintptr_t)ptr;
}

enum shunt_status shunt_mem_register(struct shunt_comm *comm, void *ptr,
                                     size_t bytes)
{
    enum shunt_status st;

    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "mem_register: comm is NULL");
    shunti_comm_enter(comm);
    st = shunti_comm_check(comm);
    if (!st && !is_memory(ptr, bytes))
        st = shunti_fail(&comm->error, SHUNT_ERR_INVALID,
                         "mem_register: %zu bytes at %p are no memory", bytes,
                         ptr);
    else if (!st && shunti_is_device(ptr))
        st = shunti_fail(&comm->error, SHUNT_ERR_UNSUPPORTED,
                         "mem_register: %p is memory of a device, and only the "
                         "host's can be registered",
                         ptr);
    else if (!st)
        st = shunti_registration_add(comm, ptr, bytes);
    shunti_comm_leave(comm);
    return st;
}

enum shunt_status shunt_mem_deregister(struct shunt_comm *comm, void *ptr)
{
    enum shunt_status st = SHUNT_OK;

    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "mem_deregister: comm is NULL");
    if (comm->inherited.state)
        return shunti_inherited_check(comm);
    shunti_comm_enter(comm);
    if (!shunti_registration_remove(comm, ptr))
        st = shunti_fail(&comm->error, SHUNT_ERR_INVALID,
                         "mem_deregister: no memory at %p is registered", ptr);
    shunti_comm_leave(comm);
    return st;
}
