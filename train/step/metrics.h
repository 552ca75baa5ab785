// SPDX-License-Identifier: Apache-2.0
/*
 * The measurements of each step. They are kept for the report, and written to
 * --log as lines of JSON, one a step:
 *
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
 *
 * A line has ..._hidden only after steps that waited for everything at once
 * (trainer_step()), and val_... only if a validation followed the step. Losses
 * are in nats a byte. Numbers are written with enough digits to read back the
 * same bits.
 */
#ifndef TRAIN_METRICS_H
#define TRAIN_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "train/exchange/exchange.h"
#include "train/step/data.h"

/* The transfers that ranks make while they compute: the exchanges of rows, in
 * the order of enum exchange_call, and the sums of gradients. */
enum { TRAVELS_GRADIENTS = EXCHANGES, TRAVELS };

/* The name of a transfer, as "dispatch's gradient". */
const char *travels_name(int what);

struct step_metrics {
    size_t step;
    double loss;
    double balance; /* balancing loss, mean over layers: E sum_e f_e P_e
                     * (layers/gate_loss.c); 1: even loads */
    double zloss;   /* mean over layers and rows of lse^2 */
    double lr, grad_norm;
    double step_s;     /* seconds of the whole step */
    double compute_s;  /* of rank 0, as the next four fields: seconds of
                          computing */
    double exchange_s; /* seconds in plan, dispatch, combine and their
                          backwards */
    double reduce_s;   /* seconds in other collectives */
    double tensor_s;   /* seconds in fused products, without the time of the
                          products themselves */
    double wait_s;     /* part of the last three: waiting for other ranks */
    /* Over all ranks: computing time of the rank that computed longest, and the
     * mean. Then the sum of all threads' CPU time, and the part of it that was
     * computing. */
    double compute_most_s, compute_mean_s, cpu_s, compute_cpu_s;
    double cores;        /* cores that the ranks had, at most one a rank */
    double wire_bytes;   /* bytes that all ranks sent to other nodes */
    double wire_rows;    /* rows of tokens that all ranks sent to other nodes in
                            forward */
    double plain_rows;   /* what wire_rows would be if each assignment sent a
                            row of its own */
    double mpi_rows;     /* rows that MPI sent to any rank, forward and
                            backward */
    double fused_calls;  /* fused products of all ranks */
    double gflops;       /* 10^9 operations a second, in matrix products */
    double compute_bits; /* bits of the products' inputs: 32, or 16 with
                            --compute bf16 */
    double tokens_per_s;
    double imbalance; /* rows of the fullest expert / mean, averaged over
                         layers */
    /* Rows of the fullest rank / mean, averaged over layers: as it was, and as
     * it would be without --balance. */
    double rank_imbalance, rank_imbalance_off;
    double replicas; /* copies of experts, in all layers */
    double moved;    /* experts that moved to another rank */
    /* Bytes of the moved experts, and of copies' weights and gradients. */
    double moved_bytes, copy_bytes;
    /* Seconds that balance took from a step: the mean of all ranks, and the
     * part of that time that rank 0 needed for decisions. saved_s: by how much
     * the longest time for computing experts fell. It is estimated from the
     * rows of the fullest rank and the time of a row. */
    double balance_s, planner_s, saved_s;
    double dropped;      /* assignments beyond the capacity, over all layers */
    double dropped_part; /* `dropped` as a part of all assignments */
    /* For each transfer: exposed_s is the time that calls which start the
     * transfer, or wait for it, took from the step, averaged over ranks. hidden
     * is 1 - exposed_s / (exposed_s in steps that wait at once). NaN: not
     * known. Below 0: the transfer took longer than in those steps. */
    double exposed_s[TRAVELS], hidden[TRAVELS];
    double activation_bytes; /* most bytes of activations on any rank at a
                                time */
    double expert_bytes;     /* most bytes of the experts' hidden rows on any
                                rank at a time */
    double offload_bytes;    /* bytes that all ranks offloaded */
    double recomputed; /* (layer, micro-batch) pairs of all ranks whose hidden
                          rows were dropped: too many for --recompute-above or
                          for the budget */
    double waves;      /* additional waves due to --max-rows, over all layers */
    double time_s;     /* seconds since the run began, or was resumed */
    double val[HELD];  /* loss on each kind of held-out text; NaN: no
                          validation */
};

struct metrics {
    struct step_metrics *steps;
    size_t count, room;
    FILE *file; /* NULL: no log */
};

/* Averages over the second half of the steps. The first steps take longer,
 * since they also generate kernels and allocate buffers. */
struct metrics_means {
    double step_s, exchange_s, reduce_s, tensor_s, wait_s; /* seconds */
    double compute_most_s, compute_mean_s, cpu_s, compute_cpu_s;
    double cores_s; /* core-seconds of all cores; 0: a log of an older
                       version */
    double wire_bytes, wire_rows, plain_rows; /* 0: a single node */
    double mpi_rows;                          /* 0: libshunt sent the rows */
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

/* path NULL: measurements are only kept in memory. resume_step > 0: the lines
 * of the file up to that step are read back and kept, all other lines are
 * removed. 0, or -1 with train_error_text(). */
int metrics_open(struct metrics *m, const char *path, size_t resume_step);
int metrics_add(struct metrics *m, const struct step_metrics *s);
void metrics_close(struct metrics *m);

/* The part of an exchange that was hidden behind computing, 1 - exposed /
 * alone, as text: a percentage, or how many times as long as alone the exchange
 * took. */
const char *metrics_share(double hidden, char *text, size_t size);

#endif
