// SPDX-License-Identifier: Apache-2.0
/*
 * The cost of moving memory that is in no window between two ranks: through the
 * ring of chunks (stream.h), or by a read of the kernel.
 *
 * If both ranks share a cache, two copies through it are cheaper than one by
 * the kernel. If they do not, every line of the ring crosses between the caches
 * twice. The kernel's copy crosses once, and is several times faster. Neither
 * the processor's topology nor the number of ranks tells which case it is: a
 * virtual machine makes its topology up, and may be moved. So each pair of
 * ranks measures the costs in use.
 *
 * The receiver times its copies out of the ring and the kernel's reads. The
 * sender times its copies into the ring. Each sends the other one word
 * (SHUNTI_WORD_WAYS). The word has its costs, the size classes that it wants to
 * read, and those for which it tries the other protocol at the moment. A trial
 * begins now and then, and as soon as the cost of the protocol in use has
 * changed since the choice. The costs of both ends are added, and the sums
 * compared.
 *
 * If both ranks send to each other, both directions use the same protocol;
 * otherwise the ring would stand still while one of the ranks is in the kernel.
 * Blocks are read only if both ranks want that, and both ranks try together.
 *
 * If SHUNT_READ_MIN is set it is the limit, and nothing is measured.
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
    /* of this rank's copies into the peer's ring, and out of its own ring */
    float into, out;
    float into_sent;                 /* the value of `into` that was last sent
                                        to the peer */
    float read[SHUNTI_WAYS_CLASSES]; /* of reads by the kernel */
    /* cost of the protocol in use, at the time of its choice */
    float chosen[SHUNTI_WAYS_CLASSES];
    /* blocks since the choice, or since the trial began */
    uint16_t taken[SHUNTI_WAYS_CLASSES];
    /* blocks that must pass before a change of cost counts */
    uint16_t hold_off[SHUNTI_WAYS_CLASSES];
    uint16_t wants;       /* classes that this rank wants to read */
    uint16_t tries;       /* classes for which this rank tries the other
                             protocol */
    uint16_t last_read;   /* classes whose last block was read, */
    uint16_t before;      /* and those whose last block was read when the trial
                             began */
    uint16_t their_tries; /* the peer's `tries` as last seen */
    /* Blocks that this rank may still send before its own `wants`, which is for
     * blocks that it receives, no longer counts. */
    uint8_t fresh[SHUNTI_WAYS_CLASSES];
    /* chunks until the next one whose copy is timed */
    uint8_t into_chunks, out_chunks;
};

/* Can the kernel read the peer's memory, and does the user leave the choice to
 * the library? */
bool shunti_pair_costs_learn(const struct shunt_comm *comm, int peer);

/* Shall `peer` read a block of `bytes`? Call this once for each block that is
 * sent. */
bool shunti_pair_costs_read(struct shunt_comm *comm, int peer, size_t bytes);

/* For reports: the least size of a class; and the cost of 64 KiB from `peer`
 * through the ring, both ends together, in ns. */
size_t shunti_pair_costs_class_bytes(int class);
float shunti_pair_costs_ring_cost(const struct shunt_comm *comm, int peer);
/* For reports: is the other protocol being tried for a class, as far as this
 * rank knows? If so, the cost of that protocol is not known. */
bool shunti_pair_costs_in_trial(const struct shunt_comm *comm, int peer,
                                int class);

/* Shall the next copy into the ring of `peer`, or out of this rank's ring, be
 * timed? */
bool shunti_pair_costs_time_into(struct shunt_comm *comm, int peer);
bool shunti_pair_costs_time_out(struct shunt_comm *comm, int peer);

/* Record that the timed copy took `ns` for `bytes`. */
void shunti_pair_costs_into(struct shunt_comm *comm, int peer, size_t bytes,
                            uint64_t ns);
void shunti_pair_costs_out(struct shunt_comm *comm, int peer, size_t bytes,
                           uint64_t ns);
/* Record that the kernel read `bytes` of a block of `whole` bytes in `ns`. */
void shunti_pair_costs_was_read(struct shunt_comm *comm, int peer, size_t whole,
                                size_t bytes, uint64_t ns);

/* Record that a block from `peer` has been received completely. */
void shunti_pair_costs_received(struct shunt_comm *comm, int peer, size_t bytes,
                                bool read);

#endif
