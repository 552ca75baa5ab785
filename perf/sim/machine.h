// SPDX-License-Identifier: Apache-2.0
/*
 * Machines that schedules are carried out on, and the part of it that does not
 * depend on how the network is simulated: what each rank does next.
 *
 * A rank is one thread. It copies at one rate in its own memory and at another
 * between its own and its neighbours'; posting a message and taking one cost it
 * time. Sends go out in the order of the schedule, as many at once as the
 * window allows; what has arrived is served in between, one by one.
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

/* Seconds, bytes per second. */
struct scaling_machine {
    const char *name, *about;
    double nic;         /* one direction of one network port */
    bool nic_of_node;   /* one for all ranks of a node; else each has its own */
    double latency;     /* between ports; of one rail, if there are rails */
    double latency_far; /* between rails, over one more level of switches */
    double taper;       /* n: between rails, all ranks of one have an n-th of
                           their ports' sum; 0: all of it */
    double post, take;  /* a message, at its sender and receiver */
    double inside;      /* between ranks of a node */
    double inside_latency, inside_message; /* the same there; both sides */
    double copy;                           /* in a rank's own memory */
};

/* NULL: there is none of this name. */
const struct scaling_machine *scaling_machine_named(const char *name);
const struct scaling_machine *scaling_machine_at(int i);

/* The port of a rank, and how many there are. */
int scaling_port(const struct scaling_machine *machine,
                 const struct scaling_topology *topology, int rank);
int scaling_ports(const struct scaling_machine *machine,
                  const struct scaling_topology *topology);

static inline bool scaling_has_rails(const struct scaling_machine *machine)
{
    return !machine->nic_of_node;
}

/* --- ranks -------------------------------------------------------------------- */

struct scaling_queue {
    struct scaling_task {
        int32_t op;
        bool arrived; /* else it is to be begun */
        double ready;
    } * task;
    size_t first, count, max;
};

struct scaling_world;

/* How the network is simulated. */
struct scaling_engine {
    /* Operation `op` leaves its rank now; when it has arrived,
     * scaling_arrived() is to be called. */
    void (*send)(struct scaling_world *world, int32_t op);
    /* `rank` waits, and has something to do from now on. */
    void (*wake)(struct scaling_world *world, int rank);
};

struct scaling_rank {
    struct scaling_queue sends, local;
    double free;     /* when it can do the next thing */
    double inside;   /* when its memory can take more of its neighbours */
    int32_t doing;   /* operation that it is at, until `free`; -1: none */
    int in_flight;   /* messages on their way */
    bool local_turn; /* what is served next, if there is both */
    bool waits;
    size_t todo; /* operations and arrivals that are left */
};

struct scaling_world {
    const struct scaling_schedule *schedule;
    const struct scaling_machine *machine;
    const struct scaling_engine *engine;
    int window;
    double tick; /* no rank sleeps for less; 0: exact */
    struct scaling_rank *ranks;
    uint32_t *count; /* (counters) */
    size_t open;     /* ranks that have something left */
    double end;      /* when the last was done */
    void *own;       /* the engine's */
};

void scaling_world_init(struct scaling_world *world,
                        const struct scaling_schedule *schedule,
                        const struct scaling_machine *machine, int window,
                        const struct scaling_engine *engine);
void scaling_world_finish(struct scaling_world *world);

/* What `rank` can do at `now`. Returns when it is to be called again;
 * INFINITY: when it is woken. */
double scaling_step(struct scaling_world *world, int rank, double now);

/* Operation `op` has come to its peer. */
void scaling_arrived(struct scaling_world *world, int32_t op, double now);

/* --- engines: seconds until everybody is done -------------------------------------- */

/* Ports that serve messages one by one, in the order in which they come. */
double scaling_run_ports(const struct scaling_schedule *schedule,
                         const struct scaling_machine *machine, int window);

/* SimGrid: flows that share ports and links fairly (max-min). precision: times
 * closer than that are one, in seconds. */
double scaling_run_simgrid(const struct scaling_schedule *schedule,
                           const struct scaling_machine *machine, int window,
                           double precision);

/* No schedule ends before: what the busiest port must carry, what all of a
 * rail must carry to or from others, and what the busiest rank must do. */
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
