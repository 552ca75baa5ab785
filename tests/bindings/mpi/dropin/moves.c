// SPDX-License-Identifier: Apache-2.0
/*
 * Operations that move data, with datatypes of every kind: the same on all
 * ranks, different on each rank, or derived on one rank and basic on the
 * others.
 */

#include "layout.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RANKS = 64, ROUNDS = 6 };

/* The ranks that use a datatype. */
enum types { BASIC, SAME, DIFFER, ONE, TYPES };

static struct layouts sets[SIGNATURES];

/* One rank's memory on one side of an operation: n blocks of a layout. */
struct side {
    const struct layout *l;
    struct memory m;
    MPI_Datatype type;
    void *buf;
    int n;
    int counts[MAX_RANKS], displs[MAX_RANKS];
};

/* The properties of a round, which are the same on all ranks. */
struct round {
    MPI_Comm comm;
    int rank, size;
    enum types types;
    const struct layouts *set;
    uint64_t key; /* key of the data */
    int one;      /* in ONE, the rank with another datatype */
    uint64_t layout_key;
    bool bottoms; /* some sides use MPI_BOTTOM */
    bool nothing; /* an operation without data has counts of a datatype without
                   * bytes */
};

static bool round_make(struct round *r, enum types types)
{
    r->types = types;
    r->comm = some_comm();
    r->set = &sets[types == BASIC ? INTS : draw(SIGNATURES)];
    r->key = fresh();
    r->layout_key = fresh();
    r->bottoms = types != BASIC && chance(40);
    r->nothing = types != BASIC && chance(50);
    int one = (int)draw(1000);
    if (r->comm == MPI_COMM_NULL)
        return false;
    r->rank = comm_rank(r->comm);
    r->size = comm_size(r->comm);
    r->one = one % r->size;
    CHECK(r->size <= MAX_RANKS);
    return true;
}

static const struct layout *choose(const struct round *r, int seed)
{
    uint64_t key = mix(r->layout_key, (uint64_t)seed);
    const struct layouts *set = r->set;

    switch (r->types) {
    case SAME:
        return &set->of[1 + key % (uint64_t)(set->n - 1)];
    case ONE:
        if (r->rank == r->one)
            return &set->of[1 + key % (uint64_t)(set->n - 1)];
        return &set->of[0];
    case DIFFER:
        return &set->of[mix(key, (uint64_t)r->rank) % (uint64_t)set->n];
    default:
        return &set->of[0];
    }
}

static int up(ptrdiff_t a, ptrdiff_t by)
{
    return (int)(a <= 0 ? -(-a / by) : (a + by - 1) / by);
}

/* Make blocks of units[i] units each, one behind the other, or (`scattered`) at
 * displacements out of order, with gaps. `empty`: no rank has data in this
 * operation. */
static void side_make(struct side *s, const struct round *r, int seed, int n,
                      const int *units, bool scattered, bool empty)
{
    int total = 0;

    memset(s, 0, sizeof(*s));
    s->n = n;
    for (int i = 0; i < n; i++)
        total += units[i];
    s->l = choose(r, seed);
    if (r->nothing && empty)
        s->l = &r->set->nothing;

    int order[MAX_RANKS], pos = 0;
    for (int i = 0; i < n; i++)
        order[i] = i;
    if (scattered) {
        for (int i = n - 1; i > 0; i--) {
            int k = (int)draw_own((uint64_t)i + 1), kept = order[i];
            order[i] = order[k];
            order[k] = kept;
        }
        pos = (int)draw_own(8) - 3;
    }

    ptrdiff_t lo = 0, hi = 0;
    for (int i = 0; i < n; i++) {
        int b = order[i];
        if (s->l->n == 0) {
            /* Any count of this datatype is empty. Regular calls have the same
             * count for all ranks. */
            s->counts[b] = 3;
            s->displs[b] = b;
            continue;
        }
        s->counts[b] = units[b] * UNIT / s->l->n;
        ptrdiff_t from, to;
        layout_span(s->l, s->counts[b], &from, &to);
        if (scattered) {
            pos += up(-from, s->l->extent);
            s->displs[b] = pos;
            pos += up(to, s->l->extent) + (int)draw_own(4);
        } else {
            s->displs[b] = b * s->counts[b];
        }
        from += s->displs[b] * s->l->extent;
        to += s->displs[b] * s->l->extent;
        if (from < lo)
            lo = from;
        if (to > hi)
            hi = to;
    }
    memory_make(&s->m, lo, hi);
    s->buf = memory_at(&s->m, 0);
    s->type = s->l->type;
    if (total == 0 && s->l->n != 0 && draw_own(2))
        s->buf = NULL;
    else if (r->bottoms && s->l->n != 0 && draw_own(2)) {
        s->type = layout_at(s->l, s->buf);
        s->buf = MPI_BOTTOM;
    }
}

