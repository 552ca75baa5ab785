// SPDX-License-Identifier: Apache-2.0
/*
 * Making a communicator, in rounds of the bootstrap's all-gather:
 *
 *   1  places, node names and transports of all ranks (init_introduce.c)
 *   2  the addresses of transports; then each pair connects
 *   3  which rank reached which, and how (both init_connect.c): this decides
 *      the nodes
 *   4  the keys of the control windows, which each rank imports
 *      (init_control.c)
 *   5  only the statuses: every rank has succeeded
 *   6  with several nodes: the cost of messages (init_control.c, link.h)
 *
 * and then a barrier, the first operation of the new communicator.
 *
 * Every round carries each rank's status. So the failure of one rank is an
 * error on all ranks, with a text that names that rank.
 */
#include "src/comm/init.h"
#include "src/base/limits.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

#include "src/base/env.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/comm/init_rounds.h"
#include "src/host/launchers.h"
#include "src/op/engine.h"
#include "src/op/request.h"
#include "src/progress/agree.h"
#include "src/progress/exit.h"
#include "src/progress/parked.h"
#include "src/progress/progress.h"
#include "src/progress/registry.h"
#include "src/progress/wait.h"
#include "src/trace/trace.h"
#include "src/trace/track.h"
#include "src/wire/nodes.h"
#include "transports/common/descriptor.h"

/* The longest wait after a failure before this process may end. It may run the
 * root, which must still notify the other ranks. */
#define SETTLE_SECONDS 2.0

/* While this thread waits for the bootstrap, it makes progress on the
 * communicators that it already has. */
__attribute__((constructor)) static void wait_for_bootstrap(void)
{
    shunti_bootstrap_poll = shunti_poll;
}

/* Make the progress thread if it is configured. If nothing is configured, the
 * helper may run instead, unless all ranks map each other. Then a CPU copies
 * the payload, so a helper would only take time from the computation if there
 * are no CPUs to spare. */
static enum shunt_status make_progress_thread(struct shunti_init *init)
{
    struct shunt_comm *comm = init->comm;
    const int configured = init->config->progress_thread;
    const char *progress = shunti_env_choice("SHUNT_PROGRESS");

    if (configured)
        comm->configured.progress_thread = configured > 0 ? 1 : -1;
    else if (!strcasecmp(progress, "thread"))
        comm->configured.progress_thread = 1;
    else if (!strcasecmp(progress, "caller"))
        comm->configured.progress_thread = -1;
    comm->help.may = !comm->configured.progress_thread && !comm->all_mapped;
    return comm->configured.progress_thread > 0
               ? shunti_progress_thread_make(comm)
               : SHUNT_OK;
}

static enum shunt_status meet(struct shunti_init *init,
                              const struct shunt_id *id)
{
    struct shunt_comm *comm = init->comm;
    struct shunti_blobs all = {0};
    struct shunti_init_head head = {0};
    enum shunt_status st;

    if (comm->nranks > 1 || id) {
        st = shunti_bootstrap_join_from(init->parent, id, comm->nranks,
                                        comm->rank, init->timeout,
                                        &init->bootstrap);
        if (st)
            return st;
        shunti_bootstrap_secret(init->bootstrap, comm->secret);
    }
    st = shunti_init_introduce(init);
    if (st)
        return st;
    if (comm->nranks == 1) {
        comm->all_mapped = comm->node_map.mapped = true;
        comm->nodes = comm->local_size = 1;
        if (!shunti_nodes_init(comm))
            return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
        st = shunti_init_control_alone(comm);
        if (!st)
            st = shunti_init_engine(init);
        return st ? st : make_progress_thread(init);
    }
    st = shunti_init_connect(init, &all);
    if (!st)
        st = shunti_init_nodes(init, &all);
    shunti_blobs_finish(&all);
    if (!st)
        st = shunti_init_control(init);
    else
        return st;
    /* The thread is made before this round: after the round nothing may fail on
     * one rank alone. */
    if (!st)
        st = make_progress_thread(init);
    st = shunti_init_gather(init, &head, sizeof(head), st, &all);
    shunti_blobs_finish(&all);
    return st || comm->nodes == 1 ? st : shunti_init_links(init);
}

static void set_waiting(struct shunt_comm *comm)
{
    double spin_us = shunti_env_number("SHUNT_SPIN");

    if (spin_us >= 0) {
        comm->waiting.spin_ns =
            spin_us < 4e6 ? (unsigned)(spin_us * 1e3) : UINT_MAX;
        comm->oversubscribed = spin_us == 0;
    } else {
        comm->waiting.spin_ns = 50000;
    }
}

static const char *progress_of(const struct shunt_comm *comm)
{
    if (comm->thread.exists)
        return "by a thread";
    if (comm->help.may)
        return "auto: by the helper thread, while callers of _start are away";
    return comm->configured.progress_thread
               ? "by callers"
               : "auto: by callers, since all ranks map each other";
}

