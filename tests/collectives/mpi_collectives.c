// SPDX-License-Identifier: Apache-2.0
/*
 * Compares every collective with MPI's, for random arguments: the bytes must be
 * equal. Floating-point data are small integers, so that the order in which MPI
 * adds does not matter. A plain MPI program, started by mpirun. It ends with
 * status 1 at the first difference.
 *
 *     mpi_collectives [SEED [ROUNDS [MIB]]]
 *
 * With MIB each collective is called once, with MIB MiB per rank.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/coll.h>
#include <shunt/mpi.h>

#include "tests/collectives/random.h"

enum { MAX_RANKS = 16, MOST = 3000, POISON = 0xa5 };

static int rank, size;
static uint64_t seed;
static int round_number;

static void fail(const char *what)
{
    fprintf(stderr, "rank %d of %d, seed %llu, round %d: %s (%s)\n", rank, size,
            (unsigned long long)seed, round_number, what,
            shunt_last_error(NULL));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void ok(struct shunt_comm *comm, enum shunt_status st, const char *what)
{
    if (st) {
        fprintf(stderr, "%s: %s: %s\n", what, shunt_strerror(st),
                shunt_last_error(comm));
        fail(what);
    }
}

static void mpi(int status)
{
    if (status != MPI_SUCCESS)
        fail("MPI");
}

/* Types that both libraries have. */
static const struct {
    enum shunt_dtype shunt;
    MPI_Datatype mpi;
} types[] = {
    {SHUNT_I8, MPI_INT8_T},   {SHUNT_U8, MPI_UINT8_T},
    {SHUNT_I32, MPI_INT32_T}, {SHUNT_U32, MPI_UINT32_T},
    {SHUNT_I64, MPI_INT64_T}, {SHUNT_U64, MPI_UINT64_T},
    {SHUNT_F32, MPI_FLOAT},   {SHUNT_F64, MPI_DOUBLE},
};

static const struct {
    enum shunt_op shunt;
    MPI_Op mpi;
} ops[] = {
    {SHUNT_SUM, MPI_SUM},
    {SHUNT_MIN, MPI_MIN},
    {SHUNT_MAX, MPI_MAX},
    {SHUNT_PROD, MPI_PROD},
};

struct setting {
    enum shunt_dtype dtype;
    MPI_Datatype mpi_type;
    enum shunt_op op;
    MPI_Op mpi_op;
    size_t bytes; /* of an element */
    int in_place, root;
    int counts[MAX_RANKS][MAX_RANKS]; /* [from][to] */
};

static int draw_count(struct random *r)
{
    return random_below(r, 4) == 0 ? 0
           : random_below(r, 2)    ? (int)random_below(r, 30)
                                   : (int)random_below(r, MOST);
}

static void draw(struct setting *s, struct random *r)
{
    size_t t = random_below(r, sizeof(types) / sizeof(*types));
    size_t o = random_below(r, sizeof(ops) / sizeof(*ops));

    s->dtype = types[t].shunt;
    s->mpi_type = types[t].mpi;
    s->op = ops[o].shunt;
    s->mpi_op = ops[o].mpi;
    s->bytes = shunt_dtype_size(s->dtype);
    s->in_place = (int)random_below(r, 2);
    s->root = (int)random_below(r, (uint64_t)size);
    for (int i = 0; i < size; i++)
        for (int k = 0; k < size; k++)
            s->counts[i][k] =
                s->in_place && k < i ? s->counts[k][i] : draw_count(r);
}

/* Fill `dst` with values that are so small that nothing overflows, because Open
 * MPI 4.1.4 saturates: its sum of two unsigned bytes of 255 is 255. Signed
 * types get negative values, too. */
static void put_values(const struct setting *s, struct random *r, void *dst,
                       size_t count)
{
    int most = s->op == SHUNT_PROD ? 1 : 3;
    int least =
        s->dtype == SHUNT_U8 || s->dtype == SHUNT_U32 || s->dtype == SHUNT_U64
            ? 0
            : -most;

    for (size_t i = 0; i < count; i++) {
        int64_t v =
            least + (int64_t)random_below(r, (uint64_t)(most - least + 1));
        unsigned char *p = (unsigned char *)dst + i * s->bytes;
        float f = (float)v;
        double d = (double)v;

        if (s->dtype == SHUNT_F32)
            memcpy(p, &f, 4);
        else if (s->dtype == SHUNT_F64)
            memcpy(p, &d, 8);
        else
            memcpy(p, &v, s->bytes);
    }
}

/* The input, and the result of each of the two libraries. */
struct buffers {
    unsigned char *send, *ours, *theirs;
    size_t bytes; /* of each buffer */
};

