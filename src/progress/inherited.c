// SPDX-License-Identifier: Apache-2.0
/* Communicators in a child of fork(); see inherited.h. */
#include "src/progress/inherited.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/segment.h"
#include "src/comm.h"
#include "src/op/request.h"
#include "src/wire/window.h"

/* End a request with an error, which a wait for it returns. Nothing else in the
 * child uses the request. The parent delivers its notice, and ends its
 * transfers in engines and transports. */
static void disown_request(struct shunt_request *request)
{
    request->status = request->error = SHUNT_ERR_INVALID;
    /* a wait then returns the communicator's error text, which says more */
    request->error_text = NULL;
    request->on_trial = false;
}

static void disown_requests(struct shunt_comm *comm)
{
    struct shunt_request *r;

    for (r = comm->operations.active; r; r = r->next)
        disown_request(r);
    for (r = comm->requests.newest; r; r = r->older)
        disown_request(r);
    comm->inherited.active = comm->operations.active;
    comm->operations.active = NULL;
    comm->operations.tail = &comm->operations.active;
    comm->operations.untrailed = 0;
    comm->requests.notices = 0;
}

void shunti_comm_disown(struct shunt_comm *comm)
{
    /* Only the owner's calls change the table of windows. If this thread is the
     * owner, no such call was under way at the fork(), and the table is
     * whole. */
    comm->inherited.state =
        comm->parked.owner == shunti_this_thread() ? SHUNTI_WHOLE : SHUNTI_TORN;
    comm->failure.status = (int)SHUNT_ERR_INVALID;
    comm->failure.culprit = -1;
    snprintf(comm->failure.text, sizeof(comm->failure.text),
             "the communicator was %s", SHUNTI_INHERITED);
    disown_requests(comm);
    /* The child has nothing to step or to send, and no thread of the
     * communicator. */
    comm->thread.exists = comm->thread.made = false;
    comm->parked.owner = comm->parked.home = NULL;
    comm->parked.unsent = comm->parked.ever = false;
    atomic_store(&comm->parked.put, false);
    comm->inherited.deferred = comm->deferred.first;
    comm->deferred.first = NULL;
    comm->deferred.tail = &comm->deferred.first;
    comm->contexts.count = 0;
    comm->all_mapped = true;
    comm->control.base = NULL;
    comm->calls.late.status = SHUNT_OK;
    comm->layers.unfinished = 0;
}

enum shunt_status shunti_inherited_check(const struct shunt_comm *comm)
{
    return comm->inherited.state
               ? shunti_fail(NULL, SHUNT_ERR_INVALID, "%s", comm->failure.text)
               : SHUNT_OK;
}

static void unmap(struct shunt_comm *comm, struct shunti_window *window)
{
    for (int r = 0; window->peers && r < comm->nranks; r++) {
        struct shunti_window_peer *peer = &window->peers[r];

        if (r != comm->rank && peer->map)
            comm->peers[r].transport->release(comm->peers[r].ep, peer->remote);
    }
    if (window->segment) {
        munmap(window->segment->addr, window->segment->bytes);
        close(window->segment->fd);
    }
}

void shunti_inherited_leave(struct shunt_comm *comm)
{
    if (comm->inherited.state == SHUNTI_WHOLE)
        for (size_t i = 0; i < comm->windows.count; i++)
            unmap(comm, comm->windows.all[i]);
    comm->inherited.state = SHUNTI_TORN;
}
