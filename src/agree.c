// SPDX-License-Identifier: Apache-2.0
/* Agreement; see agree.h. Each rank sends one note to every other. */
#include "src/agree.h"

#include "src/call.h"
#include "src/comm.h"
#include "src/note.h"

static const struct shunti_kind agreements[] = {
    {.number = SHUNTI_KIND_MEM_ALLOC, .name = "mem_alloc"},
    {.number = SHUNTI_KIND_MEM_FREE, .name = "mem_free"},
    {.number = SHUNTI_KIND_CREATE, .name = "comm_create"},
    {.number = SHUNTI_KIND_FINISH, .name = "comm_finish"},
};

__attribute__((constructor)) static void register_kinds(void)
{
    for (size_t i = 0; i < sizeof(agreements) / sizeof(*agreements); i++)
        shunti_kind_register(&agreements[i]);
}

struct agreement {
    int mine;
    int posted;   /* notes sent so far, to rank + 1, rank + 2, ... */
    int heard;    /* notes received, from the same */
    int bad_rank; /* the first rank found that failed, and its status */
    int bad;
    uint64_t *said; /* (nranks), the caller's; NULL: no numbers */
};

static struct agreement *state_of(const struct shunt_request *request)
{
    return (struct agreement *)(void *)(uintptr_t)request->state;
}

static enum shunt_status step(struct shunt_request *request)
{
    struct agreement *state = state_of(request);
    struct shunt_comm *comm = request->comm;
    const int peers = comm->nranks - 1;

    while (state->posted < peers) {
        int peer = shunti_nth_peer(comm, state->posted);
        struct shunti_note *note;

        if (!shunti_note_room(request, peer))
            break;
        note = shunti_note_compose(request, peer);
        note->way = SHUNTI_WAY_NONE;
        note->bytes = 0;
        note->status = state->mine;
        note->expects = state->said ? state->said[comm->rank] : 0;
        shunti_note_send(request, peer, note, 0);
        state->posted++;
    }
    while (state->heard < peers) {
        int peer = shunti_nth_peer(comm, state->heard);
        const struct shunti_note *note = shunti_note_arrived(request, peer);

        if (!note)
            break;
        if (!shunti_note_bad(request, peer)) {
            if (note->status && !state->bad) {
                state->bad = (int)note->status;
                state->bad_rank = peer;
            }
            if (state->said)
                state->said[peer] = note->expects;
        }
        state->heard++;
    }
    if (state->posted < peers || state->heard < peers)
        return SHUNT_IN_PROGRESS;
    if (state->mine)
        return (enum shunt_status)state->mine;
    if (state->bad)
        return shunti_request_error(
            request, SHUNT_ERR_REMOTE, "%s: failed on rank %d: %s",
            shunti_kind_name(request->signature >> 24), state->bad_rank,
            shunt_strerror((enum shunt_status)state->bad));
    return SHUNT_OK;
}

/* Peers are sent to and read in the order rank + 1, rank + 2, ... A peer whose
 * note has arrived before its turn may have completed the operation, and
 * exited. */
static bool awaits(const struct shunt_request *request, int peer)
{
    const struct shunt_comm *comm = request->comm;
    int i = shunti_peer_number(comm, peer);

    if (i < state_of(request)->posted && i < state_of(request)->heard)
        return false;
    return i >= state_of(request)->posted ||
           !shunti_note_arrived((struct shunt_request *)(uintptr_t)request,
                                peer);
}

static const struct shunti_class agree_class = {
    .name = "agree",
    .step = step,
    .awaits = awaits,
    .from_notes = true,
};

enum shunt_status shunti_agree_numbers(struct shunt_comm *comm, unsigned kind,
                                       enum shunt_status mine, uint64_t *said)
{
    struct shunt_request *request;
    enum shunt_status st;

    st = shunti_request_create(comm, &agree_class,
                               SHUNTI_SIGNATURE(kind, 0, 0, 0),
                               sizeof(struct agreement), &request);
    if (st)
        return st;
    state_of(request)->mine = (int)mine;
    state_of(request)->said = said;
    return shunti_request_launch(request, NULL);
}

enum shunt_status shunti_agree(struct shunt_comm *comm, unsigned kind,
                               enum shunt_status mine)
{
    return shunti_agree_numbers(comm, kind, mine, NULL);
}
