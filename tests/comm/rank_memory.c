// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of test_memory.c. The n-th allocation of one rank fails inside a
 * call, for each n up to the number of allocations in the call. No rank may
 * crash, wait in vain, or return SHUNT_OK with wrong data. If the call fails on
 * one rank, every rank must get an error that names it, from this call or the
 * next one.
 *
 *     rank_memory CALL VICTIM [STEP [abort]]
 *     rank_memory --threads N births VICTIM|anybody [STEP]
 *
 * With "abort" each rank whose call fails aborts at once. Each must still have
 * the error text of its own call.
 *
 * With "births" the call creates a communicator, and ranks are threads. For
 * every second n all later allocations of the victim fail as well, in a barrier
 * and in destroy.
 *
 * Each n has a communicator of its own, since a call on it may be the last one.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <shunt/shunt.h>

#include "tests/comm/memory_moe.h"
#include "tests/harness/failing_memory.h"
#include "tests/harness/rank_main.h"

/* --- calls ---------------------------------------------------------------- */

enum { MAX_RANKS = 16 };

struct scene {
    struct shunt_comm *comm;
    int rank, size;
    size_t count; /* elements of a block */
    int32_t *send, *recv;
    float *product; /* result of fused calls */
    unsigned char *shard, *gathered;
    bool usable; /* the object that the call made works */
    struct memory_moe moe;
};

static int32_t value(int from, int to, size_t i)
{
    return from * 1000003 + to * 10007 + (int32_t)(i % 1000);
}

static size_t blocks(const struct scene *s)
{
    return s->count * (size_t)s->size;
}

static void fill(const struct scene *s, int32_t *at)
{
    for (int to = 0; to < s->size; to++)
        for (size_t i = 0; i < s->count; i++)
            at[(size_t)to * s->count + i] = value(s->rank, to, i);
}

/* Checks the result of alltoall. */
static bool transposed(const struct scene *s)
{
    for (int from = 0; from < s->size; from++)
        for (size_t i = 0; i < s->count; i++)
            if (s->recv[(size_t)from * s->count + i] != value(from, s->rank, i))
                return false;
    return true;
}

/* The sum of element i of all ranks' blocks for `to`. */
static int32_t sum_of(const struct scene *s, int to, size_t i)
{
    int32_t sum = 0;

    for (int from = 0; from < s->size; from++)
        sum += value(from, to, i);
    return sum;
}

static enum shunt_status barrier(struct scene *s)
{
    return shunt_barrier(s->comm);
}

static enum shunt_status alltoall(struct scene *s)
{
    enum shunt_status st =
        shunt_alltoall(s->comm, s->send, s->recv, s->count, SHUNT_I32);

    s->usable = st || transposed(s);
    return st;
}

static void on_end(void *calls)
{
    atomic_fetch_add((atomic_int *)calls, 1);
}

/* If the library cannot notify, only this rank gets an error, and the call goes
 * on. */
static enum shunt_status notify(struct scene *s)
{
    struct shunt_request *request;
    atomic_int calls = 0;
    enum shunt_status st = shunt_alltoall_start(s->comm, s->send, s->recv,
                                                s->count, SHUNT_I32, &request);
    bool asked;

    if (st)
        return st;
    asked = !shunt_notify(request, on_end, &calls);
    st = shunt_wait(&request);
    s->usable = (st || transposed(s)) && atomic_load(&calls) == asked;
    return st;
}

static enum shunt_status alltoall_in_place(struct scene *s)
{
    enum shunt_status st =
        shunt_alltoall(s->comm, SHUNT_IN_PLACE, s->recv, s->count, SHUNT_I32);

    s->usable = st || transposed(s);
    return st;
}

static enum shunt_status allgather(struct scene *s)
{
    enum shunt_status st =
        shunt_allgather(s->comm, s->send, s->recv, s->count, SHUNT_I32);

    for (int from = 0; from < s->size && !st; from++)
        for (size_t i = 0; i < s->count; i++)
            s->usable &=
                s->recv[(size_t)from * s->count + i] == value(from, 0, i);
    return st;
}

static enum shunt_status broadcast(struct scene *s)
{
    const int root = s->size - 1;
    int32_t *at = s->rank == root ? s->send : s->recv;
    enum shunt_status st =
        shunt_broadcast(s->comm, at, s->count, SHUNT_I32, root);

