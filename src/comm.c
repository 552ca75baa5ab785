// SPDX-License-Identifier: Apache-2.0
/* The life of a communicator after birth.c: queries, failure, end. */
#include "src/comm.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/agree.h"
#include "src/aside.h"
#include "src/bootstrap.h"
#include "src/error.h"
#include "src/launch.h"
#include "src/live.h"
#include "src/log.h"
#include "src/loss.h"
#include "src/nodes.h"
#include "src/note.h"
#include "src/request.h"
#include "src/scratch.h"
#include "src/segment.h"
#include "src/trace.h"
#include "src/trace_request.h"
#include "src/wait.h"
#include "src/whole.h"
#include "src/window.h"

const char *shunt_last_error(const struct shunt_comm *comm)
{
    if (!comm)
        return shunti_error_last();
    return comm->error.text[0] ? comm->error.text : "no error";
}

/* --- making ------------------------------------------------------------------ */

enum shunt_status shunt_comm_create(const struct shunt_id *id, int nranks,
                                    int rank,
                                    const struct shunt_comm_config *config,
                                    struct shunt_comm **comm)
{
    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_create: comm is NULL");
    *comm = NULL;
    if (!id)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "comm_create: id is NULL");
    return shunti_comm_birth(id, nranks, rank, config, NULL, comm);
}

enum shunt_status shunt_comm_create_env(const struct shunt_comm_config *config,
                                        struct shunt_comm **comm)
{
    struct shunti_launch launch;
    enum shunt_status st;

    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_create_env: comm is NULL");
    *comm = NULL;
    st = shunti_launch_find(&launch);
    if (st)
        return st;
    if (launch.nranks == 1)
        return shunti_comm_birth(NULL, 1, 0, config, NULL, comm);
    if (launch.rank == 0) {
        st = shunti_bootstrap_serve(&launch.id);
        if (st)
            return st;
    }
    return shunti_comm_birth(&launch.id, launch.nranks, launch.rank, config,
                             NULL, comm);
}

void shunti_comm_inherit(const struct shunt_comm *comm,
                         struct shunt_comm_config *config)
{
    config->timeout = comm->birth_timeout;
    config->call_timeout = comm->call_timeout;
    config->idle = comm->idle_call;
    config->idle_arg = comm->idle_arg;
    config->name = comm->name;
    config->progress_thread = comm->threaded ? 1 : -1;
    config->transports = comm->transports[0] ? comm->transports : NULL;
    config->node = comm->node_name[0] ? comm->node_name : NULL;
}

/* --- queries ----------------------------------------------------------------- */

int shunt_comm_rank(const struct shunt_comm *comm)
{
    return comm ? comm->rank : -1;
}

int shunt_comm_size(const struct shunt_comm *comm)
{
    return comm ? comm->nranks : 0;
}

int shunt_comm_node(const struct shunt_comm *comm, int rank)
{
    return comm && rank >= 0 && rank < comm->nranks ? comm->peers[rank].node
                                                    : -1;
}

int shunt_comm_nodes(const struct shunt_comm *comm)
{
    return comm ? comm->nodes : 0;
}

int shunt_comm_local_rank(const struct shunt_comm *comm)
{
    return comm ? comm->local_rank : -1;
}

int shunt_comm_local_size(const struct shunt_comm *comm)
{
    return comm ? comm->local_size : 0;
}

const char *shunt_comm_transport(const struct shunt_comm *comm, int rank)
{
    if (!comm || rank < 0 || rank >= comm->nranks)
        return "none";
    return rank == comm->rank ? "self" : comm->peers[rank].how;
}

enum shunt_status shunt_comm_get_stats(const struct shunt_comm *comm,
                                       struct shunt_comm_stats *stats,
                                       size_t stats_size)
{
    struct shunt_comm_stats all;
    int r;

    if (!comm || !stats)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_get_stats: %s is NULL",
                           comm ? "stats" : "comm");
    all = comm->stats;
    for (r = 0; r < comm->nranks; r++) {
        const struct shunti_peer *p = &comm->peers[r];

        all.messages_sent += p->messages;
        if (p->node != comm->node)
            all.messages_remote += p->messages;
    }
    if (stats_size > sizeof(all))
        stats_size = sizeof(all);
    memcpy(stats, &all, stats_size);
    return SHUNT_OK;
}

