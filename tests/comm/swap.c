// SPDX-License-Identifier: Apache-2.0
/* An all-to-all whose result is checked; see swap.h. */
#include "tests/comm/swap.h"

#include <stdlib.h>
#include <string.h>

#define PERIOD ((size_t)251)

/* A block repeats this pattern, which depends on the ranks and the round. It is
 * written in pieces, because a sanitizer checks each byte that the program
 * writes by itself. */
static void pattern(int from, int to, int round, unsigned char period[PERIOD])
{
    for (size_t i = 0; i < PERIOD; i++)
        period[i] = (unsigned char)(from * 31 + to * 7 + round * 3 + (int)i);
}

static size_t piece_at(const struct swap *swap, size_t at)
{
    return swap->bytes - at < PERIOD ? swap->bytes - at : PERIOD;
}

int swap_init(struct swap *swap, const struct rank *self, size_t bytes)
{
    swap->bytes = bytes;
    swap->request = NULL;
    swap->send = malloc(bytes * (size_t)self->size);
    swap->recv = malloc(bytes * (size_t)self->size);
    CHECK(swap->send && swap->recv, "no memory");
    return 0;
}

void swap_finish(struct swap *swap)
{
    free(swap->send);
    free(swap->recv);
}

void swap_fill(struct swap *swap, const struct rank *self, int round)
{
    unsigned char period[PERIOD];

    for (int r = 0; r < self->size; r++) {
        unsigned char *block = swap->send + (size_t)r * swap->bytes;

        pattern(self->rank, r, round, period);
        for (size_t at = 0; at < swap->bytes; at += PERIOD)
            memcpy(block + at, period, piece_at(swap, at));
    }
    memset(swap->recv, 0, swap->bytes * (size_t)self->size);
}

int swap_start(struct swap *swap, const struct rank *self,
               struct shunt_comm *comm, int round)
{
    swap_fill(swap, self, round);
    CHECK_OK(comm, shunt_alltoall_start(comm, swap->send, swap->recv,
                                        swap->bytes, SHUNT_U8, &swap->request));
    return 0;
}

int swap_block(struct swap *swap, const struct rank *self,
               struct shunt_comm *comm, int round)
{
    swap_fill(swap, self, round);
    CHECK_OK(comm, shunt_alltoall(comm, swap->send, swap->recv, swap->bytes,
                                  SHUNT_U8));
    return 0;
}

int swap_check(const struct swap *swap, const struct rank *self, int round)
{
    unsigned char period[PERIOD];

    for (int r = 0; r < self->size; r++) {
        const unsigned char *block = swap->recv + (size_t)r * swap->bytes;

        pattern(r, self->rank, round, period);
        for (size_t at = 0; at < swap->bytes; at += PERIOD)
            CHECK(!memcmp(block + at, period, piece_at(swap, at)),
                  "round %d: bytes from %zu on of rank %d's block", round, at,
                  r);
    }
    return 0;
}
