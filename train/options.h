// SPDX-License-Identifier: Apache-2.0
/* The command line of shunt-train. */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/cli/cli.h"
#include "train/layout.h"
#include "train/memory.h"
#include "train/optimizer.h"
#include "train/places.h"

enum {
    SETTING_ROOM = 40,
    MEMORY_OPTIONS = 16,
    SWITCHES = 3,
    /* Each layer of each micro-batch has a plan, and an exchange has at most so
     * many. */
    MOST_ROUTINGS = 256,
};

/* What --overlap said. */
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

    char **data; /* files; count 0: this project's own text */
    size_t ndata;
    const char *root; /* where that is */
    size_t batch;     /* sequences of a step, over all ranks; 0: 8 or more */
    size_t steps;     /* 0: see length.h */
    double minutes;   /* what a run without --steps may take; 0: no limit */
    uint64_t seed;
    size_t shares;  /* the batch is summed in so many parts; 0: 4 or ranks */
    size_t nodes;   /* these in so many; 0: as the ranks are */
    size_t tp;      /* ranks of a tensor-parallel group */
    size_t tp_sums; /* shards whose products are added; 0: tp */
    size_t expert_copies; /* ranks that have the same experts */
    size_t micro_batches; /* the batch is cut into these first; 0: as pays */
    enum workload_kind workload;    /* in place of the routers' choices */
    double row_us;                  /* that experts take for a row, at least */
    enum balance_over balance_over; /* what the balancing loss is of */
    struct balance_config balance;  /* of the rows of ranks */

    size_t accumulate; /* parts of the batch that are computed one by one */

    bool bf16, fp8;     /* rows travel as */
    bool overlap;       /* compute while they do */
    bool overlap_given; /* by its option, which said: */
    enum overlap_asked overlap_asked;
    bool mpi;          /* MPI carries them, and gradients, not libshunt */
    bool compute_bf16; /* matrix products */
    double capacity_factor;
    size_t max_rows; /* of a rank's experts at once; 0: any number */
    bool drop_by_weight;
    int gemm; /* see options_gemm() */

    const char *memory[MEMORY_OPTIONS]; /* as given; */
    size_t nmemory;
    double recompute_above;         /* 0: never */
    size_t activation_budget;       /* bytes; 0: any */
    struct memory_plan memory_plan; /* what they say: options_check() */
    bool save_memory, balanced;     /* switches */
    char switched[SWITCHES][160];   /* the options that each stood for */

    const char *checkpoint;
    size_t checkpoint_every;
    bool resume, accept, generate;
    const char *log;
    const char *report;
    size_t eval_every; /* 0: ten or fewer in a run */
    size_t eval_bytes;
    size_t sample;      /* bytes */
    const char *prompt; /* NULL: from the validation text */
    double temperature;
    size_t print_every;

    bool adopted;       /* the settings are a checkpoint's */
    cli_set given;      /* which options the user or a preset gave: cli_bit() */
    cli_set of_presets; /* of these, those of a preset: --minutes replaces its
                            steps */
};

/* An option that decides what a run computes, and its value, as texts. */
struct setting {
    char name[SETTING_ROOM], value[SETTING_ROOM];
};

enum options_result { OPTIONS_RUN, OPTIONS_EXIT, OPTIONS_BAD };

/* Fills in defaults and what the arguments say. OPTIONS_EXIT: --help or
 * --version was answered (text: what to print). OPTIONS_BAD:
 * train_error_text() says what is wrong. */
enum options_result options_parse(int argc, char **argv, struct options *o);
void options_free(struct options *o);

/* Checks that need the number of ranks: do they divide the batch? Sets batch,
 * shares, nodes, micro_batches and tp_sums if they are 0. `nodes`: team_nodes().
 * 0, or -1 with train_error_text(). */
int options_check(struct options *o, size_t ranks, size_t nodes);

/* A part of that: --memory and the like. memory_options.c */
int options_check_memory(struct options *o);

/* Did the user or a preset give this option, or a preset alone? */
bool options_given(const struct options *o, const char *name);
bool options_of_preset(const struct options *o, const char *name);

/* All settings, in one order; `to` may be NULL. How many there are. */
size_t options_settings(const struct options *o, struct setting *to);

/* Takes over a setting of a checkpoint that the user did not give. `own`: what
 * the user gave, where that is another one. */
enum options_adopted {
    ADOPT_SAME,        /* now the options have it */
    ADOPT_OTHER,       /* the user gave another one, */
    ADOPT_OTHER_SHAPE, /* which the weights do not have */
    ADOPT_UNKNOWN,     /* there is no such setting, or it has no such value */
};
enum options_adopted options_adopt(struct options *o, const struct setting *s,
                                   struct setting *own);

/* What the balancing loss is of, in words, and the gate. */
const char *options_balance_over(const struct options *o);
const char *options_gate(const struct options *o);
/* --balance, --workload */
const char *options_balance(const struct options *o);
const char *options_workload(const struct options *o);

/* The name of the matrix products that were asked for; NULL: the best. */
const char *options_gemm(const struct options *o);

/* Of all options that all ranks must have alike. */
uint64_t options_hash(const struct options *o);

#endif
