// SPDX-License-Identifier: Apache-2.0
/*
 * What it costs a pair of ranks to move memory that is in no window: through
 * the ring of chunks (stream.h), or read by the kernel.
 *
 * Where both ranks share a cache, two copies through it take less than one by
 * the kernel. Where they do not, every line of the ring crosses between the
 * caches twice, and the kernel's copy, which crosses once, is several times
 * faster. Neither the processor's topology (made up in a virtual machine, which
 * may also be moved) nor the number of ranks tells which. So each pair learns
 * it in use.
 *
 * The receiver times its copies out of the ring and the kernel's reads; the
 * sender times its copies into the ring. They tell each other by a word
 * (SHUNTI_WORD_WAYS) what those cost, which size classes they want to read, and
 * for which they try the other protocol at the moment: now and then, and as
 * soon as the protocol in use costs something else than when it was chosen.
 * What both ends spend is compared.
 *
 * Where both send to each other, both directions use the same protocol;
 * otherwise the ring would stand still while one of the ranks is in the kernel.
 * Blocks are read only if both want that, and both try together.
 *
 * If SHUNT_READ_MIN is set it is the limit, and nothing is learnt.
 */
#ifndef SHUNTI_PAIR_COSTS_H
#define SHUNTI_PAIR_COSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shunt_comm;

/* Size classes: from 8 KiB on, each begins at twice the size of the one before;
 * the last has no end. A set of classes has a bit for each. */
#define SHUNTI_WAYS_CLASSES 9

/* Part of a peer. A cost is in ns for 64 KiB; 0: not known. */
struct shunti_pair_costs {
    /* of our copies into the peer's ring, and out of ours */
    float into, out;
    float told;                      /* `into` as the peer was told it */
    float read[SHUNTI_WAYS_CLASSES]; /* of reads by the kernel */
    /* of the protocol that was chosen, when it was */
    float chosen[SHUNTI_WAYS_CLASSES];
    /* blocks since then, or in the trial */
    uint16_t taken[SHUNTI_WAYS_CLASSES];
    /* so many of them before a change of cost counts */
    uint16_t hold_off[SHUNTI_WAYS_CLASSES];
    uint16_t wants;       /* classes that we want to read */
    uint16_t tries;       /* classes for which we try the other protocol */
    uint16_t came;        /* classes whose last block was read, */
    uint16_t before;      /* and those where it was when the trial began */
    uint16_t their_tries; /* the peer's `tries` as last seen */
    /* Blocks that may still be sent before our own wish, for the blocks that we
     * receive, no longer matters. */
    uint8_t fresh[SHUNTI_WAYS_CLASSES];
    /* chunks until the next one that is timed */
    uint8_t into_chunks, out_chunks;
};

/* Can the peer's memory be read, and is the choice left to us? */
bool shunti_pair_costs_learn(const struct shunt_comm *comm, int peer);

/* Is a block of `bytes` to be read by `peer`? Called once for each block
 * sent. */
bool shunti_pair_costs_read(struct shunt_comm *comm, int peer, size_t bytes);

/* The least size of a class; and the cost of 64 KiB from `peer` through the
 * ring, both ends together, in ns. For reports. */
size_t shunti_pair_costs_class_bytes(int class);
float shunti_pair_costs_ring_cost(const struct shunt_comm *comm, int peer);
/* Is the other protocol being tried for a class, as far as we know? What it
 * costs is then not known. For reports. */
bool shunti_pair_costs_in_trial(const struct shunt_comm *comm, int peer,
                                int class);

/* Is the next copy into the ring of `peer`, or out of ours, to be timed? */
bool shunti_pair_costs_time_into(struct shunt_comm *comm, int peer);
bool shunti_pair_costs_time_out(struct shunt_comm *comm, int peer);

/* That copy took `ns` for `bytes`. */
void shunti_pair_costs_into(struct shunt_comm *comm, int peer, size_t bytes,
                            uint64_t ns);
void shunti_pair_costs_out(struct shunt_comm *comm, int peer, size_t bytes,
                           uint64_t ns);
/* The kernel read `bytes` of a block of `whole` bytes. */
void shunti_pair_costs_was_read(struct shunt_comm *comm, int peer, size_t whole,
                                size_t bytes, uint64_t ns);

/* A block from `peer` has been received completely. */
void shunti_pair_costs_came(struct shunt_comm *comm, int peer, size_t bytes,
                            bool read);

#endif
