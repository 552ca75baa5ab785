// SPDX-License-Identifier: Apache-2.0
/* The exchange for training: libshunt's plan, dispatch and combine. */
#ifndef TRAIN_EXCHANGE_SHUNT_H
#define TRAIN_EXCHANGE_SHUNT_H

#include "train/exchange.h"
#include "train/layout.h"
#include "train/team.h"

/* Collective. 0, or -1 with train_error_text(). */
int exchange_shunt_create(struct team *team, const struct model_config *model,
                          const struct exchange_config *config,
                          struct exchange **exchange);

#endif