static void fill(const struct setting *s, struct random *local,
                 struct buffers *b)
{
    put_values(s, local, b->send, b->bytes / s->bytes);
    if (s->in_place) {
        memcpy(b->ours, b->send, b->bytes);
        memcpy(b->theirs, b->send, b->bytes);
    } else {
        memset(b->ours, POISON, b->bytes);
        memset(b->theirs, POISON, b->bytes);
    }
}

static void compare(const struct buffers *b, size_t bytes, const char *what)
{
    for (size_t i = 0; i < bytes; i++) {
        if (b->ours[i] == b->theirs[i])
            continue;
        fprintf(stderr, "%s: byte %zu of %zu is %d, by MPI %d\n", what, i,
                bytes, b->ours[i], b->theirs[i]);
        fail(what);
    }
}

static void displacements(const int *counts, int *displs)
{
    int at = 0;

    for (int i = 0; i < size; i++) {
        displs[i] = at;
        at += counts[i];
    }
}

static void widen(const int *from, size_t *to)
{
    for (int i = 0; i < size; i++)
        to[i] = (size_t)from[i];
}

static void try_broadcast(struct shunt_comm *comm, const struct setting *s,
                          struct buffers *b)
{
    int n = s->counts[0][0];

    memcpy(b->ours, b->send, b->bytes);
    memcpy(b->theirs, b->send, b->bytes);
    ok(comm, shunt_broadcast(comm, b->ours, (size_t)n, s->dtype, s->root),
       "broadcast");
    mpi(MPI_Bcast(b->theirs, n, s->mpi_type, s->root, MPI_COMM_WORLD));
    compare(b, b->bytes, "broadcast");
}

static void try_allgather(struct shunt_comm *comm, const struct setting *s,
                          struct buffers *b)
{
    int n = s->counts[0][0];

    ok(comm,
       shunt_allgather(comm, s->in_place ? SHUNT_IN_PLACE : b->send, b->ours,
                       (size_t)n, s->dtype),
       "allgather");
    mpi(MPI_Allgather(s->in_place ? MPI_IN_PLACE : b->send, n, s->mpi_type,
                      b->theirs, n, s->mpi_type, MPI_COMM_WORLD));
    compare(b, b->bytes, "allgather");
}

static void try_allgatherv(struct shunt_comm *comm, const struct setting *s,
                           struct buffers *b)
{
    size_t counts[MAX_RANKS], shifted[MAX_RANKS];
    const int *n = s->counts[0];
    int displs[MAX_RANKS];

    displacements(n, displs);
    for (int i = 0; i < size; i++)
        displs[i] += 3 * (i + 1); /* with gaps */
    widen(n, counts);
    widen(displs, shifted);
    ok(comm,
       shunt_allgatherv(comm, s->in_place ? SHUNT_IN_PLACE : b->send,
                        counts[rank], b->ours, counts, shifted, s->dtype),
       "allgatherv");
    mpi(MPI_Allgatherv(s->in_place ? MPI_IN_PLACE : b->send, n[rank],
                       s->mpi_type, b->theirs, n, displs, s->mpi_type,
                       MPI_COMM_WORLD));
    compare(b, b->bytes, "allgatherv");
}

static void try_reduce_scatter(struct shunt_comm *comm, const struct setting *s,
                               struct buffers *b)
{
    int n = s->counts[0][0];

    ok(comm,
       shunt_reduce_scatter(comm, s->in_place ? SHUNT_IN_PLACE : b->send,
                            b->ours, (size_t)n, s->dtype, s->op),
       "reduce_scatter");
    mpi(MPI_Reduce_scatter_block(s->in_place ? MPI_IN_PLACE : b->send,
                                 b->theirs, n, s->mpi_type, s->mpi_op,
                                 MPI_COMM_WORLD));
    /* In place, the memory behind the result is undefined. */
    compare(b, s->in_place ? (size_t)n * s->bytes : b->bytes, "reduce_scatter");
}

static void try_reduce_scatterv(struct shunt_comm *comm,
                                const struct setting *s, struct buffers *b)
{
    const int *n = s->counts[1 % size];
    size_t counts[MAX_RANKS];

    widen(n, counts);
    ok(comm,
       shunt_reduce_scatterv(comm, s->in_place ? SHUNT_IN_PLACE : b->send,
                             b->ours, counts, s->dtype, s->op),
       "reduce_scatterv");
    mpi(MPI_Reduce_scatter(s->in_place ? MPI_IN_PLACE : b->send, b->theirs, n,
                           s->mpi_type, s->mpi_op, MPI_COMM_WORLD));
    compare(b, s->in_place ? counts[rank] * s->bytes : b->bytes,
            "reduce_scatterv");
}

static void try_allreduce(struct shunt_comm *comm, const struct setting *s,
                          struct buffers *b)
{
    int n = s->counts[0][0] * size;

