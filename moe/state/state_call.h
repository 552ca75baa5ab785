// SPDX-License-Identifier: Apache-2.0
/*
 * The frame around the calls on experts' state: refresh, reduce and move. Each is
 * one operation in two levels (collectives/two_level.h), whose control messages
 * carry a digest of what must agree. So every rank learns of every bad call
 * before anything is written.
 *
 * What travels is packed, but for a refresh on one node, and for gradients that lie
 * in one piece already. Outgoing state is packed in the call, or, where a relay
 * passes it on, when it has arrived; what comes is unpacked when all of it is
 * here, in finish(). So after an error nothing has been written but copies, by a
 * refresh on one node.
 */
#ifndef SHUNTI_STATE_CALL_H
#define SHUNTI_STATE_CALL_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/two_level.h"
#include "moe/plan.h"
#include "moe/state/expert_traffic.h"
#include "moe/state/state.h"

/* What an operation has: x->own. */
struct shunti_state_own {
    struct shunti_state state;
    struct shunti_expert_traffic traffic;
    unsigned char *out, *in; /* packed experts, in the order of the traffic */
    void *more;              /* the call's own memory: free() */
    size_t more_bytes;
    struct shunti_state to;             /* of a move */
    struct shunti_placement *placement; /* held */
    enum shunt_dtype dtype;             /* of a reduction */
};

struct shunti_state_call {
    const char *name;
    unsigned kind;
    const struct shunti_class *class;
    const struct shunti_two_level_hooks *hooks;
    bool locals_first;
    /* The operation exists: fill in what goes over its traffic. */
    void (*begin)(struct shunt_request *request, struct shunti_two_level *x);
};

/* An attempt: prepare, then launch; both on the communicator of `moe`. */
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

/* Begin: the exchange of a handle. False: return attempt->status. */
bool shunti_state_attempt(struct shunti_state_attempt *attempt,
                          const struct shunti_state_call *call,
                          struct shunt_moe *moe, bool start,
                          struct shunt_request **request);

/* The same, of an exchange. */
void shunti_state_attempt_of(struct shunti_state_attempt *attempt,
                             const struct shunti_state_call *call,
                             struct shunt_moe *moe, bool start,
                             struct shunt_request **request);

/* For copies: state, traffic and the placement; attempt->status says what is wrong.
 * element: as for shunti_state_init(). */
void shunti_state_attempt_copies(struct shunti_state_attempt *attempt,
                                 const struct shunt_moe_state *state,
                                 size_t element);

/* attempt->own has state and traffic, or attempt->status says what is wrong: get
 * memory and go, or refuse. `out_each`, `in_each`: bytes of a packed expert.
 * Frees what it does not use. */
enum shunt_status shunti_state_launch(struct shunti_state_attempt *attempt,
                                      size_t out_each, size_t in_each);
/* The same without traffic: so many of each go out, and come in. */
enum shunt_status shunti_state_launch_some(struct shunti_state_attempt *attempt,
                                           size_t out, size_t out_each,
                                           size_t in, size_t in_each);

/* The own part of an operation, and what its class needs. */
struct shunti_state_own *shunti_state_own(const struct shunt_request *request);
void shunti_state_cleanup(struct shunt_request *request);

/* sends: the bytes of payload to a peer, as .sent of the class. */
#define SHUNTI_STATE_CLASS(text, sends)                                        \
    {                                                                          \
        .name = text, .algorithm = "two_level", .step = shunti_two_level_step, \
        .awaits = shunti_two_level_awaits, .sent = (sends),                    \
        .heard = shunti_two_level_heard, .owes = shunti_two_level_owes,        \
        .cleanup = shunti_state_cleanup,                                       \
    }

#endif
