// SPDX-License-Identifier: Apache-2.0
/* An exchange of rows by MPI_Alltoallv, to compare training with. */
#ifndef TRAIN_EXCHANGE_MPI_H
#define TRAIN_EXCHANGE_MPI_H

#include "train/base/team.h"
#include "train/exchange/exchange.h"
#include "train/parameters/layout.h"

/* team->mpi sends the rows. fp8, a capacity and overlap are not supported.
 * Collective. 0, or -1 with train_error_text(). */
int exchange_mpi_create(struct team *team, const struct model_config *model,
                        const struct exchange_config *config,
                        struct exchange **exchange);

#endif
