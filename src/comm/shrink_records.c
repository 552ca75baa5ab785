// SPDX-License-Identifier: Apache-2.0
/*
 * A rank's knowledge of the other ranks in shunt_comm_shrink(). The rank reads
 * their loss records, finds out which ranks are lost and which are fenced, and
 * publishes its own record.
 */
#include "src/comm/shrink.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/error.h"
#include "src/progress/wait.h"
#include "src/wire/contexts.h"
#include "src/wire/failure.h"
#include "src/wire/wire.h"

#define NAP_MS 20

void shunti_shrink_clear(const struct shunti_shrink *s, int which)
{
    for (int r = 0; r < s->comm->nranks; r += 64)
        shunti_loss_set(s->comm, s->mine, which)[r / 64] = 0;
}

void shunti_shrink_nap(struct shunti_shrink *s)
{
    uint64_t stopped;

    shunti_transports_nap_for_peers(s->comm, NAP_MS);
    stopped = shunti_stopped_ns(&s->looked_ns);
    s->began_ns += stopped;
    s->attempt_ns += stopped;
}

void shunti_shrink_give_up(struct shunti_shrink *s, enum shunt_status status,
                           const char *format, ...)
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

bool shunti_shrink_make_records(struct shunti_shrink *s)
{
    struct shunt_comm *comm = s->comm;

    if (!comm->loss.record)
        comm->loss.record = shunti_loss_new(comm->nranks);
    s->mine = comm->loss.record;
    s->theirs = calloc((size_t)comm->nranks, sizeof(struct shunti_loss *));
    s->settled = calloc(((size_t)comm->nranks + 63) / 64, sizeof(uint64_t));
    if (!s->mine || !s->theirs || !s->settled)
        return false;
    for (size_t i = 0; i < comm->failure.nlost; i++)
        s->settled[comm->failure.lost[i] / 64] |= UINT64_C(1)
                                                  << comm->failure.lost[i] % 64;
    for (int r = 0; r < comm->nranks; r++) {
        s->theirs[r] = shunti_loss_new(comm->nranks);
        if (!s->theirs[r])
            return false;
    }
    return true;
}

void shunti_shrink_free_records(struct shunti_shrink *s)
{
    for (int r = 0; s->theirs && r < s->comm->nranks; r++)
        free(s->theirs[r]);
    free(s->theirs);
    free(s->settled);
}

static void read_records(struct shunti_shrink *s)
{
    for (int r = 0; r < s->comm->nranks; r++)
        if (r != s->comm->rank)
            shunti_loss_read(s->comm, r, s->theirs[r]);
}

/* Has `rank` accepted a decision that excludes this rank, or returned the
 * communicator of one? */
static bool excludes_us(const struct shunti_shrink *s, int rank)
{
    const struct shunti_loss *theirs = shunti_shrink_record(s, rank);

    return theirs->stage >= SHUNTI_SHRINK_BOUND &&
           theirs->attempt >= s->mine->attempt &&
           !shunti_shrink_has(s, theirs, SHUNTI_MEMBERS, s->comm->rank);
}

/* Do this rank and `rank` map each other's window? True only if every rank can
 * know that both do. */
static bool maps_both_ways(const struct shunti_shrink *s, int rank)
{
    const struct shunti_peer *p = &s->comm->peers[rank];

    return p->control && (s->comm->all_mapped || (s->comm->node_map.mapped &&
                                                  p->node == s->comm->node));
}

/* Is a lost rank fenced (shrink.c)? The record of this rank that counts it as
 * lost must have been published before. */
static bool is_fenced(const struct shunti_shrink *s, int rank)
{
    const struct shunti_peer *p = &s->comm->peers[rank];
    const bool gone = !p->transport->alive(p->ep);

    if (excludes_us(s, rank))
        return false;
    return maps_both_ways(s, rank) || (gone && p->control) ||
           (gone && p->transport->left(p->ep));
}

/* Find out which ranks are lost, and which are fenced. Publishes each
 * change. */
