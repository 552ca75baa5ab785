// SPDX-License-Identifier: Apache-2.0
/*
 * Rail sums: the part of a pull (pull.h) that leaves its node.
 *
 * Out: this rank handles each token of the sources whose relay it is. It adds
 * up the rows that its node's experts made of the token, and puts the sum to
 * the source. Each source gets one chunk in turn. A single row is sent as it
 * is. In: the sums of other nodes arrive, and are added in the order of nodes.
 *
 * Results lie without gaps at both ends, and differ in size (rail_layout.h).
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
    size_t chunk;  /* bytes of a chunk */
    uint64_t asks; /* how often a token's sums were asked for */
    bool broken;   /* some sums will not arrive */
    struct shunti_rows_term *terms; /* (2, topk) terms of a sum, and of the next
                                       one */
    bool began; /* the lists have arrived, and `from` has the cut's bounds */
    struct shunti_rail_summed {
        size_t made, sent, end; /* sums made; sums sent; the last sum of the cut
                                   + 1 */
        size_t at;              /* bytes of the sums that were sent */
        bool done;              /* all sums are sent, or are not wanted */
    } * from;                   /* (nfrom) */
    struct shunti_rail_taken {
        uint32_t here, end; /* sums that have arrived; the last sum of the cut +
                               1 */
        /* The next fields are about the token that was asked for last. */
        uint32_t next;   /* number of the token's first sum */
        size_t at;       /* offset of that sum */
        uint64_t asked;  /* value of `asks` when the token was asked for */
        uint32_t pieces; /* number of its pieces that were asked for */
        size_t bytes;    /* bytes of these pieces */
    } * to;              /* (nodes) */
    const unsigned char **outs; /* (ranks of this node) address of each rank's
                                   results, once known */
};

/* Set up `sums`. The caller has set `cut` and `weighted`. False: no memory. */
bool shunti_rail_sums_init(struct shunti_rail_sums *sums,
                           struct shunti_direction *direction);
void shunti_rail_sums_finish(struct shunti_rail_sums *sums);

/* Send a chunk of sums to each source, if the transport has room. broken: rows
 * of a rank of this node are missing; instead of sums, send a signal that says
 * so. True if anything was sent. */
bool shunti_rail_sums_send(struct shunti_rail_sums *sums, uint64_t call,
                           bool broken);
/* Look for sums that have arrived. */
void shunti_rail_sums_look(struct shunti_rail_sums *sums, uint64_t call);
/* The next piece of token t from `node`, a sum of `terms` rows. NULL: the piece
 * has not arrived. Ask for tokens in their order. If a piece had not arrived,
 * ask for the token again, from its first piece on. The caller adds 1 to `asks`
 * before each token. */
const unsigned char *shunti_rail_sums_next(struct shunti_rail_sums *sums,
                                           int node, size_t t, size_t terms);

/* True if `rank` still has to send sums to this rank. */
bool shunti_rail_sums_miss(const struct shunti_rail_sums *sums, int rank);

/* True if all sums for other ranks have been sent. */
bool shunti_rail_sums_sent(const struct shunti_rail_sums *sums);
/* Send nothing more to `rank`, and expect nothing of it. */
void shunti_rail_sums_give_up(struct shunti_rail_sums *sums, int rank);

#endif
