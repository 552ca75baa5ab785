// SPDX-License-Identifier: Apache-2.0
/*
 * Barrier by dissemination. First the ranks of each node exchange control
 * messages. Then each rank sends ceil(log2(nodes)) messages to other nodes, one
 * in each round (two_level.h). In two levels it would send nodes - 1. A rank
 * that has received all of its messages knows that all ranks have entered the
 * barrier, and that all made the same call.
 *
 * In other algorithms most pairs of ranks exchange control messages, and learn
 * from them how many operations the peer has completed, and so which slots are
 * free (src/op/note.h). Here most pairs exchange none. So a message carries the
 * least such number of all ranks whose numbers have reached its sender. At the
 * end, a rank knows the least number of all ranks.
 *
 * The number of this rank may be news to a peer that is still in the barrier,
 * behind an older operation that waits for this rank's credit. So credits are
 * left out as always: when the peer's notes say that it knows the number.
 */
#include "collectives/barrier_dissemination.h"

#include <string.h>

#include "collectives/coll_call.h"
#include "collectives/two_level.h"
#include "src/comm.h"

struct state {
    /* the package: every rank whose number has reached this one had completed so
     * many operations when it entered the barrier */
    uint64_t completed;
};

static struct state *state_of(const struct shunti_two_level *x)
{
    return x->own;
}

static bool arrived(struct shunt_request *request, struct shunti_two_level *x,
                    int peer)
{
    uint64_t completed;

    (void)request;
    memcpy(&completed, x->peer_states[peer].in[SHUNTI_PACKAGE].at,
           sizeof(completed));
    if (completed < state_of(x)->completed)
        state_of(x)->completed = completed;
    return true;
}

static void finish(struct shunt_request *request, struct shunti_two_level *x)
{
    shunti_note_all_completed(request->comm, state_of(x)->completed);
}

static const struct shunti_two_level_hooks hooks = {.arrived = arrived,
                                                    .finish = finish};

static const struct shunti_class dissemination_class = {
    .name = "barrier",
    .algorithm = "dissemination",
    .step = shunti_two_level_step,
    .awaits = shunti_two_level_awaits,
    .sent = shunti_two_level_sent,
    .received = shunti_two_level_received,
    .must_send = shunti_two_level_must_send,
    .cleanup = shunti_two_level_cleanup,
};

enum shunt_status shunti_barrier_dissemination(const struct shunti_coll *call,
                                               uint32_t signature,
                                               struct shunt_request **request)
{
    struct shunti_two_level *x;
    struct state *s;
    enum shunt_status st =
        shunti_two_level_create(call, &dissemination_class, &hooks, signature,
                                SHUNTI_ROUNDS, sizeof(*s), request, &x);

    if (st)
        return st;
    x->agreed = true;
    s = state_of(x);
    s->completed = call->comm->operations.completed;
    for (int i = 0; i < x->npeers; i++) {
        struct shunti_peer_state *peer_state = &x->peer_states[x->order[i]];

        /* The package is read when it is sent: after all earlier phases. */
        if (peer_state->send_phase) {
            peer_state->out[SHUNTI_PACKAGE].data = &s->completed;
            peer_state->out[SHUNTI_PACKAGE].bytes = sizeof(s->completed);
        }
        if (peer_state->phase)
            peer_state->in[SHUNTI_PACKAGE].bytes = sizeof(s->completed);
    }
    return SHUNT_OK;
}