static void update_lost(struct shunti_shrink *s)
{
    struct shunt_comm *comm = s->comm;
    bool news = false;

    for (int r = 0; r < comm->nranks; r++) {
        struct shunti_peer *p = &comm->peers[r];

        /* A rank that has returned may have left since: it is not lost. */
        if (r == comm->rank || shunti_shrink_lost(s, r) ||
            shunti_shrink_record(s, r)->stage == SHUNTI_SHRINK_RETURNED)
            continue;
        for (size_t i = 0; i < comm->failure.nlost && p->ep; i++)
            if (comm->failure.lost[i] == r)
                shunti_loss_add(comm, s->mine, SHUNTI_LOST, r);
        if (!p->transport->alive(p->ep)) {
            shunti_loss_add(comm, s->mine, SHUNTI_LOST, r);
            shunti_comm_add_lost(comm, r);
        }
        news |= shunti_shrink_lost(s, r);
    }
    if (news) {
        if (!shunti_loss_publish(comm))
            return; /* a rank that did not get the record is not fenced */
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        read_records(s);
    }
    news = false;
    for (int r = 0; r < comm->nranks; r++) {
        if (!shunti_shrink_lost(s, r) ||
            shunti_shrink_has(s, s->mine, SHUNTI_FENCED, r) || !is_fenced(s, r))
            continue;
        shunti_loss_add(comm, s->mine, SHUNTI_FENCED, r);
        news = true;
    }
    if (news)
        shunti_loss_publish(comm);
}

/* The others continue without this rank. Report as lost the ranks that `rank`
 * continues without, but not members that have returned and left. */
static void copy_lost(struct shunti_shrink *s, int rank)
{
    const struct shunti_loss *theirs = shunti_shrink_record(s, rank);
    struct shunt_comm *comm = s->comm;

    comm->failure.nlost = 0;
    for (int r = 0; r < comm->nranks; r++)
        if (shunti_shrink_has(s, theirs, SHUNTI_LOST, r) ||
            (theirs->stage >= SHUNTI_SHRINK_BOUND &&
             !shunti_shrink_has(s, theirs, SHUNTI_MEMBERS, r)))
            shunti_comm_add_lost(comm, r);
}

/* Give up if a peer counts this rank as lost, because the peer relies on that;
 * or if the others continue without this rank. */
static void check_reports(struct shunti_shrink *s)
{
    const int rank = s->comm->rank;

    for (int r = 0; r < s->comm->nranks && !s->status; r++) {
        if (r == rank)
            continue;
        if (shunti_shrink_has(s, s->theirs[r], SHUNTI_LOST, rank) &&
            (s->comm->peers[r].control || !shunti_shrink_lost(s, r)))
            shunti_shrink_give_up(
                s, SHUNT_ERR_TIMEOUT,
                "rank %d gave this rank up, and the others go on without "
                "it",
                r);
        else if (excludes_us(s, r))
            shunti_shrink_give_up(
                s, SHUNT_ERR_TIMEOUT,
                "the others went on without this rank: it came too late "
                "(rank %d is in a communicator of theirs)",
                r);
        if (s->status)
            copy_lost(s, r);
    }
}

bool shunti_shrink_look(struct shunti_shrink *s)
{
    struct shunt_comm *comm = s->comm;

    shunti_transports_progress(comm);
    shunti_control_retry(comm);
    /* answer probes: other ranks may still be settling which ranks are lost */
    shunti_probe_poll(comm);
    read_records(s);
    update_lost(s);
    check_reports(s);
    return !s->status;
}

void shunti_shrink_set_stage(struct shunti_shrink *s,
                             enum shunti_shrink_stage stage)
{
    s->mine->stage = stage;
    /* No member returns before all have read that this rank is BOUND, and
     * MADE. */
    if (!shunti_loss_publish(s->comm) &&
        (stage == SHUNTI_SHRINK_BOUND || stage == SHUNTI_SHRINK_MADE))
        shunti_shrink_give_up(s, SHUNT_ERR_MEMORY,
                              "no memory to tell the others");
    /* A rank that counts this rank as lost from now on has seen this stage. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void shunti_shrink_next_attempt(struct shunti_shrink *s, uint32_t attempt)
{
    s->mine->attempt = attempt;
    s->mine->leader = -1;
    s->attempt_ns = s->looked_ns = shunti_now_ns();
    shunti_shrink_clear(s, SHUNTI_MEMBERS);
    shunti_shrink_set_stage(s, SHUNTI_SHRINK_WAITING);
}
