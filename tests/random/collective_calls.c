// SPDX-License-Identifier: Apache-2.0
/*
 * Collectives of a random program, and their right results by the definition in
 * coll.h.
 */

#include <string.h>

#include "tests/random/world.h"

static const enum shunt_dtype reducible[] = {
    SHUNT_I8,  SHUNT_U8,  SHUNT_I32,  SHUNT_U32, SHUNT_I64,
    SHUNT_U64, SHUNT_F16, SHUNT_BF16, SHUNT_F32, SHUNT_F64,
};

/* Byte i of the block that `from` has for `to`. */
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

/* The reduction of element `element` over the ranks. */
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
    /* A product of 0 and a negative number is -0, where there is such a thing. */
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

static int do_barrier(struct world *w, struct group *g, const struct event *e)
{
    struct op *op = new_op(w, g, "barrier");

    return begun(w, op,
                 e->start ? shunt_barrier_start(g->comm, &op->request)
                          : shunt_barrier(g->comm));
}

static int do_broadcast(struct world *w, struct group *g, const struct event *e,
                        struct chance *c)
{
    const enum shunt_dtype t = reducible[below(c, 10)];
    const size_t count = some_count(c, 40000), size = shunt_dtype_size(t);
    const int root = below(c, g->size);
    struct op *op =
        new_op(w, g, "broadcast of %zu x %zu from %d", count, size, root);
    struct buffer *b = take_any(w, op, count * size, 1);

    if (g->rank == root)
        fill_moved(b->at, b->bytes, e->seed, root, 0);
    fill_moved(expects(b, b->bytes), b->bytes, e->seed, root, 0);
    return begun(w, op,
                 e->start ? shunt_broadcast_start(g->comm, b->at, count, t,
                                                  root, &op->request)
                          : shunt_broadcast(g->comm, b->at, count, t, root));
}

static int do_allgather(struct world *w, struct group *g, const struct event *e,
                        struct chance *c)
{
    const enum shunt_dtype t = reducible[below(c, 10)];
    const size_t count = some_count(c, 12000), size = shunt_dtype_size(t);
    const size_t block = count * size;
    const bool in_place = one_in(c, 3);
    struct op *op = new_op(w, g, "allgather of %zu x %zu%s", count, size,
                           in_place ? " in place" : "");
    struct buffer *recv = take_any(w, op, block * (size_t)g->size, 1);
    const void *send = SHUNT_IN_PLACE;
    unsigned char *want = expects(recv, recv->bytes);

    for (int r = 0; r < g->size; r++)
        fill_moved(want + (size_t)r * block, block, e->seed, r, 0);
    if (in_place) {
        fill_moved(recv->at + (size_t)g->rank * block, block, e->seed, g->rank,
                   0);
    } else {
        struct buffer *b = take_any(w, op, block, 1);

        fill_moved(b->at, block, e->seed, g->rank, 0);
        keeps(b);
        send = b->at;
    }
    return begun(w, op,
                 e->start ? shunt_allgather_start(g->comm, send, recv->at,
                                                  count, t, &op->request)
                          : shunt_allgather(g->comm, send, recv->at, count, t));
}

/* Where blocks of these counts lie: packed (displs not used), or with gaps, in
 * an order of this rank's own. Returns the elements of all of it. */
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

static int do_allgatherv(struct world *w, struct group *g,
                         const struct event *e, struct chance *c)
{
    const enum shunt_dtype t = reducible[below(c, 10)];
    const size_t size = shunt_dtype_size(t);
    const bool in_place = one_in(c, 3), packed = one_in(&w->local, 2);
    size_t counts[MAX_RANKS], displs[MAX_RANKS], all;
    struct op *op = new_op(w, g, "allgatherv of elements of %zu%s", size,
                           in_place ? " in place" : "");
    const void *send = SHUNT_IN_PLACE;
    struct buffer *recv;
    unsigned char *want;

    for (int r = 0; r < g->size; r++)
        counts[r] = one_in(c, 4) ? 0 : some_count(c, 12000);
    all = lay_out(w, g->size, counts, displs, packed);
    recv = take_any(w, op, all * size, 1);
    want = expects(recv, recv->bytes);
    memset(want, 0xa5, recv->bytes);
    for (int r = 0; r < g->size; r++)
        fill_moved(want + displs[r] * size, counts[r] * size, e->seed, r, 0);
    if (in_place) {
        fill_moved(recv->at + displs[g->rank] * size, counts[g->rank] * size,
                   e->seed, g->rank, 0);
    } else {
        struct buffer *b = take_any(w, op, counts[g->rank] * size, 1);

        fill_moved(b->at, b->bytes, e->seed, g->rank, 0);
        keeps(b);
        send = b->at;
    }
    return begun(w, op,
                 e->start ? shunt_allgatherv_start(
                                g->comm, send, counts[g->rank], recv->at,
                                counts, packed ? NULL : displs, t, &op->request)
                          : shunt_allgatherv(g->comm, send, counts[g->rank],
                                             recv->at, counts,
                                             packed ? NULL : displs, t));
}

