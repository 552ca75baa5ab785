// SPDX-License-Identifier: Apache-2.0
/*
 * What the measurements of `shunt-perf copy` share: the memory in which they
 * copy, the shape of a copy, and the ways to do it.
 */
#ifndef SHUNT_PERF_COPY_BENCH_H
#define SHUNT_PERF_COPY_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/copier.h"
#include "perf/group.h"
#include "perf/options.h"
#include "perf/table.h"

/* `rows` rows of `bytes` each, `from_stride` apart or by an index list, become
 * contiguous. */
struct perf_copy_shape {
    size_t rows, bytes;
    size_t from_stride;    /* bytes; unused with one row */
    const uint32_t *index; /* NULL: rows in order */
    size_t from_bytes;     /* that the source takes */
};

static inline size_t perf_copy_bytes(const struct perf_copy_shape *shape)
{
    return shape->rows * shape->bytes;
}

/* The sides. */
enum perf_copy_way { PERF_BY_ENGINE, PERF_BY_MEMCPY, PERF_BY_STREAM };

/*
 * Copies go from slot to slot of two rings, one of sources and one of
 * destinations. A cold copy takes the next slots, whichever side copies: the
 * two rings together are larger than the cache. A warm copy takes the same two
 * slots again, those of its side.
 *
 * An engine of devices copies to a ring of the same size on its device, and the
 * rings of the host are memory of the engine's (shunt/engine.h).
 */
struct perf_copy_ring {
    unsigned char *from, *to;
    unsigned char *there; /* where the engine copies to; `to`, or on a device */
    size_t from_room, to_room;
    size_t least; /* bytes of both rings that a round of cold copies uses */
    uint64_t key; /* of what the sources contain */

    /* Of the shape at hand. */
    size_t from_slot, to_slot; /* bytes from one to the next */
    size_t slots, next;
};

struct perf_copy_bench {
    const struct perf_options *o;
    const struct perf_group *g;
    struct perf_group alone; /* this rank */
    double wrong;            /* bytes so far */
    struct perf_copier copier;
    struct perf_copy_shape shape;
    struct perf_copy_ring ring;
};

/* A side of a comparison: the state of a struct perf_side. */
struct perf_copy_side {
    struct perf_copy_bench *bench;
    enum perf_copy_way way;
};

/* Bytes of the last level of the cache. */
size_t perf_copy_cache(void);

/* Allocate and fill the rings. Sources take at most `from`, destinations at most
 * `to` bytes. */
void perf_copy_ring_open(struct perf_copy_bench *bench, size_t from, size_t to);
void perf_copy_ring_close(struct perf_copy_bench *bench);
/* Cut the rings into slots of this shape. */
void perf_copy_shape_use(struct perf_copy_bench *bench,
                         const struct perf_copy_shape *shape);

/* Start the next copy by the engine; perf_copier_wait() ends it. */
bool perf_copy_start(struct perf_copy_bench *bench);
/* One copy by this side; of a struct perf_copy_side. */
void perf_copy_run(void *side);
/* Before a sample: wake the engine up, and warm up what is to be warm. */
void perf_copy_prepare(void *side);
/* Does the engine take copies of this shape? */
bool perf_copy_taken(struct perf_copy_bench *bench);
/* Copy once onto poisoned memory; returns the number of wrong bytes, also of
 * those behind the destination. */
double perf_copy_try(struct perf_copy_side *side);

/* Print a row, and let the other ranks know that there are more. */
void perf_copy_row(struct perf_copy_bench *bench, const struct perf_row *row);

/* --- the measurements: one row each ----------------------------------------- */

/* The engine, memcpy() and non-temporal stores, in alternation. */
void perf_copy_shape_row(struct perf_copy_bench *bench, const char *op);
/* A copy beside a computation; of contiguous shapes. */
struct shunti_gemm;
void perf_copy_beside_row(struct perf_copy_bench *bench,
                          struct shunti_gemm *gemm);
/* From submit to signal, of an engine that is awake or asleep. */
void perf_copy_latency_row(struct perf_copy_bench *bench, bool asleep);
/* The CPU time of an open engine that has nothing to do. */
void perf_copy_idle_row(struct perf_copy_bench *bench);

#endif
