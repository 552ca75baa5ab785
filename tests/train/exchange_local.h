// SPDX-License-Identifier: Apache-2.0
/*
 * An exchange (train/exchange.h) with one rank that has all experts and
 * needs no library: the reference that the model is tested with.
 */
#ifndef TEST_EXCHANGE_LOCAL_H
#define TEST_EXCHANGE_LOCAL_H

#include "train/exchange.h"

struct exchange *exchange_local_create(size_t layers, size_t experts,
                                       size_t topk, size_t dim);
void exchange_local_destroy(struct exchange *x);

#endif
