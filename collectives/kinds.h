// SPDX-License-Identifier: Apache-2.0
/*
 * The numbers of the collectives' kinds (src/base/kind.h). Each collective registers
 * its kind in its own file. Numbers from 32 on are free.
 */
#ifndef SHUNTI_COLLECTIVES_KINDS_H
#define SHUNTI_COLLECTIVES_KINDS_H

enum shunti_collective {
    SHUNTI_KIND_BARRIER = 1,
    SHUNTI_KIND_BROADCAST,
    SHUNTI_KIND_ALLGATHER,
    SHUNTI_KIND_ALLGATHERV,
    SHUNTI_KIND_REDUCE_SCATTER,
    SHUNTI_KIND_REDUCE_SCATTERV,
    SHUNTI_KIND_ALLREDUCE,
    SHUNTI_KIND_ALLTOALL,
    SHUNTI_KIND_ALLTOALLV,
};

#endif
