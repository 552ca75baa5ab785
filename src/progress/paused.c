// SPDX-License-Identifier: Apache-2.0
/* Calls that pause while their caller is away; see paused.h. */
#include "src/progress/paused.h"

#include "src/comm.h"
#include "src/op/request.h"

bool shunti_wants_steps(const struct shunt_comm *comm)
{
    const struct shunt_request *r = comm->operations.active;

    /* A communicator that failed needs steps until its messages to peers are
     * sent. */
    if (comm->deferred.first || comm->parked.unsent)
        return true;
    if (comm->requests.notices)
        return comm->operations.untrailed != 0;
    while (r && (r->attachment == SHUNTI_TRAILING ||
                 (r->class->pauses && r->class->pauses(r))))
        r = r->next;
    return r && !comm->failure.status;
}
