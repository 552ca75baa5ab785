// SPDX-License-Identifier: Apache-2.0
/*
 * Times MPI's collective calls, without use of Shunt: perf/drop-in runs it with
 * and without the drop-in.
 *
 *     dropin [-c CALL,...] [-b BYTES] [-e BYTES] [-f FACTOR] [-t SECONDS]
 *     dropin -s [-c CALL,...] [-b BYTES]
 *
 * CALL: alltoallv alltoall allgather reduce_scatter_block allreduce bcast
 * barrier. Sizes are those of a block (alltoall, alltoallv: for each pair;
 * allgather, reduce_scatter_block: of each rank) or of the vector, in memory of
 * malloc(). Rank 0 prints a line for each size:
 *
 *     CALL BYTES MICROSECONDS
 *
 * the median of some batches. A batch is several calls back to back; its time
 * is that of the slowest rank. The first byte of each block is checked. With
 * -s, rank 0 instead prints the times of the very first call and of the next
 * one, for each CALL.
 */
#include <mpi.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCHES = 9 };

static int rank, ranks;
static char *in, *out;
static int *counts, *displs;

static void fail(const char *text)
{
    fprintf(stderr, "dropin: %s\n", text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* --- the calls ------------------------------------------------------------ */

static void alltoallv(size_t bytes, int turn)
{
    (void)bytes;
    (void)turn;
    MPI_Alltoallv(in, counts, displs, MPI_BYTE, out, counts, displs, MPI_BYTE,
                  MPI_COMM_WORLD);
}

static void alltoall(size_t bytes, int turn)
{
    (void)turn;
    MPI_Alltoall(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE,
                 MPI_COMM_WORLD);
}

static void allgather(size_t bytes, int turn)
{
    (void)turn;
    MPI_Allgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE,
                  MPI_COMM_WORLD);
}

static void reduce_scatter_block(size_t bytes, int turn)
{
    (void)turn;
    MPI_Reduce_scatter_block(in, out, (int)(bytes / sizeof(float)), MPI_FLOAT,
                             MPI_SUM, MPI_COMM_WORLD);
}

static void allreduce(size_t bytes, int turn)
{
    (void)turn;
    MPI_Allreduce(in, out, (int)(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

/* Each rank is root in turn: otherwise the root would be far ahead of the
 * others. */
static void bcast(size_t bytes, int turn)
{
    MPI_Bcast(out, (int)bytes, MPI_BYTE, turn % ranks, MPI_COMM_WORLD);
}

static void barrier(size_t bytes, int turn)
{
    (void)bytes;
    (void)turn;
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The contents of `out` after a call. */
enum result { FROM_EACH, GATHERED, SUM, ROOTS, NOTHING };

static const struct call {
    const char *name;
    void (*run)(size_t bytes, int turn);
    enum result result;
} calls[] = {
    {"alltoallv", alltoallv, FROM_EACH},
    {"alltoall", alltoall, FROM_EACH},
    {"allgather", allgather, GATHERED},
    {"reduce_scatter_block", reduce_scatter_block, SUM},
    {"allreduce", allreduce, SUM},
    {"bcast", bcast, ROOTS},
    {"barrier", barrier, NOTHING},
};

enum { CALLS = sizeof(calls) / sizeof(calls[0]) };

/* --- data ----------------------------------------------------------------- */

static void fill(const struct call *call, size_t bytes)
{
    for (int r = 0; r < ranks; r++) {
        counts[r] = (int)bytes;
        displs[r] = (int)bytes * r;
    }
    memset(out, 0xff, bytes * (size_t)ranks);
    if (call->result == SUM) {
        float *numbers = (float *)(void *)in;
        for (size_t i = 0; i < bytes * (size_t)ranks / sizeof(float); i++)
            numbers[i] = (float)(rank + 1);
    } else {
        for (int r = 0; r < ranks; r++)
            memset(in + bytes * (size_t)r,
                   rank + (call->result == FROM_EACH) * r, bytes);
        if (call->result == ROOTS)
            memset(out, rank, bytes);
    }
}

static int right(const struct call *call, size_t bytes)
{
    float sum;

    if (call->result == NOTHING || bytes == 0)
        return 1;
    memcpy(&sum, out, sizeof(sum));
    if (call->result == SUM)
        return sum == (float)(ranks * (ranks + 1) / 2);
    /* The root of the first call was rank 0. Later roots then sent rank 0's
     * data on. */
    if (call->result == ROOTS)
        return out[0] == 0;
    for (int r = 0; r < ranks; r++)
        if (out[bytes * (size_t)r] !=
            (char)(r + (call->result == FROM_EACH) * rank))
            return 0;
    return 1;
}

/* --- time ----------------------------------------------------------------- */

/* Returns the seconds that `n` calls took on the slowest rank. All ranks get
 * the same value. */
static double batch(const struct call *call, size_t bytes, int n)
{
    double took, slowest;

    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < n; i++)
        call->run(bytes, i);
    took = MPI_Wtime() - start;
    MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct call *call, size_t bytes, double seconds)
{
    double times[BATCHES];
    int n = 1;

    fill(call, bytes);
    batch(call, bytes, 1); /* the very first call makes communicators */
    /* Double the calls until they fill a batch; this also warms up. */
    for (;;) {
        double took = batch(call, bytes, n);
        if (took * BATCHES >= seconds || n >= 1 << 20)
            break;
        int wanted = (int)(n * seconds / BATCHES / (took + 1e-9)) + 1;
        n = wanted < 2 * n ? wanted : 2 * n;
    }
    for (int i = 0; i < BATCHES; i++)
        times[i] = batch(call, bytes, n) / n;
    qsort(times, BATCHES, sizeof(times[0]), compare);
    if (!right(call, bytes))
        fail("a result is wrong");
    if (rank == 0) {
        printf("%s %zu %.3f\n", call->name, bytes, times[BATCHES / 2] * 1e6);
        fflush(stdout);
    }
}

static void measure_first(const struct call *call, size_t bytes)
{
    double times[2];

    fill(call, bytes);
    for (int i = 0; i < 2; i++)
        times[i] = batch(call, bytes, 1);
    if (rank == 0)
        printf("%s-first %zu %.3f\n%s-next %zu %.3f\n", call->name, bytes,
               times[0] * 1e6, call->name, bytes, times[1] * 1e6);
}

static int wanted(const char *name, const char *list)
{
    size_t n = strlen(name);

    for (const char *at = list; at && *at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || !at[n]))
            return 1;
    }
    return !list;
}

int main(int argc, char **argv)
{
    size_t first = 8, last = 16 << 20, factor = 4;
    const char *list = NULL;
    double seconds = 0.2;
    int option, firsts = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    while ((option = getopt(argc, argv, "c:b:e:f:t:s")) != -1) {
        switch (option) {
        case 'c':
            list = optarg;
            break;
        case 'b':
            first = strtoull(optarg, NULL, 10);
            break;
        case 'e':
            last = strtoull(optarg, NULL, 10);
            break;
        case 'f':
            factor = strtoull(optarg, NULL, 10);
            break;
        case 't':
            seconds = atof(optarg);
            break;
        case 's':
            firsts = 1;
            break;
        default:
            fail("[-c CALL,...] [-b BYTES] [-e BYTES] [-f FACTOR] [-t SECONDS] "
                 "[-s]");
        }
    }
    if (first < sizeof(float) || factor < 2 ||
        last * (size_t)ranks > (size_t)1 << 31)
        fail("sizes are 4 bytes or more, and 2 GiB or less for all ranks");
    in = malloc(last * (size_t)ranks);
    out = malloc(last * (size_t)ranks);
    counts = calloc((size_t)ranks, sizeof(*counts));
    displs = calloc((size_t)ranks, sizeof(*displs));
    if (!in || !out || !counts || !displs)
        fail("no memory");
    for (int c = 0; c < CALLS; c++) {
        if (!wanted(calls[c].name, list))
            continue;
        if (firsts) {
            measure_first(&calls[c], first);
            continue;
        }
        if (calls[c].result == NOTHING) {
            measure(&calls[c], 0, seconds);
            continue;
        }
        for (size_t bytes = first; bytes <= last; bytes *= factor)
            measure(&calls[c], bytes, seconds);
    }
    free(in);
    free(out);
    free(counts);
    free(displs);
    MPI_Finalize();
    return 0;
}
