// SPDX-License-Identifier: Apache-2.0
/* The command line of shunt-train. */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/cli/cli.h"
#include "train/balance/places.h"
#include "train/memory/memory.h"
#include "train/parameters/layout.h"
#include "train/parameters/optimizer.h"

enum {
    SETTING_ROOM = 40,
    MEMORY_OPTIONS = 16,
    SWITCHES = 3,
    /* most plans of an exchange; there is one for each layer of each
     * micro-batch */
    MOST_ROUTINGS = 256,
};

/* The value of --overlap. */
enum overlap_asked { OVERLAP_SWITCH, OVERLAP_NO, OVERLAP_YES };

enum balance_over {
    BALANCE_OVER_BATCH,
    BALANCE_OVER_MICRO_BATCH,
    BALANCE_OVER_SHARE,
    BALANCE_OVER_SEQUENCE,
};

struct options {
    struct model_config model;
    struct optimizer_config optimizer;

    char **data; /* files; none: this project's own text */
    size_t ndata;
    const char *root; /* the folder of this project's own text */
    size_t batch;     /* sequences of a step, over all ranks; 0: at least 8 */
    size_t steps;     /* 0: see length.h */
    double minutes;   /* time limit of a run without --steps; 0: none */
    uint64_t seed;
    size_t shares;  /* parts in which the batch is summed; 0: 4, or the number
                       of ranks */
    size_t nodes;   /* nodes over which shares are summed; 0: as the ranks are
                       on nodes */
    size_t tp;      /* ranks of a tensor-parallel group */
    size_t tp_sums; /* shards whose products are added; 0: tp */
    size_t expert_copies; /* copies of each expert, on different ranks */
    size_t micro_batches; /* parts into which the batch is cut first; 0: chosen
                             by the number of nodes */
    enum workload_kind workload;    /* chooses experts instead of the routers */
    double row_us;                  /* least time of experts for a row, in us */
    enum balance_over balance_over; /* the part of the batch over which a
                                       balancing loss is computed */
    struct balance_config balance;  /* balance of the ranks' rows */

    size_t accumulate; /* parts of the batch that are computed one after the
                          other */

    bool bf16, fp8;     /* how rows are sent */
    bool overlap;       /* compute while rows are sent */
    bool overlap_given; /* --overlap was given, with the value overlap_asked */
    enum overlap_asked overlap_asked;
    bool mpi;          /* MPI sends rows and gradients instead of libshunt */
    bool compute_bf16; /* inputs of matrix products are bf16 */
    double capacity_factor;
    size_t max_rows; /* most rows of a rank's experts at once; 0: any number */
    bool drop_by_weight;
    int gemm; /* the index of --gemm's value: see options_gemm() */

    const char *memory[MEMORY_OPTIONS]; /* the texts of --memory */
    size_t nmemory;
    double recompute_above;         /* 0: never */
    size_t activation_budget;       /* most bytes of activations; 0: any
                                       number */
    struct memory_plan memory_plan; /* made from the options above; set by
                                       options_check() */
    bool save_memory, balanced;     /* --save-memory, --balanced */
    char switched[SWITCHES][160];   /* the options that each switch stood for */

    const char *checkpoint;
    size_t checkpoint_every;
    bool resume, accept, generate;
    const char *log;
    const char *report;
    size_t eval_every; /* steps between validations; 0: at most ten validations
                          in a run */
    size_t eval_bytes;
    size_t sample;      /* bytes to generate */
    const char *prompt; /* NULL: the first lines of held-out text */
    double temperature;
    size_t print_every;

    bool adopted;       /* the settings are those of a checkpoint */
    cli_set given;      /* options that the user or a preset gave, as bits:
                           cli_bit() */
    cli_set of_presets; /* those of `given` that a preset gave; --minutes
                           replaces a preset's steps */
};

/* An option that decides what a run computes, with its value, as texts. */
struct setting {
    char name[SETTING_ROOM], value[SETTING_ROOM];
};

enum options_result { OPTIONS_RUN, OPTIONS_EXIT, OPTIONS_BAD };

/* Sets defaults, and reads the arguments. OPTIONS_EXIT: --help or --version was
 * given; the answer has been printed. OPTIONS_BAD: see train_error_text(). */
enum options_result options_parse(int argc, char **argv, struct options *o);
void options_free(struct options *o);

/* Checks that need the number of ranks, such as whether the ranks divide the
 * batch. Sets batch, shares, nodes, micro_batches and tp_sums if they are 0.
 * nodes: team_nodes(). 0, or -1 with train_error_text(). */
int options_check(struct options *o, size_t ranks, size_t nodes);

/* The part of options_check() for --memory and related options;
 * memory_options.c. */
int options_check_memory(struct options *o);

/* options_given(): was the option given, by the user or by a preset?
 * options_of_preset(): by a preset? */
bool options_given(const struct options *o, const char *name);
bool options_of_preset(const struct options *o, const char *name);

/* Writes all settings, always in the same order; `to` may be NULL. Returns
 * their number. */
size_t options_settings(const struct options *o, struct setting *to);

/* Takes over a setting of a checkpoint, if the user did not give that option.
 * `own` receives the option's value before this call. */
enum options_adopted {
    ADOPT_SAME,        /* the options have this value now */
    ADOPT_OTHER,       /* the user gave another value */
    ADOPT_OTHER_SHAPE, /* the user gave another value, which needs weights of
                          another shape */
    ADOPT_UNKNOWN,     /* there is no such setting, or no such value */
};
enum options_adopted options_adopt(struct options *o, const struct setting *s,
                                   struct setting *own);

/* The values of --balance-over and --gate. */
const char *options_balance_over(const struct options *o);
const char *options_gate(const struct options *o);
/* The values of --balance and --workload. */
const char *options_balance(const struct options *o);
const char *options_workload(const struct options *o);

/* The value of --gemm; NULL: the best that works here. */
const char *options_gemm(const struct options *o);

/* A hash of all options that must be equal on all ranks. */
uint64_t options_hash(const struct options *o);

#endif