static ptrdiff_t block_at(const struct side *s, int b)
{
    return s->displs[b] * s->l->extent;
}

static void block_set(struct side *s, int b, uint64_t key)
{
    layout_set(&s->m, block_at(s, b), s->l, s->counts[b], key, 0);
}

static void block_expect(struct side *s, int b, uint64_t key)
{
    layout_expect(&s->m, block_at(s, b), s->l, s->counts[b], key, 0);
}

static void side_check(struct side *s, const char *what)
{
    if (s->type != s->l->type)
        MPI(MPI_Type_free(&s->type));
    memory_check(&s->m, what);
}

static uint64_t pair_key(const struct round *r, int from, int to)
{
    return mix(mix(r->key, (uint64_t)from), (uint64_t)to);
}

static int some_units(void)
{
    static const int often[] = {0, 1, 1, 2, 3, 7, 40, 700};
    return often[draw(sizeof(often) / sizeof(*often))];
}

/* The number of units that each rank sends to each rank: random, sparse, with
 * one rank that receives or sends nothing, nothing at all, or one large block
 * among small ones. */
struct matrix {
    bool empty;
    int units[MAX_RANKS][MAX_RANKS];
};

static void matrix_make(struct matrix *u, bool symmetric)
{
    int kind = (int)draw(6), who = (int)draw((uint64_t)world_size);
    uint64_t key = fresh();

    u->empty = kind == 4;
    for (int i = 0; i < world_size; i++) {
        for (int j = 0; j < world_size; j++) {
            int a = symmetric && i > j ? j : i, b = symmetric && i > j ? i : j;
            uint64_t x = mix(mix(key, (uint64_t)a), (uint64_t)b);
            int n = (int)(x % 4);
            if (kind == 1)
                n = x % 4 == 0 ? 5 : 0;
            if (kind == 2 && (b == who || (symmetric && a == who)))
                n = 0;
            if (kind == 3 && (a == who || (symmetric && b == who)))
                n = 0;
            if (kind == 4)
                n = 0;
            if (kind == 5 && a == 0 && b == who)
                n = 900;
            u->units[i][j] = n;
        }
    }
}

static void column(const struct matrix *u, int to, int size, int *units)
{
    for (int i = 0; i < size; i++)
        units[i] = u->units[i][to];
}

/* -- the operations -----------------------------------------------------------
 */

static void bcast(struct round *r, bool in_place)
{
    int units = some_units(), root = (int)draw(1000) % r->size;
    struct side s;

    (void)in_place;
    side_make(&s, r, 1, 1, &units, false, units == 0);
    if (r->rank == root)
        block_set(&s, 0, r->key);
    else
        block_expect(&s, 0, r->key);
    MPI(MPI_Bcast(s.buf, s.counts[0], s.type, root, r->comm));
    side_check(&s, "bcast");
}

static void allgather(struct round *r, bool in_place)
{
    int units[MAX_RANKS], n = some_units();
    struct side in, out;

    for (int i = 0; i < r->size; i++)
        units[i] = n;
    side_make(&in, r, 1, 1, units, false, n == 0);
    side_make(&out, r, 2, r->size, units, false, n == 0);
    block_set(&in, 0, pair_key(r, r->rank, 0));
    if (in_place)
        block_set(&out, r->rank, pair_key(r, r->rank, 0));
    for (int i = 0; i < r->size; i++)
        block_expect(&out, i, pair_key(r, i, 0));
    if (in_place)
        MPI(MPI_Allgather(MPI_IN_PLACE, 17, MPI_DATATYPE_NULL, out.buf,
                          out.counts[0], out.type, r->comm));
    else
        MPI(MPI_Allgather(in.buf, in.counts[0], in.type, out.buf, out.counts[0],
                          out.type, r->comm));
    side_check(&in, "allgather, send");
    side_check(&out, "allgather, receive");
}

