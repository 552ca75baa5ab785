// SPDX-License-Identifier: Apache-2.0
/*
 * Random numbers that are a function of (seed, name, index). They have no
 * state. So they are the same on any number of ranks, and a checkpoint need not
 * save them.
 */
#ifndef WORKLOAD_RANDOM_H
#define WORKLOAD_RANDOM_H

#include <stdint.h>

/* A key for a stream of numbers. */
uint64_t random_key(uint64_t seed, const char *name);
/* The index-th number of a stream, uniform over 64 bits. */
uint64_t random_bits(uint64_t key, uint64_t index);
/* A number uniform in [0, 1). */
double random_uniform(uint64_t key, uint64_t index);
/* A normal number with mean 0 and deviation 1 (Box, Muller, 1958). */
double random_normal(uint64_t key, uint64_t index);

#endif
