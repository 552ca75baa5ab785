// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of the tests of collectives. This file has random calls of every
 * kind, and compares them with the definition. Other cases are in cases_NAME.c.
 *
 *     rank_collectives random [KIND|all [SEED [ROUNDS]]]
 *     rank_collectives in_flight [SEED [ROUNDS]]
 *     rank_collectives CASE
 *
 * All ranks draw a call from the same random numbers. So each knows the input
 * of all ranks, and computes the right result by itself. Each rank draws the
 * place of its buffers (malloc() or a window, and the alignment) from numbers
 * of its own.
 */

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

#include "tests/collectives/cases.h"
#include "tests/collectives/random.h"
#include "tests/collectives/reduce_ref.h"
#include "tests/collectives/table.h"

enum { GUARD = 64 };

/* --- memory ------------------------------------------------------------------
 */

/* A window from which pieces are allocated. */
struct pool {
    unsigned char *window;
    size_t bytes, used;
};

/* A buffer with guards around it. */
struct box {
    unsigned char *data;
    size_t bytes;
    unsigned char *owned; /* allocated by malloc, or NULL */
    size_t before, after; /* guard bytes */
};

static void box_make(struct box *box, struct random *local, struct pool *pool,
                     size_t bytes)
{
    size_t all = bytes + 3 * GUARD;
    unsigned char *base;

    box->owned = NULL;
    if (random_below(local, 2) && pool->bytes - pool->used >= all) {
        base = pool->window + pool->used;
        pool->used += all;
    } else {
        base = box->owned = malloc(all);
        if (!base)
            abort();
    }
    box->bytes = bytes;
    box->before = GUARD + random_below(local, GUARD);
    box->after = all - box->before - bytes;
    box->data = base + box->before;
    memset(base, POISON, all);
}

/* The number of bytes at the beginning of `data` that are equal to those of
 * `want`. Blocks are compared by memcmp(), whose range a sanitizer checks once
 * and not for each byte. */
static size_t alike(const unsigned char *data, const unsigned char *want,
                    size_t bytes)
{
    size_t at = 0;

    if (memcmp(data, want, bytes) == 0)
        return bytes;
    while (data[at] == want[at])
        at++;
    return at;
}

size_t filled_with(const unsigned char *data, int value, size_t bytes)
{
    size_t at = 0;

    if (bytes && data[0] == value && memcmp(data, data + 1, bytes - 1) == 0)
        return bytes;
    while (at < bytes && data[at] == value)
        at++;
    return at;
}

static int guard_check(const unsigned char *guard, size_t bytes,
                       const char *name, const char *where)
{
    size_t at = filled_with(guard, POISON, bytes);

    CHECK(at == bytes, "%s: written %s, in byte %zu of %zu of the guard", name,
          where, at, bytes);
    return 0;
}

static int box_check(const struct box *box, const char *name)
{
    CHECK_RUN(
        guard_check(box->data - box->before, box->before, name, "before it"));
    return guard_check(box->data + box->bytes, box->after, name, "behind it");
}

/* --- one call ----------------------------------------------------------------
 */

struct call {
    const struct collective *kind;
    enum shunt_dtype dtype;
    enum shunt_op op;
    int root;
    bool in_place;
    uint64_t seed;                       /* of the data */
    size_t counts[MAX_RANKS][MAX_RANKS]; /* [from][to] elements */
    size_t displs[2][MAX_RANKS];         /* of send and of recv, on this rank */
    bool with_displs;
    struct box send, recv;
    unsigned char *want; /* expected content of recv */
    struct shunt_request *request;
    int node[MAX_RANKS]; /* node of each rank */
};

static size_t draw_count(struct random *r, size_t most)
{
    switch (random_below(r, 6)) {
    case 0:
        return 0;
    case 1:
        return random_below(r, 12);
    case 2:
        return random_below(r, 700);
    case 3:
        return 8192 / 4 - 8 + random_below(r, 16); /* around the inline limit */
    default:
        return random_below(r, most + 1);
    }
}

