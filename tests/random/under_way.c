// SPDX-License-Identifier: Apache-2.0
/*
 * Calls under way: their buffers, how a rank waits for them, and checks of
 * their results; see world.h.
 */

#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/random/world.h"

/* The bits of the nearest f16 number, ties to even. The format has 10 bits of
 * fraction, and exponents from -14 to 15. (clang 14 has no _Float16 for
 * x86.) */
static uint16_t half_bits(float f)
{
    const int sign = signbit(f) ? 0x8000 : 0;
    const float size = fabsf(f);
    int exponent;

    if (isnan(f))
        return 0x7e00;
    if (size >= 65520)
        return (uint16_t)(sign | 0x7c00);
    if (size < 0x1p-14f)
        return (uint16_t)(sign | (int)nearbyintf(size * 0x1p24f));
    exponent = ilogbf(size);
    return (uint16_t)(sign | ((exponent + 14) * 1024 +
                              (int)nearbyintf(ldexpf(size, 10 - exponent))));
}

void *need(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);

    if (!memory)
        abort();
    return memory;
}

void put_number(unsigned char *at, size_t i, enum shunt_dtype t, double value,
                int64_t whole)
{
    const size_t size = shunt_dtype_size(t);
    float f = (float)value;
    uint16_t half;
    uint32_t bits;

    switch (t) {
    case SHUNT_F64:
        memcpy(at + i * size, &value, size);
        break;
    case SHUNT_F32:
        memcpy(at + i * size, &f, size);
        break;
    case SHUNT_BF16:
        f = model_round(SHUNT_BF16, f);
        memcpy(&bits, &f, sizeof(bits));
        at[i * 2] = (unsigned char)(bits >> 16);
        at[i * 2 + 1] = (unsigned char)(bits >> 24);
        break;
    case SHUNT_F16:
        half = half_bits(f);
        memcpy(at + i * size, &half, size);
        break;
    default: /* integers wrap around */
        memcpy(at + i * size, &whole, size);
    }
}

/* --- buffers --- */

/* Sometimes registers all or half of a buffer with the communicator that will
 * use it. */
static void register_some(struct world *w, struct shunt_comm *comm,
                          struct buffer *b, size_t room)
{
    size_t bytes = room;

    if (!one_in(&w->local, 4))
        return;
    if (one_in(&w->local, 4))
        bytes = room / 2;
    if (!shunt_mem_register(comm, b->base, bytes))
        b->registered = comm;
    else if (!w->failing)
        abort();
}

struct buffer *take(struct world *w, struct op *op, size_t bytes, size_t align,
                    struct group *g)
{
    struct buffer *b = &op->buffers[op->nbuffers++];
    size_t room = bytes + 2 * GUARD + 64;
    size_t shift = (size_t)below(&w->local, 64) / align * align;

    *b = (struct buffer){.bytes = bytes};
    if (g && g->arena_used + room <= ARENA) {
        b->base = g->arena + g->arena_used;
        g->arena_used += (room + 127) / 128 * 128;
    } else {
        b->base = need(room);
        b->owned = true;
        register_some(w, op->group->comm, b, room);
    }
    memset(b->base, 0xa5, room);
    b->at = b->base + GUARD + shift % 64;
    return b;
}

struct buffer *take_any(struct world *w, struct op *op, size_t bytes,
                        size_t align)
{
    struct group *g = &w->groups[below(&w->local, w->ngroups)];

    if (one_in(&w->local, 2))
        g = op->group;
    if (w->no_windows || !g->comm || one_in(&w->local, 3))
        g = NULL;
    return take(w, op, bytes, align, g);
}

void keeps(struct buffer *b)
{
    b->want = need(b->bytes);
    b->want_bytes = b->bytes;
    if (b->bytes)
        memcpy(b->want, b->at, b->bytes);
}

void *expects(struct buffer *b, size_t bytes)
{
    free(b->want);
    b->want = need(bytes);
    b->want_bytes = bytes;
    return b->want;
}

