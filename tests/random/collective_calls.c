// SPDX-License-Identifier: Apache-2.0
/*
 * Collectives of a random program, and their right results by the definition in
 * coll.h.
 */

#include <string.h>

#include "tests/collectives/table.h"
#include "tests/random/world.h"

static const enum shunt_dtype reducible[] = {
    SHUNT_I8,  SHUNT_U8,  SHUNT_I32,  SHUNT_U32, SHUNT_I64,
    SHUNT_U64, SHUNT_F16, SHUNT_BF16, SHUNT_F32, SHUNT_F64,
};

/* Byte i of the block that `from` sends to `to`. */
static unsigned char moved_byte(uint64_t seed, int from, int to, size_t i)
{
    return (unsigned char)(hash(seed, (uint64_t)(from * 64 + to), i / 8) >>
                           8 * (i % 8));
}

static void fill_moved(unsigned char *at, size_t bytes, uint64_t seed, int from,
                       int to)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = moved_byte(seed, from, to, i);
}

static int small_int(uint64_t seed, int rank, size_t i, bool is_signed)
{
    int v = (int)(hash(seed, (uint64_t)rank, i) % 7);

    return is_signed ? v - 3 : v;
}

static bool is_signed(enum shunt_dtype t)
{
    return t != SHUNT_U8 && t != SHUNT_U32 && t != SHUNT_U64;
}

static void put_input(unsigned char *at, size_t i, enum shunt_dtype t,
                      uint64_t seed, int rank, size_t element)
{
    int v = small_int(seed, rank, element, is_signed(t));

    put_number(at, i, t, v, v);
}

/* Writes the reduction of element `element` over all ranks, as element i of
 * `at`. */
static void put_reduced(unsigned char *at, size_t i, enum shunt_dtype t,
                        enum shunt_op op, uint64_t seed, int nranks,
                        size_t element)
{
    int64_t r = small_int(seed, 0, element, is_signed(t));
    double real;

    for (int k = 1; k < nranks; k++) {
        int64_t v = small_int(seed, k, element, is_signed(t));

        if (op == SHUNT_SUM || op == SHUNT_AVG)
            r += v;
        else if (op == SHUNT_PROD)
            r *= v;
        else if (op == SHUNT_MIN)
            r = v < r ? v : r;
        else
            r = v > r ? v : r;
    }
    real = (double)r;
    if (op == SHUNT_AVG) {
        real = t == SHUNT_F64 ? real / nranks : (float)r / (float)nranks;
        r /= nranks;
    }
    /* A product of 0 and a negative number is -0 in types that have -0. */
    if (op == SHUNT_PROD && r == 0 && t >= SHUNT_F16) {
        bool negative = false;

        for (int k = 0; k < nranks; k++)
            negative ^= small_int(seed, k, element, true) < 0;
        real = negative ? -0.0 : 0.0;
    }
    put_number(at, i, t, real, r);
}

static size_t some_count(struct chance *c, size_t most)
{
    static const size_t tops[] = {1, 8, 64, 600, 5000, 40000};
    size_t top = tops[below(c, 6)];

    return (size_t)below(c, (int)(top < most ? top : most) + 1);
}

/* Lays out blocks of these counts: packed, in which case displs is not used, or
 * with gaps and in an order of this rank's own. Returns the number of elements,
 * gaps included. */
static size_t lay_out(struct world *w, int n, const size_t *counts,
                      size_t *displs, bool packed)
{
    int order[MAX_RANKS];
    size_t at = 0;

    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0 && !packed; i--) {
        int j = below(&w->local, i + 1), was = order[i];

        order[i] = order[j];
        order[j] = was;
    }
    for (int i = 0; i < n; i++) {
        if (!packed)
            at += (size_t)below(&w->local, 4);
        displs[order[i]] = at;
        at += counts[order[i]];
    }
    return at;
}

/* The number of elements that `from` sends to `to`. */
static size_t pair_count(uint64_t seed, int from, int to, bool symmetric)
{
    struct chance c;

    if (symmetric && from > to) {
        int was = from;

        from = to;
        to = was;
    }
    c.state = hash(seed, 77, (uint64_t)(from * MAX_RANKS + to));
    return one_in(&c, 4) ? 0 : some_count(&c, 12000);
}

/* A collective, and the layout of its blocks on this rank. */
struct drawn {
    const struct collective *kind;
    uint64_t seed; /* seed of the data */
    enum shunt_dtype dtype;
    enum shunt_op op;
    int root;
    bool rooted, in_place, packed;
    size_t size; /* bytes of an element */
    size_t send_counts[MAX_RANKS], send_displs[MAX_RANKS];
    size_t recv_counts[MAX_RANKS], recv_displs[MAX_RANKS];
    size_t send, recv; /* elements of the buffers */
};