static void report(const struct shunt_comm *comm)
{
    int r;

    if (!shunti_log_wanted(SHUNTI_LOG_INFO, "comm"))
        return;
    shunti_info("comm", "rank %d of %d, node %d of %d, local rank %d of %d%s",
                comm->rank, comm->nranks, comm->node, comm->nodes,
                comm->local_rank, comm->local_size,
                comm->oversubscribed ? ", more ranks than CPUs" : "");
    for (r = 0; r < comm->nranks; r++)
        if (r != comm->rank)
            shunti_info("comm", "  rank %d: %s", r, comm->peers[r].how);
    if (comm->nranks > 1)
        shunti_info("comm", "  progress: %s", progress_of(comm));
}

static struct shunt_comm *comm_new(int nranks, int rank)
{
    struct shunt_comm *comm = calloc(1, sizeof(*comm) + shunti_layers_bytes());

    if (!comm)
        return NULL;
    shunti_layers_attach(&comm->layers, comm + 1);
    comm->rank = rank;
    comm->nranks = nranks;
    comm->operations.next_seq = 1;
    comm->operations.tail = &comm->operations.active;
    comm->deferred.tail = &comm->deferred.first;
    comm->parked.hold = SHUNTI_HELD;
    comm->requests.spare_state = 1024 + 96 * (size_t)nranks;
    comm->waiting.wake_fd =
        shunti_fd_lift(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    comm->peers = calloc((size_t)nranks, sizeof(*comm->peers));
    comm->failure.lost = calloc((size_t)nranks, sizeof(*comm->failure.lost));
    if (comm->waiting.wake_fd < 0 || !comm->peers || !comm->failure.lost ||
        !shunti_request_reserve(comm)) {
        int error = errno;

        shunti_comm_free(comm);
        errno = error;
        return NULL;
    }
    return comm;
}

/* Fail on all ranks, because this rank's arguments are wrong, or it lacks a
 * resource. The other ranks must not wait for this one. */
static enum shunt_status refuse(struct shunti_parent *parent,
                                const struct shunt_id *id, int nranks, int rank,
                                enum shunt_status status)
{
    struct shunti_bootstrap *bootstrap = NULL;
    double timeout = shunti_env_number("SHUNT_TIMEOUT");
    bool sane =
        nranks >= 1 && nranks <= SHUNTI_RANKS_MAX && rank >= 0 && rank < nranks;
    char text[256];
    bool joined;

    if (parent && parent->agree)
        return parent->agreed ? status : shunti_parent_agree(parent, status);
    snprintf(text, sizeof(text), "%.250s", shunti_error_last());
    if (!id)
        return status;
    /* A rank out of range: the bootstrap checks it, notifies the others and
     * describes the error. A rank in range joins, and can then send the reason
     * why it leaves, unless the join itself needs what this rank lacks. */
    joined = !shunti_bootstrap_join_from(parent, id, nranks, rank, timeout,
                                         &bootstrap);
    if (joined) {
        shunti_bootstrap_abort(bootstrap, text);
        shunti_bootstrap_leave(bootstrap);
    }
    /* The root may run in this process, and still have ranks to notify, also if
     * this rank could not join it. */
    shunti_bootstrap_settle(SETTLE_SECONDS, parent);
    if (!joined && !sane)
        return SHUNT_ERR_INVALID;
    return shunti_fail(NULL, status, "%s", text);
}

/*
 * Handle a failure of the barrier, which is the new communicator's first
 * operation. Returns the status of the whole init, with a text that names ranks
 * as the parent does. Ranks that are silent in the new communicator are silent
 * in the parent, too.
 */
static enum shunt_status report_disagreement(struct shunti_init *init,
                                             enum shunt_status status)
{
    const struct shunt_comm *comm = init->comm;
    char names[128] = "";
    size_t len = 0;

    /* An error of another rank, such as no memory, is not an error of this
     * rank: name the other rank. */
    if (comm->failure.status && !comm->failure.nlost &&
        comm->failure.culprit >= 0 && comm->failure.culprit != comm->rank)
        return shunti_fail(NULL, SHUNT_ERR_REMOTE, "on rank %d: %s",
                           shunti_init_name(init, comm->failure.culprit),
                           shunt_strerror(status));
    if (!init->parent || !comm->failure.nlost)
        return shunti_fail(NULL, status, "%s", comm->error.text);
    for (size_t i = 0; i < comm->failure.nlost; i++) {
        int name = shunti_init_name(init, comm->failure.lost[i]);

        if (status == SHUNT_ERR_TIMEOUT && comm->failure.lost[i] != comm->rank)
            shunti_parent_blame(init->parent, name);
        if (len + 16 < sizeof(names))
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%d",
                                    i ? ", " : "", name);
    }
    return shunti_fail(
        NULL, status, "%s %s %s while the communicator was being made",
        comm->failure.nlost > 1 ? "ranks" : "rank", names,
        status == SHUNT_ERR_TIMEOUT ? "did not answer" : "went away");
}

/* Replace infinity by a finite number of seconds. */
static double limited(double seconds)
{
    return seconds < SHUNTI_NEVER_SECONDS ? seconds : SHUNTI_NEVER_SECONDS;
}

