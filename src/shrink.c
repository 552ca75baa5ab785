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
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/bootstrap.h"
#include "src/comm.h"
#include "src/contexts.h"
#include "src/entry.h"
#include "src/error.h"
#include "src/failure.h"
#include "src/init.h"
#include "src/log.h"
#include "src/loss.h"
#include "src/nodes.h"
#include "src/put.h"
#include "src/trace.h"
#include "src/wait.h"

#define NAP_MS 20
/* Attempts end after so many timeouts altogether. */
#define TIMEOUTS 6
/* Until a loss that others have noticed is noticed here. */
#define NOTICE_SECONDS 1.0

struct shrink {
    struct shunt_comm *comm;
    struct shunti_loss *mine;    /* comm->loss */
    struct shunti_loss **theirs; /* (nranks) as last read; ours is NULL */
    uint64_t began_ns;           /* this call */
    uint64_t attempt_ns;         /* this attempt */
    uint64_t looked_ns;          /* at the clock */
    enum shunt_status status;    /* why this rank gives up; its text is set */
};

/* --- sets --------------------------------------------------------------------- */

static bool has(const struct shrink *s, const struct shunti_loss *loss,
                int which, int rank)
{
    return shunti_loss_has(s->comm, loss, which, rank);
}

static bool lost(const struct shrink *s, int rank)
{
    return has(s, s->mine, SHUNTI_LOST, rank);
}

static bool member(const struct shrink *s, int rank)
{
    return has(s, s->mine, SHUNTI_MEMBERS, rank);
}

/* The record of any rank. */
static const struct shunti_loss *record(const struct shrink *s, int rank)
{
    return rank == s->comm->rank ? s->mine : s->theirs[rank];
}

static void clear(const struct shrink *s, int which)
{
    for (int r = 0; r < s->comm->nranks; r += 64)
        shunti_loss_set(s->comm, s->mine, which)[r / 64] = 0;
}

static double seconds_since(uint64_t ns)
{
    return (double)(shunti_now_ns() - ns) * 1e-9;
}

/* Wait for news. The time that this process was stopped does not count. */
static void nap(struct shrink *s)
{
    uint64_t stopped;

    shunti_transports_nap(s->comm, NAP_MS);
    stopped = shunti_stopped_ns(&s->looked_ns);
    s->began_ns += stopped;
    s->attempt_ns += stopped;
}

static void __attribute__((format(printf, 3, 4)))
give_up(struct shrink *s, enum shunt_status status, const char *format, ...)
{
    char text[400];
    va_list args;

    if (s->status)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    s->status = shunti_fail(&s->comm->error, status, "comm_shrink: %s", text);
}

/* --- what there is to know ------------------------------------------------------ */

/* Records with stage and attempt; a loss may have been told by others. */
static void read_records(struct shrink *s)
{
    for (int r = 0; r < s->comm->nranks; r++)
        if (r != s->comm->rank)
            shunti_loss_read(s->comm, r, s->theirs[r]);
}

/* Has `rank` gone, or is about to go, with a decision that leaves us out? */
static bool excludes_us(const struct shrink *s, int rank)
{
    const struct shunti_loss *theirs = record(s, rank);

    return theirs->stage >= SHUNTI_BOUND &&
           theirs->attempt >= s->mine->attempt &&
           !has(s, theirs, SHUNTI_MEMBERS, s->comm->rank);
}

/* We see the rank's window, and it sees ours: as every rank knows of both. */
static bool maps_both_ways(const struct shrink *s, int rank)
{
    const struct shunti_peer *p = &s->comm->peers[rank];

    return p->control && (s->comm->all_mapped ||
                          (s->comm->nodes_mapped && p->node == s->comm->node));
}

/* A rank that is lost: can it still go on by itself? Our own record, with it
 * called lost, has been published. */
static bool is_out(const struct shrink *s, int rank)
{
    const struct shunti_peer *p = &s->comm->peers[rank];
    const bool gone = !p->transport->alive(p->ep);

    if (excludes_us(s, rank))
        return false;
    return maps_both_ways(s, rank) || (gone && p->control) ||
           (gone && p->transport->left(p->ep));
}

