// SPDX-License-Identifier: Apache-2.0
/*
 * Message schedules: lists of all that the ranks of a job send, copy and wait
 * for in an exchange of tokens. Nothing is exchanged.
 *
 * In the library, what a rank sends to another depends only on the counts and
 * the routing. Here the same decisions are written down as a list of
 * operations, for any number of ranks at once. So a simulator can run them on
 * machines that are not available. The places of experts and the order of a
 * token's terms come from the library's own layout and placement. The order of
 * messages follows collectives/ and moe/. tests/perf/sim compares the sums with
 * what the library itself counts.
 */
#ifndef SHUNT_SCALING_SCHEDULE_H
#define SHUNT_SCALING_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct perf_routing;

/* --- the topology --------------------------------------------------------- */

struct scaling_topology {
    int ranks, nodes;
    int *node;  /* (ranks) */
    int *local; /* (ranks) index of each rank in its node */
    int *first; /* (nodes + 1) node n: ranks first[n] .. first[n + 1] - 1 */
    int *list;  /* (ranks) list[r] == r, in the form that the library uses */
};

/* sizes: (nodes) number of ranks of each node. Ranks are numbered node by
 * node. */
void scaling_topology_init(struct scaling_topology *topology, int nodes,
                           const int *sizes);
void scaling_topology_finish(struct scaling_topology *topology);

static inline int scaling_node_size(const struct scaling_topology *t, int node)
{
    return t->first[node + 1] - t->first[node];
}

/* The rail peer of `rank` on `node`; on its own node, the rank itself. */
int scaling_rail(const struct scaling_topology *t, int rank, int node);

/* --- operations ----------------------------------------------------------- */

/* Bytes copied between a rank and another rank of its node. */
struct scaling_part {
    int32_t rank;
    uint32_t bytes;
};

/*
 * One operation of a rank, which has one thread. The rank copies `local` bytes
 * in its own memory, and its parts from or to other ranks of its node. Then, if
 * there is a peer, it sends `bytes` to the peer. When these have arrived, the
 * peer copies `unpack` bytes. Then the operation is over: operation `then` may
 * begin, and `counter` is increased by one.
 */
struct scaling_op {
    uint64_t bytes; /* on the wire, headers included */
    uint32_t local, unpack;
    uint32_t part, nparts;
    int32_t rank;
    int32_t peer;    /* -1: no peer */
    int32_t then;    /* -1: no operation */
    int32_t counter; /* -1: no counter */
    bool waits;      /* true: begins by a counter, or as another operation's
                      * `then` */
};

/* Operations first .. first + nops - 1 may begin when `need` other operations
 * are over. */
struct scaling_counter {
    uint32_t need;
    int32_t first, nops;
};

/* The traffic of one rank to other nodes. */
struct scaling_traffic {
    uint64_t payload; /* bytes of the caller's data */
    uint64_t wire;    /* with headers, notes and acks */
    uint64_t messages;
    uint64_t received; /* wire bytes that the rank receives */
};

struct scaling_schedule {
    const struct scaling_topology *topology;
    struct scaling_op *ops; /* each rank's operations are in the order in which
                             * the rank does them */
    size_t nops, ops_max;
    struct scaling_part *parts;
    size_t nparts, parts_max;
    struct scaling_counter *counters;
    size_t ncounters, counters_max;
    struct scaling_traffic *traffic; /* (ranks) */
};

void scaling_schedule_init(struct scaling_schedule *schedule,
                           const struct scaling_topology *topology);
void scaling_schedule_finish(struct scaling_schedule *schedule);

/* --- writing schedules: functions for the builders below ------------------ */

/* Add an operation of `rank` that may begin at once and does nothing yet. */
struct scaling_op *scaling_add(struct scaling_schedule *schedule, int rank);
/* Let `op` send `payload` bytes and `header` more bytes to `peer`. */
void scaling_send(struct scaling_schedule *schedule, struct scaling_op *op,
                  int peer, uint64_t payload, uint64_t header);
/* Let `op` copy bytes from or to `rank` of its node. Call this right after
 * scaling_add(). */
