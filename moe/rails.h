// SPDX-License-Identifier: Apache-2.0
/*
 * Rows between nodes, each once for each node: what a plan knows of it.
 *
 * A token that any expert of node n is to have travels once, from its rank to
 * that rank's rail peer there (src/nodes.h), the *proxy*, which passes it on to
 * its experts' ranks through their mapped windows. Results come back the same
 * way: the proxy adds up what its node's experts made of the token and sends
 * one row. So a row crosses each slow link once (DeepSeek's DeepEP and
 * Tutel's 2DH all-to-all, 2206.03382, cross it by rails likewise).
 *
 * Rows travel by put, in chunks, into a window of the plan's that has room for
 * all of them; the signal of a chunk says how many rows are there. Nobody asks
 * whether the window is free: its last use has been acknowledged before the
 * operation that used it was over. That holds for a call that failed, too: a
 * source that has put rows and then hears of a mate's bad call tells the proxy
 * with an alarm, and waits until the proxy, which may be reading them, acks it.
 *
 * Which window bytes are whose follows from the counts that plan_create()
 * gathered. What a proxy does with each row is told once, with the plan.
 */
#ifndef SHUNTI_RAILS_H
#define SHUNTI_RAILS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>

struct shunt_moe;
struct shunt_request;
struct shunti_plan;

/* A row's place on a rank of the proxy's node. */
struct shunti_rail_entry {
    uint32_t row; /* in that rank's buffer */
    float weight;
    uint16_t local; /* index of the rank in its node */
    uint8_t op;     /* enum shunti_rows_op */
    uint8_t unused;
};

/* What we send to another node. Offsets are in the sender's rail window if
 * "staging", else in the receiver's. */
struct shunti_rail_to {
    int proxy;               /* -1: it is our own node */
    size_t rows;             /* that travel, in the order of tokens */
    uint32_t *token;         /* (rows) which */
    size_t terms;            /* experts' rows that they make there */
    size_t staging, landing; /* of rows: ours, the proxy's */
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

struct shunti_rails {
    struct shunti_rail_to *to; /* (nodes) */
    struct shunti_rail_from *from;
    int nfrom;
    uint32_t *memory;        /* of the lists in `to` and `from` */
    unsigned char *received; /* of the entries */
    size_t memory_max, received_max;
    struct shunti_rail_turn *rows_line, *sums_line; /* the first of a line has
                                                       the landings */
};

/* Collective, after plan->network and plan->rank_total are known. What others
 * list comes later (lists.h). */
enum shunt_status shunti_rails_exchange(struct shunti_plan *plan);
void shunti_rails_finish(struct shunti_rails *rails);

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

/* An operation, as signals name it: by its number and by which of the two calls
 * that use the same landing it is. Who is in the other call takes nothing. */
uint64_t shunti_rail_call(const struct shunt_request *request);

/* How many rows of `call` are there, of `most`; or BROKEN, of sums and dots. 0
 * also if the peer has begun a later one. */
uint32_t shunti_rail_arrived(const struct shunti_plan *plan,
                             enum shunti_rail_signal which, int index,
                             uint64_t call, size_t most);

/*
 * Put `bytes` of our rail window at `staging` into `peer`'s at `landing`, and
 * let the signal say that `rows` are there. False: no room now, try again.
 */
bool shunti_rail_put(struct shunti_plan *plan, int peer, size_t staging,
                     size_t landing, size_t bytes,
                     enum shunti_rail_signal which, int index, uint64_t call,
                     uint32_t rows);

/* Our rail window at an offset. */
unsigned char *shunti_rail_memory(const struct shunti_plan *plan, size_t at);

#endif