/* Fill `dst` with the block that rank `from` sends to rank `to`. */
static void block_fill(const struct call *c, int from, int to, void *dst)
{
    struct random r = {c->seed * 1000003 + (uint64_t)from * 1009 +
                       (uint64_t)to};

    random_elements(&r, dst, c->counts[from][to], c->dtype);
}

/* The number of elements that `from` sends to `to`. */
static size_t count_of(const struct call *c, struct random *r, int from, int to,
                       size_t one, const size_t *by_rank, size_t most)
{
    if (c->kind == &collectives[BARRIER])
        return 0;
    if (c->kind == &collectives[BROADCAST])
        return from == c->root ? one : 0;
    if (!c->kind->varies)
        return one;
    if (!c->kind->to_each || !c->kind->from_each)
        return by_rank[c->kind->to_each ? to : from];
    return c->in_place && to < from ? c->counts[to][from]
                                    : draw_count(r, most / 2);
}

static void draw_counts(struct call *c, struct random *r, int n)
{
    size_t most = random_below(r, 8) ? 3000 : 60000;
    size_t one = draw_count(r, most), by_rank[MAX_RANKS];

    for (int i = 0; i < n; i++)
        by_rank[i] = draw_count(r, most / 2);
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            c->counts[from][to] = count_of(c, r, from, to, one, by_rank, most);
}

static void draw(struct call *c, struct random *r,
                 const struct shunt_comm *comm, int kind)
{
    int n = shunt_comm_size(comm);

    memset(c, 0, sizeof(*c));
    for (int i = 0; i < n; i++)
        c->node[i] = shunt_comm_node(comm, i);
    if (kind == COLLECTIVES)
        kind = (int)random_below(r, COLLECTIVES);
    c->kind = &collectives[kind];
    c->dtype = (enum shunt_dtype)(
        1 + random_below(r, c->kind->reduces ? SHUNT_F64 : SHUNT_FP8_E4M3));
    c->op = (enum shunt_op)(1 + random_below(r, SHUNT_PROD));
    c->root = (int)random_below(r, (uint64_t)n);
    c->in_place = random_below(r, 3) == 0;
    c->seed = random_next(r);
    draw_counts(c, r, n);
}

/* --- layout ------------------------------------------------------------------
 */

/* Draw displacements with gaps, not in rank order. Returns the end. */
static size_t scatter_displs(struct random *r, const size_t *counts, int n,
                             size_t *displs)
{
    int order[MAX_RANKS];
    size_t at = random_below(r, 20);

    for (int i = 0; i < n; i++) {
        int j = (int)random_below(r, (uint64_t)i + 1);

        order[i] = order[j];
        order[j] = i;
    }
    for (int i = 0; i < n; i++) {
        displs[order[i]] = at;
        at += counts[order[i]] + random_below(r, 20);
    }
    return at;
}

static size_t pack_displs(const size_t *counts, int n, size_t *displs)
{
    size_t at = 0;

    for (int i = 0; i < n; i++) {
        displs[i] = at;
        at += counts[i];
    }
    return at;
}

/* Counts and displacements of the blocks in send and in recv, on this rank. */
struct layout {
    size_t send_counts[MAX_RANKS], recv_counts[MAX_RANKS];
    /* As given to the call. An empty block has an invalid displacement. */
    size_t send_displs[MAX_RANKS], recv_displs[MAX_RANKS];
};

static struct layout layout_of(const struct call *c, int rank, int n)
{
    struct layout l = {{0}, {0}, {0}, {0}};

    for (int i = 0; i < n; i++) {
        l.send_counts[i] = c->counts[rank][i];
        l.recv_counts[i] = c->counts[i][rank];
        l.send_displs[i] = l.send_counts[i] ? c->displs[0][i] : SIZE_MAX - 4711;
        l.recv_displs[i] = l.recv_counts[i] ? c->displs[1][i] : SIZE_MAX - 42;
    }
    return l;
}

/* Lay out the blocks of `counts`. Returns the end. */
static size_t lay_out(const struct call *c, struct random *local,
                      const size_t *counts, int n, size_t *displs)
{
    return c->with_displs ? scatter_displs(local, counts, n, displs)
                          : pack_displs(counts, n, displs);
}