    for (size_t i = 0; i < s->count && !st; i++)
        s->usable &= at[i] == value(root, 0, i);
    return st;
}

static enum shunt_status reduce_scatter(struct scene *s)
{
    enum shunt_status st = shunt_reduce_scatter(s->comm, s->send, s->recv,
                                                s->count, SHUNT_I32, SHUNT_SUM);

    for (size_t i = 0; i < s->count && !st; i++)
        s->usable &= s->recv[i] == sum_of(s, s->rank, i);
    return st;
}

static enum shunt_status allreduce(struct scene *s)
{
    enum shunt_status st = shunt_allreduce(s->comm, SHUNT_IN_PLACE, s->recv,
                                           blocks(s), SHUNT_I32, SHUNT_SUM);

    for (int to = 0; to < s->size && !st; to++)
        for (size_t i = 0; i < s->count; i++)
            s->usable &= s->recv[(size_t)to * s->count + i] == sum_of(s, to, i);
    return st;
}

static enum shunt_status window(struct scene *s)
{
    void *p;
    enum shunt_status st =
        shunt_mem_alloc(s->comm, blocks(s) * sizeof(int32_t), &p);

    if (st)
        return st;
    fill(s, p);
    st = shunt_alltoall(s->comm, p, s->recv, s->count, SHUNT_I32);
    s->usable = st || transposed(s);
    return st ? st : shunt_mem_free(s->comm, p);
}

static enum shunt_status split(struct scene *s)
{
    struct shunt_comm *half;
    enum shunt_status st = shunt_comm_split(s->comm, 0, -s->rank, &half);

    if (st)
        return st;
    s->usable = shunt_comm_rank(half) == s->size - 1 - s->rank;
    shunt_comm_destroy(half);
    return SHUNT_OK;
}

/* --- fused products: several panels and chunks ----------------------------- */

enum { FUSED_ROWS = 64, FUSED_COLS = 1024, FUSED_BYTES = 1024 };

/* Small integers, so that sums are exact. */
static float fused_value(int rank, size_t row, size_t col)
{
    return (float)((rank + 1) * (int)(1 + row % 5 + col % 3));
}

static void fused_tile(void *arg, size_t row, size_t rows, size_t col,
                       size_t cols, float *out, size_t ld)
{
    const struct scene *s = arg;

    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            out[i * ld + j] = fused_value(s->rank, row + i, col + j);
}

static enum shunt_status gemm_reduce_scatter(struct scene *s)
{
    static const struct shunt_epilogue twice = {.alpha = 2};
    const struct shunt_gemm_reduce_scatter_args args = {
        .size = sizeof(args),
        .rows = FUSED_ROWS * (size_t)s->size,
        .cols = FUSED_COLS,
        .tile = fused_tile,
        .arg = s,
        .epilogue = &twice,
        .out = s->product,
        .dtype = SHUNT_F32,
    };
    enum shunt_status st = shunt_gemm_reduce_scatter(s->comm, &args);

    for (size_t i = 0; i < FUSED_ROWS && !st; i++)
        for (size_t j = 0; j < FUSED_COLS; j++) {
            const size_t row = (size_t)s->rank * FUSED_ROWS + i;
            float sum = 0;

            for (int r = 0; r < s->size; r++)
                sum += fused_value(r, row, j);
            s->usable &= s->product[i * FUSED_COLS + j] == 2 * sum;
        }
    return st;
}

/* Each byte of a row is its rank's number, which the tile checks. */
static void fused_read(void *arg, size_t row, size_t rows, size_t col,
                       size_t cols, float *out, size_t ld)
{
    const struct scene *s = arg;

    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++)
            out[i * ld + j] = fused_value(s->gathered[(row + i) * FUSED_BYTES],
                                          row + i, col + j);
}

static enum shunt_status allgather_gemm(struct scene *s)
{
    static const struct shunt_epilogue twice = {.alpha = 2};
    const struct shunt_allgather_gemm_args args = {
        .size = sizeof(args),
        .rows = FUSED_ROWS * (size_t)s->size,
        .cols = 16,
        .row_bytes = FUSED_BYTES,
        .shard = memset(s->shard, s->rank, FUSED_ROWS * FUSED_BYTES),
        .gathered = s->gathered,
        .tile = fused_read,
        .arg = s,
        .epilogue = &twice,
        .out = s->product,
        .dtype = SHUNT_F32,
    };
    enum shunt_status st = shunt_allgather_gemm(s->comm, &args);

