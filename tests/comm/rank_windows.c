// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of test_windows.c. They free windows in ways that differ between
 * ranks. Even so, all ranks must identify later windows in the same way.
 *
 * Each case ends with two windows that are exchanged in both directions. A rank
 * that confused two windows would send the wrong bytes.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

/* Large enough that a block is not sent inline. */
#define BLOCK ((size_t)8192)
#define MAX_RANKS 16

static size_t window_bytes(const struct rank *self)
{
    return BLOCK * (size_t)self->size;
}

static unsigned char pattern(int rank, int dest, int tag, size_t i)
{
    return (unsigned char)((size_t)rank * 31 + (size_t)dest * 7 +
                           (size_t)tag * 101 + i * 13 + i / 256);
}

static void fill(const struct rank *self, unsigned char *window, int tag)
{
    for (int dest = 0; dest < self->size; dest++)
        for (size_t i = 0; i < BLOCK; i++)
            window[(size_t)dest * BLOCK + i] =
                pattern(self->rank, dest, tag, i);
}

static int check_block(const unsigned char *block, int source,
                       const struct rank *self, int tag)
{
    for (size_t i = 0; i < BLOCK; i++)
        CHECK(block[i] == pattern(source, self->rank, tag, i),
              "window %d of rank %d: byte %zu is %d, not %d", tag, source, i,
              block[i], pattern(source, self->rank, tag, i));
    return 0;
}

/* Every rank sends a block from `window` to every other rank. */
static int exchange(const struct rank *self, const void *window, int tag)
{
    static _Thread_local unsigned char got[MAX_RANKS * BLOCK];

    CHECK(self->size <= MAX_RANKS, "%d ranks", self->size);
    memset(got, 0xee, sizeof(got));
    CHECK_OK(self->comm,
             shunt_alltoall(self->comm, window, got, BLOCK, SHUNT_U8));
    for (int r = 0; r < self->size; r++)
        CHECK_RUN(check_block(got + (size_t)r * BLOCK, r, self, tag));
    return 0;
}

static int two_more(const struct rank *self)
{
    void *window[2];

    for (int i = 0; i < 2; i++) {
        CHECK_OK(self->comm,
                 shunt_mem_alloc(self->comm, window_bytes(self), &window[i]));
        fill(self, window[i], 50 + i);
    }
    for (int i = 0; i < 2; i++)
        CHECK_RUN(exchange(self, window[i], 50 + i));
    for (int i = 0; i < 2; i++)
        CHECK_OK(self->comm, shunt_mem_free(self->comm, window[i]));
    return 0;
}

/* Does the text of the last error name this rank? */
static bool names(const struct rank *self, int rank)
{
    char name[32];

    snprintf(name, sizeof(name), "rank %d", rank);
    return strstr(shunt_last_error(self->comm), name) != NULL;
}

/* --- the cases ------------------------------------------------------------ */

static int freed_by_ranks_without(const struct rank *self)
{
    /* One or two ranks have no part of the window; in the last round no rank
     * has one. */
    for (int round = 0; round <= self->size; round++) {
        bool without = round == self->size || self->rank == round ||
                       self->rank == round * 2 % self->size;
        void *window;

        CHECK_OK(self->comm,
                 shunt_mem_alloc(self->comm, without ? 0 : window_bytes(self),
                                 &window));
        CHECK(!window == without, "%p", window);
        CHECK_OK(self->comm, shunt_mem_free(self->comm, window));
        CHECK_RUN(two_more(self));
    }
    return 0;
}

static int refused_by_one(const struct rank *self)
{
    void *window;
    int nothing;

    for (int one = 0; one < self->size; one++) {
        enum shunt_status st;

        CHECK_OK(self->comm,
                 shunt_mem_alloc(self->comm, window_bytes(self), &window));
        fill(self, window, one);
        st = shunt_mem_free(self->comm,
                            self->rank == one ? (void *)&nothing : window);
        CHECK(st == (self->rank == one ? SHUNT_ERR_INVALID : SHUNT_ERR_REMOTE),
              "%s", rank_why(self->comm, st));
        CHECK(self->rank == one || names(self, one), "%s",
              shunt_last_error(self->comm));
        /* The window must still exist on all ranks. */
        CHECK_RUN(exchange(self, window, one));
        CHECK_RUN(two_more(self));
        fill(self, window, one + 1);
        CHECK_RUN(exchange(self, window, one + 1));
        CHECK_OK(self->comm, shunt_mem_free(self->comm, window));
        CHECK_RUN(two_more(self));
    }
    return 0;
}

