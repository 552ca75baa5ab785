// SPDX-License-Identifier: Apache-2.0
/* The exchange for training: libshunt's plan, dispatch and combine. */
#ifndef TRAIN_EXCHANGE_SHUNT_H
#define TRAIN_EXCHANGE_SHUNT_H

#include "train/exchange.h"
#include "train/layout.h"
#include "train/team.h"

struct exchange_config {
    int bf16;               /* rows travel as bf16, else as f32 */
    int fp8;                /* dispatched rows travel as fp8 with scales */
    double capacity_factor; /* 0: dropless */
    int drop_by_weight;
    int tree_ranks;    /* experts are summed as if on this many ranks, */
    int tree_nodes;    /* and these on this many nodes; 0: the real ones */
    size_t max_tokens; /* of one rank */
    /* 1 or more; each has at most its part of max_tokens, unless it is alone */
    size_t micro_batches;
    bool overlap; /* no: a started call is waited for at once */
};

/* Collective. 0, or -1 with train_error_text(). */
int exchange_shunt_create(struct team *team, const struct model_config *model,
                          const struct exchange_config *config,
                          struct exchange **exchange);
/* NULL is allowed. Before the communicator's end. */
void exchange_shunt_destroy(struct exchange *exchange);

/* The exchanges of rows. */
enum exchange_call {
    EXCHANGE_DISPATCH,
    EXCHANGE_COMBINE,
    EXCHANGE_COMBINE_BACKWARD,
    EXCHANGE_DISPATCH_BACKWARD,
    EXCHANGES,
};

/* What plans sent from this rank to other nodes, and dropped, since the caller
 * cleared it. */
struct exchange_traffic {
    size_t rows;    /* in a dispatch; as many come back in a combine */
    size_t plain;   /* what they would be at one row for each assignment */
    size_t dropped; /* assignments beyond the capacity */
    /* this rank spent in the calls of each exchange: to start it, and to wait */
    double seconds[EXCHANGES];
};
struct exchange_traffic *exchange_shunt_traffic(struct exchange *exchange);

/* From now on exchanges are waited for at once, or not: exchange_config.overlap.
 * None is under way. */
void exchange_shunt_set_overlap(struct exchange *exchange, bool overlap);

/* The experts of a rank: [*first, *first + *count). */
void exchange_shunt_experts(size_t experts, int rank, int ranks, size_t *first,
                            size_t *count);

#endif
