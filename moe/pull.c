// SPDX-License-Identifier: Apache-2.0
/* Rows home; see pull.h. */
#include "pull.h"

#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "copy.h"
#include "error.h"
#include "note.h"
#include "rows.h"
#include "wait.h"

/* Work of one step, after which others have their turn. */
#define STEP_BYTES ((size_t)256 << 20)

struct peer {
    bool told, heard, bad, answered;
    const unsigned char *rows;
};

struct pull {
    const struct shunti_moe_call *call;
    struct shunti_plan *plan;
    struct shunti_pull what;
    struct shunti_spot rows;
    unsigned borrowed;
    bool broken;                    /* somebody's rows are missing */
    bool thanked;                   /* all have been answered */
    size_t cursor;                  /* the next token to add */
    struct shunti_rows_term *terms; /* (2, topk) of this token and the next */
    struct peer peers[];
};

static struct pull *state_of(const struct shunt_request *request)
{
    return (struct pull *)(void *)(uintptr_t)request->state;
}

static void tell(struct shunt_request *request, int r)
{
    struct pull *pull = state_of(request);
    struct shunti_note *note;

    if (pull->peers[r].told || !shunti_note_room(request, r))
        return;
    note = shunti_note_compose(request, r);
    note->way = SHUNTI_WAY_NONE;
    note->bytes = 0;
    note->word[0] = pull->rows.window;
    note->word[1] = pull->rows.offset;
    shunti_note_send(request, r, note, 0);
    pull->peers[r].told = true;
}

static void hear(struct shunt_request *request, int r)
{
    struct pull *pull = state_of(request);
    struct peer *peer = &pull->peers[r];
    const struct shunti_note *note;
    struct shunti_spot rows;

    if (peer->heard)
        return;
    note = shunti_note_arrived(request, r);
    if (!note)
        return;
    peer->heard = true;
    peer->bad = shunti_note_bad(request, r);
    if (peer->bad) {
        pull->broken = true;
        return;
    }
    rows = (struct shunti_spot){note->word[0], note->word[1]};
    peer->rows = shunti_spot_map(request->comm, r, &rows);
    if (!peer->rows && rows.window != SHUNTI_NOWHERE) {
        shunti_request_error(request, SHUNT_ERR_MISMATCH,
                             "%s: rank %d named memory that is no window",
                             pull->call->name, r);
        pull->broken = true;
    }
}

/* --- adding ------------------------------------------------------------------- */

static size_t collect(const struct pull *pull, size_t t,
                      struct shunti_rows_term *terms)
{
    const struct shunti_plan *plan = pull->plan;
    const size_t bytes = plan->moe->row_bytes;
    size_t n = plan->first[t + 1] - plan->first[t];
    const struct shunti_term *from = &plan->terms[plan->first[t]];

    for (size_t i = 0; i < n; i++)
        terms[i] = (struct shunti_rows_term){
            pull->peers[from[i].rank].rows + from[i].row * bytes,
            pull->what.weighted ? from[i].weight : 1,
            from[i].op,
            0,
        };
    return n;
}

/* Some tokens' sums; false when all are done. */
static bool add(struct pull *pull)
{
    const struct shunti_plan *plan = pull->plan;
    const struct shunt_moe *moe = plan->moe;
    const size_t bytes = moe->row_bytes;
    struct shunti_rows_term *now = pull->terms;
    struct shunti_rows_term *next = pull->terms + moe->config.topk, *swap;
    size_t n, nnext, work = 0, t = pull->cursor;

    if (t == plan->tokens)
        return false;
    nnext = collect(pull, t, next);
    for (; t < plan->tokens && work < STEP_BYTES; t++) {
        swap = now;
        now = next;
        next = swap;
        n = nnext;
        nnext = t + 1 < plan->tokens ? collect(pull, t + 1, next) : 0;
        moe->rows->sum(
            now, n, next, nnext,
            pull->what.bias ? (const unsigned char *)pull->what.bias + t * bytes
                            : NULL,
            (unsigned char *)pull->what.dst + t * bytes, moe->config.hidden);
        work += (n + 1) * bytes;
    }
    pull->cursor = t;
    return t < plan->tokens;
}

