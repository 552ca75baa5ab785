// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of test_zcopy.c. Large blocks between ranks whose memory is not
 * mapped are sent from the sender's memory directly into the receiver's.
 * Nothing may be written to that memory after the call. Ranks of a node share
 * memory, others do not.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

enum { RANKS = 16, ROUNDS = 6 };

/* The smallest block that is sent by zero copy: SHUNT_ZCOPY_MIN, or its
 * default. */
static size_t least(void)
{
    const char *text = getenv("SHUNT_ZCOPY_MIN");

    return text ? strtoull(text, NULL, 10) : 65536;
}

static unsigned char byte_of(int from, int to, int round, size_t i)
{
    return (unsigned char)(from * 41 + to * 13 + round * 7 + (int)(i % 251));
}

/* Sizes of all kinds, also right at the limit, and different in both
 * directions. */
static size_t bytes_of(int from, int to, int round)
{
    const size_t sizes[] = {0, 7, least() - 1, least(), least() + 1, 300001};

    return sizes[(from + 3 * to + round) % 6];
}

struct blocks {
    size_t send_counts[RANKS], send_displs[RANKS];
    size_t recv_counts[RANKS], recv_displs[RANKS];
    unsigned char *send, *recv; /* (ranks * most) */
    size_t most;
};

/* Allocate the blocks; both buffers in windows if `window` is true. */
static int make_blocks(const struct rank *self, struct blocks *b, bool window)
{
    const size_t ranks = (size_t)self->size;

    b->most = 300001 + 999;
    if (window) {
        void *send, *recv;

        CHECK_OK(self->comm,
                 shunt_mem_alloc(self->comm, ranks * b->most, &send));
        CHECK_OK(self->comm,
                 shunt_mem_alloc(self->comm, ranks * b->most, &recv));
        b->send = send;
        b->recv = recv;
    } else {
        b->send = malloc(ranks * b->most);
        b->recv = malloc(ranks * b->most);
    }
    CHECK(b->send && b->recv, "no memory");
    return 0;
}

static int drop_blocks(const struct rank *self, struct blocks *b, bool window)
{
    if (window) {
        CHECK_OK(self->comm, shunt_mem_free(self->comm, b->send));
        CHECK_OK(self->comm, shunt_mem_free(self->comm, b->recv));
    } else {
        free(b->send);
        free(b->recv);
    }
    return 0;
}

static void fill(const struct rank *self, struct blocks *b, int round)
{
    for (int r = 0; r < self->size; r++) {
        b->send_displs[r] = b->recv_displs[r] = (size_t)r * b->most + 3;
        b->send_counts[r] = bytes_of(self->rank, r, round);
        b->recv_counts[r] = bytes_of(r, self->rank, round);
        for (size_t i = 0; i < b->send_counts[r]; i++)
            b->send[b->send_displs[r] + i] = byte_of(self->rank, r, round, i);
    }
    memset(b->recv, 0xee, (size_t)self->size * b->most);
}

/* Check that each block has arrived, and that no byte around it was written. */
static int check_blocks(const struct rank *self, const struct blocks *b,
                        int round)
{
    for (int r = 0; r < self->size; r++) {
        const unsigned char *got = b->recv + (size_t)r * b->most;
        const size_t bytes = b->recv_counts[r];

        for (size_t i = 0; i < b->most; i++) {
            const bool in = i >= 3 && i < 3 + bytes;
            const unsigned char want =
                in ? byte_of(r, self->rank, round, i - 3) : 0xee;

            CHECK(got[i] == want,
                  "round %d, %zu bytes of rank %d: byte %zu is %d, not %d",
                  round, bytes, r, i, got[i], want);
        }
    }
    return 0;
}

static int stats_of(const struct rank *self, struct shunt_comm_stats *stats)
{
    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, stats, sizeof(*stats)));
    return 0;
}

/* Check how many bytes an alltoallv sent by zero copy, and how many of these
 * came from the first `registered` bytes of b->send, which are registered.
 * Blocks that a relay forwards are smaller than least(), as long as SHUNT_CARRY
 * is smaller, too. */
