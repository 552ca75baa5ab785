// SPDX-License-Identifier: Apache-2.0
/*
 * How the calls of the interface run an operation; see call.h.
 */
#include "src/progress/call.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/base/inline.h"
#include "src/comm.h"
#include "src/op/engine_worthwhile.h"
#include "src/op/note.h"
#include "src/op/notice.h"
#include "src/op/operations.h"
#include "src/op/request.h"
#include "src/op/trace_request.h"
#include "src/progress/turns.h"
#include "src/progress/wait.h"
#include "src/trace/trace.h"
#include "src/trace/track.h"
#include "src/wire/contexts.h"
#include "src/wire/failure.h"

/* At most so many operations trail before a call reads the notes of their
 * peers. This is half of the operations that can be under way. */
#define TRAIL (SHUNTI_DEPTH / 2)
/* If all ranks map each other, shunt_test() looks at the transports in one of
 * so many calls. */
#define TESTS_PER_LOOK 32

SHUNTI_NOINLINE static enum shunt_status
return_late_error(struct shunt_comm *comm)
{
    const enum shunt_status st = comm->calls.late.status;

    shunti_fail(&comm->error, st, "an earlier call, which had returned: %s",
                comm->calls.late.text ? comm->calls.late.text
                                      : shunt_strerror(st));
    free(comm->calls.late.text);
    comm->calls.late.text = NULL;
    comm->calls.late.status = SHUNT_OK;
    return st;
}

/* Set the communicator's error text to that of the request, which is being
 * freed. */
SHUNTI_NOINLINE static void set_error_text(struct shunt_request *request)
{
    shunti_fail_again(&request->comm->error, shunti_request_text(request));
    shunti_request_drop_text(request);
}

/*
 * Must a wait for `request` also complete older operations? Other ranks may
 * still be in this call: they send the notes of an older operation before the
 * notes of this one. To complete the older one, they may need data that this
 * rank still has to send.
 */
static bool holds_up(const struct shunt_comm *comm,
                     const struct shunt_request *request)
{
    const struct shunt_request *older = comm->operations.active;
    const unsigned others =
        comm->operations.untrailed - (request->status == SHUNT_IN_PROGRESS);

    if (!others || !request->in_turn || comm->operations.progressing)
        return false;
    for (; older && older->seq < request->seq; older = older->next)
        if (older->class->must_send && older->class->must_send(older))
            return true;
    return false;
}

/*
 * Must this call wait until its last messages are sent? They are sent before
 * the call returns, because the caller may compute for long before its next
 * call. The wait ends a short time after `since_ns`. If the messages cannot be
 * sent, the next call notices that, with a timeout of its own.
 */
SHUNTI_NOINLINE static bool sees_off(struct shunt_comm *comm, uint64_t since_ns)
{
    double limit =
        comm->liveness.timeout / 8 < 1 ? comm->liveness.timeout / 8 : 1;

    if (comm->operations.progressing)
        return false;
    comm->parked.unsent = !shunti_all_sent(comm);
    return comm->parked.unsent && !shunt_comm_async_status(comm) &&
           (double)(shunti_now_ns() - since_ns) < limit * 1e9;
}

void shunti_request_discard(struct shunt_request *request)
{
    if (request->on_trial)
        shunti_worthwhile_end(request);
    shunti_request_drop_text(request);
    shunti_request_free(request);
}

enum shunt_status shunti_request_collect(struct shunt_request *request)
{
    enum shunt_status st = request->status;

    if (request->on_trial)
        shunti_worthwhile_end(request);
    if (st)
        set_error_text(request);
    shunti_request_free(request);
    return st;
}

enum shunt_status shunti_request_late(struct shunt_comm *comm, bool keeps_late,
                                      enum shunt_status status)
{
    return !status && comm->calls.late.status && !keeps_late
               ? return_late_error(comm)
               : status;
}

