// SPDX-License-Identifier: Apache-2.0
/*
 * Exchanges where ranks cannot write into each other's windows: rows travel in
 * packs, by alltoallv.
 *
 * Out: a token's row goes once to each rank that has an expert of it; a list
 * sent with the plan says into which rows it is to be copied there, and with
 * which weights. Back: each row of an expert by itself, so that home adds them
 * in the one tree that all paths share.
 *
 * The same bits as the direct way, at one more copy on each side.
 */
#ifndef SHUNTI_PACKED_H
#define SHUNTI_PACKED_H

#include "moe/plan.h"

/* One row of ours, as its source lists it. */
struct shunti_pack_entry {
    uint32_t row; /* the top bit: the first of another token */
    float weight;
};

#define SHUNTI_PACK_NEW ((uint32_t)1 << 31)

/* What a request does; a NULL half is left out. */
struct shunti_packed {
    const void *out;  /* tokens' rows to send, (tokens, hidden) */
    void *placed;     /* where they go, (total, hidden) */
    bool fp8;         /* they travel as fp8 */
    bool weighted;    /* they are multiplied by the weights when placed */
    const void *back; /* rows to bring home, (total, hidden) */
    const void *bias; /* with sum */
    void *sum;        /* their sums, (tokens, hidden) */
    bool sum_weighted;
    const void *dy; /* with dweight, (tokens, hidden) */
    float *dweight; /* their products with dy, (tokens, topk) */
};

/* Lists of the plan for everybody, once its layout stands. Collective. */
enum shunt_status shunti_packs_exchange(struct shunti_plan *plan,
                                        const struct shunti_counts *counts,
                                        const size_t *base);
void shunti_packs_finish(struct shunti_packs *packs);

enum shunt_status shunti_packed_start(const struct shunti_moe_call *call,
                                      struct shunti_plan *plan,
                                      const struct shunti_packed *what,
                                      struct shunt_request **request);

#endif