static void draw_counts(struct drawn *d, const struct group *g,
                        struct chance *c)
{
    const struct collective *k = d->kind;
    const bool both = k->to_each && k->from_each;
    const size_t one =
        some_count(c, k->to_each || k->from_each ? 12000 : 40000);

    for (int r = 0; r < g->size && k != &collectives[BARRIER]; r++) {
        d->send_counts[r] = d->recv_counts[r] = one;
        if (!k->varies)
            continue;
        d->send_counts[r] = pair_count(d->seed, k->from_each ? g->rank : 0,
                                       k->to_each ? r : 0, both && d->in_place);
        d->recv_counts[r] =
            pair_count(d->seed, k->from_each ? r : 0, k->to_each ? g->rank : 0,
                       both && d->in_place);
    }
}

static struct drawn draw_collective(struct world *w, const struct group *g,
                                    const struct event *e)
{
    struct chance c = {e->seed};
    struct drawn d = {.kind = &collectives[e->kind], .seed = e->seed};
    const struct collective *k = d.kind;

    d.rooted = e->kind == BROADCAST;
    d.dtype = reducible[below(&c, 10)];
    d.size = shunt_dtype_size(d.dtype);
    d.op = (enum shunt_op)(SHUNT_SUM + below(&c, 5));
    d.root = below(&c, g->size);
    d.in_place = one_in(&c, 3);
    d.packed = !k->varies || !k->from_each || one_in(&w->local, 2);
    draw_counts(&d, g, &c);
    d.send = k->to_each
                 ? lay_out(w, g->size, d.send_counts, d.send_displs, d.packed)
                 : d.send_counts[0];
    d.recv = k->from_each
                 ? lay_out(w, g->size, d.recv_counts, d.recv_displs, d.packed)
                 : d.recv_counts[0];
    if (d.in_place && k->from_each)
        memcpy(d.send_displs, d.recv_displs, sizeof(d.recv_displs));
    else if (d.in_place)
        d.recv = d.send;
    return d;
}

static void put_inputs(const struct drawn *d, const struct group *g,
                       unsigned char *at)
{
    if (d->rooted && g->rank != d->root)
        return;
    for (size_t i = 0; i < d->send && d->kind->reduces; i++)
        put_input(at, i, d->dtype, d->seed, g->rank, i);
    for (int r = 0; r < g->size && !d->kind->reduces; r++)
        if (d->kind->to_each || r == g->rank)
            fill_moved(at + d->send_displs[r] * d->size,
                       d->send_counts[r] * d->size, d->seed, g->rank,
                       d->kind->to_each ? r : 0);
}

static void put_results(const struct drawn *d, const struct group *g,
                        unsigned char *want)
{
    const struct collective *k = d->kind;

    for (size_t i = 0; i < d->recv_counts[0] && k->reduces; i++)
        put_reduced(want, i, d->dtype, d->op, d->seed, g->size,
                    d->send_displs[g->rank] + i);
    for (int r = 0; r < g->size && !k->reduces; r++)
        if (k->from_each || r == d->root)
            fill_moved(want + d->recv_displs[r] * d->size,
                       d->recv_counts[r] * d->size, d->seed, r,
                       k->to_each ? g->rank : 0);
}

int do_collective(struct world *w, struct group *g, const struct event *e)
{
    const struct drawn d = draw_collective(w, g, e);
    struct op *op =
        new_op(w, g, "%s of %zu, dtype %d, op %d, root %d%s%s", d.kind->name,
               d.send_counts[0], (int)d.dtype, (int)d.op, d.root,
               d.packed ? "" : ", with gaps", d.in_place ? ", in place" : "");
    struct buffer *recv = take_any(w, op, d.recv * d.size, 1), *input = recv;
    const bool own_input = !d.in_place && !d.rooted;
    const size_t result =
        (d.kind->reduces ? d.recv_counts[0] : d.recv) * d.size;
    unsigned char *want = expects(recv, result);

    memset(want, 0xa5, result);
    put_results(&d, g, want);
    if (own_input)
        input = take_any(w, op, d.send * d.size, 1);
    put_inputs(&d, g, input->at);
    if (own_input)
        keeps(input);
    const struct collective_call call = {
        .comm = g->comm,
        .send = own_input ? input->at : SHUNT_IN_PLACE,
        .recv = recv->at,
        .count = d.send_counts[0],
        .send_counts = d.send_counts,
        .send_displs = d.packed ? NULL : d.send_displs,
        .recv_counts = d.recv_counts,
        .recv_displs = d.packed ? NULL : d.recv_displs,
        .dtype = d.dtype,
        .op = d.op,
        .root = d.root,
    };
    return begun(w, op, d.kind->call(&call, e->start ? &op->request : NULL));
}
