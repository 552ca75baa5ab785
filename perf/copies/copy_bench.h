// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by the measurements of `shunt-perf copy`: the memory that is copied,
 * the shape of a copy, and the ways to copy.
 */
#ifndef SHUNT_PERF_COPY_BENCH_H
#define SHUNT_PERF_COPY_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/copies/copier.h"
#include "perf/options/options.h"
#include "perf/ranks/group.h"
#include "perf/tables/table.h"

/* A copy of `rows` rows of `bytes` each to contiguous memory. The source rows
 * are `from_stride` apart, or chosen by an index list. */
struct perf_copy_shape {
    size_t rows, bytes;
    size_t from_stride;    /* bytes; unused with one row */
    const uint32_t *index; /* NULL: rows in order */
    size_t from_bytes;     /* bytes of the source */
};

static inline size_t perf_copy_bytes(const struct perf_copy_shape *shape)
{
    return shape->rows * shape->bytes;
}

/* The side that copies. */
enum perf_copy_way { PERF_BY_ENGINE, PERF_BY_MEMCPY, PERF_BY_STREAM };

/*
 * Copies use one slot after the other of two rings, one of sources and one of
 * destinations. A cold copy uses the next slots, whichever side copies: the two
 * rings together are larger than the cache. A warm copy uses the same two slots
 * again, those of its side.
 *
 * An engine of devices copies to a ring of the same size on its device. The
 * rings of the host are then memory that the engine allocates (shunt/engine.h).
 */
struct perf_copy_ring {
    unsigned char *from, *to;
    unsigned char *there; /* the engine's destination: `to`, or on a device */
    size_t from_room, to_room;
    size_t least; /* bytes of both rings that a round of cold copies uses */
    uint64_t key; /* stream that the sources contain (random.h) */

    /* Slots for the current shape. */
    size_t from_slot, to_slot; /* bytes from one slot to the next */
    size_t slots, next;
};

struct perf_copy_bench {
    const struct perf_options *o;
    const struct perf_group *g;
    struct perf_group alone; /* a group of only this rank */
    double wrong;            /* wrong bytes so far */
    struct perf_copier copier;
    struct perf_copy_shape shape;
    struct perf_copy_ring ring;
};

/* A side of a comparison: the state of a struct perf_side. */
struct perf_copy_side {
    struct perf_copy_bench *bench;
    enum perf_copy_way way;
};

/* Size of the last-level cache in bytes. */
size_t perf_copy_cache(void);

/* Allocate and fill the rings. Sources take at most `from` bytes, destinations
 * at most `to` bytes. */
void perf_copy_ring_open(struct perf_copy_bench *bench, size_t from, size_t to);
void perf_copy_ring_close(struct perf_copy_bench *bench);
/* Cut the rings into slots for this shape. */
void perf_copy_shape_use(struct perf_copy_bench *bench,
                         const struct perf_copy_shape *shape);

/* Start the next copy by the engine; perf_copier_wait() ends it. */
bool perf_copy_start(struct perf_copy_bench *bench);
/* Make one copy by a side, which is a struct perf_copy_side. */
void perf_copy_run(void *side);
/* Prepare a sample: wake the engine, and warm the cache for a warm copy. */
void perf_copy_prepare(void *side);
/* Does the engine accept copies of this shape? */
bool perf_copy_taken(struct perf_copy_bench *bench);
/* Copy once onto poisoned memory. Returns the number of wrong bytes, including
 * bytes behind the destination that were overwritten. */
double perf_copy_try(struct perf_copy_side *side);

/* Print a row, and notify the other ranks that more rows follow. */
void perf_copy_row(struct perf_copy_bench *bench, const struct perf_row *row);

/* --- the measurements: one row each --------------------------------------- */

/* The engine, memcpy() and non-temporal stores, in turn. */
void perf_copy_shape_row(struct perf_copy_bench *bench, const char *op);
/* A copy of a contiguous shape during a computation. */
struct shunti_gemm;
void perf_copy_beside_row(struct perf_copy_bench *bench,
                          struct shunti_gemm *gemm);
/* The time from submit to signal, of an engine that is awake or asleep. */
void perf_copy_latency_row(struct perf_copy_bench *bench, bool asleep);
/* The CPU time of an idle engine. */
void perf_copy_idle_row(struct perf_copy_bench *bench);

#endif