static void allgatherv(struct round *r, bool in_place)
{
    struct matrix u;
    struct side in, out;
    int units[MAX_RANKS];
    /* Open MPI 4.1 chooses its algorithm by the size of the datatype that this
     * rank sends: if it differs from the datatype that the rank receives, ranks
     * may choose different algorithms and hang. */
    int seed = check_wild ? 2 : 1;

    matrix_make(&u, false);
    column(&u, 0, r->size, units);
    side_make(&in, r, 1, 1, &units[r->rank], false, u.empty);
    side_make(&out, r, seed, r->size, units, true, u.empty);
    block_set(&in, 0, pair_key(r, r->rank, 0));
    if (in_place)
        block_set(&out, r->rank, pair_key(r, r->rank, 0));
    for (int i = 0; i < r->size; i++)
        block_expect(&out, i, pair_key(r, i, 0));
    if (in_place)
        MPI(MPI_Allgatherv(MPI_IN_PLACE, 17, MPI_DATATYPE_NULL, out.buf,
                           out.counts, out.displs, out.type, r->comm));
    else
        MPI(MPI_Allgatherv(in.buf, in.counts[0], in.type, out.buf, out.counts,
                           out.displs, out.type, r->comm));
    side_check(&in, "allgatherv, send");
    side_check(&out, "allgatherv, receive");
}

/* Fill the blocks to and from rank i, in place or not. */
static void fill_pairs(const struct round *r, struct side *in, struct side *out,
                       bool in_place)
{
    for (int i = 0; i < r->size; i++) {
        if (in_place)
            block_set(out, i, pair_key(r, r->rank, i));
        else
            block_set(in, i, pair_key(r, r->rank, i));
        block_expect(out, i, pair_key(r, i, r->rank));
    }
}

/* MPICH 4.0 reports "message truncated" for structs with gaps, in place. */
static void tame_in_place(struct round *r)
{
    if (!check_wild)
        r->set = &sets[INTS];
}

static void alltoall(struct round *r, bool in_place)
{
    int units[MAX_RANKS], n = some_units();
    struct side in, out;

    for (int i = 0; i < r->size; i++)
        units[i] = n;
    if (in_place)
        tame_in_place(r);
    side_make(&in, r, 1, r->size, units, false, n == 0);
    side_make(&out, r, 2, r->size, units, false, n == 0);
    fill_pairs(r, &in, &out, in_place);
    if (in_place)
        MPI(MPI_Alltoall(MPI_IN_PLACE, 17, MPI_DATATYPE_NULL, out.buf,
                         out.counts[0], out.type, r->comm));
    else
        MPI(MPI_Alltoall(in.buf, in.counts[0], in.type, out.buf, out.counts[0],
                         out.type, r->comm));
    side_check(&in, "alltoall, send");
    side_check(&out, "alltoall, receive");
}

static void alltoallv(struct round *r, bool in_place)
{
    struct matrix u;
    struct side in, out;
    int from[MAX_RANKS];

    matrix_make(&u, in_place);
    column(&u, r->rank, r->size, from);
    if (in_place)
        tame_in_place(r);
    side_make(&in, r, 1, r->size, u.units[r->rank], true, u.empty);
    side_make(&out, r, 2, r->size, from, true, u.empty);
    fill_pairs(r, &in, &out, in_place);
    if (in_place)
        MPI(MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, out.buf,
                          out.counts, out.displs, out.type, r->comm));
    else
        MPI(MPI_Alltoallv(in.buf, in.counts, in.displs, in.type, out.buf,
                          out.counts, out.displs, out.type, r->comm));
    side_check(&in, "alltoallv, send");
    side_check(&out, "alltoallv, receive");
}

/* One side of an alltoallw. Each block has its own layout, and a displacement
 * in bytes. */
struct wide {
    struct memory m;
    const struct layout *l[MAX_RANKS];
    MPI_Datatype types[MAX_RANKS];
    int counts[MAX_RANKS], displs[MAX_RANKS];
    void *buf;
};

