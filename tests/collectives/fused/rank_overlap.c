// SPDX-License-Identifier: Apache-2.0
/*
 * Do the fused calls hide communication? The test supplies the product: its
 * tiles wait for another rank, or take a given time.
 *
 *     rank_overlap panels_ahead  while the last rank is in its first tile, the
 *                                others compute three panels more
 *     rank_overlap within_bound  both calls take no longer than the bound of a
 *                                schedule that hides all it can
 *     rank_overlap own_gather    a tile waits for the all-gather of its chunk,
 *                                and for no later one
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "collectives/fused/worthwhile.h"
#include "src/comm.h"
#include "tests/harness/rank_main.h"

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void pause_for(double seconds)
{
    const struct timespec t = {
        (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    nanosleep(&t, NULL);
}

/* --- panels that are under way ---------------------------------------------- */

/* Each of two ranks has 128 rows. 32 KiB of 64 rows are 128 columns. */
enum { ROWS = 128, COLS = 1024, PANEL = 128, PANELS = COLS / PANEL };
/* Scratch holds four panels: one is computed, the others are under way. */
enum { AHEAD = 3 };
enum { MOST_RANKS = 8 };

/* Memory that all ranks share. */
struct board {
    _Atomic int panel[MOST_RANKS]; /* panel that the rank computes, from 0 */
};

struct product {
    struct board *board;
    int rank, size;
    double seconds; /* time to compute a row of a tile */
    bool waited;    /* the last rank has waited for the others */
    bool alone;     /* on the last rank: the others did not arrive */
};

static bool all_are_ahead(const struct product *p)
{
    for (int r = 0; r + 1 < p->size; r++)
        if (atomic_load(&p->board->panel[r]) < AHEAD)
            return false;
    return true;
}

static void fill(float *out, size_t rows, size_t cols, size_t ld, int rank)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            out[i * ld + j] = (float)(rank + 1);
}

static void tile_of_panel(void *arg, size_t row, size_t rows, size_t col,
                          size_t cols, float *out, size_t ld)
{
    struct product *p = arg;

    (void)row;
    atomic_store(&p->board->panel[p->rank], (int)(col / PANEL));
    if (p->rank == p->size - 1 && !p->waited) {
        const double end = now() + 8;

        while (!all_are_ahead(p) && now() < end)
            pause_for(1e-3);
        p->alone = !all_are_ahead(p);
        p->waited = true;
    }
    fill(out, rows, cols, ld, p->rank);
}

