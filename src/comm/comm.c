// SPDX-License-Identifier: Apache-2.0
/* Queries of a communicator, and its end. */
#include "src/comm.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/inline.h"
#include "src/base/log.h"
#include "src/base/scratch.h"
#include "src/base/segment.h"
#include "src/boot/bootstrap.h"
#include "src/boot/launch.h"
#include "src/comm/init.h"
#include "src/op/engine.h"
#include "src/op/note.h"
#include "src/op/operations.h"
#include "src/op/registration.h"
#include "src/op/request.h"
#include "src/op/trace_request.h"
#include "src/progress/agree.h"
#include "src/progress/call.h"
#include "src/progress/helper.h"
#include "src/progress/inherited.h"
#include "src/progress/parked.h"
#include "src/progress/progress.h"
#include "src/progress/registry.h"
#include "src/progress/turns.h"
#include "src/progress/wait.h"
#include "src/trace/trace.h"
#include "src/trace/track.h"
#include "src/wire/failure.h"
#include "src/wire/loss.h"
#include "src/wire/nodes.h"
#include "src/wire/outbox.h"
#include "src/wire/window.h"
#include "src/wire/wire.h"
#include "transports/common/descriptor.h"

const char *shunt_last_error(const struct shunt_comm *comm)
{
    if (!comm)
        return shunti_error_last();
    return comm->error.text[0] ? comm->error.text : "no error";
}

void shunti_comm_inherit(const struct shunt_comm *comm,
                         struct shunt_comm_config *config)
{
    config->timeout = comm->configured.init_timeout;
    config->call_timeout = comm->configured.call_timeout;
    config->idle = comm->waiting.idle;
    config->idle_arg = comm->waiting.idle_arg;
    config->name = comm->configured.name;
    config->progress_thread = comm->configured.progress_thread;
    config->transports =
        comm->configured.transports[0] ? comm->configured.transports : NULL;
    config->node = comm->configured.node[0] ? comm->configured.node : NULL;
}

/* --- queries -------------------------------------------------------------- */

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

/* Enter the communicator for a query, because a progress thread may be writing
 * the data. */
static struct shunt_comm *enter(const struct shunt_comm *comm)
{
    struct shunt_comm *entered = (struct shunt_comm *)(uintptr_t)comm;

    shunti_comm_enter(entered);
    return entered;
}

enum shunt_status shunt_comm_get_stats(const struct shunt_comm *comm,
                                       struct shunt_comm_stats *stats,
                                       size_t stats_size)
{
    struct shunt_comm_stats all;
    struct shunt_comm *entered;
    int r;

    if (!comm || !stats)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_get_stats: %s is NULL",
                           comm ? "stats" : "comm");
    if (comm->inherited.state)
        return shunti_inherited_check(comm);
    entered = enter(comm);
    all = comm->stats;
    for (r = 0; r < comm->nranks; r++) {
        const struct shunti_peer *p = &comm->peers[r];

        all.messages_sent += p->messages;
        if (p->node != comm->node)
            all.messages_remote += p->messages;
    }
    shunti_comm_leave(entered);
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
    struct shunt_comm *entered;

    if (!comm || !stats)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_get_peer_stats: %s is NULL",
                           comm ? "stats" : "comm");
    if (rank < 0 || rank >= comm->nranks)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_get_peer_stats: rank is %d; ranks are 0 to %d",
                           rank, comm->nranks - 1);
    if (comm->inherited.state)
        return shunti_inherited_check(comm);
    entered = enter(comm);
    all.messages = comm->peers[rank].messages;
    all.bytes_put = comm->peers[rank].bytes_put;
    shunti_comm_leave(entered);
    if (stats_size > sizeof(all))
        stats_size = sizeof(all);
    memcpy(stats, &all, stats_size);
    return SHUNT_OK;
}

enum shunt_status shunt_comm_lost(const struct shunt_comm *comm,
                                  const int **ranks, size_t *count)
{
    struct shunt_comm *entered;

    if (!comm || !ranks || !count)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_lost: an argument is NULL");
    if (comm->inherited.state)
        return shunti_inherited_check(comm);
    entered = enter(comm);
    *ranks = comm->failure.lost;
    *count = comm->failure.nlost;
    shunti_comm_leave(entered);
    return SHUNT_OK;
}

/* --- end ------------------------------------------------------------------ */

enum shunt_status shunt_comm_finish(struct shunt_comm *comm)
{
    enum shunt_status st;

    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_finish: comm is NULL");
    shunti_comm_enter(comm);
    shunti_comm_drain(comm);
    st = shunti_request_late(
        comm, false,
        shunti_agree(comm, SHUNTI_SIGNATURE(SHUNTI_KIND_FINISH, 0, 0, 0),
                     SHUNT_OK));
    comm->calls.finish_called = true;
    shunti_comm_leave(comm);
    return st;
}

static bool has_promised(const struct shunt_comm *comm)
{
    const struct shunt_request *r = comm->operations.active;

    while (r && r->attachment != SHUNTI_PROMISED)
        r = r->next;
    return r != NULL;
}

/* Complete the operations that no caller waits for but peers rely on. The call
 * that began them has returned as if they were done. Timeouts and losses end
 * this wait as any other. */