static void place(struct call *c, struct random *local, struct pool *pool,
                  int rank, int n)
{
    const struct collective *k = c->kind;
    struct layout l = layout_of(c, rank, n);
    size_t size = shunt_dtype_size(c->dtype), send, recv;

    c->with_displs = k->varies && k->from_each && random_below(local, 2);
    send = k->to_each ? lay_out(c, local, l.send_counts, n, c->displs[0])
                      : l.send_counts[0];
    recv = k->from_each ? lay_out(c, local, l.recv_counts, n, c->displs[1])
                        : l.recv_counts[c->root];
    if (k == &collectives[BROADCAST])
        send = 0;
    else if (c->in_place && k->to_each && !k->from_each)
        recv = send;
    box_make(&c->send, local, pool, send * size);
    box_make(&c->recv, local, pool, recv * size);
}

static void put_input(struct call *c, int rank, int n)
{
    const struct collective *k = c->kind;
    const bool in_recv = c->in_place || k == &collectives[BROADCAST];
    const size_t size = shunt_dtype_size(c->dtype);
    const size_t *displs = c->displs[c->in_place && k->from_each];
    unsigned char *in = in_recv ? c->recv.data : c->send.data;

    if (!k->to_each)
        block_fill(c, rank, 0, in + displs[rank] * size);
    for (int to = 0; to < n && k->to_each; to++)
        block_fill(c, rank, to, in + displs[to] * size);
}

/* Compute the reduction of all ranks' blocks for `to`. */
static void reduce_blocks(const struct call *c, int to, int n, void *dst)
{
    size_t count = c->counts[0][to];
    size_t bytes = count * shunt_dtype_size(c->dtype);
    const void *srcs[MAX_RANKS];
    unsigned char *all = malloc((size_t)n * bytes + 1);

    for (int i = 0; i < n; i++) {
        srcs[i] = all + (size_t)i * bytes;
        block_fill(c, i, to, all + (size_t)i * bytes);
    }
    reduce_ref_tree(dst, srcs, c->node, n, count, c->dtype, c->op);
    free(all);
}

/* Compute the content of recv after the call from its content before. */
static void expect(struct call *c, int rank, int n)
{
    const size_t size = shunt_dtype_size(c->dtype);
    const int to = c->kind->to_each ? rank : 0;

    c->want = malloc(c->recv.bytes + 1);
    memcpy(c->want, c->recv.data, c->recv.bytes);
    if (c->kind->reduces)
        reduce_blocks(c, to, n, c->want);
    else if (!c->kind->from_each)
        block_fill(c, c->root, 0, c->want);
    for (int i = 0; i < n && c->kind->from_each; i++)
        block_fill(c, i, to, c->want + c->displs[1][i] * size);
}

static void prepare(struct call *c, struct random *local, struct pool *pool,
                    int rank, int n)
{
    place(c, local, pool, rank, n);
    put_input(c, rank, n);
    expect(c, rank, n);
}

/* --- making it ---------------------------------------------------------------
 */

/* Make the call, or start it if `request` is not NULL. */
static enum shunt_status make(struct call *c, struct shunt_comm *comm,
                              struct shunt_request **request)
{
    const int rank = shunt_comm_rank(comm);
    const struct layout l = layout_of(c, rank, shunt_comm_size(comm));
    const bool root = c->kind == &collectives[BROADCAST];
    const struct collective_call call = {
        .comm = comm,
        .send = c->in_place ? SHUNT_IN_PLACE : c->send.data,
        .recv = c->recv.data,
        .count = c->counts[root ? c->root : rank][0],
        .send_counts = l.send_counts,
        .send_displs = c->with_displs ? l.send_displs : NULL,
        .recv_counts = l.recv_counts,
        .recv_displs = c->with_displs ? l.recv_displs : NULL,
        .dtype = c->dtype,
        .op = c->op,
        .root = c->root,
    };

    return c->kind->call(&call, request);
}

/* The number of bytes of a reduction's result. In place, reduce_scatter has
 * input behind the result, which must not change. */
static size_t result_bytes(const struct call *c, int rank)
{
    if (c->kind->to_each)
        return c->counts[0][rank] * shunt_dtype_size(c->dtype);
    return c->recv.bytes;
}