/*
 * End the call while the operation is still under way. The peers' notes are
 * read later, for several operations at once: by the next call that waits, or
 * by the call after which TRAIL operations would trail. Fetching several cache
 * lines at once from the peers' caches takes as long as fetching one.
 */
SHUNTI_NOINLINE static enum shunt_status trail(struct shunt_request *request)
{
    request->attachment = SHUNTI_TRAILING;
    request->comm->operations.untrailed--;
    if (request->notice) /* for the caller the operation has ended */
        shunti_notice_give(request);
    return SHUNT_OK;
}

SHUNTI_NOINLINE static bool settled(const struct shunt_request *request)
{
    return !request->error && request->comm->all_mapped &&
           !request->comm->operations.progressing &&
           request->class->settled(request);
}

/* Read the notes of trailing operations now, and record their errors. A peer
 * that is in this call has sent its notes of earlier operations before. A peer
 * that made another call has sent no note. The peers' counts of completed
 * operations show that; they are read only after an error. */
SHUNTI_NOINLINE static void collect_trailing(struct shunt_comm *comm)
{
    shunti_progress(comm);
    if (comm->operations.active &&
        comm->operations.active->attachment == SHUNTI_TRAILING &&
        comm->operations.active->error) {
        shunti_note_learn_completed(comm);
        shunti_progress(comm);
    }
}

enum shunt_status shunti_request_wait(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_waiter waiter = {.idle = true};
    const bool may_leave = request->class->settled != NULL;
    const bool lends = request->listed && comm->engine.learns;
    bool leaves = false;

    if (lends)
        comm->engine.lends = true;
    while (request->status == SHUNT_IN_PROGRESS) {
        if (may_leave && (leaves = settled(request)))
            break;
        shunti_waiter_pause(comm, &waiter);
        shunti_progress(comm);
    }
    while (comm->operations.active && holds_up(comm, request)) {
        shunti_waiter_pause(comm, &waiter);
        shunti_progress(comm);
    }
    if (!comm->all_mapped) {
        uint64_t since = shunti_now_ns();

        while (sees_off(comm, since)) {
            shunti_waiter_pause(comm, &waiter);
            shunti_progress(comm);
        }
    }
    if (lends)
        comm->engine.lends = false;
    shunti_waiter_end(comm, &waiter);
    if (comm->operations.active) {
        if (comm->operations.active->attachment == SHUNTI_TRAILING &&
            (!leaves || request->seq - comm->operations.active->seq >= TRAIL))
            collect_trailing(comm);
        /* The operation may have ended in collect_trailing(). */
        if (leaves && request->status == SHUNT_IN_PROGRESS)
            return trail(request);
    }
    return shunti_request_collect(request);
}

enum shunt_status shunti_request_launch(struct shunt_request *request,
                                        struct shunt_request **out)
{
    if (!out) {
        shunti_operation_begin(request);
        return shunti_request_wait(request);
    }
    shunti_request_begin(request);
    if (request->on_trial)
        shunti_worthwhile_leave(request);
    *out = request;
    request->comm->help.started = request->comm->help.may;
    if (request->traced)
        shunti_trace_request_out(request);
    /* The operation may have ended already, while its messages to other ranks
     * are not sent yet. */
    shunti_note_unsent(request->comm);
    return SHUNT_OK;
}

/* Test, or wait for, a request that is composed of others. */
SHUNTI_NOINLINE static enum shunt_status run(struct shunt_request **request,
                                             bool wait)
{
    struct shunt_request *r = *request;
    struct shunt_comm *comm = r->comm;
    enum shunt_status st;
    SHUNTI_TRACK(LIBRARY);

    st = r->class->run(r, wait);

    if (st == SHUNT_IN_PROGRESS)
        return st;
    shunti_comm_enter(comm);
    r->status = r->error ? r->error : st;
    if (r->class->cleanup)
        r->class->cleanup(r);
    st = shunti_request_late(comm, false, shunti_request_collect(r));
    *request = NULL;
    shunti_comm_leave(comm);
    return st;
}

