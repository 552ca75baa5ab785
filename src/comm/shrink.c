// SPDX-License-Identifier: Apache-2.0
/*
 * shunt_comm_shrink(): the survivors of a failed communicator agree on the
 * members of a new one, and make it.
 *
 * Operations no longer work, so ranks communicate by loss records (loss.h),
 * which also reach peers that are not mapped. The record of a rank holds its
 * stage; `a` is the number of the attempt:
 *
 *     WAITING(a)   it waits for decision a
 *     BOUND(a)     it has accepted decision a: the leader and the members
 *     MADE(a)      it has made the communicator of decision a
 *     RETURNED(a)  it has returned that communicator to its caller
 *
 * The lowest rank that is not lost is the leader. It decides as soon as every
 * rank that is not lost is WAITING. A rank that is late by more than twice the
 * timeout counts as lost. The members accept the decision (BOUND), make the
 * communicator as any other is made, and wait until every member has MADE it.
 * Then they return it.
 *
 * A second loss. A member may see that another member is lost while the
 * communicator is being made. Then it gives up this attempt and is WAITING for
 * the next one. The other members follow when they read a record of a later
 * attempt. If the leader is lost, the next rank leads.
 *
 * A member may also be lost after all have MADE the communicator. Then either
 * all survivors must return it, or none. So a member returns only under three
 * conditions. Every member that it does not count as lost has MADE the
 * communicator. These members count the same members as lost. And no member is
 * lost. If some are lost, all survivors begin the next attempt. A member that
 * reads RETURNED returns as well: the first member to return has read MADE of
 * all.
 *
 * Never two communicators. A rank is bound to one decision at a time. It leaves
 * a decision only when no member can have returned by it: this rank has not
 * published MADE, or another member will not publish it. So two groups that
 * both return have no rank in common. The leader decides only with a quorum:
 *
 *     more than half of the ranks that are not fenced, or exactly half of them
 *     including the lowest one.
 *
 * A rank is fenced if a member has made sure, or knows, that the rank cannot
 * return another communicator. There are three cases:
 *
 *   - Its control window is mapped, and the kernel has closed its socket: the
 *     rank died, or left in order. All that it published is in the member's
 *     window, and holds no decision that excludes the member.
 *   - The rank left in order over a network. The notice of that arrives after
 *     everything that the rank published.
 *   - Its control window is mapped, and the member's record there counts it as
 *     lost. The rank looks for such records after it has published BOUND. The
 *     member looks for the rank's BOUND after it has written its record. Both
 *     use full memory fences, so one of the two sees the other, and a rank that
 *     finds itself counted as lost gives up. This case covers processes that
 *     were stopped.
 *
 * Proof that there are never two: let M and N be disjoint groups that returned,
 * and L(M), L(N) the ranks that are not fenced for them. No member of N is
 * fenced for M, nor the other way round. So 2|M| >= |L(M)| >= |M| + |N|, hence
 * |M| >= |N|, and likewise |N| >= |M|. So |M| = |N|, both have exactly half,
 * and L(M) = L(N) = M and N together; its lowest rank is in only one of them.
 *
 * Limit: if no rank survives that maps the memory of a rank on another host,
 * nothing can prove that the rank is dead. A cut link looks the same, whether
 * the connection is closed or silent. Then a group of less than half gives up:
 * SHUNT_ERR_PEER.
 *
 * A rank that begins the next attempt has left the communicator of the attempt
 * before. A member whose link was cut could not know that, and may have
 * returned that communicator. So a rank that leaves publishes RETURNED there,
 * without members. This keeps the other member from shrinking it.
 */
#include "src/comm/shrink.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/boot/bootstrap.h"
#include "src/comm/init.h"
#include "src/progress/turns.h"
#include "src/wire/failure.h"

/* Another rank may notice a loss this much earlier than this rank does. */
#define LOSS_DELAY_SECONDS 1.0

/* --- making the communicator ---------------------------------------------- */

/* A member that will not join, because it is lost or in a later attempt; or
 * -1. */
static int missing_member(const struct shunti_shrink *s)
{
    for (int r = 0; r < s->comm->nranks; r++)
        if (r != s->comm->rank && shunti_shrink_member(s, r) &&
            (shunti_shrink_lost(s, r) ||
             shunti_shrink_record(s, r)->attempt > s->mine->attempt))
            return r;
    return -1;
}

