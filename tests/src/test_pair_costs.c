// SPDX-License-Identifier: Apache-2.0
/*
 * The protocol that a pair of ranks chooses, given the costs of its copies
 * (src/wire/pair_costs.h). Two ranks are in one process, without a transport,
 * and the costs are invented.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "src/comm.h"
#include "src/comm/init.h"

enum { CHUNK = 65536, BLOCK = 4 * CHUNK };

struct pair {
    struct shunt_comm comm[2];
    struct shunti_peer peers[2][2];
    /* ns that both ends together spend on 64 KiB: into the ring, out of it, and
     * by a read */
    uint64_t into, out, read;
    uint64_t blocks, were_read;
};

static struct pair *make(size_t read_min)
{
    struct pair *p = calloc(1, sizeof(*p));
    struct shunti_tunables tune = {
        .eager = 512, .chunk = CHUNK, .chunks = 2, .read_min = read_min};

    cr_assert(p);
    for (int r = 0; r < 2; r++) {
        struct shunt_comm *comm = &p->comm[r];

        comm->rank = r;
        comm->nranks = 2;
        comm->tune = tune;
        comm->peers = p->peers[r];
        shunti_layout_compute(&comm->control.layout, 2, true, &tune);
        comm->control.base = calloc(1, comm->control.layout.bytes);
        cr_assert(comm->control.base);
    }
    for (int r = 0; r < 2; r++) {
        p->peers[r][!r].control = p->comm[!r].control.base;
        p->peers[r][!r].caps = SHUNT_TRANSPORT_GET;
    }
    return p;
}

static void drop(struct pair *p)
{
    free(p->comm[0].control.base);
    free(p->comm[1].control.base);
    free(p);
}

/* Sends a block from one rank to the other, as stream.c and payload_source.c
 * do. Returns true if the block was read. */
static bool send_from(struct pair *p, int from, size_t bytes)
{
    const int to = !from;
    const bool read = shunti_pair_costs_read(&p->comm[from], to, bytes);

    for (size_t at = 0; at < bytes && !read; at += CHUNK) {
        if (shunti_pair_costs_time_into(&p->comm[from], to))
            shunti_pair_costs_into(&p->comm[from], to, CHUNK, p->into);
        if (shunti_pair_costs_time_out(&p->comm[to], from))
            shunti_pair_costs_out(&p->comm[to], from, CHUNK, p->out);
    }
    if (read)
        shunti_pair_costs_was_read(&p->comm[to], from, bytes, bytes,
                                   p->read * bytes / CHUNK);
    shunti_pair_costs_received(&p->comm[to], from, bytes, read);
    p->blocks++;
    p->were_read += read;
    return read;
}

static void send(struct pair *p, size_t bytes)
{
    send_from(p, 0, bytes);
}

/* Returns the percentage of blocks that were read. */
static unsigned share_read(struct pair *p, unsigned blocks, size_t bytes)
{
    p->blocks = p->were_read = 0;
    for (unsigned i = 0; i < blocks; i++)
        send(p, bytes);
    return (unsigned)(100 * p->were_read / p->blocks);
}

static void cost(struct pair *p, uint64_t into, uint64_t out, uint64_t read)
{
    p->into = into;
    p->out = out;
    p->read = read;
}

Test(ways, the_cheaper_one_is_taken)
{
    struct pair *p = make(SIZE_MAX);

    cost(p, 2000, 2000, 6000);
    send(p, BLOCK);
    cr_assert_eq(p->were_read, 0, "it begins with the ring");
    cr_assert_leq(share_read(p, 10000, BLOCK), 1);
    drop(p);

    p = make(SIZE_MAX);
    cost(p, 10000, 6000, 6000);
    cr_assert_geq(share_read(p, 10000, BLOCK), 99);
    drop(p);
}

Test(ways, both_ends_count)
{
    struct pair *p = make(SIZE_MAX);

    /* Only the sender's copies into the ring are expensive. */
    cost(p, 10000, 2000, 6000);
    cr_assert_geq(share_read(p, 10000, BLOCK), 99);
    drop(p);
}

/* A virtual processor may be moved at any time, which changes the costs. */
Test(ways, a_pair_that_moves_is_noticed)
{
    struct pair *p = make(SIZE_MAX);

    for (int turn = 0; turn < 4; turn++) {
        cost(p, 2000, 2000, 6000);
        share_read(p, 1100, BLOCK);
        cr_assert_leq(share_read(p, 5000, BLOCK), 1, "turn %d", turn);
        cost(p, 10000, 6000, 6000);
        share_read(p, 60, BLOCK);
        cr_assert_geq(share_read(p, 5000, BLOCK), 99, "turn %d", turn);
    }
    drop(p);
}

/* Both directions must use the same protocol. While one rank is in a read by
 * the kernel, the other rank's ring would stand still. */
Test(ways, both_directions_go_the_same_way)
{
    struct pair *p = make(SIZE_MAX);
    unsigned apart = 0, read = 0;

    for (int i = 0; i < 20000; i++) {
        bool out, in;

        /* Reading is a little cheaper in one direction. In the other it is
         * cheaper at first, and not later. */
        cost(p, 3000, 3000, 5000);
        out = send_from(p, 0, BLOCK);
        cost(p, 3000, 3000, i < 10000 ? 5000 : 6500);
        in = send_from(p, 1, BLOCK);
        apart += out != in;
        read += i >= 2000 && i < 10000 && in;
    }
    cr_assert_leq(apart, 200, "%u of 20000 went apart", apart);
    cr_assert_geq(read, 7900);
    /* Now blocks go in one direction only, and its ring is expensive. The
     * sender's costs of the other direction are old. */
    cost(p, 10000, 6000, 6000);
    share_read(p, 200, BLOCK);
    cr_assert_geq(share_read(p, 2000, BLOCK), 99);
    drop(p);
}

/* Each class of sizes has its own costs, because the kernel's call costs the
 * same for all sizes. */
Test(ways, sizes_are_apart)
{
    struct pair *p = make(SIZE_MAX);

    cost(p, 3000, 3000, 9000);
    cr_assert_leq(share_read(p, 2000, CHUNK), 1);
    p->read = 3000;
    cr_assert_geq(share_read(p, 2000, 16 * CHUNK), 99);
    p->read = 9000;
    cr_assert_leq(share_read(p, 500, CHUNK), 2);
    drop(p);
}

/* One of 50 timings is of a rank that was not running. */
Test(ways, interruptions_change_nothing)
{
    struct pair *p = make(SIZE_MAX);
    unsigned read = 0;

    cost(p, 2000, 2000, 6000);
    share_read(p, 200, BLOCK);
    for (int i = 0; i < 200; i++) {
        cost(p, 2000, 2000, 6000);
        read += share_read(p, 49, BLOCK);
        cost(p, 2000000, 2000000, 6000000);
        send(p, BLOCK);
    }
    cr_assert_leq(read / 200, 3, "%u of 100 were read", read / 200);
    drop(p);
}

Test(ways, what_the_user_says_holds)
{
    struct pair *p = make(1 << 20);

    cost(p, 10000, 6000, 1000);
    cr_assert_eq(share_read(p, 100, BLOCK), 0);
    drop(p);
}

Test(ways, nothing_is_learnt_where_nothing_can_be_read)
{
    struct pair *p = make(SIZE_MAX);

    p->peers[0][1].caps = p->peers[1][0].caps = 0;
    cost(p, 10000, 6000, 1000);
    cr_assert_eq(share_read(p, 100, BLOCK), 0);
    drop(p);
}
