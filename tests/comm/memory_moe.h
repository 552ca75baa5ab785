// SPDX-License-Identifier: Apache-2.0
/*
 * The calls of an exchange for rank_memory.c, each with a check of its result.
 * All numbers are small integers, so that sums are exact.
 */
#ifndef TEST_MEMORY_MOE_H
#define TEST_MEMORY_MOE_H

#include <stdbool.h>

#include <shunt/shunt.h>

/* An exchange with a plan, and memory for all calls. */
struct memory_moe {
    struct shunt_comm *comm;
    int rank, size;
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    int32_t *expert;          /* (tokens, topk) */
    float *weight;            /* (tokens, topk) */
    float *x, *y;             /* (tokens, hidden) */
    float *in, *out;          /* (rows, hidden): output of dispatch, and input
                                 of combine */
    float *dweight;           /* (tokens, topk) */
    struct shunt_moe *spread; /* each expert has a copy on the next rank */
    /* each expert has a copy on the next rank, with shares */
    struct shunt_moe *shared;
    struct shunt_moe_plan *shared_plan;
    float *sums;                /* sums of leaves, for the experts of a rank of
                                   `shared` */
    float *state, *moved;       /* weights, for the experts of a rank of
                                   `spread` */
    void *device_x, *device_in; /* x and in on a GPU, with SHUNT_ENGINE=cuda */
    /* the last call that returned SHUNT_OK had the right result */
    bool right;
};

/* Creates everything. Returns false if that failed. Collective. */
bool memory_moe_begin(struct memory_moe *m, struct shunt_comm *comm);
void memory_moe_end(struct memory_moe *m);

enum shunt_status memory_moe_create(struct memory_moe *m);
enum shunt_status memory_moe_plan(struct memory_moe *m);
enum shunt_status memory_moe_parts(struct memory_moe *m);
enum shunt_status memory_moe_waves(struct memory_moe *m);
enum shunt_status memory_moe_dispatch(struct memory_moe *m);
enum shunt_status memory_moe_refresh(struct memory_moe *m);
enum shunt_status memory_moe_reduce(struct memory_moe *m);
enum shunt_status memory_moe_move(struct memory_moe *m);
enum shunt_status memory_moe_set_placement(struct memory_moe *m);
enum shunt_status memory_moe_set_shares(struct memory_moe *m);
enum shunt_status memory_moe_plan_shares(struct memory_moe *m);
enum shunt_status memory_moe_waves_shares(struct memory_moe *m);
enum shunt_status memory_moe_gradients(struct memory_moe *m);
enum shunt_status memory_moe_dispatch_device(struct memory_moe *m);
enum shunt_status memory_moe_combine(struct memory_moe *m);
enum shunt_status memory_moe_combine_backward(struct memory_moe *m);
enum shunt_status memory_moe_dispatch_backward(struct memory_moe *m);

#endif