/* Whom do we count as lost, and as out? Publishes what is new. */
static void judge_peers(struct shrink *s)
{
    struct shunt_comm *comm = s->comm;
    bool news = false;

    for (int r = 0; r < comm->nranks; r++) {
        struct shunti_peer *p = &comm->peers[r];

        /* One that went may have left since: it is not lost. */
        if (r == comm->rank || lost(s, r) || record(s, r)->stage == SHUNTI_WENT)
            continue;
        for (size_t i = 0; i < comm->nlost && p->ep; i++)
            if (comm->lost[i] == r)
                shunti_loss_add(comm, s->mine, SHUNTI_LOST, r);
        if (!p->transport->alive(p->ep)) {
            shunti_loss_add(comm, s->mine, SHUNTI_LOST, r);
            shunti_comm_add_lost(comm, r);
        }
        news |= lost(s, r);
    }
    if (news) {
        if (!shunti_loss_publish(comm))
            return; /* who has not been told is not out */
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        read_records(s);
    }
    news = false;
    for (int r = 0; r < comm->nranks; r++) {
        if (!lost(s, r) || has(s, s->mine, SHUNTI_OUT, r) || !is_out(s, r))
            continue;
        shunti_loss_add(comm, s->mine, SHUNTI_OUT, r);
        news = true;
    }
    if (news)
        shunti_loss_publish(comm);
}

/* The others go on without us: the lost are those that `rank` goes on without,
 * and not members that have gone and left us alone. */
static void take_names(struct shrink *s, int rank)
{
    const struct shunti_loss *theirs = record(s, rank);
    struct shunt_comm *comm = s->comm;

    comm->nlost = 0;
    for (int r = 0; r < comm->nranks; r++)
        if (has(s, theirs, SHUNTI_LOST, r) ||
            (theirs->stage >= SHUNTI_BOUND &&
             !has(s, theirs, SHUNTI_MEMBERS, r)))
            shunti_comm_add_lost(comm, r);
}

/* A peer calls us lost, and relies on our giving up, or the others have gone. */
static void look_for_reporters(struct shrink *s)
{
    const int rank = s->comm->rank;

    for (int r = 0; r < s->comm->nranks && !s->status; r++) {
        if (r == rank)
            continue;
        if (has(s, s->theirs[r], SHUNTI_LOST, rank) &&
            (s->comm->peers[r].control || !lost(s, r)))
            give_up(s, SHUNT_ERR_TIMEOUT,
                    "rank %d gave this rank up, and the others go on without "
                    "it",
                    r);
        else if (excludes_us(s, r))
            give_up(s, SHUNT_ERR_TIMEOUT,
                    "the others went on without this rank: it came too late "
                    "(rank %d is in a communicator of theirs)",
                    r);
        if (s->status)
            take_names(s, r);
    }
}

/* Everything that there is to see from here. False: this rank gives up. */
static bool look(struct shrink *s)
{
    struct shunt_comm *comm = s->comm;

    shunti_transports_progress(comm);
    shunti_control_retry(comm);
    read_records(s);
    judge_peers(s);
    look_for_reporters(s);
    return !s->status;
}

