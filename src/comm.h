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

/* Part of a communicator: the last choices for a kind of calls. They depend
 * only on what is the same on all ranks. collectives/select.c writes it. */
struct shunti_choices {
    struct shunti_choice small, large;
};

struct shunt_comm {
    /* The ranks. init.c and init_nodes.c set these fields. After init only the
     * fields of a peer that peer.h names still change. */
    int rank, nranks;
    int nodes, node, local_rank, local_size;
    struct shunti_peer *peers; /* (nranks) */
    bool all_mapped;           /* every rank maps all others */
    bool oversubscribed;       /* this host has more ranks than CPUs */
    /* A wait begins with polls that do not read the clock: all_mapped, not
     * oversubscribed, and no timeline is recorded; init.c */
    bool polls_first;
    /* this communicator has put memory into the scratch: scratch.c */
    bool uses_scratch;

    /* Parts that every small call touches: keep them together, and short. */
    struct shunti_operations operations;
    struct shunti_requests requests;
    struct shunti_calls calls;
    struct shunti_layers layers;
    struct shunti_parked parked;
    struct shunti_deferred deferred;
    struct shunti_zcopies zcopies;
    /* small calls use only its first field */
    struct shunti_progress_thread thread;
    struct shunti_control control;
    struct shunti_tunables tune;
    struct shunt_comm_stats stats; /* each file counts its own work */
    struct shunti_choices choices[SHUNTI_KINDS_CHOSEN];
    struct shunti_failure failure; /* small calls do not use its text */

    /* Parts that waits and large calls use. */
    struct shunti_contexts contexts;
    struct shunti_waiting waiting;
    struct shunti_help help;
    struct shunti_liveness liveness;
    struct shunti_probe probe;
    struct shunti_windows windows;
    struct shunti_registration
        *registrations; /* registration.c; newest first */
    struct shunti_node_map node_map;
    /* with several nodes: rank 0's figures, on every rank */
    struct shunti_links links;
    struct shunti_engine_use engine;
    struct shunti_engine_worthwhile worthwhile;

    /* Parts that are used only when the communicator is made or ends, or when a
     * user asks. */
    struct shunti_loss_own loss;
    struct shunti_configured configured;
    /* the secret of the bootstrap: init.c */
    unsigned char secret[32];
    struct shunti_inherited inherited;  /* inherited.c */
    struct shunt_comm *next_registered; /* registry.c, under its lock */
    /* the error of the last call: shunti_fail() */
    struct shunti_error error;
    /* A request kept for refusing a call when memory has run out. NULL while
     * such a refusal is under way: request.c. */
    struct shunt_request *reserve;
};

/* Order the peers as rank + 1, rank + 2, ..., so that the ranks do not all
 * begin with the same one. The first function returns peer number i, from 0.
 * The second one returns the number of `peer`. */
static inline int shunti_nth_peer(const struct shunt_comm *comm, int i)
{
    return (comm->rank + 1 + i) % comm->nranks;
}

static inline int shunti_peer_number(const struct shunt_comm *comm, int peer)
{
    return (peer - comm->rank - 1 + comm->nranks) % comm->nranks;
}

#endif
