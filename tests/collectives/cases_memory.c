// SPDX-License-Identifier: Apache-2.0
/*
 * Buffers of calls: in windows or not; more elements than 32 bits can count;
 * read late, or not at all; unmapped right after the call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/collectives/cases.h"

/* The memory of the result is independent of the memory of the inputs. Rank 0's
 * result is in a window, and is made in pieces, because its inputs are
 * streamed. The result itself must not be streamed. This must be the very first
 * call, before any stream has been used. */
static int mixed_memory(const struct rank *self)
{
    enum { COUNT = 100000 };
    void *window;
    int32_t *v;

    CHECK_OK(self->comm,
             shunt_mem_alloc(self->comm, COUNT * sizeof(*v), &window));
    v = self->rank == 0 ? window : malloc(COUNT * sizeof(*v));
    for (int i = 0; i < COUNT; i++)
        v[i] = i + self->rank;
    CHECK_OK(self->comm, shunt_allreduce(self->comm, SHUNT_IN_PLACE, v, COUNT,
                                         SHUNT_I32, SHUNT_MAX));
    for (int i = 0; i < COUNT; i++)
        CHECK(v[i] == i + self->size - 1, "element %d is %d", i, (int)v[i]);
    if (v != window)
        free(v);
    CHECK_OK(self->comm, shunt_mem_free(self->comm, window));
    return 0;
}

/* Every 16th operation has the same slot. So the answer to an operation may be
 * overwritten by the answer to a later one before the first rank looks.
 * Barriers on another communicator fix the order of the steps: a `_start` call
 * advances only its own operation. */
static int late_look(const struct rank *self)
{
    enum { OPS = 17, BLOCK = 4096 };
    const size_t bytes = (size_t)self->size * BLOCK;
    struct shunt_request *requests[OPS] = {NULL};
    struct shunt_comm *other;
    unsigned char *window, *out;
    void *p;

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &other));
    CHECK_OK(self->comm, shunt_mem_alloc(self->comm, (OPS + 1) * bytes, &p));
    window = p;
    out = window + bytes;
    memset(window, self->rank + 1, bytes);
    /* Call number 0: rank 0 copies the others' blocks at once. It does not look
     * again while the others finish the call. */
    for (int turn = 1; turn >= 0; turn--) {
        if (turn == (self->rank != 0))
            CHECK_OK(self->comm,
                     shunt_alltoall_start(self->comm, window, out, BLOCK,
                                          SHUNT_U8, &requests[0]));
        CHECK_OK(other, shunt_barrier(other));
    }
    if (self->rank != 0)
        CHECK_OK(self->comm, shunt_wait(&requests[0]));
    CHECK_OK(other, shunt_barrier(other));
    /* Calls 1 to 16: rank 0 offers its blocks, then the other ranks answer. */
    for (int turn = 0; turn < 2; turn++) {
        for (int k = 1; k < OPS && turn == (self->rank != 0); k++)
            CHECK_OK(self->comm,
                     shunt_alltoall_start(self->comm, window,
                                          out + (size_t)k * bytes, BLOCK,
                                          SHUNT_U8, &requests[k]));
        CHECK_OK(other, shunt_barrier(other));
    }
    CHECK_OK(self->comm, shunt_wait_all(requests, OPS));
    for (size_t i = 0; i < OPS * bytes; i++)
        CHECK(out[i] == i / BLOCK % (size_t)self->size + 1, "byte %zu", i);
    CHECK_OK(self->comm, shunt_mem_free(self->comm, window));
    CHECK_OK(other, shunt_comm_finish(other));
    shunt_comm_destroy(other);
    return 0;
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* late_reads USEC: every block is read by the kernel, and no call returns
 * before the delay of a read is over (SHUNT_FAULT=delay=USEC,fixed). */