    ok(comm,
       shunt_allreduce(comm, s->in_place ? SHUNT_IN_PLACE : b->send, b->ours,
                       (size_t)n, s->dtype, s->op),
       "allreduce");
    mpi(MPI_Allreduce(s->in_place ? MPI_IN_PLACE : b->send, b->theirs, n,
                      s->mpi_type, s->mpi_op, MPI_COMM_WORLD));
    compare(b, b->bytes, "allreduce");
}

static void try_alltoall(struct shunt_comm *comm, const struct setting *s,
                         struct buffers *b)
{
    int n = s->counts[0][0];

    ok(comm,
       shunt_alltoall(comm, s->in_place ? SHUNT_IN_PLACE : b->send, b->ours,
                      (size_t)n, s->dtype),
       "alltoall");
    mpi(MPI_Alltoall(s->in_place ? MPI_IN_PLACE : b->send, n, s->mpi_type,
                     b->theirs, n, s->mpi_type, MPI_COMM_WORLD));
    compare(b, b->bytes, "alltoall");
}

static void try_alltoallv(struct shunt_comm *comm, const struct setting *s,
                          struct buffers *b)
{
    size_t sc[MAX_RANKS], sd[MAX_RANKS], rc[MAX_RANKS], rd[MAX_RANKS];
    int in[MAX_RANKS], displs_out[MAX_RANKS], displs_in[MAX_RANKS];

    for (int i = 0; i < size; i++)
        in[i] = s->counts[i][rank];
    displacements(s->counts[rank], displs_out);
    displacements(in, displs_in);
    widen(s->counts[rank], sc);
    widen(displs_out, sd);
    widen(in, rc);
    widen(displs_in, rd);
    ok(comm,
       shunt_alltoallv(comm, s->in_place ? SHUNT_IN_PLACE : b->send, sc, sd,
                       b->ours, rc, rd, s->dtype),
       "alltoallv");
    mpi(MPI_Alltoallv(s->in_place ? MPI_IN_PLACE : b->send, s->counts[rank],
                      displs_out, s->mpi_type, b->theirs, in, displs_in,
                      s->mpi_type, MPI_COMM_WORLD));
    compare(b, b->bytes, "alltoallv");
}

static void (*const tries[])(struct shunt_comm *, const struct setting *,
                             struct buffers *) = {
    try_broadcast,       try_allgather, try_allgatherv, try_reduce_scatter,
    try_reduce_scatterv, try_allreduce, try_alltoall,   try_alltoallv,
};
enum { TRIES = sizeof(tries) / sizeof(*tries) };

static void make_buffers(struct buffers *b, size_t bytes)
{
    b->bytes = bytes;
    b->send = malloc(bytes);
    b->ours = malloc(bytes);
    b->theirs = malloc(bytes);
    if (!b->send || !b->ours || !b->theirs)
        fail("no memory");
}

static void free_buffers(struct buffers *b)
{
    free(b->send);
    free(b->ours);
    free(b->theirs);
}

static void try_large(struct shunt_comm *comm, struct random *local, size_t mib)
{
    struct setting s = {.dtype = SHUNT_F32,
                        .mpi_type = MPI_FLOAT,
                        .op = SHUNT_SUM,
                        .mpi_op = MPI_SUM,
                        .bytes = 4};
    int count = (int)((mib << 20) / 4 / (size_t)size);
    struct buffers b;

    for (int i = 0; i < size; i++)
        for (int k = 0; k < size; k++)
            s.counts[i][k] = count;
    make_buffers(&b, (size_t)size * ((size_t)count + 64) * 4);
    for (int i = 0; i < TRIES; i++) {
        fill(&s, local, &b);
        tries[i](comm, &s, &b);
    }
    free_buffers(&b);
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 200;
    struct random shared, local;
    struct shunt_comm *comm;
    struct buffers b;

    mpi(MPI_Init(&argc, &argv));
    mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    mpi(MPI_Comm_size(MPI_COMM_WORLD, &size));
    if (size > MAX_RANKS)
        fail("too many ranks");
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    shared.state = seed;
    local.state = seed * 1000 + (uint64_t)rank;
    ok(NULL, shunt_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm), "create");
    make_buffers(&b, (size_t)size * (MOST + 64) * 8);
    for (round_number = 0; round_number < rounds; round_number++) {
        struct setting s;

        draw(&s, &shared);
        fill(&s, &local, &b);
        tries[random_below(&shared, TRIES)](comm, &s, &b);
    }
    if (argc > 3)
        try_large(comm, &local, strtoull(argv[3], NULL, 10));
    ok(comm, shunt_comm_finish(comm), "finish");
    shunt_comm_destroy(comm);
    free_buffers(&b);
    MPI_Finalize();
    return 0;
}