static int verify(const struct call *c, int rank)
{
    size_t bytes = c->recv.bytes, at;

    CHECK_RUN(box_check(&c->recv, "recv"));
    CHECK_RUN(box_check(&c->send, "send"));
    if (c->kind->reduces) {
        size_t result = result_bytes(c, rank);
        size_t count = result / shunt_dtype_size(c->dtype);

        at = alike(c->recv.data + result, c->want + result, bytes - result);
        CHECK(at == bytes - result, "%s%s: byte %zu behind the result changed",
              c->kind->name, c->in_place ? " in place" : "", at);
        at = reduce_compare(c->recv.data, c->want, count, c->dtype);
        CHECK(at == count, "%s dtype %d op %d%s: element %zu of %zu",
              c->kind->name, c->dtype, c->op, c->in_place ? " in place" : "",
              at, count);
        return 0;
    }
    at = alike(c->recv.data, c->want, bytes);
    CHECK(at == bytes, "%s dtype %d%s%s: byte %zu of %zu", c->kind->name,
          c->dtype, c->in_place ? " in place" : "",
          c->with_displs ? " with displacements" : "", at, bytes);
    return 0;
}

static void forget(struct call *c)
{
    free(c->send.owned);
    free(c->recv.owned);
    free(c->want);
}

/* --- cases -------------------------------------------------------------------
 */

enum { POOL_BYTES = 24 << 20 };

static int pool_open(const struct rank *self, struct pool *pool)
{
    void *p;

    CHECK_OK(self->comm, shunt_mem_alloc(self->comm, POOL_BYTES, &p));
    *pool = (struct pool){p, POOL_BYTES, 0};
    return 0;
}

uint64_t seed_of(const struct rank *self, int arg)
{
    return self->argc > arg ? strtoull(self->argv[arg], NULL, 10) : 1;
}

int rounds_of(const struct rank *self, int arg, int otherwise)
{
    return rank_rounds(self->argc > arg ? atoi(self->argv[arg]) : otherwise);
}

static int one_round(const struct rank *self, struct random *shared,
                     struct random *local, struct pool *pool, int kind)
{
    struct call c;
    int bad;

    draw(&c, shared, self->comm, kind);
    pool->used = 0;
    prepare(&c, local, pool, self->rank, self->size);
    if (random_below(local, 2)) {
        CHECK_OK(self->comm, make(&c, self->comm, NULL));
    } else {
        CHECK_OK(self->comm, make(&c, self->comm, &c.request));
        CHECK_OK(self->comm, shunt_wait(&c.request));
        CHECK(!c.request, "wait left a request");
    }
    bad = verify(&c, self->rank);
    forget(&c);
    return bad;
}

static int random_calls(const struct rank *self)
{
    uint64_t seed = seed_of(self, 1);
    struct random shared = {seed}, local = {seed * 77 + (uint64_t)self->rank};
    int kind = COLLECTIVES, rounds = rounds_of(self, 2, 150);
    struct pool pool;

    for (int k = 0; k < COLLECTIVES && self->argc > 0; k++)
        if (!strcmp(self->argv[0], collectives[k].name))
            kind = k;
    CHECK_RUN(pool_open(self, &pool));
    for (int i = 0; i < rounds; i++)
        if (one_round(self, &shared, &local, &pool, kind))
            return rank_fail(__FILE__, __LINE__, "one_round",
                             "seed %llu, round %d", (unsigned long long)seed,
                             i);
    CHECK_OK(self->comm, shunt_mem_free(self->comm, pool.window));
    return 0;
}

/* No rank leaves a barrier that one rank has not entered. All ranks make calls
 * of another communicator meanwhile, so the messages of the barrier arrive. */
