// SPDX-License-Identifier: Apache-2.0
/*
 * The number of parts that takes the least time, found by measuring.
 *
 * Plans are told apart by the size class of their tokens: the power of two of
 * the most that a rank has. Of each class all degrees are tried in turn, some
 * times; then the best one stays. (Tutel, 2206.03382, keeps its degree in the
 * same way, by capacity.)
 *
 * All ranks have to decide alike. A rank's times travel in its record of the
 * next plan, which all ranks get anyway; a time counts once every rank has told
 * it, and what counts is the longest. So each rank knows the same times, and
 * decides by itself.
 */
#ifndef SHUNTI_DEGREE_H
#define SHUNTI_DEGREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/moe_parts.h>

/* 1, 2, 4 and 8 parts; their numbers are the index of one. */
#define SHUNTI_DEGREES SHUNT_MOE_DEGREES

/* Classes of up to 2^32 tokens: 0; 1; 2 and 3; 4 to 7; ... */
#define SHUNTI_DEGREE_CLASSES 34

/* Of each degree: the first is left out, since it pays for what is new. */
#define SHUNTI_DEGREE_SAMPLES 4

/* The times of a class, the same on all ranks. */
struct shunti_degree {
    unsigned samples[SHUNTI_DEGREES];
    double time[SHUNTI_DEGREES][SHUNTI_DEGREE_SAMPLES]; /* seconds a token */
};

/* Times that a rank tells at once; more are lost. */
#define SHUNTI_TIMES_MAX 4

struct shunti_time {
    uint64_t plan; /* its number in the exchange; 0: no time */
    uint32_t class, degree;
    double seconds; /* a token */
};

/* Of an exchange. */
struct shunti_degrees {
    struct shunti_degree class[SHUNTI_DEGREE_CLASSES];
    struct shunti_time told[SHUNTI_TIMES_MAX]; /* by this rank, for its next
                                                  record */
    unsigned ntold;
};

/* Of a plan. */
struct shunti_degree_of {
    bool wanted; /* its number of parts was left to us */
    bool told;   /* its time */
    uint32_t class, degree;
    size_t tokens; /* of the rank that has most */
};

unsigned shunti_degree_class(size_t tokens);
int shunti_degree_parts(unsigned degree);

/* A time of a degree. */
void shunti_degree_add(struct shunti_degree *degree, unsigned which,
                       double seconds);
/* Have all degrees been tried? */
bool shunti_degree_settled(const struct shunti_degree *degree);
/* The seconds of one that has been tried often enough; 0: not yet. */
double shunti_degree_time(const struct shunti_degree *degree, unsigned which);
/* The degree for the next plan: the one to try, or the best. */
unsigned shunti_degree_next(const struct shunti_degree *degree);

/* This rank tells a time; the oldest goes if there are too many. */
void shunti_degrees_tell(struct shunti_degrees *degrees,
                         const struct shunti_time *time);
/* Of a plan whose rank with most tokens has so many: returns its parts. */
int shunti_degree_choose(const struct shunti_degrees *degrees, size_t tokens,
                         struct shunti_degree_of *of);

/* What all ranks have told, (ranks, SHUNTI_TIMES_MAX), `stride` bytes apart;
 * what this rank told is gone with it. */
void shunti_degrees_hear(struct shunti_degrees *degrees, const void *told,
                         size_t stride, int ranks);

#endif
