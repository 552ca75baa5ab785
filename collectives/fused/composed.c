// SPDX-License-Identifier: Apache-2.0
/* The frame around the fused calls; see composed.h. */
#include "collectives/fused/composed.h"

#include "collectives/coll_state.h"
#include "collectives/fused/worthwhile.h"
#include "src/base/error.h"
#include "src/base/kind.h"
#include "src/comm.h"
#include "src/op/refusal.h"
#include "src/progress/turns.h"
#include "src/trace/track.h"

void shunti_composed_note(struct shunt_request *request,
                          enum shunt_status status)
{
    if (!status)
        return;
    shunti_comm_enter(request->comm);
    shunti_request_error(request, status, "%s", shunti_error_last());
    shunti_comm_leave(request->comm);
}

bool shunti_composed_lost(const struct shunt_request *request)
{
    return request->error && shunt_comm_async_status(request->comm) != SHUNT_OK;
}

bool shunti_composed_over(struct shunt_request *request,
                          struct shunt_request **part, bool wait)
{
    enum shunt_status st = wait ? shunt_wait(part) : shunt_test(part);

    if (st == SHUNT_IN_PROGRESS)
        return false;
    shunti_composed_note(request, st);
    return true;
}

/* Start the collectives. If the communicator has failed, the call ends here.
 * After any other error, the caller gets the request, and shunt_wait() returns
 * the error. */
static enum shunt_status begin(const struct shunti_fused_call *call,
                               struct shunt_request *request, uint64_t digest)
{
    call->begin(request, &(struct shunti_options){
                             .purpose = call->purpose,
                             .streams = shunti_fused_streams(call->comm),
                             .digest = digest,
                         });
    if (!shunti_composed_lost(request))
        return SHUNT_OK;
    call->class->run(request, true); /* ends the operations under way */
    shunti_comm_enter(call->comm);
    shunti_fail_again(&call->comm->error, request->error_text
                                              ? request->error_text
                                              : call->comm->failure.text);
    shunti_comm_leave(call->comm);
    return request->error;
}

/* Make the blocking call without gathering the terms. The collective has a
 * digest of them: if the ranks' terms differ, it fails before the received data
 * are used. */
static enum shunt_status begin_trusting(const struct shunti_fused_call *call,
                                        struct shunt_request **request,
                                        const struct shunti_terms *terms)
{
    const uint64_t digest = shunti_terms_digest(terms, call->purpose);
    enum shunt_status st = begin(call, *request, digest);

    return st ? st : shunt_wait(request);
}

/* Gather the terms. This all-gather also has a digest, so that all ranks notice
 * if some ranks do not gather the terms. */
static enum shunt_status ask(const struct shunti_fused_call *call,
                             const struct shunti_terms *terms)
{
    return shunti_terms_agree(
        call->comm,
        &(struct shunti_options){.purpose = call->purpose, .digest = 1}, terms);
}

/* Refuse the call. The other ranks may be in the call's collective, or in the
 * all-gather of terms. They receive the refusal in either. */
static enum shunt_status refuse(const struct shunti_fused_call *call,
                                const struct shunti_terms *terms)
{
    struct shunt_comm *comm = call->comm;
    enum shunt_status st;

    shunti_comm_enter(comm);
    st = shunti_request_refuse(
        comm,
        SHUNTI_SIGNATURE(SHUNTI_KIND_ALLGATHER, SHUNT_U8, 0, call->purpose),
        (enum shunt_status)terms->check.status, "%s: %s",
        shunti_purpose_name(call->purpose), terms->check.why);
    shunti_coll_disagreed(comm);
    shunti_comm_leave(comm);
    return st;
}

/* Make the call. `again`: the ranks have disagreed, so all of them gather the
 * terms now. */
static enum shunt_status attempt(const struct shunti_fused_call *call,
                                 bool again)
{
    struct shunt_comm *comm = call->comm;
    struct shunti_coll_state *coll = shunti_coll_state(comm);
    struct shunt_request *request = NULL;
    struct shunti_terms terms = {0};
    bool trusts = !call->start && !again, well = false;
    enum shunt_status st;

    if (call->start && !call->request)
        shunti_terms_refuse(&terms, SHUNT_ERR_INVALID, "request is NULL");
    shunti_comm_enter(comm);
    coll->disagreed = coll->strayed = false;
    st = shunti_request_compose(comm, call->class, call->state_bytes, &request);
    shunti_comm_leave(comm);
    if (st)
        shunti_terms_refuse(&terms, st, "no memory for a request");
    else
        well = call->prepare(request, call->args, &terms, &trusts) &&
               !terms.check.status;
    if (well && trusts) {
        st = begin_trusting(call, &request, &terms);
        if (!st)
            return SHUNT_OK;
    } else {
        st = well || again ? ask(call, &terms) : refuse(call, &terms);
        if (!st)
            st = begin(call, request, 0);
        if (!st && !call->start)
            return shunt_wait(&request);
        if (!st) {
            *call->request = request;
            return SHUNT_OK;
        }
    }
    shunti_comm_enter(comm);
    if (request)
        shunti_request_drop(request);
    shunti_comm_leave(comm);
    return st;
}

enum shunt_status shunti_fused_call(const struct shunti_fused_call *call)
{
    const struct shunti_coll_state *coll;
    enum shunt_status st;
    SHUNTI_TRACK(LIBRARY);

    if (call->start && call->request)
        *call->request = NULL;
    if (!call->comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: comm is NULL",
                           shunti_purpose_name(call->purpose));
    coll = shunti_coll_state(call->comm);
    st = attempt(call, false);
    return st && coll->disagreed && !coll->strayed ? attempt(call, true) : st;
}
