// SPDX-License-Identifier: Apache-2.0
/* Alarms of operations in two levels; see two_level_alarm.h. */
#include "collectives/two_level_alarm.h"

#include "collectives/digest.h"
#include "collectives/two_level_peer.h"
#include "src/comm.h"

/* After an alarm, no late block is made or copied. But this rank's late blocks
 * that are ready, in whole or in part, stay until they are acked. A peer may be
 * reading them, and another rank, whose call succeeds, may need them. */
static void forget_late(const struct shunt_request *request,
                        struct shunti_two_level *x)
{
    for (int i = 0; i < x->nlegs; i++) {
        struct shunti_peer_state *peer_state = &x->peer_states[x->order[i]];

        if (!shunti_peer_state_is_late(request, x->order[i], SHUNTI_BLOCK))
            continue;
        if (!x->is_ready && !peer_state->parts)
            shunti_outgoing_drop(&peer_state->out[SHUNTI_BLOCK]);
        peer_state->unwanted |= !peer_state->in[SHUNTI_BLOCK].done;
        peer_state->in[SHUNTI_BLOCK].done = true;
    }
}

/* Is the alarm about a failed read? Only the reader knows of that, so it names
 * itself as both the culprit and the reporter. */
static bool is_read_failure(const struct shunti_blame *blame)
{
    return blame->rank == blame->reporter;
}

void shunti_two_level_alarm(struct shunt_request *request,
                            struct shunti_two_level *x,
                            const struct shunti_blame *blame)
{
    if (x->alarmed)
        return;
    x->blame = *blame;
    x->alarmed = true;
    if (!is_read_failure(blame))
        shunti_digest_disagrees(request, blame->signature);
    if (x->late)
        forget_late(request, x);
}

void shunti_two_level_own_alarm(struct shunt_request *request,
                                struct shunti_two_level *x, int rank)
{
    struct shunti_blame blame = {.rank = rank,
                                 .reporter = rank,
                                 .status = SHUNT_ERR_REMOTE,
                                 .signature = request->signature};

    shunti_two_level_alarm(request, x, &blame);
}

void shunti_two_level_say_alarm(struct shunt_request *request,
                                struct shunti_two_level *x)
{
    x->said_so = true;
    for (int i = 0; i < x->nlegs && is_read_failure(&x->blame); i++) {
        struct shunti_peer_state *peer_state = &x->peer_states[x->order[i]];

        if (peer_state->told)
            shunti_peer_state_ack(request, peer_state, x->order[i],
                                  SHUNTI_ACK_ALARM);
    }
}

bool shunti_two_level_hear_alarm(struct shunt_request *request,
                                 struct shunti_two_level *x)
{
    for (int i = 0; i < x->nlegs; i++) {
        const int peer = x->order[i];

        if (!x->peer_states[peer].told ||
            !(shunti_acked_stage(request, peer) & SHUNTI_ACK_ALARM))
            continue;
        if (!request->error) {
            shunti_request_error(
                request, SHUNT_ERR_REMOTE,
                "%s: rank %d could not read what it needed, or has heard so "
                "(its shunt_last_error says more)",
                shunti_request_name(request), peer);
            request->second_hand = true;
        }
        shunti_two_level_own_alarm(request, x, peer);
        return true;
    }
    return false;
}