static int barrier_holds(const struct rank *self)
{
    enum { LOOKS = 20 };
    struct shunt_request *request = NULL;
    struct shunt_comm *other;
    int64_t one = 1, all[MAX_RANKS];

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &other));
    for (int late = 0; late < self->size; late++) {
        if (self->rank != late)
            CHECK_OK(self->comm, shunt_barrier_start(self->comm, &request));
        for (int i = 0; i < LOOKS; i++) {
            CHECK(self->rank == late ||
                      shunt_test(&request) == SHUNT_IN_PROGRESS,
                  "without rank %d the barrier is over", late);
            CHECK_OK(other, shunt_allgather(other, &one, all, 1, SHUNT_I64));
        }
        if (self->rank == late)
            CHECK_OK(self->comm, shunt_barrier(self->comm));
        else
            CHECK_OK(self->comm, shunt_wait(&request));
    }
    CHECK_OK(other, shunt_comm_finish(other));
    shunt_comm_destroy(other);
    return 0;
}

/* More operations are under way than there are slots. Each rank finishes them
 * in a random order. */
static int in_flight(const struct rank *self)
{
    enum { MOST = 24 };
    static _Thread_local struct call calls[MOST];
    uint64_t seed = seed_of(self, 0);
    struct random shared = {seed}, local = {seed * 99 + (uint64_t)self->rank};
    int rounds = rounds_of(self, 1, 12);
    struct pool pool;

    CHECK_RUN(pool_open(self, &pool));
    for (int i = 0; i < rounds; i++) {
        int n = 1 + (int)random_below(&shared, MOST), left = n;

        pool.used = 0;
        for (int k = 0; k < n; k++) {
            draw(&calls[k], &shared, self->comm, COLLECTIVES);
            prepare(&calls[k], &local, &pool, self->rank, self->size);
        }
        for (int k = 0; k < n; k++)
            CHECK_OK(self->comm,
                     make(&calls[k], self->comm, &calls[k].request));
        while (left) {
            int k = (int)random_below(&local, (uint64_t)n);
            enum shunt_status st;

            if (!calls[k].want)
                continue;
            st = random_below(&local, 4) ? shunt_test(&calls[k].request)
                                         : shunt_wait(&calls[k].request);
            if (st == SHUNT_IN_PROGRESS)
                continue;
            CHECK_STATUS(self->comm, st, SHUNT_OK);
            if (verify(&calls[k], self->rank))
                return rank_fail(__FILE__, __LINE__, "verify",
                                 "seed %llu, round %d, call %d",
                                 (unsigned long long)seed, i, k);
            forget(&calls[k]);
            calls[k].want = NULL;
            left--;
        }
    }
    CHECK_OK(self->comm, shunt_mem_free(self->comm, pool.window));
    return 0;
}

/* All ranks get the same bits for the same vectors, with any algorithm, memory
 * and protocol. */
static int same_bits(const struct rank *self)
{
    enum { COUNT = 20011 };
    struct random shared = {3};
    float *in = malloc(COUNT * sizeof(*in)), *out = malloc(COUNT * sizeof(*in));
    float *all = malloc(COUNT * sizeof(*in) * (size_t)self->size);

    for (int i = 0; i <= self->rank; i++)
        for (size_t k = 0; k < COUNT; k++)
            in[k] = (float)(random_next(&shared) % 100000) * 1e-3f;
    CHECK_OK(self->comm,
             shunt_allreduce(self->comm, in, out, COUNT, SHUNT_F32, SHUNT_AVG));
    CHECK_OK(self->comm,
             shunt_allgather(self->comm, out, all, COUNT, SHUNT_F32));
    for (int i = 0; i < self->size; i++)
        CHECK(!memcmp(all + (size_t)i * COUNT, out, COUNT * sizeof(*out)),
              "rank %d has other bits", i);
    free(in);
    free(out);
    free(all);
    return 0;
}

/* A sum over N nodes of at most G ranks has at most G - 1 + ceil(log2 N)
 * roundings on the way of each term: docs/collectives.md. In some elements each
 * addition to the first term alone would be lost. */