static int guards_whole(const struct buffer *b)
{
    const unsigned char *end = b->base + b->bytes + 2 * GUARD + 64;

    for (const unsigned char *p = b->base; p < b->at; p++)
        CHECK(*p == 0xa5, "%td bytes in front of a buffer of %zu was written",
              b->at - p, b->bytes);
    for (const unsigned char *p = b->at + b->bytes; p < end; p++)
        CHECK(*p == 0xa5, "byte %td behind a buffer of %zu was written",
              p - b->at - (ptrdiff_t)b->bytes, b->bytes);
    return 0;
}

static int buffer_right(const struct buffer *b, int number)
{
    size_t i = 0;

    if (b->base)
        CHECK_RUN(guards_whole(b));
    if (!b->want || !b->want_bytes || !memcmp(b->at, b->want, b->want_bytes))
        return 0;
    while (b->at[i] == b->want[i])
        i++;
    CHECK(false, "buffer %d: byte %zu of %zu is %02x, not %02x", number, i,
          b->want_bytes, b->at[i], b->want[i]);
}

static int op_right(const struct op *op)
{
    for (int i = 0; i < op->nbuffers; i++)
        CHECK_RUN(buffer_right(&op->buffers[i], i));
    for (size_t i = 0; i < op->near_count; i++)
        CHECK(fabsf(op->near_got[i] - op->near_want[i]) <=
                  1e-5f * op->near_size[i],
              "gradient %zu is %g, not %g", i, (double)op->near_got[i],
              (double)op->near_want[i]);
    return 0;
}

static void op_free(struct world *w, struct op *op)
{
    for (int i = 0; i < op->nbuffers; i++) {
        struct buffer *b = &op->buffers[i];

        if (b->registered && shunt_mem_deregister(b->registered, b->base) &&
            !w->failing)
            abort();
        if (b->owned)
            free(b->base);
        free(b->want);
    }
    free(op->near_want);
    free(op->near_size);
    free(op->owned);
    free(op);
}

/* --- starting and ending --- */

/* Ends the other parts after the call of one part has failed. They may be in
 * progress. */
static void end_parts(struct op *op)
{
    shunt_comm_abort(op->group->comm);
    for (int k = 0; k < op->nmore; k++)
        (void)!shunt_wait(&op->more[k]);
}

static int ended(struct world *w, struct op *op, enum shunt_status st)
{
    int bad = 0;

    snprintf(w->doing, sizeof(w->doing), "%s", op->label);
    w->operations++;
    w->told += op->notified;
    if (atomic_load(&op->told) != op->notified)
        bad = rank_fail(__FILE__, __LINE__, op->label, "told %d times",
                        atomic_load(&op->told));
    if (st)
        bad = rank_fail(__FILE__, __LINE__, op->label, "%s",
                        rank_why(op->group->comm, st));
    else if (op_right(op))
        bad = rank_fail(__FILE__, __LINE__, op->label, "wrong result");
    if (st)
        end_parts(op);
    op_free(w, op);
    return bad;
}

static void count_end(void *told)
{
    atomic_fetch_add((atomic_int *)told, 1);
}

/* Requests a notification of the end of the operation. */
static int ask_for_notice(struct op *op)
{
    enum shunt_status st = shunt_notify(op->request, count_end, &op->told);

    op->notified = !st;
    CHECK(!st || st == SHUNT_ERR_UNSUPPORTED, "notify: %s",
          /* a fused product cannot be notified */
          rank_why(op->group->comm, st));
    return 0;
}

/* Waits for all notifications without calling the library. */
static int await_notices(struct world *w)
{
    const time_t until = 30 + time(NULL);
    int left;

    do {
        left = 0;
        for (int i = 0; i < w->npending; i++)
            left +=
                w->pending[i]->notified && !atomic_load(&w->pending[i]->told);
        sched_yield();
    } while (left && time(NULL) < until);
    CHECK(!left, "%d notices have not come", left);
    return 0;
}

static int forget(struct world *w, int i, enum shunt_status st)
{
    struct op *op = w->pending[i];

    w->pending[i] = w->pending[--w->npending];
    for (int k = 0; k < op->nmore; k++) {
        const enum shunt_status of = shunt_wait(&op->more[k]);

        st = st ? st : of;
    }
    return ended(w, op, st);
}