static int do_reduce_scatter(struct world *w, struct group *g,
                             const struct event *e, struct chance *c, bool v)
{
    const enum shunt_dtype t = reducible[below(c, 10)];
    const enum shunt_op what = (enum shunt_op)(SHUNT_SUM + below(c, 5));
    const size_t size = shunt_dtype_size(t);
    const bool in_place = one_in(c, 3);
    size_t counts[MAX_RANKS], all = 0, first = 0, mine;
    struct op *op =
        new_op(w, g, "reduce_scatter%s, dtype %d, op %d%s", v ? "v" : "",
               (int)t, (int)what, in_place ? " in place" : "");
    const void *send = SHUNT_IN_PLACE;
    struct buffer *recv, *input;
    unsigned char *want;
    enum shunt_status st;

    counts[0] = some_count(c, 12000);
    for (int r = 0; r < g->size; r++) {
        counts[r] = !v ? counts[0] : one_in(c, 4) ? 0 : some_count(c, 12000);
        first = r == g->rank ? all : first;
        all += counts[r];
    }
    mine = counts[g->rank];
    recv = take_any(w, op, (in_place ? all : mine) * size, 1);
    input = recv;
    if (!in_place) {
        input = take_any(w, op, all * size, 1);
        send = input->at;
    }
    for (size_t i = 0; i < all; i++)
        put_input(input->at, i, t, e->seed, g->rank, i);
    if (!in_place)
        keeps(input);
    want = expects(recv, mine * size);
    for (size_t i = 0; i < mine; i++)
        put_reduced(want, i, t, what, e->seed, g->size, first + i);
    if (v)
        st = e->start
                 ? shunt_reduce_scatterv_start(g->comm, send, recv->at, counts,
                                               t, what, &op->request)
                 : shunt_reduce_scatterv(g->comm, send, recv->at, counts, t,
                                         what);
    else
        st = e->start
                 ? shunt_reduce_scatter_start(g->comm, send, recv->at,
                                              counts[0], t, what, &op->request)
                 : shunt_reduce_scatter(g->comm, send, recv->at, counts[0], t,
                                        what);
    return begun(w, op, st);
}

static int do_allreduce(struct world *w, struct group *g, const struct event *e,
                        struct chance *c)
{
    const enum shunt_dtype t = reducible[below(c, 10)];
    const enum shunt_op what = (enum shunt_op)(SHUNT_SUM + below(c, 5));
    const size_t size = shunt_dtype_size(t), count = some_count(c, 40000);
    const bool in_place = one_in(c, 3);
    struct op *op = new_op(w, g, "allreduce of %zu, dtype %d, op %d%s", count,
                           (int)t, (int)what, in_place ? " in place" : "");
    struct buffer *recv = take_any(w, op, count * size, 1), *input = recv;
    const void *send = SHUNT_IN_PLACE;
    unsigned char *want = expects(recv, recv->bytes);

    if (!in_place) {
        input = take_any(w, op, count * size, 1);
        send = input->at;
    }
    for (size_t i = 0; i < count; i++) {
        put_input(input->at, i, t, e->seed, g->rank, i);
        put_reduced(want, i, t, what, e->seed, g->size, i);
    }
    if (!in_place)
        keeps(input);
    return begun(
        w, op,
        e->start ? shunt_allreduce_start(g->comm, send, recv->at, count, t,
                                         what, &op->request)
                 : shunt_allreduce(g->comm, send, recv->at, count, t, what));
}