static int error_bound(const struct rank *self)
{
    enum { COUNT = 4001 };
    const float one_is_lost = 1 << FLT_MANT_DIG;
    struct random shared = {77};
    float *in = malloc(COUNT * sizeof(*in)), *out = malloc(COUNT * sizeof(*in));
    float *all = malloc(COUNT * sizeof(*in) * (size_t)self->size);
    int size[MAX_RANKS] = {0}, largest = 0, roundings;
    double most;

    for (int i = 0; i <= self->rank; i++)
        for (size_t k = 0; k < COUNT; k++)
            in[k] = (float)(random_next(&shared) % 100000) * 1e-3f - 50;
    for (size_t k = 0; k < COUNT; k += 7)
        in[k] = self->rank ? 1 : one_is_lost;
    for (int r = 0; r < self->size; r++)
        if (++size[shunt_comm_node(self->comm, r)] > largest)
            largest = size[shunt_comm_node(self->comm, r)];
    roundings = largest - 1;
    for (int n = 1; n < shunt_comm_nodes(self->comm); n *= 2)
        roundings++;
    most = roundings * ldexp(1, -FLT_MANT_DIG);
    most /= 1 - most;
    CHECK_OK(self->comm,
             shunt_allgather(self->comm, in, all, COUNT, SHUNT_F32));
    CHECK_OK(self->comm,
             shunt_allreduce(self->comm, in, out, COUNT, SHUNT_F32, SHUNT_SUM));
    for (size_t k = 0; k < COUNT; k++) {
        double sum = 0, magnitude = 0;

        for (int r = 0; r < self->size; r++) {
            sum += (double)all[(size_t)r * COUNT + k];
            magnitude += fabs((double)all[(size_t)r * COUNT + k]);
        }
        CHECK(fabs((double)out[k] - sum) <= most * magnitude,
              "element %zu: %.9g, not %.9g +- %.3g", k, (double)out[k], sum,
              most * magnitude);
    }
    free(in);
    free(out);
    free(all);
    return 0;
}

/* Some reads of one rank fail (SHUNT_FAULT=badget). A rank that gets SHUNT_OK
 * has the right data. The rank that reads gets an error, and so does the rank
 * that it read from.
 *
 *     failed_reads KIND|all [SEED [ROUNDS]] */
static int failed_reads(const struct rank *self)
{
    struct random shared = {seed_of(self, 1)},
                  local = {seed_of(self, 1) + (uint64_t)self->rank};
    struct pool none = {NULL, 0, 0}; /* windows are not read */
    int failed = 0, kind = COLLECTIVES;
    /* A brief run has all rounds, too, because in a few rounds perhaps no read
     * fails. */
    const int rounds = self->argc > 2 ? atoi(self->argv[2]) : 60;

    for (int k = 0; k < COLLECTIVES; k++)
        if (!strcmp(self->argv[0], collectives[k].name))
            kind = k;
    for (int i = 0; i < rounds; i++) {
        enum shunt_status st, of[MAX_RANKS] = {0};
        int bad = 0;
        struct call c;

        draw(&c, &shared, self->comm, kind);
        prepare(&c, &local, &none, self->rank, self->size);
        st = make(&c, self->comm, NULL);
        CHECK(!st || shunt_last_error(self->comm)[0], "no text");
        if (!st && verify(&c, self->rank))
            return rank_fail(__FILE__, __LINE__, "verify", "round %d", i);
        forget(&c);
        CHECK_OK(self->comm,
                 shunt_allgather(self->comm, &st, of, 1, SHUNT_I32));
        for (int r = 0; r < self->size; r++)
            bad += of[r] != 0;
        CHECK(bad == 0 || bad >= 2, "round %d, %s: %d are bad", i, c.kind->name,
              bad);
        failed += bad != 0;
    }
    CHECK(failed, "none failed");
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "random", .run = random_calls, .timeout_s = 110},
    {.name = "barrier_holds", .run = barrier_holds},
    {.name = "in_flight", .run = in_flight, .timeout_s = 110},
    {.name = "same_bits", .run = same_bits},
    {.name = "error_bound", .run = error_bound},
    {.name = "failed_reads",
     .run = failed_reads,
     .no_threads = true,
     .min_ranks = 2},
    {.name = NULL},
};

static const struct rank_case *const tables[] = {
    cases, broadcast_cases, memory_cases, wrong_cases, NULL,
};

int main(int argc, char **argv)
{
    return rank_main_tables(argc, argv, tables);
}