    for (size_t i = 0; i < args.rows && !st; i++)
        for (size_t j = 0; j < 16; j++)
            s->usable &= s->product[i * 16 + j] ==
                         2 * fused_value((int)(i / FUSED_ROWS), i, j);
    return st;
}

/* The first exchange of a communicator allocates a table. */
static enum shunt_status first_exchange(struct scene *s)
{
    s->moe = (struct memory_moe){
        .comm = s->comm, .rank = s->rank, .size = s->size, .right = true};
    return memory_moe_create(&s->moe);
}

enum { FIRST_EXCHANGE = 12 };

static const struct {
    const char *name;
    enum shunt_status (*make)(struct scene *s);
    /* if set, called instead of `make` */
    enum shunt_status (*make_moe)(struct memory_moe *m);
    /* The communicator still works after any failure. goes_on_between: between
     * nodes, too. */
    bool goes_on, goes_on_between;
} calls[] = {
    {"barrier", .make = barrier, .goes_on = true},
    {"alltoall", .make = alltoall, .goes_on = true},
    {"notify", .make = notify, .goes_on = true},
    {"alltoall_in_place", .make = alltoall_in_place, .goes_on = true},
    {"allgather", .make = allgather, .goes_on = true},
    {"broadcast", .make = broadcast, .goes_on = true},
    {"reduce_scatter", .make = reduce_scatter, .goes_on = true},
    {"allreduce", .make = allreduce, .goes_on = true},
    {"gemm_reduce_scatter", .make = gemm_reduce_scatter},
    {"allgather_gemm", .make = allgather_gemm},
    {"window", .make = window, .goes_on = true},
    {"split", .make = split, .goes_on = true, .goes_on_between = true},
    [FIRST_EXCHANGE] = {"moe_first", .make = first_exchange},
    {"moe_create", .make_moe = memory_moe_create},
    {"moe_plan", .make_moe = memory_moe_plan},
    {"moe_parts", .make_moe = memory_moe_parts},
    {"moe_waves", .make_moe = memory_moe_waves},
    {"moe_dispatch", .make_moe = memory_moe_dispatch, .goes_on = true,
     .goes_on_between = true},
    {"moe_dispatch_device", .make_moe = memory_moe_dispatch_device},
    {"moe_combine", .make_moe = memory_moe_combine, .goes_on = true,
     .goes_on_between = true},
    {"moe_combine_backward", .make_moe = memory_moe_combine_backward,
     .goes_on = true, .goes_on_between = true},
    {"moe_dispatch_backward", .make_moe = memory_moe_dispatch_backward,
     .goes_on = true, .goes_on_between = true},
    {"moe_refresh", .make_moe = memory_moe_refresh, .goes_on = true,
     .goes_on_between = true},
    {"moe_reduce", .make_moe = memory_moe_reduce, .goes_on = true,
     .goes_on_between = true},
    {"moe_move", .make_moe = memory_moe_move, .goes_on = true,
     .goes_on_between = true},
    {"moe_set_placement", .make_moe = memory_moe_set_placement},
    {"moe_set_shares", .make_moe = memory_moe_set_shares},
    {"moe_plan_shares", .make_moe = memory_moe_plan_shares},
    {"moe_waves_shares", .make_moe = memory_moe_waves_shares},
    {"moe_gradients", .make_moe = memory_moe_gradients, .goes_on = true},
};
enum { CALLS = sizeof(calls) / sizeof(*calls) };

/* --- the case ------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* True if the error names the victim. The victim itself need not be named in
 * its own error. */
static bool names(const struct scene *s, int victim)
{
    char name[32];

    snprintf(name, sizeof(name), "rank %d", victim);
    return s->rank == victim || strstr(shunt_last_error(s->comm), name);
}

/* True if the error is about memory: of the library, or of libc in a call that
 * the error text names. */
static bool is_memory(const struct scene *s, enum shunt_status st)
{
    return st == SHUNT_ERR_MEMORY ||
           (st == SHUNT_ERR_SYSTEM &&
            strstr(shunt_last_error(s->comm), strerror(ENOMEM)));
}

static enum shunt_status make(struct scene *s, int which)
{
    enum shunt_status st;

