// SPDX-License-Identifier: Apache-2.0
/*
 * Counts, over all roots of this process, their threads and the connections
 * that a message is still to be sent to. shunti_bootstrap_settle() waits for
 * those connections. The file also lists the roots that listen, and keeps the
 * error of the root that failed last: without descriptors a root cannot send it
 * even to the rank of its own process.
 */
#include "src/boot/bootstrap_root.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/forks.h"
#include "src/boot/bootstrap.h"
#include "src/boot/bootstrap_io.h"
#include "src/boot/bootstrap_wire.h"

#define NAP_SECONDS 0.002

/* Protects the variables below. The counters are sums over all roots of this
 * process. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t conns; /* see shunti_root_count_conns() */
static size_t roots; /* threads that run */
static struct shunti_root *listening;
static struct {
    char where[sizeof(((struct shunti_root *)0)->where)];
    enum shunt_status status;
    char text[sizeof(((struct shunti_root *)0)->text)];
} failed;

void shunti_root_count_conns(struct shunti_root *root, size_t now)
{
    if (now == root->counted)
        return;
    pthread_mutex_lock(&lock);
    conns += now - root->counted;
    pthread_mutex_unlock(&lock);
    root->counted = now;
}

static bool any_conns(void)
{
    bool any;

    pthread_mutex_lock(&lock);
    any = conns > 0;
    pthread_mutex_unlock(&lock);
    return any;
}

void shunti_bootstrap_settle(double seconds, struct shunti_parent *parent)
{
    const double until = shunti_wire_now() + seconds;

    while (any_conns() && shunti_wire_now() < until &&
           !shunti_parent_cancelled(parent))
        shunti_io_sleep(NAP_SECONDS);
}

void shunti_root_keep_failure(const struct shunti_root *root)
{
    pthread_mutex_lock(&lock);
    memcpy(failed.where, root->where, sizeof(failed.where));
    memcpy(failed.text, root->text, sizeof(failed.text));
    failed.status = root->failure;
    pthread_mutex_unlock(&lock);
}

enum shunt_status shunti_root_failed_here(const char *where, char *text,
                                          size_t size)
{
    enum shunt_status status = SHUNT_OK;

    pthread_mutex_lock(&lock);
    if (!strcmp(failed.where, where)) {
        status = failed.status;
        snprintf(text, size, "%s", failed.text);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void shunti_root_count(int by)
{
    pthread_mutex_lock(&lock);
    roots += (size_t)by;
    pthread_mutex_unlock(&lock);
}

bool shunti_root_is_running(void)
{
    bool any;

    pthread_mutex_lock(&lock);
    any = roots > 0;
    pthread_mutex_unlock(&lock);
    return any;
}

/* A child of fork() has no threads of roots, but has copies of their sockets,
 * which would keep the addresses in use. */
static void forked(void)
{
    for (; listening; listening = listening->next)
        close(listening->listen_fd);
    conns = roots = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {.lock = &lock, .in_child = forked};

    shunti_fork_watch(&fork);
}

/* --- roots that listen ---------------------------------------------------- */

void shunti_root_listens(struct shunti_root *root)
{
    pthread_mutex_lock(&lock);
    root->next = listening;
    listening = root;
    pthread_mutex_unlock(&lock);
}

void shunti_root_close_listener(struct shunti_root *root)
{
    struct shunti_root **at;

    pthread_mutex_lock(&lock);
    for (at = &listening; *at && *at != root; at = &(*at)->next)
        ;
    if (*at)
        *at = root->next;
    if (root->listen_fd >= 0) {
        /* shutdown() also acts on the copy of a child of fork() that has not
         * closed it yet. */
        shutdown(root->listen_fd, SHUT_RDWR);
        close(root->listen_fd);
    }
    root->listen_fd = -1;
    pthread_mutex_unlock(&lock);
}

void shunti_root_hold(struct shunti_root *root)
{
    pthread_mutex_lock(&lock);
    root->held = true;
    pthread_mutex_unlock(&lock);
}

/* shutdown() wakes the root's thread, which closes the socket. */
void shunti_root_release_held(void)
{
    pthread_mutex_lock(&lock);
    for (struct shunti_root *r = listening; r; r = r->next)
        if (r->held)
            shutdown(r->listen_fd, SHUT_RDWR);
    pthread_mutex_unlock(&lock);
}
