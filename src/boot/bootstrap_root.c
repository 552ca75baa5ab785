// SPDX-License-Identifier: Apache-2.0
/*
 * The root's thread and event loop: one poll(2) over the listening socket, the
 * unauthenticated peers, and the members.
 *
 * Unauthenticated peers are bounded in number (the oldest is dropped for a new
 * one) and in time, from connect to close. Each is read a few bytes at a time
 * into a fixed buffer. So the most that such a peer costs is one entry of the
 * table for ten seconds. A rank that was dropped in a flood of connections
 * connects again by itself.
 *
 * Only the first failure counts. The root sends it to every member and, for a
 * while, to ranks that connect late; then the thread ends. The thread also ends
 * when no rank connected in time, or when nothing happened for a long time. It
 * also ends when every member has left and the root no longer holds the
 * address.
 */
#include "src/boot/bootstrap_root.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/base/own_table.h"
#include "src/boot/bootstrap.h"
#include "transports/common/descriptor.h"

/* shunti_bootstrap_settle() waits this long for late ranks to be notified. */
#define LATECOMER_SECONDS 1.5

/* Discard the input of a leaving connection, until the other side closes. */
static void drain(struct shunti_conn *c)
{
    char waste[4096];

    for (int i = 0; i < 64; i++) {
        ssize_t n = shunti_conn_receive(c, waste, sizeof(waste));

        if (n == 0)
            return;
        if (n < 0) {
            shunti_conn_close(c);
            return;
        }
    }
}

/* Remove closed connections from the table. Members stay: `members` points at
 * them. */
static void remove_closed(struct shunti_root *root)
{
    size_t kept = 0;

    for (size_t i = 0; i < root->nconns; i++) {
        struct shunti_conn *c = root->conns[i];

        if (c->fd < 0 && c->rank < 0)
            free(c);
        else if (c->fd < 0 && (!root->nranks || c->rank >= root->nranks ||
                               root->members[c->rank] != c))
            free(c);
        else
            root->conns[kept++] = c;
    }
    if (root->failure && kept < root->nconns)
        root->accept_after = 0; /* a descriptor is free for the next one */
    root->nconns = kept;
}

static size_t open_conns(const struct shunti_root *root)
{
    size_t n = 0;

    for (size_t i = 0; i < root->nconns; i++)
        n += root->conns[i]->fd >= 0 &&
             !shunti_conn_is_unauthenticated(root->conns[i]);
    return n;
}

/* Can a rank still connect to which the failure was not sent? A root without
 * descriptors has read no hello, and does not know how many ranks to expect. */
static bool expects_more(const struct shunti_root *root)
{
    return root->listen_fd >= 0 &&
           (!root->expected || root->failures_sent < root->expected);
}

/* Is nothing left to do? */
static bool is_over(const struct shunti_root *root, double now)
{
    if (root->failure) {
        /* Late ranks are notified of the failure while the root listens. */
        bool more = expects_more(root) && now < root->deadline;

        return !more && (!open_conns(root) || now >= root->deadline);
    }
    if (!root->nranks || open_conns(root))
        return false;
    /* A member leaves before the last one has joined only if all members have
     * agreed that not all will join (shunti_parent.agree). */
    return root->joined == root->nranks ? root->listen_fd < 0
                                        : root->nnames && root->left;
}

/* Time before which the process should not exit, because ranks that are about
 * to connect would not find the root. 0: it may exit. After a timeout the
 * process does not wait for the missing ranks. */
static double latecomers_until(const struct shunti_root *root)
{
    return root->failure && root->failure != SHUNT_ERR_TIMEOUT && !root->held &&
                   expects_more(root)
               ? root->failed_at + LATECOMER_SECONDS
               : 0;
}

static int wait_for_events(struct shunti_root *root, double now)
{
    double late = latecomers_until(root), stopped;
    double until = late > now && late < root->deadline ? late : root->deadline;
    int n;
    bool listening = root->listen_fd >= 0 && now >= root->accept_after;
    struct pollfd *p = root->polls;

    if (root->listen_fd >= 0 && !listening && root->accept_after < until)
        until = root->accept_after;
    p[0] = (struct pollfd){.fd = listening ? root->listen_fd : -1,
                           .events = POLLIN};
    for (size_t i = 0; i < root->nconns; i++) {
        struct shunti_conn *c = root->conns[i];

        p[i + 1] = (struct pollfd){
            .fd = c->fd, .events = (short)(POLLIN | (c->nout ? POLLOUT : 0))};
        if (c->fd >= 0 && c->stage != SHUNTI_CONN_MEMBER && c->deadline < until)
            until = c->deadline;
    }
    n = poll(p, root->nconns + 1, shunti_wire_poll_ms(until));
    stopped = shunti_wire_now() - until;
    if (stopped > SHUNTI_WIRE_STOPPED_SECONDS)
        root->deadline += stopped;
    return n;
}

static void serve_conn(struct shunti_root *root, struct shunti_conn *c)
{
    if (c->stage == SHUNTI_CONN_MEMBER)
        shunti_root_read_member(root, c);
    else if (c->stage != SHUNTI_CONN_LEAVING)
        shunti_root_handshake(root, c);
    /* A peer that has just been admitted may already have sent more. */
    if (c->fd >= 0 && c->stage == SHUNTI_CONN_MEMBER)
        shunti_root_read_member(root, c);
    if (c->fd >= 0 && c->stage == SHUNTI_CONN_LEAVING)
        drain(c);
    shunti_root_check_left(root);
}

