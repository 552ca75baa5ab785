// SPDX-License-Identifier: Apache-2.0
/* The open transports of a communicator; see contexts.h. */
#include "src/contexts.h"

#include <errno.h>
#include <unistd.h>

#include "src/comm.h"
#include "src/segment.h"

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

void shunti_transports_progress(struct shunt_comm *comm)
{
    size_t i;

    comm->contexts.looks++;
    for (i = 0; i < comm->contexts.count; i++) {
        struct shunti_context *c = &comm->contexts.all[i];

        comm->contexts.events += (unsigned)c->transport->progress(c->ctx);
    }
}

bool shunti_all_sent(const struct shunt_comm *comm)
{
    for (size_t i = 0; i < comm->contexts.count; i++) {
        const struct shunti_context *c = &comm->contexts.all[i];

        if (c->transport->busy && c->transport->busy(c->ctx))
            return false;
    }
    return !comm->deferred.first;
}

void shunti_note_unsent(struct shunt_comm *comm)
{
    comm->aside.unsent = !comm->all_mapped && !shunti_all_sent(comm);
}

void shunti_wake_self(struct shunt_comm *comm)
{
    static const uint64_t one = 1;
    int saved = errno;
    ssize_t put = write(comm->waiting.wake_fd, &one, sizeof(one));

    (void)put; /* full: it is readable already */
    errno = saved;
}
