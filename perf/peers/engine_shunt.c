// SPDX-License-Identifier: Apache-2.0
/*
 * The engine under test. Any failure ends the program with the library's error
 * text: a benchmark has nothing to recover.
 */
#include <stdlib.h>

#include <shunt/shunt.h>

#include "perf/peers/engine.h"

static struct shunt_comm *comm;

void perf_shunt_use(struct shunt_comm *used)
{
    comm = used;
}

static void must(enum shunt_status st, const char *what)
{
    if (st != SHUNT_OK)
        perf_die(PERF_EXIT_FAILED, "%s: %s: %s", what, shunt_strerror(st),
                 shunt_last_error(comm));
}

/* A plan sends its lists of rows after it is made. The barrier's control
 * messages are sent after the lists. So after the barrier all ranks have sent
 * their lists. */
static void plan_settle(void)
{
    must(shunt_barrier(comm), "barrier");
    must(shunt_barrier(comm), "barrier");
}

/* --- collectives ---------------------------------------------------------- */

struct call {
    struct perf_call c;
    struct shunt_request *request; /* the request of call_start() */
};

static const char *call_open(const struct perf_call *call, void **state)
{
    struct call *own = perf_alloc(sizeof(*own));
    *own = (struct call){.c = *call};
    *state = own;
    return NULL;
}

static void call_run(void *state)
{
    const struct perf_call *c = &((const struct call *)state)->c;
    const void *send = c->in_place ? SHUNT_IN_PLACE : c->send;
    enum shunt_status st = SHUNT_ERR_UNSUPPORTED;

    switch (c->op) {
    case PERF_BARRIER:
        st = shunt_barrier(comm);
        break;
    case PERF_BROADCAST:
        st = shunt_broadcast(comm, c->recv, c->count, c->dtype, c->root);
        break;
    case PERF_ALLGATHER:
        st = shunt_allgather(comm, send, c->recv, c->count, c->dtype);
        break;
    case PERF_ALLGATHERV:
        st = shunt_allgatherv(comm, send, c->recv_counts[c->rank], c->recv,
                              c->recv_counts, c->recv_displs, c->dtype);
        break;
    case PERF_REDUCE_SCATTER:
        st = shunt_reduce_scatter(comm, send, c->recv, c->count, c->dtype,
                                  c->reduce);
        break;
    case PERF_REDUCE_SCATTERV:
        st = shunt_reduce_scatterv(comm, send, c->recv, c->send_counts,
                                   c->dtype, c->reduce);
        break;
    case PERF_ALLREDUCE:
        st =
            shunt_allreduce(comm, send, c->recv, c->count, c->dtype, c->reduce);
        break;
    case PERF_ALLTOALL:
        st = shunt_alltoall(comm, send, c->recv, c->count, c->dtype);
        break;
    case PERF_ALLTOALLV:
        st = shunt_alltoallv(comm, send, c->send_counts, c->send_displs,
                             c->recv, c->recv_counts, c->recv_displs, c->dtype);
        break;
    default:
        break;
    }
    must(st, perf_op_name(c->op));
}

static void call_start(void *state)
{
    struct call *k = state;
    const struct perf_call *c = &k->c;
    const void *send = c->in_place ? SHUNT_IN_PLACE : c->send;
    enum shunt_status st = SHUNT_ERR_UNSUPPORTED;

    switch (c->op) {
    case PERF_BARRIER:
        st = shunt_barrier_start(comm, &k->request);
        break;
    case PERF_BROADCAST:
        st = shunt_broadcast_start(comm, c->recv, c->count, c->dtype, c->root,
                                   &k->request);
        break;
    case PERF_ALLGATHER:
        st = shunt_allgather_start(comm, send, c->recv, c->count, c->dtype,
                                   &k->request);
        break;
    case PERF_ALLGATHERV:
        st = shunt_allgatherv_start(comm, send, c->recv_counts[c->rank],
                                    c->recv, c->recv_counts, c->recv_displs,
                                    c->dtype, &k->request);
        break;
    case PERF_REDUCE_SCATTER:
        st = shunt_reduce_scatter_start(comm, send, c->recv, c->count, c->dtype,
                                        c->reduce, &k->request);
        break;
    case PERF_REDUCE_SCATTERV:
        st = shunt_reduce_scatterv_start(comm, send, c->recv, c->send_counts,
                                         c->dtype, c->reduce, &k->request);
        break;
    case PERF_ALLREDUCE:
        st = shunt_allreduce_start(comm, send, c->recv, c->count, c->dtype,
                                   c->reduce, &k->request);
        break;
    case PERF_ALLTOALL:
        st = shunt_alltoall_start(comm, send, c->recv, c->count, c->dtype,
                                  &k->request);
        break;
    case PERF_ALLTOALLV:
        st = shunt_alltoallv_start(comm, send, c->send_counts, c->send_displs,
                                   c->recv, c->recv_counts, c->recv_displs,
                                   c->dtype, &k->request);
        break;
    default:
        break;
    }
    must(st, perf_op_name(c->op));
}

