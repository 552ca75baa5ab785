// SPDX-License-Identifier: Apache-2.0
/*
 * shunt_comm_shrink(): the survivors of a dead communicator agree on who they
 * are, and make a new one.
 *
 * Operations do not work any more; ranks talk by loss records (loss.h), which
 * reach also peers that are not mapped. Rank r's record says how far it is:
 *
 *     HERE(a)   waits for decision a
 *     BOUND(a)  has taken decision a: who the members are, and who leads
 *     MADE(a)   the communicator of decision a is made here
 *     WENT(a)   it was returned to the caller
 *
 * The lowest rank that is not lost leads. Once every rank that is not lost is
 * HERE (or late by more than twice the timeout, and thereby lost), it decides. The
 * members are bound, make the communicator as any other is made, and wait
 * until each of them has MADE it. Then they return it.
 *
 * A second loss. A member that sees a member lost while the communicator is
 * being made gives that up and is HERE for the next attempt. A record of a
 * later attempt makes the others do the same, and a leader that died is
 * replaced by the next rank. When a member is lost after all have made it, the
 * survivors must not differ about that: one returns the communicator only when
 * all members that it does not count as lost have MADE it and count the same
 * members as lost, and none are; if some are, all go on to the next attempt.
 * Whoever sees a WENT follows, as the first to go has seen the MADE of all.
 *
 * Never two communicators. A rank is bound to one decision at a time, and
 * leaves it only when no member can have gone with it: because its own MADE was
 * not given, or because another's will not be. So two groups that both go have
 * no rank in common. The leader decides only for a quorum:
 *
 *     more than half of the ranks that are not out, or exactly half with the
 *     lowest of these among them,
 *
 * where a rank is out if a member has seen to it that it does not go, or knows
 * that it cannot:
 *
 *   - its control window is mapped, and the kernel closed its socket: it died,
 *     or left in order. What it had said is in our window: no decision that
 *     excludes us;
 *   - it left in order over a network; that comes after all that it had said;
 *   - its control window is mapped, and our record there calls it lost. It
 *     looks for such records after it said BOUND; we look for its BOUND after
 *     we wrote ours; so one of us sees the other (both with full fences), and
 *     a rank that finds itself called lost gives up. This covers processes
 *     that were stopped.
 *
 * Proof that there are never two: let M and N be disjoint groups that went, and
 * L(M), L(N) the ranks that are not out for them. No member of N is out for M,
 * nor the other way round. So 2|M| >= |L(M)| >= |M| + |N|, hence |M| >= |N|, and
 * likewise |N| >= |M|. So |M| = |N|, both have exactly half, and L(M) = L(N) =
 * M and N together; its lowest rank is in only one of them.
 *
 * What cannot be proved: that a rank on another host is dead if nobody who
 * maps its memory survives. A closed or silent connection looks the same when
 * the link was cut. Then less than half gives up: SHUNT_ERR_PEER.
 *
 * A rank that goes on to the next attempt has left the communicator of the one
 * before. A member that could not know (its link was cut) may have gone with
 * that: so the record of whoever leaves says, in the communicator that it
 * leaves, that it WENT without anybody; which stops the other from shrinking it.
 */
#include "src/shrink.h"

#include <stdio.h>
#include <stdlib.h>

#include "src/init.h"
#include "src/bootstrap.h"
#include "src/entry.h"
#include "src/error.h"
#include "src/failure.h"

/* Until a loss that others have noticed is noticed here. */
#define LOSS_DELAY_SECONDS 1.0

/* --- making it ----------------------------------------------------------------------- */

/* A member that will not come, or -1. */
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

/* The communicator of the decision. Its error is in shunti_error_last(). */
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

/* The communicator is not to be; nobody may take it for one that is. */
static void discard(struct shunt_comm *made)
{
    if (!made)
        return;
    made->loss = made->loss ? made->loss : shunti_loss_new(made->nranks);
    if (made->loss) {
        made->loss->attempt = UINT32_MAX;
        made->loss->stage = SHUNTI_SHRINK_RETURNED;
        made->loss->leader = made->rank;
        shunti_loss_publish(made);
    }
    shunt_comm_destroy(made);
}

/* Do all members that are not lost have it, and count the same as lost? */
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

