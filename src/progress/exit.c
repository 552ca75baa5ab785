// SPDX-License-Identifier: Apache-2.0
/* Notifying the other ranks that this program exits; see exit.h. */
#include "src/progress/exit.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "src/comm.h"
#include "src/progress/parked.h"
#include "src/trace/trace.h"
#include "src/wire/contexts.h"
#include "src/wire/wire.h"

/* The longest time for sending the word to ranks whose memory is not mapped. */
#define LIMIT_NS 100000000u

/* the process that sends the word; its children by fork() do not */
static pid_t watched;
static uint64_t said; /* the word that is sent: 1 + the exit status */

static size_t word_at(const struct shunt_comm *comm, int writer)
{
    return comm->control.layout.words +
           (size_t)writer * comm->control.layout.word_stride +
           (size_t)SHUNTI_WORD_EXIT * 64;
}

int shunti_exit_of(const struct shunt_comm *comm, int rank)
{
    const uint64_t word =
        __atomic_load_n((const uint64_t *)(const void *)(comm->control.base +
                                                         word_at(comm, rank)),
                        __ATOMIC_ACQUIRE);

    return word && word <= 256 ? (int)word - 1 : -1;
}

/* Send the word to all peers. This is a visit (parked.h), so this thread may
 * touch the communicator. */
static uint64_t send_word(struct shunt_comm *comm, uint64_t decision_ns)
{
    const uint64_t until = shunti_now_ns() + LIMIT_NS;
    const size_t at = word_at(comm, comm->rank);
    bool far = false;

    (void)decision_ns;
    for (int r = 0; r < comm->nranks; r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (r == comm->rank || p->lost || !p->ep)
            continue;
        if (p->control)
            __atomic_store_n((uint64_t *)(void *)(p->control + at), said,
                             __ATOMIC_RELEASE);
        else if (p->control_remote && p->transport->alive(p->ep))
            shunti_control_put_rare(comm, r, 0, NULL, 0, at, said);
        far |= !p->control;
    }
    while (far && !shunti_all_sent(comm) && shunti_now_ns() < until) {
        shunti_control_retry(comm);
        shunti_transports_progress(comm);
        poll(NULL, 0, 1);
    }
    return SHUNTI_VISIT_NS;
}

static void at_exit(int status, void *unused)
{
    (void)unused;
    if (getpid() != watched)
        return;
    said = 1 + ((uint64_t)status & 0xff);
    shunti_parked_visit_now(send_word);
}

static void watch(void)
{
    watched = getpid();
    on_exit(at_exit, NULL);
}

void shunti_exit_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, watch);
}