static int late_reads(const struct rank *self)
{
    enum { BLOCK = 1 << 16 };
    const size_t bytes = (size_t)self->size * BLOCK;
    const double least = atof(self->argv[0]) * 1e-6;
    unsigned char *out = malloc(bytes), *in = malloc(bytes);
    struct shunt_comm_stats before, after;

    CHECK(out && in, "memory");
    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &before, sizeof(before)));
    for (int i = 0; i < 3; i++) {
        double began = now_s();

        memset(out, self->rank * 3 + i, bytes);
        CHECK_OK(self->comm,
                 shunt_alltoall(self->comm, out, in, BLOCK, SHUNT_U8));
        CHECK(now_s() - began >= least, "a call of %g s, with reads of %g s",
              now_s() - began, least);
        for (size_t b = 0; b < bytes; b++)
            CHECK(in[b] == (unsigned char)(b / BLOCK * 3 + (size_t)i),
                  "call %d, byte %zu is %d", i, b, in[b]);
    }
    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &after, sizeof(after)));
    CHECK(after.bytes_read - before.bytes_read == 3 * (bytes - BLOCK),
          "%llu B were read",
          (unsigned long long)(after.bytes_read - before.bytes_read));
    free(out);
    free(in);
    return 0;
}

/* The last rank cannot read its segment of rank 0's input (SHUNT_READ_MIN=1,
 * SHUNT_ALLREDUCE_DIRECT=0). So no rank gets a sum. */
static int unreadable_input(const struct rank *self)
{
    enum { SEGMENT = 1 << 16 };
    const size_t bytes = (size_t)self->size * SEGMENT;
    const int last = self->size - 1;
    unsigned char *in = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *out = malloc(bytes);
    char name[32];

    CHECK(in != MAP_FAILED && out, "memory");
    memset(in, 1, bytes);
    if (self->rank == 0)
        CHECK(!mprotect(in + (size_t)last * SEGMENT, SEGMENT, PROT_NONE),
              "mprotect");
    for (int i = 0; i < 3; i++) {
        enum shunt_status st =
            shunt_allreduce(self->comm, in, out, bytes, SHUNT_U8, SHUNT_SUM);

        CHECK(st == (self->rank == last ? SHUNT_ERR_INVALID : SHUNT_ERR_REMOTE),
              "%s", rank_why(self->comm, st));
        snprintf(name, sizeof(name), "rank %d", self->rank == last ? 0 : last);
        CHECK(strstr(shunt_last_error(self->comm), name), "%s",
              shunt_last_error(self->comm));
    }
    munmap(in, bytes);
    free(out);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    return 0;
}

/* Blocks of plain memory are both read and streamed until the ranks know which
 * is cheaper. The data are right either way. */
static int both_ways(const struct rank *self)
{
    enum { BYTES = 70000, CALLS = 300 };
    const size_t n = (size_t)self->size;
    unsigned char *in = malloc(n * BYTES), *out = malloc(n * BYTES);
    struct shunt_comm_stats stats;

    for (int call = 0; call < CALLS; call++) {
        memset(in, self->rank + call, n * BYTES);
        memset(out, POISON, n * BYTES);
        CHECK_OK(self->comm,
                 shunt_alltoall(self->comm, in, out, BYTES, SHUNT_U8));
        for (size_t from = 0; from < n; from++) {
            const unsigned char *block = out + from * BYTES;
            size_t at =
                filled_with(block, (unsigned char)(from + (size_t)call), BYTES);

            CHECK(at == BYTES, "call %d, from %zu, byte %zu: %d", call, from,
                  at, block[at]);
        }
    }
    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &stats, sizeof(stats)));
    CHECK(stats.bytes_staged >= BYTES, "nothing was staged");
    CHECK(stats.bytes_read >= BYTES ||
              !strstr(shunt_comm_transport(self->comm, !self->rank), "cma"),
          "nothing was read by the kernel");
    free(in);
    free(out);
    return 0;
}

