// SPDX-License-Identifier: Apache-2.0
/*
 * Rails carry rows between nodes. A token's row is sent once to each node. This
 * file has the state that a plan keeps for its rails.
 *
 * A token with an expert on node n travels once, from its rank to that rank's
 * rail peer there (src/wire/nodes.h), the relay. The relay passes it on to the
 * experts' ranks through their mapped windows. Results come home the same way.
 * The relay adds up the rows that its node's experts made of the token, and
 * sends one row. If only one expert made a row, it is sent as it is. So a row
 * crosses each slow link once (DeepSeek's DeepEP and Tutel's 2DH all-to-all,
 * 2206.03382, use rails in the same way).
 *
 * Rows travel by put, in chunks, into a window of the plan that has room for
 * all of them. The signal of a chunk says how many rows have arrived. A sender
 * needs no permission, because an operation that uses the window ends only
 * after the peer has acked the last use. That also holds for a call that
 * failed. A source may have put rows before it learns that a local peer's call
 * is bad. Then it sends the relay an alarm and waits for the relay's ack, since
 * the relay may be reading the rows.
 *
 * Each offset in a window follows from counts that its rank learns in
 * plan_create() (rail_layout.h). With the plan, the source sends a list of what
 * the relay does with each row (lists.h).
 */
#ifndef SHUNTI_RAILS_H
#define SHUNTI_RAILS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/layout/rail_layout.h"
#include "moe/plan.h"

/* Counts of a list's rows that come before a bound of parts (parts.h). */
struct shunti_rail_bound {
    size_t row, term; /* number of rows, and of experts' rows that are made of
                         these rows */
    size_t sums;      /* bytes of the results of these rows that come home */
};

/* The rows that this rank sends to another node. */
struct shunti_rail_to {
    int relay;   /* rail peer on the node; -1: the node is this rank's own */
    size_t rows; /* number of rows, which are in the order of tokens */
    uint32_t *token;   /* (rows) token of each row */
    size_t terms;      /* number of experts' rows that the node makes of these
                          rows */
    size_t staging;    /* offset of rows in this rank's rail window */
    size_t arrival;    /* offset of rows in the relay's rail window */
    size_t sums, dots; /* offsets of results in this rank's rail window */
    struct shunti_rail_bound *bound; /* (parts + 1) */
};

/* The rows that this rank relays for a rank of another node. */
struct shunti_rail_from {
    int source;
    size_t rows, terms;
    uint32_t *first; /* (rows + 1) index of a row's first entry */
    const struct shunti_rail_entry *entry; /* (terms) */
    size_t arrival; /* offset of rows in this rank's rail window */
    size_t sums_staging, dots_staging; /* offsets of results in this rank's rail
                                          window */
    size_t sums, dots; /* offsets of results in the source's rail window */
    struct shunti_rail_bound *bound; /* (parts + 1) from the source's list */
};

/*
 * A request's position in the queue for arrival areas. There is one queue for
 * rows and products, and one for sums. Requests enter a queue when they get
 * their number, so in the same order on all ranks. If requests entered when
 * they have rows to send, the queues of two ranks could have different orders.
 * Then each rank could reserve its arrival areas for a request that the peer
 * serves last, and both would deadlock.
 *
 * Requests of other parts use other arrival areas, and other signals. So a
 * request need not wait until earlier ones of other parts are over. Such a
 * request waits only until the earlier ones have sent all rows, so that parts
 * arrive in order.
 */
struct shunti_rail_turn {
    struct shunti_rail_turn *next;
    struct shunti_cut cut;
    bool sent;
};

/* The `state` of a direction on the route TWO_LEVEL. */
struct shunti_rails {
    const struct shunt_moe *moe;
    const struct shunti_rail_window *rail; /* rail window of the plan's place */
    /* Offsets of this plan's signals, and of the plan's area behind all
     * signals. Each wave has its own signals and area. */
    size_t signals, base;
    struct shunti_rail_to *to; /* (nodes) */
    struct shunti_rail_from *from;
    int nfrom;
    struct shunti_rail_map map; /* the map to which `traffic` points */
    struct shunti_rail_own {
        uint32_t *counts; /* holds the arrays to which `traffic` points */
        struct shunti_rail_traffic traffic;
        struct shunti_rail_out *out; /* (nodes) offsets for rows to each node */
        struct shunti_rail_in *in; /* (ranks) offsets for rows of each source */
        size_t window;             /* bytes of the rank's window */
    } own, other; /* own: of this rank. other: of another rank, while a plan is
                     made */
    size_t window_most;      /* the most bytes of any rank's window */
    uint32_t *memory;        /* holds `token` and `first` of all lists */
    unsigned char *received; /* the lists of the sources, as they arrived */
    size_t memory_max, received_max;
    struct shunti_rail_bound *bounds; /* holds `bound` of all lists */
    size_t bounds_max;
    /* Queues: for the arrival areas of rows and products; for those of sums. */
    struct shunti_rail_turn *rows_line, *sums_line;
};

