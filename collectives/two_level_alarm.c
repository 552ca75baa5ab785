// SPDX-License-Identifier: Apache-2.0
/* Alarms of operations in two levels; see two_level_alarm.h. */
#include "collectives/two_level_alarm.h"

#include "collectives/digest.h"
#include "collectives/two_level_peer.h"
#include "src/comm.h"

/* Drop late blocks after an alarm: none is made or copied any more. But this
 * rank's late blocks that are ready, in whole or in part, stay until they are
 * acked. A peer may be reading them, and another rank, whose call succeeds, may
 * need them. */
static void forget_late(const struct shunt_request *request,
                        struct shunti_two_level *x)
{
    for (int i = 0; i < x->npeers; i++) {
        struct shunti_peer_state *peer_state = &x->peer_states[x->order[i]];

        if (!shunti_peer_state_is_late(request, x->order[i], SHUNTI_BLOCK))
            continue;
        if (!shunti_peer_state_is_ready(request, x->order[i]) &&
            !peer_state->acked_parts)
            shunti_outgoing_drop(&peer_state->out[SHUNTI_BLOCK]);
        if (peer_state->in[SHUNTI_BLOCK].state == SHUNTI_INCOMING_OPEN)
            peer_state->in[SHUNTI_BLOCK].state = SHUNTI_INCOMING_UNWANTED;
    }
}

/* True if the alarm is about a failed read. Only the reader knows of that, so
 * it is both the blamed rank and the reporter. */
static bool is_read_failure(const struct shunti_blame *blame)
{
    return blame->rank == blame->reporter;
}

void shunti_two_level_alarm(struct shunt_request *request,
                            struct shunti_two_level *x,
                            const struct shunti_blame *blame)
{
    if (shunti_two_level_alarmed(x))
        return;
    if (x->late)
        forget_late(request, x);
    x->blame = *blame;
    x->stage = SHUNTI_STAGE_ALARM;
    if (!is_read_failure(blame))
        shunti_digest_disagrees(request, blame->signature);
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

void shunti_two_level_ack_alarm(struct shunt_request *request,
                                struct shunti_two_level *x)
{
    x->stage = SHUNTI_STAGE_ALARMED;
    for (int i = 0; i < x->npeers && is_read_failure(&x->blame); i++) {
        struct shunti_peer_state *peer_state = &x->peer_states[x->order[i]];

        if (peer_state->sending == SHUNTI_SENDING_SENT)
            shunti_peer_state_ack(request, peer_state, x->order[i],
                                  SHUNTI_ACK_ALARM);
    }
}

bool shunti_two_level_receive_alarm(struct shunt_request *request,
                                    struct shunti_two_level *x)
{
    for (int i = 0; i < x->npeers; i++) {
        const int peer = x->order[i];

        if (x->peer_states[peer].sending != SHUNTI_SENDING_SENT ||
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
