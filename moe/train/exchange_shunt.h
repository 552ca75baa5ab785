// SPDX-License-Identifier: Apache-2.0
//
// The exchange that trains: libshunt's plan, dispatch and combine.
#ifndef TRAIN_EXCHANGE_SHUNT_H
#define TRAIN_EXCHANGE_SHUNT_H

#include "exchange.h"
#include "layout.h"
#include "team.h"

struct exchange_config {
    int bf16;               // rows travel as bf16, else as f32
    int fp8;                // dispatched rows travel as fp8 with scales
    double capacity_factor; // 0: dropless
    int drop_by_weight;
    int tree_ranks;    // experts are added up as if on so many ranks
    size_t max_tokens; // of one rank
};

// Collective. 0, or -1 with train_error_text().
int exchange_shunt_create(struct team *team, const struct model_config *model,
                          const struct exchange_config *config,
                          struct exchange **exchange);
// NULL is allowed. Before the communicator's end.
void exchange_shunt_destroy(struct exchange *exchange);

// The experts of a rank: [*first, *first + *count).
void exchange_shunt_experts(size_t experts, int rank, int ranks, size_t *first,
                            size_t *count);

#endif
