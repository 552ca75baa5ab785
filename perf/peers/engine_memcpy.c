// SPDX-License-Identifier: Apache-2.0
/*
 * A lower bound: the time that one core needs to copy the same bytes by
 * memcpy(), on every rank at the same time. Source and destination are this
 * process's own memory, touched before, so neither page faults nor other ranks
 * are involved.
 *
 * With --mem device the GPU's driver copies the rows: one call for each row or,
 * in perf_engine_whole, one call for as many bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/peers/device.h"
#include "perf/peers/engine.h"

/* Allocate memory and touch its pages. */
static void *touched(size_t bytes, int value)
{
    void *p = perf_alloc(bytes);
    memset(p, value, bytes);
    return p;
}

/* --- collectives: the bytes that this rank receives, block by block ------- */

struct copies {
    int blocks;
    size_t *offset, *length; /* (blocks) bytes */
    char *from, *to;
};

static const char *call_open(const struct perf_call *call, void **state)
{
    size_t size = shunt_dtype_size(call->dtype), at = 0, end = 0;

    if (call->op == PERF_BARRIER || perf_op_reduces(call->op))
        return "copies are no measure for an operation that does not only copy";

    struct copies *c = perf_alloc(sizeof(*c));
    c->blocks = call->op == PERF_BROADCAST ? 1 : call->ranks;
    c->offset = perf_alloc((size_t)c->blocks * sizeof(*c->offset));
    c->length = perf_alloc((size_t)c->blocks * sizeof(*c->length));
    for (int b = 0; b < c->blocks; b++) {
        c->length[b] =
            size * (call->recv_counts ? call->recv_counts[b] : call->count);
        c->offset[b] = call->recv_displs ? size * call->recv_displs[b] : at;
        at += c->length[b];
        if (c->offset[b] + c->length[b] > end)
            end = c->offset[b] + c->length[b];
    }
    c->from = touched(end, 1);
    c->to = touched(end, 2);
    *state = c;
    return NULL;
}

static void call_run(void *state)
{
    struct copies *c = state;
    for (int b = 0; b < c->blocks; b++)
        memcpy(c->to + c->offset[b], c->from + c->offset[b], c->length[b]);
    /* The memory is never read, but the compiler must not omit the copy. */
    __asm__ volatile("" : : "r"(c->to) : "memory");
}

static void call_close(void *state)
{
    struct copies *c = state;
    free(c->from);
    free(c->to);
    free(c->offset);
    free(c->length);
    free(c);
}

/* --- exchanges of tokens: the rows that this rank sends ------------------- */

/* The rows of all assignments, in one of two orders. */
struct order {
    size_t *x;     /* (count) row of x: the token */
    size_t *home;  /* (count) row in `home`: by token and slot */
    size_t *major; /* (count) row in `major`: by expert */
};

struct moe {
    bool device;         /* x, major and home are memory of a GPU */
    size_t count, bytes; /* number of rows; bytes of one row */
    const char *x;       /* (tokens, hidden) */
    char *major;         /* (count, hidden), by expert */
    char *home;          /* (count, hidden), by token and slot */
    struct order by_token, by_expert;
    const struct order *dispatch, *combine; /* the faster one of the two */
    char note[128];
};

static struct order order_alloc(size_t count)
{
    return (struct order){
        .x = perf_alloc(count * sizeof(size_t)),
        .home = perf_alloc(count * sizeof(size_t)),
        .major = perf_alloc(count * sizeof(size_t)),
    };
}

static void order_free(struct order *o)
{
    free(o->x);
    free(o->home);
    free(o->major);
}

static void copy_rows_of_device(const struct moe *m, char *to,
                                const size_t *to_row, const char *from,
                                const size_t *from_row)
{
    for (size_t i = 0; i < m->count; i++)
        perf_device_copy(to + to_row[i] * m->bytes,
                         from + from_row[i] * m->bytes, m->bytes);
    perf_device_wait();
}

static void copy_rows(const struct moe *m, char *to, const size_t *to_row,
                      const char *from, const size_t *from_row)
{
    if (m->device) {
        copy_rows_of_device(m, to, to_row, from, from_row);
        return;
    }
    for (size_t i = 0; i < m->count; i++)
        memcpy(to + to_row[i] * m->bytes, from + from_row[i] * m->bytes,
               m->bytes);
    __asm__ volatile("" : : "r"(to) : "memory");
}

static void moe_dispatch(void *state)
{
    struct moe *m = state;
    copy_rows(m, m->major, m->dispatch->major, m->x, m->dispatch->x);
}

static void moe_combine(void *state)
{
    struct moe *m = state;
    copy_rows(m, m->home, m->combine->home, m->major, m->combine->major);
}

/* The exchanges of gradients copy the same rows. */
static void moe_go(void *state, enum perf_go what)
{
    if (what == PERF_GO_DISPATCH || what == PERF_GO_COMBINE_BACKWARD)
        moe_dispatch(state);
    else
        moe_combine(state);
}

