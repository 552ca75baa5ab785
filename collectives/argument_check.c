// SPDX-License-Identifier: Apache-2.0
/* Gathering the ranks' arguments; see argument_check.h. */
#include "collectives/argument_check.h"

#include <stdlib.h>

#include <shunt/coll.h>

#include "collectives/allgather.h"
#include "collectives/coll_state.h"
#include "src/base/error.h"
#include "src/base/kind.h"
#include "src/comm.h"
#include "src/op/refusal.h"
#include "src/progress/turns.h"

static enum shunt_status judge(struct shunt_comm *comm, const char *call,
                               const struct shunti_argument_check *mine,
                               const unsigned char *all, size_t bytes)
{
    if (mine->status)
        return shunti_fail(&comm->error, (enum shunt_status)mine->status,
                           "%s: %s", call, mine->why);
    for (int r = 0; r < comm->nranks; r++, all += bytes) {
        const struct shunti_argument_check *v = (const void *)all;

        if (v->status)
            return shunti_fail(&comm->error, SHUNT_ERR_REMOTE,
                               "%s: rank %d's call failed there: %.*s", call, r,
                               (int)sizeof(v->why), v->why);
    }
    return SHUNT_OK;
}

enum shunt_status
shunti_argument_checks_gather(struct shunt_comm *comm,
                              const struct shunti_options *options,
                              const void *mine, size_t bytes, void **all)
{
    const char *call = shunti_purpose_name(options->purpose);
    enum shunt_status st;

    *all = calloc((size_t)comm->nranks, bytes);
    if (!*all) {
        /* Refuse in place of the all-gather, so that the other ranks learn of
         * the error. */
        shunti_comm_enter(comm);
        st = shunti_request_refuse(comm,
                                   SHUNTI_SIGNATURE(SHUNTI_KIND_ALLGATHER,
                                                    SHUNT_U8, 0,
                                                    options->purpose),
                                   SHUNT_ERR_MEMORY, "%s: no memory", call);
        shunti_coll_disagreed(comm); /* the other ranks notice the same */
        shunti_comm_leave(comm);
        return st;
    }
    st = shunti_allgather(comm, options, mine, *all, bytes, SHUNT_U8);
    if (st)
        return st;
    shunti_comm_enter(comm);
    st = judge(comm, call, mine, *all, bytes);
    shunti_comm_leave(comm);
    return st;
}
