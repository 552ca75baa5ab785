// SPDX-License-Identifier: Apache-2.0
/*
 * Round 4 of the making of a communicator: the control windows. Each rank
 * registers its own window with every transport, and imports those of its
 * peers. With several nodes, one more round measures the cost of messages.
 */
#include "src/comm/init_rounds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/segment.h"
#include "src/comm/init.h"
#include "src/op/note.h"
#include "src/wire/contexts.h"
#include "src/wire/failure.h"
#include "src/wire/loss.h"
#include "src/wire/outbox.h"

/* Alignment of areas. This is not the page size of this machine: each rank
 * computes the layout of all windows, so the layout must be the same on
 * machines with other page sizes. Areas begin at multiples of AREA_ALIGN, so
 * that no two share a page, except where pages are larger. */
#define AREA_ALIGN 4096u

struct key {
    char transport[32];
    uint64_t len;
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
};

static size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

void shunti_layout_compute(struct shunti_layout *l, int nranks, bool all_mapped,
                           const struct shunti_tunables *tune)
{
    size_t n = (size_t)nranks;

    memset(l, 0, sizeof(*l));
    l->eager = all_mapped ? tune->eager : tune->eager_far;
    l->chunk = tune->chunk;
    l->chunks = (unsigned)tune->chunks;
    l->completed = 0;
    l->abort = SHUNT_TRANSPORT_LINE;
    l->doorbell = 2 * SHUNT_TRANSPORT_LINE;
    l->inbox = AREA_ALIGN;
    l->slot_bytes = sizeof(struct shunti_note) + l->eager;
    if (!all_mapped)
        l->slot_bytes += SHUNTI_ZCOPY_PAYLOADS * SHUNTI_ZCOPY_NAME;
    l->slot_bytes = round_up(l->slot_bytes, 64);
    l->inbox_stride =
        round_up(SHUNTI_DEPTH * l->slot_bytes, SHUNT_TRANSPORT_LINE);
    l->acks = round_up(l->inbox + n * l->inbox_stride, AREA_ALIGN);
    l->ack_stride = round_up(SHUNTI_DEPTH * 8, SHUNT_TRANSPORT_LINE);
    l->landed = round_up(l->acks + n * l->ack_stride, AREA_ALIGN);
    l->landed_stride = all_mapped
                           ? 0
                           : round_up(SHUNTI_DEPTH * SHUNTI_ZCOPY_PAYLOADS * 8,
                                      SHUNT_TRANSPORT_LINE);
    l->words = round_up(l->landed + n * l->landed_stride, AREA_ALIGN);
    l->word_stride = round_up(SHUNTI_WORDS * 64, SHUNT_TRANSPORT_LINE);
    l->loss = round_up(l->words + n * l->word_stride, AREA_ALIGN);
    l->loss_stride = round_up(shunti_loss_bytes(nranks), SHUNT_TRANSPORT_LINE);
    l->ring = round_up(l->loss + n * l->loss_stride, AREA_ALIGN);
    l->ring_stride = round_up(l->chunk * l->chunks, SHUNT_TRANSPORT_LINE);
    l->bytes = round_up(l->ring + n * l->ring_stride, AREA_ALIGN);
}

enum shunt_status shunti_init_control_alone(struct shunt_comm *comm)
{
    shunti_layout_compute(&comm->control.layout, comm->nranks, comm->all_mapped,
                          &comm->tune);
    comm->control.segment =
        shunti_segment_create("shunt-control", comm->control.layout.bytes);
    if (!comm->control.segment)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY,
                           "control window of %zu bytes of shared memory: %s%s",
                           comm->control.layout.bytes, strerror(errno),
                           shunti_remedy(errno));
    comm->control.base = comm->control.segment->addr;
    return SHUNT_OK;
}

static const struct key *find_key(const struct shunti_blobs *all, int rank,
                                  const char *name)
{
    const unsigned char *data = all->data[rank];
    const struct key *k =
        (const struct key *)(const void *)(data +
                                           sizeof(struct shunti_init_head));
    size_t count =
        (all->len[rank] - sizeof(struct shunti_init_head)) / sizeof(struct key);
    size_t i;

    for (i = 0; i < count; i++)
        if (!strncmp(k[i].transport, name, sizeof(k[i].transport)) &&
            k[i].len <= sizeof(k[i].key))
            return &k[i];
    return NULL;
}

