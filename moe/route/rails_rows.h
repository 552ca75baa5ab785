// SPDX-License-Identifier: Apache-2.0
/*
 * Rail rows: the part of a push (push.h) that leaves its node.
 *
 * Out: rows for each other node are packed into staging and put to the rail
 * peer there, one chunk to each node in turn. Each rank begins with the node
 * after its own, so that not all ranks send to the same node. In: rows that
 * have arrived are copied from the arrival area straight to their slots on the
 * ranks of this node. Meanwhile the next chunk is on the wire.
 *
 * Products: for the gradient of the weights, a relay computes the dot product
 * of each row that it passes on with the expert's row of `out` (push.h). It
 * sends the products back to the source of the rows.
 */
#ifndef SHUNTI_RAILS_ROWS_H
#define SHUNTI_RAILS_ROWS_H

#include "moe/plan.h"
#include "moe/route/rails.h"

struct shunti_rail_rows {
    const struct shunti_plan *plan;
    const struct shunti_lists *lists;
    struct shunti_rails *rails;
    struct shunti_cut cut;
    const unsigned char *src; /* (tokens, hidden) this rank's tokens */
    bool fp8;                 /* rows travel as fp8 */
    bool weighted;            /* rows get their weights when they are placed */
    bool stream;              /* rows are placed past the caches */
    bool offers;              /* this rank makes products for sources that want
                                 them */
    float *dweight;           /* (tokens, topk) products; NULL: not wanted */

    struct shunti_rail_turn turn;
    size_t wire;  /* bytes of a row on the wire */
    size_t chunk; /* rows of a chunk */
    bool broken;  /* a peer does not take part in the call, so some rows or
                     products never arrive */
    unsigned char *scratch; /* memory for two rows */
    struct shunti_rail_sent {
        size_t packed, rows, end; /* rows packed; rows sent; the last row of the
                                     cut + 1 */
        bool dots;                /* products have arrived, or are not wanted */
    } * to;                       /* (nodes) */
    bool began; /* the lists have arrived, and `from` has the cut's bounds */
    struct shunti_rail_passed {
        uint32_t rows, end;  /* rows passed on; the last row of the cut + 1 */
        bool entered, wants; /* the source's note has arrived; the source wants
                                products */
        bool done;           /* all rows were passed on, and the products sent
                                if the source wants them */
    } * from;                /* (nfrom) */
    /* By local index: addresses of each rank's row buffer and of its results,
     * NULL until they are known. */
    unsigned char **places;     /* (ranks of the node) */
    const unsigned char **outs; /* (ranks of the node) */
};

/* Set up `rows`. The caller has set cut, src, fp8, weighted, offers and
 * dweight. False: no memory. */
bool shunti_rail_rows_init(struct shunti_rail_rows *rows,
                           struct shunti_direction *direction);
void shunti_rail_rows_finish(struct shunti_rail_rows *rows);

/* Bytes of the rows that go to other nodes. */
size_t shunti_rail_rows_bytes(const struct shunti_rail_rows *rows);

/* Send a chunk to each node, if the transport has room. True if anything was
 * sent. */
bool shunti_rail_rows_send(struct shunti_rail_rows *rows, uint64_t call);
/* Copy the chunks that have arrived to their slots. True if there was any. */
bool shunti_rail_rows_pass_on(struct shunti_rail_rows *rows, uint64_t call);
/* Store the products that have arrived in dweight. */
void shunti_rail_rows_take_dots(struct shunti_rail_rows *rows, uint64_t call);

/* True if the relay `rank` still has to receive rows or to send products. */
bool shunti_rail_rows_miss(const struct shunti_rail_rows *rows, int rank);

/* True if all rows from `source` have been placed. */
bool shunti_rail_rows_passed(const struct shunti_rail_rows *rows, int source);
/* True if all rows from all sources have been placed. */
bool shunti_rail_rows_all_passed(const struct shunti_rail_rows *rows);
/* True if rows of this rank are in the arrival area of `rank`. Not valid after
 * give_up(). */
bool shunti_rail_rows_put_any(const struct shunti_rail_rows *rows, int rank);
/* Expect nothing more of `rank`, neither as a source nor as a relay. */
void shunti_rail_rows_give_up(struct shunti_rail_rows *rows, int rank);
/* Store what the note of `rank`, a source or a relay, says. offers: `rank`
 * offers its `out` for products. A source that does so also wants products. */
void shunti_rail_rows_meet(struct shunti_rail_rows *rows, int rank,
                           bool offers);
/* True if this rank has sent all its rows, and has all products that it wants.
 * As a relay, it must also have placed all rows and sent back their
 * products. */
bool shunti_rail_rows_done(const struct shunti_rail_rows *rows);

#endif
