// SPDX-License-Identifier: Apache-2.0
/*
 * An exchange (train/exchange/exchange.h) of a single rank with all experts,
 * which needs no library. Tests of the model use this exchange.
 */
#ifndef TEST_EXCHANGE_LOCAL_H
#define TEST_EXCHANGE_LOCAL_H

#include "train/exchange/exchange.h"

struct exchange *exchange_local_create(size_t layers, size_t experts,
                                       size_t topk, size_t dim);
void exchange_local_destroy(struct exchange *x);

#endif