static enum shunt_status import_control(struct shunti_init *init, int peer,
                                        const struct shunti_blobs *all)
{
    struct shunt_comm *comm = init->comm;
    struct shunti_peer *p = &comm->peers[peer];
    const struct key *k = find_key(all, peer, p->transport->name);
    uint64_t deadline = shunti_init_deadline(init);
    enum shunt_status st;

    if (!k)
        return shunti_fail(NULL, SHUNT_ERR_MISMATCH,
                           "rank %d sent no key for %s",
                           shunti_init_name(init, peer), p->transport->name);
    for (;;) {
        st = p->transport->import(p->ep, k->key, (size_t)k->len,
                                  &p->control_remote);
        if (st != SHUNT_IN_PROGRESS)
            break;
        if (shunti_init_is_late(init, &deadline))
            return shunti_fail(NULL, SHUNT_ERR_TIMEOUT,
                               "the key of rank %d's control window did not "
                               "arrive",
                               shunti_init_name(init, peer));
        st = shunti_init_pause(init, &deadline);
        if (st)
            return st;
    }
    if (st)
        return shunti_fail(NULL, st, "control window of rank %d: %s",
                           shunti_init_name(init, peer),
                           p->transport->error(p->context->ctx));
    if (p->caps & SHUNT_TRANSPORT_MAP)
        p->control = p->transport->map(p->ep, p->control_remote);
    return SHUNT_OK;
}

enum shunt_status shunti_init_control(struct shunti_init *init)
{
    struct shunt_comm *comm = init->comm;
    size_t len = sizeof(struct shunti_init_head) +
                 comm->contexts.count * sizeof(struct key);
    struct shunti_init_head *mine = calloc(1, len);
    struct shunti_blobs all = {0};
    enum shunt_status st;
    struct key *k;
    size_t i;
    int r;

    if (!mine)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    k = (struct key *)(void *)(mine + 1);
    st = shunti_init_control_alone(comm);
    for (i = 0; !st && i < comm->contexts.count; i++) {
        struct shunti_context *c = &comm->contexts.all[i];
        size_t key_len = sizeof(k[i].key);

        snprintf(k[i].transport, sizeof(k[i].transport), "%.31s",
                 c->transport->name);
        st = shunti_context_register(c, comm->control.segment, k[i].key,
                                     &key_len, &c->control_reg);
        k[i].len = key_len;
        if (st)
            shunti_fail(NULL, st, "register the control window with %s: %s",
                        c->transport->name, c->transport->error(c->ctx));
    }
    st = shunti_init_gather(init, mine, len, st, &all);
    for (r = 0; !st && r < comm->nranks; r++)
        if (r != comm->rank)
            st = import_control(init, r, &all);
    if (!st)
        st = shunti_outboxes_create(comm);
    shunti_blobs_finish(&all);
    free(mine);
    return st;
}

/* The status of the measurement, which ended with `status`. If one of its puts
 * has failed, on this rank or on another one, the status is that failure. */
static enum shunt_status why_not_measured(const struct shunti_init *init,
                                          enum shunt_status status)
{
    const struct shunti_failure *failure = &init->comm->failure;
    const enum shunt_status failed = shunti_comm_failed(init->comm);

    if (!failed)
        return status;
    if (failure->culprit >= 0 && failure->culprit != init->comm->rank)
        return shunti_fail(NULL, SHUNT_ERR_REMOTE, "on rank %d: %s",
                           shunti_init_name(init, failure->culprit),
                           shunt_strerror(failed));
    return shunti_comm_set_error(init->comm, failed);
}

/* Send rank 0's figures to all ranks. */
enum shunt_status shunti_init_links(struct shunti_init *init)
{
    struct shunt_comm *comm = init->comm;
    struct link_blob {
        struct shunti_init_head head;
        struct shunti_links links;
    } mine = {.head = {0}};
    struct shunti_blobs all = {0};
    enum shunt_status st =
        why_not_measured(init, shunti_links_measure(init, &mine.links));

    /* Notify the peers, because those that wait for this rank's messages would
     * not reach the next round. */
    if (st && st != SHUNT_ERR_PEER && st != SHUNT_ERR_TIMEOUT)
        shunti_bootstrap_abort(init->bootstrap, shunti_error_last());
    mine.links.crowd = comm->links.crowd;
    st = shunti_init_gather(init, &mine.head, sizeof(mine), st, &all);
    if (!st && all.len[0] >= sizeof(mine))
        memcpy(&comm->links,
               (const char *)all.data[0] + offsetof(struct link_blob, links),
               sizeof(comm->links));
    shunti_blobs_finish(&all);
    return st;
}
