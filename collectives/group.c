// SPDX-License-Identifier: Apache-2.0
/*
 * Communicators made from a communicator: split and dup (shrink:
 * src/comm/shrink.c).
 *
 * The lowest rank of each new group makes an id. The ids are gathered through
 * the old communicator. Then the group's init runs like that of any other
 * communicator. The ranks agree twice through the old communicator. The first
 * time is when the root of each init has admitted all ranks of its group. So no
 * rank waits in the init for one that will not arrive. The second time is when
 * the init is over. So if anything fails on one rank, the call fails on all
 * ranks of its group. The old communicator is unchanged, and the call may be
 * made again.
 *
 * During the init, each rank watches the old communicator: the loss of a member
 * ends the init at once. If a member is lost, or does not answer in time, the
 * old communicator fails as well, because that rank is missing there too. So
 * every rank learns which rank it was, by its number in the old communicator.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/coll.h>

#include "collectives/allgather.h"
#include "src/base/error.h"
#include "src/base/kind.h"
#include "src/boot/bootstrap.h"
#include "src/comm.h"
#include "src/comm/init.h"
#include "src/op/refusal.h"
#include "src/op/request.h"
#include "src/progress/exit.h"
#include "src/progress/turns.h"
#include "src/progress/wait.h"
#include "src/trace/trace.h"
#include "src/trace/track.h"
#include "src/wire/failure.h"
#include "src/wire/nodes.h"

struct ticket {
    int32_t colour;
    int32_t key;
    struct shunt_id id;
};

/* The text of a rank's error. */
struct reason {
    char text[252];
};

/* Find the place of `rank` among the ranks of its colour, the number of these
 * ranks, and the lowest of them (`first`). */
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

/* A group that is being made into a communicator. */
struct group {
    struct shunt_comm *comm; /* the old communicator */
    const char *call;
    int *names;        /* (size) old ranks, in the order of their new ranks */
    int size, place;   /* size 0: this rank makes no communicator */
    int root;          /* the old rank that runs the root of the init */
    int32_t *statuses; /* (old nranks); filled when the ranks agree */
    struct reason *reasons; /* (old nranks); filled when the ranks agree */
};

/* The old ranks of `rank`'s colour, ordered by key, then by rank. NULL: memory
 * ran out. */
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

