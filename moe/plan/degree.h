// SPDX-License-Identifier: Apache-2.0
/*
 * The number of parts that takes the least time, found by measuring.
 *
 * Plans are sorted into classes by their tokens: the class is the power of two
 * of the largest count of any rank. In each class all degrees are tried in
 * turn, several times. Then the best one stays. (Tutel, 2206.03382, does so by
 * capacity.)
 *
 * All ranks must choose alike. So a rank puts its times into its record of the
 * next plan, which all ranks receive anyway. A time counts once every rank has
 * reported it, and the longest one is used. So every rank has the same times,
 * and chooses by itself.
 */
#ifndef SHUNTI_DEGREE_H
#define SHUNTI_DEGREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/moe_parts.h>

/* 1, 2, 4 and 8 parts. A degree is the index of a number in this list. */
#define SHUNTI_DEGREES SHUNT_MOE_DEGREES

/* Classes for up to 2^32 tokens: 0; 1; 2 and 3; 4 to 7; ... */
#define SHUNTI_DEGREE_CLASSES 34

/* Number of times that are kept for each degree. The first one is ignored: it
 * includes one-time costs. */
#define SHUNTI_DEGREE_SAMPLES 4

/* Times of a class, the same on all ranks. */
struct shunti_degree {
    unsigned samples[SHUNTI_DEGREES];
    double time[SHUNTI_DEGREES][SHUNTI_DEGREE_SAMPLES]; /* seconds per token */
};

/* Times that a rank can report at once; further ones replace the oldest. */
#define SHUNTI_TIMES_MAX 4

struct shunti_time {
    uint64_t plan; /* number of the plan in the exchange; 0: no time */
    uint32_t class, degree;
    double seconds; /* seconds per token */
};

/* The times of an exchange. */
struct shunti_degrees {
    struct shunti_degree class[SHUNTI_DEGREE_CLASSES];
    /* Times that this rank puts into its next record. */
    struct shunti_time times[SHUNTI_TIMES_MAX];
    unsigned ntimes;
};

/* The degree of a plan. */
struct shunti_degree_of {
    bool wanted;   /* the caller left the number of parts to the library */
    bool reported; /* the caller has reported the plan's time */
    uint32_t class, degree;
    size_t tokens; /* the most tokens that any rank has */
};

unsigned shunti_degree_class(size_t tokens);
int shunti_degree_parts(unsigned degree);

/* Add a time of the degree `which`. */
void shunti_degree_add(struct shunti_degree *degree, unsigned which,
                       double seconds);
/* True if all degrees have been tried often enough. */
bool shunti_degree_settled(const struct shunti_degree *degree);
/* The median time of the degree `which` in seconds; 0: not tried often enough
 * yet. */
double shunti_degree_time(const struct shunti_degree *degree, unsigned which);
/* The degree for the next plan: the one to try next, or the best. */
unsigned shunti_degree_next(const struct shunti_degree *degree);

/* Keep a time of this rank for its next record. If there are too many times,
 * the oldest one is dropped. */
void shunti_degrees_add_time(struct shunti_degrees *degrees,
                             const struct shunti_time *time);
/* Choose the degree of a plan, and fill in *of. Returns the number of parts.
 * tokens: the most tokens that any rank has. */
int shunti_degree_choose(const struct shunti_degrees *degrees, size_t tokens,
                         struct shunti_degree_of *of);

/* Add the times that all ranks have reported, and empty this rank's own list.
 * times: (ranks, SHUNTI_TIMES_MAX); ranks are `stride` bytes apart. */
void shunti_degrees_read_times(struct shunti_degrees *degrees,
                               const void *times, size_t stride, int ranks);

#endif