static int test_one(struct world *w, int i)
{
    enum shunt_status st = shunt_test(&w->pending[i]->request);

    return st == SHUNT_IN_PROGRESS ? 0 : forget(w, i, st);
}

static void loiter(struct world *w, int most_us)
{
    struct timespec t = {0, 1000L * (1 + below(&w->local, most_us))};

    nanosleep(&t, NULL);
}

int whim(struct world *w)
{
    const int mood = below(&w->local, 12);

    if (mood == 0)
        loiter(w, 1500);
    if (!w->npending)
        return 0;
    if (mood <= 3)
        return test_one(w, below(&w->local, w->npending));
    if (mood == 4) {
        int i = below(&w->local, w->npending);

        if (w->pending[i]->stretch == w->stretch)
            return 0;
        return forget(w, i, shunt_wait(&w->pending[i]->request));
    }
    return 0;
}

static void shuffle(struct world *w)
{
    for (int i = w->npending - 1; i > 0; i--) {
        int j = below(&w->local, i + 1);
        struct op *op = w->pending[i];

        w->pending[i] = w->pending[j];
        w->pending[j] = op;
    }
}

static int wait_all_at_once(struct world *w)
{
    struct shunt_request *requests[MAX_PENDING];
    const int n = w->npending;
    enum shunt_status st;

    for (int i = 0; i < n; i++)
        requests[i] = w->pending[i]->request;
    snprintf(w->doing, sizeof(w->doing), "wait_all of %d", n);
    st = shunt_wait_all(requests, (size_t)n);
    for (int i = 0; i < n; i++)
        w->pending[i]->request = requests[i];
    for (int i = 0; i < n && st; i++)
        rank_fail(__FILE__, __LINE__, w->pending[i]->label, "among them: %s",
                  rank_why(w->pending[i]->group->comm, st));
    if (st)
        return 1;
    while (w->npending)
        CHECK_RUN(forget(w, w->npending - 1, SHUNT_OK));
    return 0;
}

static void free_buffers(struct plan *p)
{
    memset(p->used, 0, sizeof(p->used));
    memset(p->staged, 0, sizeof(p->staged));
}

int drain(struct world *w)
{
    shuffle(w);
    if (one_in(&w->local, 3))
        CHECK_RUN(await_notices(w));
    if (w->npending && one_in(&w->local, 3))
        CHECK_RUN(wait_all_at_once(w));
    if (one_in(&w->local, 3)) {
        double until = 20 + (double)time(NULL);

        while (w->npending && (double)time(NULL) < until)
            for (int i = w->npending; i-- > 0;)
                CHECK_RUN(test_one(w, i));
    }
    while (w->npending)
        CHECK_RUN(forget(w, w->npending - 1,
                         shunt_wait(&w->pending[w->npending - 1]->request)));
    for (int g = 0; g < w->ngroups; g++)
        for (int e = 0; e < w->groups[g].nexchanges; e++)
            for (int p = 0; p < MAX_PLANS; p++)
                free_buffers(&w->groups[g].exchanges[e].plans[p]);
    for (int g = 0; g < w->ngroups; g++)
        w->groups[g].arena_used = 0;
    return 0;
}

int begun(struct world *w, struct op *op, enum shunt_status st)
{
    op->stretch = w->stretch;
    if (!st && op->request) {
        w->pending[w->npending++] = op;
        return one_in(&w->local, 6) ? ask_for_notice(op) : 0;
    }
    return ended(w, op, st);
}

struct op *new_op(struct world *w, struct group *g, const char *format, ...)
{
    struct op *op = calloc(1, sizeof(*op));
    va_list args;

    if (!op)
        abort();
    op->group = g;
    op->plan = -1;
    va_start(args, format);
    vsnprintf(op->label, sizeof(op->label), format, args);
    va_end(args);
    snprintf(w->doing, sizeof(w->doing), "start of %s", op->label);
    return op;
}
