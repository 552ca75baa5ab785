// SPDX-License-Identifier: Apache-2.0

#include "tests/src/birth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/boot/bootstrap_wire.h"

/* The size of the blob of `rank` in exchange `round`. Its bytes follow from the
 * rank. */
static size_t blob_size(int rank, int round)
{
    return (size_t)((rank * 7919 + round * 104729) % 5000) * (rank != 2);
}

static bool blobs_are_right(const struct shunti_blobs *all, int nranks,
                            int round)
{
    if (all->count != nranks)
        return false;
    for (int r = 0; r < nranks; r++) {
        const unsigned char *bytes = all->data[r];

        if (all->len[r] != blob_size(r, round) || (uintptr_t)bytes % 8)
            return false;
        for (size_t i = 0; i < all->len[r]; i++)
            if (bytes[i] != (unsigned char)(r + 3 * i))
                return false;
    }
    return true;
}

static enum shunt_status exchange(struct shunti_bootstrap *bs,
                                  struct birth_rank *rank, int round)
{
    size_t len = blob_size(rank->rank, round);
    unsigned char *mine = malloc(len + 1);
    struct shunti_blobs all;
    enum shunt_status st;

    for (size_t i = 0; i < len; i++)
        mine[i] = (unsigned char)((size_t)rank->rank + 3 * i);
    st = shunti_bootstrap_allgather(bs, mine, len, &all);
    free(mine);
    if (!st)
        rank->done += blobs_are_right(&all, rank->nranks, round);
    shunti_blobs_finish(&all);
    return st;
}

static void *live(void *arg)
{
    struct birth_rank *rank = arg;
    struct shunti_bootstrap *bs;
    double start = shunti_wire_now();
    enum shunt_status st = shunti_bootstrap_join(
        &rank->id, rank->nranks, rank->rank, rank->timeout, &bs);

    if (!st)
        shunti_bootstrap_secret(bs, rank->key);
    if (!st && rank->abort)
        shunti_bootstrap_abort(bs, rank->abort);
    for (int i = 0; !st && !rank->abort && i < rank->gathers; i++)
        st = exchange(bs, rank, i);
    rank->status = st;
    if (st)
        snprintf(rank->text, sizeof(rank->text), "%s", shunt_last_error(NULL));
    shunti_bootstrap_leave(bs);
    rank->seconds = shunti_wire_now() - start;
    return NULL;
}

void birth_start(struct birth_rank *rank)
{
    if (pthread_create(&rank->thread, NULL, live, rank))
        abort();
}

void birth_join(struct birth_rank *rank)
{
    pthread_join(rank->thread, NULL);
}

void birth_run(struct birth_rank *ranks, const struct shunt_id *id, int count,
               int nranks, double timeout)
{
    for (int r = 0; r < count; r++) {
        ranks[r] = (struct birth_rank){.id = *id,
                                       .nranks = nranks,
                                       .rank = r,
                                       .timeout = timeout,
                                       .gathers = 1};
        birth_start(&ranks[r]);
    }
    for (int r = 0; r < count; r++)
        birth_join(&ranks[r]);
}
