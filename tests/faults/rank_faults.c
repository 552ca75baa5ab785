// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of tests/faults/storm, which kills one of them or cuts the link of
 * a host. The ranks repeat an exchange until it fails, and then print how.
 *
 *     rank_faults alltoallv | collectives | dispatch | combine
 *
 * Each rank prints "in the loop" once the exchange has worked, and at the end
 *
 *     ended STATUS, lost R R ...: TEXT
 *
 * and "left STATUS". A failed call is expected. The program fails if data was
 * wrong, or if a later call on the communicator succeeds.
 *
 * SIGUSR1 makes a second thread call shunt_comm_abort() while the first one is
 * in an exchange. SIGUSR2 makes it do so when the first thread has stopped
 * calling the library and will only destroy the communicator.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

/* Number of exchanges before "in the loop". */
#define WARM_UP 6

static void *memory(size_t bytes)
{
    void *p = calloc(1, bytes + 1);

    if (!p)
        abort();
    return p;
}

/* Returns a hash that is the same on every rank. */
static uint32_t mixed(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t h = a * 0x9e3779b1u ^ b * 0x85ebca77u ^ c * 0xc2b2ae3du;

    h = (h ^ h >> 15) * 0x2c1b3c6du;
    return h ^ h >> 13;
}

/* Print how the exchange ended: the status, the lost ranks and the error text.
 * Check that later calls fail in the same way. */
static int tell_end(const struct rank *self, enum shunt_status status)
{
    const int *lost;
    char names[256] = "", text[512];
    size_t count, len = 0;

    snprintf(text, sizeof(text), "%s", shunt_last_error(self->comm));
    CHECK_OK(self->comm, shunt_comm_lost(self->comm, &lost, &count));
    for (size_t i = 0; i < count && len < sizeof(names) - 16; i++)
        len +=
            (size_t)snprintf(names + len, sizeof(names) - len, " %d", lost[i]);
    rank_say("ended %d, lost%s: %s", (int)status, names, text);
    CHECK_STATUS(self->comm, shunt_barrier(self->comm), status);
    CHECK(shunt_comm_async_status(self->comm) == status, "another status: %s",
          shunt_strerror(shunt_comm_async_status(self->comm)));
    return 0;
}

/* --- abort() from another thread ------------------------------------------------ */

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct shunt_comm *comm;
    _Atomic bool wanted; /* true if the caller shall stop calling the library */
    bool away, done;
} aborter = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
};

static sigset_t abort_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    /* SIGTERM ends the second thread when no abort is needed any more */
    sigaddset(&set, SIGTERM);
    return set;
}

static void *await_signal(void *unused)
{
    sigset_t set = abort_signals();
    int number = 0;

    (void)unused;
    if (sigwait(&set, &number) || number == SIGTERM)
        return NULL;
    pthread_mutex_lock(&aborter.lock);
    atomic_store_explicit(&aborter.wanted, number == SIGUSR2,
                          memory_order_relaxed);
    while (number == SIGUSR2 && !aborter.away)
        pthread_cond_wait(&aborter.changed, &aborter.lock);
    pthread_mutex_unlock(&aborter.lock);
    shunt_comm_abort(aborter.comm);
    return NULL;
}

/* Called by the first thread. Returns false if it shall make no more calls. */
static bool go_on(void)
{
    return !atomic_load_explicit(&aborter.wanted, memory_order_relaxed);
}

static int stay_away(void)
{
    pthread_mutex_lock(&aborter.lock);
    aborter.away = true;
    pthread_cond_signal(&aborter.changed);
    pthread_mutex_unlock(&aborter.lock);
    pthread_join(aborter.thread, NULL);
    aborter.done = true;
    rank_say("ended %d, lost: away", (int)SHUNT_ERR_ABORTED);
    return 0;
}

/* --- the loop --------------------------------------------------------------------- */

/* Calls `one`, an exchange of `state`, until it fails. */
static int loop(const struct rank *self, void *state,
                int (*one)(void *state, uint32_t round,
                           enum shunt_status *status))
{
    enum shunt_status status = SHUNT_OK;
    int failed = 0;

    aborter.comm = self->comm;
    if (pthread_create(&aborter.thread, NULL, await_signal, NULL))
        abort();
    for (uint32_t round = 0; !status && !failed && go_on(); round++) {
        if (round == WARM_UP)
            rank_say("in the loop");
        failed = one(state, round, &status);
    }
    if (!failed)
        failed = status ? tell_end(self, status) : stay_away();
    if (!aborter.done) {
        /* The second thread may be about to wait for this rank. */
        pthread_mutex_lock(&aborter.lock);
        aborter.away = true;
        pthread_cond_signal(&aborter.changed);
        pthread_mutex_unlock(&aborter.lock);
        pthread_kill(aborter.thread, SIGTERM);
        pthread_join(aborter.thread, NULL);
    }
    return failed;
}

/* --- alltoallv ---------------------------------------------------------------- */

/* The number of bytes from a to b: for notes, for streams, none, and sometimes
 * many. */