/* Returns the best time of three. */
static double time_of(void (*run)(void *), void *state)
{
    double best = 0;
    for (int i = 0; i < 3; i++) {
        double start = perf_now_us();
        run(state);
        double t = perf_now_us() - start;
        best = i == 0 || t < best ? t : best;
    }
    return best;
}

/* Set `*order`, a member of `m`, to the faster order: sequential reads or
 * sequential writes. Which one is faster depends on the caches. */
static void choose(void (*run)(void *), struct moe *m,
                   const struct order **order)
{
    *order = &m->by_token;
    double by_token = time_of(run, m);
    *order = &m->by_expert;
    if (by_token <= time_of(run, m))
        *order = &m->by_token;
}

static void *rows_alloc(const struct moe *m, int value)
{
    const size_t bytes = m->count * m->bytes;

    return m->device ? perf_device_alloc(bytes) : touched(bytes, value);
}

static void rows_free(const struct moe *m, void *rows)
{
    if (m->device)
        perf_device_free(rows);
    else
        free(rows);
}

static const char *moe_open(const struct perf_exchange *e, void **state)
{
    struct moe *m = perf_alloc(sizeof(*m));
    size_t topk = (size_t)e->topk, count = e->tokens * topk;
    size_t *next = perf_alloc(((size_t)e->experts + 1) * sizeof(*next));

    *m = (struct moe){
        .device = e->device,
        .count = count,
        .bytes = e->hidden * shunt_dtype_size(e->dtype),
        .x = e->x,
        .by_token = order_alloc(count),
        .by_expert = order_alloc(count),
    };
    m->major = rows_alloc(m, 1);
    m->home = rows_alloc(m, 2);

    memset(next, 0, ((size_t)e->experts + 1) * sizeof(*next));
    for (size_t i = 0; i < count; i++)
        next[e->index[i] + 1]++;
    for (int expert = 0; expert < e->experts; expert++)
        next[expert + 1] += next[expert];
    for (size_t i = 0; i < count; i++) {
        size_t at = next[e->index[i]]++;
        m->by_token.x[i] = m->by_expert.x[at] = i / topk;
        m->by_token.home[i] = m->by_expert.home[at] = i;
        m->by_token.major[i] = m->by_expert.major[at] = at;
    }
    free(next);

    choose(moe_dispatch, m, &m->dispatch);
    choose(moe_combine, m, &m->combine);
    snprintf(
        m->note, sizeof(m->note),
        "%s: its loop is over %s in dispatch, over %s in combine (the faster "
        "ones)",
        m->device ? "cuMemcpyAsync of each row" : "memcpy",
        m->dispatch == &m->by_token ? "tokens" : "experts",
        m->combine == &m->by_token ? "tokens" : "experts");
    *state = m;
    return NULL;
}

static void moe_nothing(void *state)
{
    (void)state;
}

static void moe_close(void *state)
{
    struct moe *m = state;
    order_free(&m->by_token);
    order_free(&m->by_expert);
    rows_free(m, m->major);
    rows_free(m, m->home);
    free(m);
}

static void *moe_none(void *state, enum shunt_moe_buffer which)
{
    (void)state;
    (void)which;
    return NULL;
}

static const char *moe_note(void *state)
{
    return ((struct moe *)state)->note;
}

const struct perf_engine perf_engine_memcpy = {
    .name = "memcpy",
    .delivers = false,
    .call_open = call_open,
    .call_run = call_run,
    .call_close = call_close,
    .moe_open = moe_open,
    .moe_plan = moe_nothing,
    .moe_go = moe_go,
    .moe_release = moe_nothing,
    .moe_close = moe_close,
    .moe_buffer = moe_none,
    .moe_note = moe_note,
};

/* --- as many bytes, at once ----------------------------------------------- */

struct whole {
    size_t bytes;
    void *from, *to;
};

static const char *whole_open(const struct perf_exchange *e, void **state)
{
    struct whole *w = perf_alloc(sizeof(*w));

    w->bytes =
        e->tokens * (size_t)e->topk * e->hidden * shunt_dtype_size(e->dtype);
    w->from = perf_device_alloc(w->bytes);
    w->to = perf_device_alloc(w->bytes);
    *state = w;
    return NULL;
}

static void whole_go(void *state, enum perf_go what)
{
    const struct whole *w = state;

    (void)what;
    perf_device_copy(w->to, w->from, w->bytes);
    perf_device_wait();
}

static void whole_close(void *state)
{
    struct whole *w = state;

    perf_device_free(w->from);
    perf_device_free(w->to);
    free(w);
}

static const char *whole_note(void *state)
{
    (void)state;
    return "share: bandwidth of the rows / bandwidth of one cuMemcpyAsync() "
           "of as many bytes within the GPU";
}

const struct perf_engine perf_engine_whole = {
    .name = "cuMemcpyAsync",
    .delivers = false,
    .moe_open = whole_open,
    .moe_plan = moe_nothing,
    .moe_go = whole_go,
    .moe_release = moe_nothing,
    .moe_close = whole_close,
    .moe_buffer = moe_none,
    .moe_note = whole_note,
};