static int check_path(const struct rank *self, const struct blocks *b,
                      const struct shunt_comm_stats *before, size_t registered)
{
    const int node = shunt_comm_node(self->comm, self->rank);
    struct shunt_comm_stats after = {0};
    uint64_t far = 0, from_registered = 0;

    if (stats_of(self, &after))
        return 1;
    for (int r = 0; r < self->size; r++) {
        if (shunt_comm_node(self->comm, r) == node ||
            b->send_counts[r] < least())
            continue;
        far += b->send_counts[r];
        if (b->send_displs[r] + b->send_counts[r] <= registered)
            from_registered += b->send_counts[r];
    }
    CHECK(after.bytes_zcopy_registered - before->bytes_zcopy_registered ==
              from_registered,
          "%llu bytes came from registered memory, not %llu",
          (unsigned long long)(after.bytes_zcopy_registered -
                               before->bytes_zcopy_registered),
          (unsigned long long)from_registered);
    CHECK(after.bytes_zcopy - before->bytes_zcopy == far,
          "%llu bytes went by zero copy, not %llu",
          (unsigned long long)(after.bytes_zcopy - before->bytes_zcopy),
          (unsigned long long)far);
    return 0;
}

static int all_to_all(const struct rank *self, bool window)
{
    struct blocks b;

    if (make_blocks(self, &b, window))
        return 1;
    for (int round = 0; round < ROUNDS; round++) {
        struct shunt_comm_stats before = {0};

        fill(self, &b, round);
        if (stats_of(self, &before))
            return 1;
        CHECK_OK(self->comm,
                 shunt_alltoallv(self->comm, b.send, b.send_counts,
                                 b.send_displs, b.recv, b.recv_counts,
                                 b.recv_displs, SHUNT_U8));
        if (check_blocks(self, &b, round) ||
            check_path(self, &b, &before,
                       window ? (size_t)self->size * b.most : 0))
            return 1;
    }
    return drop_blocks(self, &b, window);
}

/* Registers a larger and larger part of the memory that is sent. */
static int registered(const struct rank *self)
{
    struct blocks b;

    if (make_blocks(self, &b, false))
        return 1;
    for (int round = 0; round <= ROUNDS; round++) {
        const size_t bytes =
            (size_t)self->size * b.most * (size_t)round / ROUNDS;
        struct shunt_comm_stats before = {0};

        fill(self, &b, round);
        if (stats_of(self, &before))
            return 1;
        if (round)
            CHECK_OK(self->comm, shunt_mem_register(self->comm, b.send, bytes));
        CHECK_OK(self->comm,
                 shunt_alltoallv(self->comm, b.send, b.send_counts,
                                 b.send_displs, b.recv, b.recv_counts,
                                 b.recv_displs, SHUNT_U8));
        if (check_blocks(self, &b, round) ||
            check_path(self, &b, &before, bytes))
            return 1;
        if (round)
            CHECK_OK(self->comm, shunt_mem_deregister(self->comm, b.send));
    }
    return drop_blocks(self, &b, false);
}

static int straight(const struct rank *self)
{
    return all_to_all(self, false) || all_to_all(self, true);
}

/* Several calls under way at once are started in one order and finished in
 * another. */
static int several(const struct rank *self)
{
    enum { CALLS = 5 };
    struct shunt_request *requests[CALLS];
    struct blocks b[CALLS];

    for (int k = 0; k < CALLS; k++) {
        if (make_blocks(self, &b[k], k % 2))
            return 1;
        fill(self, &b[k], k);
    }
    for (int k = 0; k < CALLS; k++)
        CHECK_OK(self->comm, shunt_alltoallv_start(
                                 self->comm, b[k].send, b[k].send_counts,
                                 b[k].send_displs, b[k].recv, b[k].recv_counts,
                                 b[k].recv_displs, SHUNT_U8, &requests[k]));
    for (int k = CALLS - 1; k >= 0; k--) {
        CHECK_OK(self->comm, shunt_wait(&requests[k]));
        if (check_blocks(self, &b[k], k))
            return 1;
    }
    for (int k = 0; k < CALLS; k++)
        if (drop_blocks(self, &b[k], k % 2))
            return 1;
    return 0;
}

