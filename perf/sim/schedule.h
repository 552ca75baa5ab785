// SPDX-License-Identifier: Apache-2.0
/*
 * Message schedules: what every rank of a job sends, copies and waits for when
 * it exchanges tokens, without exchanging any.
 *
 * The library decides who sends what to whom by pure functions of the counts
 * and the routing. Here the same decisions are written down as a list of
 * operations, for any number of ranks at once, so that a simulator can carry
 * them out on machines that we do not have. Experts' places and the order of a
 * token's terms come from the library's own layout and placement; the order of
 * messages follows collectives/ and moe/. tests/perf/sim holds the sums against
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

/* --- who is where ------------------------------------------------------------ */

struct scaling_topology {
    int ranks, nodes;
    int *node;  /* (ranks) */
    int *local; /* (ranks) index in the node */
    int *first; /* (nodes + 1) ranks of a node are first[n] .. first[n + 1] */
    int *list;  /* (ranks) each its own number, as the library has them */
};

/* sizes: (nodes) ranks of each; they are numbered node by node. */
void scaling_topology_init(struct scaling_topology *topology, int nodes,
                           const int *sizes);
void scaling_topology_finish(struct scaling_topology *topology);

static inline int scaling_node_size(const struct scaling_topology *t, int node)
{
    return t->first[node + 1] - t->first[node];
}

/* The rail peer of `rank` on `node`; itself on its own. */
int scaling_rail(const struct scaling_topology *t, int rank, int node);

/* --- operations ------------------------------------------------------------------ */

/* Bytes between a rank and another of its node. */
struct scaling_part {
    int32_t rank;
    uint32_t bytes;
};

/*
 * One thing that a rank does, with its one thread: copy `local` bytes of its
 * own, and its parts from or to other ranks of its node; then, if there is a
 * peer, send `bytes` to it. When these have arrived, the peer copies `unpack`
 * bytes. Then the operation is over: operation `then` may begin, and `counter`
 * has one more.
 */
struct scaling_op {
    uint64_t bytes; /* on the wire, headers included */
    uint32_t local, unpack;
    uint32_t part, nparts;
    int32_t rank;
    int32_t peer;    /* -1: none */
    int32_t then;    /* -1: none */
    int32_t counter; /* -1: none */
    bool waits;      /* for a counter or for another's `then` */
};

/* Operations first .. first + nops may begin when `need` others are over. */
struct scaling_counter {
    uint32_t need;
    int32_t first, nops;
};

/* What a rank sends to other nodes. */
struct scaling_traffic {
    uint64_t payload; /* bytes that are the caller's */
    uint64_t wire;    /* with headers, notes and acks */
    uint64_t messages;
    uint64_t received; /* wire bytes */
};

struct scaling_schedule {
    const struct scaling_topology *topology;
    struct scaling_op *ops; /* each rank's own are in the order it takes them */
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

/* --- writing them: what the builders below are made of --------------------------- */

/* A new operation of `rank` that may begin at once; nothing but itself. */
struct scaling_op *scaling_add(struct scaling_schedule *schedule, int rank);
/* It sends `payload` bytes and `header` more to `peer`. */
void scaling_send(struct scaling_schedule *schedule, struct scaling_op *op,
                  int peer, uint64_t payload, uint64_t header);
/* It moves bytes from or to `rank` of its node; right after scaling_add(). */
void scaling_move(struct scaling_schedule *schedule, struct scaling_op *op,
                  int rank, uint64_t bytes);
int32_t scaling_count_to(struct scaling_schedule *schedule, uint32_t need);
/* All operations from `first` to the last written one wait for the counter. */
void scaling_start_by(struct scaling_schedule *schedule, int32_t counter,
                      size_t first);

void *scaling_alloc(size_t bytes); /* zeroed; ends the program without memory */

/* --- collectives (alltoall.c) ------------------------------------------------------ */

/* Bytes of a note, which every message of a collective begins with, and of an
 * answer. */
enum { SCALING_NOTE = 64, SCALING_ACK = 8 };

/* As SHUNT_CARRY: no block at all, or every one, goes through a carrier. */
#define SCALING_FLAT 0
#define SCALING_CARRY_ALL UINT64_MAX

/*
 * All-to-all of blocks[source * ranks + destination] bytes.
 *
 * carry  SCALING_FLAT: one exchange of all pairs. Else in two levels, where
 *        blocks up to `carry` bytes travel with those of their neighbours.
 * zero_copy  blocks of the flat exchange go straight from the sender's buffer
 *        to the receiver's, as a rendezvous does; else through staging.
 */
void scaling_alltoallv(struct scaling_schedule *schedule,
                       const uint32_t *blocks, uint64_t carry, bool zero_copy);

/* All-gather of `bytes` of each rank, in one exchange or in two levels. */
void scaling_allgather(struct scaling_schedule *schedule, uint32_t bytes,
                       bool two_level);

/* --- exchanges of tokens (moe.c) ---------------------------------------------------- */

enum scaling_mode {
    SCALING_PLAIN,     /* one row for each assignment: counts, MPI_Alltoallv */
    SCALING_RANKS,     /* a token once to each rank, results one by one: FLAT */
    SCALING_CARRIED,   /* as plain, but by the two-level all-to-all: 2DH */
    SCALING_NODES,     /* a token once to each node: TWO_LEVEL */
    SCALING_ALLGATHER, /* every token to every node */
    SCALING_MODES,
};

const char *scaling_mode_name(enum scaling_mode mode);

struct scaling_moe {
    const struct perf_routing *routing;
    enum scaling_mode mode;
    size_t row_bytes;  /* of a row in memory */
    size_t wire_bytes; /* of a row on its way to the experts */
    size_t sum_bytes;  /* of a node's sum of several rows */
    size_t chunk;      /* as SHUNT_MOE_CHUNK */
};

void scaling_dispatch(struct scaling_schedule *schedule,
                      const struct scaling_moe *moe);
void scaling_combine(struct scaling_schedule *schedule,
                     const struct scaling_moe *moe);

/* Blocks of the exchange of lists in plan_create(), bytes; free() it. */
uint32_t *scaling_plan_lists(const struct scaling_topology *topology,
                             const struct scaling_moe *moe);
/* Bytes of a rank's record there, with its counts or without. */
uint32_t scaling_plan_record(const struct scaling_topology *topology,
                             const struct scaling_moe *moe, bool counts);
/* Blocks of the exchanges that follow records without counts, bytes; free()
 * them. */
uint32_t *scaling_plan_columns(const struct scaling_topology *topology,
                               const struct scaling_moe *moe);
uint32_t *scaling_plan_starts(const struct scaling_topology *topology,
                              const struct scaling_moe *moe);

/* What the closed forms speak of: rows that leave their node, of all ranks. */
struct scaling_rows {
    uint64_t tokens;
    uint64_t plain, ranks, nodes, allgather;
    uint64_t alone; /* of `nodes`: the only expert of its token there */
};

void scaling_count_rows(const struct scaling_topology *topology,
                        const struct scaling_moe *moe,
                        struct scaling_rows *rows);

#ifdef __cplusplus
}
#endif

#endif