static void flush_all(struct shunti_root *root)
{
    for (size_t i = 0; i < root->nconns; i++) {
        struct shunti_conn *c = root->conns[i];

        if (c->fd < 0 ||
            !(c->nout || (c->stage == SHUNTI_CONN_LEAVING && !c->shut)) ||
            shunti_conn_flush(c))
            continue;
        /* The member may have sent the reason before it ended. */
        if (c->stage == SHUNTI_CONN_MEMBER)
            shunti_root_read_member(root, c);
        if (c->stage == SHUNTI_CONN_MEMBER && c->fd >= 0)
            shunti_root_member_lost(root, c);
        else
            shunti_conn_close(c);
    }
}

static void root_destroy(struct shunti_root *root)
{
    shunti_root_close_listener(root);
    shunti_root_release_spare(root);
    for (size_t i = 0; i < root->nconns; i++) {
        shunti_conn_close(root->conns[i]);
        free(root->conns[i]);
    }
    for (int r = 0; root->blobs && r < root->nranks; r++)
        free(root->blobs[r].data);
    shunti_reply_release(root->failure_frame);
    explicit_bzero(&root->parts, sizeof(root->parts));
    free(root->names);
    free(root->blobs);
    free(root->members);
    free(root->conns);
    free(root->polls);
    free(root);
}

static void count_conns(struct shunti_root *root)
{
    shunti_root_count_conns(
        root, open_conns(root) + (latecomers_until(root) > shunti_wire_now()));
}

/* Make the failure visible to the ranks of this process, which may then end the
 * process. The caller must first count the connections that the failure is
 * still to be sent to. */
static void keep_failure_once(struct shunti_root *root)
{
    if (root->failure && !root->failure_kept)
        shunti_root_keep_failure(root);
    root->failure_kept = root->failure;
}

static void *root_main(void *arg)
{
    struct shunti_root *root = arg;

    shunti_log_set_rank(-1);
    for (;;) {
        double now = shunti_wire_now();
        size_t polled = root->nconns;

        shunti_root_expire(root, now);
        if (!root->failure && now >= root->deadline)
            shunti_root_on_deadline(root);
        if (is_over(root, now))
            break;
        if (wait_for_events(root, now) < 0 && errno != EINTR)
            break; /* the ranks see their connections close */
        for (size_t i = 0; i < polled; i++)
            if (root->conns[i]->fd >= 0 && root->polls[i + 1].revents)
                serve_conn(root, root->conns[i]);
        if (root->polls[0].revents & POLLHUP)
            shunti_root_close_listener(root); /* shunti_root_release_held() was
                                                 called */
        else if (root->listen_fd >= 0 && root->polls[0].revents)
            shunti_root_accept(root);
        /* Count before anything is sent. A rank that receives the failure may
         * end this process, and must first wait for the connections that are
         * still to be notified. */
        count_conns(root);
        keep_failure_once(root);
        flush_all(root);
        remove_closed(root);
        count_conns(root);
    }
    keep_failure_once(root);
    shunti_root_count_conns(root, 0);
    shunti_debug("bootstrap", "root %s: done", root->where);
    root_destroy(root);
    shunti_root_count(-1);
    return NULL;
}

int shunti_root_start(int listen_fd, const struct shunti_id_parts *parts,
                      double timeout, const int *names, int nranks,
                      const char *failure)
{
    struct shunti_root *root = calloc(1, sizeof(*root));
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int rc, spare_error;

    if (root && names)
        root->names = calloc((size_t)nranks, sizeof(*names));
    if (!root || (names && !root->names) ||
        !shunti_root_reserve_failure(root) || !shunti_root_make_room(root)) {
        free(root ? root->failure_frame : NULL);
        free(root ? root->conns : NULL);
        free(root ? root->names : NULL);
        free(root);
        close(listen_fd);
        return ENOMEM;
    }
    if (names)
        memcpy(root->names, names, (size_t)nranks * sizeof(*names));
    root->nnames = names ? nranks : 0;
    root->listen_fd = listen_fd;
    if (!shunti_own_table_is_here())
        shunti_root_listens(root);
    root->spare_fd =
        shunti_fd_lift(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    spare_error = errno;
    root->parts = *parts;
    root->unauthenticated_max = shunti_root_unauthenticated_max();
    root->timeout = timeout;
    root->deadline = shunti_wire_now() + timeout;
    shunti_id_describe(parts, root->where, sizeof(root->where));
    /* Clear the failure of an earlier root at this address. */
    shunti_root_keep_failure(root);

    if (failure) {
        root->expected = nranks;
        shunti_root_fail(root, SHUNT_ERR_SYSTEM, "%s", failure);
        shunti_root_count_conns(root, 1); /* so that shunti_bootstrap_settle()
                                             waits */
    }

    /* Block all signals in the new thread: they are for the program's own
     * threads. */
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    shunti_root_count(1);
    /* Without a spare descriptor, no rank could be notified of a lack of
     * descriptors. */
    rc = root->spare_fd < 0 ? spare_error
                            : pthread_create(&thread, &attr, root_main, root);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc) {
        shunti_root_count(-1);
        shunti_root_count_conns(root, 0);
        root_destroy(root);
    }
    return rc;
}
