// SPDX-License-Identifier: Apache-2.0
/*
 * Results between nodes: the part of a pull (pull.h) that leaves its node.
 *
 * Out: for each token of a source whose relay we are, the rows that our node's
 * experts made of it are added up in place, and the sum is put to the source, a
 * chunk to each source in turn. A row that is the only one goes as it is.
 * In: the sums of other nodes, which are added in the order of nodes.
 *
 * Both lie without gaps, and differ in size (rail_layout.h).
 */
#ifndef SHUNTI_RAILS_SUMS_H
#define SHUNTI_RAILS_SUMS_H

#include "moe/plan.h"
#include "moe/route/rails.h"
#include "src/kernels/rows.h"

struct shunti_rail_sums {
    const struct shunti_plan *plan;
    const struct shunti_lists *lists;
    struct shunti_rails *rails;
    struct shunti_cut cut;
    bool weighted;

    struct shunti_rail_turn turn;
    size_t chunk;  /* bytes */
    uint64_t asks; /* how often a token's sums were asked for */
    bool broken;   /* some sums will not come */
    struct shunti_rows_term *terms; /* (2, the most entries of a row) */
    bool began;                     /* `from` has its bounds */
    struct shunti_rail_summed {
        size_t made, sent, end; /* sums */
        size_t at;              /* bytes of those sent */
        bool done;              /* all are on their way, or not wanted */
    } * from;                   /* (nfrom) */
    struct shunti_rail_taken {
        uint32_t here, end;     /* sums that have come; the last one + 1 */
        uint32_t next;          /* the first of the token asked for last */
        size_t at;              /* where it lies */
        uint64_t asked;         /* when: number `asks` */
        uint32_t pieces;        /* of the token that were asked for then */
        size_t bytes;           /* of these */
    } * to;                     /* (nodes) */
    const unsigned char **outs; /* (ranks of our node), once known */
};

/* In place; `cut` and `weighted` are set already. False: no memory. */
bool shunti_rail_sums_init(struct shunti_rail_sums *sums,
                           struct shunti_direction *direction);
void shunti_rail_sums_finish(struct shunti_rail_sums *sums);

/* Send a chunk of sums to each source that has room. `broken`: rows of a rank
 * of this node are missing, and the sources are told so. True if anything was
 * done. */
bool shunti_rail_sums_send(struct shunti_rail_sums *sums, uint64_t call,
                           bool broken);
/* See what has come. */
void shunti_rail_sums_look(struct shunti_rail_sums *sums, uint64_t call);
/* The next piece of token t on `node`, of `terms` rows; NULL: not here yet. To be
 * asked for in the order of tokens; of a token that was not all here again from the
 * first piece on. The caller adds 1 to `asks` when it begins with a token. */
const unsigned char *shunti_rail_sums_next(struct shunti_rail_sums *sums,
                                           int node, size_t t, size_t terms);

/* Are there sums that `rank` has still to send us? */
bool shunti_rail_sums_miss(const struct shunti_rail_sums *sums, int rank);

/* All sums for others are on their way. */
bool shunti_rail_sums_sent(const struct shunti_rail_sums *sums);
/* Send nothing to `rank` any more, and expect nothing of it. */
void shunti_rail_sums_give_up(struct shunti_rail_sums *sums, int rank);

#endif
