// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of a run, and how they communicate outside of what is measured.
 */
#ifndef SHUNT_PERF_GROUP_H
#define SHUNT_PERF_GROUP_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <shunt/comm.h>

#include "perf/engine.h"
#include "perf/hosts.h"

struct perf_gate;
struct perf_net;

struct perf_group {
    int rank, ranks;
    struct shunt_comm *comm;      /* NULL: without the library */
    const struct perf_world *mpi; /* NULL: without MPI */
    struct perf_hosts hosts;
    int *node_of;           /* (ranks) in the communicator, if any */
    struct perf_gate *gate; /* on one host */
    struct perf_net *net;   /* between hosts */
    cpu_set_t cpus;         /* all that the host's ranks may use */
    int processors;         /* their number */
    bool crowded;           /* more ranks than processors on some host */
};

/*
 * Become a rank: of MPI if `module` is not NULL, otherwise by the launcher's
 * environment; with a communicator unless `without_shunt`.
 *
 * interface to the other hosts; NULL: found by address
 */
void perf_group_open(struct perf_group *group, const struct perf_module *module,
                     bool without_shunt, const char *interface);
void perf_group_close(struct perf_group *group);

/* Hosts, or on one host the communicator's nodes: a row or a block should be
 * sent to each of them only once. */
struct perf_places {
    int n;
    const int *of; /* (ranks) */
};
struct perf_places perf_group_places(const struct perf_group *group);

/* Collect `bytes` of each rank, in rank order. It uses MPI if there is one, so
 * that checks of our results do not depend on our own library. */
void perf_allgather(const struct perf_group *group, const void *mine, void *all,
                    size_t bytes);
/* The largest value, and the sum. */
double perf_max(const struct perf_group *group, double value);
double perf_sum(const struct perf_group *group, double value);

/*
 * Wait for all ranks, at a counter in shared memory or over plain sockets. It
 * is neither library's barrier, so it costs both sides the same.
 */
void perf_gate_wait(const struct perf_group *group);
/* A cache line of the gate's page that is not used otherwise, zero; NULL: there
 * is no page. */
atomic_uint *perf_gate_line(const struct perf_group *group);
/* The kind of gate, in words. */
const char *perf_gate_name(const struct perf_group *group);

/* Pin this rank to the processor with its index on its host. Returns the
 * processor, or -1: not pinned, with the reason in `*why`. */
int perf_pin(const struct perf_group *group, bool force, const char **why);

#endif