void scaling_move(struct scaling_schedule *schedule, struct scaling_op *op,
                  int rank, uint64_t bytes);
int32_t scaling_count_to(struct scaling_schedule *schedule, uint32_t need);
/* Let all operations from `first` to the last one wait for the counter. */
void scaling_start_by(struct scaling_schedule *schedule, int32_t counter,
                      size_t first);

void *scaling_alloc(size_t bytes); /* zeroed memory; ends the program if there
                                    * is none */

/* --- collectives (alltoall.c) --------------------------------------------- */

/* Bytes of a note and of an ack. Every message of a collective begins with a
 * note. */
enum { SCALING_NOTE = 64, SCALING_ACK = 8 };

/* Values like those of SHUNT_CARRY: send no block through a relay, or every
 * block. */
#define SCALING_FLAT 0
#define SCALING_CARRY_ALL UINT64_MAX

/*
 * All-to-all of blocks[source * ranks + destination] bytes.
 *
 * carry      SCALING_FLAT: one exchange of all pairs. Otherwise in two levels:
 *            blocks of up to `carry` bytes are sent through relays, together
 *            with those of other ranks of the node.
 * zero_copy  blocks of the flat exchange are sent straight from the sender's
 *            buffer to the receiver's, as in a rendezvous; false: through
 *            staging buffers.
 */
void scaling_alltoallv(struct scaling_schedule *schedule,
                       const uint32_t *blocks, uint64_t carry, bool zero_copy);

/* All-gather of `bytes` from each rank, in one exchange or in two levels. */
void scaling_allgather(struct scaling_schedule *schedule, uint32_t bytes,
                       bool two_level);

/* --- exchanges of tokens (moe.c) ------------------------------------------ */

enum scaling_mode {
    SCALING_PLAIN,     /* one row for each assignment, as with MPI_Alltoallv */
    SCALING_RANKS,     /* FLAT: a token once to each rank; results one by one */
    SCALING_CARRIED,   /* 2DH: like FLAT, by the two-level all-to-all */
    SCALING_NODES,     /* TWO_LEVEL: a token once to each node */
    SCALING_ALLGATHER, /* every token to every node */
    SCALING_MODES,
};

const char *scaling_mode_name(enum scaling_mode mode);

struct scaling_moe {
    const struct perf_routing *routing;
    enum scaling_mode mode;
    size_t row_bytes;  /* bytes of a row in memory */
    size_t wire_bytes; /* bytes of a row that is sent to the experts */
    size_t sum_bytes;  /* bytes of one node's sum of several rows */
    size_t chunk;      /* as SHUNT_MOE_CHUNK */
};

void scaling_dispatch(struct scaling_schedule *schedule,
                      const struct scaling_moe *moe);
void scaling_combine(struct scaling_schedule *schedule,
                     const struct scaling_moe *moe);

/* Bytes of the blocks in the exchange of lists in plan_create(). The caller
 * frees them. */
uint32_t *scaling_plan_lists(const struct scaling_topology *topology,
                             const struct scaling_moe *moe);
/* Bytes of a rank's record in plan_create(), with its counts or without. */
uint32_t scaling_plan_record(const struct scaling_topology *topology,
                             const struct scaling_moe *moe, bool counts);
/* Bytes of the blocks in the exchanges that follow records without counts. The
 * caller frees them. */
uint32_t *scaling_plan_columns(const struct scaling_topology *topology,
                               const struct scaling_moe *moe);
uint32_t *scaling_plan_starts(const struct scaling_topology *topology,
                              const struct scaling_moe *moe);

/* Rows that leave their node, summed over all ranks, to compare with the closed
 * formulas. */
struct scaling_rows {
    uint64_t tokens;
    uint64_t plain, ranks, nodes, allgather;
    uint64_t alone; /* rows of `nodes` whose token has only one expert on that
                     * node */
};

void scaling_count_rows(const struct scaling_topology *topology,
                        const struct scaling_moe *moe,
                        struct scaling_rows *rows);

#ifdef __cplusplus
}
#endif

#endif
