// SPDX-License-Identifier: Apache-2.0
/* Settling which ranks are lost; see settle.h. */
#include "src/comm/settle.h"

#include <stdlib.h>
#include <string.h>

#include "src/comm.h"
#include "src/comm/cover.h"
#include "src/progress/exit.h"
#include "src/progress/liveness.h"
#include "src/progress/probe.h"
#include "src/progress/wait.h"
#include "src/trace/trace.h"
#include "src/wire/failure.h"
#include "src/wire/loss.h"
#include "src/wire/wire.h"

#define NAP_MS 5

struct settle {
    struct shunt_comm *comm;
    struct shunti_reports reports;
    struct shunti_loss *loss; /* room for one record */
    uint64_t *lost;           /* one row: the decision */
    uint64_t *edges;          /* (nranks rows) */
    int reporter, named;
    uint64_t until_ns, looked_ns;
    /* there are answers or reports that this rank has not published */
    bool news;
};

static size_t row_words(const struct settle *s)
{
    return ((size_t)s->comm->nranks + 63) / 64;
}

static bool has(const uint64_t *set, int rank)
{
    return set[rank / 64] >> rank % 64 & 1;
}

static void add(uint64_t *set, int rank)
{
    set[rank / 64] |= UINT64_C(1) << rank % 64;
}

static uint64_t *row(const struct settle *s, uint64_t *rows, int rank)
{
    return rows + (size_t)rank * row_words(s);
}

/* --- reports -------------------------------------------------------------- */

static void take_report(const struct settle *s, int rank,
                        struct shunti_loss *loss)
{
    const size_t bytes = row_words(s) * sizeof(uint64_t);

    s->reports.stage[rank] = loss->report;
    memcpy(row(s, s->reports.failed, rank),
           shunti_loss_set(s->comm, loss, SHUNTI_FAILED), bytes);
    memcpy(row(s, s->reports.closed, rank),
           shunti_loss_set(s->comm, loss, SHUNTI_CLOSED), bytes);
    memcpy(row(s, s->reports.good, rank),
           shunti_loss_set(s->comm, loss, SHUNTI_GOOD), bytes);
    memcpy(row(s, s->reports.reported, rank),
           shunti_loss_set(s->comm, loss, SHUNTI_REPORTED), bytes);
}

static bool is_gone(const struct settle *s, int rank)
{
    const struct shunti_peer *p = &s->comm->peers[rank];

    return rank != s->comm->rank && (!p->ep || !p->transport->alive(p->ep));
}

/* Has `rank` destroyed its communicator, or exited? Then the state of its links
 * says nothing any more. */
static bool has_left(const struct settle *s, int rank)
{
    return is_gone(s, rank) && s->comm->peers[rank].ep &&
           (s->comm->peers[rank].transport->left(s->comm->peers[rank].ep) ||
            shunti_exit_of(s->comm, rank) >= 0);
}

/* Add a rank to a set of this rank's report. */
static void add_news(struct settle *s, int which, int rank)
{
    struct shunti_loss *record = s->comm->loss.record;

    if (shunti_loss_has(s->comm, record, which, rank))
        return;
    shunti_loss_add(s->comm, record, which, rank);
    s->news = true;
}

static void read_reports(struct settle *s)
{
    for (int r = 0; r < s->comm->nranks; r++) {
        s->loss->version = 0;
        if (r != s->comm->rank && shunti_loss_read(s->comm, r, s->loss))
            take_report(s, r, s->loss);
        if (r != s->comm->rank && shunti_probe_answered(s->comm, r))
            add_news(s, SHUNTI_GOOD, r);
        if (r != s->comm->rank && s->reports.stage[r] >= SHUNTI_REPORT_BEGUN)
            add_news(s, SHUNTI_REPORTED, r);
        if (has_left(s, r))
            add(s->reports.left, r);
    }
    take_report(s, s->comm->rank, s->comm->loss.record);
    if (s->named >= 0 && s->reporter != s->named)
        add(row(s, s->reports.failed, s->reporter), s->named);
}

/* Add the ranks whose processes have ended, or whose connections have. */
static void add_closed(const struct settle *s)
{
    for (int r = 0; r < s->comm->nranks; r++) {
        if (!is_gone(s, r) || has_left(s, r))
            continue;
        shunti_loss_add(s->comm, s->comm->loss.record, SHUNTI_FAILED, r);
        shunti_loss_add(s->comm, s->comm->loss.record, SHUNTI_CLOSED, r);
    }
}

/* Add to this rank's own report the ranks that the reporter has missed, and
 * that did not answer this rank either. So all ranks decide on the same links.
 * If the reporter does not answer either, its own link may have failed, and the
 * ranks that it missed may only be busy; then nothing is added. */
static void confirm(const struct settle *s)
{
    const struct shunti_failure *failure = &s->comm->failure;

    if (s->reporter == s->comm->rank ||
        !shunti_probe_answered(s->comm, s->reporter))
        return;
    for (size_t i = 0; i < failure->nsuspects; i++) {
        const int r = failure->suspects[i];

        if (r >= 0 && r != s->comm->rank && !has_left(s, r) &&
            !shunti_probe_answered(s->comm, r))
            shunti_loss_add(s->comm, s->comm->loss.record, SHUNTI_FAILED, r);
    }
}

