// SPDX-License-Identifier: Apache-2.0
/*
 * Agreeing on the members of the new communicator: the leader decides, and
 * every other rank waits for a decision that includes it.
 */
#include "src/comm/shrink.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/boot/bootstrap.h"
#include "src/comm/cover.h"
#include "src/wire/failure.h"
#include "src/wire/nodes.h"

/*
 * A rank waits LEADER_AWAY timeouts for a leader that is not in the call, and
 * LEADER_THERE timeouts for a leader that is in the call. A leader in the call
 * may not know that it leads: it may still wait for a lower rank that is not in
 * the call. Others may have seen that rank leave, and the leader may have begun
 * the call later than they did. Both numbers must be less than
 * SHUNTI_SHRINK_TIMEOUTS.
 */
#define LEADER_AWAY 4
#define LEADER_THERE 6

/* The highest attempt of a rank that is not lost. */
static uint32_t latest_attempt(const struct shunti_shrink *s)
{
    uint32_t latest = s->mine->attempt;

    for (int r = 0; r < s->comm->nranks; r++)
        if (!shunti_shrink_lost(s, r) &&
            shunti_shrink_record(s, r)->attempt > latest)
            latest = shunti_shrink_record(s, r)->attempt;
    return latest;
}

static bool is_waiting(const struct shunti_shrink *s, int rank)
{
    return !shunti_shrink_lost(s, rank) &&
           shunti_shrink_record(s, rank)->stage == SHUNTI_SHRINK_WAITING &&
           shunti_shrink_record(s, rank)->attempt == s->mine->attempt;
}

static int lowest_not_lost(const struct shunti_shrink *s)
{
    int r = 0;

    while (shunti_shrink_lost(s, r))
        r++;
    return r; /* the loop ends at this rank at the latest */
}

/* Does one of the two ranks count the other as lost? */
static bool disagree(const struct shunti_shrink *s, int a, int b)
{
    return shunti_shrink_has(s, shunti_shrink_record(s, a), SHUNTI_LOST, b) ||
           shunti_shrink_has(s, shunti_shrink_record(s, b), SHUNTI_LOST, a);
}

/* May `rank` be a member? The leader, which is this rank, always is one. */
static bool may_be_member(const struct shunti_shrink *s, int rank)
{
    return is_waiting(s, rank) &&
           (rank == s->comm->rank || !disagree(s, s->comm->rank, rank));
}

/* Choose the members: all WAITING ranks, except the smallest set without which
 * no member counts another one as lost. False: no memory. */
static bool choose_members(struct shunti_shrink *s)
{
    const int n = s->comm->nranks;
    const size_t row = ((size_t)n + 63) / 64;
    uint64_t *edges = calloc((2 * (size_t)n + 1) * row, sizeof(*edges));
    uint64_t *none, *without;
    bool done;

    shunti_shrink_clear(s, SHUNTI_MEMBERS);
    if (!edges)
        return false;
    none = edges + (size_t)n * row;
    without = none + (size_t)n * row;
    for (int a = 0; a < n; a++)
        for (int b = 0; may_be_member(s, a) && b < n; b++)
            if (a != b && may_be_member(s, b) && disagree(s, a, b))
                edges[(size_t)a * row + (size_t)b / 64] |= UINT64_C(1)
                                                           << b % 64;
    done = shunti_cover(n, edges, none, NULL, without);
    for (int r = 0; done && r < n; r++)
        if (may_be_member(s, r) && !(without[r / 64] >> r % 64 & 1))
            shunti_loss_add(s->comm, s->mine, SHUNTI_MEMBERS, r);
    free(edges);
    return done;
}

static bool is_fenced_by_members(const struct shunti_shrink *s, int rank)
{
    for (int m = 0; m < s->comm->nranks; m++)
        if (shunti_shrink_member(s, m) &&
            shunti_shrink_has(s, shunti_shrink_record(s, m), SHUNTI_FENCED,
                              rank))
            return true;
    return false;
}

static bool have_quorum(const struct shunti_shrink *s)
{
    int members = 0, others = 0, lowest = -1;

    for (int r = 0; r < s->comm->nranks; r++) {
        if (!shunti_shrink_member(s, r) && is_fenced_by_members(s, r))
            continue;
        if (lowest < 0)
            lowest = r;
        members += shunti_shrink_member(s, r);
        others += !shunti_shrink_member(s, r);
    }
    return members > others ||
           (members == others && shunti_shrink_member(s, lowest));
}

static void no_quorum(struct shunti_shrink *s, int leader)
{
    char names[128], nodes[64];

    shunti_loss_merge(s->comm); /* so that all ranks name the same ranks */
    shunti_loss_names(s->comm, names, sizeof(names));
    shunti_loss_nodes(s->comm, nodes, sizeof(nodes));
    shunti_shrink_give_up(
        s, SHUNT_ERR_PEER,
        "%s%s cannot be reached, nothing proves that they have ended, and "
        "rank %d finds too few ranks left to go on without them",
        names, nodes, leader);
}

