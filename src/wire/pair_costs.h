// SPDX-License-Identifier: Apache-2.0
/*
 * The cost of moving memory that is in no window between two ranks: through the
 * ring of chunks (stream.h), or by a read of the kernel.
 *
 * If both ranks share a cache, two copies through it are cheaper than one by
 * the kernel. If they do not share one, every line of the ring crosses between
 * the caches twice. The kernel's copy crosses once, and is several times
 * faster. Neither the processor's topology nor the number of ranks shows which
 * case applies: a virtual machine reports an invented topology, and may be
 * moved. So each pair of ranks measures the costs while it works.
 *
 * The receiver times its copies out of the ring and the kernel's reads. The
 * sender times its copies into the ring. Each rank sends its peer one word
 * (SHUNTI_WORD_WAYS). The word has the cost of copies into the ring, the size
 * classes that the rank wants to read, and the classes for which it tries the
 * other protocol at the moment. A trial begins now and then, and as soon as the
 * cost of the protocol in use has changed since the choice. The ring's cost is
 * the sum of both copies. It is compared with the cost of the kernel's read.
 *
 * If both ranks send to each other, both directions use the same protocol;
 * otherwise the ring would stand still while one of the ranks is in the kernel.
 * In that case blocks are read only if both ranks want that, and both ranks try
 * the other protocol together.
 *
 * If SHUNT_READ_MIN is set it is the limit, and nothing is measured.
 */
#ifndef SHUNTI_PAIR_COSTS_H
#define SHUNTI_PAIR_COSTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shunt_comm;

/* Number of size classes. The first class begins at 8 KiB, and each further one
 * at twice the size of the class before. The last class has no upper limit. A
 * set of classes has a bit for each class. */
#define SHUNTI_WAYS_CLASSES 9

/* Part of a peer. A cost is in ns for 64 KiB; 0: not known. */
struct shunti_pair_costs {
    /* cost of this rank's copies into the peer's ring, and out of its own
     * ring */
    float into, out;
    float into_sent;                 /* the value of `into` that was last sent
                                        to the peer */
    float read[SHUNTI_WAYS_CLASSES]; /* cost of reads by the kernel */
    /* cost of the protocol in use, at the time of its choice */
    float chosen[SHUNTI_WAYS_CLASSES];
    /* blocks received since the choice; in a trial: blocks that used the tried
     * protocol */
    uint16_t taken[SHUNTI_WAYS_CLASSES];
    /* number of blocks after a choice before a change of cost may begin a
     * trial */
    uint16_t hold_off[SHUNTI_WAYS_CLASSES];
    uint16_t wants;     /* classes that this rank wants to read */
    uint16_t tries;     /* classes for which this rank tries the other
                             protocol */
    uint16_t last_read; /* classes whose last block was read by the kernel */
    /* value of `last_read` when the trial of the class began */
    uint16_t before;
    uint16_t their_tries; /* the peer's `tries` as last seen */
    /* The number of next blocks to the peer for which this rank's `wants`
     * counts as well as the peer's. A block that arrives sets the number to
     * FRESH. */
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
