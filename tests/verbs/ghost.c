// SPDX-License-Identifier: Apache-2.0
/*
 * Packets that arrive after the end of their connection. When a queue pair
 * fails, packets that it sent and that are not acknowledged may still be in the
 * network. The other side accepts them until its own queue pair fails, too.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/verbs/nic.h"

#define DELAY_US 30000
/* After this time, the payload has been read or never will be */
#define KEPT_US 200000

struct nic_ghost {
    struct nic_ghost *next;
    struct nic_packet packet;
    int fd; /* a duplicate of the queue pair's socket, which may be closed */
    uint64_t current;
    int64_t due;
    bool sent;
    unsigned char data[];
};

/* Returns a copy of a packet with its payload, because the sender may now
 * change its own payload. */
static struct nic_ghost *copy_of(const struct nic_packet *packet)
{
    struct nic_ghost *ghost = calloc(1, sizeof(*ghost) + packet->bytes);
    size_t at = 0;

    if (!ghost)
        abort();
    ghost->packet = *packet;
    for (uint32_t i = 0; i < packet->sges && !packet->inlined; i++) {
        memcpy(ghost->data + at,
               (const void *)(uintptr_t)packet->sge[i].address,
               packet->sge[i].bytes);
        at += packet->sge[i].bytes;
    }
    ghost->packet.sges = packet->sges ? 1 : 0;
    ghost->packet.sge[0].address = (uint64_t)(uintptr_t)ghost->data;
    ghost->packet.sge[0].bytes = packet->bytes;
    ghost->current = NIC_CURRENT + packet->base;
    ghost->packet.current = (uint64_t)(uintptr_t)&ghost->current;
    return ghost;
}

void nic_ghosts_make(struct nic *nic, const struct nic_qp *qp)
{
    const int64_t due = nic_now() + (int64_t)nic_random(nic, DELAY_US);
    struct nic_ghost **last = &nic->ghosts;

    if (nic_is_cut(nic, qp))
        return;
    while (*last)
        last = &(*last)->next;
    for (const struct nic_send *s = qp->first; s && s != qp->unsent;
         s = s->next) {
        if (s->answered)
            continue;
        *last = copy_of(&s->packet);
        (*last)->due = due;
        (*last)->fd = dup(qp->fd);
        last = &(*last)->next;
    }
}

static void send_ghost(struct nic_ghost *ghost)
{
    ssize_t n = send(ghost->fd, &ghost->packet, sizeof(ghost->packet),
                     MSG_DONTWAIT | MSG_NOSIGNAL);

    (void)n; /* an error means that the receiver is gone */
    ghost->sent = true;
}

static void free_first(struct nic *nic)
{
    struct nic_ghost *ghost = nic->ghosts;

    nic->ghosts = ghost->next;
    __atomic_store_n(&ghost->current, 0, __ATOMIC_SEQ_CST);
    if (ghost->fd >= 0)
        close(ghost->fd);
    free(ghost);
}

int64_t nic_ghosts_send(struct nic *nic, int64_t now)
{
    for (struct nic_ghost *g = nic->ghosts; g; g = g->next)
        if (!g->sent && now >= g->due)
            send_ghost(g);
    while (nic->ghosts && now >= nic->ghosts->due + KEPT_US)
        free_first(nic);
    return nic->ghosts ? DELAY_US / 10 : -1;
}

void nic_ghosts_end(struct nic *nic)
{
    while (nic->ghosts)
        free_first(nic);
}
