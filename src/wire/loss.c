// SPDX-License-Identifier: Apache-2.0
/* Loss records; see loss.h. */
#include "src/wire/loss.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fnv.h"
#include "src/comm.h"
#include "src/wire/failure.h"
#include "src/wire/wire.h"

/* A published copy of the record, which transports may still be sending. */
struct shunti_loss_image {
    struct shunti_loss_image *next;
    _Alignas(64) unsigned char record[];
};

static size_t words(int nranks)
{
    return ((size_t)nranks + 63) / 64;
}

size_t shunti_loss_bytes(int nranks)
{
    size_t bytes = sizeof(struct shunti_loss) +
                   SHUNTI_SETS * words(nranks) * sizeof(uint64_t);

    return (bytes + 63) & ~(size_t)63;
}

struct shunti_loss *shunti_loss_new(int nranks)
{
    return calloc(1, shunti_loss_bytes(nranks));
}

uint64_t *shunti_loss_set(const struct shunt_comm *comm,
                          struct shunti_loss *loss, int which)
{
    return loss->set + (size_t)which * words(comm->nranks);
}

bool shunti_loss_has(const struct shunt_comm *comm,
                     const struct shunti_loss *loss, int which, int rank)
{
    const uint64_t *set = loss->set + (size_t)which * words(comm->nranks);

    return set[rank / 64] >> rank % 64 & 1;
}

void shunti_loss_add(const struct shunt_comm *comm, struct shunti_loss *loss,
                     int which, int rank)
{
    shunti_loss_set(comm, loss, which)[rank / 64] |= UINT64_C(1) << rank % 64;
}

/* The checksum of a record, word by word, over all fields but `sum` itself. */
static uint64_t sum_of(const struct shunti_loss *loss, size_t bytes)
{
    const uint64_t *word = (const uint64_t *)(const void *)loss;
    uint64_t sum = SHUNTI_FNV;

    for (size_t i = 0; i < bytes / 8; i++)
        if (i != offsetof(struct shunti_loss, sum) / 8)
            sum = shunti_fnv_step(sum, word[i]);
    return sum;
}

static size_t slot_at(const struct shunt_comm *comm, int rank)
{
    return comm->control.layout.loss +
           (size_t)rank * comm->control.layout.loss_stride;
}

/* Write a record to a mapped window. The version is written last. */
static void store(unsigned char *slot, const struct shunti_loss *loss,
                  size_t bytes)
{
    const uint64_t *from = (const uint64_t *)(const void *)loss;
    uint64_t *to = (uint64_t *)(void *)slot;

    for (size_t i = 1; i < bytes / 8; i++)
        __atomic_store_n(&to[i], from[i], __ATOMIC_RELAXED);
    __atomic_store_n(&to[0], from[0], __ATOMIC_RELEASE);
}

bool shunti_loss_publish(struct shunt_comm *comm)
{
    const size_t bytes = shunti_loss_bytes(comm->nranks);
    const size_t at = slot_at(comm, comm->rank);
    struct shunti_loss_image *image;
    struct shunti_loss *loss;

    image = comm->loss.record ? calloc(1, sizeof(*image) + bytes) : NULL;
    if (!image)
        return false;
    comm->loss.record->version++;
    memcpy(image->record, comm->loss.record, bytes);
    loss = (struct shunti_loss *)(void *)image->record;
    loss->sum = sum_of(loss, bytes);
    image->next = comm->loss.images;
    comm->loss.images = image;
    for (int r = 0; r < comm->nranks; r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (p->control) {
            store(p->control + at, loss, bytes);
            p->transport->wake(p->ep);
        } else if (p->control_remote && !p->lost) {
            shunti_control_put_rare(comm, r, at + 8, image->record + 8,
                                    bytes - 8, at, loss->version);
        }
    }
    return true;
}

void shunti_loss_publish_lost(struct shunt_comm *comm)
{
    if (!comm->loss.record)
        comm->loss.record = shunti_loss_new(comm->nranks);
    if (!comm->loss.record)
        return;
    for (size_t i = 0; i < comm->failure.nlost; i++)
        shunti_loss_add(comm, comm->loss.record, SHUNTI_LOST,
                        comm->failure.lost[i]);
    shunti_loss_publish(comm);
}

bool shunti_loss_read(const struct shunt_comm *comm, int rank,
                      struct shunti_loss *into)
{
    const size_t bytes = shunti_loss_bytes(comm->nranks);
    const uint64_t *from =
        (const uint64_t *)(const void *)(comm->control.base +
                                         slot_at(comm, rank));
    struct shunti_loss *copy;
    uint64_t *to;
    bool whole;

    if (__atomic_load_n(from, __ATOMIC_ACQUIRE) <= into->version)
        return false;
    copy = shunti_loss_new(comm->nranks);
    if (!copy)
        return false;
    to = (uint64_t *)(void *)copy;
    to[0] = __atomic_load_n(from, __ATOMIC_ACQUIRE);
    for (size_t i = 1; i < bytes / 8; i++)
        to[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
    whole = copy->sum == sum_of(copy, bytes);
    if (whole)
        memcpy(into, copy, bytes);
    free(copy);
    return whole;
}

void shunti_loss_merge(struct shunt_comm *comm)
{
    struct shunti_loss *loss = shunti_loss_new(comm->nranks);

    for (int r = 0; loss && r < comm->nranks; r++) {
        loss->version = 0;
        if (r == comm->rank || !shunti_loss_read(comm, r, loss))
            continue;
        for (int o = 0; o < comm->nranks; o++)
            if (shunti_loss_has(comm, loss, SHUNTI_LOST, o))
                shunti_comm_add_lost(comm, o);
    }
    free(loss);
}

static bool is_lost(const struct shunt_comm *comm, int rank)
{
    for (size_t i = 0; i < comm->failure.nlost; i++)
        if (comm->failure.lost[i] == rank)
            return true;
    return false;
}

/* Are all ranks of the node lost? */
static bool node_is_lost(const struct shunt_comm *comm, int node)
{
    for (int r = 0; r < comm->nranks; r++)
        if (comm->peers[r].node == node && !is_lost(comm, r))
            return false;
    return true;
}

void shunti_loss_names(const struct shunt_comm *comm, char *text, size_t size)
{
    size_t len = (size_t)snprintf(text, size, "rank%s",
                                  comm->failure.nlost == 1 ? "" : "s");

    if (!comm->failure.nlost)
        snprintf(text, size, "no rank");
    for (size_t i = 0; i < comm->failure.nlost && len + 16 < size; i++)
        len += (size_t)snprintf(text + len, size - len, "%s %d", i ? "," : "",
                                comm->failure.lost[i]);
}

void shunti_loss_nodes(const struct shunt_comm *comm, char *text, size_t size)
{
    size_t len = 0;

    text[0] = 0;
    for (int node = 0; node < comm->nodes && len + 32 < size; node++)
        if (node_is_lost(comm, node))
            len += (size_t)snprintf(text + len, size - len,
                                    len ? ", %d" : " (all of node %d", node);
    if (len)
        snprintf(text + len, size - len, ")");
}

void shunti_loss_finish(struct shunt_comm *comm)
{
    struct shunti_loss_image *image;

    while ((image = comm->loss.images)) {
        comm->loss.images = image->next;
        free(image);
    }
    free(comm->loss.record);
    comm->loss.record = NULL;
}
