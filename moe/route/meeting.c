// SPDX-License-Identifier: Apache-2.0
/* Exchanging notes in a call; see meeting.h. */
#include "moe/route/meeting.h"

#include "moe/route.h"
#include "src/comm.h"
#include "src/wire/contexts.h"

void shunti_meeting_init(struct shunti_meeting *meeting, struct shunti_met *met,
                         bool two_level)
{
    const struct shunt_moe *moe = meeting->plan->moe;

    meeting->met = met;
    for (int r = 0; r < moe->nranks; r++)
        met[r].direct = !two_level || moe->node[r] == moe->node[moe->rank];
    met[moe->rank] = (struct shunti_met){
        .direct = true,
        .told = true,
        .heard = true,
        .answered = true,
    };
}

void shunti_meeting_tell(struct shunt_request *request,
                         struct shunti_meeting *meeting, int rank)
{
    struct shunti_met *met = &meeting->met[rank];
    struct shunti_note *note;

    if (met->told || !shunti_note_room(request, rank))
        return;
    /* Rail peers are told whether a local peer's call is bad. So this rank first
     * waits for the notes of all local peers. */
    if (!met->direct && !meeting->local_heard)
        return;
    met->told = true;
    if (!met->direct && meeting->alarmed) {
        shunti_note_alarm(request, rank, &meeting->blame);
        return;
    }
    note = shunti_moe_call_note(request, rank, meeting->plan, meeting->cut);
    note->word[0] = meeting->rows.window;
    note->word[1] = meeting->rows.offset;
    note->word[2] = meeting->out.window;
    note->word[3] = meeting->out.offset;
    shunti_note_send(request, rank, note, 0);
}

void shunti_meeting_skip(struct shunti_meeting *meeting, int rank)
{
    struct shunti_met *met = &meeting->met[rank];

    met->told = met->heard = true;
    met->stranger = true;
}

/* Let strangers get a note, in the next step. */
static void tell_strangers(struct shunti_meeting *meeting)
{
    const struct shunt_moe *moe = meeting->plan->moe;

    for (int r = 0; r < moe->nranks; r++) {
        struct shunti_met *met = &meeting->met[r];

        if (!met->stranger)
            continue;
        met->stranger = met->told = false;
        shunti_wake_self(moe->comm);
    }
}

enum shunti_heard shunti_meeting_hear(struct shunt_request *request,
                                      struct shunti_meeting *meeting, int rank,
                                      const struct shunti_note **note)
{
    struct shunti_met *met = &meeting->met[rank];
    struct shunti_blame blame;

    if (met->heard)
        return SHUNTI_HEARD_NOTHING;
    *note = shunti_note_arrived(request, rank);
    if (!*note)
        return SHUNTI_HEARD_NOTHING;
    met->heard = true;
    if (shunti_moe_call_agrees(request, rank, meeting->plan, meeting->cut,
                               *note, &blame))
        return SHUNTI_HEARD_CALL;
    met->answered = true;
    tell_strangers(meeting);
    if (met->direct && !meeting->alarmed) {
        meeting->alarmed = true;
        meeting->blame = blame;
    }
    return SHUNTI_HEARD_BAD;
}

bool shunti_meeting_locals_heard(const struct shunti_meeting *meeting)
{
    const int nranks = meeting->plan->moe->nranks;

    for (int r = 0; r < nranks; r++)
        if (meeting->met[r].direct && !meeting->met[r].heard)
            return false;
    return true;
}