static int do_alltoall(struct world *w, struct group *g, const struct event *e,
                       struct chance *c)
{
    const enum shunt_dtype t = reducible[below(c, 10)];
    const size_t size = shunt_dtype_size(t), count = some_count(c, 12000);
    const size_t block = count * size, all = block * (size_t)g->size;
    const bool in_place = one_in(c, 3);
    struct op *op = new_op(w, g, "alltoall of %zu x %zu%s", count, size,
                           in_place ? " in place" : "");
    struct buffer *recv = take_any(w, op, all, 1), *input = recv;
    const void *send = SHUNT_IN_PLACE;
    unsigned char *want = expects(recv, all);

    if (!in_place) {
        input = take_any(w, op, all, 1);
        send = input->at;
    }
    for (int r = 0; r < g->size; r++) {
        fill_moved(input->at + (size_t)r * block, block, e->seed, g->rank, r);
        fill_moved(want + (size_t)r * block, block, e->seed, r, g->rank);
    }
    if (!in_place)
        keeps(input);
    return begun(w, op,
                 e->start ? shunt_alltoall_start(g->comm, send, recv->at, count,
                                                 t, &op->request)
                          : shunt_alltoall(g->comm, send, recv->at, count, t));
}

/* Elements that `from` has for `to`. */
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

static int do_alltoallv(struct world *w, struct group *g, const struct event *e,
                        struct chance *c)
{
    const enum shunt_dtype t = reducible[below(c, 10)];
    const size_t size = shunt_dtype_size(t);
    const bool in_place = one_in(c, 4), packed = one_in(&w->local, 2);
    size_t sc[MAX_RANKS], sd[MAX_RANKS], rc[MAX_RANKS], rd[MAX_RANKS];
    struct op *op = new_op(w, g, "alltoallv of elements of %zu%s", size,
                           in_place ? " in place" : "");
    const void *send = SHUNT_IN_PLACE;
    struct buffer *recv, *input;
    unsigned char *want;

    for (int r = 0; r < g->size; r++) {
        sc[r] = pair_count(e->seed, g->rank, r, in_place);
        rc[r] = pair_count(e->seed, r, g->rank, in_place);
    }
    recv = take_any(w, op, lay_out(w, g->size, rc, rd, packed) * size, 1);
    want = expects(recv, recv->bytes);
    memset(want, 0xa5, recv->bytes);
    input = recv;
    if (in_place) {
        memcpy(sd, rd, sizeof(rd));
    } else {
        input = take_any(w, op, lay_out(w, g->size, sc, sd, packed) * size, 1);
        send = input->at;
    }
    for (int r = 0; r < g->size; r++) {
        fill_moved(input->at + sd[r] * size, sc[r] * size, e->seed, g->rank, r);
        fill_moved(want + rd[r] * size, rc[r] * size, e->seed, r, g->rank);
    }
    if (!in_place)
        keeps(input);
    return begun(
        w, op,
        e->start ? shunt_alltoallv_start(g->comm, send, sc, packed ? NULL : sd,
                                         recv->at, rc, packed ? NULL : rd, t,
                                         &op->request)
                 : shunt_alltoallv(g->comm, send, sc, packed ? NULL : sd,
                                   recv->at, rc, packed ? NULL : rd, t));
}

int do_collective(struct world *w, struct group *g, const struct event *e)
{
    struct chance c = {e->seed};

    switch (e->kind) {
    case BARRIER:
        return do_barrier(w, g, e);
    case BROADCAST:
        return do_broadcast(w, g, e, &c);
    case ALLGATHER:
        return do_allgather(w, g, e, &c);
    case ALLGATHERV:
        return do_allgatherv(w, g, e, &c);
    case REDUCE_SCATTER:
    case REDUCE_SCATTERV:
        return do_reduce_scatter(w, g, e, &c, e->kind == REDUCE_SCATTERV);
    case ALLREDUCE:
        return do_allreduce(w, g, e, &c);
    case ALLTOALL:
        return do_alltoall(w, g, e, &c);
    default:
        return do_alltoallv(w, g, e, &c);
    }
}