int *shunti_shrink_member_names(const struct shunti_shrink *s, int *size,
                                int *place)
{
    int *names = calloc((size_t)s->comm->nranks, sizeof(*names));

    *size = *place = 0;
    for (int r = 0; names && r < s->comm->nranks; r++) {
        if (!shunti_shrink_member(s, r))
            continue;
        *place += r < s->comm->rank;
        names[(*size)++] = r;
    }
    if (!names)
        shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    return names;
}

static enum shunt_status make_id(struct shunti_shrink *s)
{
    int size, place, *names = shunti_shrink_member_names(s, &size, &place);
    enum shunt_status st = SHUNT_ERR_MEMORY;

    if (names)
        st = shunti_id_create_named(
            names, size, shunti_reach_of(s->comm, names, size), &s->mine->id);
    free(names);
    return st;
}

/* Decide, as the leader. False: keep waiting. */
static bool decide(struct shunti_shrink *s)
{
    struct shunt_comm *comm = s->comm;
    /* A rank that is in a call of another communicator may notice the failure
     * only when that call has timed out. */
    bool late = shunti_shrink_elapsed(s->attempt_ns) >
                2 * comm->configured.init_timeout;
    enum shunt_status st;

    for (int r = 0; r < comm->nranks; r++) {
        if (shunti_shrink_lost(s, r) || is_waiting(s, r))
            continue;
        if (!late)
            return false;
        shunti_comm_add_lost(comm, r); /* shunti_shrink_look() reads the list */
    }
    if (late && comm->failure.nlost && !shunti_shrink_look(s))
        return false;
    if (!choose_members(s)) {
        shunti_shrink_give_up(s, SHUNT_ERR_MEMORY, "no memory");
        return false;
    }
    if (!have_quorum(s)) {
        shunti_shrink_set_stage(s, SHUNTI_SHRINK_NO_QUORUM);
        no_quorum(s, comm->rank);
        return false;
    }
    st = make_id(s);
    if (st) {
        shunti_shrink_give_up(s, st, "%s", shunti_error_last());
        return false;
    }
    s->mine->leader = comm->rank;
    return true;
}

/* A leader's decision that includes this rank, or NULL. */
static const struct shunti_loss *find_decision(struct shunti_shrink *s)
{
    for (int r = 0; r < s->comm->nranks; r++) {
        const struct shunti_loss *theirs = s->theirs[r];

        if (r == s->comm->rank || theirs->attempt < s->mine->attempt)
            continue;
        /* A leader may have left since its decision, so whether it is lost now
         * does not matter. But a rank that was lost before this call does not
         * lead the call. */
        if (theirs->stage == SHUNTI_SHRINK_NO_QUORUM &&
            !(s->settled[r / 64] >> r % 64 & 1))
            no_quorum(s, r);
        if (!shunti_shrink_lost(s, r) && theirs->stage >= SHUNTI_SHRINK_BOUND &&
            theirs->leader == r &&
            shunti_shrink_has(s, theirs, SHUNTI_MEMBERS, s->comm->rank))
            return theirs;
    }
    return NULL;
}

static bool is_in_call(const struct shunti_shrink *s, int rank)
{
    return shunti_shrink_record(s, rank)->stage != SHUNTI_SHRINK_NONE;
}

/* Count the leader as lost if it is late. Also count as lost the ranks between
 * the leader and this rank that are not in the call: they would lead next. */
static void check_leader(struct shunti_shrink *s)
{
    struct shunt_comm *comm = s->comm;
    const int leader = lowest_not_lost(s);
    const int timeouts = is_in_call(s, leader) ? LEADER_THERE : LEADER_AWAY;

    if (shunti_shrink_elapsed(s->attempt_ns) <=
        timeouts * comm->configured.init_timeout)
        return;
    /* shunti_shrink_look() reads the list */
    shunti_comm_add_lost(comm, leader);
    for (int r = leader + 1; r < comm->rank; r++)
        if (!shunti_shrink_lost(s, r) && !is_in_call(s, r))
            shunti_comm_add_lost(comm, r);
    s->attempt_ns = s->looked_ns = shunti_now_ns();
}

bool shunti_shrink_await_decision(struct shunti_shrink *s)
{
    struct shunt_comm *comm = s->comm;

    for (;;) {
        const struct shunti_loss *theirs;

        if (!shunti_shrink_look(s))
            return false;
        if (latest_attempt(s) > s->mine->attempt)
            shunti_shrink_next_attempt(s, latest_attempt(s));
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
        if (lowest_not_lost(s) != comm->rank)
            check_leader(s);
        else if (decide(s))
            break;
        if (s->status)
            return false;
        if (shunti_shrink_elapsed(s->began_ns) >
            SHUNTI_SHRINK_TIMEOUTS * comm->configured.init_timeout) {
            shunti_shrink_give_up(s, SHUNT_ERR_TIMEOUT, "no decision in %g s",
                                  shunti_shrink_elapsed(s->began_ns));
            return false;
        }
        shunti_shrink_nap(s);
    }
    shunti_shrink_set_stage(s, SHUNTI_SHRINK_BOUND);
    return shunti_shrink_look(s);
}
