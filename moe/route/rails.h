// SPDX-License-Identifier: Apache-2.0
/*
 * Rows between nodes, each once for each node: what a plan keeps for it.
 *
 * A token with an expert on node n travels once, from its rank to that rank's
 * rail peer there (src/wire/nodes.h), the relay. The relay passes it on to the
 * experts' ranks through their mapped windows. Results come home the same way:
 * the relay adds up the rows that its node's experts made of the token and
 * sends one row, or sends the row of the only expert as it is. So a row crosses
 * each slow link once (DeepSeek's DeepEP and Tutel's 2DH all-to-all,
 * 2206.03382, use rails in the same way).
 *
 * Rows travel by put, in chunks, into a window of the plan that has room for
 * all of them; the signal of a chunk says how many rows are there. A sender
 * needs no permission: an operation that uses the window ends only after its
 * last use was acked. That holds for a call that failed, too: a source that has
 * put rows and then hears of a local peer's bad call sends the relay an alarm,
 * and waits for its ack, since the relay may be reading them.
 *
 * Each place in a window follows from counts that its rank learns in
 * plan_create() (rail_layout.h). The source lists once, with the plan, what the relay does
 * with each row (lists.h).
 */
#ifndef SHUNTI_RAILS_H
#define SHUNTI_RAILS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "moe/layout/rail_layout.h"
#include "moe/plan.h"

/* At a bound of parts (parts.h), of a list: what comes before it. */
struct shunti_rail_bound {
    size_t row, term; /* rows, and experts' rows that they make */
    size_t sums;      /* bytes of what comes home of them */
};

/* What we send to another node. */
struct shunti_rail_to {
    int relay;                       /* -1: it is our own node */
    size_t rows;                     /* that travel, in the order of tokens */
    uint32_t *token;                 /* (rows) which */
    size_t terms;                    /* experts' rows that they make there */
    size_t staging;                  /* of rows, in our rail window */
    size_t landing;                  /* of rows, in the relay's */
    size_t sums, dots;               /* what comes back, in ours */
    struct shunti_rail_bound *bound; /* (parts + 1) */
};

/* What we pass on as the relay of a rank of another node. */
struct shunti_rail_from {
    int source;
    size_t rows, terms;
    uint32_t *first; /* (rows + 1) where a row's entries begin */
    const struct shunti_rail_entry *entry; /* (terms) */
    size_t landing;                        /* in our rail window */
    size_t sums_staging, dots_staging;     /* what goes back, in ours */
    size_t sums, dots;                     /* the same, in the source's */
    struct shunti_rail_bound *bound;       /* (parts + 1) as the lists say */
};

/*
 * A request's place in the queue for the landings. There is a queue for rows
 * and products and one for sums. Requests enter it when they get their number,
 * so in the same order on all ranks, and not when they have something to send.
 * Else two ranks could each give their landings to the request that the other
 * serves last, and would deadlock.
 *
 * A request of other parts uses other places of the landings, and other
 * signals. So it need not wait until the ones before it are over, but only
 * until they have sent all: a part is to arrive before the next one.
 */
struct shunti_rail_turn {
    struct shunti_rail_turn *next;
    struct shunti_cut cut;
    bool sent;
};

/* What a direction of the route TWO_LEVEL keeps: its `state`. */
struct shunti_rails {
    const struct shunt_moe *moe;
    const struct shunti_rail_window *rail; /* of the plan's place */
    size_t signals, base; /* where this plan's part of each begins: waves have
                             one each */
    struct shunti_rail_to *to; /* (nodes) */
    struct shunti_rail_from *from;
    int nfrom;
    struct shunti_rail_map map; /* of the traffic */
    struct shunti_rail_own {
        uint32_t *counts; /* of the traffic */
        struct shunti_rail_traffic traffic;
        struct shunti_rail_out *out; /* (nodes) */
        struct shunti_rail_in *in;   /* (ranks) */
        size_t window;               /* bytes */
    } own, other;       /* of this rank; of another one, while a plan is made */
    size_t window_most; /* of any rank's window */
    uint32_t *memory;   /* of the lists in `to` and `from` */
    unsigned char *received; /* of the entries */
    size_t memory_max, received_max;
    struct shunti_rail_bound *bounds; /* of all lists */
    size_t bounds_max;
    struct shunti_rail_turn *rows_line, *sums_line;
};

void shunti_rail_line_up(struct shunti_rail_turn **line,
                         struct shunti_rail_turn *turn, struct shunti_cut cut);
/* May it send? */
bool shunti_rail_has_turn(const struct shunti_rail_turn *line,
                          const struct shunti_rail_turn *turn);
/* It need not be at the front. */
void shunti_rail_leave_line(struct shunti_rail_turn **line,
                            const struct shunti_rail_turn *turn);

/* Bytes of a node's sum as combine sends it. */
size_t shunti_sum_bytes(const struct shunt_moe *moe);
/* Bytes of what combine sends of a token that has `terms` rows on a node. */
size_t shunti_home_bytes(const struct shunt_moe *moe, size_t terms);

/*
 * Is that the row of its only expert as it is? The home multiplies it by the
 * weight, as the relay would: the same bits, and with bf16 half the bytes of an
 * f32 product. Where sums are rounded the relay makes the product, and rounds
 * it.
 */
bool shunti_home_as_is(const struct shunt_moe *moe, size_t terms);

/* The signals of a rail window: of which operation rows are there, and how
 * many. Rows have one for each source, sums and dots one for each node; there
 * are as many for each part, and a call uses those of its first one. They are at
 * the beginning of the window, where nothing else ever lies: an element of a row
 * that was there under another plan could look like a signal. */
enum shunti_rail_signal {
    SHUNTI_RAIL_ROWS,
    SHUNTI_RAIL_SUMS,
    SHUNTI_RAIL_DOTS
};

/* Instead of a number of rows: the call failed there, and none will come. */
#define SHUNTI_RAIL_BROKEN UINT32_MAX

size_t shunti_rail_signal_at(const struct shunt_moe *moe,
                             enum shunti_rail_signal which, int part,
                             int index);

/* What identifies an operation in signals: its number, and which of the two
 * calls that use the same landing it is. A rank in the other call ignores the
 * signal. */
uint64_t shunti_rail_call(const struct shunt_request *request);

/* How many rows of `call` have arrived, of `most`, counted from the first of
 * the plan; for sums and dots also BROKEN. 0, too, if the peer has begun a
 * later call. */
uint32_t shunti_rail_arrived(const struct shunti_rails *rails,
                             enum shunti_rail_signal which, int part, int index,
                             uint64_t call, size_t most);

/*
 * Put `bytes` of our rail window at `staging` into `peer`'s at `landing`, and
 * set the signal to `rows`. False: no room now, try again.
 */
bool shunti_rail_put(const struct shunti_rails *rails, int peer, size_t staging,
                     size_t landing, size_t bytes,
                     enum shunti_rail_signal which, int part, int index,
                     uint64_t call, uint32_t rows);

/* Our part of the rail window, behind the signals, at an offset. */
unsigned char *shunti_rail_memory(const struct shunti_rails *rails, size_t at);

/* Do we send rows to `rank` as a relay? */
bool shunti_rail_sends(const struct shunti_rails *rails, int rank);
/* Does it send rows to us as its relay? */
bool shunti_rail_receives(const struct shunti_rails *rails, int rank);
/* Is `rank` a relay of ours, or a source that we are the relay for? */
bool shunti_rail_partner(const struct shunti_rails *rails, int rank);

#endif