/* We have it; may we go? False: on to the next attempt, or give up. */
static bool await_members(struct shunti_shrink *s)
{
    shunti_shrink_set_stage(s, SHUNTI_SHRINK_MADE);
    s->attempt_ns = s->looked_ns = shunti_now_ns();
    for (;;) {
        bool reported = !shunti_shrink_look(s);
        int missing = missing_member(s);

        if (any_returned(s)) {
            /* With us: what else is said of us is older. */
            s->status = SHUNT_OK;
            return true;
        }
        if (reported || (missing >= 0 && !shunti_shrink_lost(s, missing)))
            return false;
        if (members_agree(s))
            return missing < 0;
        if (shunti_shrink_elapsed(s->attempt_ns) > s->comm->init_timeout) {
            for (int r = 0; r < s->comm->nranks; r++)
                if (r != s->comm->rank && shunti_shrink_member(s, r) &&
                    shunti_shrink_record(s, r)->stage < SHUNTI_SHRINK_MADE)
                    shunti_comm_add_lost(s->comm, r);
            return false;
        }
        shunti_shrink_nap(s);
    }
}

/* --- all together --------------------------------------------------------------------- */

static enum shunt_status finish(struct shunti_shrink *s,
                                struct shunt_comm *made,
                                struct shunt_comm **out)
{
    shunti_shrink_set_stage(s, SHUNTI_SHRINK_RETURNED);
    /* The same on every member: one that has gone and left is none of these. */
    s->comm->nlost = 0;
    for (int r = 0; r < s->comm->nranks; r++)
        if (!shunti_shrink_member(s, r))
            shunti_comm_add_lost(s->comm, r);
    *out = made;
    return SHUNT_OK;
}

/* The making has failed: was it for a loss? That may be known to the root of
 * the new communicator before it is here. */
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

    /* Whoever gave up earlier may come again. */
    shunti_shrink_next_attempt(s, s->mine->attempt ? s->mine->attempt : 1);
    while (shunti_shrink_await_decision(s)) {
        enum shunt_status st = create(s, &made);

        if (!st && await_members(s))
            return finish(s, made, out);
        discard(made);
        /* A loss is a reason to try again without it; what else keeps this
         * rank from it would do so again. */
        if (st)
            snprintf(why, sizeof(why), "%s", shunti_error_last());
        if (st && !await_loss(s))
            shunti_shrink_give_up(s, st, "%s", why);
        else if (shunti_shrink_elapsed(s->began_ns) >
                 SHUNTI_SHRINK_TIMEOUTS * comm->init_timeout)
            shunti_shrink_give_up(s, SHUNT_ERR_TIMEOUT,
                                  "no communicator in %g s",
                                  shunti_shrink_elapsed(s->began_ns));
        if (s->status)
            break;
        shunti_shrink_next_attempt(s, s->mine->attempt + 1);
    }
    /* Others that are bound to the same decision must not wait for us. */
    if (s->mine->stage != SHUNTI_SHRINK_NO_QUORUM) {
        s->mine->attempt++;
        s->mine->leader = -1;
        shunti_shrink_clear(s, SHUNTI_MEMBERS);
        shunti_shrink_set_stage(s, SHUNTI_SHRINK_NONE);
    }
    return s->status;
}

/* This rank is one of those that are lost. */
static bool is_given_up(const struct shunt_comm *comm)
{
    for (size_t i = 0; i < comm->nlost; i++)
        if (comm->lost[i] == comm->rank)
            return true;
    return false;
}

/* Why this communicator is not to be shrunk here, or SHUNT_OK. */
static enum shunt_status refuse(struct shunt_comm *comm)
{
    if (!shunti_comm_check(comm))
        return shunti_fail(
            &comm->error, SHUNT_ERR_INVALID,
            "comm_shrink: no rank is lost; use shunt_comm_split()");
    if (is_given_up(comm))
        return shunti_fail(&comm->error, SHUNT_ERR_TIMEOUT,
                           "comm_shrink: the others went on without this "
                           "rank (%s)",
                           comm->failure_text);
    if (comm->loss && comm->loss->stage == SHUNTI_SHRINK_RETURNED)
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
        return shunti_fail(&comm->error, SHUNT_ERR_INVALID,
                           "comm_shrink: %s is NULL", comm ? "out" : "comm");
    *out = NULL;
    if (!comm->control) /* it has been destroyed */
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
