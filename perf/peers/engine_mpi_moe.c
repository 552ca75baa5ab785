// SPDX-License-Identifier: Apache-2.0
/*
 * Exchanges of tokens by MPI: MPI calls, and the code around them that programs
 * contain today. shunt-train uses the same code (train/baseline). A row is one
 * MPI type, so that no count overflows. All memory is allocated before.
 */
#include "perf/peers/engine_mpi.h"

#include "train/baseline/baseline.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

struct exchange {
    struct perf_exchange x;
    struct baseline b;
    struct baseline_plan p;
    MPI_Datatype row;

    char *here;  /* (tokens * topk, hidden) packed rows of this rank's tokens */
    char *home;  /* rows that combine returns: `here`, or separate memory for
                  * the gradient of the weights */
    char *there; /* (total, hidden) rows as they arrive, by source */
    MPI_Request request; /* the request of perf_mpi_moe_start() */
    enum perf_go started;
};

/* Allocates memory and touches its pages: a program that has run for a while
 * has no page faults. */
static char *touched(size_t bytes)
{
    char *p = perf_mpi_alloc(bytes);
    memset(p, 0, bytes);
    return p;
}

const char *perf_mpi_moe_open(const struct perf_exchange *exchange,
                              void **state)
{
    const struct perf_exchange *x = exchange;
    size_t rows = x->tokens * (size_t)x->topk;

    if (rows > INT_MAX || x->total > INT_MAX)
        return "MPI counts with int, these are too many rows";

    struct exchange *e = perf_mpi_alloc(sizeof(*e));
    *e = (struct exchange){
        .x = *x,
        .b = {.rank = x->rank,
              .ranks = x->ranks,
              .experts = x->experts,
              .topk = x->topk,
              .hidden = x->hidden,
              .dtype = x->dtype},
    };
    if (!baseline_init(&e->b) || !baseline_plan_init(&e->b, &e->p, x->tokens)) {
        baseline_finish(&e->b);
        free(e);
        return "no memory for a plan by MPI";
    }
    e->here = touched(rows * e->b.bytes);
    e->there = touched(x->total * e->b.bytes);
    e->home = x->dweight ? touched(rows * e->b.bytes) : e->here;

    MPI_Type_contiguous((int)e->b.bytes, MPI_BYTE, &e->row);
    MPI_Type_commit(&e->row);
    *state = e;
    return NULL;
}

void perf_mpi_moe_plan(void *state)
{
    struct exchange *e = state;

    baseline_plan_packing(&e->b, &e->p, e->x.index, e->x.tokens);
    MPI_Alltoall(e->p.send_table, e->b.most, MPI_INT, e->p.recv_table,
                 e->b.most, MPI_INT, MPI_COMM_WORLD);
    baseline_plan_arrivals(&e->b, &e->p);
}

static bool goes_there(enum perf_go what)
{
    return what == PERF_GO_DISPATCH || what == PERF_GO_COMBINE_BACKWARD;
}

/* Returns the buffer in which combine and dispatch_backward receive rows. */
static char *landing(const struct exchange *e, enum perf_go what)
{
    return what == PERF_GO_COMBINE ? e->home : e->here;
}

/* Pack rows before the all-to-all. */
static void pack(struct exchange *e, enum perf_go what)
{
    const struct perf_exchange *x = &e->x;

    if (what == PERF_GO_DISPATCH)
        baseline_pack(&e->b, &e->p, x->x, e->here);
    else if (what == PERF_GO_COMBINE_BACKWARD)
        baseline_pack_gradients(&e->b, &e->p, x->x, x->weight, e->home, e->here,
                                x->dweight);
    else
        baseline_from_experts(&e->b, &e->p, x->out, e->there);
}

static void unpack(struct exchange *e, enum perf_go what)
{
    if (goes_there(what))
        baseline_to_experts(&e->b, &e->p, e->there, e->x.rows);
    else
        baseline_sum(&e->b, &e->p, landing(e, what),
                     what == PERF_GO_COMBINE ? e->x.weight : NULL, e->x.y);
}

void perf_mpi_moe_go(void *state, enum perf_go what)
{
    struct exchange *e = state;
    const struct baseline_plan *p = &e->p;

    pack(e, what);
    if (goes_there(what))
        MPI_Alltoallv(e->here, p->send_counts, p->send_displs, e->row, e->there,
                      p->recv_counts, p->recv_displs, e->row, MPI_COMM_WORLD);
    else
        MPI_Alltoallv(e->there, p->recv_counts, p->recv_displs, e->row,
                      landing(e, what), p->send_counts, p->send_displs, e->row,
                      MPI_COMM_WORLD);
    unpack(e, what);
}

void perf_mpi_moe_start(void *state, enum perf_go what)
{
    struct exchange *e = state;
    const struct baseline_plan *p = &e->p;

    pack(e, what);
    e->started = what;
    if (goes_there(what))
        MPI_Ialltoallv(e->here, p->send_counts, p->send_displs, e->row,
                       e->there, p->recv_counts, p->recv_displs, e->row,
                       MPI_COMM_WORLD, &e->request);
    else
        MPI_Ialltoallv(e->there, p->recv_counts, p->recv_displs, e->row,
                       landing(e, what), p->send_counts, p->send_displs, e->row,
                       MPI_COMM_WORLD, &e->request);
}

void perf_mpi_moe_test(void *state)
{
    int done;
    MPI_Test(&((struct exchange *)state)->request, &done, MPI_STATUS_IGNORE);
}

void perf_mpi_moe_wait(void *state)
{
    struct exchange *e = state;
    MPI_Wait(&e->request, MPI_STATUS_IGNORE);
    unpack(e, e->started);
}

void perf_mpi_moe_release(void *state)
{
    (void)state;
}

void perf_mpi_moe_close(void *state)
{
    struct exchange *e = state;
    MPI_Type_free(&e->row);
    baseline_plan_finish(&e->p);
    baseline_finish(&e->b);
    if (e->home != e->here)
        free(e->home);
    free(e->here);
    free(e->there);
    free(e);
}

void *perf_mpi_moe_buffer(void *state, enum shunt_moe_buffer which)
{
    const struct perf_exchange *x = &((struct exchange *)state)->x;
    return which == SHUNT_MOE_ROWS || which == SHUNT_MOE_DOUT ? x->rows
                                                              : x->out;
}

const char *perf_mpi_moe_note(void *state)
{
    const struct exchange *e = state;
    return e->x.wire == SHUNT_MOE_WIRE_FP8
               ? "mpi sends the rows as they are, not in fp8"
               : NULL;
}