enum shunt_status shunt_comm_get_peer_stats(const struct shunt_comm *comm,
                                            int rank,
                                            struct shunt_peer_stats *stats,
                                            size_t stats_size)
{
    struct shunt_peer_stats all = {0};

    if (!comm || !stats)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_get_peer_stats: %s is NULL",
                           comm ? "stats" : "comm");
    if (rank < 0 || rank >= comm->nranks)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_get_peer_stats: rank is %d; ranks are 0 to %d",
                           rank, comm->nranks - 1);
    all.messages = comm->peers[rank].messages;
    all.bytes_put = comm->peers[rank].bytes_put;
    if (stats_size > sizeof(all))
        stats_size = sizeof(all);
    memcpy(stats, &all, stats_size);
    return SHUNT_OK;
}

enum shunt_status shunt_comm_async_status(const struct shunt_comm *comm)
{
    uint64_t word;

    if (!comm)
        return SHUNT_ERR_INVALID;
    if (comm->failure)
        return (enum shunt_status)comm->failure;
    word = __atomic_load_n(
        (const uint64_t *)(const void *)(comm->control + comm->layout.abort),
        __ATOMIC_ACQUIRE);
    return (enum shunt_status) - (int)(word & 0xff);
}

enum shunt_status shunt_comm_lost(const struct shunt_comm *comm,
                                  const int **ranks, size_t *count)
{
    if (!comm || !ranks || !count)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_lost: an argument is NULL");
    *ranks = comm->lost;
    *count = comm->nlost;
    return SHUNT_OK;
}

/* --- failure ------------------------------------------------------------------ */

/*
 * The abort word: status (negated, 8 bits), the lost rank + 1 (24 bits), the
 * rank that noticed + 1 (24 bits). The first one written stays.
 */
static uint64_t pack_abort(enum shunt_status status, int lost, int reporter)
{
    return (uint64_t)(-(int)status & 0xff) |
           (uint64_t)((unsigned)(lost + 1) & 0xffffff) << 8 |
           (uint64_t)((unsigned)(reporter + 1) & 0xffffff) << 32;
}

static uint64_t *abort_word(const struct shunt_comm *comm,
                            unsigned char *control)
{
    return (uint64_t *)(void *)(control + comm->layout.abort);
}

