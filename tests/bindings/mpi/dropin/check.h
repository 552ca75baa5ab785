// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by the plain MPI programs of this folder: cases with names, inputs
 * that every rank can compute from a seed, and memory with its expected
 * contents. The library under test serves no call of this file: ranks agree on
 * the seed by the command line or by messages.
 */

#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A case runs on `min_ranks` ranks or more. On fewer ranks it is skipped, which
 * is printed. */
struct check_case {
    const char *name;
    void (*run)(int variant);
    int variant;
    int min_ranks;
};

extern int world_rank, world_size;

/* True if CHECK_WILD=1: also test correct MPI calls with which Open MPI 4.1 or
 * MPICH 4.0 themselves fail. */
extern bool check_wild;

/* Runs all cases, or those named in the arguments:
 * 
 *     program [--seed N] [--list] [CASE...]
 * 
 * Rank 0 prints "case NAME" before each case and "done NAME" after it. `level`
 * is passed to MPI_Init_thread(). `begin` and `end` are called before and after
 * all cases, unless NULL. Returns the exit status, after MPI_Finalize(). */
int check_main(int argc, char **argv, const struct check_case *cases, int level,
               void (*begin)(void), void (*end)(void));

/* For a program that calls MPI_Init() and MPI_Finalize() itself: call this
 * once, after MPI_Init(). */
void check_start(int argc, char **argv);

_Noreturn void check_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define CHECK(what)                                                \
    do {                                                           \
        if (!(what))                                               \
            check_fail(__FILE__, __LINE__, "not true: %s", #what); \
    } while (0)

/* Make a call that must succeed. */
#define MPI(call)                                                            \
    do {                                                                     \
        int status_ = (call);                                                \
        if (status_ != MPI_SUCCESS)                                          \
            check_fail(__FILE__, __LINE__, "status %d: %s", status_, #call); \
    } while (0)

/* -- chance -------------------------------------------------------------------
 */

/* Mixes its arguments into 64 bits. The result is the same on every rank in
 * every run. */
uint64_t mix(uint64_t a, uint64_t b);

/* Returns a number below `limit` that depends on the seed, on the case, and on
 * the number of earlier draws. So all ranks must draw equally often. */
uint64_t draw(uint64_t limit);
bool chance(int percent);

/* Begins round `n` of the case. Draws in a round do not depend on earlier
 * draws, so a rank may skip a round. */
void start_round(int n);

/* Returns a new key for inputs, the same on every rank. */
uint64_t fresh(void);

/* Returns a number below `limit` that differs between ranks. */
uint64_t draw_own(uint64_t limit);

/* Fill `order` with 0 .. n-1 in an order drawn by draw(). */
void draw_order(int *order, int n);

/* -- memory -------------------------------------------------------------------
 */

/* Bytes [lo, hi) around an origin, with guards on both sides. The program uses
 * `now`; `want` has the expected contents. */
struct memory {
    unsigned char *now, *want;
    ptrdiff_t lo;
    size_t size;
};

void memory_make(struct memory *m, ptrdiff_t lo, ptrdiff_t hi);
void *memory_at(const struct memory *m, ptrdiff_t at);
/* Sets input bytes, which must not change. */
void memory_set(struct memory *m, ptrdiff_t at, const void *bytes, size_t n);
/* Store the content that is expected at the end. */
void memory_expect(struct memory *m, ptrdiff_t at, const void *bytes, size_t n);
/* Check every byte including the guards, and free the memory. */
void memory_check(struct memory *m, const char *what);

/* -- communicators ------------------------------------------------------------
 */

/* Returns a communicator for a round, from a few that were made before: the
 * world's ranks in order, reversed or rotated, or a part of them. Returns
 * MPI_COMM_NULL if this rank is not in it. The caller must not free it. */
MPI_Comm some_comm(void);

static inline int comm_rank(MPI_Comm comm)
{
    int rank;
    MPI(MPI_Comm_rank(comm, &rank));
    return rank;
}

static inline int comm_size(MPI_Comm comm)
{
    int size;
    MPI(MPI_Comm_size(comm, &size));
    return size;
}

#endif
