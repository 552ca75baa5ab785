// SPDX-License-Identifier: Apache-2.0
/* The operations under way on a communicator; see operations.h. */
#include "src/op/operations.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "src/base/inline.h"
#include "src/base/scratch.h"
#include "src/comm.h"
#include "src/op/engine.h"
#include "src/op/note.h"
#include "src/op/notice.h"
#include "src/op/read.h"
#include "src/op/request.h"
#include "src/op/trace_request.h"
#include "src/trace/trace.h"
#include "src/wire/contexts.h"
#include "src/wire/failure.h"
#include "src/wire/wire.h"

/* Publish which operations this rank has completed, so that peers can use their
 * note slots again. A peer that waits for a slot has already sent this rank its
 * notes of the next SHUNTI_DEPTH operations. So this rank can complete these
 * operations without the peer. It wakes mapped peers once in SHUNTI_DEPTH / 2
 * operations. It considers credits for other peers twice as often, well before
 * they run out of slots. */
static void publish_completed(struct shunt_comm *comm)
{
    uint64_t old = comm->operations.completed;
    uint64_t now = (comm->operations.active ? comm->operations.active->seq
                                            : comm->operations.next_seq) -
                   1;
    int r;

    if (now == old)
        return;
    comm->operations.completed = now;
    /* Pairs with the acquire in shunti_note_room(). */
    __atomic_store_n((uint64_t *)(void *)(comm->control.base +
                                          comm->control.layout.completed),
                     now, __ATOMIC_RELEASE);
    if (!comm->all_mapped &&
        now / (SHUNTI_DEPTH / 4) != old / (SHUNTI_DEPTH / 4))
        shunti_give_credits(comm, false);
    if (now / (SHUNTI_DEPTH / 2) == old / (SHUNTI_DEPTH / 2))
        return;
    for (r = 0; r < comm->nranks; r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (r != comm->rank && p->ep && p->control)
            p->transport->wake(p->ep);
    }
}

static void unlink_active(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;
    struct shunt_request **at = &comm->operations.active;

    while (*at != request)
        at = &(*at)->next;
    *at = request->next;
    if (!*at)
        comm->operations.tail = at;
}

/* End all transfers that use the caller's memory. over: the communicator has
 * failed or is being destroyed. */
static void give_memory_back(struct shunt_request *request, bool over)
{
    if (request->comm->zcopies.open)
        shunti_zcopy_end(request, over);
    if (request->copies)
        shunti_copies_end(request);
    if (request->reads)
        shunti_reads_end(request);
}

/* The status of a request that ends with `status`. An abort ends every pending
 * call with its own status, also a call with an error of its own. Ranks may
 * disagree only because the rank that aborted was in another call. The abort
 * word arrives behind the control message of that rank, so this rank may not
 * have read it yet. */
static enum shunt_status outcome(struct shunt_request *request,
                                 enum shunt_status status)
{
    if (!request->error)
        return status;
    shunti_transports_progress(request->comm);
    if (shunti_comm_failed(request->comm) == SHUNT_ERR_ABORTED) {
        shunti_request_drop_text(request); /* the text is that of the abort */
        request->error = SHUNT_OK;
        return SHUNT_ERR_ABORTED;
    }
    return request->error;
}

static void finish(struct shunt_request *request, enum shunt_status status)
{
    struct shunt_comm *comm = request->comm;

    request->status = outcome(request, status);
    if (request->status)
        shunti_request_keep_text(request);
    assert(!request->reads || comm->failure.status);
    give_memory_back(request, comm->failure.status != 0);
    if (request->class->cleanup)
        request->class->cleanup(request);
    unlink_active(request);
    if (request->attachment != SHUNTI_TRAILING)
        comm->operations.untrailed--;
    publish_completed(comm);
    comm->operations.finished++;
    comm->stats.operations++;
    if (shunti_trace_enabled())
        shunti_trace_request(request);
    if (request->traced)
        shunti_request_drop_traced(request);
    if (request->notice)
        shunti_notice_give(request);
    if (request->attachment != SHUNTI_ATTACHED)
        shunti_request_free(request);
}

static void advance(struct shunt_request *request)
{
    enum shunt_status st;

    if (request->stepping)
        return;
    /* Before a step only a failure that is known here counts, not the abort
     * word. The rank that wrote the abort word may have finished this
     * operation, and then this rank can finish it, too. */
    st = request->comm->failure.status ? shunti_comm_failed(request->comm)
                                       : SHUNT_OK;
    if (!st) {
        request->stepping = true;
        st = request->class->step(request);
        request->stepping = false;
    }
    /* A rank that gives up writes this rank's abort word before its call
     * returns and its caller uses the memory for something else. So the data
     * that this step has read from that memory is valid only if the abort word
     * is still unset afterwards. */
    if (st == SHUNT_IN_PROGRESS || !request->class->from_notes) {
        enum shunt_status over;

        atomic_thread_fence(memory_order_acquire);
        over = shunti_comm_failed(request->comm);
        if (over)
            st = over;
        else if (st == SHUNT_IN_PROGRESS)
            return;
    }
    finish(request, st);
}

void shunti_progress(struct shunt_comm *comm)
{
    struct shunt_request *request = comm->operations.active, *next;

    /* this call comes from a step of an operation */
    if (comm->operations.progressing)
        return;
    comm->operations.progressing = true;
    if (comm->deferred.first)
        shunti_control_retry(comm);
    for (; request; request = next) {
        next = request->next;
        /* A trailing operation is stepped only when it is the oldest. No call
         * waits for it, and its end can be published only after the end of all
         * older operations. */
        if (request->attachment == SHUNTI_TRAILING &&
            request != comm->operations.active) {
            if (!comm->operations.untrailed)
                break;
            continue;
        }
        advance(request);
    }
    comm->operations.progressing = false;
}

void shunti_operation_begin(struct shunt_request *request)
{
    if (shunti_trace_enabled())
        shunti_trace_request_begin(request);
    advance(request);
}

void shunti_request_begin(struct shunt_request *request)
{
    shunti_request_list(request);
    shunti_operation_begin(request);
}

void shunti_requests_drop(struct shunt_comm *comm)
{
    struct shunt_request *request;

    comm->operations.untrailed = 0;
    while ((request = comm->operations.active)) {
        comm->operations.active = request->next;
        give_memory_back(request, true);
        if (request->class->cleanup)
            request->class->cleanup(request);
        shunti_request_drop_traced(request);
        if (request->notice)
            shunti_notice_give(request);
        if (!request->listed) {
            shunti_request_drop_text(request);
            shunti_request_free(request);
        }
    }
    for (request = comm->requests.newest; request; request = request->older)
        if (request->class->run && request->status == SHUNT_IN_PROGRESS) {
            /* the communicator has ended */
            request->status = SHUNT_ERR_INVALID;
            if (request->class->cleanup)
                request->class->cleanup(request);
        }
    while ((request = comm->requests.spare)) {
        comm->requests.spare = request->next;
        free(request);
    }
}

void shunti_requests_free(struct shunt_comm *comm)
{
    struct shunt_request *request;

    shunti_requests_drop(comm);
    while ((request = comm->requests.newest)) {
        comm->requests.newest = request->older;
        free(request->error_text);
        free(request);
    }
    shunti_scratch_leave(comm);
}