    if (!calls[which].make_moe)
        return calls[which].make(s);
    st = calls[which].make_moe(&s->moe);
    s->usable = s->usable && s->moe.right;
    return st;
}

/* Repeats the call, which must succeed because the communicator still works. */
static int again(struct scene *s, int which, long n)
{
    enum shunt_status st = make(s, which);

    CHECK(!st && s->usable, "%s after its allocation %ld failed: %s",
          calls[which].name, n, st ? rank_why(s->comm, st) : "wrong data");
    return 0;
}

/* True if a collective allocates all its memory before it begins. If blocks are
 * passed on, or memory is registered, it allocates memory later, and a failure
 * then ends the communicator. */
static bool only_before(void)
{
    return !getenv("SHUNT_TEST_NODES") && !getenv("SHUNT_READ_MIN") &&
           !getenv("SHUNT_ZCOPY_MIN");
}

/* True if the communicator must still work after a failure. With FLAT, a call
 * consists of two calls, so the second may fail. The transport `fault`
 * allocates memory for each put. */
static bool is_to_go_on(int which)
{
    const char *mode = getenv("SHUNT_MOE_MODE");

    return calls[which].goes_on && (!mode || strcmp(mode, "flat")) &&
           !getenv("SHUNT_FAULT") &&
           (only_before() || calls[which].goes_on_between);
}

/* False for a rank that needs nothing from the victim: it may have the right
 * result and no error. */
static bool must_fail(const struct scene *s, int which, int rank)
{
    return calls[which].make != broadcast || rank == s->size - 1;
}

/* True if the error is about the lists of a plan. These arrive after the plan
 * was made. If there is no memory for them, the communicator ends, as moe.h
 * says for shunt_moe_plan_create(). */
static bool is_plan_of_before(const struct scene *s, int which)
{
    return calls[which].make_moe && calls[which].make_moe != memory_moe_plan &&
           strstr(shunt_last_error(s->comm), "moe_plan_create");
}

/* Makes a communicator, and the arguments of one call. */
static int begin(const struct rank *self, int which, struct scene *s)
{
    enum { KEPT = 4 };
    struct shunt_request *kept[KEPT];

    *s = (struct scene){
        .rank = self->rank, .size = self->size, .usable = true, .count = 6000};
    s->send = calloc(blocks(s), sizeof(int32_t));
    s->recv = calloc(blocks(s), sizeof(int32_t));
    s->product = calloc(FUSED_ROWS * FUSED_COLS, sizeof(float));
    s->shard = calloc(FUSED_ROWS, FUSED_BYTES);
    s->gathered = calloc(FUSED_ROWS * (size_t)s->size, FUSED_BYTES);
    CHECK(s->send && s->recv && s->product && s->shard && s->gathered,
          "memory");
    fill(s, s->send);
    fill(s, s->recv);
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &s->comm));
    CHECK(!calls[which].make_moe || memory_moe_begin(&s->moe, s->comm),
          "exchange: %s", shunt_last_error(s->comm));
    /* Start requests that nobody waits for yet. They keep their memory, so that
     * the call under test must allocate its own. */
    for (int i = 0; i < KEPT; i++)
        CHECK_OK(s->comm, shunt_barrier_start(s->comm, &kept[i]));
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    return 0;
}

static void finish(struct scene *s, int which)
{
    if (calls[which].make_moe)
        memory_moe_end(&s->moe);
    shunt_comm_destroy(s->comm);
    free(s->send);
    free(s->recv);
    free(s->product);
    free(s->shard);
    free(s->gathered);
}

/* Makes one call. Each rank whose call fails aborts, perhaps before others have
 * returned. */
static int one_and_abort(const struct rank *self, int which, int victim, long n,
                         bool *was)
{
    struct scene s;
    int32_t mine, all[MAX_RANKS];
    enum shunt_status st;

    CHECK_RUN(begin(self, which, &s));
    failing_memory_nth(self->rank == victim ? n : 0);
    st = make(&s, which);
    failing_memory_nth(0);
    mine = self->rank == victim && failing_memory_failed();
    CHECK(!st || (st == SHUNT_ERR_ABORTED) ==
                     (strstr(shunt_last_error(s.comm), "shunt_comm_abort()") !=
                      NULL),
          "%s, allocation %ld: %s", calls[which].name, n, rank_why(s.comm, st));
    if (st)
        shunt_comm_abort(s.comm);
    CHECK_OK(self->comm, shunt_allgather(self->comm, &mine, all, 1, SHUNT_I32));
    *was = all[victim];
    finish(&s, which);
    return 0;
}

