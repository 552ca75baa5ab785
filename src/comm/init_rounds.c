// SPDX-License-Identifier: Apache-2.0
/* The rounds of the making of a communicator; see init_rounds.h. */
#include "src/comm/init_rounds.h"

#include <stdio.h>

#include "src/base/error.h"
#include "src/progress/wait.h"
#include "src/trace/trace.h"

/* Time between two checks of a connection, if no descriptor becomes ready. */
#define CONNECT_NAP_MS 2

int shunti_init_name(const struct shunti_init *init, int rank)
{
    return shunti_rank_name(init->parent, rank);
}

enum shunt_status shunti_init_gather(struct shunti_init *init,
                                     struct shunti_init_head *mine, size_t len,
                                     enum shunt_status status,
                                     struct shunti_blobs *all)
{
    enum shunt_status st;
    int r;

    mine->status = status;
    if (status)
        snprintf(mine->text, sizeof(mine->text), "%.500s", shunti_error_last());
    if (status && shunti_bootstrap_failed(init->bootstrap))
        /* the bootstrap has failed, and the text already says so */
        return status;
    st = shunti_bootstrap_allgather(init->bootstrap, mine, len, all);
    if (st)
        return st;
    if (status)
        return status;
    for (r = 0; r < init->comm->nranks; r++) {
        const struct shunti_init_head *theirs = all->data[r];

        if (all->len[r] < sizeof(*theirs))
            return shunti_fail(NULL, SHUNT_ERR_MISMATCH,
                               "rank %d speaks another protocol",
                               shunti_init_name(init, r));
        if (theirs->status)
            return shunti_fail(NULL, SHUNT_ERR_REMOTE, "on rank %d: %.500s",
                               shunti_init_name(init, r), theirs->text);
    }
    return SHUNT_OK;
}

uint64_t shunti_init_deadline(struct shunti_init *init)
{
    init->looked_ns = shunti_now_ns();
    return init->looked_ns + shunti_ns(init->timeout);
}

bool shunti_init_is_late(struct shunti_init *init, uint64_t *deadline_ns)
{
    *deadline_ns += shunti_stopped_ns(&init->looked_ns);
    return init->looked_ns > *deadline_ns;
}

enum shunt_status shunti_init_pause(struct shunti_init *init,
                                    uint64_t *deadline_ns)
{
    if (shunti_parent_cancelled(init->parent))
        return shunti_fail(NULL, SHUNT_ERR_PEER, "%s", init->parent->why);
    shunti_transports_nap(init->comm, CONNECT_NAP_MS);
    *deadline_ns += shunti_stopped_ns(&init->looked_ns);
    return shunti_bootstrap_check(init->bootstrap, 0);
}
