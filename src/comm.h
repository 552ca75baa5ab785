// SPDX-License-Identifier: Apache-2.0
/*
 * The communicator: its parts, and which file owns each.
 *
 * A part is a struct, declared in the header of the file that writes it. The
 * comment of the struct names the other files that write to the part, and what
 * they write; tests/layers checks this. Three files are exempt. init.c sets the
 * first values. inherited.c empties the parts in a child of fork(). registry.c
 * makes the structure that remains of a destroyed communicator. All files may
 * read all parts.
 *
 * One thread at a time touches a communicator (turns.h). Fields that other
 * threads touch meanwhile are atomic, or have a lock of their own in parked.c
 * or registry.c.
 */
#ifndef SHUNTI_COMM_H
#define SHUNTI_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include <shunt/comm.h>

#include "src/base/error.h"
#include "src/comm/init.h"
#include "src/comm/link.h"
#include "src/op/engine.h"
#include "src/op/engine_worthwhile.h"
#include "src/op/layer.h"
#include "src/op/operations.h"
#include "src/op/request.h"
#include "src/op/zcopy.h"
#include "src/progress/call.h"
#include "src/progress/helper.h"
#include "src/progress/inherited.h"
#include "src/progress/liveness.h"
#include "src/progress/parked.h"
#include "src/progress/probe.h"
#include "src/progress/progress.h"
#include "src/progress/wait.h"
#include "src/tunables.h"
#include "src/wire/contexts.h"
#include "src/wire/control.h"
#include "src/wire/failure.h"
#include "src/wire/loss.h"
#include "src/wire/nodes.h"
#include "src/wire/peer.h"
#include "src/wire/window.h"
#include "src/wire/wire.h"

struct shunti_registration;

/* The algorithm of calls of low <= bytes < low + width. */
struct shunti_choice {
    size_t low, width; /* width 0: not known yet */
    uint8_t algorithm; /* enum shunti_algorithm */
};

/* Part of a communicator: the algorithms chosen last for one kind of calls, for
 * small and for large calls. A choice depends only on values that are the same
 * on all ranks. collectives/select.c writes it. */
struct shunti_choices {
    struct shunti_choice small, large;
};

struct shunt_comm {
    /* The ranks. init.c and init_nodes.c set these fields. After init, only
     * those fields of a peer change for which peer.h names a writer. */
    int rank, nranks;
    int nodes, node, local_rank, local_size;
    struct shunti_peer *peers; /* (nranks) */
    bool all_mapped;           /* every rank maps all others' memory */
    bool oversubscribed;       /* this host has more ranks than CPUs */
    /* True if a wait begins with polls that do not read the clock. Set by
     * init.c if all_mapped, not oversubscribed, and no timeline is recorded. */
    bool polls_first;
    /* this communicator has returned memory to the scratch; set by scratch.c */
    bool uses_scratch;

    /* Parts that every small call touches: keep them together, and short. */
    struct shunti_operations operations;
    struct shunti_requests requests;
    struct shunti_calls calls;
    struct shunti_layers layers;
    struct shunti_parked parked;
    struct shunti_deferred deferred;
    struct shunti_zcopies zcopies;
    /* small calls use only the first field of this part */
    struct shunti_progress_thread thread;
    struct shunti_control control;
    struct shunti_tunables tune;
    struct shunt_comm_stats stats; /* each file counts its own work */
    struct shunti_choices choices[SHUNTI_KINDS_CHOSEN];
    struct shunti_failure failure; /* small calls do not use `text` */

    /* Parts that waits and large calls use. */
    struct shunti_contexts contexts;
    struct shunti_waiting waiting;
    struct shunti_help help;
    struct shunti_liveness liveness;
    struct shunti_probe probe;
    struct shunti_windows windows;
    struct shunti_registration
        *registrations; /* list, newest first; registration.c writes it */
    struct shunti_node_map node_map;
    /* with several nodes: the costs that rank 0 measured, the same on every
     * rank */
    struct shunti_links links;
    struct shunti_engine_use engine;
    struct shunti_engine_worthwhile worthwhile;

    /* Parts that are used only when the communicator is made or ends, or when a
     * user asks. */
    struct shunti_loss_own loss;
    struct shunti_configured configured;
    /* the secret of the bootstrap; init.c sets it */
    unsigned char secret[32];
    struct shunti_inherited inherited; /* inherited.c writes it */
    /* next one in the registry; registry.c, under its lock */
    struct shunt_comm *next_registered;
    /* the error of the last call: shunti_fail() */
    struct shunti_error error;
    /* A request kept for refusing a call when memory has run out. NULL while
     * such a refusal is under way: request.c. */
    struct shunt_request *reserve;
};

/* The order in which this rank handles its peers: rank + 1, rank + 2, ... So
 * the ranks do not all begin with the same peer. shunti_nth_peer() returns peer
 * number i of that order, from 0. shunti_peer_number() returns the number of
 * `peer` in it. */
static inline int shunti_nth_peer(const struct shunt_comm *comm, int i)
{
    return (comm->rank + 1 + i) % comm->nranks;
}

static inline int shunti_peer_number(const struct shunt_comm *comm, int peer)
{
    return (peer - comm->rank - 1 + comm->nranks) % comm->nranks;
}

#endif