enum shunt_status shunt_test(struct shunt_request **request)
{
    struct shunt_request *r;
    struct shunt_comm *comm;
    enum shunt_status st;

    if (!request)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "shunt_test: request is NULL");
    r = *request;
    if (!r)
        return SHUNT_OK;
    if (r->class->run && r->status == SHUNT_IN_PROGRESS)
        return run(request, false);
    comm = r->comm;
    shunti_comm_enter(comm);
    if (r->traced)
        shunti_trace_request_in(r);
    if (r->on_trial)
        shunti_worthwhile_return(r);
    if (r->status == SHUNT_IN_PROGRESS) {
        if (!r->begun_ns)
            r->begun_ns = shunti_now_ns();
        if (!comm->all_mapped || ++comm->calls.tests % TESTS_PER_LOOK == 0)
            shunti_look_around(comm);
        else
            shunti_progress(comm);
        shunti_step_others();
    }
    st = r->status;
    if (!r->begun_ns)
        r->begun_ns = shunti_now_ns();
    if (st != SHUNT_IN_PROGRESS && holds_up(comm, r)) {
        shunti_look_around(comm);
        if (holds_up(comm, r))
            st = SHUNT_IN_PROGRESS;
    }
    if (st != SHUNT_IN_PROGRESS && !comm->all_mapped &&
        sees_off(comm, r->begun_ns)) {
        shunti_look_around(comm);
        if (sees_off(comm, r->begun_ns))
            st = SHUNT_IN_PROGRESS;
    }
    if (st != SHUNT_IN_PROGRESS) {
        const bool keeps_late = r->keeps_late;

        st = shunti_request_late(comm, keeps_late, shunti_request_collect(r));
        *request = NULL;
    } else {
        if (r->traced)
            shunti_trace_request_out(r);
        if (r->on_trial)
            shunti_worthwhile_leave(r);
    }
    shunti_comm_leave(comm);
    return st;
}

enum shunt_status shunt_wait(struct shunt_request **request)
{
    struct shunt_request *r;
    struct shunt_comm *comm;
    enum shunt_status st;
    bool keeps_late;

    if (!request)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "shunt_wait: request is NULL");
    r = *request;
    if (!r)
        return SHUNT_OK;
    if (r->class->run && r->status == SHUNT_IN_PROGRESS)
        return run(request, true);
    comm = r->comm;
    shunti_comm_enter(comm);
    if (r->traced)
        shunti_trace_request_in(r);
    if (r->on_trial)
        shunti_worthwhile_return(r);
    keeps_late = r->keeps_late;
    st = shunti_request_late(comm, keeps_late, shunti_request_wait(r));
    *request = NULL;
    shunti_comm_leave(comm);
    return st;
}

enum shunt_status shunt_wait_all(struct shunt_request **requests, size_t count)
{
    enum shunt_status first = SHUNT_OK, st;
    struct shunt_comm *failed = NULL;
    char text[512];
    size_t i;

    if (count && !requests)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "shunt_wait_all: requests is NULL");
    for (i = 0; i < count; i++) {
        struct shunt_comm *comm = requests[i] ? requests[i]->comm : NULL;

        st = shunt_wait(&requests[i]);
        if (st && !first) {
            first = st;
            failed = comm;
            snprintf(text, sizeof(text), "%s", shunti_error_last());
        }
    }
    if (first) {
        shunti_comm_enter(failed);
        shunti_fail_again(&failed->error, text);
        shunti_comm_leave(failed);
    }
    return first;
}

void shunti_comm_drain(struct shunt_comm *comm)
{
    while (comm->operations.active && !shunti_comm_failed(comm)) {
        struct shunti_waiter waiter = {.idle = true};
        uint64_t before = comm->operations.finished;

        while (comm->operations.active && comm->operations.finished == before) {
            shunti_waiter_pause(comm, &waiter);
            shunti_progress(comm);
        }
        shunti_waiter_end(comm, &waiter);
    }
}