/* Every argument that may be NULL is NULL. */
static int nothing_at_all(const struct rank *self)
{
    struct shunt_comm *c = self->comm;
    size_t zero[MAX_RANKS] = {0};

    CHECK_OK(c, shunt_broadcast(c, NULL, 0, SHUNT_F32, 0));
    CHECK_OK(c, shunt_allgather(c, NULL, NULL, 0, SHUNT_F32));
    CHECK_OK(c, shunt_allgatherv(c, NULL, 0, NULL, zero, NULL, SHUNT_F32));
    CHECK_OK(c, shunt_reduce_scatter(c, NULL, NULL, 0, SHUNT_F32, SHUNT_SUM));
    CHECK_OK(c,
             shunt_reduce_scatterv(c, NULL, NULL, zero, SHUNT_F32, SHUNT_SUM));
    CHECK_OK(c, shunt_allreduce(c, NULL, NULL, 0, SHUNT_F32, SHUNT_SUM));
    CHECK_OK(c, shunt_alltoall(c, NULL, NULL, 0, SHUNT_F32));
    CHECK_OK(c,
             shunt_alltoallv(c, NULL, zero, NULL, NULL, zero, NULL, SHUNT_F32));
    CHECK_OK(c, shunt_alltoallv(c, SHUNT_IN_PLACE, NULL, NULL, NULL, zero, NULL,
                                SHUNT_F32));
    return 0;
}

