// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of a run, and how they agree on things outside of what is measured.
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
    cpu_set_t cpus;         /* those that the host's ranks may use, together */
    int processors;         /* how many these are */
    bool crowded;           /* more ranks than processors on some host */
};

/*
 * Become a rank: of MPI if `module` is not NULL, otherwise of what the
 * launcher's environment says; with a communicator unless `without_shunt`.
 *
 * interface  by which other hosts are reached; NULL: found by address
 */
void perf_group_open(struct perf_group *group, const struct perf_module *module,
                     bool without_shunt, const char *interface);
void perf_group_close(struct perf_group *group);

/* Hosts, or, on one host, the communicator's nodes: what a row or a block
 * should not cross twice. */
struct perf_places {
    int n;
    const int *of; /* (ranks) */
};
struct perf_places perf_group_places(const struct perf_group *group);

/* Collect `bytes` of each rank, in rank order. By MPI where there is MPI, so
 * that a check of our results does not rest on our own library. */
void perf_allgather(const struct perf_group *group, const void *mine, void *all,
                    size_t bytes);
/* The largest value, and the sum. */
double perf_max(const struct perf_group *group, double value);
double perf_sum(const struct perf_group *group, double value);

/*
 * Wait for all ranks, at a counter in shared memory or over plain sockets:
 * neither library's barrier, so that it costs both sides the same.
 */
void perf_gate_wait(const struct perf_group *group);
/* A cache line of the gate's page that nothing else uses, zero; NULL: there is no
 * page. */
atomic_uint *perf_gate_line(const struct perf_group *group);
/* How, in words. */
const char *perf_gate_name(const struct perf_group *group);

/* Pin this rank to the processor of its index among those of its host. Returns
 * the processor, or -1: not pinned, with the reason in `*why`. */
int perf_pin(const struct perf_group *group, bool force, const char **why);

#endif
