// SPDX-License-Identifier: Apache-2.0
/* Timeouts and lost ranks; see liveness.h. */
#include "src/progress/liveness.h"

#include <stdio.h>

#include "src/comm.h"
#include "src/op/note.h"
#include "src/op/operations.h"
#include "src/op/request.h"
#include "src/progress/exit.h"
#include "src/progress/probe.h"
#include "src/trace/trace.h"
#include "src/wire/failure.h"
#include "src/wire/loss.h"
#include "src/wire/wire.h"

/* The probe begins at most this long before the timeout. */
#define NOTICE_NS 1000000000u
/* After its timeout, this rank waits at most so many further timeouts for the
 * decision of a rank that answers. */
#define PATIENCE 3

static uint64_t timeout_ns(const struct shunt_comm *comm)
{
    return shunti_ns(comm->liveness.timeout);
}

uint64_t shunti_liveness_notice_ns(const struct shunt_comm *comm)
{
    uint64_t part = timeout_ns(comm) / 4;

    return part < NOTICE_NS ? part : NOTICE_NS;
}

/* A probe or a reply is no sign of progress. Nor is the wake-up that is sent
 * with it, which may arrive later. Otherwise ranks that all wait would keep
 * each other waiting for ever by probing. */
void shunti_liveness_note_events(struct shunt_comm *comm)
{
    const bool rung = shunti_probe_poll(comm);
    uint64_t now;

    if (!rung && comm->contexts.events == comm->liveness.events_seen)
        return;
    now = shunti_now_ns();
    comm->liveness.events_seen = comm->contexts.events;
    if (rung)
        comm->probe.last_ns = now;
    if (now < comm->probe.last_ns + shunti_liveness_notice_ns(comm) / 2)
        return;
    comm->liveness.last_event_ns = now;
    comm->probe.open = false;
    comm->probe.extensions = 0;
}

/*
 * How likely an awaited peer is the cause of a timeout; the likeliest is last.
 *
 * UNFINISHED     the peer has sent a message of this call, but has not finished
 * UNHEARD_AFAR   no message of this call has arrived from the peer; it is on
 *                another node, where it may itself wait for a local peer
 * UNHEARD_LOCAL  no message of this call has arrived from the peer; it is on
 *                this node
 * SILENT         the peer does not answer the probe
 */
enum { NOT_AWAITED, UNFINISHED, UNHEARD_AFAR, UNHEARD_LOCAL, SILENT };

static int suspicion(const struct shunt_request *request, int peer)
{
    const struct shunt_comm *comm = request->comm;

    if (peer == comm->rank || !request->class->awaits(request, peer))
        return NOT_AWAITED;
    if (!shunti_probe_answered(comm, peer))
        return SILENT;
    if (request->class->received && request->class->received(request, peer))
        return UNFINISHED;
    return comm->peers[peer].node == comm->node ? UNHEARD_LOCAL : UNHEARD_AFAR;
}

static int likeliest(const struct shunt_request *request)
{
    int most = NOT_AWAITED;

    for (int r = 0; r < request->comm->nranks; r++) {
        int blame = suspicion(request, r);

        most = blame > most ? blame : most;
    }
    return most;
}

/*
 * Write the peers that are the likeliest cause of the timeout of `request` to
 * `text`, as "2, 5". Returns the first of them, or -1.
 *
 * lost  true: also count these peers as lost.
 */
static int name_missing(const struct shunt_request *request, bool lost,
                        char *text, size_t size)
{
    const int most = likeliest(request);
    int first = -1;
    size_t len = 0;

    text[0] = 0;
    for (int r = 0; r < request->comm->nranks && most != NOT_AWAITED; r++) {
        if (suspicion(request, r) != most)
            continue;
        if (len + 16 < size)
            len += (size_t)snprintf(text + len, size - len, "%s%d",
                                    first < 0 ? "" : ", ", r);
        if (first < 0)
            first = r;
        if (lost)
            shunti_comm_add_lost(request->comm, r);
    }
    return first;
}

