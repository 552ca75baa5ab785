// SPDX-License-Identifier: Apache-2.0
/*
 * Round 1: each rank sends where it runs, which transports it has, and which
 * settings it would choose. Those of rank 0 hold on all ranks.
 */
#include "src/comm/init_rounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/error.h"
#include "src/base/shared_env.h"
#include "src/op/note.h"

static size_t size_or(const char *name, size_t fallback)
{
    size_t value = shunti_env_size(name);

    return value == SHUNTI_ENV_AUTO ? fallback : value;
}

static size_t clamp(size_t value, size_t low, size_t high)
{
    return value < low ? low : value > high ? high : value;
}

/*
 * The eager size for peers that are not mapped. There a message costs more than
 * copying its payload. So the size is that of one segment of UCX's TCP
 * (transports/ucx), as long as all inboxes of a rank together stay small.
 */
static size_t eager_far(const struct shunti_tunables *tune, size_t nranks)
{
    if (shunti_env_size("SHUNT_EAGER") != SHUNTI_ENV_AUTO)
        return tune->eager;
    return clamp((8 << 20) / (SHUNTI_DEPTH * nranks), tune->eager, 60 << 10);
}

/*
 * Choose the tunables. Measured: docs/lessons.md. Every pair has an inbox and a
 * ring. A deeper ring with larger chunks is better for two ranks, but the rings
 * of all pairs together should stay in the last-level cache.
 */
static void choose_tunables(struct shunti_tunables *tune, size_t nranks)
{
    size_t pairs = nranks * nranks;
    size_t ring = clamp((16 << 20) / pairs, 64 << 10, 1 << 20);
    size_t chunk = clamp(ring / 8, 16 << 10, 64 << 10);

    tune->eager = clamp(size_or("SHUNT_EAGER", 8192), 512, 1 << 20);
    tune->eager_far = clamp(size_or("SHUNT_EAGER_FAR", eager_far(tune, nranks)),
                            tune->eager, 1 << 20);
    tune->chunk = clamp(size_or("SHUNT_CHUNK", chunk), 1024, 1 << 24);
    tune->chunks = clamp(size_or("SHUNT_CHUNKS", ring / tune->chunk), 2, 4096);
    tune->read_min = size_or("SHUNT_READ_MIN", SIZE_MAX);
    tune->zcopy_min = size_or("SHUNT_ZCOPY_MIN", 64 << 10);
    /* a block that fits into a note's body is sent in the note */
    if (tune->zcopy_min < 64)
        tune->zcopy_min = 64;
    tune->eager = (tune->eager + 63) & ~(size_t)63;
    tune->eager_far = (tune->eager_far + 63) & ~(size_t)63;
    tune->chunk = (tune->chunk + 63) & ~(size_t)63;
}

/* The settings of rank 0 hold on all ranks. */
static void take_settings(struct shunt_comm *comm,
                          const struct shunti_introduction *of_rank_0)
{
    comm->tune = of_rank_0->tune;
    shunti_layers_begin(&comm->layers, comm->nranks, &of_rank_0->shared);
}

enum shunt_status shunti_init_introduce(struct shunti_init *init)
{
    struct shunt_comm *comm = init->comm;
    const char *spec = init->config->transports
                           ? init->config->transports
                           : shunti_env_string("SHUNT_TRANSPORTS");
    const char *node = init->config->node ? init->config->node
                                          : shunti_env_string("SHUNT_NODE");
    struct shunti_introduction *mine = calloc(1, sizeof(*mine));
    struct shunti_blobs all = {0};
    enum shunt_status st = SHUNT_OK;
    size_t i;
    int r;

    if (!mine)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    if (comm->nranks > 1)
        st = shunti_transport_candidates(spec, &init->candidates);
    mine->protocol = SHUNTI_PROTOCOL;
    mine->candidates = (uint32_t)init->candidates.count;
    for (i = 0; i < init->candidates.count; i++) {
        snprintf(mine->transport[i], sizeof(mine->transport[i]), "%.31s",
                 init->candidates.item[i].name);
        mine->far[i] = init->candidates.item[i].far;
    }
    shunti_place_here(&mine->place);
    choose_tunables(&mine->tune, (size_t)comm->nranks);
    shunti_shared_env_collect(&mine->shared);
    snprintf(mine->node, sizeof(mine->node), "%.63s", node ? node : "");
    if (comm->nranks == 1) {
        take_settings(comm, mine);
        init->places[0] = mine->place;
        free(mine);
        return st;
    }
    st = shunti_init_gather(init, &mine->head, sizeof(*mine), st, &all);
    for (r = 0; !st && r < comm->nranks; r++) {
        const struct shunti_introduction *theirs = all.data[r];

        if (all.len[r] != sizeof(*theirs) ||
            theirs->protocol != SHUNTI_PROTOCOL ||
            theirs->candidates > SHUNTI_TRANSPORTS_MAX)
            st = shunti_fail(NULL, SHUNT_ERR_MISMATCH,
                             "rank %d has another version of the library",
                             shunti_init_name(init, r));
        else
            init->places[r] = theirs->place;
    }
    if (!st) {
        take_settings(comm, all.data[0]);
        init->introductions = all;
        memset(&all, 0, sizeof(all));
    }
    shunti_blobs_finish(&all);
    free(mine);
    return st;
}

const struct shunti_introduction *
shunti_introduction_of(const struct shunti_init *init, int r)
{
    return init->introductions.data[r];
}

bool shunti_named_apart(const struct shunti_init *init, int i, int j)
{
    return strcmp(shunti_introduction_of(init, i)->node,
                  shunti_introduction_of(init, j)->node);
}
