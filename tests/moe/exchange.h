// SPDX-License-Identifier: Apache-2.0
/*
 * One exchange on real ranks, compared with the reference bit by bit. The cases
 * of rank_moe use it.
 */
#ifndef TEST_MOE_EXCHANGE_H
#define TEST_MOE_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"
#include "tests/moe/reference.h"

enum memory { WINDOW, HEAP };

struct run {
    const struct rank *self;
    const struct world *world;
    struct shunt_moe *moe;
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    uint64_t order; /* decides the order of the parts in the next call */
    /* calls so far; in every second call an empty array is NULL */
    unsigned calls;
    enum memory memory;
    size_t bytes; /* bytes of a row */
    /* With HEAP: memory of this test, with a guard row behind each buffer.
     * Otherwise the plan's buffers. */
    unsigned char *buffer[4];
    unsigned char *x, *y, *bias; /* (tokens, hidden) */
    float *dweight;              /* (tokens, topk) */
};

#define POISON 0xff /* a NaN in every type */

/* Allocates poisoned memory, with one byte more than asked for. */
void *filled(size_t bytes);

/* A seed that is the same on all ranks: rank 0's SHUNT_TEST_SEED, or a new one
 * each time. Collective. */
int test_seed(const struct rank *self, uint64_t *seed);

/* The node of each rank, valid until the next call of this thread. */
const int *world_nodes(const struct rank *self);

struct shunt_moe_config config_of(size_t hidden, enum shunt_dtype dtype,
                                  int experts, int topk);

/* The number of parts of run_begin(): SHUNT_TEST_PARTS, or 1. */
int test_parts(void);

/* Plans this rank's part of `world`, and checks the sizes. If there are several
 * parts, the calls below are made part by part. */
int run_begin(struct run *run, const struct rank *self, struct shunt_moe *moe,
              const struct world *world, enum memory memory);
int run_begin_parts(struct run *run, const struct rank *self,
                    struct shunt_moe *moe, const struct world *world,
                    enum memory memory, int parts);
/* The plan of this rank's part of `world`, by shunt_moe_plan_create(). */
enum shunt_status plan_of(const struct rank *self, struct shunt_moe *moe,
                          const struct world *world,
                          struct shunt_moe_plan **plan);
/* run_plan() makes the plan of this rank's part of `world`. run_begin_on()
 * begins with a plan that exists, as a wave does. */
int run_plan(const struct rank *self, struct shunt_moe *moe,
             const struct world *world, int parts, size_t max_rows,
             struct shunt_moe_plan **plan);
int run_begin_on(struct run *run, const struct rank *self,
                 struct shunt_moe *moe, struct shunt_moe_plan *plan,
                 const struct world *world, enum memory memory, int parts);
int run_end(struct run *run);

/* Write the rows of tokens, or of experts, of this `kind`. Padding of experts
 * stays poisoned: no call may read it. */
void run_fill_tokens(const struct run *run, void *to, int kind);
void run_fill_rows(const struct run *run, void *to, int kind);

/* Check all rows that dispatch wrote, a single row, and the sums of tokens. */
int run_check_rows(const struct run *run);
int run_check_row(const struct run *run, size_t row);
int run_check_tokens(const struct run *run, int kind, bool weighted, bool bias);

/* Make the calls with new input, and check results and counters. */
int run_dispatch(struct run *run);
int run_combine(struct run *run, bool bias);
int run_backward(struct run *run, bool dweight);

/* One of the four calls by number, on the plan's buffers, without any check. */
enum { RUN_CALLS = 4 };
extern const char *const run_call_names[RUN_CALLS];
enum shunt_status run_call(struct run *run, int which);

/* All four calls, some of them twice. */
int run_everything(const struct rank *self, struct shunt_moe *moe,
                   const struct world *world, enum memory memory);
int run_everything_parts(const struct rank *self, struct shunt_moe *moe,
                         const struct world *world, enum memory memory,
                         int parts);

/* run_everything() with several seeds, and in both kinds of memory. */
int run_seeds(const struct rank *self, const struct shunt_moe_config *config,
              enum values values, size_t min_tokens, size_t max_tokens,
              int none);

/* An array of `count` elements as an argument. If it is empty: NULL, or any
 * address. */
void *run_array(const struct run *run, const void *array, size_t count);

/* Starts one of the four calls, by number, on a part, or on all parts at once
 * if part = rows.parts. A rank without tokens may pass any `out` and `dweight`
 * if the others pass NULL. */
enum shunt_status run_start_part(struct run *run, int which, int part,
                                 bool bias, bool dweight,
                                 struct shunt_request **request);
/* Makes one of the four calls in all parts. Parts are started and waited for in
 * any order, and some calls are blocking. The experts' input is written part by
 * part. Their rows are checked when they have arrived. */
int run_parts(struct run *run, int which, bool bias, bool dweight);

/* Are rows sent from rail peer to rail peer? */
bool by_rails(enum shunt_moe_mode mode);

/* Bytes of a row that dispatch sends to another node. */
size_t run_wire_bytes(const struct run *run);

/* Bytes that other nodes send to this rank in one combine, from the routing. */
size_t run_bytes_home(const struct run *run);

/* Compare the plan's sums, and the counters since `before`, with the routing.
 * run_check_sent() does so for dispatch; run_check_sent_home() for the bytes
 * that combine or dispatch_backward sends to other nodes. */
int run_check_sent(const struct run *run,
                   const struct shunt_comm_stats *before);
int run_check_sent_home(const struct run *run,
                        const struct shunt_comm_stats *before);

#endif
