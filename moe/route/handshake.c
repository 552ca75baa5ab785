// SPDX-License-Identifier: Apache-2.0
/* Exchanging notes in a call; see handshake.h. */
#include "moe/route/handshake.h"

#include "moe/route.h"
#include "src/comm.h"
#include "src/wire/contexts.h"

void shunti_handshake_init(struct shunti_handshake *handshake,
                           struct shunti_handshake_notes *notes, bool two_level)
{
    const struct shunt_moe *moe = handshake->plan->moe;

    handshake->notes = notes;
    for (int r = 0; r < moe->nranks; r++)
        notes[r].direct = !two_level || moe->node[r] == moe->node[moe->rank];
    notes[moe->rank] = (struct shunti_handshake_notes){
        .direct = true,
        .sent = true,
        .received = true,
        .answered = true,
    };
}

void shunti_handshake_send(struct shunt_request *request,
                           struct shunti_handshake *handshake, int rank)
{
    struct shunti_handshake_notes *notes = &handshake->notes[rank];
    struct shunti_note *note;

    if (notes->sent || !shunti_note_room(request, rank))
        return;
    /* A note to a rail peer also says whether a local peer's call is bad. So
     * this rank first waits for the notes of all local peers. */
    if (!notes->direct && !handshake->local_received)
        return;
    notes->sent = true;
    if (!notes->direct && handshake->alarmed) {
        shunti_note_alarm(request, rank, &handshake->blame);
        return;
    }
    note = shunti_moe_call_note(request, rank, handshake->plan, handshake->cut);
    note->word[0] = handshake->rows.window;
    note->word[1] = handshake->rows.offset;
    note->word[2] = handshake->out.window;
    note->word[3] = handshake->out.offset;
    shunti_note_send(request, rank, note, 0);
}

void shunti_handshake_skip(struct shunti_handshake *handshake, int rank)
{
    struct shunti_handshake_notes *notes = &handshake->notes[rank];

    notes->sent = notes->received = true;
    notes->stranger = true;
}

/* Let strangers get a note in the next step of the request. */
static void tell_strangers(struct shunti_handshake *handshake)
{
    const struct shunt_moe *moe = handshake->plan->moe;

    for (int r = 0; r < moe->nranks; r++) {
        struct shunti_handshake_notes *notes = &handshake->notes[r];

        if (!notes->stranger)
            continue;
        notes->stranger = notes->sent = false;
        shunti_wake_self(moe->comm);
    }
}

enum shunti_handshake_result
shunti_handshake_receive(struct shunt_request *request,
                         struct shunti_handshake *handshake, int rank,
                         const struct shunti_note **note)
{
    struct shunti_handshake_notes *notes = &handshake->notes[rank];
    struct shunti_blame blame;

    if (notes->received)
        return SHUNTI_HANDSHAKE_NOTHING;
    *note = shunti_note_arrived(request, rank);
    if (!*note)
        return SHUNTI_HANDSHAKE_NOTHING;
    notes->received = true;
    if (shunti_moe_call_agrees(request, rank, handshake->plan, handshake->cut,
                               *note, &blame))
        return SHUNTI_HANDSHAKE_CALL;
    notes->answered = true;
    tell_strangers(handshake);
    if (notes->direct && !handshake->alarmed) {
        handshake->alarmed = true;
        handshake->blame = blame;
    }
    return SHUNTI_HANDSHAKE_BAD;
}

bool shunti_handshake_has_locals(const struct shunti_handshake *handshake)
{
    const int nranks = handshake->plan->moe->nranks;

    for (int r = 0; r < nranks; r++)
        if (handshake->notes[r].direct && !handshake->notes[r].received)
            return false;
    return true;
}
