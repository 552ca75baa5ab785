// SPDX-License-Identifier: Apache-2.0
/*
 * The output: settings, a table, and a closing line. Rows are also written in
 * machine-readable form (machine_rows.h). Only rank 0 prints.
 */
#ifndef SHUNT_PERF_TABLE_H
#define SHUNT_PERF_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "perf/sampling/overlap.h"
#include "perf/sampling/wire.h"
#include "perf/tables/settings.h"

/* The bytes that must be sent between hosts (or nodes) in one call,
 * computed. */
struct perf_need {
    uint64_t total;
    uint64_t busiest; /* bytes on the most loaded link, in its busier
                       * direction */
    uint64_t rows;    /* rows of tokens; 0: not an exchange of tokens */
};

/* A row of `shunt-perf copy`, whose `times` are those of the copy engine
 * (PERF_OURS) and of memcpy() (PERF_PEER). */
struct perf_row_copy {
    const char *engine;
    const char *cache;        /* "cold", "warm" */
    size_t row_bytes;         /* bytes of one of several rows; 0: contiguous */
    struct perf_times stream; /* non-temporal stores; median 0: not measured */
    /* A copy during a computation, in microseconds: the computation alone, the
     * engine's copy alone, and the computation and memcpy() one after the
     * other, with their CPU time. 0: another kind of row. */
    double compute, alone, sequence, sequence_cpu;
    /* How long the engine was idle, in microseconds, and the CPU time in it: of
     * the process, and of all threads but the caller's. 0: another kind of
     * row. */
    double idle, idle_cpu, idle_others;
};

/* A row of `shunt-perf moe-layer`. Its peer is the same layer with each
 * exchange waited for at once. Microseconds for a layer. */
struct perf_row_layer {
    double compute, communicate; /* computation alone, exchanges alone */
    bool streams; /* true: `compute` was measured during plain streams */
    struct {
        double compute, start;
        double wait[4]; /* for dispatch, combine and both backward exchanges */
    } beside;           /* parts of the time, means over ranks and calls */
    double predicted;   /* time by the simulator */
    double attention_share; /* share of attention in `compute` */
    double plan;            /* time of making a plan; not in the other times */
    int micro_batches, parts, layers;
    size_t inner, attention; /* widths of experts and of attention */
    const char *order;       /* order of the operations, as text */
};

/* A row of `shunt-perf moe-parts`. Its peer is the same exchange in one part.
 * For a learned number of parts, the peer is the best of the given numbers.
 * Times are in microseconds. whole_: the times in one part. */
struct perf_row_parts {
    int parts;
    int learned; /* plans until AUTO chose `parts`; 0: `parts` was given */
    /* the time with the same number of parts when that number is given. For a
     * learned row, this is a second sample of the same work. */
    double given;
    double compute, exchange, plan; /* the time of each alone */
    double whole_compute, whole_exchange, whole_plan;
    double beside; /* whole_compute during plain streams of these bytes */
    size_t inner;
};

/* A row of `shunt-perf moe-step`. Its peer is the same step without balance.
 * Microseconds for a step. */
struct perf_row_step {
    double without, with; /* busiest rank's rows / mean, worst step */
    double forced;        /* median time with an even router */
    /* Means over the steps of these three times. Unlike medians they include
     * bursts. */
    double mean, mean_without, mean_forced;
    double gather, decide, place; /* time of gathering loads, of the decision,
                                   * of the placement */
    double copies;                /* copies on all ranks, mean over steps */
    int slots;
    double expert_us;
    size_t expert_bytes, leaf_rows;
    double within, copy_us; /* goal of the decision: options.h */
};

/* A row of `shunt-perf put`: work requests for one message; < 0: not
 * counted. */
struct perf_row_put {
    double requests, peer_requests;
};

/* A row of `shunt-perf moe-move`, `moe-refresh` or `moe-reduce`. Its peer is a
 * plain copy or sum of as many bytes. */
struct perf_row_experts {
    size_t experts; /* experts that are sent, by all ranks */
    size_t expert_bytes;
    double bytes_between; /* between nodes, as the library counts them */
};

static inline double perf_row_layer_hidden(const struct perf_row_layer *l,
                                           double t)
{
    const double least =
        l->compute < l->communicate ? l->compute : l->communicate;

    return (l->compute + l->communicate - t) / least;
}

/* The share of the shorter one, computation or copy, that overlapped. */
static inline double perf_row_copy_hidden(const struct perf_row_copy *c,
                                          double both)
{
    const double least = c->compute < c->alone ? c->compute : c->alone;

    return (c->compute + c->alone - both) / least;
}

/* One line of the table. */
struct perf_row {
    const char *op;
    size_t bytes; /* bytes of one rank */
    size_t count; /* elements of a call's block, or tokens of a rank */
    double bus;   /* busbw is this share of algbw */
    bool part;    /* true: sends no data; not included in the geometric mean */
    size_t samples;
    int batch;
    double pair; /* microseconds, measured just before the row: pair.h; < 0:
                  * unknown */
    bool has[PERF_ROLES];
    struct perf_times times[PERF_ROLES];
    /* With --overlap. `times` are then those of start and wait. */
    struct perf_overlap overlap[PERF_ROLES];
    bool checked; /* false: there is nothing to check */
    double wrong[PERF_ROLES];

    bool between; /* true: there are several hosts or nodes, and the next two
                   * fields are set */
    struct perf_need need[PERF_ROLES]; /* bytes that each side's algorithm must
                                        * send */
    struct perf_wire wire[PERF_ROLES];
    /* A fused call. Microseconds of the same call unfused, of the product
     * alone, of the product during plain streams (0: not measured), and of the
     * collective alone. `hidden`: the share of the shorter one that overlapped.
     * `bound`: docs/fused.md. `parts`: in how many parts it sends. */
    bool fused;
    struct {
        double unfused, compute, beside, communicate, hidden, bound;
        size_t parts;
    } alone;
    const struct perf_row_copy *copy;       /* NULL: a row of another
                                             * operation */
    const struct perf_row_layer *layer;     /* the same */
    const struct perf_row_parts *parts;     /* the same */
    const struct perf_row_step *step;       /* the same */
    const struct perf_row_put *put;         /* the same */
    const struct perf_row_experts *experts; /* the same */
    const char *mode;             /* Shunt's mode for tokens, or NULL */
    double sent_rows, sent_bytes; /* rows and bytes that its plan sends; < 0: no
                                   * plan */
};

/* Convert bytes and microseconds to GB/s. */
static inline double perf_row_rate(double bytes, double us)
{
    return us > 0 ? bytes / us * 1e-3 : 0;
}

/* The bandwidth of the rows, as a share of the bandwidth of one copy by the
 * GPU's driver. */
static inline double perf_row_share(const struct perf_row *row)
{
    const double us = row->times[PERF_OURS].median;

    return us > 0 ? row->times[PERF_WHOLE].median / us : 0;
}

/* The least time on the link: its latency, and the bytes of the most loaded
 * link at its rate. */
static inline double perf_row_bound_us(const struct perf_row *row,
                                       enum perf_role role,
                                       const struct perf_link *link)
{
    return link->latency + (double)row->need[role].busiest / link->rate;
}

void perf_table_open(const struct perf_settings *settings);
/* Begin the table of one operation. `options` is used until the next operation,
 * or until the end. */
void perf_table_operation(const struct perf_options *options);
/* Print a remark between settings or rows. `format` has no newline. */
void perf_table_note(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
void perf_table_row(const struct perf_row *row);
/* Print the closing line. Returns whether every result was right. */
bool perf_table_close(void);

#endif
