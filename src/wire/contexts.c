// SPDX-License-Identifier: Apache-2.0
/* The open transports of a communicator; see contexts.h. */
#include "src/wire/contexts.h"

#include <errno.h>
#include <unistd.h>

#include "src/base/inline.h"
#include "src/base/segment.h"
#include "src/comm.h"
#include "src/trace/trace.h"
#include "src/trace/track.h"

/* Least time between two timeline entries of the bytes sent, in ns. */
#define COUNT_NS 1000000u

enum shunt_status shunti_context_register(struct shunti_context *context,
                                          struct shunti_segment *segment,
                                          void *key, size_t *key_len,
                                          struct shunt_transport_reg **reg)
{
    struct shunt_transport_memory memory = {
        .addr = segment->addr,
        .bytes = segment->bytes,
        .fd = segment->fd,
        .done = shunti_segment_drop,
        .arg = segment,
    };
    enum shunt_status st;

    shunti_segment_hold(segment);
    st = context->transport->reg(context->ctx, &memory, key, key_len, reg);
    if (st)
        shunti_segment_drop(segment);
    return st;
}

static bool is_far(const struct shunt_comm *comm,
                   const struct shunti_context *context)
{
    for (int r = 0; r < comm->nranks; r++)
        if (comm->peers[r].context == context &&
            comm->peers[r].node != comm->node)
            return true;
    return false;
}

/* Add an entry to the timeline: the bytes that this rank has sent to other
 * nodes. */
static void count_sent(struct shunt_comm *comm)
{
    const uint64_t now = shunti_now_ns();

    if (now < comm->contexts.counted_ns + COUNT_NS ||
        comm->stats.bytes_remote == comm->contexts.counted)
        return;
    comm->contexts.counted_ns = now;
    comm->contexts.counted = comm->stats.bytes_remote;
    shunti_trace_counter(comm->rank, "bytes to other nodes", now,
                         (double)comm->contexts.counted);
}

/* Call the progress() of one transport. If the transport reaches other nodes,
 * and sends or receives, this time counts on the track WIRE. Otherwise it
 * counts on the thread's current track, which is mostly WAITS. */
SHUNTI_NOINLINE static unsigned progress_tracked(struct shunt_comm *comm,
                                                 const struct shunti_context *c)
{
    enum shunti_track before;
    unsigned events;
    bool sends;

    if (!is_far(comm, c))
        return (unsigned)c->transport->progress(c->ctx);
    sends = c->transport->busy(c->ctx);
    before = shunti_track_switch(SHUNTI_TRACK_WIRE);
    events = (unsigned)c->transport->progress(c->ctx);
    if (events || sends)
        shunti_track_leave(&before);
    else
        shunti_track_undo(before);
    count_sent(comm);
    return events;
}

void shunti_transports_progress(struct shunt_comm *comm)
{
    const bool tracked = shunti_tracked();
    size_t i;

    comm->contexts.looks++;
    for (i = 0; i < comm->contexts.count; i++) {
        struct shunti_context *c = &comm->contexts.all[i];

        comm->contexts.events += tracked
                                     ? progress_tracked(comm, c)
                                     : (unsigned)c->transport->progress(c->ctx);
    }
}

bool shunti_all_sent(const struct shunt_comm *comm)
{
    for (size_t i = 0; i < comm->contexts.count; i++) {
        const struct shunti_context *c = &comm->contexts.all[i];

        if (c->transport->busy(c->ctx))
            return false;
    }
    return !comm->deferred.first;
}

void shunti_note_unsent(struct shunt_comm *comm)
{
    comm->parked.unsent = !comm->all_mapped && !shunti_all_sent(comm);
}

void shunti_wake_self(struct shunt_comm *comm)
{
    static const uint64_t one = 1;
    int saved = errno;
    ssize_t put = write(comm->waiting.wake_fd, &one, sizeof(one));

    (void)put; /* EAGAIN: the counter is full, so the descriptor is readable */
    errno = saved;
}