/* --- the operation --------------------------------------------------------------- */

static enum shunt_status step(struct shunt_request *request)
{
    struct pull *pull = state_of(request);
    const int nranks = pull->plan->moe->nranks, rank = pull->plan->moe->rank;
    bool all_heard = true, all_done = true;

    for (int i = 1; i < nranks; i++) {
        int r = (rank + i) % nranks;

        tell(request, r);
        hear(request, r);
        all_heard = all_heard && pull->peers[r].heard;
    }
    if (!all_heard)
        return SHUNT_IN_PROGRESS;
    if (!pull->broken && add(pull)) {
        shunti_wake_self(request->comm);
        return SHUNT_IN_PROGRESS;
    }
    for (int i = 1; i < nranks; i++) {
        int r = (rank + i) % nranks;
        struct peer *peer = &pull->peers[r];

        if (!pull->thanked && !peer->bad)
            shunti_ack(request, r, SHUNT_OK);
        if (peer->told && !peer->answered)
            peer->answered = shunti_acked(request, r);
        all_done = all_done && peer->answered;
    }
    pull->thanked = true;
    return all_done ? SHUNT_OK : SHUNT_IN_PROGRESS;
}

static bool awaits(const struct shunt_request *request, int r)
{
    const struct peer *peer = &state_of(request)->peers[r];

    return !peer->heard || !peer->answered;
}

static void cleanup(struct shunt_request *request)
{
    struct pull *pull = state_of(request);

    free(pull->terms);
    shunti_plan_unuse(pull->plan, pull->borrowed);
}

static const struct shunti_class combine_class = {
    .name = "moe_combine",
    .step = step,
    .awaits = awaits,
    .cleanup = cleanup,
};

static const struct shunti_class dispatch_backward_class = {
    .name = "moe_dispatch_backward",
    .step = step,
    .awaits = awaits,
    .cleanup = cleanup,
};

/* --- starting --------------------------------------------------------------------- */

enum shunt_status shunti_pull_start(const struct shunti_moe_call *call,
                                    struct shunti_plan *plan,
                                    const struct shunti_pull *what,
                                    struct shunt_request **out)
{
    struct shunt_moe *moe = plan->moe;
    struct shunt_comm *comm = moe->comm;
    size_t bytes = plan->total * moe->row_bytes;
    struct pull begin = {.call = call, .plan = plan, .what = *what};
    struct shunt_request *request;
    struct pull *pull;
    enum shunt_status st;

    if (!shunti_spot_of(comm, what->src, bytes, &begin.rows)) {
        unsigned char *staging = shunti_plan_buffer(plan, what->staging);

        begin.borrowed = 1u << what->staging;
        if (plan->at.borrowed & begin.borrowed)
            return shunti_moe_call_refuse(
                call, plan, SHUNT_ERR_BUSY,
                "another request of this plan is under way whose rows are no "
                "window either: wait for it, or use shunt_moe_buffer()");
        shunti_copy(staging, what->src, bytes);
        (void)shunti_spot_of(comm, staging, bytes, &begin.rows);
    }
    begin.terms = calloc(2 * (size_t)moe->config.topk, sizeof(*begin.terms));
    if (!begin.terms)
        return shunti_moe_call_refuse(call, plan, SHUNT_ERR_MEMORY,
                                      "no memory");

    shunti_comm_enter(comm);
    st = shunti_request_create(
        comm,
        call->kind == SHUNTI_KIND_MOE_COMBINE ? &combine_class
                                              : &dispatch_backward_class,
        shunti_moe_call_signature(call, plan),
        sizeof(*pull) + (size_t)moe->nranks * sizeof(pull->peers[0]), &request);
    if (st) {
        free(begin.terms);
    } else {
        pull = state_of(request);
        memcpy(pull, &begin, sizeof(begin));
        pull->peers[moe->rank] = (struct peer){
            .told = true,
            .heard = true,
            .answered = true,
            .rows = what->src,
        };
        shunti_plan_use(plan, begin.borrowed);
        /* What others read of ours. */
        comm->stats.bytes_mapped += plan->rows_lent * moe->row_bytes;
        st = shunti_request_launch(request, out);
    }
    shunti_comm_leave(comm);
    return st;
}