static bool cancelled(void *arg, char *why, size_t size)
{
    struct shunti_shrink *s = arg;
    int r;

    if (!shunti_shrink_look(s)) {
        snprintf(why, size, "%s", shunt_last_error(s->comm));
        return true;
    }
    r = missing_member(s);
    if (r < 0)
        return false;
    if (shunti_shrink_lost(s, r))
        snprintf(why, size, "rank %d is lost", r);
    else
        snprintf(why, size, "rank %d noticed another loss", r);
    return true;
}

/* Make the communicator of the decision. An error's text is in
 * shunti_error_last(). */
static enum shunt_status create(struct shunti_shrink *s,
                                struct shunt_comm **made)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunti_parent parent = {
        .root = s->mine->leader, .cancelled = cancelled, .arg = s};
    struct shunt_comm *comm = s->comm;
    int size, place, *names = shunti_shrink_member_names(s, &size, &place);
    enum shunt_status st;

    *made = NULL;
    if (!names)
        return SHUNT_ERR_MEMORY;
    parent.names = names;
    shunti_comm_inherit(comm, &config);
    st = shunti_comm_init(&s->mine->id, size, place, &config, &parent, made);
    for (size_t i = 0; i < parent.nblamed; i++)
        shunti_comm_add_lost(comm, parent.blamed[i]);
    free(parent.blamed);
    free(names);
    return st;
}

/* Destroy a communicator that is not returned. This rank's record there is
 * RETURNED, so that no member that has returned the communicator can shrink it
 * (see above). */
static void discard(struct shunt_comm *made)
{
    if (!made)
        return;
    made->loss.record =
        made->loss.record ? made->loss.record : shunti_loss_new(made->nranks);
    if (made->loss.record) {
        made->loss.record->attempt = UINT32_MAX;
        made->loss.record->stage = SHUNTI_SHRINK_RETURNED;
        made->loss.record->leader = made->rank;
        shunti_loss_publish(made);
    }
    shunt_comm_destroy(made);
}

/* Have all members that are not lost MADE the communicator, and do they count
 * the same members as lost? */
static bool members_agree(const struct shunti_shrink *s)
{
    for (int r = 0; r < s->comm->nranks; r++) {
        if (r == s->comm->rank || !shunti_shrink_member(s, r) ||
            shunti_shrink_lost(s, r))
            continue;
        if (shunti_shrink_record(s, r)->stage < SHUNTI_SHRINK_MADE ||
            shunti_shrink_record(s, r)->attempt != s->mine->attempt)
            return false;
        for (int m = 0; m < s->comm->nranks; m++)
            if (shunti_shrink_member(s, m) &&
                shunti_shrink_lost(s, m) !=
                    shunti_shrink_has(s, shunti_shrink_record(s, r),
                                      SHUNTI_LOST, m))
                return false;
    }
    return true;
}

static bool any_returned(const struct shunti_shrink *s)
{
    for (int r = 0; r < s->comm->nranks; r++)
        if (r != s->comm->rank && shunti_shrink_member(s, r) &&
            shunti_shrink_record(s, r)->stage == SHUNTI_SHRINK_RETURNED &&
            shunti_shrink_record(s, r)->attempt == s->mine->attempt)
            return true;
    return false;
}

/* This rank has MADE the communicator. Wait until this rank may return the
 * communicator. False: begin the next attempt, or give up. */
static bool await_members(struct shunti_shrink *s)
{
    shunti_shrink_set_stage(s, SHUNTI_SHRINK_MADE);
    s->attempt_ns = s->looked_ns = shunti_now_ns();
    for (;;) {
        bool reported = !shunti_shrink_look(s);
        int missing = missing_member(s);

        if (any_returned(s)) {
            /* The communicator has this rank as a member. A record that counts
             * this rank as lost is older. */
            s->status = SHUNT_OK;
            return true;
        }
        if (reported || (missing >= 0 && !shunti_shrink_lost(s, missing)))
            return false;
        if (members_agree(s))
            return missing < 0;
        if (shunti_shrink_elapsed(s->attempt_ns) >
            s->comm->configured.init_timeout) {
            for (int r = 0; r < s->comm->nranks; r++)
                if (r != s->comm->rank && shunti_shrink_member(s, r) &&
                    shunti_shrink_record(s, r)->stage < SHUNTI_SHRINK_MADE)
                    shunti_comm_add_lost(s->comm, r);
            return false;
        }
        shunti_shrink_nap(s);
    }
}

/* --- the call ------------------------------------------------------------- */

