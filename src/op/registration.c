// SPDX-License-Identifier: Apache-2.0
/* Memory that the caller has registered; see registration.h. */
#include "src/op/registration.h"

#include <stdint.h>
#include <stdlib.h>

#include <shunt/status.h>

#include "src/base/error.h"
#include "src/comm.h"
#include "src/wire/window.h"

struct shunti_registration {
    struct shunti_registration *next; /* the newest is first */
    unsigned char *addr;
    size_t bytes;
    /* (ncontexts) NULL: not registered with that transport */
    struct shunt_transport_reg *reg[];
};

static bool holds(const struct shunti_registration *r, const void *memory,
                  size_t bytes)
{
    const uintptr_t at = (uintptr_t)memory - (uintptr_t)r->addr;

    return at < r->bytes && bytes <= r->bytes - at;
}

struct shunt_transport_reg *
shunti_registration_of(const struct shunt_comm *comm, int peer,
                       const void *memory, size_t bytes)
{
    const ptrdiff_t context = comm->peers[peer].context - comm->contexts.all;
    const struct shunti_window *window =
        shunti_window_find(comm, memory, bytes);
    const struct shunti_registration *r;

    if (window && window->reg)
        return window->reg[context];
    for (r = comm->registrations; r; r = r->next)
        if (holds(r, memory, bytes))
            return r->reg[context];
    return NULL;
}

/* Does this transport put straight from this rank's memory to any peer? */
static bool puts_from(const struct shunt_comm *comm,
                      const struct shunti_context *context)
{
    for (int i = 0; i < comm->nranks; i++)
        if (comm->peers[i].context == context && !comm->peers[i].control &&
            comm->peers[i].caps & SHUNT_TRANSPORT_ZCOPY)
            return true;
    return false;
}

static void take_back(const struct shunt_comm *comm,
                      struct shunti_registration *r)
{
    for (size_t i = 0; i < comm->contexts.count; i++)
        if (r->reg[i])
            comm->contexts.all[i].transport->dereg(comm->contexts.all[i].ctx,
                                                   r->reg[i]);
    free(r);
}

static enum shunt_status register_with(struct shunt_comm *comm,
                                       struct shunti_context *context,
                                       const struct shunti_registration *r,
                                       struct shunt_transport_reg **reg)
{
    const struct shunt_transport_memory memory = {
        .addr = r->addr,
        .bytes = r->bytes,
        .fd = -1,
    };
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
    size_t key_bytes = sizeof(key);
    enum shunt_status st;

    if (!puts_from(comm, context))
        return SHUNT_OK;
    st = context->transport->reg(context->ctx, &memory, key, &key_bytes, reg);
    if (st == SHUNT_ERR_UNSUPPORTED)
        return SHUNT_OK;
    return st ? shunti_fail(&comm->error, st,
                            "mem_register: %zu bytes at %p: %s", r->bytes,
                            (void *)r->addr,
                            context->transport->error(context->ctx))
              : SHUNT_OK;
}

enum shunt_status shunti_registration_add(struct shunt_comm *comm, void *ptr,
                                          size_t bytes)
{
    struct shunti_registration *r =
        calloc(1, sizeof(*r) + comm->contexts.count * sizeof(r->reg[0]));
    enum shunt_status st = SHUNT_OK;

    if (!r)
        return shunti_fail(&comm->error, SHUNT_ERR_MEMORY,
                           "mem_register: no memory");
    r->addr = ptr;
    r->bytes = bytes;
    for (size_t i = 0; !st && i < comm->contexts.count; i++)
        st = register_with(comm, &comm->contexts.all[i], r, &r->reg[i]);
    if (st) {
        take_back(comm, r);
        return st;
    }
    r->next = comm->registrations;
    comm->registrations = r;
    return SHUNT_OK;
}

bool shunti_registration_remove(struct shunt_comm *comm, const void *ptr)
{
    struct shunti_registration **at = &comm->registrations, *r;

    while ((r = *at) && r->addr != ptr)
        at = &r->next;
    if (!r)
        return false;
    *at = r->next;
    take_back(comm, r);
    return true;
}

void shunti_registrations_finish(struct shunt_comm *comm)
{
    struct shunti_registration *r;

    while ((r = comm->registrations)) {
        comm->registrations = r->next;
        take_back(comm, r);
    }
}
