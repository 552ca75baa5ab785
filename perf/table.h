// SPDX-License-Identifier: Apache-2.0
/*
 * The output: the settings, a table, and a closing line. Rows are also written
 * in machine-readable form (machine_rows.h). Only rank 0 prints.
 */
#ifndef SHUNT_PERF_TABLE_H
#define SHUNT_PERF_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/overlap.h"
#include "perf/settings.h"
#include "perf/wire.h"

/* The bytes that have to cross between hosts (or nodes) in one call,
 * computed. */
struct perf_need {
    uint64_t total;
    uint64_t busiest; /* on the link that carries most, in one direction */
    uint64_t rows;    /* of tokens; 0: not an exchange of tokens */
};

/* Of a row of `shunt-perf copy`, in which `times` are those of the copy engine
 * and of memcpy(). */
struct perf_row_copy {
    const char *engine;
    const char *cache;        /* "cold", "warm" */
    size_t row_bytes;         /* of one of several rows; 0: contiguous */
    struct perf_times stream; /* non-temporal stores; median 0: not measured */
    /* A copy beside a computation, in microseconds: the computation alone, the
     * engine's copy alone, and the computation and memcpy() one after the other,
     * with their CPU time; 0: it is none. */
    double compute, alone, sequence, sequence_cpu;
    /* Microseconds of idleness, and their CPU time, of the process and of all
     * threads but the caller's; 0: not measured. */
    double idle, idle_cpu, idle_others;
};

/* Of a row of `shunt-perf moe-layer`, whose peer is the same with each exchange
 * waited for at once. Microseconds of a layer. */
struct perf_row_layer {
    double compute, communicate; /* each alone */
    bool streams; /* plain streams carried the bytes beside `compute` */
    struct {
        double compute, start;
        double wait[4]; /* for dispatch, combine and both backward */
    } beside;         /* what the time is made of, means over ranks and calls */
    double predicted; /* by the simulator */
    double attention_share; /* of `compute` */
    double plan;            /* of a routing; not in the other times */
    int micro_batches, parts, layers;
    size_t inner, attention; /* widths */
    const char *order;       /* of the operations */
};

/* Of a row of `shunt-perf moe-parts`, whose peer is the same in one part; of a
 * number of parts that was learned, the best of the others. Microseconds; whole_:
 * in one part. */
struct perf_row_parts {
    int parts;
    int learned; /* SHUNT_MOE_PARTS_AUTO, after so many plans; 0: given */
    /* the same number of parts, given: of it, a learned row is another sample */
    double given;
    double compute, exchange, plan; /* each alone */
    double whole_compute, whole_exchange, whole_plan;
    double beside; /* whole_compute beside plain streams of the same bytes */
    size_t inner;
};

/* Of a row of `shunt-perf moe-step`, whose peer is the same without balance.
 * Microseconds of a step. */
struct perf_row_step {
    double without, with; /* rows of the busiest rank over the mean, the worst
                             step */
    double forced;        /* by an even router, the median */
    /* Means over the steps, in which bursts count, of these three. */
    double mean, mean_without, mean_forced;
    double gather, decide, place; /* loads, decision, placement */
    double copies;                /* of all ranks, in the mean */
    int slots;
    double expert_us;
    size_t expert_bytes, leaf_rows;
    double within, copy_us; /* goal of the decision */
};

/* Of a row of `shunt-perf put`: work requests of a message; < 0: not counted. */
struct perf_row_put {
    double requests, peer_requests;
};

/* Of a row of `shunt-perf moe-move`, `moe-refresh` or `moe-reduce`, whose peer is a
 * plain copy or sum of as many bytes. */
struct perf_row_experts {
    size_t experts; /* that travel, of all ranks */
    size_t expert_bytes;
    double bytes_between; /* nodes, as the library counts them */
};

static inline double perf_row_layer_hidden(const struct perf_row_layer *l,
                                           double t)
{
    const double least =
        l->compute < l->communicate ? l->compute : l->communicate;

    return (l->compute + l->communicate - t) / least;
}

/* The share of the shorter one of computation and copy that is hidden. */
static inline double perf_row_copy_hidden(const struct perf_row_copy *c,
                                          double both)
{
    const double least = c->compute < c->alone ? c->compute : c->alone;

    return (c->compute + c->alone - both) / least;
}

/* One line of the table. */
struct perf_row {
    const char *op;
    size_t bytes; /* of a rank */
    size_t count; /* elements of a call's block, or tokens of a rank */
    double bus;   /* share of the bytes that counts for busbw */
    bool part;    /* moves no data: not in the geometric mean */
    size_t samples;
    int batch;
    double pair; /* microseconds, measured just before: pair.h; < 0: unknown */
    bool has[PERF_ROLES];
    struct perf_times times[PERF_ROLES];
    /* With --overlap; `times` are those of start and wait then. */
    struct perf_overlap overlap[PERF_ROLES];
    bool checked; /* false: there is nothing to check */
    double wrong[PERF_ROLES];

    bool between; /* several hosts or nodes: the following is filled in */
    struct perf_need need[PERF_ROLES]; /* by each side's algorithm */
    struct perf_wire wire[PERF_ROLES];
    /* A fused call. Microseconds of the same unfused, of the product alone and
     * beside plain streams (0: not measured), and of the collective alone; the
     * hidden share of the shorter one, the bound (docs/fused.md), and in how
     * many parts it sends. */
    bool fused;
    struct {
        double unfused, compute, beside, communicate, hidden, bound;
        size_t parts;
    } alone;
    const struct perf_row_copy *copy;       /* NULL: another operation */
    const struct perf_row_layer *layer;     /* likewise */
    const struct perf_row_parts *parts;     /* likewise */
    const struct perf_row_step *step;       /* likewise */
    const struct perf_row_put *put;         /* likewise */
    const struct perf_row_experts *experts; /* likewise */
    const char *mode;             /* Shunt's mode for tokens, or NULL */
    double sent_rows, sent_bytes; /* figures of its plan; < 0: none */
};

/* GB/s from bytes and microseconds. */
static inline double perf_row_rate(double bytes, double us)
{
    return us > 0 ? bytes / us * 1e-3 : 0;
}

/* The bandwidth of the rows as a share of that of one copy by the GPU's driver. */
static inline double perf_row_share(const struct perf_row *row)
{
    const double us = row->times[PERF_OURS].median;

    return us > 0 ? row->times[PERF_WHOLE].median / us : 0;
}

/* The minimum time on the link: its latency, and all bytes at its rate. */
static inline double perf_row_bound_us(const struct perf_row *row,
                                       enum perf_role role,
                                       const struct perf_link *link)
{
    return link->latency + (double)row->need[role].busiest / link->rate;
}

void perf_table_open(const struct perf_settings *settings);
/* Begin the table of one operation. Its options are used until the next one, or
 * until the end. */
void perf_table_operation(const struct perf_options *options);
/* Print a remark among the settings or rows; `format` has no newline. */
void perf_table_note(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
void perf_table_row(const struct perf_row *row);
/* Print the closing line. Returns whether every result was right. */
bool perf_table_close(void);

#endif
