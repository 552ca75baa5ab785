// SPDX-License-Identifier: Apache-2.0
/*
 * Simulated machines on which schedules run, and the part of the simulation
 * that does not depend on the network: what each rank does next.
 *
 * A rank is one thread. It copies at one rate in its own memory, and at another
 * rate between its memory and that of the other ranks of its node. Posting a
 * message and receiving one take time. Messages are sent in the order of the
 * schedule, at most `window` at once. In between, the rank serves arrived
 * messages one by one.
 */
#ifndef SHUNT_SCALING_MACHINE_H
#define SHUNT_SCALING_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/sim/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Times in seconds, rates in bytes per second. */
struct scaling_machine {
    const char *name, *about;
    double nic;         /* rate of one direction of one network port */
    bool nic_of_node;   /* true: one port for all ranks of a node; false: a port
                         * for each rank */
    double latency;     /* between ports (of one rail, if there are rails) */
    double latency_far; /* between rails, over one more level of switches */
    double taper;       /* n: between rails, all ranks of one rail together have
                         * 1/n of the rate of their ports; 0: their full rate */
    double post, take;  /* time of a message, for its sender and its receiver */
    double inside;      /* rate between ranks of a node */
    double inside_latency, inside_message; /* latency and time of a message
                                            * within a node, the latter for each
                                            * side */
    double copy;                           /* rate in a rank's own memory */
};

/* The machine of this name, or NULL. */
const struct scaling_machine *scaling_machine_named(const char *name);
const struct scaling_machine *scaling_machine_at(int i);

/* The port of a rank, and the number of ports. */
int scaling_port(const struct scaling_machine *machine,
                 const struct scaling_topology *topology, int rank);
int scaling_ports(const struct scaling_machine *machine,
                  const struct scaling_topology *topology);

static inline bool scaling_has_rails(const struct scaling_machine *machine)
{
    return !machine->nic_of_node;
}

/* --- ranks ---------------------------------------------------------------- */

struct scaling_queue {
    struct scaling_task {
        int32_t op;
        bool arrived; /* true: `op` has arrived, to be received; false: `op` is
                       * to be started */
        double ready;
    } * task;
    size_t first, count, max;
};

struct scaling_world;

/* A simulation of the network. */
struct scaling_engine {
    /* Operation `op` leaves its rank now. Call scaling_arrived() when it has
     * arrived. */
    void (*send)(struct scaling_world *world, int32_t op);
    /* `rank` is waiting, and has something to do from now on. */
    void (*wake)(struct scaling_world *world, int rank);
};

struct scaling_rank {
    struct scaling_queue sends, local;
    double free;     /* when the rank can do its next operation */
    double inside;   /* when its memory can serve another rank of its node */
    int32_t doing;   /* the operation under way until `free`; -1: none */
    int in_flight;   /* messages on their way */
    bool local_turn; /* if both queues have entries: `local` is served next */
    bool waits;
    size_t todo; /* number of operations and arrivals still to be done */
};

struct scaling_world {
    const struct scaling_schedule *schedule;
    const struct scaling_machine *machine;
    const struct scaling_engine *engine;
    int window;
    double tick; /* events of a rank closer than this are simultaneous; 0:
                  * exact */
    struct scaling_rank *ranks;
    uint32_t *count; /* (counters) */
    size_t open;     /* ranks that have something left to do */
    double end;      /* when the last operation was done */
    void *own;       /* state of the engine */
};

void scaling_world_init(struct scaling_world *world,
                        const struct scaling_schedule *schedule,
                        const struct scaling_machine *machine, int window,
                        const struct scaling_engine *engine);
void scaling_world_finish(struct scaling_world *world);

/* Let `rank` do what it can do at `now`. Returns when to call it again;
 * INFINITY: when it is woken. */
double scaling_step(struct scaling_world *world, int rank, double now);

/* Operation `op` has arrived at its peer. */
void scaling_arrived(struct scaling_world *world, int32_t op, double now);

/* --- engines: they return the seconds until all ranks are done ------------ */

/* Simulate ports that serve messages one by one, in the order of arrival. */
double scaling_run_ports(const struct scaling_schedule *schedule,
                         const struct scaling_machine *machine, int window);

/* Simulate with SimGrid: flows share ports and links fairly (max-min). Events
 * closer than `precision` seconds are simultaneous. */
double scaling_run_simgrid(const struct scaling_schedule *schedule,
                           const struct scaling_machine *machine, int window,
                           double precision);

/* Lower bounds of the time of any schedule: what the busiest port must carry,
 * what the ranks of a rail must carry to or from other rails, and what the
 * busiest rank must do. */
struct scaling_bounds {
    double port, rails, rank;
};

void scaling_bound(const struct scaling_schedule *schedule,
                   const struct scaling_machine *machine,
                   struct scaling_bounds *bounds);

#ifdef __cplusplus
}
#endif

#endif