static void test_request(struct shunt_request **request)
{
    enum shunt_status st = shunt_test(request);
    if (st != SHUNT_IN_PROGRESS)
        must(st, "test");
}

static void call_test(void *state)
{
    test_request(&((struct call *)state)->request);
}

static void call_wait(void *state)
{
    must(shunt_wait(&((struct call *)state)->request), "wait");
}

static void call_close(void *state)
{
    free(state);
}

/* --- exchanges of tokens -------------------------------------------------- */

struct exchange {
    struct perf_exchange x;
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    void *buffer[4]; /* by enum shunt_moe_buffer, under the plan */
    size_t max_rows;
    struct shunt_request *request[SHUNT_MOE_PARTS_MAX]; /* the requests of
                                                         * moe_start() */
};

static const char *moe_open(const struct perf_exchange *exchange, void **state)
{
    struct exchange *e = perf_alloc(sizeof(*e));
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;

    *e = (struct exchange){.x = *exchange};
    config.hidden = exchange->hidden;
    config.dtype = exchange->dtype;
    config.experts = exchange->experts;
    config.topk = exchange->topk;
    config.max_tokens = exchange->tokens;
    config.weights = SHUNT_MOE_APPLY_WEIGHTS;
    config.wire = exchange->wire;
    config.mode = exchange->modes.there;
    config.combine_mode = exchange->modes.back;
    config.partials = exchange->partials;
    must(shunt_moe_create(comm, &config, &e->moe), "moe_create");
    *state = e;
    return NULL;
}

/* Returns the caller's buffer, or the plan's if there is none. */
static void *find_buffer(const struct exchange *e, enum shunt_moe_buffer which)
{
    bool arrives = which == SHUNT_MOE_ROWS || which == SHUNT_MOE_DOUT;
    void *given = arrives ? e->x.rows : e->x.out;
    return given ? given : shunt_moe_buffer(e->plan, which);
}

static void moe_plan(void *state)
{
    struct exchange *e = state;
    struct shunt_moe_rows rows;

    must(shunt_moe_plan_create_parts(e->moe, e->x.index, e->x.weight,
                                     e->x.tokens, e->x.parts, &e->plan),
         "moe_plan_create");
    /* A dispatch needs the buffers, so their setup is timed with the plan. */
    shunt_moe_plan_rows(e->plan, &rows, sizeof(rows));
    e->max_rows = rows.total;
    e->buffer[SHUNT_MOE_ROWS] = find_buffer(e, SHUNT_MOE_ROWS);
    e->buffer[SHUNT_MOE_OUT] = find_buffer(e, SHUNT_MOE_OUT);
    if (!e->x.dweight)
        return;
    e->buffer[SHUNT_MOE_DOUT] = find_buffer(e, SHUNT_MOE_DOUT);
    e->buffer[SHUNT_MOE_DROWS] = find_buffer(e, SHUNT_MOE_DROWS);
}

static const char *go_name(enum perf_go what)
{
    switch (what) {
    case PERF_GO_DISPATCH:
        return "moe_dispatch";
    case PERF_GO_COMBINE:
        return "moe_combine";
    case PERF_GO_COMBINE_BACKWARD:
        return "moe_combine_backward";
    case PERF_GO_DISPATCH_BACKWARD:
        return "moe_dispatch_backward";
    }
    return "?";
}

static void start_part(struct exchange *e, enum perf_go what, int part)
{
    struct shunt_request **request = &e->request[part];
    enum shunt_status st = SHUNT_ERR_UNSUPPORTED;

    switch (what) {
    case PERF_GO_DISPATCH:
        st = shunt_moe_dispatch_part_start(e->plan, part, e->x.x,
                                           e->buffer[SHUNT_MOE_ROWS],
                                           e->max_rows, request);
        break;
    case PERF_GO_COMBINE:
        st = shunt_moe_combine_part_start(
            e->plan, part, e->buffer[SHUNT_MOE_OUT], NULL, e->x.y, request);
        break;
    case PERF_GO_COMBINE_BACKWARD:
        st = shunt_moe_combine_backward_part_start(
            e->plan, part, e->x.x, e->buffer[SHUNT_MOE_OUT],
            e->buffer[SHUNT_MOE_DOUT], e->max_rows, e->x.dweight, request);
        break;
    case PERF_GO_DISPATCH_BACKWARD:
        st = shunt_moe_dispatch_backward_part_start(
            e->plan, part, e->buffer[SHUNT_MOE_DROWS], e->x.y, request);
        break;
    }
    must(st, go_name(what));
}

static void start_parts(struct exchange *e, enum perf_go what)
{
    for (int p = 0; p < e->x.parts; p++)
        start_part(e, what, p);
}

