// SPDX-License-Identifier: Apache-2.0
/* Communicators that exist, and those destroyed last; see registry.h. */
#include "src/progress/registry.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/forks.h"
#include "src/comm.h"
#include "src/op/operations.h"
#include "src/op/request.h"
#include "src/progress/inherited.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shunt_comm *live; /* linked by next_registered */
static struct shunt_comm *destroyed[SHUNTI_REGISTRY_DESTROYED];
static unsigned next_destroyed;
/* Communicators of the parent process that were destroyed here. They stay
 * reachable, for tools that look for leaks. */
static struct shunt_comm *left; /* linked by next_registered */

void shunti_registry_add(struct shunt_comm *comm)
{
    pthread_mutex_lock(&lock);
    comm->next_registered = live;
    live = comm;
    pthread_mutex_unlock(&lock);
}

bool shunti_registry_remove(struct shunt_comm *comm)
{
    struct shunt_comm **at = &live;
    bool found;

    pthread_mutex_lock(&lock);
    while (*at && *at != comm)
        at = &(*at)->next_registered;
    found = *at != NULL;
    if (found)
        *at = comm->next_registered;
    pthread_mutex_unlock(&lock);
    return found;
}

/* Shrink the peers to one zeroed entry, as in a communicator of one rank. Takes
 * no new memory, because there may be none. */
static struct shunti_peer *keep_one(struct shunti_peer *peers)
{
    struct shunti_peer *one = realloc(peers, sizeof(*one));

    one = one ? one : peers;
    memset(one, 0, sizeof(*one));
    return one;
}

/* Set a failure that every call on a destroyed communicator returns. Before a
 * call finds the failure, it reads other fields. These get the values of a
 * communicator of one rank. */
static void keep_structure(struct shunt_comm *comm)
{
    struct shunt_request *requests = comm->requests.newest;
    const struct shunti_layers layers = comm->layers;

    *comm = (struct shunt_comm){
        .nranks = 1,
        .peers = keep_one(comm->peers),
        .nodes = 1,
        .local_size = 1,
        .all_mapped = true,
        .requests.newest = requests,
        .layers = layers,
        .failure.status = (int)SHUNT_ERR_INVALID,
        .waiting.wake_fd = -1,
        .node_map.mapped = true,
    };
    shunti_layers_clear(&comm->layers);
    comm->operations.tail = &comm->operations.active;
    comm->deferred.tail = &comm->deferred.first;
    snprintf(comm->failure.text, sizeof(comm->failure.text),
             "the communicator has been destroyed");
    for (struct shunt_request *r = requests; r; r = r->older)
        if (r->status == SHUNT_IN_PROGRESS)
            r->status = SHUNT_ERR_INVALID;
}

static void free_structure(struct shunt_comm *comm)
{
    shunti_requests_free(comm);
    /* allocated by a mem_alloc() after the communicator was destroyed */
    free(comm->windows.all);
    free(comm->peers);
    free(comm);
}

void shunti_registry_leave(struct shunt_comm *comm)
{
    pthread_mutex_lock(&lock);
    comm->next_registered = left;
    left = comm;
    pthread_mutex_unlock(&lock);
}

void shunti_registry_keep(struct shunt_comm *comm)
{
    struct shunt_comm *oldest;

    keep_structure(comm);
    pthread_mutex_lock(&lock);
    oldest = destroyed[next_destroyed];
    destroyed[next_destroyed] = comm;
    next_destroyed = (next_destroyed + 1) % SHUNTI_REGISTRY_DESTROYED;
    pthread_mutex_unlock(&lock);
    if (oldest)
        free_structure(oldest);
}

static void forked(void)
{
    for (struct shunt_comm *c = live; c; c = c->next_registered)
        shunti_comm_disown(c);
}

__attribute__((constructor)) static void watch_forks(void)
{
    static struct shunti_fork fork = {.lock = &lock, .in_child = forked};

    shunti_fork_watch(&fork);
}