/* Rank 0 and the last rank disagree about the size of a block, with each size
 * on either side of the limit. The blocks of the other ranks arrive. A block
 * about which the ranks disagree does not arrive later, either. */
static int sizes_disagree(const struct rank *self)
{
    const size_t pairs[][2] = {
        {300001, 200001},       {200001, 300001}, {least(), least() - 1},
        {least() - 1, least()}, {300001, 0},      {0, 300001}};
    const int last = self->size - 1;
    struct blocks b;

    if (make_blocks(self, &b, false))
        return 1;
    for (size_t k = 0; k < sizeof(pairs) / sizeof(pairs[0]); k++) {
        const int round = (int)k;
        enum shunt_status st;

        fill(self, &b, round);
        if (self->rank == 0)
            b.send_counts[last] = pairs[k][0];
        if (self->rank == last)
            b.recv_counts[0] = pairs[k][1];
        st = shunt_alltoallv(self->comm, b.send, b.send_counts, b.send_displs,
                             b.recv, b.recv_counts, b.recv_displs, SHUNT_U8);
        if (self->rank == 0 || self->rank == last)
            CHECK(st == SHUNT_ERR_MISMATCH, "%zu: %d", k, (int)st);
        else
            CHECK_OK(self->comm, st);
        memset(b.recv, 0xdd, (size_t)self->size * b.most);
        for (int i = 0; i < 3; i++)
            CHECK_OK(self->comm, shunt_barrier(self->comm));
        for (size_t i = 0; i < (size_t)self->size * b.most; i++)
            CHECK(b.recv[i] == 0xdd, "%zu: byte %zu came later", k, i);
        CHECK_OK(self->comm, shunt_barrier(self->comm));
    }
    return drop_blocks(self, &b, false);
}

/* Other collectives, some of whose blocks are sent by zero copy. */
static int others(const struct rank *self)
{
    const size_t count = 50000; /* f32 */
    const size_t ranks = (size_t)self->size;
    float *one = malloc(count * sizeof(float));
    float *all = malloc(ranks * count * sizeof(float));
    struct shunt_comm_stats before = {0}, after = {0};

    CHECK(one && all, "no memory");
    if (stats_of(self, &before))
        return 1;
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < count; i++)
            one[i] = (float)(self->rank * 1000 + round + (int)(i % 997));
        CHECK_OK(self->comm,
                 shunt_allgather(self->comm, one, all, count, SHUNT_F32));
        for (int r = 0; r < self->size; r++)
            for (size_t i = 0; i < count; i++)
                CHECK(all[(size_t)r * count + i] ==
                          (float)(r * 1000 + round + (int)(i % 997)),
                      "allgather: element %zu of rank %d", i, r);

        for (size_t i = 0; i < ranks * count; i++)
            all[i] = (float)(self->rank + (int)(i / count) + (int)(i % 13));
        CHECK_OK(self->comm, shunt_reduce_scatter(self->comm, all, one, count,
                                                  SHUNT_F32, SHUNT_SUM));
        for (size_t i = 0; i < count; i++) {
            const int sum = self->size * (self->size - 1) / 2;
            const size_t at = (size_t)self->rank * count + i;

            CHECK(one[i] ==
                      (float)(sum + self->size * (self->rank + (int)(at % 13))),
                  "reduce_scatter: element %zu is %g", i, (double)one[i]);
        }

        for (size_t i = 0; i < count; i++)
            one[i] = self->rank == round % self->size ? (float)i : -1.0f;
        CHECK_OK(self->comm, shunt_broadcast(self->comm, one, count, SHUNT_F32,
                                             round % self->size));
        for (size_t i = 0; i < count; i++)
            CHECK(one[i] == (float)i, "broadcast: element %zu", i);
    }
    if (stats_of(self, &after))
        return 1;
    CHECK(after.bytes_zcopy > before.bytes_zcopy, "nothing went by zero copy");
    free(one);
    free(all);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "straight", .run = straight},
    {.name = "registered", .run = registered},
    {.name = "several", .run = several},
    {.name = "sizes_disagree", .run = sizes_disagree},
    {.name = "others", .run = others},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
