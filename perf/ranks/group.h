// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of a run, and how they communicate besides the measured calls.
 */
#ifndef SHUNT_PERF_GROUP_H
#define SHUNT_PERF_GROUP_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <shunt/comm.h>

#include "perf/ranks/hosts.h"
#include "perf/ranks/world.h"

struct perf_gate;
struct perf_net;

struct perf_group {
    int rank, ranks;
    struct shunt_comm *comm;      /* NULL: without the library */
    const struct perf_world *mpi; /* NULL: without MPI */
    struct perf_hosts hosts;
    int *node_of;           /* (ranks) node of each rank in the communicator */
    struct perf_gate *gate; /* NULL: not all ranks are on one host */
    struct perf_net *net;   /* NULL: all ranks are on one host */
    cpu_set_t cpus;         /* all processors that ranks of this host may use */
    int processors;         /* number of `cpus` */
    bool crowded;           /* more ranks than processors on some host */
};

/*
 * Become a rank: by MPI if `module` is not NULL, otherwise by the launcher's
 * environment. Creates a communicator unless `without_shunt`.
 *
 * interface  network interface to the other hosts; NULL: found by address
 */
void perf_group_open(struct perf_group *group, const struct perf_module *module,
                     bool without_shunt, const char *interface);
void perf_group_close(struct perf_group *group);

/* The places between which bytes are counted: hosts, or, on one host, the
 * communicator's nodes. Ideally a row or block is sent only once to each
 * place. */
struct perf_places {
    int n;
    const int *of; /* (ranks) place of each rank */
};
struct perf_places perf_group_places(const struct perf_group *group);

/* Collect `bytes` bytes from each rank into `all`, in rank order. Uses MPI if
 * it is loaded, so that checks of Shunt's results do not depend on Shunt. */
void perf_allgather(const struct perf_group *group, const void *mine, void *all,
                    size_t bytes);
/* The largest of all ranks' values, and their sum. */
double perf_max(const struct perf_group *group, double value);
double perf_sum(const struct perf_group *group, double value);

/*
 * Wait for all ranks, at a counter in shared memory, or by plain sockets. This
 * is neither library's barrier, so it costs all sides the same.
 */
void perf_gate_wait(const struct perf_group *group);
/* A cache line in the gate's page for other uses, zero at first. NULL: there is
 * no page. */
atomic_uint *perf_gate_line(const struct perf_group *group);
/* The kind of gate, as text. */
const char *perf_gate_name(const struct perf_group *group);

/* Pin this rank to the processor whose number is this rank's index on its host.
 * Returns the processor, or -1 if it is not pinned, with the reason in
 * `*why`. */
int perf_pin(const struct perf_group *group, bool force, const char **why);

#endif
