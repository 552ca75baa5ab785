// SPDX-License-Identifier: Apache-2.0
/*
 * Rows between nodes, each once for each node: what a plan knows of it.
 *
 * A token with an expert on node n travels once, from its rank to that rank's
 * rail peer there (src/nodes.h), the relay, which passes it on to its experts'
 * ranks through their mapped windows. Results come back the same way: the relay
 * adds up what its node's experts made of the token and sends one row. So a row
 * crosses each slow link once (DeepSeek's DeepEP and Tutel's 2DH all-to-all,
 * 2206.03382, use rails in the same way).
 *
 * Rows travel by put, in chunks, into a window of the plan that has room for
 * all of them; the signal of a chunk says how many rows are there. A sender
 * needs no permission: the last use of the window was acknowledged before the
 * operation that used it ended. That holds for a call that failed, too: a
 * source that has put rows and then hears of a local peer's bad call tells the
 * relay with an alarm, and waits until the relay, which may be reading them,
 * acks it.
 *
 * Each place in a window follows from the counts that plan_create() gathered
 * (rail_layout.h). What a relay does with each row, its source lists once, with
 * the plan (lists.h).
 */
#ifndef SHUNTI_RAILS_H
#define SHUNTI_RAILS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/plan.h"
#include "moe/rail_layout.h"

/* What we send to another node. Offsets are in the sender's rail window if
 * "staging", else in the receiver's. */
struct shunti_rail_to {
    int relay;               /* -1: it is our own node */
    size_t rows;             /* that travel, in the order of tokens */
    uint32_t *token;         /* (rows) which */
    size_t terms;            /* experts' rows that they make there */
    size_t staging, landing; /* of rows: ours, the relay's */
    size_t sums, dots;       /* in ours: what comes back */
};

/* What we pass on for a rank of another node. */
struct shunti_rail_from {
    int source;
    size_t rows, terms;
    uint32_t *first; /* (rows + 1) where a row's entries begin */
    const struct shunti_rail_entry *entry; /* (terms) */
    size_t landing;                        /* in ours */
    size_t sums_staging, dots_staging;     /* in ours: what goes back */
    size_t sums, dots;                     /* in the source's */
};

/*
 * A request's place in the line for the landings: one for rows and products,
 * one for sums. Requests line up when they are numbered, so in the same order
 * on all ranks, and not when they have something to send: two ranks that each
 * gave their landings to the request that the other serves last would wait for
 * each other for ever.
 */
struct shunti_rail_turn {
    struct shunti_rail_turn *next;
};

/* What a direction of the route TWO_LEVEL keeps: its `state`. */
struct shunti_rails {
    const struct shunt_moe *moe;
    const struct shunti_window *window; /* of the plan's place */
    struct shunti_rail_to *to;          /* (nodes) */
    struct shunti_rail_from *from;
    int nfrom;
    uint32_t *rows,
        *terms; /* (ranks, nodes) as in struct shunti_rail_traffic */
    struct shunti_rail_out *out; /* (nodes) */
    struct shunti_rail_in *in;   /* (ranks) */
    uint32_t *memory;            /* of the lists in `to` and `from` */
    unsigned char *received;     /* of the entries */
    size_t memory_max, received_max;
    struct shunti_rail_turn *rows_line, *sums_line; /* the first of a line has
                                                       the landings */
};

void shunti_rail_line_up(struct shunti_rail_turn **line,
                         struct shunti_rail_turn *turn);
/* It need not have come to the front. */
void shunti_rail_leave_line(struct shunti_rail_turn **line,
                            const struct shunti_rail_turn *turn);

/* Bytes of a row as combine sends it. */
size_t shunti_sum_bytes(const struct shunt_moe *moe);

/* The signals of a rank's rail window: how many rows are there, and of which
 * operation. By source for the rows, by node for sums and dots. */
enum shunti_rail_signal {
    SHUNTI_RAIL_ROWS,
    SHUNTI_RAIL_SUMS,
    SHUNTI_RAIL_DOTS
};

/* Instead of a number of rows: none will come, something is wrong there. */
#define SHUNTI_RAIL_BROKEN UINT32_MAX

size_t shunti_rail_signal_at(const struct shunt_moe *moe,
                             enum shunti_rail_signal which, int index);

/* The name of an operation in signals: its number, and which of the two calls
 * it is that use the same landing. A rank in the other call ignores the
 * signal. */
uint64_t shunti_rail_call(const struct shunt_request *request);

/* How many rows of `call` are there, of `most`; or BROKEN, of sums and dots. 0
 * also if the peer has begun a later one. */
uint32_t shunti_rail_arrived(const struct shunti_rails *rails,
                             enum shunti_rail_signal which, int index,
                             uint64_t call, size_t most);

/*
 * Put `bytes` of our rail window at `staging` into `peer`'s at `landing`, and
 * let the signal say that `rows` are there. False: no room now, try again.
 */
bool shunti_rail_put(const struct shunti_rails *rails, int peer, size_t staging,
                     size_t landing, size_t bytes,
                     enum shunti_rail_signal which, int index, uint64_t call,
                     uint32_t rows);

/* Our rail window at an offset. */
unsigned char *shunti_rail_memory(const struct shunti_rails *rails, size_t at);

/* Do we send rows to `rank` as a relay? */
bool shunti_rail_sends(const struct shunti_rails *rails, int rank);
/* Does it send rows to us as its relay? */
bool shunti_rail_receives(const struct shunti_rails *rails, int rank);
/* Is `rank` a relay of ours, or a source that we are the relay for? */
bool shunti_rail_partner(const struct shunti_rails *rails, int rank);

#endif