static void set_stage(struct shrink *s, enum shunti_stage stage)
{
    s->mine->stage = stage;
    /* Nobody goes before all have heard that we are bound, and have made it. */
    if (!shunti_loss_publish(s->comm) &&
        (stage == SHUNTI_BOUND || stage == SHUNTI_MADE))
        give_up(s, SHUNT_ERR_MEMORY, "no memory to tell the others");
    /* Whoever calls us lost from now on has seen this stage. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void next_attempt(struct shrink *s, uint32_t attempt)
{
    s->mine->attempt = attempt;
    s->mine->leader = -1;
    s->attempt_ns = s->looked_ns = shunti_now_ns();
    clear(s, SHUNTI_MEMBERS);
    set_stage(s, SHUNTI_HERE);
}

/* --- deciding ---------------------------------------------------------------------- */

/* The highest attempt that a rank which is not lost has come to. */
static uint32_t latest_attempt(const struct shrink *s)
{
    uint32_t latest = s->mine->attempt;

    for (int r = 0; r < s->comm->nranks; r++)
        if (!lost(s, r) && record(s, r)->attempt > latest)
            latest = record(s, r)->attempt;
    return latest;
}

static bool is_here(const struct shrink *s, int rank)
{
    return !lost(s, rank) && record(s, rank)->stage == SHUNTI_HERE &&
           record(s, rank)->attempt == s->mine->attempt;
}

static int lowest_not_lost(const struct shrink *s)
{
    int r = 0;

    while (lost(s, r))
        r++;
    return r; /* at the latest ourselves */
}

/* Everybody who is here and whom no member counts as lost. */
static void choose_members(struct shrink *s)
{
    clear(s, SHUNTI_MEMBERS);
    for (int r = 0; r < s->comm->nranks; r++) {
        bool good = is_here(s, r);

        for (int m = 0; m < r && good; m++)
            if (member(s, m))
                good = !has(s, record(s, m), SHUNTI_LOST, r) &&
                       !has(s, record(s, r), SHUNTI_LOST, m);
        if (good)
            shunti_loss_add(s->comm, s->mine, SHUNTI_MEMBERS, r);
    }
}

static bool out_for_members(const struct shrink *s, int rank)
{
    for (int m = 0; m < s->comm->nranks; m++)
        if (member(s, m) && has(s, record(s, m), SHUNTI_OUT, rank))
            return true;
    return false;
}

static bool have_quorum(const struct shrink *s)
{
    int members = 0, others = 0, lowest = -1;

    for (int r = 0; r < s->comm->nranks; r++) {
        if (!member(s, r) && out_for_members(s, r))
            continue;
        if (lowest < 0)
            lowest = r;
        members += member(s, r);
        others += !member(s, r);
    }
    return members > others || (members == others && member(s, lowest));
}

static void too_few(struct shrink *s, int leader)
{
    char names[128], nodes[64];

    shunti_loss_believe(s->comm); /* the leader, for all to name the same */
    shunti_loss_names(s->comm, names, sizeof(names));
    shunti_loss_nodes(s->comm, nodes, sizeof(nodes));
    give_up(s, SHUNT_ERR_PEER,
            "%s%s cannot be reached, nothing proves that they have ended, and "
            "rank %d finds too few ranks left to go on without them",
            names, nodes, leader);
}

/* The names of the members, in their order: what the new ranks are called. */
static int *member_names(const struct shrink *s, int *size, int *place)
{
    int *names = calloc((size_t)s->comm->nranks, sizeof(*names));

    *size = *place = 0;
    for (int r = 0; names && r < s->comm->nranks; r++) {
        if (!member(s, r))
            continue;
        *place += r < s->comm->rank;
        names[(*size)++] = r;
    }
    if (!names)
        shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    return names;
}

static enum shunt_status make_id(struct shrink *s)
{
    int size, place, *names = member_names(s, &size, &place);
    enum shunt_status st = SHUNT_ERR_MEMORY;

    if (names)
        st = shunti_id_create_named(
            names, size, shunti_reach_of(s->comm, names, size), &s->mine->id);
    free(names);
    return st;
}

/* The leader's part. False: wait on. */
static bool decide(struct shrink *s)
{
    struct shunt_comm *comm = s->comm;
    /* One that is in a call of another communicator may hear of it only when
     * that has timed out. */
    bool late = seconds_since(s->attempt_ns) > 2 * comm->init_timeout;
    enum shunt_status st;

    for (int r = 0; r < comm->nranks; r++) {
        if (lost(s, r) || is_here(s, r))
            continue;
        if (!late)
            return false;
        shunti_comm_add_lost(comm, r); /* seen with the next look() */
    }
    if (late && comm->nlost && !look(s))
        return false;
    choose_members(s);
    if (!have_quorum(s)) {
        set_stage(s, SHUNTI_REFUSED);
        too_few(s, comm->rank);
        return false;
    }
    st = make_id(s);
    if (st) {
        give_up(s, st, "%s", shunti_error_last());
        return false;
    }
    s->mine->leader = comm->rank;
    return true;
}

/* A decision of a leader's that counts us in, or NULL. */
static const struct shunti_loss *find_decision(struct shrink *s)
{
    for (int r = 0; r < s->comm->nranks; r++) {
        const struct shunti_loss *theirs = s->theirs[r];

        if (r == s->comm->rank || theirs->attempt < s->mine->attempt)
            continue;
        if (theirs->stage == SHUNTI_REFUSED) /* and has perhaps left since */
            too_few(s, r);
        if (!lost(s, r) && theirs->stage >= SHUNTI_BOUND &&
            theirs->leader == r &&
            has(s, theirs, SHUNTI_MEMBERS, s->comm->rank))
            return theirs;
    }
    return NULL;
}

/* Until this rank is bound to a decision. False: it gives up. */
static bool await_decision(struct shrink *s)
{
    struct shunt_comm *comm = s->comm;

    for (;;) {
        const struct shunti_loss *theirs;

        if (!look(s))
            return false;
        if (latest_attempt(s) > s->mine->attempt)
            next_attempt(s, latest_attempt(s));
        theirs = find_decision(s);
        if (theirs) {
            s->mine->attempt = theirs->attempt;
            s->mine->leader = theirs->leader;
            s->mine->id = theirs->id;
            memcpy(shunti_loss_set(comm, s->mine, SHUNTI_MEMBERS),
                   shunti_loss_set(comm, s->theirs[theirs->leader],
                                   SHUNTI_MEMBERS),
                   ((size_t)comm->nranks + 63) / 64 * 8);
            break;
        }
        if (s->status)
            return false;
        if (lowest_not_lost(s) == comm->rank) {
            if (decide(s))
                break;
        } else if (seconds_since(s->attempt_ns) > 4 * comm->init_timeout) {
            shunti_comm_add_lost(comm, lowest_not_lost(s));
            s->attempt_ns = s->looked_ns = shunti_now_ns();
        }
        if (s->status)
            return false;
        if (seconds_since(s->began_ns) > TIMEOUTS * comm->init_timeout) {
            give_up(s, SHUNT_ERR_TIMEOUT, "no decision in %g s",
                    seconds_since(s->began_ns));
            return false;
        }
        nap(s);
    }
    set_stage(s, SHUNTI_BOUND);
    return look(s);
}

/* --- making it ----------------------------------------------------------------------- */

/* A member that will not come, or -1. */
static int missing_member(const struct shrink *s)
{
    for (int r = 0; r < s->comm->nranks; r++)
        if (r != s->comm->rank && member(s, r) &&
            (lost(s, r) || record(s, r)->attempt > s->mine->attempt))
            return r;
    return -1;
}

static bool doomed(void *arg, char *why, size_t size)
{
    struct shrink *s = arg;
    int r;

    if (!look(s)) {
        snprintf(why, size, "%s", shunt_last_error(s->comm));
        return true;
    }
    r = missing_member(s);
    if (r < 0)
        return false;
    if (lost(s, r))
        snprintf(why, size, "rank %d is lost", r);
    else
        snprintf(why, size, "rank %d noticed another loss", r);
    return true;
}

/* The communicator of the decision. Its error is in shunti_error_last(). */
static enum shunt_status make(struct shrink *s, struct shunt_comm **made)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunti_parent parent = {
        .root = s->mine->leader, .doomed = doomed, .arg = s};
    struct shunt_comm *comm = s->comm;
    int size, place, *names = member_names(s, &size, &place);
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
static void unmake(struct shunt_comm *made)
{
    if (!made)
        return;
    made->loss = made->loss ? made->loss : shunti_loss_new(made->nranks);
    if (made->loss) {
        made->loss->attempt = UINT32_MAX;
        made->loss->stage = SHUNTI_WENT;
        made->loss->leader = made->rank;
        shunti_loss_publish(made);
    }
    shunt_comm_destroy(made);
}

/* Do all members that are not lost have it, and count the same as lost? */
static bool members_agree(const struct shrink *s)
{
    for (int r = 0; r < s->comm->nranks; r++) {
        if (r == s->comm->rank || !member(s, r) || lost(s, r))
            continue;
        if (record(s, r)->stage < SHUNTI_MADE ||
            record(s, r)->attempt != s->mine->attempt)
            return false;
        for (int m = 0; m < s->comm->nranks; m++)
            if (member(s, m) &&
                lost(s, m) != has(s, record(s, r), SHUNTI_LOST, m))
                return false;
    }
    return true;
}

static bool somebody_went(const struct shrink *s)
{
    for (int r = 0; r < s->comm->nranks; r++)
        if (r != s->comm->rank && member(s, r) &&
            record(s, r)->stage == SHUNTI_WENT &&
            record(s, r)->attempt == s->mine->attempt)
            return true;
    return false;
}

/* We have it; may we go? False: on to the next attempt, or give up. */
static bool await_members(struct shrink *s)
{
    set_stage(s, SHUNTI_MADE);
    s->attempt_ns = s->looked_ns = shunti_now_ns();
    for (;;) {
        bool accused = !look(s);
        int missing = missing_member(s);

        if (somebody_went(s)) {
            /* With us: what else is said of us is older. */
            s->status = SHUNT_OK;
            return true;
        }
        if (accused || (missing >= 0 && !lost(s, missing)))
            return false;
        if (members_agree(s))
            return missing < 0;
        if (seconds_since(s->attempt_ns) > s->comm->init_timeout) {
            for (int r = 0; r < s->comm->nranks; r++)
                if (r != s->comm->rank && member(s, r) &&
                    record(s, r)->stage < SHUNTI_MADE)
                    shunti_comm_add_lost(s->comm, r);
            return false;
        }
        nap(s);
    }
}

/* --- all together --------------------------------------------------------------------- */

static enum shunt_status went(struct shrink *s, struct shunt_comm *made,
                              struct shunt_comm **out)
{
    set_stage(s, SHUNTI_WENT);
    /* The same on every member: one that has gone and left is none of these. */
    s->comm->nlost = 0;
    for (int r = 0; r < s->comm->nranks; r++)
        if (!member(s, r))
            shunti_comm_add_lost(s->comm, r);
    *out = made;
    return SHUNT_OK;
}

/* The making has failed: was it for a loss? That may be known to the root of
 * the new communicator before it is here. */
static bool await_loss(struct shrink *s)
{
    uint64_t start = shunti_now_ns();

    while (look(s) && missing_member(s) < 0) {
        if (seconds_since(start) > NOTICE_SECONDS)
            return false;
        nap(s);
    }
    return true;
}

static enum shunt_status shrink(struct shrink *s, struct shunt_comm **out)
{
    struct shunt_comm *comm = s->comm;
    struct shunt_comm *made;
    char why[400];

    /* Whoever gave up earlier may come again. */
    next_attempt(s, s->mine->attempt ? s->mine->attempt : 1);
    while (await_decision(s)) {
        enum shunt_status st = make(s, &made);

        if (!st && await_members(s))
            return went(s, made, out);
        unmake(made);
        /* A loss is a reason to try again without it; what else keeps this
         * rank from it would do so again. */
        if (st)
            snprintf(why, sizeof(why), "%s", shunti_error_last());
        if (st && !await_loss(s))
            give_up(s, st, "%s", why);
        else if (seconds_since(s->began_ns) > TIMEOUTS * comm->init_timeout)
            give_up(s, SHUNT_ERR_TIMEOUT, "no communicator in %g s",
                    seconds_since(s->began_ns));
        if (s->status)
            break;
        next_attempt(s, s->mine->attempt + 1);
    }
    /* Others that are bound to the same decision must not wait for us. */
    if (s->mine->stage != SHUNTI_REFUSED) {
        s->mine->attempt++;
        s->mine->leader = -1;
        clear(s, SHUNTI_MEMBERS);
        set_stage(s, SHUNTI_AWAY);
    }
    return s->status;
}

static void free_records(struct shrink *s)
{
    for (int r = 0; s->theirs && r < s->comm->nranks; r++)
        free(s->theirs[r]);
    free(s->theirs);
}

static bool make_records(struct shrink *s)
{
    struct shunt_comm *comm = s->comm;

    if (!comm->loss)
        comm->loss = shunti_loss_new(comm->nranks);
    s->mine = comm->loss;
    s->theirs = calloc((size_t)comm->nranks, sizeof(struct shunti_loss *));
    if (!s->mine || !s->theirs)
        return false;
    for (int r = 0; r < comm->nranks; r++) {
        s->theirs[r] = shunti_loss_new(comm->nranks);
        if (!s->theirs[r])
            return false;
    }
    return true;
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
    if (comm->loss && comm->loss->stage == SHUNTI_WENT)
        return shunti_fail(&comm->error, SHUNT_ERR_INVALID,
                           "comm_shrink: this communicator has been shrunk "
                           "already");
    return SHUNT_OK;
}

enum shunt_status shunt_comm_shrink(struct shunt_comm *comm,
                                    struct shunt_comm **out)
{
    struct shrink s = {.comm = comm, .began_ns = shunti_now_ns()};
    enum shunt_status st;

    if (!comm || !out)
        return shunti_fail(&comm->error, SHUNT_ERR_INVALID,
                           "comm_shrink: %s is NULL", comm ? "out" : "comm");
    *out = NULL;
    if (!comm->control) /* it has been destroyed */
        return shunti_comm_check(comm);
    shunti_comm_enter(comm);
    st = refuse(comm);
    if (!st && !make_records(&s))
        st = shunti_fail(&comm->error, SHUNT_ERR_MEMORY,
                         "comm_shrink: no memory");
    if (!st)
        st = shrink(&s, out);
    free_records(&s);
    shunti_comm_leave(comm);
    return st;
}
