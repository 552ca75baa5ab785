// SPDX-License-Identifier: Apache-2.0
/*
 * The sides that are compared, and their ranks and hosts.
 */
#ifndef SHUNT_PERF_CONTEST_H
#define SHUNT_PERF_CONTEST_H

#include "perf/options/options.h"
#include "perf/peers/engine.h"
#include "perf/peers/messenger.h"
#include "perf/ranks/group.h"
#include "perf/ranks/net.h"

/* The sides, in the order in which they take turns: Shunt, the peer (--peer),
 * plain streams (--peer link), and PERF_WHOLE, one copy of as many bytes by the
 * GPU (--mem device). */
enum perf_role { PERF_OURS, PERF_PEER, PERF_LINK, PERF_WHOLE, PERF_ROLES };

struct perf_contest {
    const struct perf_options *options;
    const struct perf_group *group;
    struct perf_link link;                        /* the measured link; set only
                                                   * with several hosts */
    const struct perf_engine *engine[PERF_ROLES]; /* NULL: not measured */
    const struct perf_messenger *raw;             /* the peer of put, or NULL */
};

#endif