/* Fail the old communicator if a member is lost. */
static void look_for_members(const struct group *group)
{
    struct shunt_comm *comm = group->comm;

    shunti_look_in(comm);
    for (int i = 0; i < group->size && !shunti_comm_failed(comm); i++) {
        const int rank = group->names[i];
        const struct shunti_peer *p = &comm->peers[rank];

        if (rank == comm->rank || p->transport->alive(p->ep))
            continue;
        shunti_comm_fail(
            comm, SHUNT_ERR_PEER, rank, "%s: rank %d %s", group->call, rank,
            p->transport->left(p->ep)
                ? "has left: it destroyed its communicator before this was "
                  "done"
            : shunti_exit_of(comm, rank) >= 0
                ? "is lost while the new communicator is made: its program "
                  "ended without shunt_comm_finish()"
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
    st = shunti_comm_failed(group->comm);
    if (st)
        snprintf(why, size, "%s", group->comm->failure.text);
    shunti_comm_leave(group->comm);
    return st != SHUNT_OK;
}

/* All-gather as a part of another call. Late errors of earlier calls are kept
 * for a later call, because they would end this call on this rank alone. */
static enum shunt_status gather(struct shunt_comm *comm, const void *mine,
                                void *all, size_t bytes)
{
    return shunti_allgather(comm, &(struct shunti_options){.keeps_late = true},
                            mine, all, bytes, SHUNT_U8);
}

/* True if the error happened on the rank itself. False: the rank reports an
 * error of another rank. */
static bool is_own(enum shunt_status st)
{
    return st && st != SHUNT_ERR_REMOTE && st != SHUNT_ERR_PEER &&
           st != SHUNT_ERR_TIMEOUT;
}

/* Find the member whose error is the reason: the first one with an error of its
 * own, otherwise the first one that has failed. -1: no member has failed. */
static int find_reason(const struct group *group)
{
    int first = -1;

    for (int i = 0; i < group->size; i++) {
        const int rank = group->names[i];
        const enum shunt_status st = (enum shunt_status)group->statuses[rank];

        if (!st || (first >= 0 && !is_own(st)))
            continue;
        first = rank;
        if (is_own(st))
            break;
    }
    return first;
}

static bool any_failed(const struct group *group)
{
    for (int r = 0; r < group->comm->nranks; r++)
        if (group->statuses[r])
            return true;
    return false;
}

/*
 * Agree with all ranks of the old communicator. This rank contributes the
 * status `mine`, for which shunti_error_last() has the text. Returns SHUNT_OK
 * if all ranks of this group contribute SHUNT_OK. Otherwise returns `mine`, or
 * SHUNT_ERR_REMOTE with a text that names a rank.
 *
 * At first, only the statuses are gathered: they are inside of control
 * messages, so no read or copy can fail on one rank only. If any rank has
 * failed, all ranks then gather the texts.
 */
static enum shunt_status agree(void *arg, enum shunt_status mine)
{
    struct group *group = arg;
    const int32_t word = (int32_t)mine;
    struct reason own = {""};
    enum shunt_status st;
    int rank = -1;

    if (mine)
        snprintf(own.text, sizeof(own.text), "%s", shunti_error_last());
    st = gather(group->comm, &word, group->statuses, sizeof(word));
    if (!st && any_failed(group)) {
        st = gather(group->comm, &own, group->reasons, sizeof(own));
        rank = find_reason(group);
    }
    if (is_own(mine) ||
        (mine &&
         (rank < 0 || !is_own((enum shunt_status)group->statuses[rank]))))
        return shunti_fail(NULL, mine, "%s", own.text);
    if (rank >= 0)
        st =
            shunti_fail(NULL, SHUNT_ERR_REMOTE, "rank %d: %.251s", rank,
                        st ? "(its text was lost)" : group->reasons[rank].text);
    return st;
}

/* Fail the old communicator, because the members in `parent` do not answer
 * there either. They were present when the init began, but did not answer in
 * it, so the init has failed. */
static enum shunt_status blame(struct group *group, enum shunt_status st,
                               const struct shunti_parent *parent)
{
    struct shunt_comm *comm = group->comm;
    enum shunt_status failed;

    shunti_comm_enter(comm);
    if (!shunti_comm_failed(comm)) {
        /* The text may be the root's report, not this rank's, because the
         * failed link may be the root's. But if the root blames its own rank,
         * this rank is the reporter: the root has no link to itself. */
        const bool mine = parent->nmissed || parent->blamed[0] == parent->root;
        char text[400];

        snprintf(text, sizeof(text), "%s: %s", group->call,
                 shunti_error_last());
        shunti_comm_fail_as(comm, SHUNT_ERR_TIMEOUT,
                            mine ? comm->rank : parent->root, parent->blamed,
                            parent->nmissed ? parent->nmissed : parent->nblamed,
                            text);
    }
    failed = shunti_comm_check(comm);
    shunti_comm_leave(comm);
    return failed ? failed : st;
}

/* Create the group's communicator. Includes the first agreement. */
static enum shunt_status make_group(struct group *group,
                                    const struct shunt_id *id,
                                    struct shunt_comm **out)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunti_parent parent = {
        .names = group->names,
        .root = group->root,
        .cancelled = doomed,
        .agree = agree,
        .arg = group,
    };
    enum shunt_status st;

    shunti_comm_inherit(group->comm, &config);
    st = shunti_comm_init(id, group->size, group->place, &config, &parent, out);
    if (st && parent.joined && parent.nblamed)
        st = blame(group, st, &parent);
    free(parent.blamed);
    return st;
}

/* Create the communicator of this rank's colour, or none. Every rank takes part
 * in every all-gather, even after an error, unless the old communicator has
 * failed. */
static enum shunt_status make(struct group *group, struct ticket *all,
                              struct ticket *mine, enum shunt_status st,
                              struct shunt_comm **made)
{
    static const struct shunt_id none;
    struct shunt_comm *comm = group->comm;
    enum shunt_status gathered;

    place_in_group(all, comm->nranks, comm->rank, &group->root, &group->place,
                   &group->size);
    group->names = order_group(all, comm->nranks, comm->rank);
    if (!st && !group->names)
        st = shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    /* Only one rank of a group makes an id. */
    if (mine->colour >= 0 && group->root == comm->rank && !st)
        st = shunti_id_create_named(
            group->names, group->size,
            shunti_reach_of(comm, group->names, group->size), &mine->id);
    if (mine->colour < 0 || st)
        group->size = 0;
    gathered = gather(comm, mine, all, sizeof(*mine));
    if (!st)
        st = gathered;
    if (!st && group->size &&
        memcmp(&all[group->root].id, &none, sizeof(none)) != 0)
        st = make_group(group, &all[group->root].id, made);
    else
        st = agree(group, st);
    return agree(group, st);
}

/* Record the error of the call. shunti_error_last() has the reason. */
static enum shunt_status fail(struct group *group, enum shunt_status st)
{
    enum shunt_status failed;
    char why[400];

    snprintf(why, sizeof(why), "%s", shunti_error_last());
    shunti_comm_enter(group->comm);
    failed = shunti_comm_check(group->comm);
    if (!failed)
        shunti_fail(&group->comm->error, st, "%s: %s", group->call, why);
    shunti_comm_leave(group->comm);
    return failed ? failed : st;
}

static enum shunt_status split(struct shunt_comm *comm, int colour, int key,
                               const char *call, struct shunt_comm **out)
{
    struct ticket *all, mine = {.colour = colour, .key = key};
    struct group group = {.comm = comm, .call = call};
    struct shunt_comm *made = NULL;
    enum shunt_status st = SHUNT_OK;
    SHUNTI_TRACK(LIBRARY);

    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "%s: comm is NULL", call);
    if (out)
        *out = NULL;
    all = calloc((size_t)comm->nranks, sizeof(*all));
    group.statuses = calloc((size_t)comm->nranks, sizeof(*group.statuses));
    group.reasons = calloc((size_t)comm->nranks, sizeof(*group.reasons));
    if (!all || !group.statuses || !group.reasons) {
        /* The refusal takes the place of the first all-gather. After it, the
         * call fails on all ranks. */
        shunti_comm_enter(comm);
        st = shunti_request_refuse(
            comm, SHUNTI_SIGNATURE(SHUNTI_KIND_ALLGATHER, SHUNT_U8, 0, 0),
            SHUNT_ERR_MEMORY, "%s: no memory", call);
        shunti_comm_leave(comm);
        goto out;
    }
    st = gather(comm, &mine, all, sizeof(mine));
    if (st)
        goto out;
    if (!out)
        st = shunti_fail(NULL, SHUNT_ERR_INVALID, "out is NULL");
    st = make(&group, all, &mine, st, &made);
    if (st) {
        st = fail(&group, st);
        shunt_comm_destroy(made);
    } else if (out) {
        *out = made;
    }
out:
    free(group.statuses);
    free(group.reasons);
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
