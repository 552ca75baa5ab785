// SPDX-License-Identifier: Apache-2.0
/*
 * The common part of the calls on experts' state: refresh, reduce and move.
 * Each call is one operation in two levels (collectives/two_level.h). Its notes
 * carry a digest of what must agree. So every rank learns of every bad call
 * before anything is written.
 *
 * State travels packed. Exceptions are a refresh on one node, and gradients
 * that already lie in memory as if packed. Outgoing state is packed when the
 * call starts. A relay packs state that it passes on when that state has
 * arrived. Incoming state is unpacked in finish(), when all of it has arrived.
 * So after an error nothing has been written, except by a refresh on one node.
 */
#ifndef SHUNTI_STATE_CALL_H
#define SHUNTI_STATE_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/two_level.h"
#include "moe/plan.h"
#include "moe/state/expert_traffic.h"
#include "moe/state/state.h"

/* The state of an operation: x->own. */
struct shunti_state_own {
    struct shunti_state state;
    struct shunti_expert_traffic traffic;
    unsigned char *out, *in; /* packed experts, in the order of the traffic */
    void *more; /* memory that only this kind of call uses; freed by free() */
    size_t more_bytes;
    struct shunti_state to;             /* for a move: the new state */
    struct shunti_placement *placement; /* held */
    enum shunt_dtype dtype; /* for a reduction: the type of elements */
};

struct shunti_state_call {
    const char *name;
    unsigned kind;
    const struct shunti_class *class;
    const struct shunti_two_level_hooks *hooks;
    enum shunti_phases phases;
    /* Fill in what the operation, which has been created, sends and
     * receives. */
    void (*begin)(struct shunt_request *request, struct shunti_two_level *x);
};

/* A call before its operation exists: prepare it, then launch it. */
struct shunti_state_attempt {
    const struct shunti_state_call *call;
    struct shunt_moe *moe;
    struct shunti_state_own own;
    uint64_t digest;
    bool start; /* a `_start` call */
    struct shunt_request **request;
    enum shunt_status status;
    char why[192];
};

/* Begin with the exchange of a handle. False: return attempt->status. */
bool shunti_state_attempt(struct shunti_state_attempt *attempt,
                          const struct shunti_state_call *call,
                          struct shunt_moe *moe, bool start,
                          struct shunt_request **request);

/* Begin with an exchange. */
void shunti_state_attempt_of(struct shunti_state_attempt *attempt,
                             const struct shunti_state_call *call,
                             struct shunt_moe *moe, bool start,
                             struct shunt_request **request);

/* For calls on copies: fill in state, traffic and placement. After an error,
 * attempt->status and ->why are set. element: as for shunti_state_init(). */
void shunti_state_attempt_copies(struct shunti_state_attempt *attempt,
                                 const struct shunt_moe_state *state,
                                 size_t element);

/* Launch the operation. If attempt->status is an error, refuse the call
 * instead. `out_each`, `in_each`: bytes of a packed expert, for which memory is
 * allocated. Memory of the attempt that no operation takes over is freed. */
enum shunt_status shunti_state_launch(struct shunti_state_attempt *attempt,
                                      size_t out_each, size_t in_each);
/* The same with given numbers: memory for `out` experts to send, and for `in`
 * experts to receive. */
enum shunt_status shunti_state_launch_some(struct shunti_state_attempt *attempt,
                                           size_t out, size_t out_each,
                                           size_t in, size_t in_each);

/* shunti_state_own(): x->own of an operation. shunti_state_cleanup(): cleanup()
 * of the classes of all these calls. */
struct shunti_state_own *shunti_state_own(const struct shunt_request *request);
void shunti_state_cleanup(struct shunt_request *request);

/* sends: the `.sent` of the class: the bytes of payload to a peer. */
#define SHUNTI_STATE_CLASS(text, sends)                                        \
    {                                                                          \
        .name = text, .algorithm = "two_level", .step = shunti_two_level_step, \
        .awaits = shunti_two_level_awaits, .sent = (sends),                    \
        .received = shunti_two_level_received,                                 \
        .must_send = shunti_two_level_must_send,                               \
        .cleanup = shunti_state_cleanup,                                       \
    }

#endif