/* Enter a queue, at its end. */

void shunti_rail_line_up(struct shunti_rail_turn **line,
                         struct shunti_rail_turn *turn, struct shunti_cut cut);
/* True if `turn` may send. */
bool shunti_rail_has_turn(const struct shunti_rail_turn *line,
                          const struct shunti_rail_turn *turn);
/* Leave a queue, from any position. */
void shunti_rail_leave_line(struct shunti_rail_turn **line,
                            const struct shunti_rail_turn *turn);

/* Bytes of a node's sum of several rows on its way home. */
size_t shunti_sum_bytes(const struct shunt_moe *moe);
/* Bytes that come home for a token that has `terms` rows on a node. */
size_t shunti_home_bytes(const struct shunt_moe *moe, size_t terms);

/*
 * True if a token has one expert's row on a node, and the row comes home as it
 * is. Then the home multiplies the row by its weight, not the relay. The bits
 * are the same, and a bf16 row has half the bytes of an f32 product. If partial
 * sums are rounded, the relay multiplies the row, and rounds the product.
 */
bool shunti_home_as_is(const struct shunt_moe *moe, size_t terms);

/*
 * The signals of a rail window. A signal says which operation's rows have
 * arrived, and how many. There is a signal for the rows of each source, and one
 * for the sums and one for the dots of each node. Sums are the rows that come
 * home. Dots are the dot products that come home, for the gradient of the
 * weights (also called products). Each part of a plan has signals of its own,
 * and a call uses those of its first part.
 *
 * Signals are at the beginning of the window. No other data is ever stored
 * there. Otherwise an element of a row of an earlier plan could look like a
 * signal.
 */
enum shunti_rail_signal {
    SHUNTI_RAIL_ROWS,
    SHUNTI_RAIL_SUMS,
    SHUNTI_RAIL_DOTS
};

/* In place of a number of rows: the call failed on the sender, and no rows will
 * come. */
#define SHUNTI_RAIL_BROKEN UINT32_MAX

size_t shunti_rail_signal_at(const struct shunt_moe *moe,
                             enum shunti_rail_signal which, int part,
                             int index);

/* Identifies an operation in signals. The value has the operation's number, and
 * a bit that says which of two calls with the same arrival area it belongs to.
 * A rank in the other call ignores the signal. */
uint64_t shunti_rail_call(const struct shunt_request *request);

/*
 * Read a signal of `call` in this rank's rail window. `index` is the source of
 * rows, or the node of sums or dots.
 *
 * For rows and sums, returns how many have arrived, at most `most`. They are
 * counted from the beginning of the plan, also in a call of a later part. For
 * dots, returns 1 when all have arrived. For sums and dots, may return
 * SHUNTI_RAIL_BROKEN. Returns 0 if the signal is of another call: the signal of
 * `call` has not arrived yet, or the peer has begun a later call.
 */
uint32_t shunti_rail_arrived(const struct shunti_rails *rails,
                             enum shunti_rail_signal which, int part, int index,
                             uint64_t call, size_t most);

/*
 * Put `bytes` at `staging` of this rank's rail window to `arrival` of the
 * window of `peer`, and set a signal there to `rows`. False: the transport has
 * no room now; try again.
 */
bool shunti_rail_put(const struct shunti_rails *rails, int peer, size_t staging,
                     size_t arrival, size_t bytes,
                     enum shunti_rail_signal which, int part, int index,
                     uint64_t call, uint32_t rows);

/* Memory at an offset in this plan's area of this rank's rail window. */
unsigned char *shunti_rail_memory(const struct shunti_rails *rails, size_t at);

/* True if `rank` is a relay of this rank and receives rows from this rank. */
bool shunti_rail_sends(const struct shunti_rails *rails, int rank);
/* True if this rank is a relay of `rank` and receives rows from `rank`. */
bool shunti_rail_receives(const struct shunti_rails *rails, int rank);
/* True if `rank` is a relay of this rank, or this rank is the relay of
 * `rank`. */
bool shunti_rail_partner(const struct shunti_rails *rails, int rank);

#endif