static void wide_make(struct wide *w, const struct round *r, int seed,
                      const int *units)
{
    ptrdiff_t pos = 0;

    memset(w, 0, sizeof(*w));
    for (int b = r->size - 1; b >= 0; b--) {
        ptrdiff_t from, to;
        w->l[b] = choose(r, seed + 16 * b);
        if (units[b] == 0 && r->nothing)
            w->l[b] = &r->set->nothing;
        w->counts[b] = w->l[b]->n ? units[b] * UNIT / w->l[b]->n : 2;
        layout_span(w->l[b], w->counts[b], &from, &to);
        pos += (-from + 15) / 16 * 16;
        w->displs[b] = (int)pos;
        pos += (to + 15) / 16 * 16 + 16 * (ptrdiff_t)draw_own(3);
        w->types[b] = w->l[b]->type;
    }
    memory_make(&w->m, 0, pos);
    w->buf = memory_at(&w->m, 0);
    if (r->bottoms && draw_own(2)) {
        for (int b = 0; b < r->size; b++) {
            w->types[b] = layout_at(w->l[b], memory_at(&w->m, w->displs[b]));
        }
        w->buf = MPI_BOTTOM;
    }
}

static void wide_check(struct wide *w, const struct round *r, const char *what)
{
    for (int b = 0; b < r->size; b++)
        if (w->types[b] != w->l[b]->type)
            MPI(MPI_Type_free(&w->types[b]));
    memory_check(&w->m, what);
}

static void alltoallw(struct round *r, bool in_place)
{
    struct matrix u;
    struct wide in, out;
    int from[MAX_RANKS];

    matrix_make(&u, in_place);
    column(&u, r->rank, r->size, from);
    if (in_place)
        tame_in_place(r);
    wide_make(&in, r, 1, u.units[r->rank]);
    wide_make(&out, r, 2, from);
    for (int i = 0; i < r->size; i++) {
        struct wide *source = in_place ? &out : &in;
        layout_set(&source->m, source->displs[i], source->l[i],
                   source->counts[i], pair_key(r, r->rank, i), 0);
        layout_expect(&out.m, out.displs[i], out.l[i], out.counts[i],
                      pair_key(r, i, r->rank), 0);
    }
    /* Types with absolute addresses need no displacements. */
    int zeros[MAX_RANKS] = {0};
    int *in_at = in.buf == MPI_BOTTOM ? zeros : in.displs;
    int *out_at = out.buf == MPI_BOTTOM ? zeros : out.displs;
    if (in_place)
        MPI(MPI_Alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, out.buf, out.counts,
                          out_at, out.types, r->comm));
    else
        MPI(MPI_Alltoallw(in.buf, in.counts, in_at, in.types, out.buf,
                          out.counts, out_at, out.types, r->comm));
    wide_check(&in, r, "alltoallw, send");
    wide_check(&out, r, "alltoallw, receive");
}

/* -- as cases -----------------------------------------------------------------
 */

static void rounds(int variant, void (*op)(struct round *, bool), bool in_place)
{
    struct round r;

    for (int i = 0; i < ROUNDS; i++) {
        start_round(i);
        if (round_make(&r, (enum types)variant))
            op(&r, in_place);
    }
}

static void case_bcast(int v)
{
    rounds(v, bcast, false);
}
static void case_allgather(int v)
{
    rounds(v, allgather, false);
}
static void case_allgather_in(int v)
{
    rounds(v, allgather, true);
}
static void case_allgatherv(int v)
{
    rounds(v, allgatherv, false);
}
static void case_allgatherv_in(int v)
{
    rounds(v, allgatherv, true);
}
static void case_alltoall(int v)
{
    rounds(v, alltoall, false);
}
static void case_alltoall_in(int v)
{
    rounds(v, alltoall, true);
}
static void case_alltoallv(int v)
{
    rounds(v, alltoallv, false);
}
static void case_alltoallv_in(int v)
{
    rounds(v, alltoallv, true);
}
static void case_alltoallw(int v)
{
    rounds(v, alltoallw, false);
}
static void case_alltoallw_in(int v)
{
    rounds(v, alltoallw, true);
}

/* No rank may leave the barrier before every rank has entered it, by the clock
 * of the host. */
