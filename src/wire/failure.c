// SPDX-License-Identifier: Apache-2.0
/*
 * A communicator fails; see failure.h.
 *
 * Every rank has an abort word in its control window. Any rank may write it,
 * and the first value stays. A rank that fails writes its own abort word, and
 * then that of every peer. Before it writes the abort words of peers, it sends
 * them its loss record (loss.h). The record names all ranks that this rank
 * counts as lost; the abort word has room for only one.
 */
#include "src/wire/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/inline.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/trace/trace.h"
#include "src/wire/contexts.h"
#include "src/wire/loss.h"
#include "src/wire/wire.h"

/* The status if other code has overwritten the abort word. An impossible offer
 * gets the same status. */
#define DAMAGED SHUNT_ERR_MISMATCH

/*
 * The abort word: status (negated, 8 bits), the lost rank + 1 (24 bits), the
 * rank that noticed + 1 (24 bits), a mark (8 bits). The first one written
 * stays.
 */
#define ABORT_MARK ((uint64_t)0xa5)
/* The mark if the rank in the field "lost" is alive, but did not make its
 * call. */
#define ALIVE_MARK ((uint64_t)0xa6)

static uint64_t pack_abort(enum shunt_status status, int lost, int reporter)
{
    return (uint64_t)(-(int)status & 0xff) |
           (uint64_t)((unsigned)(lost + 1) & 0xffffff) << 8 |
           (uint64_t)((unsigned)(reporter + 1) & 0xffffff) << 32 |
           ABORT_MARK << 56;
}

struct end {
    enum shunt_status status;
    int lost, reporter;
    bool alive;
};

/* Read an abort word. False: no rank has written it, so it was overwritten by
 * other code. */
static bool unpack_abort(const struct shunt_comm *comm, uint64_t word,
                         struct end *end)
{
    end->status = (enum shunt_status) - (int)(word & 0xff);
    end->lost = (int)(word >> 8 & 0xffffff) - 1;
    end->reporter = (int)(word >> 32 & 0xffffff) - 1;
    end->alive = word >> 56 == ALIVE_MARK;
    return (word >> 56 == ABORT_MARK || end->alive) &&
           shunti_is_error(end->status) && end->lost < comm->nranks &&
           end->reporter >= 0 && end->reporter < comm->nranks;
}

void (*shunti_fail_settle)(struct shunt_comm *comm, enum shunt_status status,
                           int reporter, int named);
void (*shunti_fail_trace)(struct shunt_comm *comm);

/* True while this thread settles a failure, of any communicator. */
static _Thread_local bool settling;

enum shunt_status shunt_comm_async_status(const struct shunt_comm *comm)
{
    struct end end;
    uint64_t word;

    if (!comm)
        return SHUNT_ERR_INVALID;
    if (comm->failure.status)
        return (enum shunt_status)comm->failure.status;
    word = __atomic_load_n(
        (const uint64_t *)(const void *)(comm->control.base +
                                         comm->control.layout.abort),
        __ATOMIC_ACQUIRE);
    if (!word)
        return SHUNT_OK;
    return unpack_abort(comm, word, &end) ? end.status : DAMAGED;
}

static uint64_t *abort_word(const struct shunt_comm *comm,
                            unsigned char *control)
{
    return (uint64_t *)(void *)(control + comm->control.layout.abort);
}

