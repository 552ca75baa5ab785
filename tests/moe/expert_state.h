// SPDX-License-Identifier: Apache-2.0
/* The places of experts and of their copies, and arrays with the state of
 * experts. */
#ifndef SHUNT_TEST_EXPERT_STATE_H
#define SHUNT_TEST_EXPERT_STATE_H

#include "tests/moe/exchange.h"

enum { EXPERTS_MAX = 24, ARRAYS_MAX = 4, RANKS_MAX = 16, FILL = 0xa5 };

struct placement {
    int experts;
    int32_t home[EXPERTS_MAX];
    bool has[EXPERTS_MAX][RANKS_MAX];
    struct shunt_moe_replica replicas[EXPERTS_MAX * RANKS_MAX];
    size_t nreplicas;
};

struct arrays {
    struct shunt_moe_state state;
    struct shunt_moe_array array[ARRAYS_MAX];
    int32_t slot[EXPERTS_MAX];
    unsigned char *memory[ARRAYS_MAX];
    size_t bytes[ARRAYS_MAX]; /* bytes of `memory` */
    size_t each;              /* bytes of one expert in all arrays together */
};

/* Random number `i` for the use `what`. */
uint64_t dice(uint64_t seed, uint64_t what, uint64_t i);

/* Draws copies of some experts on about one rank in three. For even seeds it is
 * two ranks in three, so that a node of three ranks has several copies, and the
 * order of their sum matters. */
void placement_draw(struct placement *p, const struct rank *self, int experts,
                    uint64_t seed);

/* Creates an exchange with this placement. If that fails, prints the error and
 * returns NULL. */
struct shunt_moe *placement_exchange(const struct rank *self,
                                     const struct placement *p);

/* The number of pairs of an expert with copies, and a node other than its
 * home's that has a copy. */
uint64_t placement_sent_to_nodes(const struct rank *self,
                                 const struct placement *p);

/* Makes arrays of random sizes and strides. Slots are in random order, and some
 * are free. All bytes are FILL. The sizes depend only on the seed. */
void arrays_make(struct arrays *a, const struct rank *self,
                 const struct placement *p, uint64_t seed, size_t element,
                 size_t most);

void arrays_drop(struct arrays *a);

/* The part of array `k` that belongs to an expert on this rank. */
unsigned char *arrays_at(const struct arrays *a, const struct rank *self,
                         const struct placement *p, int expert, int k);

/* Writes the state of this rank's experts: of those whose home it is, or also
 * of its copies if `copies` is true. */
void arrays_write(const struct arrays *a, const struct rank *self,
                  const struct placement *p, uint64_t version, bool copies);

/* All memory of this rank must be as arrays_write() would write it. */
int arrays_check(const struct arrays *a, const struct rank *self,
                 const struct placement *p, uint64_t version, bool copies);

/* Bytes that all ranks have sent to other nodes since `before`. */
int bytes_sent(const struct rank *self, uint64_t before, uint64_t *all);

/* Bytes that this rank has sent to other nodes. */
uint64_t bytes_counted(const struct rank *self);

#endif
