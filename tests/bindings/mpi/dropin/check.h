// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by the plain MPI programs of this folder: cases with names, inputs
 * that every rank can compute from a seed, and memory that remembers its
 * expected content. The library under test serves no call of this file: ranks
 * agree by the command line alone.
 */

#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A case runs on `min_ranks` or more; on fewer it is skipped, and says so. */
struct check_case {
    const char *name;
    void (*run)(int variant);
    int variant;
    int min_ranks;
};

extern int world_rank, world_size;

/* CHECK_WILD=1: also what is right MPI, but what Open MPI 4.1 or MPICH 4.0
 * themselves get wrong. */
extern bool check_wild;

/* Runs the cases, or those named in the arguments:
 *
 *     program [--seed N] [--list] [CASE...]
 *
 * Rank 0 prints "case NAME" before and "done NAME" after each of them. `level`
 * is what MPI_Init_thread() is asked for; `begin` and `end` are called before
 * and after all cases (NULL: nothing). Returns the exit status, after
 * MPI_Finalize(). */
int check_main(int argc, char **argv, const struct check_case *cases, int level,
               void (*begin)(void), void (*end)(void));

/* The same for a program that is between MPI_Init() and MPI_Finalize() by
 * itself: call once, after MPI_Init(). */
void check_start(int argc, char **argv);

_Noreturn void check_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define CHECK(what)                                                \
    do {                                                           \
        if (!(what))                                               \
            check_fail(__FILE__, __LINE__, "not true: %s", #what); \
    } while (0)

/* For calls that have to work. */
#define MPI(call)                                                            \
    do {                                                                     \
        int status_ = (call);                                                \
        if (status_ != MPI_SUCCESS)                                          \
            check_fail(__FILE__, __LINE__, "status %d: %s", status_, #call); \
    } while (0)

/* -- chance -------------------------------------------------------------------
 */

/* Mixes its arguments into 64 bits, the same on every rank in every run. */
uint64_t mix(uint64_t a, uint64_t b);

/* A number below `limit` that depends on the seed, on the case, and on how often
 * the case has asked: so the ranks have to ask alike. */
uint64_t draw(uint64_t limit);
bool chance(int percent);

/* Begins round `n` of the case: what is drawn in it does not depend on what was
 * drawn before, so that a rank may leave a round out. */
void start_round(int n);

/* A key for inputs of what comes next; the same on every rank. */
uint64_t fresh(void);

/* A number of this rank's own. */
uint64_t draw_own(uint64_t limit);

/* 0 .. n-1 in an order drawn by `draw`. */
void draw_order(int *order, int n);

/* -- memory -------------------------------------------------------------------
 */

/* Bytes [lo, hi) round an origin, with guards on both sides: `now` is what a
 * program uses, `want` what it should look like. */
struct memory {
    unsigned char *now, *want;
    ptrdiff_t lo;
    size_t size;
};

void memory_make(struct memory *m, ptrdiff_t lo, ptrdiff_t hi);
void *memory_at(const struct memory *m, ptrdiff_t at);
/* Sets bytes as an input, which have to stay as they are. */
void memory_set(struct memory *m, ptrdiff_t at, const void *bytes, size_t n);
/* Store the content that is expected at the end. */
void memory_expect(struct memory *m, ptrdiff_t at, const void *bytes, size_t n);
/* Check every byte including the guards, and free the memory. */
void memory_check(struct memory *m, const char *what);

/* -- communicators ------------------------------------------------------------
 */

/* A communicator for a round, of a few that are made once: the world's ranks in
 * order, reversed or rotated, or a part of them. MPI_COMM_NULL where this rank
 * is not in it. Not to be freed. */
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