static void set_abort(const struct shunt_comm *comm, unsigned char *control,
                      uint64_t word)
{
    uint64_t none = 0;

    __atomic_compare_exchange_n(abort_word(comm, control), &none, word, false,
                                __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Mapped peers only: may be called from any thread. */
static void tell_mapped(struct shunt_comm *comm, uint64_t word)
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

static void tell_others(struct shunt_comm *comm, uint64_t word)
{
    int r;

    for (r = 0; r < comm->nranks; r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (p->control_remote && !p->control && !p->lost)
            shunti_control_put(comm, r, 0, NULL, 0, comm->layout.abort, word);
    }
}

static bool is_lost(const struct shunt_comm *comm, int rank)
{
    for (size_t i = 0; i < comm->nlost; i++)
        if (comm->lost[i] == rank)
            return true;
    return false;
}

void shunti_comm_add_lost(struct shunt_comm *comm, int rank)
{
    if (rank >= 0 && rank < comm->nranks && !is_lost(comm, rank))
        comm->lost[comm->nlost++] = rank;
}

enum shunt_status shunti_comm_fail(struct shunt_comm *comm,
                                   enum shunt_status status, int lost,
                                   const char *format, ...)
{
    uint64_t word = pack_abort(status, lost, comm->rank);
    va_list args;

    if (comm->failure)
        return (enum shunt_status)comm->failure;
    va_start(args, format);
    vsnprintf(comm->failure_text, sizeof(comm->failure_text), format, args);
    va_end(args);
    if (status == SHUNT_ERR_PEER || status == SHUNT_ERR_TIMEOUT)
        shunti_comm_add_lost(comm, lost);
    comm->culprit = lost;
    comm->failure = (int)status;
    shunti_info("comm", "rank %d: %s", comm->rank, comm->failure_text);
    set_abort(comm, comm->control, word);
    /* First who is lost, of which the word names but one. */
    if (comm->nlost)
        shunti_loss_tell(comm);
    tell_mapped(comm, word);
    tell_others(comm, word);
    if (shunti_trace_enabled())
        shunti_trace_failure(comm);
    return shunti_fail(&comm->error, status, "%s", comm->failure_text);
}

/* Somebody else, or another thread, ended us. */
SHUNTI_APART static enum shunt_status take_abort(struct shunt_comm *comm,
                                                 uint64_t word)
{
    enum shunt_status status = (enum shunt_status) - (int)(word & 0xff);
    int lost = (int)(word >> 8 & 0xffffff) - 1;
    int reporter = (int)(word >> 32 & 0xffffff) - 1;
    char names[128], nodes[64];

    if (status == SHUNT_ERR_PEER || status == SHUNT_ERR_TIMEOUT) {
        shunti_comm_add_lost(comm, lost);
        shunti_loss_believe(comm);
    }
    shunti_loss_names(comm, names, sizeof(names));
    shunti_loss_nodes(comm, nodes, sizeof(nodes));
    if (status == SHUNT_ERR_ABORTED)
        snprintf(comm->failure_text, sizeof(comm->failure_text),
                 "rank %d called shunt_comm_abort()", reporter);
    else if (is_lost(comm, comm->rank))
        snprintf(comm->failure_text, sizeof(comm->failure_text),
                 "rank %d gave this rank up: %s", reporter,
                 shunt_strerror(status));
    else if (status == SHUNT_ERR_PEER || status == SHUNT_ERR_TIMEOUT)
        snprintf(comm->failure_text, sizeof(comm->failure_text),
                 "%s %s lost%s, as rank %d noticed: %s", names,
                 comm->nlost > 1 ? "are" : "is", nodes, reporter,
                 shunt_strerror(status));
    else
        snprintf(comm->failure_text, sizeof(comm->failure_text),
                 "rank %d ended the communicator because of rank %d: %s (its "
                 "shunt_last_error says more)",
                 reporter, lost, shunt_strerror(status));
    comm->culprit = lost;
    comm->failure = (int)status;
    shunti_info("comm", "rank %d: %s", comm->rank, comm->failure_text);
    /* Whoever told us may not have told all yet, and we may leave before it
     * does: a rank that saw us go would name us. */
    if (comm->nlost)
        shunti_loss_tell(comm);
    tell_mapped(comm, word);
    tell_others(comm, word);
    if (shunti_trace_enabled())
        shunti_trace_failure(comm);
    return shunti_fail(&comm->error, status, "%s", comm->failure_text);
}

enum shunt_status shunti_comm_check(struct shunt_comm *comm)
{
    uint64_t word;

    if (comm->failure)
        return shunti_fail(&comm->error, (enum shunt_status)comm->failure, "%s",
                           comm->failure_text);
    word = __atomic_load_n(abort_word(comm, comm->control), __ATOMIC_ACQUIRE);
    return word ? take_abort(comm, word) : SHUNT_OK;
}

void shunt_comm_abort(struct shunt_comm *comm)
{
    uint64_t word;

    if (!comm || !comm->control)
        return;
    word = pack_abort(SHUNT_ERR_ABORTED, -1, comm->rank);
    set_abort(comm, comm->control, word);
    tell_mapped(comm, word);
    shunti_wake_self(comm);
}

/* --- end ------------------------------------------------------------------------ */

void shunti_comm_drain(struct shunt_comm *comm)
{
    while (comm->active && !shunti_comm_check(comm)) {
        struct shunti_waiter waiter = {.idle = true};
        uint64_t before = comm->finished_count;

        while (comm->active && comm->finished_count == before) {
            shunti_waiter_pause(comm, &waiter);
            shunti_progress(comm);
        }
    }
}

enum shunt_status shunt_comm_finish(struct shunt_comm *comm)
{
    enum shunt_status st;

    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_finish: comm is NULL");
    shunti_comm_enter(comm);
    shunti_comm_drain(comm);
    st = shunti_request_late(comm,
                             shunti_agree(comm, SHUNTI_KIND_FINISH, SHUNT_OK));
    comm->finished = true;
    shunti_comm_leave(comm);
    return st;
}

/* What we still owe to peers whose memory is not mapped goes out before we
 * close: they may need it after we are gone. Bounded; best effort. */
static void flush_puts(struct shunt_comm *comm, double seconds)
{
    uint64_t end = shunti_now_ns() + shunti_ns(seconds);
    int r;

    for (r = 0; comm->peers && r < comm->nranks && !comm->failure; r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (!p->control_remote || p->control || !p->transport->alive(p->ep))
            continue;
        while (shunti_now_ns() < end) {
            if (comm->deferred)
                shunti_control_retry(comm);
            else if (p->transport->flush(p->ep) != SHUNT_IN_PROGRESS)
                break;
            shunti_transports_nap(comm, 1);
        }
    }
}

/* Whoever still waits must hear why it is over before it sees us leave, or it
 * would name us. For those who are not there any more we do not wait long. */
static void flush_failure(struct shunt_comm *comm, double seconds)
{
    uint64_t end = shunti_now_ns() + shunti_ns(seconds);

    if (!comm->peers || !comm->control || comm->finished)
        return;
    shunti_comm_check(comm); /* another thread may have aborted */
    while (comm->failure && comm->deferred && shunti_now_ns() < end) {
        shunti_control_retry(comm);
        if (comm->deferred)
            shunti_transports_nap(comm, 1);
    }
}

static void close_contexts(struct shunt_comm *comm)
{
    size_t i;
    int r;

    for (r = 0; comm->peers && r < comm->nranks; r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (p->ep && p->control_remote)
            p->transport->release(p->ep, p->control_remote);
    }
    for (i = 0; i < comm->ncontexts; i++) {
        struct shunti_context *c = &comm->contexts[i];

        if (c->control_reg)
            c->transport->dereg(c->ctx, c->control_reg);
        c->transport->close(c->ctx);
    }
    /* What a failure left on its way was being sent from there. */
    for (r = 0; comm->peers && r < comm->nranks; r++)
        free(comm->peers[r].outbox);
    shunti_loss_finish(comm);
    free(comm->contexts);
}

/* All but the structure and the requests that nobody has collected. */
static void tear_down(struct shunt_comm *comm)
{
    shunti_aside_forget(comm);
    shunti_progress_thread_stop(comm);
    shunti_trace_flush(comm->rank);
    flush_failure(comm, 0.25);
    shunti_say_completed(comm);
    flush_puts(comm, 1.0);
    shunti_requests_drop(comm);
    if (comm->above.free)
        comm->above.free(comm);
    shunti_scratch_leave(comm);
    shunti_control_forget(comm);
    shunti_windows_destroy(comm);
    close_contexts(comm);
    shunti_zcopies_finish(comm);
    shunti_segment_drop(comm->control_segment);
    if (comm->wake_fd >= 0)
        close(comm->wake_fd);
    free(comm->late.story);
    free(comm->lost);
    free(comm->peers);
    shunti_nodes_finish(comm);
    explicit_bzero(comm->secret, sizeof(comm->secret));
}

void shunti_comm_free(struct shunt_comm *comm)
{
    if (!comm)
        return;
    tear_down(comm);
    shunti_requests_free(comm);
    free(comm);
}

void shunt_comm_destroy(struct shunt_comm *comm)
{
    if (!comm)
        return;
    if (!shunti_live_remove(comm)) {
        (void)shunti_fail(NULL, SHUNT_ERR_INVALID,
                          "comm_destroy: the communicator has been destroyed "
                          "already, or is none");
        return;
    }
    tear_down(comm);
    shunti_live_keep_ruin(comm);
}
