// SPDX-License-Identifier: Apache-2.0
/*
 * The communicator: its parts, and which file owns each.
 *
 * A part is a struct, declared in the header of the file that writes it. The
 * comment there says which other files write to it, and what (tests/layers holds
 * them to it). Besides, init.c gives parts their first values, inherited.c empties
 * them in a child of fork(), and registry.c makes what is left of a destroyed
 * communicator. All files may read all parts. One thread at a time touches a communicator (turns.h). What
 * other threads may touch meanwhile is atomic, or has a lock of its own in
 * parked.c or registry.c.
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

/* What layers above src/ keep in a communicator. src/ only reads it. */
struct shunti_above {
    uint64_t tickets; /* collectives created: collectives/exchange.h */
    uint32_t purpose; /* of operations that are created now, as registered by
                         shunti_purpose_register(); 0: none */
    bool streams;     /* they send nothing by zero copy: request.h */
    uint64_t digest;  /* of those: request.h */
    /* In an operation with a digest ranks disagree, which every rank has found:
     * about a call of one purpose, or what they call. collectives/digest.h */
    bool disagreed, strayed;
    uint8_t
        told_unfused; /* what collectives/fused/worthwhile.c has said: a bit for each call */
    /* Not NULL: the other ranks wait in a call that this rank has not made yet,
     * and must make next (moe/plan/moe_call.c). Called when this rank makes another
     * call: it sets this to NULL, and ends the pending call for the others. */
    void (*pending)(struct shunt_comm *comm);
    void *state;                           /* moe/plan/exchanges.h */
    void (*free)(struct shunt_comm *comm); /* frees it, with the communicator */
};

struct shunt_comm {
    /* The ranks. Made by init.c and init_nodes.c; nothing of it changes after
     * init but what peer.h says. */
    int rank, nranks;
    int nodes, node, local_rank, local_size;
    struct shunti_peer *peers; /* (nranks) */
    bool all_mapped;           /* every rank maps all others */
    bool oversubscribed;       /* more ranks here than CPUs */
    bool polls_first;          /* a wait begins without a look at the clock:
                                  neither of these is in the way, nor a
                                  timeline; init.c */
    bool uses_scratch;         /* it has put some: scratch.c */

    /* What every small call touches: keep it together, and short. */
    struct shunti_operations operations;
    struct shunti_requests requests;
    struct shunti_calls calls;
    struct shunti_above above;
    struct shunti_parked parked;
    struct shunti_deferred deferred;
    struct shunti_zcopies zcopies;
    struct shunti_progress_thread thread; /* its first field */
    struct shunti_control control;
    struct shunti_tunables tune;
    struct shunt_comm_stats stats; /* each file counts what it does */
    struct shunti_failure failure; /* but for its text */

    /* What waits and large calls need. */
    struct shunti_contexts contexts;
    struct shunti_waiting waiting;
    struct shunti_help help;
    struct shunti_liveness liveness;
    struct shunti_probe probe;
    struct shunti_windows windows;
    struct shunti_registration
        *registrations; /* registration.c; newest first */
    struct shunti_node_map node_map;
    struct shunti_links links; /* of several nodes: rank 0's on every rank */
    struct shunti_engine_use engine;
    struct shunti_engine_worthwhile worthwhile;

    /* What is read when it is made or ends, or a user asks. */
    struct shunti_loss_own loss;
    struct shunti_configured configured;
    unsigned char secret[32];           /* of the bootstrap: init.c */
    struct shunti_inherited inherited;  /* inherited.c */
    struct shunt_comm *next_registered; /* registry.c, under its lock */
    struct shunti_error error;          /* of the last call: shunti_fail() */
    /* For the refusal of a call for which there is no memory; NULL while one is
     * under way: request.c. */
    struct shunt_request *reserve;
};

/* The peers in the order rank + 1, rank + 2, ..., so that the ranks do not all
 * begin with the same one: peer number i, from 0, and the number of a peer. */
static inline int shunti_nth_peer(const struct shunt_comm *comm, int i)
{
    return (comm->rank + 1 + i) % comm->nranks;
}

static inline int shunti_peer_number(const struct shunt_comm *comm, int peer)
{
    return (peer - comm->rank - 1 + comm->nranks) % comm->nranks;
}

#endif
