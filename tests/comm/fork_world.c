// SPDX-License-Identifier: Apache-2.0
/* Handles that a rank has when it forks: creating, using and ending them; see
 * fork_calls.h. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/comm/fork_calls.h"

static int64_t word_of(int from, int to, int i)
{
    return from * 1000003 + to * 1009 + i;
}

static int make_exchange(struct fork_world *w)
{
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    const int experts = 2 * w->self->size;
    struct shunt_moe_rows rows;

    config.hidden = FORK_HIDDEN;
    config.dtype = SHUNT_F32;
    config.experts = experts;
    config.topk = FORK_TOPK;
    config.max_tokens = FORK_TOKENS;
    config.weights = SHUNT_MOE_APPLY_WEIGHTS;
    CHECK_OK(w->comm, shunt_moe_create(w->comm, &config, &w->moe));
    for (int t = 0; t < FORK_TOKENS; t++)
        for (int k = 0; k < FORK_TOPK; k++) {
            w->idx[t * FORK_TOPK + k] =
                (t + w->self->rank + k * (experts / 2)) % experts;
            w->weight[t * FORK_TOPK + k] = 0.5f;
        }
    for (int i = 0; i < FORK_TOKENS * FORK_HIDDEN; i++)
        w->x[i] = (float)(w->self->rank * 100 + i);
    CHECK_OK(w->comm, shunt_moe_plan_create(w->moe, w->idx, w->weight,
                                            FORK_TOKENS, &w->plan));
    CHECK_OK(w->comm, shunt_moe_plan_create_parts(w->moe, w->idx, w->weight,
                                                  FORK_TOKENS, 2, &w->parts));
    shunt_moe_plan_rows(w->plan, &rows, sizeof(rows));
    w->rows = rows.total;
    w->taken = calloc(rows.total + 1, FORK_HIDDEN * sizeof(float));
    CHECK(w->taken, "no memory");
    return 0;
}

/* Makes an all-reduction that has ended, which a notification confirms. Its
 * request has not been waited for. */
static int make_done(struct fork_world *w)
{
    const int event = eventfd(0, EFD_CLOEXEC);
    struct pollfd ended = {.fd = event, .events = POLLIN};

    CHECK(event >= 0, "eventfd");
    CHECK_OK(w->comm, shunt_allreduce_start(w->comm, &w->mine, &w->sum[2], 1,
                                            SHUNT_I64, SHUNT_SUM, &w->done));
    CHECK_OK(w->comm, shunt_notify_fd(w->done, event));
    CHECK(poll(&ended, 1, 30000) == 1, "the request does not end");
    close(event);
    return 0;
}

int fork_world_make(struct fork_world *w, const struct rank *self)
{
    const size_t words = (size_t)self->size * FORK_WORDS;

    memset(w, 0, sizeof(*w));
    w->self = self;
    w->mine = self->rank + 1;
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &w->comm));
    w->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->send = calloc(words, sizeof(*w->send));
    w->recv = calloc(words, sizeof(*w->recv));
    CHECK(w->event >= 0 && w->send && w->recv, "no memory");
    for (int r = 0; r < self->size; r++)
        for (int i = 0; i < FORK_WORDS; i++)
            w->send[r * FORK_WORDS + i] = word_of(self->rank, r, i);
    CHECK_OK(w->comm,
             shunt_mem_register(w->comm, w->send, words * sizeof(*w->send)));
    CHECK_OK(w->comm, shunt_mem_alloc(w->comm, FORK_WORDS * sizeof(*w->window),
                                      (void **)&w->window));
    for (int i = 0; i < FORK_WORDS; i++)
        w->window[i] = word_of(self->rank, -1, i);
    CHECK_RUN(make_exchange(w));
    return make_done(w);
}

int fork_world_begin(struct fork_world *w)
{
    for (int i = 0; i < 2; i++)
        CHECK_OK(w->comm,
                 shunt_allreduce_start(w->comm, &w->mine, &w->sum[i], 1,
                                       SHUNT_I64, SHUNT_SUM, &w->begun[i]));
    CHECK_OK(w->comm, shunt_notify_fd(w->begun[0], w->event));
    return 0;
}