static void set_abort(const struct shunt_comm *comm, unsigned char *control,
                      uint64_t word)
{
    uint64_t none = 0;

    __atomic_compare_exchange_n(abort_word(comm, control), &none, word, false,
                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Write the abort word of every mapped peer. Any thread may call this. */
static void notify_mapped(struct shunt_comm *comm, uint64_t word)
{
    int r;

    for (r = 0; r < comm->nranks; r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (p->control) {
            set_abort(comm, p->control, word);
            p->transport->wake(p->ep);
        }
    }
}

static void notify_others(struct shunt_comm *comm, uint64_t word)
{
    int r;

    for (r = 0; r < comm->nranks; r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (p->control_remote && !p->control && !p->lost)
            shunti_control_put_rare(comm, r, 0, NULL, 0,
                                    comm->control.layout.abort, word);
    }
}

static bool is_lost(const struct shunt_comm *comm, int rank)
{
    for (size_t i = 0; i < comm->failure.nlost; i++)
        if (comm->failure.lost[i] == rank)
            return true;
    return false;
}

void shunti_comm_add_lost(struct shunt_comm *comm, int rank)
{
    if (rank >= 0 && rank < comm->nranks && !is_lost(comm, rank))
        comm->failure.lost[comm->failure.nlost++] = rank;
}

/* Can it be that only a link has failed? Then ranks may disagree on which ranks
 * are lost. */
static bool is_to_settle(const struct shunt_comm *comm,
                         enum shunt_status status, int lost)
{
    return (status == SHUNT_ERR_PEER || status == SHUNT_ERR_TIMEOUT) &&
           lost >= 0 && !comm->all_mapped && !settling;
}

/* Publish this rank's first report: it misses the ranks of comm->failure.lost.
 * Then end the communicator for the other ranks, so that they settle, too. */
static void report(struct shunt_comm *comm, uint64_t word)
{
    if (!comm->loss.record)
        comm->loss.record = shunti_loss_new(comm->nranks);
    for (size_t i = 0; i < comm->failure.nlost && comm->loss.record; i++)
        if (comm->failure.lost[i] != comm->rank)
            shunti_loss_add(comm, comm->loss.record, SHUNTI_FAILED,
                            comm->failure.lost[i]);
    if (comm->loss.record)
        comm->loss.record->report = SHUNTI_REPORT_BEGUN;
    shunti_loss_publish(comm);
    set_abort(comm, comm->control.base, word);
    notify_mapped(comm, word);
    notify_others(comm, word);
}

/* Agree with the other ranks on which ranks are lost. Returns one of them. */
static int settle(struct shunt_comm *comm, enum shunt_status status,
                  int reporter, const int *suspects, size_t count)
{
    settling = comm->failure.settling = true;
    comm->failure.suspects = suspects;
    comm->failure.nsuspects = count;
    shunti_fail_settle(comm, status, reporter, suspects[0]);
    comm->failure.nsuspects = 0;
    settling = comm->failure.settling = false;
    return comm->failure.nlost ? comm->failure.lost[0] : suspects[0];
}

/* Record the complete failure, and notify the peers. The loss record is sent
 * first, with all lost ranks, since the abort word names only one. */
static enum shunt_status end_with(struct shunt_comm *comm,
                                  enum shunt_status status, int culprit,
                                  uint64_t word)
{
    comm->failure.culprit = culprit;
    comm->failure.status = (int)status;
    shunti_info("comm", "rank %d: %s", comm->rank, comm->failure.text);
    if (comm->failure.nlost)
        shunti_loss_publish_lost(comm);
    notify_mapped(comm, word);
    notify_others(comm, word);
    if (shunti_trace_enabled())
        shunti_fail_trace(comm);
    return status;
}

/* Append more lost ranks to the error text: those that are not in `missed`.
 * `missed` has the ranks that this rank misses itself. */
static void name_others(struct shunt_comm *comm, const uint64_t *missed)
{
    const size_t size = sizeof(comm->failure.text);
    size_t len = strlen(comm->failure.text);
    bool first = true;

    for (size_t i = 0; i < comm->failure.nlost && len + 32 < size; i++) {
        const int r = comm->failure.lost[i];

        if (missed[r / 64] >> r % 64 & 1)
            continue;
        len += (size_t)snprintf(comm->failure.text + len, size - len,
                                first ? "; lost as well: rank %d" : ", %d", r);
        first = false;
    }
}

enum shunt_status shunti_comm_fail_as(struct shunt_comm *comm,
                                      enum shunt_status status, int reporter,
                                      const int *suspects, size_t count,
                                      const char *text)
{
    int lost = suspects[0];
    uint64_t word = pack_abort(status, lost, reporter);

    if (comm->failure.status)
        return (enum shunt_status)comm->failure.status;
    if (comm->failure.settling)
        return status; /* this failure is already being settled */
    snprintf(comm->failure.text, sizeof(comm->failure.text), "%s", text);
    if (!is_to_settle(comm, status, lost))
        reporter = comm->rank;
    for (size_t i = 0; i < count && reporter == comm->rank; i++)
        if (status == SHUNT_ERR_PEER || status == SHUNT_ERR_TIMEOUT)
            shunti_comm_add_lost(comm, suspects[i]);
    if (is_to_settle(comm, status, lost)) {
        report(comm, word);
        lost = settle(comm, status, reporter, suspects, count);
        if (comm->loss.record)
            name_others(
                comm, shunti_loss_set(comm, comm->loss.record, SHUNTI_FAILED));
    } else {
        set_abort(comm, comm->control.base, word);
    }
    return end_with(comm, status, lost, word);
}

enum shunt_status shunti_comm_fail(struct shunt_comm *comm,
                                   enum shunt_status status, int lost,
                                   const char *format, ...)
{
    char text[sizeof(comm->failure.text)];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return shunti_comm_fail_as(comm, status, comm->rank, &lost, 1, text);
}

enum shunt_status shunti_comm_fail_alive(struct shunt_comm *comm, int culprit,
                                         const char *text)
{
    uint64_t word = pack_abort(SHUNT_ERR_TIMEOUT, culprit, comm->rank);

    if (comm->failure.status || comm->failure.settling)
        return SHUNT_ERR_TIMEOUT;
    word ^= (ABORT_MARK ^ ALIVE_MARK) << 56;
    snprintf(comm->failure.text, sizeof(comm->failure.text), "%s", text);
    set_abort(comm, comm->control.base, word);
    return end_with(comm, SHUNT_ERR_TIMEOUT, culprit, word);
}

/* Write the error text: rank `reporter` waited for a rank that is alive. */
static void describe_alive(struct shunt_comm *comm, const struct end *end)
{
    char whom[32] = "this rank, which";

    if (end->lost != comm->rank)
        snprintf(whom, sizeof(whom), "rank %d, which", end->lost);
    snprintf(comm->failure.text, sizeof(comm->failure.text),
             "rank %d waited in vain for %s is alive but did not make that "
             "call: do all ranks make their calls, also those on different "
             "communicators, in the same order? (the shunt_last_error of rank "
             "%d says more)",
             end->reporter, whom, end->reporter);
}

/* Fail because another rank, or another thread of this rank, has written the
 * abort word. */
SHUNTI_NOINLINE static enum shunt_status take_abort(struct shunt_comm *comm,
                                                    uint64_t word)
{
    struct end end;
    char names[128], nodes[64];
    enum shunt_status status;
    int lost, reporter;

    if (settling)
        /* this thread settles already; the next call on `comm` reads the word
         * again */
        return SHUNT_OK;
    if (!unpack_abort(comm, word, &end))
        return shunti_comm_fail(
            comm, DAMAGED, comm->rank,
            "the control window of this rank is damaged: %#llx is not a word "
            "of any rank, so something else wrote to the library's memory",
            (unsigned long long)word);
    status = end.status;
    lost = end.lost;
    reporter = end.reporter;
    if (end.alive) {
        describe_alive(comm, &end);
        return end_with(comm, status, lost, word);
    }
    if (is_to_settle(comm, status, lost)) {
        /* The rank that wrote the abort word may not reach all ranks. */
        report(comm, word);
        lost = settle(comm, status, reporter, &lost, 1);
    } else if (status == SHUNT_ERR_PEER || status == SHUNT_ERR_TIMEOUT) {
        shunti_comm_add_lost(comm, lost);
        shunti_loss_merge(comm);
    }
    shunti_loss_names(comm, names, sizeof(names));
    shunti_loss_nodes(comm, nodes, sizeof(nodes));
    if (status == SHUNT_ERR_ABORTED)
        snprintf(comm->failure.text, sizeof(comm->failure.text),
                 "rank %d called shunt_comm_abort()", reporter);
    else if (is_lost(comm, comm->rank))
        snprintf(comm->failure.text, sizeof(comm->failure.text),
                 "rank %d gave this rank up: %s", reporter,
                 shunt_strerror(status));
    else if (status == SHUNT_ERR_PEER || status == SHUNT_ERR_TIMEOUT)
        snprintf(comm->failure.text, sizeof(comm->failure.text),
                 "%s %s lost%s, as rank %d noticed: %s", names,
                 comm->failure.nlost > 1 ? "are" : "is", nodes, reporter,
                 shunt_strerror(status));
    else if (lost < 0)
        snprintf(
            comm->failure.text, sizeof(comm->failure.text),
            "rank %d ended the communicator: %s (its shunt_last_error says "
            "more)",
            reporter, shunt_strerror(status));
    else
        snprintf(comm->failure.text, sizeof(comm->failure.text),
                 "rank %d ended the communicator because of rank %d: %s (its "
                 "shunt_last_error says more)",
                 reporter, lost, shunt_strerror(status));
    /* Pass the failure on to all ranks. The rank that wrote the abort word may
     * not have written those of all ranks yet, and this rank may exit before it
     * does. Without this, a rank that sees that this rank has exited would
     * report this rank as lost. */
    return end_with(comm, status, lost, word);
}

enum shunt_status shunti_comm_failed(struct shunt_comm *comm)
{
    uint64_t word;

    if (comm->failure.status)
        return (enum shunt_status)comm->failure.status;
    word =
        __atomic_load_n(abort_word(comm, comm->control.base), __ATOMIC_ACQUIRE);
    if (word && comm->failure.settling)
        return (enum shunt_status) - (int)(word & 0xff);
    return word ? take_abort(comm, word) : SHUNT_OK;
}

enum shunt_status shunti_comm_set_error(struct shunt_comm *comm,
                                        enum shunt_status status)
{
    if (comm->failure.status)
        return shunti_fail(&comm->error,
                           (enum shunt_status)comm->failure.status, "%s",
                           comm->failure.text);
    return status;
}

enum shunt_status shunti_comm_check(struct shunt_comm *comm)
{
    const enum shunt_status status = shunti_comm_failed(comm);

    return status ? shunti_comm_set_error(comm, status) : SHUNT_OK;
}

void shunt_comm_abort(struct shunt_comm *comm)
{
    uint64_t word;

    if (!comm || !comm->control.base)
        return;
    word = pack_abort(SHUNT_ERR_ABORTED, -1, comm->rank);
    set_abort(comm, comm->control.base, word);
    notify_mapped(comm, word);
    shunti_wake_self(comm);
}
