// SPDX-License-Identifier: Apache-2.0
/*
 * The memory in which copies are measured, the copies, and their check.
 *
 * Each word of a source is a random function of its place. So the expected
 * contents of a destination are computed, not read. Each destination is
 * followed by GUARD bytes that no copy may change.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "perf/base/check.h"
#include "perf/base/random.h"
#include "perf/copies/copy_bench.h"
#include "src/kernels/copy.h"

#define GUARD 64
#define LINE 64
#define STREAM_SOURCE 41
/* With a warm cache, each side has its own pair of slots. */
#define SIDES 3
/* The cache size assumed when the kernel does not report it. */
#define USUAL_CACHE ((size_t)32 << 20)
#define MAX_CACHE ((size_t)512 << 20)

/* Round up to whole cache lines, at least one. */
static size_t round_up(size_t n)
{
    return n ? (n + LINE - 1) / LINE * LINE : LINE;
}

/* --- memory --------------------------------------------------------------- */

/* Read the cache size from the kernel. In a virtual machine, sysconf() takes
 * it from the CPU, which may report the cache of another machine. */
size_t perf_copy_cache(void)
{
    size_t most = 0;

    for (int i = 0; i < 8; i++) {
        char path[80];
        unsigned long kib;
        FILE *f;

        snprintf(path, sizeof(path),
                 "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        f = fopen(path, "re");
        if (!f)
            break;
        if (fscanf(f, "%luK", &kib) == 1 && kib << 10 > most)
            most = kib << 10;
        fclose(f);
    }
    return most ? most : USUAL_CACHE;
}

static unsigned char *take_of_engine(const struct perf_copier *c,
                                     enum shunt_transport_memory_kind kind,
                                     size_t bytes)
{
    char why[512] = "";
    void *p = NULL;

    if (c->engine->memory->alloc(c->ctx, kind, round_up(bytes), &p, why,
                                 sizeof(why)))
        perf_die(PERF_EXIT_FAILED, "engine %s: %s; give a smaller -e",
                 c->engine->name, why);
    return p;
}

static unsigned char *take(const struct perf_copier *c, size_t bytes)
{
    void *p = NULL;

    if (c->engine->memory)
        return take_of_engine(c, SHUNT_TRANSPORT_HOST_MEMORY, bytes);
    if (posix_memalign(&p, 4096, round_up(bytes)))
        perf_die(PERF_EXIT_FAILED, "no memory for %zu bytes; give a smaller -e",
                 bytes);
    return p;
}

static void give_back(const struct perf_copier *c, unsigned char *memory)
{
    if (c->engine->memory)
        c->engine->memory->free(c->ctx, SHUNT_TRANSPORT_HOST_MEMORY, memory);
    else
        free(memory);
}

static size_t count_slots(const struct perf_copy_bench *b, size_t bytes)
{
    const size_t touched = 2 * bytes;

    if (b->o->cache == PERF_CACHE_WARM)
        return SIDES;
    return touched ? (b->ring.least + touched - 1) / touched : 1;
}

void perf_copy_ring_open(struct perf_copy_bench *b, size_t from, size_t to)
{
    struct perf_copy_ring *r = &b->ring;
    const size_t cache = perf_copy_cache();
    const bool warm = b->o->cache == PERF_CACHE_WARM;

    r->least = 2 * (cache < MAX_CACHE ? cache : MAX_CACHE);
    /* Cold slots together touch at most `least` bytes and one copy more. Half
     * of these bytes are sources. Sources of strided rows have gaps as large as
     * the rows, so all sources need `least` bytes. */
    r->from_room = warm ? SIDES * round_up(from) : r->least + round_up(from);
    r->to_room =
        warm ? SIDES * (round_up(to) + GUARD) : r->least + round_up(to) + GUARD;
    r->from = take(&b->copier, r->from_room);
    r->to = take(&b->copier, r->to_room);
    r->there = b->copier.engine->memory
                   ? take_of_engine(&b->copier, SHUNT_TRANSPORT_DEVICE_MEMORY,
                                    r->to_room)
                   : r->to;
    r->key = perf_key(b->o->seed, STREAM_SOURCE, 0, 0);
    for (size_t i = 0; i < r->from_room / 8; i++) {
        const uint64_t word = perf_random(r->key, i);

        memcpy(r->from + 8 * i, &word, 8);
    }
    memset(r->to, PERF_POISON, r->to_room);
}

void perf_copy_ring_close(struct perf_copy_bench *b)
{
    const struct perf_copier *c = &b->copier;

    give_back(c, b->ring.from);
    give_back(c, b->ring.to);
    if (b->ring.there != b->ring.to)
        c->engine->memory->free(c->ctx, SHUNT_TRANSPORT_DEVICE_MEMORY,
                                b->ring.there);
}

void perf_copy_shape_use(struct perf_copy_bench *b,
                         const struct perf_copy_shape *shape)
{
    struct perf_copy_ring *r = &b->ring;
    size_t fit;

    b->shape = *shape;
    r->from_slot = round_up(shape->from_bytes);
    r->to_slot = round_up(perf_copy_bytes(shape)) + GUARD;
    r->slots = count_slots(b, perf_copy_bytes(shape));
    /* Guards and gaps need room too, so that fewer small slots may fit. */
    fit = r->to_room / r->to_slot;
    if (r->from_room / r->from_slot < fit)
        fit = r->from_room / r->from_slot;
    r->slots = r->slots < fit ? r->slots : fit;
    r->next = 0;
}

/* --- copies --------------------------------------------------------------- */

static size_t take_slot(struct perf_copy_bench *b, enum perf_copy_way way)
{
    struct perf_copy_ring *r = &b->ring;
    size_t slot = r->next;

    if (b->o->cache == PERF_CACHE_WARM)
        return (size_t)way;
    r->next = slot + 1 < r->slots ? slot + 1 : 0;
    return slot;
}

static unsigned char *source(const struct perf_copy_bench *b, size_t slot)
{
    return b->ring.from + slot * b->ring.from_slot;
}

static unsigned char *destination(const struct perf_copy_bench *b, size_t slot)
{
    return b->ring.to + slot * b->ring.to_slot;
}

static size_t row_offset(const struct perf_copy_shape *s, size_t row)
{
    return (s->index ? s->index[row] : row) * s->from_stride;
}

static bool start_at(struct perf_copy_bench *b, size_t slot)
{
    const struct perf_copy_shape *s = &b->shape;
    const struct shunt_engine_copy copy = {
        .to = b->ring.there + slot * b->ring.to_slot,
        .from = source(b, slot),
        .bytes = s->bytes,
        .rows = s->rows,
        .to_stride = s->bytes,
        .from_stride = s->from_stride,
        .index = s->index,
    };

    return perf_copier_start(&b->copier, &copy);
}

bool perf_copy_start(struct perf_copy_bench *b)
{
    return start_at(b, take_slot(b, PERF_BY_ENGINE));
}

static void copy_by_memcpy(const struct perf_copy_bench *b, size_t slot)
{
    const struct perf_copy_shape *s = &b->shape;
    const unsigned char *from = source(b, slot);
    unsigned char *to = destination(b, slot);

    for (size_t i = 0; i < s->rows; i++)
        memcpy(to + i * s->bytes, from + row_offset(s, i), s->bytes);
}

static void copy_by_stream(const struct perf_copy_bench *b, size_t slot)
{
    const struct perf_copy_shape *s = &b->shape;
    const unsigned char *from = source(b, slot);
    unsigned char *to = destination(b, slot);

    for (size_t i = 0; i < s->rows; i++)
        shunti_copy_stream(to + i * s->bytes, from + row_offset(s, i),
                           s->bytes);
    shunti_copy_fence();
}

static void copy_at(struct perf_copy_bench *b, enum perf_copy_way way,
                    size_t slot)
{
    switch (way) {
    case PERF_BY_ENGINE:
        if (!start_at(b, slot))
            perf_die(PERF_EXIT_FAILED,
                     "engine %s: it refuses a copy of a kind that it has done",
                     b->copier.engine->name);
        perf_copier_wait(&b->copier);
        break;
    case PERF_BY_MEMCPY:
        copy_by_memcpy(b, slot);
        break;
    case PERF_BY_STREAM:
        copy_by_stream(b, slot);
        break;
    }
}

void perf_copy_run(void *state)
{
    struct perf_copy_side *side = state;

    copy_at(side->bench, side->way, take_slot(side->bench, side->way));
}

/* Prepare a sample. With a warm cache the side copies once. With a cold cache
 * the engine is only woken, by a copy of one byte: the next slots must stay
 * untouched. */
void perf_copy_prepare(void *state)
{
    struct perf_copy_side *side = state;
    struct perf_copier *c = &side->bench->copier;
    char from = 1, to = 0;

    if (side->bench->o->cache == PERF_CACHE_WARM)
        perf_copy_run(state);
    else if (side->way == PERF_BY_ENGINE &&
             perf_copier_start(c, &(struct shunt_engine_copy){
                                      .to = &to,
                                      .from = &from,
                                      .bytes = 1,
                                      .rows = 1,
                                  }))
        perf_copier_wait(c);
}

bool perf_copy_taken(struct perf_copy_bench *b)
{
    if (!perf_copy_start(b))
        return false;
    perf_copier_wait(&b->copier);
    return true;
}

/* --- checks --------------------------------------------------------------- */

enum { PIECE = 4096 };

/* Compute the n bytes of the source at offset `at`, which may be within a
 * word. n <= PIECE */
static void expect(const struct perf_copy_ring *r, size_t at, size_t n,
                   unsigned char *out)
{
    uint64_t words[PIECE / 8 + 2];
    const size_t first = at / 8, last = (at + n + 7) / 8;

    for (size_t i = first; i < last; i++)
        words[i - first] = perf_random(r->key, i);
    memcpy(out, (const unsigned char *)words + at % 8, n);
}

static double count_wrong(const unsigned char *got, const unsigned char *right,
                          size_t n)
{
    double wrong = 0;

    if (memcmp(got, right, n) == 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        wrong += got[i] != right[i];
    return wrong;
}

static double wrong_at(const struct perf_copy_bench *b, size_t slot)
{
    const struct perf_copy_shape *s = &b->shape;
    const size_t base = slot * b->ring.from_slot;
    const unsigned char *to = destination(b, slot);
    unsigned char right[PIECE];
    double wrong = 0;

    for (size_t row = 0; row < s->rows; row++)
        for (size_t at = 0; at < s->bytes; at += PIECE) {
            const size_t n = s->bytes - at < PIECE ? s->bytes - at : PIECE;

            expect(&b->ring, base + row_offset(s, row) + at, n, right);
            wrong += count_wrong(to + row * s->bytes + at, right, n);
        }
    memset(right, PERF_POISON, GUARD);
    return wrong + count_wrong(to + perf_copy_bytes(s), right, GUARD);
}

/* Copy a slot from the host to the device, or back. */
static void move_slot(struct perf_copy_bench *b, size_t slot, bool to_device)
{
    unsigned char *here = destination(b, slot);
    unsigned char *there = b->ring.there + slot * b->ring.to_slot;

    if (!perf_copier_start(&b->copier, &(struct shunt_engine_copy){
                                           .to = to_device ? there : here,
                                           .from = to_device ? here : there,
                                           .bytes = b->ring.to_slot,
                                           .rows = 1,
                                       }))
        perf_die(PERF_EXIT_FAILED,
                 "engine %s: it refuses a copy between device and host",
                 b->copier.engine->name);
    perf_copier_wait(&b->copier);
}

double perf_copy_try(struct perf_copy_side *side)
{
    struct perf_copy_bench *b = side->bench;
    const size_t slot = take_slot(b, side->way);
    const bool device =
        side->way == PERF_BY_ENGINE && b->ring.there != b->ring.to;

    memset(destination(b, slot), PERF_POISON, b->ring.to_slot);
    if (device)
        move_slot(b, slot, true);
    copy_at(b, side->way, slot);
    if (device) {
        memset(destination(b, slot), 0, b->ring.to_slot);
        move_slot(b, slot, false);
    }
    return wrong_at(b, slot);
}