static int use_exchange(struct fork_world *w, bool parts)
{
    memset(w->y, 0, sizeof(w->y));
    memset(w->taken, 0, w->rows * FORK_HIDDEN * sizeof(float));
    for (int part = 0; parts && part < 2; part++)
        CHECK_OK(w->comm, shunt_moe_dispatch_part(w->parts, part, w->x,
                                                  w->taken, w->rows));
    for (int part = 0; parts && part < 2; part++)
        CHECK_OK(w->comm,
                 shunt_moe_combine_part(w->parts, part, w->taken, NULL, w->y));
    if (!parts) {
        CHECK_OK(w->comm, shunt_moe_dispatch(w->plan, w->x, w->taken, w->rows));
        CHECK_OK(w->comm, shunt_moe_combine(w->plan, w->taken, NULL, w->y));
    }
    /* Each token has two experts that return their input, with weight 1/2
     * each. */
    for (int i = 0; i < FORK_TOKENS * FORK_HIDDEN; i++)
        CHECK(w->y[i] == w->x[i], "element %d of the tokens is %g, not %g", i,
              w->y[i], w->x[i]);
    return 0;
}

int fork_world_use(struct fork_world *w)
{
    const int n = w->self->size;
    int64_t sum = 0;
    const int *lost;
    size_t losses;

    CHECK_OK(w->comm,
             shunt_allreduce(w->comm, &w->mine, &sum, 1, SHUNT_I64, SHUNT_SUM));
    CHECK(sum == n * (n + 1) / 2, "the sum is %lld", (long long)sum);
    CHECK_OK(w->comm,
             shunt_alltoall(w->comm, w->send, w->recv, FORK_WORDS, SHUNT_I64));
    for (int r = 0; r < n; r++)
        for (int i = 0; i < FORK_WORDS; i++)
            CHECK(w->recv[r * FORK_WORDS + i] == word_of(r, w->self->rank, i),
                  "word %d of rank %d", i, r);
    CHECK_OK(w->comm, shunt_allgather(w->comm, w->window, w->recv, FORK_WORDS,
                                      SHUNT_I64));
    for (int r = 0; r < n; r++)
        for (int i = 0; i < FORK_WORDS; i++)
            CHECK(w->recv[r * FORK_WORDS + i] == word_of(r, -1, i),
                  "word %d of the window of rank %d", i, r);
    CHECK_RUN(use_exchange(w, false));
    CHECK_RUN(use_exchange(w, true));
    CHECK_OK(w->comm, shunt_comm_async_status(w->comm));
    CHECK_OK(w->comm, shunt_comm_lost(w->comm, &lost, &losses));
    CHECK(!losses, "%zu ranks are said to be lost", losses);
    return 0;
}

int fork_world_end(struct fork_world *w)
{
    const int n = w->self->size;
    uint64_t signals = 0;

    for (int i = 0; i < 2; i++)
        CHECK_OK(w->comm, shunt_wait(&w->begun[i]));
    CHECK_OK(w->comm, shunt_wait(&w->done));
    for (int i = 0; i < 3; i++)
        CHECK(w->sum[i] == n * (n + 1) / 2, "sum %d is %lld", i,
              (long long)w->sum[i]);
    CHECK(read(w->event, &signals, sizeof(signals)) ==
                  (ssize_t)sizeof(signals) &&
              signals == 1,
          "the end of a request was signalled %llu times",
          (unsigned long long)signals);
    CHECK_RUN(fork_world_use(w));
    shunt_moe_plan_destroy(w->parts);
    shunt_moe_plan_destroy(w->plan);
    shunt_moe_destroy(w->moe);
    CHECK_OK(w->comm, shunt_mem_free(w->comm, w->window));
    CHECK_OK(w->comm, shunt_mem_deregister(w->comm, w->send));
    CHECK_OK(w->comm, shunt_comm_finish(w->comm));
    shunt_comm_destroy(w->comm);
    free(w->taken);
    free(w->send);
    free(w->recv);
    close(w->event);
    return 0;
}

void fork_world_destroy(struct fork_world *w)
{
    shunt_moe_plan_destroy(w->parts);
    shunt_moe_plan_destroy(w->plan);
    shunt_moe_destroy(w->moe);
    shunt_moe_destroy(w->moe);
    shunt_comm_destroy(w->comm);
    shunt_comm_destroy(w->comm);
}
