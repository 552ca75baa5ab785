// SPDX-License-Identifier: Apache-2.0
/*
 * What it costs a pair of ranks to move memory that is in no window: through
 * the ring of chunks (stream.h), or read by the kernel.
 *
 * Where both share a cache, two copies through it beat one by the kernel; where
 * they do not, every line of the ring crosses between the caches twice, and the
 * kernel's copy, which crosses once, is several times faster. Neither the
 * processor's topology (in a virtual machine it is made up, and the machine may
 * be moved) nor the number of ranks tells which. So each pair learns it in use.
 *
 * The receiver times its copies out of the ring and the kernel's reads, the
 * sender its copies into the ring. They tell each other by a word
 * (SHUNTI_WORD_WAYS) what those cost, which classes of sizes they want to read,
 * and which they try the other way just now: now and then, and as soon as the
 * way that is taken costs something else than when it was chosen. What both
 * ends spend is compared.
 *
 * Where both send to each other, both directions take the same way, or the ring
 * would stand still while one of them is in the kernel: blocks are read only if
 * both want that, and both try together.
 *
 * SHUNT_READ_MIN sets a limit instead, and nothing is learnt.
 */
#ifndef SHUNTI_WAYS_H
#define SHUNTI_WAYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shunt_comm;

/* Classes of sizes: from 8 KiB on, twice as much each; the last has no end. A
 * set of them has a bit for each. */
#define SHUNTI_WAYS_CLASSES 9

/* A cost: ns for 64 KiB; 0: not known. */
struct shunti_ways {
    float into, out;                   /* the ring: our copies to and from it */
    float told;                        /* of `into`, to the peer */
    float read[SHUNTI_WAYS_CLASSES];   /* by the kernel */
    float chosen[SHUNTI_WAYS_CLASSES]; /* the way that was chosen, then */
    uint16_t taken[SHUNTI_WAYS_CLASSES]; /* blocks since then, or tried */
    uint16_t
        patience[SHUNTI_WAYS_CLASSES]; /* of them, before a change counts */
    uint16_t wants;                    /* those that we want to read */
    uint16_t tries;       /* those that we want otherwise for a while, to see */
    uint16_t came;        /* those whose last block was read, */
    uint16_t before;      /* and was, when they began to be tried */
    uint16_t their_tries; /* as we last looked */
    /* Blocks that we may still send before what we want for those that we get
     * is
       no news any more. */
    uint8_t fresh[SHUNTI_WAYS_CLASSES];
    uint8_t into_chunks, out_chunks; /* until the next one is timed */
};

/* May the other way than the stream be taken, and is it ours to choose? */
bool shunti_ways_learn(const struct shunt_comm *comm, int peer);

/* Shall `bytes` for `peer` be read by it? For each block once. */
bool shunti_ways_read(struct shunt_comm *comm, int peer, size_t bytes);

/* The least size of a class; what 64 KiB from `peer` cost by the ring, both
 * ends together, in ns. For those who show them. */
size_t shunti_ways_class_bytes(int class);
float shunti_ways_ring_cost(const struct shunt_comm *comm, int peer);

/* Is it time to time a copy into the ring of `peer`, out of ours? */
bool shunti_ways_time_into(struct shunt_comm *comm, int peer);
bool shunti_ways_time_out(struct shunt_comm *comm, int peer);

/* What it took: `ns` for `bytes`. */
void shunti_ways_into(struct shunt_comm *comm, int peer, size_t bytes,
                      uint64_t ns);
void shunti_ways_out(struct shunt_comm *comm, int peer, size_t bytes,
                     uint64_t ns);
/* A piece of a block of `whole` bytes. */
void shunti_ways_was_read(struct shunt_comm *comm, int peer, size_t whole,
                          size_t bytes, uint64_t ns);

/* A block of the peer's has come, all of it. */
void shunti_ways_came(struct shunt_comm *comm, int peer, size_t bytes,
                      bool read);

#endif
