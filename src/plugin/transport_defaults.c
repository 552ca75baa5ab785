// SPDX-License-Identifier: Apache-2.0
/* Defaults of a transport's optional operations; see transport_defaults.h. */
#include "src/plugin/transport_defaults.h"

static enum shunt_status probe(const struct shunt_transport_host *host,
                               struct shunt_transport_estimate *estimate,
                               char *why, size_t why_len)
{
    (void)host;
    *estimate = (struct shunt_transport_estimate){0};
    if (why_len)
        why[0] = '\0';
    return SHUNT_OK;
}

static unsigned caps(const struct shunt_transport_ep *ep)
{
    (void)ep;
    return 0;
}

static void *map(struct shunt_transport_ep *ep,
                 struct shunt_transport_remote *remote)
{
    (void)ep;
    (void)remote;
    return NULL;
}

static enum shunt_status get(struct shunt_transport_ep *ep,
                             const struct shunt_transport_get *operation)
{
    (void)ep;
    (void)operation;
    return SHUNT_ERR_UNSUPPORTED;
}

static enum shunt_status let_go(struct shunt_transport_ep *ep, bool by_force)
{
    (void)ep;
    (void)by_force;
    return SHUNT_OK;
}

static void disarm(struct shunt_transport_ctx *ctx)
{
    (void)ctx;
}

static bool busy(const struct shunt_transport_ctx *ctx)
{
    (void)ctx;
    return false;
}

static size_t counters(const struct shunt_transport_ctx *ctx,
                       struct shunt_transport_counter *all, size_t room)
{
    (void)ctx;
    (void)all;
    (void)room;
    return 0;
}

#define DEFAULT(op) transport->op = transport->op ? transport->op : op

void shunti_transport_complete(struct shunt_transport *transport)
{
    DEFAULT(probe);
    DEFAULT(caps);
    DEFAULT(map);
    DEFAULT(get);
    DEFAULT(let_go);
    DEFAULT(disarm);
    DEFAULT(busy);
    DEFAULT(counters);
}
