// SPDX-License-Identifier: Apache-2.0
/*
 * Refusals: an operation that sends every peer a refusal in the place of its
 * note; see refusal.h.
 */
#include "src/op/refusal.h"

#include <stdarg.h>
#include <stdio.h>

#include "src/base/error.h"
#include "src/comm.h"
#include "src/op/note.h"
#include "src/op/operations.h"
#include "src/op/request.h"

struct refusal {
    int status;
    int next;
};

/* Send the refusal to each peer, in order, when there is room for a note. */
static enum shunt_status refusal_step(struct shunt_request *request)
{
    struct refusal *state = (struct refusal *)(void *)request->state;
    struct shunt_comm *comm = request->comm;

    for (; state->next < comm->nranks; state->next++) {
        struct shunti_note *note;

        if (state->next == comm->rank)
            continue;
        if (!shunti_note_room(request, state->next))
            return SHUNT_IN_PROGRESS;
        note = shunti_note_compose(request, state->next);
        note->way = SHUNTI_WAY_REFUSED;
        note->bytes = 0;
        note->status = state->status;
        shunti_note_send(request, state->next, note, 0);
    }
    return SHUNT_OK;
}

static bool refusal_awaits(const struct shunt_request *request, int peer)
{
    const struct refusal *state =
        (const struct refusal *)(const void *)request->state;

    return peer == state->next;
}

static const struct shunti_class refusal_class = {
    .name = "refused call",
    .step = refusal_step,
    .awaits = refusal_awaits,
    .from_notes = true,
    .rare = true,
    .reserved = true,
};

__attribute__((constructor)) static void refuse_calls_without_memory(void)
{
    shunti_request_refuse_for = shunti_request_refuse;
}

enum shunt_status shunti_request_refuse(struct shunt_comm *comm,
                                        uint32_t signature,
                                        enum shunt_status status,
                                        const char *format, ...)
{
    struct shunt_request *request;
    struct refusal *state;
    enum shunt_status st;
    char text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    st = shunti_request_create(comm, &refusal_class, signature,
                               &shunti_no_options, sizeof(struct refusal),
                               &request);
    if (st)
        return st;
    state = (struct refusal *)(void *)request->state;
    state->status = status;
    request->attachment = SHUNTI_DETACHED;
    shunti_request_begin(request);
    return shunti_fail(&comm->error, status, "%s", text);
}