/* Fail because the awaited ranks are alive, but do not make this call. */
static void fail_by_order(struct shunt_comm *comm)
{
    const struct shunt_request *request = comm->operations.active;
    char missing[128], text[sizeof(comm->failure.text)];
    const int first = name_missing(request, false, missing, sizeof(missing));

    snprintf(
        text, sizeof(text),
        "%s (operation %llu): nothing from rank %s for %.3g s, which is alive: "
        "it waits in %s (SHUNT_TIMEOUT)",
        shunti_request_name(request), (unsigned long long)request->seq,
        first < 0 ? "?" : missing, comm->liveness.timeout,
        first >= 0 && shunti_probe_elsewhere(comm, first)
            ? "a call on another communicator; do all ranks make the calls on "
              "different communicators in the same order?"
            : "this communicator, too; do all ranks make the same calls?");
    shunti_comm_fail_alive(comm, first, text);
}

/*
 * Fail because a rank that is needed is gone. If another rank crashed first,
 * the needed rank is gone because of that crash: a rank that notices a crash
 * gives up, and its connections end. Then the error names the crashed rank,
 * even if this rank has received everything from it. (The needed rank reports
 * the crash when it gives up, but this message may be lost with its
 * connection.)
 */
static void fail_by_loss(struct shunt_comm *comm,
                         const struct shunt_request *request, int needed)
{
    const int crash = comm->liveness.first_crash - 1;
    const int rank = crash >= 0 ? crash : needed;
    const struct shunti_peer *p = &comm->peers[rank];
    const bool left = p->transport->left(p->ep);
    const int exited = left ? -1 : shunti_exit_of(comm, rank);
    const char *why =
        left || exited >= 0 || p->control ? NULL : shunti_why_lost(comm, rank);
    char since[64] = "";

    if (exited >= 0)
        snprintf(since, sizeof(since), " (exit status %d)", exited);
    else if (rank != needed)
        snprintf(since, sizeof(since), "; rank %d is gone, too", needed);
    shunti_comm_fail(
        comm, SHUNT_ERR_PEER, rank,
        why    ? "%s (operation %llu): rank %d is lost: %s%s"
        : left ? "%s (operation %llu): rank %d has left: it destroyed its "
                 "communicator before this was done%s%s"
        : exited >= 0
            ? "%s (operation %llu): rank %d is lost: its program ended without "
              "shunt_comm_finish()%s%s"
        : p->control
            ? "%s (operation %llu): rank %d is lost: its process was killed, "
              "or crashed%s%s"
            : "%s (operation %llu): rank %d is lost: the connection to it "
              "broke (its process ended, its host cannot be reached, or "
              "something between reset it)%s%s",
        shunti_request_name(request), (unsigned long long)request->seq, rank,
        why ? why : "", since);
}

static void fail_by_timeout(struct shunt_comm *comm)
{
    char missing[128], nodes[64];
    int first;

    if (comm->liveness.first_crash) {
        fail_by_loss(comm, comm->operations.active,
                     comm->liveness.first_crash - 1);
        return;
    }
    if (likeliest(comm->operations.active) != SILENT) {
        fail_by_order(comm);
        return;
    }
    first =
        name_missing(comm->operations.active, true, missing, sizeof(missing));
    shunti_loss_nodes(comm, nodes, sizeof(nodes));
    shunti_comm_fail(comm, SHUNT_ERR_TIMEOUT, first,
                     "%s (operation %llu): nothing from rank %s%s for %.3g s; "
                     "is it stuck, or did it not call? (SHUNT_TIMEOUT)",
                     shunti_request_name(comm->operations.active),
                     (unsigned long long)comm->operations.active->seq,
                     first < 0 ? "?" : missing, nodes, comm->liveness.timeout);
}

/* Set the timeout to one notice from now. In this time the answers to the probe
 * can arrive. */
static void give_notice(struct shunt_comm *comm, uint64_t now)
{
    comm->liveness.last_event_ns =
        now - timeout_ns(comm) + shunti_liveness_notice_ns(comm);
}

/*
 * Does a reply of an awaited rank have a decision time (probe.h) that is still
 * ahead? Sets probe.decision_ns to the latest such time; 0: there is none. A
 * time counts only if it is at most this rank's timeout, and a notice, ahead; a
 * later one is that of a call with a longer timeout. A reply has the time left
 * when it was sent. This counts as the time left now, so a time that is just
 * over still counts.
 */
static bool learn_decision(struct shunt_comm *comm, uint64_t now)
{
    const struct shunt_request *request = comm->operations.active;
    const uint64_t most = timeout_ns(comm) + shunti_liveness_notice_ns(comm);
    uint64_t latest = 0;

    for (int r = 0; r < comm->nranks; r++) {
        uint64_t in_ns = 0;

        if (r != comm->rank && request->class->awaits(request, r))
            in_ns = shunti_probe_decision_of(comm, r);
        if (in_ns <= most && in_ns > latest)
            latest = in_ns;
    }
    comm->probe.decision_ns = latest ? now + latest : 0;
    return latest > 0;
}