/* Makes one call, in which the n-th allocation of `victim` fails. *was is true
 * if the call has so many allocations. */
static int one(const struct rank *self, int which, int victim, long n,
               bool *was)
{
    struct scene s;
    int32_t mine[5], all[MAX_RANKS][5];
    enum shunt_status st, next = SHUNT_OK;
    bool failed, goes_on = true;
    double t0;

    CHECK_RUN(begin(self, which, &s));
    t0 = now_s();
    failing_memory_nth(self->rank == victim ? n : 0);
    st = make(&s, which);
    failing_memory_nth(0);
    failed = self->rank == victim && failing_memory_failed();
    if (getenv("RANK_MEMORY_SAYS"))
        rank_say("%s %ld%s: %d %s", calls[which].name, n,
                 failed ? " failed" : "", (int)st,
                 st ? shunt_last_error(s.comm) : "");
    CHECK(s.usable, "%s, allocation %ld: SHUNT_OK, and wrong",
          calls[which].name, n);
    /* The kernel does not report which end of a raw read has no memory. */
    CHECK(!failed || !st || is_memory(&s, st) || getenv("SHUNT_READ_MIN"),
          "%s, allocation %ld: %s", calls[which].name, n, rank_why(s.comm, st));
    CHECK(!st || names(&s, victim), "%s, allocation %ld: does not name it: %s",
          calls[which].name, n, rank_why(s.comm, st));
    next = shunt_barrier(s.comm);
    CHECK(!next || names(&s, victim),
          "after %s, allocation %ld: does not name it: %s", calls[which].name,
          n, rank_why(s.comm, next));
    CHECK(now_s() - t0 < 12, "%s, allocation %ld: %.1f s: %s",
          calls[which].name, n, now_s() - t0, rank_why(s.comm, next));
    mine[0] = failed;
    mine[1] = st;
    mine[2] = shunt_comm_async_status(s.comm);
    mine[3] = next; /* it may report a late error of the call */
    mine[4] = failed && next && is_plan_of_before(&s, which);
    CHECK_OK(self->comm, shunt_allgather(self->comm, mine, all, 5, SHUNT_I32));
    *was = all[victim][0];
    for (int r = 0; r < self->size; r++) {
        CHECK(all[r][2] == SHUNT_OK || all[0][2] != SHUNT_OK,
              "%s, allocation %ld: rank 0 could go on, rank %d not: %s",
              calls[which].name, n, r,
              shunt_strerror((enum shunt_status)all[r][2]));
        goes_on = goes_on && !all[r][2];
        CHECK(!all[victim][1] || all[r][1] || all[r][2] || all[r][3] ||
                  !must_fail(&s, which, r),
              "%s, allocation %ld: rank %d did not hear of it",
              calls[which].name, n, r);
        CHECK(!all[r][2] || all[victim][4] || !is_to_go_on(which),
              "%s, allocation %ld: rank %d cannot go on: %s", calls[which].name,
              n, r, rank_why(s.comm, next));
        CHECK(*was || (!all[r][1] && !all[r][3]), "%s: rank %d: %s",
              calls[which].name, r,
              shunt_strerror((enum shunt_status)all[r][1]));
    }
    if (goes_on && which != FIRST_EXCHANGE) {
        fill(&s, s.recv);
        CHECK_RUN(again(&s, which, n));
    }
    finish(&s, which);
    return 0;
}

static int run_one_call(const struct rank *self)
{
    const int victim = self->argc > 0 ? atoi(self->argv[0]) : 0;
    const long step = self->argc > 1 ? atol(self->argv[1]) : 1;
    bool was = true;
    int which = 0;
    long n;

    while (which < CALLS && strcmp(self->argv[-1], calls[which].name) != 0)
        which++;
    CHECK(which < CALLS && victim < self->size, "arguments");
    for (n = 1; was; n += step)
        CHECK_RUN((self->argc > 2 ? one_and_abort : one)(self, which, victim, n,
                                                         &was));
    if (self->rank == 0)
        rank_say("%s: %ld allocations", calls[which].name, n - step - 1);
    return 0;
}

