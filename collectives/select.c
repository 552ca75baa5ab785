// SPDX-License-Identifier: Apache-2.0
/*
 * The choice between algorithms; see select.h.
 *
 *     collective          algorithm
 *     allreduce           direct up to SHUNT_ALLREDUCE_DIRECT bytes (0: never,
 *                         a large number: always), segments beyond
 *     all the others      one exchange of all pairs (exchange.h)
 *
 * How a block travels (inline, window, raw read, stream) is its sender's choice
 * alone, told in the note: note.h, SHUNT_EAGER and SHUNT_READ_MIN.
 */
#include "select.h"

#include "comm.h"

enum shunti_algorithm shunti_select_allreduce(const struct shunt_comm *comm,
                                              size_t bytes)
{
    if (comm->nranks == 1 || bytes <= comm->tune.allreduce_direct)
        return SHUNTI_ALLREDUCE_DIRECT;
    return SHUNTI_ALLREDUCE_SEGMENTS;
}