static size_t block(uint32_t round, int a, int b)
{
    uint32_t h = mixed(round, (uint32_t)a, (uint32_t)b);

    switch (h % 8) {
    case 0:
        return 0;
    case 1:
        return (size_t)1 << 20;
    case 2:
    case 3:
        return h % 512;
    default:
        return (h >> 8) % ((size_t)128 << 10);
    }
}

struct blocks {
    const struct rank *self;
    unsigned char *data;
    size_t *counts, *displs;
    size_t bytes;
};

static void make_blocks(const struct rank *self, struct blocks *b)
{
    b->self = self;
    b->data = memory((size_t)self->size << 20);
    b->counts = memory(2 * (size_t)self->size * sizeof(size_t));
    b->displs = b->counts + self->size;
}

static void lay_out(const struct rank *self, uint32_t round, bool out,
                    struct blocks *b)
{
    b->bytes = 0;
    for (int r = 0; r < self->size; r++) {
        b->counts[r] =
            out ? block(round, self->rank, r) : block(round, r, self->rank);
        b->displs[r] = b->bytes;
        b->bytes += b->counts[r];
    }
}

/* The first and last byte of the block from a to b. */
static unsigned char mark(uint32_t round, int a, int b)
{
    return (unsigned char)mixed(round + 1, (uint32_t)b, (uint32_t)a);
}

static int one_alltoallv(void *state, uint32_t round, enum shunt_status *status)
{
    struct blocks *out = state, *in = out + 1;
    const struct rank *self = out->self;

    lay_out(self, round, true, out);
    lay_out(self, round, false, in);
    for (int r = 0; r < self->size; r++) {
        unsigned char *at = out->data + out->displs[r];

        if (out->counts[r])
            at[0] = at[out->counts[r] - 1] = mark(round, self->rank, r);
    }
    *status = shunt_alltoallv(self->comm, out->data, out->counts, out->displs,
                              in->data, in->counts, in->displs, SHUNT_U8);
    for (int r = 0; !*status && r < self->size; r++) {
        const unsigned char *at = in->data + in->displs[r];
        size_t n = in->counts[r];

        CHECK(!n || (at[0] == mark(round, r, self->rank) &&
                     at[n - 1] == mark(round, r, self->rank)),
              "round %u: the %zu bytes of rank %d are others", round, n, r);
    }
    return 0;
}

static int alltoallv(const struct rank *self)
{
    struct blocks blocks[2]; /* out, in */
    int failed;

    make_blocks(self, &blocks[0]);
    make_blocks(self, &blocks[1]);
    failed = loop(self, blocks, one_alltoallv);
    for (int i = 0; i < 2; i++) {
        free(blocks[i].data);
        free(blocks[i].counts);
    }
    return failed;
}

/* --- the other collectives --------------------------------------------------------- */

struct vectors {
    const struct rank *self;
    int64_t *send, *recv; /* (size, MOST) */
};

enum { MOST = 60000 };

/* Returns the element that rank r sends to rank s. */
static int64_t value(uint32_t round, int r, int s)
{
    return mixed(round, (uint32_t)r, (uint32_t)s);
}

static int64_t sum(uint32_t round, int size, int s)
{
    int64_t total = 0;

    for (int r = 0; r < size; r++)
        total += value(round, r, s);
    return total;
}

/* All ranks make the same calls, with sizes for each protocol. */
static int one_of_each(void *state, uint32_t round, enum shunt_status *status)
{
    static const size_t counts[] = {1, 100, 4000, MOST};
    struct vectors *v = state;
    struct shunt_comm *comm = v->self->comm;
    const int rank = v->self->rank, size = v->self->size;
    const size_t n = counts[round / 6 % 4];
    const int root = (int)(round % (uint32_t)size);
    int64_t want = 0, got = 0;

    for (int s = 0; s < size; s++)
        v->send[(size_t)s * n] = value(round, rank, s);
    switch (round % 6) {
    case 0:
        *status = shunt_barrier(comm);
        break;
    case 1:
        *status = shunt_broadcast(comm, v->send, n, SHUNT_I64, root);
        want = value(round, root, 0);
        got = v->send[0];
        break;
    case 2:
        *status = shunt_allgather(comm, v->send, v->recv, n, SHUNT_I64);
        want = value(round, root, 0);
        got = v->recv[(size_t)root * n];
        break;
    case 3:
        *status = shunt_reduce_scatter(comm, v->send, v->recv, n, SHUNT_I64,
                                       SHUNT_SUM);
        want = sum(round, size, rank);
        got = v->recv[0];
        break;
    case 4:
        *status =
            shunt_allreduce(comm, v->send, v->recv, n, SHUNT_I64, SHUNT_SUM);
        want = sum(round, size, 0);
        got = v->recv[0];
        break;
    default:
        *status = shunt_alltoall(comm, v->send, v->recv, n, SHUNT_I64);
        want = value(round, root, rank);
        got = v->recv[(size_t)root * n];
        break;
    }
    CHECK(*status || got == want, "round %u: %lld, not %lld", round,
          (long long)got, (long long)want);
    return 0;
}