/* --- births --------------------------------------------------------------- */

/* Ranks are threads. After a barrier, each rank reads the results of all
 * others. */
static pthread_barrier_t together;
static pthread_once_t together_once = PTHREAD_ONCE_INIT;
static int together_ranks;
static struct shunt_id birth_id;
static bool birth_failed; /* an allocation of this creation has failed */
static struct {
    enum shunt_status created, next;
    bool failed;
    double seconds;
    char text[512];
} births[MAX_RANKS];

static void make_together(void)
{
    pthread_barrier_init(&together, NULL, (unsigned)together_ranks);
}

/* Stands for all ranks: the n-th allocation of the process fails, also if a
 * thread of the library makes it. */
#define ANYBODY (-1)

/* Creates a communicator, makes a barrier and destroys the communicator. On
 * `victim` the n-th allocation of the creation fails. With `after`, all
 * allocations that follow the creation fail, too. */
static void be_born(const struct rank *self, int victim, long n, bool after)
{
    const bool is_victim = self->rank == victim;
    const double t0 = now_s();
    struct shunt_comm *comm = NULL;
    const char *text;

    failing_memory_nth(is_victim ? n : 0);
    births[self->rank].created = shunt_comm_create(
        &birth_id, self->size, self->rank, self->config, &comm);
    failing_memory_nth(0);
    births[self->rank].failed = is_victim && failing_memory_failed();
    text = shunt_last_error(NULL);
    births[self->rank].next = SHUNT_OK;
    failing_memory_each(is_victim && after);
    if (comm) {
        births[self->rank].next = shunt_barrier(comm);
        text = shunt_last_error(comm);
    }
    failing_memory_each(false);
    snprintf(births[self->rank].text, sizeof(births[self->rank].text), "%s",
             text);
    failing_memory_each(is_victim && after);
    shunt_comm_destroy(comm);
    failing_memory_each(false);
    births[self->rank].seconds = now_s() - t0;
}

static int check_birth(const struct rank *self, int victim, long n)
{
    const bool lost = births[victim].created != SHUNT_OK;
    char name[32];

    snprintf(name, sizeof(name), "rank %d", victim);
    for (int r = 0; r < self->size; r++) {
        const char *text = births[r].text;

        CHECK(births[r].seconds < 6,
              "birth, allocation %ld: %.1f s, rank %d: "
              "%s",
              n, births[r].seconds, r, text);
        if (!births[victim].failed)
            CHECK(!births[r].created && !births[r].next,
                  "birth without a failure, rank %d: %s", r, text);
        CHECK(!lost || births[r].created || births[r].next,
              "birth, allocation %ld: rank %d did not hear of it", n, r);
        CHECK(!births[r].created || r == victim || strstr(text, name),
              "birth, allocation %ld: rank %d does not name it: %s", n, r,
              text);
    }
    CHECK(!lost || births[victim].created == SHUNT_ERR_MEMORY,
          "birth, allocation %ld: %s: %s", n,
          shunt_strerror(births[victim].created), births[victim].text);
    return 0;
}

/* Every rank must end in time, and each error must have a text. */
static int check_birth_of_all(const struct rank *self, long n)
{
    for (int r = 0; r < self->size; r++) {
        CHECK(births[r].seconds < 6,
              "birth, allocation %ld: %.1f s, rank %d: %s", n,
              births[r].seconds, r, births[r].text);
        CHECK((!births[r].created && !births[r].next) ||
                  (birth_failed && births[r].text[0]),
              "birth, allocation %ld, rank %d: %s: %s", n, r,
              shunt_strerror(births[r].created ? births[r].created
                                               : births[r].next),
              births[r].text);
    }
    return 0;
}

