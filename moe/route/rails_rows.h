// SPDX-License-Identifier: Apache-2.0
/*
 * Tokens' rows between nodes: the part of a push (push.h) that leaves its node.
 *
 * Out: rows for each other node are packed into staging and put to the rail
 * peer there, a chunk to each node in turn. Each rank begins with the node
 * after its own, so that not all send to the same node. In: what has arrived is
 * copied from the landing straight to its places on the ranks of this node,
 * while the next chunk is on the wire.
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
    const unsigned char *src; /* (tokens, hidden) */
    bool fp8;                 /* they travel as fp8 */
    bool weighted;            /* they are multiplied where they are placed */
    bool stream;              /* they are placed past the caches */
    bool offers;              /* products are made for sources that want them */
    float *dweight;           /* (tokens, topk), or NULL: not wanted */

    struct shunti_rail_turn turn;
    size_t wire;            /* bytes of a row */
    size_t chunk;           /* rows */
    bool broken;            /* a rank of this node is missing, or a relay */
    unsigned char *scratch; /* two rows */
    struct shunti_rail_sent {
        size_t packed, rows, end; /* the cut ends with */
        bool dots;                /* have come, or are not wanted */
    } * to;                       /* (nodes) */
    bool began; /* `from` has its bounds: the lists are here */
    struct shunti_rail_passed {
        uint32_t rows, end;
        bool met, wants; /* it is here; and wants products */
        bool done;       /* with products sent */
    } * from;            /* (nfrom) */
    /* By local index, once known: where rows go, and results lie. */
    unsigned char **places;     /* (ranks of the node) */
    const unsigned char **outs; /* (ranks of the node) */
};

/* In place; cut, src, fp8, weighted, offers and dweight are set already. False: no
 * memory. */
bool shunti_rail_rows_init(struct shunti_rail_rows *rows,
                           struct shunti_direction *direction);
void shunti_rail_rows_finish(struct shunti_rail_rows *rows);

/* Bytes that go to other nodes. */
size_t shunti_rail_rows_bytes(const struct shunti_rail_rows *rows);

/* A chunk to each node that has room. True if anything was sent. */
bool shunti_rail_rows_send(struct shunti_rail_rows *rows, uint64_t call);
/* The chunks that are here, to their places. True if there was any. */
bool shunti_rail_rows_pass_on(struct shunti_rail_rows *rows, uint64_t call);
/* Take the products that have come. */
void shunti_rail_rows_take_dots(struct shunti_rail_rows *rows, uint64_t call);

/* Does `rank`, as a relay, still have to take rows or to send us products? */
bool shunti_rail_rows_miss(const struct shunti_rail_rows *rows, int rank);

/* Has everything that `source` sends been placed? */
bool shunti_rail_rows_passed(const struct shunti_rail_rows *rows, int source);
/* And all that any source sends? */
bool shunti_rail_rows_all_passed(const struct shunti_rail_rows *rows);
/* Is anything of ours in the landing of `rank`? Not after give_up(). */
bool shunti_rail_rows_put_any(const struct shunti_rail_rows *rows, int rank);
/* Expect nothing of `rank` any more, as a source or as a relay. */
void shunti_rail_rows_give_up(struct shunti_rail_rows *rows, int rank);
/* `rank` is here, as a source or as a relay. It offers products, which a source
 * also wants then; or it does neither. */
void shunti_rail_rows_meet(struct shunti_rail_rows *rows, int rank,
                           bool offers);
/* All rows are on their way, and all products here. */
bool shunti_rail_rows_done(const struct shunti_rail_rows *rows);

#endif