static void publish(struct settle *s)
{
    s->comm->loss.record->report = SHUNTI_REPORT_FINAL;
    s->news = false;
    shunti_loss_publish(s->comm);
}

static void publish_news(struct settle *s)
{
    if (s->news)
        publish(s);
}

/* --- steps ---------------------------------------------------------------- */

/* Step everything but this communicator's operations. False: the time is
 * over. */
static bool pump(struct settle *s)
{
    shunti_transports_nap(s->comm, NAP_MS);
    shunti_control_retry(s->comm);
    shunti_probe_poll(s->comm);
    s->until_ns += shunti_stopped_ns(&s->looked_ns);
    read_reports(s);
    return shunti_now_ns() < s->until_ns;
}

/* Does this decision explain each failed link of this rank? A link to a missed
 * rank does not count if an answer has arrived since. */
static bool explains(const struct settle *s, const uint64_t *lost)
{
    const int rank = s->comm->rank;
    const uint64_t *failed = row(s, s->reports.failed, rank);
    const uint64_t *closed = row(s, s->reports.closed, rank);
    const uint64_t *good = row(s, s->reports.good, rank);

    for (size_t i = 0; i < row_words(s); i++)
        if (((failed[i] & ~good[i]) | closed[i]) & ~lost[i])
            return false;
    return true;
}

/* Does the decision of rank `a` come before that of `b`? */
static bool decides_before(const struct settle *s, int a, int b)
{
    return shunti_decides_first(s->comm->nranks, s->edges, a, b);
}

/* Read the decision of a rank. NULL: it has not decided, or has not answered
 * this rank. */
static const uint64_t *read_decision(const struct settle *s, int rank)
{
    if (rank == s->comm->rank ||
        s->reports.stage[rank] != SHUNTI_REPORT_DECIDED ||
        !shunti_probe_answered(s->comm, rank))
        return NULL;
    s->loss->version = 0;
    return shunti_loss_read(s->comm, rank, s->loss)
               ? shunti_loss_set(s->comm, s->loss, SHUNTI_LOST)
               : NULL;
}

/* Take the first decision, in the order of decides_before(), that spares this
 * rank and explains its failed links. False: there is none. */
static bool follow(struct settle *s)
{
    int first = -1;

    for (int r = 0; r < s->comm->nranks; r++) {
        const uint64_t *lost = read_decision(s, r);

        if (!lost || has(lost, s->comm->rank) || !explains(s, lost))
            continue;
        if (first < 0)
            (void)shunti_reports_edges(&s->reports, s->edges);
        if (first >= 0 && !decides_before(s, r, first))
            continue;
        first = r;
        memcpy(s->lost, lost, row_words(s) * sizeof(*lost));
    }
    return first >= 0;
}

static bool all_have_answered(const struct settle *s)
{
    for (int r = 0; r < s->comm->nranks; r++)
        if (r != s->comm->rank && !is_gone(s, r) &&
            !shunti_probe_answered(s->comm, r))
            return false;
    return true;
}

/* Is there a complete report of each rank that has answered any rank, or has
 * begun to report? */
static bool all_have_reported(const struct settle *s)
{
    for (int r = 0; r < s->comm->nranks; r++) {
        bool answering = s->reports.stage[r] >= SHUNTI_REPORT_BEGUN;

        for (int o = 0; o < s->comm->nranks; o++)
            answering |= has(row(s, s->reports.good, o), r) ||
                         has(row(s, s->reports.reported, o), r);
        if (answering && r != s->comm->rank && !is_gone(s, r) &&
            s->reports.stage[r] < SHUNTI_REPORT_FINAL)
            return false;
    }
    return true;
}

/* --- the decision --------------------------------------------------------- */

/* If a decision counts this rank as lost, and comes before the decision of this
 * rank, take it. True if so. */
static bool is_given_up(const struct settle *s)
{
    const int rank = s->comm->rank;
    const bool any = has(s->lost, rank);

    for (int r = 0; r < s->comm->nranks; r++) {
        const uint64_t *lost = read_decision(s, r);

        if (!lost || !has(lost, rank) || (!any && !decides_before(s, r, rank)))
            continue;
        memcpy(s->lost, lost, row_words(s) * sizeof(*lost));
        return true;
    }
    return false;
}

/* Choose the ranks that explain the failed links. */
static void choose(struct settle *s)
{
    if (!shunti_reports_edges(&s->reports, s->edges) ||
        !shunti_cover(s->comm->nranks, s->edges, s->reports.good,
                      s->reports.doubts, s->lost))
        memcpy(s->lost, row(s, s->reports.failed, s->comm->rank),
               row_words(s) * sizeof(*s->lost)); /* no memory */
}

/* Is another rank about to decide, whose decision comes before this rank's? If
 * this rank would count itself as lost, the decision of any other rank comes
 * before its own. */
