// SPDX-License-Identifier: Apache-2.0
/* Agreement; see agree.h. Each rank sends one note to every other rank. In an
 * agreement by rails, it sends notes only to local peers and rail peers. */
#include "src/progress/agree.h"

#include <string.h>

#include "src/base/error.h"
#include "src/comm.h"
#include "src/op/note.h"
#include "src/progress/call.h"
#include "src/wire/failure.h"
#include "src/wire/nodes.h"

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
    int mine;   /* status of this rank */
    int posted; /* number of notes sent: to the first `posted` of `peers` */
    /* number of notes received: from the first `received` of `peers` */
    int received;
    int bad_rank; /* the first rank whose failure arrived; valid if `bad` */
    int bad;      /* status of `bad_rank`; 0: no failure has arrived */
    /* (nranks) the caller's array of numbers; NULL: the ranks send none */
    uint64_t *said;
    /* the first `local` of `peers` get their notes before the others do */
    int local;
    int count;
    int peers[]; /* (count) */
};

static struct agreement *state_of(const struct shunt_request *request)
{
    return (struct agreement *)(void *)(uintptr_t)request->state;
}

static void post(struct shunt_request *request, int most)
{
    struct agreement *state = state_of(request);

    for (; state->posted < most; state->posted++) {
        const int peer = state->peers[state->posted];
        struct shunti_note *note;

        if (!shunti_note_room(request, peer))
            return;
        note = shunti_note_compose(request, peer);
        note->way = SHUNTI_WAY_NONE;
        note->bytes = 0;
        note->status = state->mine;
        note->expects = state->said ? state->said[request->comm->rank] : 0;
        shunti_note_send(request, peer, note, 0);
    }
}

static void receive_notes(struct shunt_request *request, int most)
{
    struct agreement *state = state_of(request);

    for (; state->received < most; state->received++) {
        const int peer = state->peers[state->received];
        const struct shunti_note *note = shunti_note_arrived(request, peer);

        if (!note)
            return;
        if (shunti_note_bad(request, peer))
            continue;
        if (note->status && !shunti_is_error(note->status)) {
            shunti_comm_fail(request->comm, SHUNT_ERR_MISMATCH, peer,
                             "%s: rank %d sends status %lld, which cannot be; "
                             "do all ranks run the same version?",
                             shunti_kind_name(request->signature >> 24), peer,
                             (long long)note->status);
            return;
        }
        if (note->status && !state->bad) {
            state->bad = (int)note->status;
            state->bad_rank = peer;
        }
        if (state->said)
            state->said[peer] = note->expects;
    }
}

/* Have notes been sent to, and received from, the first `peers` peers? */
static bool is_through(struct shunt_request *request, int peers)
{
    post(request, peers);
    receive_notes(request, peers);
    return state_of(request)->posted >= peers &&
           state_of(request)->received >= peers;
}

static enum shunt_status step(struct shunt_request *request)
{
    const struct agreement *state = state_of(request);

    if (!is_through(request, state->local) ||
        !is_through(request, state->count))
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

/* Notes are sent and read in the order of `peers`. A peer whose note has
 * arrived before its turn may have completed the operation, and exited. */
static bool awaits(const struct shunt_request *request, int peer)
{
    const struct agreement *state = state_of(request);
    int i = 0;

    while (i < state->count && state->peers[i] != peer)
        i++;
    if (i == state->count || (i < state->posted && i < state->received))
        return false;
    return i >= state->posted ||
           !shunti_note_arrived((struct shunt_request *)(uintptr_t)request,
                                peer);
}

static const struct shunti_class agree_class = {
    .name = "agree",
    .step = step,
    .awaits = awaits,
    .from_notes = true,
    .rare = true,
};

/* If `by_rails`, send notes first to the ranks of this node, and then only to
 * rail peers. Otherwise to all ranks. */
static enum shunt_status agree(struct shunt_comm *comm, uint32_t signature,
                               enum shunt_status mine, uint64_t *said,
                               bool by_rails)
{
    const size_t others = (size_t)comm->nranks - 1;
    struct shunt_request *request;
    struct agreement *state;
    enum shunt_status st;

    st = shunti_request_create(
        comm, &agree_class, signature, &shunti_no_options,
        sizeof(*state) + others * sizeof(state->peers[0]), &request);
    if (st)
        return st;
    if (mine) /* the communicator's last error text is still that of `mine` */
        request->error_text = strdup(comm->error.text);
    state = state_of(request);
    state->mine = (int)mine;
    state->said = said;
    for (int i = 0; i < (int)others; i++) {
        const int peer = shunti_nth_peer(comm, i);

        if (!by_rails || comm->peers[peer].node == comm->node)
            state->peers[state->count++] = peer;
    }
    state->local = state->count;
    for (int i = 0; by_rails && i < (int)others; i++) {
        const int peer = shunti_nth_peer(comm, i);

        if (comm->peers[peer].node != comm->node &&
            shunti_is_rail_peer(comm, comm->rank, peer))
            state->peers[state->count++] = peer;
    }
    return shunti_request_launch(request, NULL);
}

enum shunt_status shunti_agree_numbers(struct shunt_comm *comm,
                                       uint32_t signature,
                                       enum shunt_status mine, uint64_t *said)
{
    return agree(comm, signature, mine, said, false);
}

enum shunt_status shunti_agree(struct shunt_comm *comm, uint32_t signature,
                               enum shunt_status mine)
{
    return agree(comm, signature, mine, NULL, false);
}

enum shunt_status shunti_agree_by_rails(struct shunt_comm *comm,
                                        uint32_t signature)
{
    return agree(comm, signature, SHUNT_OK, NULL, true);
}
