// SPDX-License-Identifier: Apache-2.0
/*
 * Communicators made from a communicator: split, dup, shrink.
 *
 * The lowest rank of each new group makes an id; the ids travel through the
 * old communicator; then the group is born like any other. After a loss the
 * old communicator carries nothing any more, but its control windows are still
 * there: shrink talks through a record in each of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/coll.h>

#include "comm.h"
#include "error.h"

struct ticket {
    int32_t colour;
    int32_t key;
    int32_t status; /* of making the id */
    struct shunt_id id;
};

/* This rank's place among those of its colour, and the group's first rank. */
static void place_in_group(const struct ticket *all, int nranks, int rank,
                           int *first, int *place, int *size)
{
    const struct ticket *mine = &all[rank];
    int r;

    *first = -1;
    *place = *size = 0;
    for (r = 0; r < nranks; r++) {
        if (all[r].colour != mine->colour)
            continue;
        if (*first < 0)
            *first = r;
        ++*size;
        if (all[r].key < mine->key || (all[r].key == mine->key && r < rank))
            ++*place;
    }
}

/* A rank of our colour that could not do its part, or -1. */
static int failed_mate(const struct ticket *all, const struct shunt_comm *comm)
{
    int r;

    for (r = 0; r < comm->nranks; r++)
        if (all[r].colour == all[comm->rank].colour && all[r].status)
            return r;
    return -1;
}

enum shunt_status shunt_comm_split(struct shunt_comm *comm, int colour, int key,
                                   struct shunt_comm **out)
{
    struct ticket *all = NULL, mine = {.colour = colour, .key = key};
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_comm *made = NULL;
    int first, place, size, bad;
    enum shunt_status st;

    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "comm_split: comm is NULL");
    if (out)
        *out = NULL;
    all = calloc((size_t)comm->nranks, sizeof(*all));
    if (!all)
        return shunti_fail(comm, SHUNT_ERR_MEMORY, "comm_split: no memory");
    if (!out)
        mine.status = SHUNT_ERR_INVALID;
    /* First who is with whom, then the ids: only one rank of a group makes
     * one. Both rounds are made by every rank, whatever went wrong. */
    st = shunt_allgather(comm, &mine, all, sizeof(mine), SHUNT_U8);
    if (st)
        goto out;
    place_in_group(all, comm->nranks, comm->rank, &first, &place, &size);
    if (colour >= 0 && first == comm->rank && !mine.status)
        mine.status = (int32_t)shunt_id_create(&mine.id);
    st = shunt_allgather(comm, &mine, all, sizeof(mine), SHUNT_U8);
    if (st)
        goto out;
    if (mine.status) {
        st = shunti_fail(comm, (enum shunt_status)mine.status, "comm_split: %s",
                         out ? shunt_last_error(NULL) : "out is NULL");
    } else if (colour >= 0 && (bad = failed_mate(all, comm)) >= 0) {
        st = shunti_fail(comm, SHUNT_ERR_REMOTE, "comm_split: rank %d: %s", bad,
                         shunt_strerror((enum shunt_status)all[bad].status));
    } else if (colour >= 0) {
        config.timeout = comm->birth_timeout;
        config.call_timeout = comm->call_timeout;
        config.idle = comm->idle_call;
        config.idle_arg = comm->idle_arg;
        config.transports = comm->transports[0] ? comm->transports : NULL;
        config.node = comm->node_name[0] ? comm->node_name : NULL;
        config.name = comm->name;
        config.progress_thread = comm->threaded ? 1 : -1;
        st = shunt_comm_create(&all[first].id, size, place, &config, &made);
        if (st)
            shunti_fail(comm, st, "comm_split: %s", shunt_last_error(NULL));
        else
            *out = made;
    }
out:
    free(all);
    return st;
}

enum shunt_status shunt_comm_dup(struct shunt_comm *comm,
                                 struct shunt_comm **out)
{
    return shunt_comm_split(comm, 0, 0, out);
}