static int run_births(const struct rank *self)
{
    const int victim = self->argc > 0 && strcmp(self->argv[0], "anybody")
                           ? atoi(self->argv[0])
                           : ANYBODY;
    const long step = self->argc > 1 ? atol(self->argv[1]) : 1;
    long n = 1;

    CHECK(victim < self->size && step > 0, "arguments");
    together_ranks = self->size; /* the same on all ranks */
    pthread_once(&together_once, make_together);
    for (bool was = true; was; n += step) {
        if (self->rank == 0)
            CHECK_OK(NULL, shunt_id_create(&birth_id));
        pthread_barrier_wait(&together);
        if (self->rank == 0 && victim == ANYBODY)
            failing_memory_nth_of_all(n);
        be_born(self, victim, n, n / step % 2);
        pthread_barrier_wait(&together);
        if (self->rank == 0) {
            failing_memory_nth_of_all(0);
            birth_failed = victim == ANYBODY ? failing_memory_failed_of_all()
                                             : births[victim].failed;
        }
        pthread_barrier_wait(&together);
        was = birth_failed;
        if (victim == ANYBODY)
            CHECK_RUN(check_birth_of_all(self, n));
        else
            CHECK_RUN(check_birth(self, victim, n));
        if (self->rank == 0 && getenv("RANK_MEMORY_SAYS"))
            for (int r = 0; r < self->size; r++)
                rank_say("birth %ld, rank %d: %.3f s %d %d %s", n, r,
                         births[r].seconds, (int)births[r].created,
                         (int)births[r].next, births[r].text);
        pthread_barrier_wait(&together);
    }
    CHECK(n > 10 * step, "only %ld allocations", n);
    if (self->rank == 0)
        rank_say("births: %ld allocations", n - step - 1);
    return 0;
}

/* --- destroy -------------------------------------------------------------- */

/* A communicator that was destroyed when there was no memory must still refuse
 * calls. */
static int run_destroyed(const struct rank *self)
{
    struct shunt_comm_stats stats;
    struct shunt_comm *comm;
    void *window;

    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &comm));
    CHECK_OK(comm, shunt_comm_finish(comm));
    failing_memory_each(true);
    shunt_comm_destroy(comm);
    failing_memory_each(false);
    CHECK(shunt_comm_node(comm, 0) == 0, "node");
    CHECK_OK(comm, shunt_comm_get_stats(comm, &stats, sizeof(stats)));
    CHECK_STATUS(comm, shunt_barrier(comm), SHUNT_ERR_INVALID);
    CHECK_STATUS(comm, shunt_mem_alloc(comm, 64, &window), SHUNT_ERR_INVALID);
    return 0;
}

static const struct rank_case cases[] = {
    {"barrier", run_one_call, .min_ranks = 2},
    {"alltoall", run_one_call, .min_ranks = 2},
    {"notify", run_one_call, .min_ranks = 2},
    {"alltoall_in_place", run_one_call, .min_ranks = 2},
    {"allgather", run_one_call, .min_ranks = 2},
    {"broadcast", run_one_call, .min_ranks = 2},
    {"reduce_scatter", run_one_call, .min_ranks = 2},
    {"allreduce", run_one_call, .min_ranks = 2},
    {"gemm_reduce_scatter", run_one_call, .min_ranks = 2},
    {"allgather_gemm", run_one_call, .min_ranks = 2},
    {"window", run_one_call, .min_ranks = 2},
    {"split", run_one_call, .min_ranks = 2},
    {"moe_first", run_one_call, .min_ranks = 2},
    {"moe_create", run_one_call, .min_ranks = 2},
    {"moe_plan", run_one_call, .min_ranks = 2},
    {"moe_parts", run_one_call, .min_ranks = 2},
    {"moe_waves", run_one_call, .min_ranks = 2},
    {"moe_dispatch", run_one_call, .min_ranks = 2},
    {"moe_dispatch_device", run_one_call, .min_ranks = 2},
    {"moe_combine", run_one_call, .min_ranks = 2},
    {"moe_combine_backward", run_one_call, .min_ranks = 2},
    {"moe_dispatch_backward", run_one_call, .min_ranks = 2},
    {"moe_refresh", run_one_call, .min_ranks = 2},
    {"moe_reduce", run_one_call, .min_ranks = 2},
    {"moe_move", run_one_call, .min_ranks = 2},
    {"moe_set_placement", run_one_call, .min_ranks = 2},
    {"moe_set_shares", run_one_call, .min_ranks = 2},
    {"moe_plan_shares", run_one_call, .min_ranks = 2},
    {"moe_waves_shares", run_one_call, .min_ranks = 2},
    {"moe_gradients", run_one_call, .min_ranks = 2},
    {"births", run_births, .no_comm = true, .min_ranks = 2, .timeout_s = 300},
    {"destroyed", run_destroyed, .min_ranks = 2},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