static enum shunt_status make(const struct shunt_id *id, int nranks, int rank,
                              const struct shunt_comm_config *given,
                              struct shunti_parent *parent,
                              struct shunt_comm **out)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunti_init init = {0};
    enum shunt_status st;
    SHUNTI_TRACK(LIBRARY);

    *out = NULL;
    if (nranks < 1 || nranks > SHUNTI_RANKS_MAX || rank < 0 || rank >= nranks)
        return refuse(parent, id, nranks, rank, SHUNT_ERR_INVALID);
    if (given) {
        if (given->size < sizeof(size_t) || given->size > sizeof(config)) {
            shunti_fail(NULL, SHUNT_ERR_INVALID,
                        "config: size is %zu, not %zu; use "
                        "SHUNT_COMM_CONFIG_INIT",
                        given->size, sizeof(config));
            return refuse(parent, id, nranks, rank, SHUNT_ERR_INVALID);
        }
        memcpy(&config, given, given->size);
    }
    shunti_log_set_rank(rank);
    if (shunti_launch_speaks(rank))
        shunti_env_report();
    init.config = &config;
    init.parent = parent;
    init.timeout =
        limited(config.timeout > 0 ? config.timeout
                                   : shunti_env_number("SHUNT_TIMEOUT"));
    init.comm = comm_new(nranks, rank);
    init.places = calloc((size_t)nranks, sizeof(*init.places));
    if (!init.comm || !init.places) {
        st = shunti_fail(NULL,
                         errno == ENOMEM ? SHUNT_ERR_MEMORY : SHUNT_ERR_SYSTEM,
                         "memory and an event descriptor for a communicator of "
                         "%d ranks: %s%s",
                         nranks, strerror(errno), shunti_remedy(errno));
        shunti_comm_free(init.comm);
        free(init.places);
        return refuse(parent, id, nranks, rank, st);
    }
    init.comm->liveness.timeout = init.comm->configured.init_timeout =
        init.timeout;
    init.comm->configured.call_timeout = config.call_timeout;
    init.comm->waiting.idle = config.idle;
    init.comm->waiting.idle_arg = config.idle_arg;
    snprintf(init.comm->configured.name, sizeof(init.comm->configured.name),
             "%.31s", config.name ? config.name : "");
    snprintf(init.comm->configured.transports,
             sizeof(init.comm->configured.transports), "%s",
             config.transports ? config.transports : "");
    snprintf(init.comm->configured.node, sizeof(init.comm->configured.node),
             "%.63s", config.node ? config.node : "");
    st = shunti_engine_open(init.comm);
    if (st) {
        shunti_comm_free(init.comm);
        free(init.places);
        return refuse(parent, id, nranks, rank, st);
    }
    st = meet(&init, id);
    if (st && parent && parent->agree && !parent->agreed)
        st = shunti_parent_agree(parent, st);
    if (st && init.bootstrap)
        shunti_bootstrap_abort(init.bootstrap, shunti_error_last());
    if (!st) {
        set_waiting(init.comm);
        /* The process of the root may exit as soon as its rank returns from
         * here. So that rank must not return before every rank has received the
         * last round. */
        st = shunti_agree_by_rails(
            init.comm, SHUNTI_SIGNATURE(SHUNTI_KIND_CREATE, 0, 0, 0));
        if (st)
            st = report_disagreement(&init, st);
    }
    for (int r = 0; !st && r < nranks; r++)
        init.comm->peers[r].messages = init.comm->peers[r].bytes_put = 0;
    if (!st && config.call_timeout)
        init.comm->liveness.timeout =
            limited(config.call_timeout < 0 ? INFINITY : config.call_timeout);
    if (!st) {
        shunti_progress_thread_start(init.comm);
        shunti_trace_begin(rank, nranks);
        init.comm->polls_first = init.comm->all_mapped &&
                                 !init.comm->oversubscribed &&
                                 !shunti_tracked();
        report(init.comm);
        shunti_registry_add(init.comm);
        shunti_parked_own(init.comm);
        shunti_exit_watch();
        *out = init.comm;
    }
    shunti_bootstrap_leave(init.bootstrap);
    shunti_blobs_finish(&init.introductions);
    free(init.connections);
    free(init.places);
    if (st)
        shunti_comm_free(init.comm);
    /* With a parent, all ranks agree once more by the parent before any process
     * ends. */
    if (st && !(parent && parent->agree))
        shunti_bootstrap_settle(SETTLE_SECONDS, parent);
    if (!st)
        shunti_track_begin(rank);
    return st;
}

enum shunt_status shunti_comm_init(const struct shunt_id *id, int nranks,
                                   int rank,
                                   const struct shunt_comm_config *given,
                                   struct shunti_parent *parent,
                                   struct shunt_comm **out)
{
    enum shunt_status st;

    shunti_log_look(); /* before stderr is occupied */
    shunti_stdio_occupy();
    st = make(id, nranks, rank, given, parent, out);
    shunti_stdio_release();
    return st;
}