/* Maps address space, with large pages where the kernel provides them. */
static unsigned char *map_sparse(size_t bytes)
{
    unsigned char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        abort();
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

/* `bytes` of address space that is the same few pages over and over. */
static unsigned char *map_folded(size_t bytes, size_t fold)
{
    unsigned char *p = mmap(NULL, bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int fd = memfd_create("folded", MFD_CLOEXEC);

    if (p == MAP_FAILED || fd < 0 || ftruncate(fd, (off_t)fold))
        abort();
    for (size_t at = 0; at < bytes; at += fold) {
        size_t len = bytes - at < fold ? bytes - at : fold;

        if (mmap(p + at, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 fd, 0) == MAP_FAILED)
            abort();
    }
    close(fd);
    return p;
}

/* One block has more than 2^31 elements. A count that is truncated to 32 bits
 * would leave most of the pages unchanged. */
static int huge_count(const struct rank *self)
{
    const size_t fold = (size_t)8 << 20;
    const size_t count = ((size_t)1 << 31) + 4097;
    unsigned char *p = map_folded(count, fold);
    struct shunt_comm_stats stats;
    uint64_t moved;

    for (size_t i = 0; i < fold; i++)
        p[i] = self->rank ? POISON : (unsigned char)(i / 3);
    CHECK_OK(self->comm, shunt_broadcast(self->comm, p, count, SHUNT_U8, 0));
    for (size_t i = 0; i < fold; i++)
        CHECK(p[i] == (unsigned char)(i / 3), "byte %zu", i);
    CHECK_OK(self->comm,
             shunt_comm_get_stats(self->comm, &stats, sizeof(stats)));
    moved = stats.bytes_read + stats.bytes_staged + stats.bytes_mapped;
    /* A rank that reads counts the bytes it read; a rank that streams, those it
     * staged. */
    CHECK(moved == 0 || moved % count == 0, "%llu bytes moved",
          (unsigned long long)moved);
    munmap(p, count);
    return 0;
}

/* Displacements and totals beyond 32 bits, with small blocks: from plain memory
 * into a window, and back. */
static int huge_offsets(const struct rank *self)
{
    enum { BLOCK = 70000 };
    const size_t far = (size_t)5 << 30, bytes = far + 2 * BLOCK;
    size_t counts[MAX_RANKS], displs[MAX_RANKS];
    unsigned char *plain = map_sparse(bytes), *window;
    void *p;

    CHECK(self->size == 2, "made for two ranks");
    CHECK_OK(self->comm, shunt_mem_alloc(self->comm, bytes, &p));
    window = p;
    counts[0] = counts[1] = BLOCK;
    displs[0] = 12345;
    displs[1] = far;
    for (int way = 0; way < 2; way++) {
        unsigned char *from = way ? window : plain;
        unsigned char *to = way ? plain : window;

        for (int i = 0; i < 2; i++)
            from[displs[i] + BLOCK - 1] =
                (unsigned char)(1 + i + 4 * self->rank + 16 * way);
        CHECK_OK(self->comm, shunt_alltoallv(self->comm, from, counts, displs,
                                             to, counts, displs, SHUNT_U8));
        for (int i = 0; i < 2; i++)
            CHECK(to[displs[i] + BLOCK - 1] ==
                      1 + self->rank + 4 * i + 16 * way,
                  "way %d, block %d: %d", way, i, to[displs[i] + BLOCK - 1]);
    }
    CHECK_OK(self->comm, shunt_mem_free(self->comm, window));
    munmap(plain, bytes);
    return 0;
}

/* The input is unmapped as soon as the call has returned, with or without an
 * error. */
static int input_goes(const struct rank *self)
{
    enum { COUNT = 48, CALLS = 20 };
    const size_t bytes = COUNT * sizeof(float);

    for (int call = 0; call < CALLS; call++) {
        float out[COUNT], *in = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        enum shunt_status st;

        CHECK(in != MAP_FAILED, "no memory");
        for (int i = 0; i < COUNT; i++)
            in[i] = (float)(self->rank + i);
        st = shunt_allreduce(self->comm, in, out, COUNT, SHUNT_F32, SHUNT_SUM);
        munmap(in, bytes);
        for (int i = 0; !st && i < COUNT; i++)
            CHECK(out[i] == (float)(self->size * (self->size - 1) / 2 +
                                    i * self->size),
                  "call %d, element %d is %g", call, i, (double)out[i]);
        CHECK_OK(self->comm, shunt_barrier(self->comm));
    }
    return 0;
}

/* Some reads of rank 0 fail while other calls have reads in flight. Every call
 * ends, those that succeed have the right result, and no rank is counted as
 * lost. */
static int failed_reads_in_flight(const struct rank *self)
{
    enum { CALLS = 6, ROUNDS = 4, COUNT = 60000 };
    const float ranks = (float)(self->size * (self->size - 1) / 2);
    struct shunt_request *requests[CALLS];
    float *in[CALLS], *out[CALLS];

    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < CALLS; k++) {
            in[k] = malloc(COUNT * sizeof(float));
            out[k] = malloc(COUNT * sizeof(float));
            CHECK(in[k] && out[k], "no memory");
            for (int i = 0; i < COUNT; i++)
                in[k][i] = (float)(self->rank + k + i % 7);
            CHECK_OK(self->comm,
                     shunt_allreduce_start(self->comm, in[k], out[k], COUNT,
                                           SHUNT_F32, SHUNT_SUM, &requests[k]));
        }
        for (int k = 0; k < CALLS; k++) {
            const enum shunt_status st = shunt_wait(&requests[k]);

            for (int i = 0; !st && i < COUNT; i++)
                CHECK(out[k][i] == ranks + (float)(self->size * (k + i % 7)),
                      "round %d, call %d: element %d is %g", round, k, i,
                      (double)out[k][i]);
            CHECK_OK(self->comm, shunt_comm_async_status(self->comm));
            free(in[k]);
            free(out[k]);
        }
    }
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    return 0;
}

const struct rank_case memory_cases[] = {
    {.name = "mixed_memory", .run = mixed_memory},
    {.name = "late_look", .run = late_look},
    {.name = "both_ways", .run = both_ways, .min_ranks = 2},
    {.name = "failed_reads_in_flight", .run = failed_reads_in_flight},
    {.name = "input_goes", .run = input_goes},
    {.name = "late_reads",
     .run = late_reads,
     .no_threads = true,
     .min_ranks = 2},
    {.name = "unreadable_input",
     .run = unreadable_input,
     .no_threads = true,
     .min_ranks = 3},
    {.name = "nothing_at_all", .run = nothing_at_all},
    {.name = "huge_count", .run = huge_count, .no_threads = true},
    {.name = "huge_offsets",
     .run = huge_offsets,
     .no_threads = true,
     .min_ranks = 2,
     .max_ranks = 2},
    {.name = NULL},
};