/* All awaited ranks have answered. May this rank wait for a further timeout,
 * because one of them may find out which rank is missing? The first time it
 * may, and a second time if the class `follows`. While a reply has a decision
 * time ahead, PATIENCE times more. */
static bool may_extend(struct shunt_comm *comm, uint64_t now)
{
    const int patience = learn_decision(comm, now) ? PATIENCE : 0;

    return comm->probe.extensions <=
           comm->operations.active->class->follows + patience;
}

/* Handle a timeout: blame the ranks that did not answer the probe. If all
 * answered, some peer is itself waiting for the real culprit, and will report
 * it. */
static void judge(struct shunt_comm *comm, uint64_t now)
{
    if (shunti_comm_failed(comm))
        return; /* another rank failed first, and names the culprit */
    if (shunti_probe_more(comm->operations.active)) {
        give_notice(comm, now);
    } else if (likeliest(comm->operations.active) != SILENT &&
               may_extend(comm, now)) {
        comm->probe.extensions++;
        comm->probe.open = false;
        comm->liveness.last_event_ns = now;
    } else {
        fail_by_timeout(comm);
    }
}

uint64_t shunti_liveness_check_time(struct shunt_comm *comm, uint64_t now)
{
    const uint64_t due = comm->liveness.last_event_ns + timeout_ns(comm);
    const uint64_t notice = shunti_liveness_notice_ns(comm);

    /* Without an operation, or after a failure, the caller has a time limit of
     * its own. */
    if (!comm->operations.active || comm->failure.status)
        return now + notice / 4;
    if (comm->probe.seq != comm->operations.active->seq) {
        comm->probe.seq = comm->operations.active->seq;
        comm->probe.open = false;
        comm->probe.extensions = 0;
    }
    if (!comm->probe.open) {
        if (now + notice < due)
            return due - notice;
        shunti_probe_start(comm->operations.active);
        give_notice(comm, now);
    } else if (now >= due) {
        judge(comm, now);
    }
    return comm->liveness.last_event_ns + timeout_ns(comm);
}

/* Has `rank`, which is gone, crashed? It has if it neither left in order nor
 * exited. */
static bool has_crashed(const struct shunt_comm *comm, int rank)
{
    const struct shunti_peer *p = &comm->peers[rank];

    return !p->transport->left(p->ep) && shunti_exit_of(comm, rank) < 0;
}

/* Mark the peers that are gone. True if a peer is newly marked. */
static bool mark_losses(struct shunt_comm *comm)
{
    bool news = false;
    int r;

    for (r = 0; r < comm->nranks; r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (r == comm->rank || !p->ep || p->transport->alive(p->ep))
            continue;
        if (!comm->liveness.first_crash && has_crashed(comm, r))
            comm->liveness.first_crash = 1 + r;
        news |= !p->lost;
        p->lost = true;
    }
    return news;
}

/* Fail if an operation still needs a rank that is gone. If `left`, check the
 * ranks that left in order or exited, and otherwise the crashed ones. A rank
 * that has completed an operation is not needed in it any more, because its
 * data has arrived. The operation may still await it, as in a sum that lacks
 * another rank's part. */
static bool fail_if_needed(struct shunt_comm *comm, bool left)
{
    const struct shunt_request *request;
    int r;

    for (r = 0; r < comm->nranks; r++) {
        const struct shunti_peer *p = &comm->peers[r];

        if (!p->lost || has_crashed(comm, r) == left)
            continue;
        for (request = comm->operations.active; request;
             request = request->next) {
            if (request->status == SHUNT_IN_PROGRESS &&
                request->class->awaits(request, r) &&
                !shunti_peer_completed(comm, r, request->seq)) {
                fail_by_loss(comm, request, r);
                return true;
            }
        }
    }
    return false;
}

void shunti_liveness_look(struct shunt_comm *comm)
{
    /* Messages that a peer sent before it was lost still count. So step once
     * after the transport has reported the loss, and decide only then. */
    if (mark_losses(comm))
        shunti_progress(comm);
    /* A rank may have left or exited because another one crashed. So check for
     * crashed ranks first. */
    if (!fail_if_needed(comm, false))
        fail_if_needed(comm, true);
}