static void moe_wait(void *state)
{
    struct exchange *e = state;

    must(shunt_wait_all(e->request, (size_t)e->x.parts), "wait");
}

static void moe_go(void *state, enum perf_go what)
{
    struct exchange *e = state;
    enum shunt_status st = SHUNT_ERR_UNSUPPORTED;

    if (e->x.parts > 1) {
        start_parts(e, what);
        moe_wait(e);
        return;
    }

    switch (what) {
    case PERF_GO_DISPATCH:
        st = shunt_moe_dispatch(e->plan, e->x.x, e->buffer[SHUNT_MOE_ROWS],
                                e->max_rows);
        break;
    case PERF_GO_COMBINE:
        st = shunt_moe_combine(e->plan, e->buffer[SHUNT_MOE_OUT], NULL, e->x.y);
        break;
    case PERF_GO_COMBINE_BACKWARD:
        st = shunt_moe_combine_backward(
            e->plan, e->x.x, e->buffer[SHUNT_MOE_OUT],
            e->buffer[SHUNT_MOE_DOUT], e->max_rows, e->x.dweight);
        break;
    case PERF_GO_DISPATCH_BACKWARD:
        st = shunt_moe_dispatch_backward(e->plan, e->buffer[SHUNT_MOE_DROWS],
                                         e->x.y);
        break;
    }
    must(st, go_name(what));
}

static void moe_start(void *state, enum perf_go what)
{
    struct exchange *e = state;
    enum shunt_status st = SHUNT_ERR_UNSUPPORTED;

    if (e->x.parts > 1) {
        start_parts(e, what);
        return;
    }

    switch (what) {
    case PERF_GO_DISPATCH:
        st =
            shunt_moe_dispatch_start(e->plan, e->x.x, e->buffer[SHUNT_MOE_ROWS],
                                     e->max_rows, &e->request[0]);
        break;
    case PERF_GO_COMBINE:
        st = shunt_moe_combine_start(e->plan, e->buffer[SHUNT_MOE_OUT], NULL,
                                     e->x.y, &e->request[0]);
        break;
    case PERF_GO_COMBINE_BACKWARD:
        st = shunt_moe_combine_backward_start(
            e->plan, e->x.x, e->buffer[SHUNT_MOE_OUT],
            e->buffer[SHUNT_MOE_DOUT], e->max_rows, e->x.dweight,
            &e->request[0]);
        break;
    case PERF_GO_DISPATCH_BACKWARD:
        st = shunt_moe_dispatch_backward_start(
            e->plan, e->buffer[SHUNT_MOE_DROWS], e->x.y, &e->request[0]);
        break;
    }
    must(st, go_name(what));
}

static void moe_test(void *state)
{
    struct exchange *e = state;

    for (int p = 0; p < e->x.parts; p++)
        test_request(&e->request[p]);
}

static void moe_release(void *state)
{
    struct exchange *e = state;
    shunt_moe_plan_destroy(e->plan);
    e->plan = NULL;
}

static void moe_close(void *state)
{
    struct exchange *e = state;
    shunt_moe_plan_destroy(e->plan);
    shunt_moe_destroy(e->moe);
    free(e);
}

static void *moe_buffer(void *state, enum shunt_moe_buffer which)
{
    struct exchange *e = state;
    struct shunt_moe_rows rows;

    shunt_moe_plan_rows(e->plan, &rows, sizeof(rows));
    if (rows.total != e->x.total)
        perf_die(PERF_EXIT_WRONG, "the plan has %zu rows, but the routing %zu",
                 rows.total, e->x.total);
    return e->buffer[which];
}

struct perf_sent perf_shunt_sent(void *state)
{
    struct exchange *e = state;
    struct shunt_moe_rows rows;
    shunt_moe_plan_rows(e->plan, &rows, sizeof(rows));

    return (struct perf_sent){
        .modes = {rows.mode, rows.combine_mode},
        .rows = rows.network_rows,
        .rows_plain = rows.network_rows_plain,
        .dispatch = rows.network_dispatch_bytes,
        .combine = rows.network_combine_bytes,
    };
}

static const char *moe_note(void *state)
{
    const struct exchange *e = state;
    return e->x.wire == SHUNT_MOE_WIRE_FP8
               ? "shunt sends e4m3 with a scale per 128 elements"
               : NULL;
}

const struct perf_engine perf_engine_shunt = {
    .name = "shunt",
    .delivers = true,
    .plan_settle = plan_settle,
    .call_open = call_open,
    .call_run = call_run,
    .call_close = call_close,
    .call_start = call_start,
    .call_test = call_test,
    .call_wait = call_wait,
    .moe_open = moe_open,
    .moe_plan = moe_plan,
    .moe_go = moe_go,
    .moe_release = moe_release,
    .moe_close = moe_close,
    .moe_start = moe_start,
    .moe_test = moe_test,
    .moe_wait = moe_wait,
    .moe_buffer = moe_buffer,
    .moe_note = moe_note,
};
