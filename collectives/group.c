// SPDX-License-Identifier: Apache-2.0
/*
 * Communicators made from a communicator: split and dup (shrink: src/shrink.c).
 *
 * The lowest rank of each new group makes an id, and the ids are gathered
 * through the old communicator. Then the group's init runs as that of any other
 * communicator. Meanwhile each rank watches the old communicator: a member that
 * is lost, or has given up, ends the init at once. In that case, and if a
 * member does not come in time, the old communicator fails as well: the rank is
 * missing there too, and so every rank learns which one it was, by its number
 * there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/coll.h>

#include "collectives/kinds.h"
#include "src/bootstrap.h"
#include "src/comm.h"
#include "src/entry.h"
#include "src/error.h"
#include "src/failure.h"
#include "src/init.h"
#include "src/nodes.h"
#include "src/refusal.h"
#include "src/request.h"
#include "src/trace.h"
#include "src/track.h"
#include "src/wait.h"

/* Time for a loss that other ranks have noticed to be noticed here. */
#define NOTICE_NS 1000000000u
#define NAP_MS 20

struct ticket {
    int32_t colour;
    int32_t key;
    int32_t status; /* result of making the id */
    struct shunt_id id;
};

/* This rank's place among the ranks of its colour, their number, and the lowest
 * of them. */
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

/* A rank of our colour whose status is an error, or -1. */
static int failed_member(const struct ticket *all,
                         const struct shunt_comm *comm)
{
    int r;

    for (r = 0; r < comm->nranks; r++)
        if (all[r].colour == all[comm->rank].colour && all[r].status)
            return r;
    return -1;
}

/* A group that is being made into a communicator. */
struct group {
    struct shunt_comm *comm; /* the old one */
    const char *call;
    int *names; /* (size) old ranks, in their new order */
    int size, place;
    int root; /* old rank whose process runs the root of its init */
};

/* The old ranks of `rank`'s colour, ordered by key, then by rank; NULL: no
 * memory. */
static int *order_group(const struct ticket *all, int nranks, int rank)
{
    int *names = calloc((size_t)nranks, sizeof(*names));

    for (int r = 0; names && r < nranks; r++) {
        int first, place, size;

        if (all[r].colour != all[rank].colour)
            continue;
        place_in_group(all, nranks, r, &first, &place, &size);
        names[place] = r;
    }
    return names;
}

/* If a member is lost, the old communicator fails. */
static void look_for_members(const struct group *group)
{
    struct shunt_comm *comm = group->comm;

    shunti_look_around(comm);
    for (int i = 0; i < group->size && !shunti_comm_check(comm); i++) {
        const int rank = group->names[i];
        const struct shunti_peer *p = &comm->peers[rank];

        if (rank == comm->rank || p->transport->alive(p->ep))
            continue;
        shunti_comm_fail(
            comm, SHUNT_ERR_PEER, rank, "%s: rank %d %s", group->call, rank,
            p->transport->left(p->ep)
                ? "has left: it destroyed its communicator, or exited, before "
                  "this was done"
            : p->control
                ? "is lost while the new communicator is made: its process "
                  "was killed, or crashed"
                : "is lost while the new communicator is made: the connection "
                  "to it broke");
    }
}

static bool doomed(void *arg, char *why, size_t size)
{
    struct group *group = arg;
    enum shunt_status st;

    shunti_comm_enter(group->comm);
    look_for_members(group);
    st = shunti_comm_check(group->comm);
    if (st)
        snprintf(why, size, "%s", group->comm->failure.text);
    shunti_comm_leave(group->comm);
    return st != SHUNT_OK;
}

/* The init failed with `st`. The old communicator fails as well if the reason
 * is a lost rank, or if the other ranks may not learn of it otherwise: this
 * rank had no memory, or could not join. Returns the status of the call. */