static int freed_in_another_order(const struct rank *self)
{
    void *window[2];

    for (int i = 0; i < 2; i++) {
        CHECK_OK(self->comm,
                 shunt_mem_alloc(self->comm, window_bytes(self), &window[i]));
        fill(self, window[i], i);
    }
    for (int i = 0; i < 2; i++) {
        enum shunt_status st = shunt_mem_free(
            self->comm, window[self->rank == self->size - 1 ? 1 - i : i]);

        CHECK(st == SHUNT_ERR_MISMATCH, "%s", rank_why(self->comm, st));
        CHECK(names(self, self->size - 1), "%s", shunt_last_error(self->comm));
    }
    for (int i = 0; i < 2; i++)
        CHECK_RUN(exchange(self, window[i], i));
    CHECK_RUN(two_more(self));
    for (int i = 1; i >= 0; i--)
        CHECK_OK(self->comm, shunt_mem_free(self->comm, window[i]));
    return two_more(self);
}

/* One rank has a part of the window, but passes NULL when the others free
 * it. */
static int forgotten(const struct rank *self)
{
    enum shunt_status st;
    void *window;

    CHECK_OK(self->comm,
             shunt_mem_alloc(self->comm, window_bytes(self), &window));
    fill(self, window, 1);
    st = shunt_mem_free(self->comm, self->rank == 1 ? NULL : window);
    CHECK(st == SHUNT_ERR_MISMATCH, "%s", rank_why(self->comm, st));
    CHECK(names(self, 1), "%s", shunt_last_error(self->comm));
    CHECK_RUN(exchange(self, window, 1));
    CHECK_OK(self->comm, shunt_mem_free(self->comm, window));
    /* If all ranks pass NULL, nothing is freed. */
    CHECK_OK(self->comm, shunt_mem_free(self->comm, NULL));
    return two_more(self);
}

/* One rank passes no pointer for its part, or asks for too many bytes. */
static int not_had_by_one(const struct rank *self)
{
    for (int one = 0; one < self->size; one++) {
        int nowhere;
        void *window = &nowhere;
        size_t bytes = window_bytes(self);
        bool absurd = one % 2 != 0;
        enum shunt_status st;

        if (self->rank == one && absurd)
            bytes = SIZE_MAX / 2;
        st = shunt_mem_alloc(self->comm, bytes,
                             self->rank == one && !absurd ? NULL : &window);
        CHECK(st == (self->rank != one ? SHUNT_ERR_REMOTE
                     : absurd          ? SHUNT_ERR_MEMORY
                                       : SHUNT_ERR_INVALID),
              "%s", rank_why(self->comm, st));
        CHECK(self->rank == one || names(self, one), "%s",
              shunt_last_error(self->comm));
        CHECK((window == &nowhere) == (self->rank == one && !absurd), "%p",
              window);
        CHECK_RUN(two_more(self));
    }
    return 0;
}

/* Memory that a call under way still reads must not be freed before it has been
 * read. */
static int freed_while_in_use(const struct rank *self)
{
    static _Thread_local unsigned char got[MAX_RANKS * BLOCK];
    struct shunt_request *request;

    for (int i = 0; i < 20; i++) {
        void *window;

        CHECK_OK(self->comm,
                 shunt_mem_alloc(self->comm, window_bytes(self), &window));
        fill(self, window, i);
        CHECK_OK(self->comm, shunt_alltoall_start(self->comm, window, got,
                                                  BLOCK, SHUNT_U8, &request));
        CHECK_OK(self->comm, shunt_mem_free(self->comm, window));
        CHECK_OK(self->comm, shunt_wait(&request));
        for (int r = 0; r < self->size; r++)
            CHECK_RUN(check_block(got + (size_t)r * BLOCK, r, self, i));
    }
    return 0;
}