static bool lets_decide(const struct settle *s)
{
    const int rank = s->comm->rank;

    for (int r = 0; r < s->comm->nranks; r++)
        if (r != rank && !has(s->lost, r) && !is_gone(s, r) &&
            shunti_probe_answered(s->comm, r) &&
            s->reports.stage[r] >= SHUNTI_REPORT_BEGUN &&
            s->reports.stage[r] < SHUNTI_REPORT_DECIDED &&
            (has(s->lost, rank) || decides_before(s, r, rank)))
            return true;
    return false;
}

/* Decide. until_ns: wait at least until then for the decision of another
 * rank. */
static enum shunti_report decide(struct settle *s, uint64_t wait_ns,
                                 uint64_t until_ns)
{
    const int rank = s->comm->rank;

    choose(s);
    s->until_ns = s->looked_ns + wait_ns;
    if (s->until_ns < until_ns)
        s->until_ns = until_ns;
    while (lets_decide(s) && pump(s)) {
        publish_news(s);
        if (follow(s))
            return SHUNTI_REPORT_DECIDED;
        if (is_given_up(s))
            return SHUNTI_REPORT_FINAL;
    }
    choose(s);
    if (is_given_up(s))
        return SHUNTI_REPORT_FINAL;
    if (!has(s->lost, rank))
        return SHUNTI_REPORT_DECIDED;
    memcpy(s->lost, row(s, s->edges, rank), row_words(s) * sizeof(*s->lost));
    return SHUNTI_REPORT_FINAL;
}

/* The rank to report as lost if all failed links are those of ranks that have
 * left: the rank that was missed, unless only the rank that missed it has
 * left. */
static int find_left(const struct settle *s)
{
    return !has_left(s, s->named) && has_left(s, s->reporter) ? s->reporter
                                                              : s->named;
}

/* Put the ranks of the decision into comm->failure.lost. If the decision names
 * no rank, only add the rank of find_left(). */
static void take_decision(const struct settle *s)
{
    struct shunti_failure *failure = &s->comm->failure;
    bool any = false;

    for (size_t i = 0; i < row_words(s); i++)
        any |= s->lost[i] != 0;
    if (any)
        failure->nlost = 0;
    else if (s->named >= 0)
        shunti_comm_add_lost(s->comm, find_left(s));
    for (int r = 0; r < s->comm->nranks; r++)
        if (has(s->lost, r))
            shunti_comm_add_lost(s->comm, r);
}

static enum shunti_report settle(struct settle *s, uint64_t wait_ns)
{
    bool followed = false;
    uint64_t limit;

    shunti_probe_all(s->comm);
    s->looked_ns = shunti_now_ns();
    limit = s->until_ns = s->looked_ns + wait_ns;
    while (pump(s) && !all_have_answered(s) && !followed)
        followed = follow(s);
    add_closed(s);
    confirm(s);
    publish(s);
    /* A rank that misses other ranks reports only when its own time for answers
     * is over. */
    s->until_ns = limit + wait_ns;
    while (pump(s) && !all_have_reported(s) && !followed) {
        publish_news(s);
        followed = follow(s);
    }
    publish_news(s);
    if (followed || follow(s))
        return SHUNTI_REPORT_DECIDED;
    /* Another rank may await a report that has not arrived at this rank. */
    return decide(s, wait_ns, limit + 2 * wait_ns);
}

/* --- calls ---------------------------------------------------------------- */

static bool make_record(struct shunt_comm *comm)
{
    if (!comm->loss.record)
        comm->loss.record = shunti_loss_new(comm->nranks);
    return comm->loss.record != NULL;
}

/* How long to wait for the answer of a rank, in ns. A rank that is only silent
 * has as much time as in a probe. If a connection has ended, that is mostly
 * proof enough, and half of this time is enough for answers: a rank that waits
 * in another communicator visits this one twice in that time (parked.h). */
static uint64_t time_to_answer(const struct shunt_comm *comm,
                               enum shunt_status status)
{
    const uint64_t notice = shunti_liveness_notice_ns(comm);

    return status == SHUNT_ERR_TIMEOUT ? notice : notice / 2;
}

static void settle_failure(struct shunt_comm *comm, enum shunt_status status,
                           int reporter, int named)
{
    struct settle s = {.comm = comm, .reporter = reporter, .named = named};
    const size_t n = (size_t)comm->nranks;
    enum shunti_report report;

    s.loss = shunti_loss_new(comm->nranks);
    s.lost = calloc(row_words(&s), sizeof(*s.lost));
    s.edges = calloc(n * row_words(&s), sizeof(*s.edges));
    if (shunti_reports_make(&s.reports, comm->nranks) && s.loss && s.lost &&
        s.edges && make_record(comm)) {
        add_closed(&s);
        report = settle(&s, time_to_answer(comm, status));
        take_decision(&s);
        /* published together with the lost ranks */
        comm->loss.record->report = report;
    } else if (named >= 0) {
        shunti_comm_add_lost(comm, named); /* no memory */
    }
    shunti_reports_free(&s.reports);
    free(s.loss);
    free(s.lost);
    free(s.edges);
}

__attribute__((constructor)) static void settle_failures(void)
{
    shunti_fail_settle = settle_failure;
}
