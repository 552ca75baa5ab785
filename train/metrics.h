// SPDX-License-Identifier: Apache-2.0
/*
 * What is measured at each step: kept for the report, and written as lines of
 * JSON, one a step:
 *     {"step": 1, "loss": 5.54, "balance": 1.01, "zloss": 4.3, "lr": 1e-4,
 *      "grad_norm": 1.9, "tokens_per_s": 9000, "step_s": 0.4, "wait_s": 0.1,
 *      "compute_s": ..., "exchange_s": ..., "reduce_s": ..., "tensor_s": 0,
 *      "compute_most_s": ..., "compute_mean_s": ..., "cpu_s": ...,
 *      "compute_cpu_s": ..., "cores": 2,
 *      "wire_bytes": ..., "wire_rows": ..., "plain_rows": ..., "mpi_rows": 0,
 *      "fused_calls": 0, "imbalance": 1.2, "gflops": 31, "compute_bits": 32,
 *      "rank_imbalance": 1.02, "rank_imbalance_off": 1.3, "replicas": 6,
 *      "moved": 0, "moved_bytes": 0, "copy_bytes": ..., "balance_s": ...,
 *      "planner_s": ..., "saved_s": ...,
 *      "dropped": 0, "dropped_part": 0,
 *      "dispatch_s": ..., "combine_s": ..., "combine_backward_s": ...,
 *      "dispatch_backward_s": ..., "gradients_s": ..., "dispatch_hidden": 0.9,
 *      ... (of each of these),
 *      "activation_bytes": ..., "expert_bytes": ..., "offload_bytes": 0,
 *      "recomputed": 0, "waves": 0,
 *      "time_s": 0.4, "val_files": 5.6, "val_blocks": 5.5}
 * ..._hidden where steps before have waited for everything at once
 * (trainer_step()), val_... where a validation followed the step. Losses are in
 * nats a byte; numbers are written so that reading gives back the same bits.
 */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "train/data.h"
#include "train/exchange.h"

/* What travels while ranks compute: the exchanges of rows, in the order of enum
 * exchange_call, and the sums of gradients. */
enum { TRAVELS_GRADIENTS = EXCHANGES, TRAVELS };

/* "dispatch's gradient" */
const char *travels_name(int what);

struct step_metrics {
    size_t step;
    double loss;
    double balance; /* mean over layers of E sum f P; 1: even */
    double zloss;   /* mean over layers and rows of lse^2 */
    double lr, grad_norm;
    double step_s;     /* of the whole step */
    double compute_s;  /* of rank 0, and so below: */
    double exchange_s; /* in plan, dispatch, combine and their backwards */
    double reduce_s;   /* in other collectives */
    double tensor_s;   /* in fused calls, but for their products */
    double wait_s;     /* of these three, waiting for other ranks */
    /* Of all ranks: the same of the one that computed longest, and the mean; and
     * the CPU time of all threads, and of it what was computing. */
    double compute_most_s, compute_mean_s, cpu_s, compute_cpu_s;
    double cores;        /* that the ranks had, one for each at most */
    double wire_bytes;   /* that all ranks sent to other nodes; so, too: */
    double wire_rows;    /* rows of tokens, in the forward pass */
    double plain_rows;   /* what these would be at one for each assignment */
    double mpi_rows;     /* rows that MPI carried to any rank, both ways */
    double fused_calls;  /* of all ranks */
    double gflops;       /* 10^9 operations a second in matrix products */
    double compute_bits; /* of their inputs: 32, or 16 with --compute bf16 */
    double tokens_per_s;
    double imbalance; /* rows of the fullest expert / mean, mean over
                            layers */
    /* Rows of the fullest rank / mean, mean over layers: as they were, and as they
     * would be with each expert where it is without --balance. */
    double rank_imbalance, rank_imbalance_off;
    double replicas; /* copies of experts, of all layers */
    double moved;    /* experts that moved; bytes of these, and of weights and
                           gradients of copies: */
    double moved_bytes, copy_bytes;
    /* What balance took from a step, mean of the ranks, and of it decisions, on
     * rank 0; and by how much the longest computing of experts is shorter, by the
     * rows of the fullest rank and the time of a row. */
    double balance_s, planner_s, saved_s;
    double dropped;      /* assignments of all layers beyond the capacity, */
    double dropped_part; /* and what part of all assignments they are */
    /* Of what travels: seconds that it took from the step, in calls that start
     * it or wait for it, mean of the ranks; and which part of what it takes from
     * a step that waits at once was hidden. NaN: not known. Below 0: it took
     * more. */
    double exposed_s[TRAVELS], hidden[TRAVELS];
    double activation_bytes; /* most that a rank held at a time, any of them */
    double expert_bytes;     /* of experts' hidden rows, likewise */
    double offload_bytes;    /* of all ranks, copied elsewhere */
    double recomputed; /* (layer, micro-batch)es of all ranks that had more rows
                          than --recompute-above, or gave way to a budget */
    double waves;      /* that --max-rows made more, of all layers */
    double time_s;     /* since the run (or its resumption) began */
    double val[HELD];  /* of each kind of held-out text; NaN: no validation */
};

struct metrics {
    struct step_metrics *steps;
    size_t count, room;
    FILE *file; /* NULL: none is written */
};

/* Means of a step, over the second half of what was measured: the first steps
 * also make kernels, and grow buffers. */
struct metrics_means {
    double step_s, exchange_s, reduce_s, tensor_s, wait_s; /* seconds */
    double compute_most_s, compute_mean_s, cpu_s, compute_cpu_s;
    double cores_s; /* of all cores; 0: an older log */
    double wire_bytes, wire_rows, plain_rows; /* 0: there is one node */
    double mpi_rows;                          /* 0: libshunt did */
    double fused_calls;                       /* 0: --tp 1 */
    double tokens_per_s, gflops;
    double dropped, dropped_part;
    double rank_imbalance, rank_imbalance_off;
    double replicas, moved, moved_bytes, copy_bytes;
    double balance_s, planner_s, saved_s;
    double offload_bytes, recomputed;
    double activation_bytes, expert_bytes; /* the most of all steps */
    double hidden[TRAVELS];                /* NaN: not known */
};
struct metrics_means metrics_means(const struct metrics *m);

/* path NULL: only kept in memory. resume_step > 0: lines of steps up to that
 * one are read back and kept, later ones dropped from the file. */
int metrics_open(struct metrics *m, const char *path, size_t resume_step);
int metrics_add(struct metrics *m, const struct step_metrics *s);
void metrics_close(struct metrics *m);

/* The share of an exchange that a computation has hidden, 1 - exposed / alone, as text:
 * a percentage, or, where the exchange took longer than alone, how much longer. */
const char *metrics_share(double hidden, char *text, size_t size);

#endif