/* Registration is local, and wrong arguments must be refused at once. */
static int registrations(const struct rank *self)
{
    static unsigned char memory[4096];
    unsigned char *const middle = memory + 1024;

    CHECK(shunt_mem_register(NULL, memory, 1) == SHUNT_ERR_INVALID, "no comm");
    CHECK(shunt_mem_deregister(NULL, memory) == SHUNT_ERR_INVALID, "no comm");
    CHECK(shunt_mem_register(self->comm, NULL, 8) == SHUNT_ERR_INVALID, "NULL");
    CHECK(shunt_mem_register(self->comm, memory, 0) == SHUNT_ERR_INVALID, "0");
    CHECK(shunt_mem_register(self->comm, memory, SIZE_MAX) == SHUNT_ERR_INVALID,
          "more than there is");
    CHECK(strstr(shunt_last_error(self->comm), "mem_register"), "%s",
          shunt_last_error(self->comm));
    CHECK(shunt_mem_deregister(self->comm, memory) == SHUNT_ERR_INVALID,
          "never registered");
    CHECK_OK(self->comm, shunt_mem_register(self->comm, memory, 4096));
    CHECK_OK(self->comm, shunt_mem_register(self->comm, middle, 8));
    CHECK_OK(self->comm, shunt_mem_register(self->comm, memory, 8));
    CHECK(shunt_mem_deregister(self->comm, memory + 1) == SHUNT_ERR_INVALID,
          "not where it begins");
    for (int i = 0; i < 2; i++)
        CHECK_OK(self->comm, shunt_mem_deregister(self->comm, memory));
    CHECK(shunt_mem_deregister(self->comm, memory) == SHUNT_ERR_INVALID,
          "three times");
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    return 0; /* `middle` ends with the communicator */
}

/* One rank asks for more memory than it can have. Its error must give the
 * reason, the others' errors must name that rank, and the communicator must
 * stay usable. */
static int too_large_for_one(const struct rank *self)
{
    const bool greedy = self->rank == self->size - 1;
    const enum shunt_status want = greedy ? SHUNT_ERR_MEMORY : SHUNT_ERR_REMOTE;
    void *window;

    CHECK_STATUS(self->comm,
                 shunt_mem_alloc(self->comm,
                                 greedy ? PTRDIFF_MAX / 4096 * 4096 : 4096,
                                 &window),
                 want);
    CHECK(!window, "no window after an error");
    CHECK(strstr(shunt_last_error(self->comm),
                 greedy ? "bytes of shared memory: " : "rank"),
          "%s", shunt_last_error(self->comm));
    return two_more(self);
}

/* A call fails on this rank, while the rank also gets the late error of an
 * earlier call. Each error must have its own text. */
static int too_large_after_a_late_error(const struct rank *self)
{
    const bool greedy = self->rank == 0;
    const char *text;
    enum shunt_status st;
    float data[9] = {0};
    void *window;

    for (int i = 0; i < 50; i++) {
        st = shunt_broadcast(self->comm, data, greedy ? 8 : 9, SHUNT_F32, 0);
        CHECK(st == SHUNT_ERR_MISMATCH || (greedy && !st), "%s",
              shunt_strerror(st));
        st = shunt_mem_alloc(
            self->comm, greedy ? PTRDIFF_MAX / 4096 * 4096 : 4096, &window);
        text = shunt_last_error(self->comm);
        CHECK(st == (greedy ? SHUNT_ERR_MEMORY : SHUNT_ERR_REMOTE), "%s: %s",
              shunt_strerror(st), text);
        CHECK(strstr(text, greedy ? "bytes of shared memory: " : "mem_alloc"),
              "round %d: %s", i, text);
        st = shunt_barrier(self->comm);
        text = shunt_last_error(self->comm);
        CHECK(!st || (greedy && st == SHUNT_ERR_MISMATCH), "%s: %s",
              shunt_strerror(st), text);
        CHECK(!st || strstr(text, "broadcast"), "round %d: %s", i, text);
    }
    return two_more(self);
}

static const struct rank_case cases[] = {
    {"registrations", registrations, .min_ranks = 1},
    {"freed_by_ranks_without", freed_by_ranks_without, .min_ranks = 1},
    {"refused_by_one", refused_by_one, .min_ranks = 2},
    {"freed_in_another_order", freed_in_another_order, .min_ranks = 2},
    {"forgotten", forgotten, .min_ranks = 2},
    {"not_had_by_one", not_had_by_one, .min_ranks = 2},
    {"freed_while_in_use", freed_while_in_use, .min_ranks = 1},
    {"too_large_for_one", too_large_for_one, .min_ranks = 2},
    {"too_large_after_a_late_error", too_large_after_a_late_error,
     .min_ranks = 2},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