static int collectives(const struct rank *self)
{
    size_t bytes = (size_t)self->size * MOST * sizeof(int64_t);
    struct vectors v = {self, memory(bytes), memory(bytes)};
    int failed = loop(self, &v, one_of_each);

    free(v.send);
    free(v.recv);
    return failed;
}

/* --- dispatch and combine ------------------------------------------------------- */

enum { TOKENS = 512, HIDDEN = 512, EXPERTS = 16, TOPK = 4 };

struct layer {
    const struct rank *self;
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    int32_t idx[TOKENS][TOPK];
    float weight[TOKENS][TOPK];
    float x[TOKENS][HIDDEN], y[TOKENS][HIDDEN];
};

static enum shunt_status make_plan(struct layer *layer, uint32_t round)
{
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    enum shunt_status status = SHUNT_OK;

    config.hidden = HIDDEN;
    config.dtype = SHUNT_F32;
    config.experts = EXPERTS;
    config.topk = TOPK;
    config.max_tokens = TOKENS;
    config.weights = SHUNT_MOE_APPLY_WEIGHTS;
    for (uint32_t t = 0; t < TOKENS; t++) {
        uint32_t first = mixed(round, (uint32_t)layer->self->rank, t);

        for (uint32_t k = 0; k < TOPK; k++) {
            layer->idx[t][k] = (int32_t)((first + 5 * k) % EXPERTS);
            layer->weight[t][k] = 0.25f;
        }
        layer->x[t][0] = (float)(1000 * layer->self->rank + (int)t);
    }
    if (!layer->moe)
        status = shunt_moe_create(layer->self->comm, &config, &layer->moe);
    if (status)
        return status;
    return shunt_moe_plan_create(layer->moe, *layer->idx, *layer->weight,
                                 TOKENS, &layer->plan);
}

/* Experts return their rows unchanged, so combine must return the tokens
 * unchanged. */
static enum shunt_status forward(struct layer *layer)
{
    void *rows = shunt_moe_buffer(layer->plan, SHUNT_MOE_ROWS);
    void *out = shunt_moe_buffer(layer->plan, SHUNT_MOE_OUT);
    struct shunt_moe_rows in;
    enum shunt_status status;
    size_t total;

    shunt_moe_plan_rows(layer->plan, &in, sizeof(in));
    total = in.total;
    status = shunt_moe_dispatch(layer->plan, layer->x, rows, total);
    if (status)
        return status;
    memcpy(out, rows, total * sizeof(layer->x[0]));
    return shunt_moe_combine(layer->plan, out, NULL, layer->y);
}

static int check_home(const struct layer *layer)
{
    for (int t = 0; t < TOKENS; t++)
        CHECK(layer->y[t][0] == layer->x[t][0], "token %d: %g, not %g", t,
              (double)layer->y[t][0], (double)layer->x[t][0]);
    return 0;
}

/* Makes a new plan, a dispatch and its combine. */
static int one_dispatch(void *state, uint32_t round, enum shunt_status *status)
{
    struct layer *layer = state;

    *status = make_plan(layer, round);
    if (!*status)
        *status = forward(layer);
    shunt_moe_plan_destroy(layer->plan);
    layer->plan = NULL;
    return *status ? 0 : check_home(layer);
}

/* Makes a combine of the same plan each time. */
static int one_combine(void *state, uint32_t round, enum shunt_status *status)
{
    struct layer *layer = state;

    if (round == 0)
        *status = make_plan(layer, round);
    if (round == 0 && !*status)
        *status = forward(layer);
    layer->y[0][0] = -1;
    if (!*status)
        *status = shunt_moe_combine(
            layer->plan, shunt_moe_buffer(layer->plan, SHUNT_MOE_OUT), NULL,
            layer->y);
    return *status ? 0 : check_home(layer);
}

static int with_layer(const struct rank *self,
                      int (*one)(void *, uint32_t, enum shunt_status *))
{
    struct layer *layer = memory(sizeof(*layer));
    int failed;

    layer->self = self;
    failed = loop(self, layer, one);
    shunt_moe_plan_destroy(layer->plan);
    shunt_moe_destroy(layer->moe);
    free(layer);
    return failed;
}

static int dispatch(const struct rank *self)
{
    return with_layer(self, one_dispatch);
}

static int combine(const struct rank *self)
{
    return with_layer(self, one_combine);
}

static const struct rank_case cases[] = {
    {"alltoallv", alltoallv, .breaks_comm = true, .no_threads = true},
    {"collectives", collectives, .breaks_comm = true, .no_threads = true},
    {"dispatch", dispatch, .breaks_comm = true, .no_threads = true},
    {"combine", combine, .breaks_comm = true, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    sigset_t set = abort_signals();
    int status;

    /* block the signals before any other thread is created */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    status = rank_main(argc, argv, cases);
    rank_say("left %d", status); /* the rank has not crashed */
    return status;
}