static void case_barrier(int variant)
{
    double came, left, times[2];

    (void)variant;
    for (int i = 0; i < 10; i++) {
        start_round(i);
        int late = (int)draw((uint64_t)world_size);
        if (world_rank == late)
            usleep(3000);
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        came = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        clock_gettime(CLOCK_MONOTONIC, &now);
        left = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
        if (world_rank != 0) {
            times[0] = came;
            times[1] = left;
            MPI(MPI_Send(times, 2, MPI_DOUBLE, 0, 5, MPI_COMM_WORLD));
            continue;
        }
        for (int r = 1; r < world_size; r++) {
            MPI(MPI_Recv(times, 2, MPI_DOUBLE, r, 5, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE));
            if (times[0] > came)
                came = times[0];
            if (times[1] < left)
                left = times[1];
        }
        CHECK(left >= came);
    }
}

/* Megabytes for each pair, of ints, and of a datatype with holes on odd ranks.
 */
static void case_large(int variant)
{
    struct round r;
    int units[MAX_RANKS];
    int n = (8 << 20) / (world_size * UNIT * (int)sizeof(int));

    (void)variant;
    for (int i = 0; i < 2; i++) {
        struct side in, out;

        start_round(i);
        r.types = i == 0 ? BASIC : ONE;
        r.comm = MPI_COMM_WORLD;
        r.rank = world_rank;
        r.size = world_size;
        r.set = &sets[INTS];
        r.key = fresh();
        r.layout_key = fresh();
        r.one = 0;
        r.bottoms = r.nothing = false;
        for (int k = 0; k < world_size; k++)
            units[k] = n;
        side_make(&in, &r, 1, r.size, units, true, false);
        side_make(&out, &r, 2, r.size, units, true, false);
        fill_pairs(&r, &in, &out, false);
        MPI(MPI_Alltoallv(in.buf, in.counts, in.displs, in.type, out.buf,
                          out.counts, out.displs, out.type, r.comm));
        side_check(&in, "large alltoallv, send");
        side_check(&out, "large alltoallv, receive");

        units[0] = 2 * n;
        side_make(&in, &r, 1, 1, units, false, false);
        if (world_rank == world_size - 1)
            block_set(&in, 0, r.key);
        else
            block_expect(&in, 0, r.key);
        MPI(MPI_Bcast(in.buf, in.counts[0], in.type, world_size - 1, r.comm));
        side_check(&in, "large bcast");
    }
}

/* Calls of all kinds, one after the other without a pause. Some ranks are early
 * or late, so that several calls are in progress. */
static void case_mixture(int variant)
{
    static void (*const ops[])(struct round *, bool) = {
        bcast, allgather, allgatherv, alltoall, alltoallv, alltoallw};
    struct round r;

    (void)variant;
    for (int i = 0; i < 60; i++) {
        start_round(i);
        bool in_place = chance(30);
        size_t op = draw(sizeof(ops) / sizeof(*ops));
        if (draw_own(20) == 0)
            usleep(500);
        if (!round_make(&r, (enum types)draw(TYPES)))
            continue;
        ops[op](&r, in_place && op > 0);
        if (chance(20))
            MPI(MPI_Barrier(r.comm));
    }
}

/* For zero elements, MPICH accepts any datatype in these calls, even on only
 * some ranks. Open MPI reports an error. */
static void case_type_of_nothing(int variant)
{
#ifdef MPICH_VERSION
    int sent[MAX_RANKS], got[MAX_RANKS], counts[MAX_RANKS], displs[MAX_RANKS];
    MPI_Datatype uncommitted, none, types[MAX_RANKS];

    MPI(MPI_Type_contiguous(1, MPI_INT, &uncommitted));
    for (int i = 0; i < 8; i++) {
        start_round(i);
        none = chance(50) ? MPI_DATATYPE_NULL : uncommitted;
        uint64_t key = fresh();
        for (int r = 0; r < world_size; r++) {
            uint64_t pair = mix(key, (uint64_t)(r + world_rank));
            counts[r] = (int)(pair % 2);
            displs[r] = r * (int)sizeof(int);
            /* Only some ranks pass an unusable type. */
            types[r] = counts[r] || pair % 3 ? MPI_INT : none;
            sent[r] = 100 * world_rank + r;
            got[r] = -1;
        }
        MPI(MPI_Alltoallw(sent, counts, displs, types, got, counts, displs,
                          types, MPI_COMM_WORLD));
        for (int r = 0; r < world_size; r++)
            CHECK(got[r] == (counts[r] ? 100 * r + world_rank : -1));
        MPI(MPI_Bcast(NULL, 0,
                      world_rank == i % world_size ? uncommitted : MPI_INT, 0,
                      MPI_COMM_WORLD));
    }
    MPI(MPI_Type_free(&uncommitted));
#endif
    (void)variant;
}

