// SPDX-License-Identifier: Apache-2.0
/*
 * The links alone. The bytes that must cross between the hosts are sent in
 * plain TCP streams, one for each pair of hosts, from one small buffer into
 * another. No rank receives useful data. The measured time is that of an
 * exchange in which only the links take time.
 */
#include <stdlib.h>

#include "perf/peers/engine.h"
#include "perf/ranks/net.h"

static struct perf_net *net;

void perf_link_use(struct perf_net *used)
{
    net = used;
}

static const char none[] = "the ranks are all on one host: there is no link";

static const char *call_open(const struct perf_call *call, void **state)
{
    if (!net)
        return none;
    struct perf_call *own = perf_alloc(sizeof(*own));
    *own = *call;
    *state = own;
    return NULL;
}

static void call_run(void *state)
{
    perf_net_exchange(net, ((const struct perf_call *)state)->traffic);
}

static const char *moe_open(const struct perf_exchange *exchange, void **state)
{
    if (!net)
        return none;
    struct perf_exchange *own = perf_alloc(sizeof(*own));
    *own = *exchange;
    *state = own;
    return NULL;
}

static void moe_go(void *state, enum perf_go what)
{
    const struct perf_exchange *e = state;
    bool there = what == PERF_GO_DISPATCH || what == PERF_GO_COMBINE_BACKWARD;
    perf_net_exchange(net, there ? e->there : e->back);
}

static void moe_nothing(void *state)
{
    (void)state;
}

static void *moe_none(void *state, enum shunt_moe_buffer which)
{
    (void)state;
    (void)which;
    return NULL;
}

static const char *moe_note(void *state)
{
    (void)state;
    return NULL;
}

const struct perf_engine perf_engine_link = {
    .name = "link",
    .delivers = false,
    .call_open = call_open,
    .call_run = call_run,
    .call_close = free,
    .moe_open = moe_open,
    .moe_plan = moe_nothing,
    .moe_go = moe_go,
    .moe_release = moe_nothing,
    .moe_close = free,
    .moe_buffer = moe_none,
    .moe_note = moe_note,
};
