// SPDX-License-Identifier: Apache-2.0
/*
 * The table of served calls, by call and by the distribution of the ranks over
 * nodes.
 *
 * A call is passed on to MPI unless Shunt is faster. The measurements are in
 * docs/drop-in.md: 2, 4 and 8 ranks of one node, and 2x2, 2x4, 4x2 and 8x1
 * (nodes x ranks). Sizes matter only if the standard requires the bytes to be
 * equal on all ranks. In MPI_Alltoallv() and MPI_Alltoallw() a rank knows only
 * its own counts, so they are served at every size or at none.
 */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bindings/mpi/dropin.h"
#include "bindings/mpi/env.h"

#define ALL         \
    {               \
        0, SIZE_MAX \
    }
#define NONE \
    {        \
        1, 0 \
    }
#define FROM(bytes)       \
    {                     \
        (bytes), SIZE_MAX \
    }
#define MORE_THAN(bytes) FROM((bytes) + 1)

/*
 * The sizes in the table are bytes: of the vector (MPI_Bcast, MPI_Allreduce),
 * of all blocks that a rank receives (MPI_Alltoall, MPI_Allgather,
 * MPI_Allgatherv), or of all that a rank sends (MPI_Reduce_scatter,
 * MPI_Reduce_scatter_block).
 *
 * "Several nodes" have two or more ranks each, on average. Then the messages of
 * a node's ranks are combined. With one rank on each node there is nothing to
 * combine, and a message of MPI is cheaper.
 */
static const struct {
    struct shunti_mpi_range one_node, nodes;
    bool joins; /* served only if a Shunt communicator exists already */
} table[SHUNTI_MPI_CALLS] = {
    /*                                   on one node       on several */
    [SHUNTI_MPI_ALLTOALL] = {ALL, ALL, false},
    [SHUNTI_MPI_ALLTOALLV] = {ALL, ALL, false},
    [SHUNTI_MPI_ALLTOALLW] = {ALL, ALL, false},
    [SHUNTI_MPI_ALLGATHER] = {ALL, FROM(64 << 10), false},
    [SHUNTI_MPI_ALLGATHERV] = {ALL, FROM(8 << 10), false},
    [SHUNTI_MPI_REDUCE_SCATTER] = {ALL, MORE_THAN(64 << 10), false},
    [SHUNTI_MPI_REDUCE_SCATTER_BLOCK] = {ALL, MORE_THAN(64 << 10), false},
    [SHUNTI_MPI_ALLREDUCE] = {ALL, NONE, false},
    [SHUNTI_MPI_BCAST] = {ALL, FROM(64 << 10), false},
    [SHUNTI_MPI_BARRIER] = {ALL, NONE, true},
};

enum shunti_mpi_mode shunti_mpi_mode(void)
{
    const char *text = secure_getenv(SHUNTI_MPI_VARIABLE);

    if (text && !strcasecmp(text, "off"))
        return SHUNTI_MPI_MODE_OFF;
    if (text && !strcasecmp(text, "force"))
        return SHUNTI_MPI_MODE_FORCE;
    return SHUNTI_MPI_MODE_ON;
}

/* Returns the table's entry for the distribution of this communicator's ranks
 * over nodes. */
static struct shunti_mpi_range spread(const struct shunti_mpi_comm *state,
                                      enum shunti_mpi_call call)
{
    static const struct shunti_mpi_range none = NONE;

    if (state->nodes == 1)
        return table[call].one_node;
    return state->size >= 2 * state->nodes ? table[call].nodes : none;
}

static bool is_none(struct shunti_mpi_range range)
{
    return range.from > range.upto;
}

static struct shunti_mpi_range served(const struct shunti_mpi_comm *state,
                                      enum shunti_mpi_call call)
{
    static const struct shunti_mpi_range every = ALL, none = NONE;

    if (state->mode == SHUNTI_MPI_MODE_FORCE)
        return every;
    return table[call].joins && !state->shunt ? none : spread(state, call);
}

enum shunti_mpi_reason shunti_mpi_why_not(const struct shunti_mpi_comm *state,
                                          enum shunti_mpi_call call)
{
    return state->reason == SHUNTI_MPI_FASTER && is_none(state->served[call]) &&
                   !is_none(spread(state, call))
               ? SHUNTI_MPI_JOINS
               : state->reason;
}

void shunti_mpi_serve_none(struct shunti_mpi_comm *state,
                           enum shunti_mpi_reason reason)
{
    for (int call = 0; call < SHUNTI_MPI_CALLS; call++)
        state->served[call] = (struct shunti_mpi_range)NONE;
    state->reason = reason;
    state->never = true;
}

void shunti_mpi_ask_table(struct shunti_mpi_comm *state, int nodes)
{
    if (state->mode == SHUNTI_MPI_MODE_OFF) {
        shunti_mpi_serve_none(state, SHUNTI_MPI_OFF);
        return;
    }
    state->nodes = nodes;
    for (int call = 0; call < SHUNTI_MPI_CALLS; call++)
        state->served[call] = served(state, (enum shunti_mpi_call)call);
    state->reason = SHUNTI_MPI_FASTER;
}
