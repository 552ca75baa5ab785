// SPDX-License-Identifier: Apache-2.0
/* The public calls on handles that a child of fork() inherits; see
 * fork_calls.h. */
#include "tests/comm/fork_calls.h"

#include <stdio.h>
#include <string.h>

#define W struct fork_world *w

/* The name of a call, and the call. */
struct row {
    const char *name;
    enum shunt_status (*call)(W);
};

/* Output of the calls. */
static int64_t into[1 << 16];
static struct shunt_comm *comm_out;
static struct shunt_moe *moe_out;
static struct shunt_moe_plan *plan_out;
static struct shunt_request *request_out;
static void *memory_out;
static const int *lost_out;
static size_t size_out;

#define ROW(name, expression)              \
    static enum shunt_status name##_row(W) \
    {                                      \
        (void)w;                           \
        return expression;                 \
    }

/* Collectives. A child's value is 1000 times its parent's. So a peer that
 * received the child's value would get a wrong sum. */
static int64_t value[1 << 16];
static size_t counts[64], displs[64];

#define COLLECTIVE(name, ...)                     \
    ROW(name, shunt_##name(w->comm, __VA_ARGS__)) \
    ROW(name##_start, shunt_##name##_start(w->comm, __VA_ARGS__, &request_out))

ROW(barrier, shunt_barrier(w->comm))
ROW(barrier_start, shunt_barrier_start(w->comm, &request_out))
COLLECTIVE(allreduce, value, into, 1, SHUNT_I64, SHUNT_SUM)
COLLECTIVE(broadcast, value, 1, SHUNT_I64, w->self->rank)
COLLECTIVE(allgather, value, into, 1, SHUNT_I64)
COLLECTIVE(allgatherv, value, 1, into, counts, displs, SHUNT_I64)
COLLECTIVE(reduce_scatter, value, into, 1, SHUNT_I64, SHUNT_SUM)
COLLECTIVE(reduce_scatterv, value, into, counts, SHUNT_I64, SHUNT_SUM)
COLLECTIVE(alltoall, value, into, 1, SHUNT_I64)
COLLECTIVE(alltoallv, value, counts, displs, into, counts, displs, SHUNT_I64)

/* The child must refuse a bad argument by itself. The refusal must not be sent
 * to the other ranks. */
ROW(bad_allreduce,
    shunt_allreduce(w->comm, NULL, into, 1, SHUNT_I64, SHUNT_SUM))

static void tile(void *arg, size_t row, size_t rows, size_t col, size_t cols,
                 float *out, size_t ld)
{
    (void)arg;
    (void)row;
    (void)col;
    for (size_t r = 0; r < rows; r++)
        memset(out + r * ld, 0, cols * sizeof(float));
}

static const struct shunt_gemm_reduce_scatter_args gemm_rs = {
    .size = sizeof(gemm_rs),
    .rows = 8,
    .cols = 8,
    .tile = tile,
    .out = into,
    .dtype = SHUNT_F32,
};

static const struct shunt_allgather_gemm_args ag_gemm = {
    .size = sizeof(ag_gemm),
    .rows = 8,
    .cols = 8,
    .row_bytes = 32,
    .shard = value,
    .gathered = into,
    .tile = tile,
    .out = into + 4096,
    .dtype = SHUNT_F32,
};

ROW(gemm_reduce_scatter, shunt_gemm_reduce_scatter(w->comm, &gemm_rs))
ROW(gemm_reduce_scatter_start,
    shunt_gemm_reduce_scatter_start(w->comm, &gemm_rs, &request_out))
ROW(allgather_gemm, shunt_allgather_gemm(w->comm, &ag_gemm))
ROW(allgather_gemm_start,
    shunt_allgather_gemm_start(w->comm, &ag_gemm, &request_out))

/* Communicators and memory. */
static struct shunt_comm_stats stats;
static struct shunt_peer_stats peer_stats;

ROW(comm_split, shunt_comm_split(w->comm, 0, 0, &comm_out))
ROW(comm_dup, shunt_comm_dup(w->comm, &comm_out))
ROW(comm_shrink, shunt_comm_shrink(w->comm, &comm_out))
ROW(comm_finish, shunt_comm_finish(w->comm))
ROW(comm_lost, shunt_comm_lost(w->comm, &lost_out, &size_out))
ROW(comm_get_stats, shunt_comm_get_stats(w->comm, &stats, sizeof(stats)))
ROW(comm_get_peer_stats,
    shunt_comm_get_peer_stats(w->comm, 0, &peer_stats, sizeof(peer_stats)))
ROW(mem_alloc, shunt_mem_alloc(w->comm, 4096, &memory_out))
ROW(mem_free, shunt_mem_free(w->comm, w->window))
ROW(mem_free_nothing, shunt_mem_free(w->comm, NULL))
ROW(mem_register, shunt_mem_register(w->comm, value, sizeof(value)))
ROW(mem_deregister, shunt_mem_deregister(w->comm, w->send))

/* Requests. */
static struct shunt_request *copy;

static void tell_nobody(void *arg)
{
    *(int64_t *)arg = 1;
}

ROW(test, (copy = w->begun[0], shunt_test(&copy)))
ROW(wait, (copy = w->begun[1], shunt_wait(&copy)))
ROW(wait_for_done, (copy = w->done, shunt_wait(&copy)))
ROW(notify, shunt_notify(w->begun[0], tell_nobody, into))
ROW(notify_fd, shunt_notify_fd(w->begun[0], w->event))

/* Exchanges. */
static struct shunt_moe_config config(const struct fork_world *w)
{
    struct shunt_moe_config c = SHUNT_MOE_CONFIG_INIT;

    c.hidden = FORK_HIDDEN;
    c.dtype = SHUNT_F32;
    c.experts = 2 * w->self->size;
    c.topk = FORK_TOPK;
    c.max_tokens = FORK_TOKENS;
    c.weights = SHUNT_MOE_APPLY_WEIGHTS;
    return c;
}

static enum shunt_status create(W)
{
    const struct shunt_moe_config c = config(w);

    return shunt_moe_create(w->comm, &c, &moe_out);
}

ROW(moe_create, create(w))
ROW(moe_set_placement, shunt_moe_set_placement(w->moe, NULL, NULL, 0))
ROW(moe_set_shares, shunt_moe_set_shares(w->moe, NULL, NULL, 0, NULL))
ROW(moe_plan_create,
    shunt_moe_plan_create(w->moe, w->idx, w->weight, FORK_TOKENS, &plan_out))
ROW(moe_plan_create_parts,
    shunt_moe_plan_create_parts(w->moe, w->idx, w->weight, FORK_TOKENS, 2,
                                &plan_out))
ROW(moe_plan_create_with,
    shunt_moe_plan_create_with(w->moe, w->idx, w->weight, FORK_TOKENS, NULL,
                               &plan_out))

static struct shunt_moe_array array = {value, 8, 0};
static struct shunt_moe_state state = {
    .size = sizeof(state), .array = &array, .arrays = 1};

ROW(moe_replicas_refresh, shunt_moe_replicas_refresh(w->moe, &state))
ROW(moe_replicas_refresh_start,
    shunt_moe_replicas_refresh_start(w->moe, &state, &request_out))
ROW(moe_replicas_reduce, shunt_moe_replicas_reduce(w->moe, &state, SHUNT_F32))
ROW(moe_replicas_reduce_start,
    shunt_moe_replicas_reduce_start(w->moe, &state, SHUNT_F32, &request_out))
ROW(moe_move, shunt_moe_move(w->moe, NULL, NULL, 0, &state, &state))
ROW(moe_move_start,
    shunt_moe_move_start(w->moe, NULL, NULL, 0, &state, &state, &request_out))

/* Plans. */
static float *sums[128];

#define ON_PLAN(name, ...)                                              \
    ROW(name, shunt_moe_##name(w->plan, __VA_ARGS__))                   \
    ROW(name##_start,                                                   \
        shunt_moe_##name##_start(w->plan, __VA_ARGS__, &request_out))   \
    ROW(name##_part, shunt_moe_##name##_part(w->parts, 0, __VA_ARGS__)) \
    ROW(name##_part_start,                                              \
        shunt_moe_##name##_part_start(w->parts, 0, __VA_ARGS__, &request_out))

ON_PLAN(dispatch, value, into, 4096)
ON_PLAN(combine, value, NULL, into)
ON_PLAN(combine_backward, value, value + 4096, into, 4096, NULL)
ON_PLAN(dispatch_backward, value, into)
ROW(moe_gradients_reduce, shunt_moe_gradients_reduce(w->plan, sums, &state, 0))
ROW(moe_gradients_reduce_start,
    shunt_moe_gradients_reduce_start(w->plan, sums, &state, 0, &request_out))
ROW(moe_loads, shunt_moe_loads(w->plan, into))
ROW(moe_loads_by_source, shunt_moe_loads_by_source(w->plan, into))
ROW(moe_plan_took, shunt_moe_plan_took(w->plan, 1.0))

static struct shunt_moe_part_rows part_rows;

ROW(moe_part_rows,
    shunt_moe_part_rows(w->parts, 0, &part_rows, sizeof(part_rows)))

#define IS(name)          \
    {                     \
#name, name##_row \
    }
#define BOTH(name) IS(name), IS(name##_start)
#define FOUR(name) BOTH(name), IS(name##_part), IS(name##_part_start)

static const struct row rows[] = {
    BOTH(allreduce),
    BOTH(barrier),
    BOTH(broadcast),
    BOTH(allgather),
    BOTH(allgatherv),
    BOTH(reduce_scatter),
    BOTH(reduce_scatterv),
    BOTH(alltoall),
    BOTH(alltoallv),
    IS(bad_allreduce),
    BOTH(gemm_reduce_scatter),
    BOTH(allgather_gemm),
    IS(comm_split),
    IS(comm_dup),
    IS(comm_shrink),
    IS(comm_lost),
    IS(comm_get_stats),
    IS(comm_get_peer_stats),
    IS(mem_alloc),
    IS(mem_free),
    IS(mem_free_nothing),
    IS(mem_register),
    IS(mem_deregister),
    IS(notify),
    IS(notify_fd),
    IS(test),
    IS(wait),
    IS(wait_for_done),
    IS(moe_create),
    IS(moe_set_placement),
    IS(moe_set_shares),
    IS(moe_plan_create),
    IS(moe_plan_create_parts),
    IS(moe_plan_create_with),
    BOTH(moe_replicas_refresh),
    BOTH(moe_replicas_reduce),
    BOTH(moe_move),
    FOUR(dispatch),
    FOUR(combine),
    FOUR(combine_backward),
    FOUR(dispatch_backward),
    BOTH(moe_gradients_reduce),
    IS(moe_loads),
    IS(moe_loads_by_source),
    IS(moe_plan_took),
    IS(moe_part_rows),
    IS(comm_finish),
};

static bool is_empty(const void *bytes, size_t n)
{
    const unsigned char *b = bytes;

    for (size_t i = 0; i < n; i++)
        if (b[i])
            return false;
    return true;
}

/* Calls that return no status. The numbers that they return must not change,
 * and they must return no memory. */
static int try_queries(W)
{
    struct shunt_moe_rows plan_rows = {0};
    struct shunt_moe_memory memory;
    struct shunt_moe_degree degree;

    shunt_moe_plan_rows(w->plan, &plan_rows, sizeof(plan_rows));
    shunt_moe_memory(w->moe, &memory, sizeof(memory));
    shunt_moe_degree(w->moe, FORK_TOKENS, &degree, sizeof(degree));
    CHECK(shunt_comm_rank(w->comm) == w->self->rank, "rank");
    CHECK(shunt_comm_size(w->comm) == w->self->size, "size");
    CHECK(shunt_comm_node(w->comm, 0) == 0, "node of rank 0");
    CHECK(shunt_comm_nodes(w->comm) >= 1, "nodes");
    CHECK(shunt_comm_local_rank(w->comm) >= 0, "local rank");
    CHECK(shunt_comm_local_size(w->comm) >= 1, "local size");
    CHECK(shunt_comm_transport(w->comm, 0)[0], "transport");
    CHECK(is_empty(&plan_rows, sizeof(plan_rows)), "rows of a plan");
    CHECK(is_empty(&memory, sizeof(memory)), "memory of an exchange");
    CHECK(is_empty(&degree, sizeof(degree)), "degree of an exchange");
    CHECK(!shunt_moe_buffer(w->plan, SHUNT_MOE_ROWS), "a buffer of a plan");
    CHECK(!shunt_moe_plan_wave(w->plan, 0), "a wave of a plan");
    shunt_comm_abort(w->comm);
    CHECK(shunt_comm_async_status(w->comm) == SHUNT_ERR_INVALID,
          "asynchronous status");
    return 0;
}

int fork_calls_try(W, const char *only)
{
    int bad = 0;

    for (size_t i = 0; i < sizeof(value) / sizeof(*value); i++)
        value[i] = 1000;
    for (int r = 0; r < w->self->size; r++) {
        counts[r] = 1;
        displs[r] = (size_t)r;
    }
    for (size_t i = 0; i < sizeof(sums) / sizeof(*sums); i++)
        sums[i] = (float *)(void *)into;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const char *text;
        enum shunt_status st;

        if (only && strcmp(only, rows[i].name) != 0)
            continue;
        st = rows[i].call(w);
        text = shunt_last_error(NULL);
        if (st == SHUNT_ERR_INVALID && strstr(text, "made before fork()"))
            continue;
        rank_fail(__FILE__, __LINE__, rows[i].name, "in a child: %s (%s)",
                  shunt_strerror(st), text);
        bad++;
    }
    return only ? bad : bad + try_queries(w);
}