static void keep_promises(struct shunt_comm *comm)
{
    struct shunti_waiter waiter = {.idle = false};

    while (has_promised(comm) && !shunti_comm_failed(comm)) {
        shunti_waiter_pause(comm, &waiter);
        shunti_progress(comm);
    }
}

/* Send the puts that are still under way to peers whose memory is not mapped,
 * before the transports are closed. The peers may need these puts after this
 * rank is gone. Best effort, and bounded in time. */
static void flush_puts(struct shunt_comm *comm, double seconds)
{
    uint64_t end = shunti_now_ns() + shunti_ns(seconds);
    int r;

    for (r = 0; comm->peers && r < comm->nranks && !comm->failure.status; r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (!p->control_remote || p->control || !p->transport->alive(p->ep))
            continue;
        while (shunti_now_ns() < end) {
            if (comm->deferred.first)
                shunti_control_retry(comm);
            else if (p->transport->flush(p->ep) != SHUNT_IN_PROGRESS)
                break;
            shunti_transports_nap(comm, 1);
        }
    }
}

/* Send the failure to the peers. A peer that still waits must learn of the
 * failure before it sees this rank leave. Otherwise it would report this rank
 * as lost. Closing the transport discards data that a device has not sent yet.
 * Bounded, because some peers may be gone. */
static void flush_failure(struct shunt_comm *comm, double seconds)
{
    uint64_t end = shunti_now_ns() + shunti_ns(seconds);

    if (!comm->peers || !comm->control.base || comm->calls.finish_called)
        return;
    /* another thread may have ended the communicator */
    shunti_comm_failed(comm);
    while (comm->failure.status && !shunti_all_sent(comm) &&
           shunti_now_ns() < end) {
        if (comm->deferred.first)
            shunti_control_retry(comm);
        if (!shunti_all_sent(comm))
            shunti_transports_nap(comm, 1);
    }
}

/* Log a line such as "transport ucx: 12 messages, 4096 bytes, 0 retries". */
static void log_counters(const struct shunti_context *context)
{
    struct shunt_transport_counter all[20];
    const size_t room = sizeof(all) / sizeof(all[0]);
    char text[600] = "";
    size_t count, n = 0;

    if (!shunti_log_wanted(SHUNTI_LOG_INFO, "comm"))
        return;
    count = context->transport->counters(context->ctx, all, room);
    if (!count)
        return;
    for (size_t i = 0; i < count && i < room && n + 64 < sizeof(text); i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%llu %.32s",
                              i ? ", " : "", (unsigned long long)all[i].value,
                              all[i].name);
    shunti_info("comm", "transport %s: %s", context->transport->name, text);
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
    for (i = 0; i < comm->contexts.count; i++) {
        struct shunti_context *c = &comm->contexts.all[i];

        if (c->control_reg)
            c->transport->dereg(c->ctx, c->control_reg);
        if (c->outbox_reg)
            c->transport->dereg(c->ctx, c->outbox_reg);
        log_counters(c);
        c->transport->close(c->ctx);
    }
    shunti_outboxes_free(comm);
    shunti_loss_finish(comm);
    free(comm->contexts.all);
}

/* Free everything but the structure, its peers, and the requests that the
 * caller has not collected. */
static void tear_down(struct shunt_comm *comm)
{
    shunti_help_forget(comm);
    shunti_parked_forget(comm);
    shunti_progress_thread_stop(comm);
    if (comm->operations.active)
        keep_promises(comm);
    shunti_trace_flush(comm->rank);
    flush_failure(comm, 0.25);
    shunti_say_completed(comm);
    flush_puts(comm, 1.0);
    shunti_requests_drop(comm);
    shunti_layers_end(comm);
    shunti_engine_close(comm);
    shunti_scratch_leave(comm);
    shunti_control_forget(comm);
    shunti_windows_destroy(comm);
    shunti_registrations_finish(comm);
    shunti_stdio_occupy(); /* UCX makes sockets when it is closed, too */
    close_contexts(comm);
    shunti_stdio_release();
    shunti_zcopies_finish(comm);
    shunti_segment_drop(comm->control.segment);
    if (comm->waiting.wake_fd >= 0)
        close(comm->waiting.wake_fd);
    free(comm->calls.late.text);
    free(comm->reserve);
    free(comm->failure.lost);
    shunti_nodes_finish(comm);
    explicit_bzero(comm->secret, sizeof(comm->secret));
}

void shunti_comm_free(struct shunt_comm *comm)
{
    if (!comm)
        return;
    tear_down(comm);
    shunti_requests_free(comm);
    free(comm->peers);
    free(comm);
}

void shunt_comm_destroy(struct shunt_comm *comm)
{
    SHUNTI_TRACK(LIBRARY);

    if (!comm)
        return;
    if (!shunti_registry_remove(comm)) {
        (void)shunti_fail(NULL, SHUNT_ERR_INVALID,
                          "comm_destroy: this is not a communicator, or it has "
                          "been destroyed already");
        return;
    }
    if (comm->inherited.state) {
        shunti_inherited_leave(comm);
        shunti_registry_leave(comm);
        return;
    }
    tear_down(comm);
    shunti_registry_keep(comm);
}
