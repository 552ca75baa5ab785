// SPDX-License-Identifier: Apache-2.0
/*
 * One exchange on real ranks, all of it, held against the reference bit by
 * bit: what the cases of rank_moe are made of.
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
    uint64_t order; /* of the parts in the next call */
    unsigned calls; /* an empty array is NULL in every second one */
    enum memory memory;
    size_t bytes; /* of a row */
    /* HEAP: ours, with a guard row behind each; else the plan's. */
    unsigned char *buffer[4];
    unsigned char *x, *y, *bias; /* (tokens, hidden) */
    float *dweight;              /* (tokens, topk) */
};

#define POISON 0xff /* a NaN in each type */

/* Memory, poisoned; one byte more than asked for. */
void *filled(size_t bytes);

/* The same on all ranks: rank 0's SHUNT_TEST_SEED, or a new one each time.
 * Collective. */
int test_seed(const struct rank *self, uint64_t *seed);

/* The node of each rank. Until the next call of this thread. */
const int *world_nodes(const struct rank *self);

struct shunt_moe_config config_of(size_t hidden, enum shunt_dtype dtype,
                                  int experts, int topk);

/* In how many parts run_begin() plans: SHUNT_TEST_PARTS, 1 without it. */
int test_parts(void);

/* Plan this rank's part of `world`, and check the sizes. With several parts,
 * the calls below are made part by part. */
int run_begin(struct run *run, const struct rank *self, struct shunt_moe *moe,
              const struct world *world, enum memory memory);
int run_begin_parts(struct run *run, const struct rank *self,
                    struct shunt_moe *moe, const struct world *world,
                    enum memory memory, int parts);
/* The plan of this rank's part of `world`; and on a plan that is there, as a wave
 * is. */
int run_plan(const struct rank *self, struct shunt_moe *moe,
             const struct world *world, int parts, size_t max_rows,
             struct shunt_moe_plan **plan);
int run_begin_on(struct run *run, const struct rank *self,
                 struct shunt_moe *moe, struct shunt_moe_plan *plan,
                 const struct world *world, enum memory memory, int parts);
int run_end(struct run *run);

/* The tokens' rows of `kind`; the experts' rows, whose padding stays poisoned:
 * no call may read it. */
void run_fill_tokens(const struct run *run, void *to, int kind);
void run_fill_rows(const struct run *run, void *to, int kind);

/* Is that what dispatch should have written, and what a sum should be? */
int run_check_rows(const struct run *run);
int run_check_row(const struct run *run, size_t row);
int run_check_tokens(const struct run *run, int kind, bool weighted, bool bias);

/* The calls, with new input each, and checks of results and counters. */
int run_dispatch(struct run *run);
int run_combine(struct run *run, bool bias);
int run_backward(struct run *run, bool dweight);

/* One of the four by number, on the plan's buffers, without any of that. */
enum { RUN_CALLS = 4 };
extern const char *const run_call_names[RUN_CALLS];
enum shunt_status run_call(struct run *run, int which);

/* All of them, some of them twice. */
int run_everything(const struct rank *self, struct shunt_moe *moe,
                   const struct world *world, enum memory memory);
int run_everything_parts(const struct rank *self, struct shunt_moe *moe,
                         const struct world *world, enum memory memory,
                         int parts);

/* Everything, from several seeds, in both kinds of memory. */
int run_seeds(const struct rank *self, const struct shunt_moe_config *config,
              enum values values, size_t min_tokens, size_t max_tokens,
              int none);

/* An array of so many elements as an argument: NULL or an address if it is empty. */
void *run_array(const struct run *run, const void *array, size_t count);

/* Start one of the four by number on a part; rows.parts: on all at once. A rank without
 * tokens has any `out` and `dweight` if the others want none. */
enum shunt_status run_start_part(struct run *run, int which, int part,
                                 bool bias, bool dweight,
                                 struct shunt_request **request);
/* One of the four in all parts: started and waited for in any order, and now
 * and then at once. What the experts would put in place is put there part by
 * part; what comes to them is looked at when it is there. */
int run_parts(struct run *run, int which, bool bias, bool dweight);

/* Do rows travel from rail to rail? */
bool by_rails(enum shunt_moe_mode mode);

/* Bytes of a row as dispatch sends it to another node. */
size_t run_wire_bytes(const struct run *run);

/* What other nodes send this rank per combine, from the routing. */
size_t run_bytes_home(const struct run *run);

/* Are the plan's sums, and what was counted since `before`, what follows from the
 * routing: of dispatch; of combine or dispatch_backward, to other nodes? */
int run_check_sent(const struct run *run,
                   const struct shunt_comm_stats *before);
int run_check_sent_home(const struct run *run,
                        const struct shunt_comm_stats *before);

#endif
