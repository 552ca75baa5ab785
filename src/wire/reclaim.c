// SPDX-License-Identifier: Apache-2.0
/* Reclaiming memory from a transport; see reclaim.h. */
#include "src/wire/reclaim.h"

#include <poll.h>

#include "src/base/inline.h"
#include "src/comm.h"
#include "src/trace/trace.h"
#include "src/wire/contexts.h"
#include "src/wire/wire.h"

#define SECONDS 1.0

uint64_t shunti_reclaim_deadline(void)
{
    return shunti_now_ns() + shunti_ns(SECONDS);
}

SHUNTI_NOINLINE void shunti_reclaim(struct shunt_comm *comm, int peer,
                                    uint64_t deadline_ns)
{
    struct shunti_peer *p = &comm->peers[peer];

    while (p->transport->let_go(p->ep, false) == SHUNT_IN_PROGRESS) {
        if (shunti_now_ns() > deadline_ns || !p->transport->alive(p->ep)) {
            p->transport->let_go(p->ep, true);
            return;
        }
        if (comm->deferred.first)
            /* puts that notify peers of the failure may still wait for room */
            shunti_control_retry(comm);
        poll(NULL, 0, 1);
        shunti_transports_progress(comm);
    }
}