/* Datatypes are made and freed, so a handle may have belonged to another
 * datatype before. A duplicate has the same layout as its original. */
static void case_type_handles(int variant)
{
    (void)variant;
    for (int i = 0; i < 40; i++) {
        struct layouts now;
        struct memory in, out;

        start_round(i);
        layouts_make(&now, chance(50) ? INTS : MIXED);
        uint64_t key = fresh();
        uint64_t pick = check_wild ? mix(key, (uint64_t)world_rank) : key;
        const struct layout *l = &now.of[pick % (uint64_t)now.n];
        int count = UNIT / l->n;
        ptrdiff_t lo, hi;
        layout_span(l, count, &lo, &hi);
        memory_make(&in, lo, hi);
        layout_set(&in, 0, l, count,
                   pair_key(&(struct round){.key = key}, world_rank, 0), 0);
        const struct layout *to = &now.of[key % (uint64_t)now.n];
        /* Give each block its own displacement, so that blocks do not
         * overlap. */
        int counts[MAX_RANKS], displs[MAX_RANKS];
        ptrdiff_t from, upto;
        layout_span(to, UNIT / to->n, &from, &upto);
        int apart = up(upto - from, to->extent) + 1;
        for (int r = 0; r < world_size; r++) {
            counts[r] = UNIT / to->n;
            displs[r] = up(-from, to->extent) + r * apart;
        }
        memory_make(&out, 0, (displs[world_size - 1] + apart) * to->extent);
        for (int r = 0; r < world_size; r++)
            layout_expect(&out, displs[r] * to->extent, to, counts[r],
                          pair_key(&(struct round){.key = key}, r, 0), 0);
        MPI_Datatype copy;
        MPI(MPI_Type_dup(to->type, &copy));
        MPI(MPI_Allgatherv(memory_at(&in, 0), count, l->type,
                           memory_at(&out, 0), counts, displs, copy,
                           MPI_COMM_WORLD));
        MPI(MPI_Type_free(&copy));
        memory_check(&in, "type handles, send");
        memory_check(&out, "type handles, receive");
        layouts_free(&now);
    }
}

#define VARIANTS(name, run)                                          \
    {name "_basic", run, BASIC, 1}, {name "_derived", run, SAME, 1}, \
        {name "_differ", run, DIFFER, 1},                            \
    {                                                                \
        name "_one_derived", run, ONE, 1                             \
    }

static const struct check_case cases[] = {
    VARIANTS("bcast", case_bcast),
    VARIANTS("allgather", case_allgather),
    VARIANTS("allgather_in_place", case_allgather_in),
    VARIANTS("allgatherv", case_allgatherv),
    VARIANTS("allgatherv_in_place", case_allgatherv_in),
    VARIANTS("alltoall", case_alltoall),
    VARIANTS("alltoall_in_place", case_alltoall_in),
    VARIANTS("alltoallv", case_alltoallv),
    VARIANTS("alltoallv_in_place", case_alltoallv_in),
    VARIANTS("alltoallw", case_alltoallw),
    VARIANTS("alltoallw_in_place", case_alltoallw_in),
    {"barrier", case_barrier, 0, 1},
    {"large", case_large, 0, 2},
    {"type_handles", case_type_handles, 0, 1},
    {"type_of_nothing", case_type_of_nothing, 0, 2},
    {"mixture", case_mixture, 0, 1},
    {0},
};

/* Datatypes are made before and freed after all cases. */
static void begin(void)
{
    layouts_make(&sets[INTS], INTS);
    layouts_make(&sets[MIXED], MIXED);
}

static void end(void)
{
    layouts_free(&sets[INTS]);
    layouts_free(&sets[MIXED]);
}

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases, MPI_THREAD_SINGLE, begin, end);
}