/* Map the memory that rank 0 created, through its file descriptor. */
static int open_board(const struct rank *self, struct board **board)
{
    char path[64] = "";
    int fd = -1;

    if (self->rank == 0) {
        fd = memfd_create("board", 0);
        CHECK(fd >= 0 && !ftruncate(fd, sizeof(**board)), "no memory");
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
    }
    CHECK_OK(self->comm,
             shunt_broadcast(self->comm, path, sizeof(path), SHUNT_U8, 0));
    if (self->rank)
        fd = open(path, O_RDWR);
    CHECK(fd >= 0, "no %s", path);
    *board =
        mmap(NULL, sizeof(**board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(*board != MAP_FAILED, "no map of %s", path);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    close(fd);
    return 0;
}

static int panels_ahead(const struct rank *self)
{
    struct product p = {.rank = self->rank, .size = self->size};
    const size_t rows = ROWS / 2 * (size_t)self->size;
    float *out = calloc(rows * COLS, sizeof(*out));
    const float sum = (float)(self->size * (self->size + 1) / 2);

    CHECK_RUN(open_board(self, &p.board));
    const struct shunt_gemm_reduce_scatter_args args = {
        .size = sizeof(args),
        .rows = rows,
        .cols = COLS,
        .tile = tile_of_panel,
        .arg = &p,
        .out = out,
        .dtype = SHUNT_F32,
    };
    CHECK_OK(self->comm, shunt_gemm_reduce_scatter(self->comm, &args));
    CHECK(!p.alone, "the others wait for panel 0 before they compute panel %d",
          AHEAD);
    for (size_t i = 0; i < ROWS / 2 * COLS; i++)
        CHECK(out[i] == sum, "element %zu is %g, not %g", i, (double)out[i],
              (double)sum);
    munmap(p.board, sizeof(*p.board));
    free(out);
    return 0;
}

/* --- the time of a call --------------------------------------------------- */

static void slow_tile(void *arg, size_t row, size_t rows, size_t col,
                      size_t cols, float *out, size_t ld)
{
    const struct product *p = arg;

    (void)row;
    (void)col;
    pause_for((double)rows * p->seconds);
    fill(out, rows, cols, ld, p->rank);
}

/* Two ranks. 1024 rows of 4 KiB are 8 chunks of each rank. */
enum { GATHERED = 1024, ROW_BYTES = 4096, CHUNKS = 8 };

struct fused {
    const struct rank *self;
    struct product product;
    struct shunt_gemm_reduce_scatter_args rs;
    struct shunt_allgather_gemm_args ag;
    float *out, *part;
    unsigned char *gathered;
};

static int call(const struct fused *f, bool gather, double *seconds)
{
    struct shunt_comm *comm = f->self->comm;

    CHECK_OK(comm, shunt_barrier(comm));
    const double began = now();
    if (gather)
        CHECK_OK(comm, shunt_allgather_gemm(comm, &f->ag));
    else
        CHECK_OK(comm, shunt_gemm_reduce_scatter(comm, &f->rs));
    *seconds = now() - began;
    return 0;
}

/* Measure the communication of one panel or chunk alone. */
static int one_part(const struct fused *f, bool gather, double *seconds)
{
    const size_t bytes = GATHERED / 2 / CHUNKS * ROW_BYTES;
    const size_t counts[] = {ROWS / 2 * PANEL, ROWS / 2 * PANEL};
    struct shunt_comm *comm = f->self->comm;

    CHECK_OK(comm, shunt_barrier(comm));
    const double began = now();
    if (gather)
        CHECK_OK(comm,
                 shunt_allgather(comm, f->part, f->gathered, bytes, SHUNT_U8));
    else
        CHECK_OK(comm, shunt_reduce_scatterv(comm, f->part, f->out, counts,
                                             SHUNT_F32, SHUNT_SUM));
    *seconds = now() - began;
    return 0;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* The completion time for p ranks and q parts on a serial link. Computing the
 * product takes C, and sending the data takes R. */
static double bound(double C, double R, double p, double q)
{
    return larger(C,
                  larger(C / (p * q) + R, C * (p - 1) / p + R / ((p - 1) * q)));
}

/* Other processes only make a call slower, so the best of several attempts
 * counts. */
static int is_within(const struct fused *f, bool gather)
{
    const double q = gather ? CHUNKS : PANELS;
    const double C = f->product.seconds * (gather ? GATHERED : ROWS * PANELS);
    struct shunt_comm *comm = f->self->comm;
    double ratio = 0, part = 0, best = 1e9;

    for (int i = 0; i < 10 && (i < 1 || best > 1.15); i++) {
        double mine[2] = {0, 0}, all[2];

        CHECK_RUN(one_part(f, gather, &mine[0]));
        CHECK_RUN(call(f, gather, &mine[1]));
        CHECK_OK(comm,
                 shunt_allreduce(comm, mine, all, 2, SHUNT_F64, SHUNT_MAX));
        part = all[0];
        ratio = all[1] / bound(C, q * part, 2, q);
        if (ratio < best)
            best = ratio;
        /* Without overlap the call takes C + R. If C + R is not clearly longer
         * than the bound, the attempt shows nothing. */
        CHECK(C + q * part > 1.3 * bound(C, q * part, 2, q),
              "a part takes %g s, the product %g s", part, C);
    }
    CHECK(best <= 1.15, "%s took %.2f of the bound (product %g s, a part %g s)",
          gather ? "allgather_gemm" : "gemm_reduce_scatter", best, C, part);
    return 0;
}

static int within_bound(const struct rank *self)
{
    const bool gather = self->argc > 0 && !strcmp(self->argv[0], "gather");
    struct fused f = {
        .self = self,
        .product = {.rank = self->rank, .size = self->size, .seconds = 0.4e-3},
        .out = calloc(ROWS * COLS, sizeof(float)),
        .part = calloc(ROWS * PANEL + GATHERED * ROW_BYTES, 1),
        .gathered = calloc(GATHERED, ROW_BYTES),
    };

    f.rs = (struct shunt_gemm_reduce_scatter_args){
        .size = sizeof(f.rs),
        .rows = ROWS,
        .cols = COLS,
        .tile = slow_tile,
        .arg = &f.product,
        .out = f.out,
        .dtype = SHUNT_F32,
    };
    f.ag = (struct shunt_allgather_gemm_args){
        .size = sizeof(f.ag),
        .rows = GATHERED,
        .cols = 64,
        .row_bytes = ROW_BYTES,
        .shard = SHUNT_IN_PLACE,
        .gathered = f.gathered,
        .tile = slow_tile,
        .arg = &f.product,
        .out = f.out,
        .dtype = SHUNT_F32,
    };
    CHECK_RUN(is_within(&f, gather));
    free(f.out);
    free(f.part);
    free(f.gathered);
    return 0;
}

/* --- several chunks in an all-gather ---------------------------------------- */

/* Each of two ranks has 2048 rows of 512 B: 32 chunks, in four all-gathers of
 * eight. */
enum { LONG = 4096, SHORT_ROW = 512, OF_RANK = 32, TOGETHER = 8, GATHERS = 4 };

struct chunked {
    struct shunt_comm *comm;
    size_t first; /* first row of the other rank */
    /* number of all-gathers under way when a chunk was multiplied */
    unsigned under_way[OF_RANK];
};

static void tile_of_chunk(void *arg, size_t row, size_t rows, size_t col,
                          size_t cols, float *out, size_t ld)
{
    struct chunked *c = arg;
    const struct shunti_operations *o = &c->comm->operations;

    (void)col;
    fill(out, rows, cols, ld, 0);
    if (row >= c->first && row < c->first + LONG / 2)
        c->under_way[(row - c->first) / (LONG / 2 / OF_RANK)] =
            (unsigned)(o->next_seq - 1 - o->finished);
}

/* Make links so slow that eight chunks are sent together
 * (collectives/fused/worthwhile.h): 2 MiB take 1.05 ms on such a link, and a
 * part takes at least 0.25 ms. */
static void let_links_be_slow(struct shunt_comm *comm)
{
    shunti_fused_state(comm)->setting = SHUNTI_FUSED_AUTO;
    comm->links.across = (struct shunti_link){.latency = 7.7e-6, .byte = 1e-9};
    comm->links.crowd = 1;
}

/* The first all-gather whose last chunk was multiplied at a wrong time; GATHERS
 * if there is none. At the right time exactly the later all-gathers are under
 * way. */
static int out_of_turn(const struct chunked *c)
{
    int i = 0;

    while (i < GATHERS &&
           c->under_way[(i + 1) * TOGETHER - 1] == (unsigned)(GATHERS - 1 - i))
        i++;
    return i;
}

/* If the machine stalls, an all-gather may end before a tile begins. So one
 * good attempt is enough. */
static int own_gather(const struct rank *self)
{
    struct chunked c = {.comm = self->comm, .first = self->rank ? 0 : LONG / 2};
    float *out = calloc(LONG, sizeof(*out));
    unsigned char *gathered = calloc(LONG, SHORT_ROW);
    int32_t mine = 0, both = 0;

    const struct shunt_allgather_gemm_args args = {
        .size = sizeof(args),
        .rows = LONG,
        .cols = 1,
        .row_bytes = SHORT_ROW,
        .shard = SHUNT_IN_PLACE,
        .gathered = gathered,
        .tile = tile_of_chunk,
        .arg = &c,
        .out = out,
        .dtype = SHUNT_F32,
    };
    let_links_be_slow(self->comm);
    for (int i = 0; i < 10 && both < GATHERS; i++) {
        const uint64_t before = self->comm->operations.finished;

        CHECK_OK(self->comm, shunt_allgather_gemm(self->comm, &args));
        /* the all-gathers and an agreement */
        CHECK(self->comm->operations.finished - before == GATHERS + 1,
              "%llu operations",
              (unsigned long long)(self->comm->operations.finished - before));
        mine = out_of_turn(&c);
        CHECK_OK(self->comm, shunt_allreduce(self->comm, &mine, &both, 1,
                                             SHUNT_I32, SHUNT_MIN));
    }
    CHECK(mine == GATHERS,
          "%u all-gathers were under way when the last chunk of number %d was "
          "multiplied",
          c.under_way[(mine + 1) * TOGETHER - 1], mine);
    free(gathered);
    free(out);
    return 0;
}

static const struct rank_case cases[] = {
    {"panels_ahead", panels_ahead, .min_ranks = 2, .max_ranks = MOST_RANKS},
    {"within_bound", within_bound, .min_ranks = 2, .max_ranks = 2},
    {"own_gather", own_gather, .min_ranks = 2, .max_ranks = 2},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    setenv("SHUNT_FUSED", "always", 0);
    return rank_main(argc, argv, cases);
}
