// SPDX-License-Identifier: Apache-2.0
/*
 * The sides that are measured, and their ranks and hosts.
 */
#ifndef SHUNT_PERF_CONTEST_H
#define SHUNT_PERF_CONTEST_H

#include "perf/engine.h"
#include "perf/group.h"
#include "perf/messenger.h"
#include "perf/net.h"
#include "perf/options.h"
#include "perf/sample.h"

/* The sides, in the order in which they take turns. PERF_WHOLE, with --mem device:
 * one copy by the GPU of as many bytes. */
enum perf_role { PERF_OURS, PERF_PEER, PERF_LINK, PERF_WHOLE, PERF_ROLES };

struct perf_contest {
    const struct perf_options *options;
    const struct perf_group *group;
    struct perf_link link;                        /* several hosts */
    const struct perf_engine *engine[PERF_ROLES]; /* NULL: not measured */
    const struct perf_messenger *raw;             /* the peer of put, or NULL */
};

#endif
