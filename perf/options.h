// SPDX-License-Identifier: Apache-2.0
/*
 * The command line.
 */
#ifndef SHUNT_PERF_OPTIONS_H
#define SHUNT_PERF_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>
#include <shunt/moe_parts.h>

#include "perf/modes.h"
#include "perf/perf.h"
#include "perf/routing.h"

enum perf_mem {
    PERF_MEM_UNSAID, /* by the operation; see perf_options_of() */
    PERF_MEM_MALLOC,
    PERF_MEM_WINDOW,
    PERF_MEM_DEVICE, /* tokens only */
};
enum perf_peer {
    PERF_PEER_NONE,
    PERF_PEER_MPI,
    PERF_PEER_MEMCPY,
    PERF_PEER_VERBS,
    PERF_PEER_LINK, /* only in the command line: options.link */
};
enum perf_pin { PERF_PIN_AUTO, PERF_PIN_YES, PERF_PIN_NO };

/* What a copy finds in the cache. */
enum perf_cache { PERF_CACHE_COLD, PERF_CACHE_WARM };

/* How the loads of steps are balanced: copies by the loads that steps before let
 * expect, or by those of the step itself. */
enum perf_balance {
    PERF_BALANCE_OFF,
    PERF_BALANCE_REPLICAS,
    PERF_BALANCE_MICROBATCH,
};

/* In which order a layer computes. */
enum perf_order { PERF_ORDER_SEARCH, PERF_ORDER_PAPER, PERF_ORDER_SERIAL };

#define PERF_MAX_TOKENS_LIST 16
#define PERF_MAX_ROW_BYTES 8
#define PERF_MAX_LAYER_PARTS 8

struct perf_options {
    enum perf_op ops[PERF_OPS]; /* in the order in which they are measured */
    int nops;
    enum perf_op op; /* the one at hand */

    /* What is sent. */
    size_t begin, end; /* bytes */
    double factor;     /* > 1 */
    struct {
        bool begin, end, factor, warmup, parts;
    } given;
    enum shunt_dtype dtype;
    enum shunt_op reduce;
    int root;
    bool skewed; /* counts of the operations that have them */
    bool in_place;
    enum perf_mem mem;
    const char *algorithm; /* for SHUNT_ALGORITHM; NULL: as it is */

    /* Exchanges of tokens. */
    size_t tokens[PERF_MAX_TOKENS_LIST]; /* of a rank; one row each */
    int ntokens;
    size_t hidden;
    size_t inner; /* of fused products and of layers */
    int topk;
    int experts;
    enum shunt_moe_wire wire;
    struct perf_modes modes;
    enum shunt_moe_partials partials;
    int parts; /* of a plan; 0, of a layer: as many as is best */
    enum perf_skew skew;
    double skew_arg;

    /* Layers. */
    int micro_batches; /* 1 or 2 */
    enum perf_order order;
    int layers;       /* of a chain */
    double attention; /* share of the products */
    double ratio;     /* R / C, by which `inner` is chosen; 0: as given */

    /* Steps. */
    enum perf_balance balance;
    int slots;           /* of a rank, for copies */
    double expert_us;    /* that an expert takes for a row */
    size_t expert_bytes; /* of its parameters */
    double within;       /* rows of a rank over the mean that need no copies */
    double copy_us;      /* price of a copy; 0: none */
    size_t leaf_rows;    /* between which shares of copies are cut */

    /* Copies. */
    const char *engine; /* NULL: by SHUNT_ENGINE, or the default */
    enum perf_cache cache;
    size_t row_bytes[PERF_MAX_ROW_BYTES];
    int nrow_bytes;

    /* How it is measured. */
    int warmup;     /* calls */
    int samples;    /* 0: as many as `seconds` allow */
    int batch;      /* calls of one sample; 0: by their length */
    bool overlap;   /* the _start calls, with a computation */
    int tests;      /* of a request while it computes */
    double seconds; /* for one row, both sides together */
    enum perf_peer peer;
    bool link; /* streams between the hosts as well */
    bool only_peer;
    uint64_t seed;

    /* Where it runs and how it reports. */
    int ranks;  /* 0: as launched */
    int births; /* runs, each with new ranks; 0: this one */
    enum perf_pin pin;
    const char *interface; /* of the link to other hosts; NULL: found */
    bool json;
    const char *json_file; /* append objects here; NULL: stdout */
    bool csv;
    const char *csv_file;
    const char *label; /* of this run, for reports; or NULL */
};

/* Read the command line; ends the program on a mistake, and after --help. */
void perf_options_parse(struct perf_options *options, int argc, char **argv);

/* The options of the i-th operation: what nobody gave is as it prefers. */
struct perf_options perf_options_of(const struct perf_options *all, int i);

const char *perf_mem_name(enum perf_mem mem);
const char *perf_dtype_name(enum shunt_dtype dtype);
const char *perf_reduce_name(enum shunt_op op);
const char *perf_skew_name(enum perf_skew skew);
const char *perf_balance_name(enum perf_balance balance);
const char *perf_cache_name(enum perf_cache cache);
const char *perf_order_name(enum perf_order order);

/* A number that is equal on two ranks only if their options are. */
uint64_t perf_options_digest(const struct perf_options *options);

#endif
