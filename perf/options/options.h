// SPDX-License-Identifier: Apache-2.0
/*
 * The command line of shunt-perf.
 */
#ifndef SHUNT_PERF_OPTIONS_H
#define SHUNT_PERF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>
#include <shunt/moe_parts.h>

#include "perf/base/perf.h"
#include "perf/base/routing.h"
#include "perf/options/modes.h"

enum perf_mem {
    PERF_MEM_UNSAID, /* not given; see perf_options_of() */
    PERF_MEM_MALLOC,
    PERF_MEM_WINDOW,
    PERF_MEM_DEVICE, /* for exchanges of tokens only */
};
enum perf_peer {
    PERF_PEER_NONE,
    PERF_PEER_MPI,
    PERF_PEER_MEMCPY,
    PERF_PEER_VERBS,
    PERF_PEER_LINK, /* only in the command line; sets options.link */
};
enum perf_pin { PERF_PIN_AUTO, PERF_PIN_YES, PERF_PIN_NO };

/* Is the data of a copy in the cache? */
enum perf_cache { PERF_CACHE_COLD, PERF_CACHE_WARM };

/* How the loads of steps are balanced by copies of experts: not, by loads that
 * are predicted from earlier steps, or by the loads of the step itself. */
enum perf_balance {
    PERF_BALANCE_OFF,
    PERF_BALANCE_REPLICAS,
    PERF_BALANCE_MICROBATCH,
};

/* The order of a layer's computations. */
enum perf_order { PERF_ORDER_SEARCH, PERF_ORDER_PAPER, PERF_ORDER_SERIAL };

#define PERF_MAX_TOKENS_LIST 16
#define PERF_MAX_ROW_BYTES 8
#define PERF_MAX_LAYER_PARTS 8

struct perf_options {
    enum perf_op ops[PERF_OPS]; /* in the order in which they are measured */
    int nops;
    enum perf_op op; /* the operation that is measured now */

    /* Data. */
    size_t begin, end; /* bytes */
    double factor;     /* > 1 */
    struct {
        bool begin, end, factor, warmup, parts;
    } given;
    enum shunt_dtype dtype;
    enum shunt_op reduce;
    int root;
    bool skewed; /* uneven counts, for operations that have counts */
    bool in_place;
    enum perf_mem mem;
    const char *algorithm; /* value of SHUNT_ALGORITHM; NULL: unchanged */

    /* Exchanges of tokens. */
    size_t tokens[PERF_MAX_TOKENS_LIST]; /* tokens of each rank; one table row
                                          * for each entry */
    int ntokens;
    size_t hidden;
    size_t inner; /* inner width of fused products and of layers */
    int topk;
    int experts;
    enum shunt_moe_wire wire;
    struct perf_modes modes;
    enum shunt_moe_partials partials;
    int parts; /* number of parts of a plan; 0, only for a layer: the best
                * number */
    enum perf_skew skew;
    double skew_arg;

    /* Layers. */
    int micro_batches; /* 1 or 2 */
    enum perf_order order;
    int layers;       /* number of layers in a chain */
    double attention; /* share of attention in the products */
    double ratio;     /* exchange time / computation time, by which `inner` is
                       * chosen; 0: not chosen */

    /* Steps. */
    enum perf_balance balance;
    int slots;           /* for copies of experts, on each rank */
    double expert_us;    /* time of an expert for one row */
    size_t expert_bytes; /* bytes of an expert's parameters */
    double within;       /* no copies while every rank's rows / mean is at most
                          * this */
    double copy_us;      /* cost of a copy in the decision; 0: no cost */
    size_t leaf_rows;    /* shares of copies are multiples of so many rows */

    /* Copies. */
    const char *engine; /* NULL: the engine of SHUNT_ENGINE, or the default */
    enum perf_cache cache;
    size_t row_bytes[PERF_MAX_ROW_BYTES];
    int nrow_bytes;

    /* Measurement. */
    int warmup;     /* number of calls before the measurement */
    int samples;    /* 0: as many as `seconds` allow */
    int batch;      /* calls in one sample; 0: chosen by the length of a call */
    bool overlap;   /* measure the _start calls, with a computation */
    int tests;      /* number of tests of a request during a computation */
    double seconds; /* time for one row, all sides together */
    enum perf_peer peer;
    bool link; /* also measure plain streams between the hosts */
    bool only_peer;
    uint64_t seed;

    /* Ranks and output. */
    int ranks;  /* 0: as many as the launcher started */
    int births; /* runs with new ranks each; 0: just this run */
    enum perf_pin pin;
    const char *interface; /* network interface to other hosts; NULL: found by
                            * address */
    bool json;
    const char *json_file; /* append rows here; NULL: stdout */
    bool csv;
    const char *csv_file;
    const char *label; /* name of this run in reports, or NULL */
};

/* Read the command line. Ends the program on a mistake, and after --help. */
void perf_options_parse(struct perf_options *options, int argc, char **argv);

/* The options of the i-th operation. Options that were not given have the
 * operation's defaults. */
struct perf_options perf_options_of(const struct perf_options *all, int i);

const char *perf_mem_name(enum perf_mem mem);
const char *perf_dtype_name(enum shunt_dtype dtype);
const char *perf_reduce_name(enum shunt_op op);
const char *perf_skew_name(enum perf_skew skew);
const char *perf_balance_name(enum perf_balance balance);
const char *perf_cache_name(enum perf_cache cache);
const char *perf_order_name(enum perf_order order);

/* A digest of the options. It is equal on two ranks only if their options are
 * equal. */
uint64_t perf_options_digest(const struct perf_options *options);

#endif