static enum shunt_status finish(struct shunti_shrink *s,
                                struct shunt_comm *made,
                                struct shunt_comm **out)
{
    shunti_shrink_set_stage(s, SHUNTI_SHRINK_RETURNED);
    /* The list is the same on every member: a member that has returned and left
     * is not in it. */
    s->comm->failure.nlost = 0;
    for (int r = 0; r < s->comm->nranks; r++)
        if (!shunti_shrink_member(s, r))
            shunti_comm_add_lost(s->comm, r);
    *out = made;
    return SHUNT_OK;
}

/* Making the communicator has failed. Was the reason a loss? The root of the
 * new communicator may know of it before this rank does. */
static bool await_loss(struct shunti_shrink *s)
{
    uint64_t start = shunti_now_ns();

    while (shunti_shrink_look(s) && missing_member(s) < 0) {
        if (shunti_shrink_elapsed(start) > LOSS_DELAY_SECONDS)
            return false;
        shunti_shrink_nap(s);
    }
    return true;
}

static enum shunt_status shrink(struct shunti_shrink *s,
                                struct shunt_comm **out)
{
    struct shunt_comm *comm = s->comm;
    struct shunt_comm *made;
    char why[400];

    /* A rank that gave up earlier may call again. */
    shunti_shrink_next_attempt(s, s->mine->attempt ? s->mine->attempt : 1);
    while (shunti_shrink_await_decision(s)) {
        enum shunt_status st = create(s, &made);

        if (!st && await_members(s))
            return finish(s, made, out);
        discard(made);
        /* After a loss try again without the lost rank. Any other error would
         * only happen again. */
        if (st)
            snprintf(why, sizeof(why), "%s", shunti_error_last());
        if (st && !await_loss(s))
            shunti_shrink_give_up(s, st, "%s", why);
        else if (shunti_shrink_elapsed(s->began_ns) >
                 SHUNTI_SHRINK_TIMEOUTS * comm->configured.init_timeout)
            shunti_shrink_give_up(s, SHUNT_ERR_TIMEOUT,
                                  "no communicator in %g s",
                                  shunti_shrink_elapsed(s->began_ns));
        if (s->status)
            break;
        shunti_shrink_next_attempt(s, s->mine->attempt + 1);
    }
    /* Ranks that are bound to the same decision must not wait for this rank. */
    if (s->mine->stage != SHUNTI_SHRINK_NO_QUORUM) {
        s->mine->attempt++;
        s->mine->leader = -1;
        shunti_shrink_clear(s, SHUNTI_MEMBERS);
        shunti_shrink_set_stage(s, SHUNTI_SHRINK_NONE);
    }
    return s->status;
}

/* Do the others count this rank as lost? */
static bool is_given_up(const struct shunt_comm *comm)
{
    for (size_t i = 0; i < comm->failure.nlost; i++)
        if (comm->failure.lost[i] == comm->rank)
            return true;
    return false;
}

/* The reason not to shrink this communicator on this rank, or SHUNT_OK. */
static enum shunt_status refuse(struct shunt_comm *comm)
{
    if (!shunti_comm_failed(comm))
        return shunti_fail(
            &comm->error, SHUNT_ERR_INVALID,
            "comm_shrink: no rank is lost; use shunt_comm_split()");
    if (is_given_up(comm))
        return shunti_fail(&comm->error, SHUNT_ERR_TIMEOUT,
                           "comm_shrink: the others went on without this "
                           "rank (%s)",
                           comm->failure.text);
    if (comm->loss.record && comm->loss.record->stage == SHUNTI_SHRINK_RETURNED)
        return shunti_fail(&comm->error, SHUNT_ERR_INVALID,
                           "comm_shrink: this communicator has been shrunk "
                           "already");
    return SHUNT_OK;
}

enum shunt_status shunt_comm_shrink(struct shunt_comm *comm,
                                    struct shunt_comm **out)
{
    struct shunti_shrink s = {.comm = comm, .began_ns = shunti_now_ns()};
    enum shunt_status st;

    if (!comm || !out)
        return shunti_fail(comm ? &comm->error : NULL, SHUNT_ERR_INVALID,
                           "comm_shrink: %s is NULL", comm ? "out" : "comm");
    *out = NULL;
    if (!comm->control.base) /* the communicator has been destroyed */
        return shunti_comm_check(comm);
    shunti_comm_enter(comm);
    st = refuse(comm);
    if (!st && !shunti_shrink_make_records(&s))
        st = shunti_fail(&comm->error, SHUNT_ERR_MEMORY,
                         "comm_shrink: no memory");
    if (!st)
        st = shrink(&s, out);
    shunti_shrink_free_records(&s);
    shunti_comm_leave(comm);
    return st;
}