static enum shunt_status fail_group(struct group *group, enum shunt_status st,
                                    const struct shunti_parent *parent)
{
    const uint64_t start = shunti_now_ns();
    struct shunt_comm *comm = group->comm;
    char text[400];

    snprintf(text, sizeof(text), "%s: %s", group->call, shunti_error_last());
    /* Another rank, or the root, reported it: we may be about to notice the
     * loss ourselves. */
    while (!doomed(group, text + sizeof(text) - 1, 1) && !parent->nblamed &&
           (st == SHUNT_ERR_PEER || st == SHUNT_ERR_REMOTE) &&
           shunti_now_ns() - start < NOTICE_NS) {
        shunti_comm_enter(comm);
        shunti_transports_nap(comm, NAP_MS);
        shunti_comm_leave(comm);
    }
    shunti_comm_enter(comm);
    if (!shunti_comm_check(comm) && parent->nblamed) {
        for (size_t i = 0; i < parent->nblamed; i++)
            shunti_comm_add_lost(comm, parent->blamed[i]);
        shunti_comm_fail(comm, SHUNT_ERR_TIMEOUT, parent->blamed[0], "%s",
                         text);
    }
    /* The other ranks may not know, and would wait for us. */
    if (!shunti_comm_check(comm) && (st == SHUNT_ERR_MEMORY || !parent->known))
        shunti_comm_fail(comm, st, comm->rank, "%s", text);
    if (shunti_comm_check(comm))
        st = shunti_comm_check(comm);
    else
        shunti_fail(&comm->error, st, "%s", text);
    shunti_comm_leave(comm);
    return st;
}

static enum shunt_status make_group(struct group *group,
                                    const struct shunt_id *id,
                                    struct shunt_comm **out)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunti_parent parent = {
        .names = group->names,
        .root = group->root,
        .cancelled = doomed,
        .arg = group,
    };
    enum shunt_status st;

    shunti_comm_inherit(group->comm, &config);
    st = shunti_comm_init(id, group->size, group->place, &config, &parent, out);
    if (st)
        st = fail_group(group, st, &parent);
    free(parent.blamed);
    return st;
}

/* All-gather as a part of another call. Late errors of earlier calls are held
 * back: they would end this call on this rank alone. */
static enum shunt_status gather(struct shunt_comm *comm,
                                const struct ticket *mine, struct ticket *all)
{
    enum shunt_status st;

    comm->calls.late.held = true;
    st = shunt_allgather(comm, mine, all, sizeof(*mine), SHUNT_U8);
    comm->calls.late.held = false;
    return st;
}

static enum shunt_status split(struct shunt_comm *comm, int colour, int key,
                               const char *call, struct shunt_comm **out)
{
    struct ticket *all = NULL, mine = {.colour = colour, .key = key};
    struct group group = {.comm = comm, .call = call};
    struct shunt_comm *made = NULL;
    enum shunt_status st;
    int first = 0, bad;
    SHUNTI_TRACK(LIBRARY);

    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: comm is NULL", call);
    if (out)
        *out = NULL;
    all = calloc((size_t)comm->nranks, sizeof(*all));
    if (!all) {
        /* This takes the place of the first all-gather, after which all ranks
         * give up. */
        shunti_comm_enter(comm);
        st = shunti_request_refuse(
            comm, SHUNTI_SIGNATURE(SHUNTI_KIND_ALLGATHER, SHUNT_U8, 0, 0),
            SHUNT_ERR_MEMORY, "%s: no memory", call);
        shunti_comm_leave(comm);
        return st;
    }
    if (!out)
        mine.status = SHUNT_ERR_INVALID;
    /* Gather first the colours and keys, then the ids: only one rank of a group
     * makes one. Every rank takes part in both all-gathers, even after an
     * error. */
    st = gather(comm, &mine, all);
    if (st)
        goto out;
    place_in_group(all, comm->nranks, comm->rank, &first, &group.place,
                   &group.size);
    group.names = order_group(all, comm->nranks, comm->rank);
    if (!mine.status && !group.names)
        mine.status = shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    if (colour >= 0 && first == comm->rank && !mine.status)
        mine.status = (int32_t)shunti_id_create_named(
            group.names, group.size,
            shunti_reach_of(comm, group.names, group.size), &mine.id);
    st = gather(comm, &mine, all);
    if (st)
        goto out;
    if (mine.status) {
        st = shunti_fail(&comm->error, (enum shunt_status)mine.status, "%s: %s",
                         call, out ? shunti_error_last() : "out is NULL");
    } else if (colour >= 0 && (bad = failed_member(all, comm)) >= 0) {
        st = shunti_fail(&comm->error, SHUNT_ERR_REMOTE, "%s: rank %d: %s",
                         call, bad,
                         shunt_strerror((enum shunt_status)all[bad].status));
    } else if (colour >= 0) {
        group.root = first;
        st = make_group(&group, &all[first].id, &made);
        if (!st)
            *out = made;
    }
out:
    free(group.names);
    free(all);
    return st;
}

enum shunt_status shunt_comm_split(struct shunt_comm *comm, int colour, int key,
                                   struct shunt_comm **out)
{
    return split(comm, colour, key, "comm_split", out);
}

enum shunt_status shunt_comm_dup(struct shunt_comm *comm,
                                 struct shunt_comm **out)
{
    return split(comm, 0, 0, "comm_dup", out);
}
