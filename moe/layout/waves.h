// SPDX-License-Identifier: Apache-2.0
/*
 * A plan in waves: no rank gets more than max_rows rows at once.
 *
 * If a rank would get more, the tokens of all ranks are cut into waves, each of
 * which is a plan of its own, on the same buffers. A token is in one wave with
 * all its experts, so no sum is cut.
 *
 * All ranks know from the counts whether waves are needed. Then each rank takes
 * as many of its tokens into the next wave as its shares of the other ranks'
 * max_rows hold; its record (records.h) says how many it has left, and the last
 * wave is that after which no rank has any. A rank's share of another one's rows
 * is in proportion to what it has for it, so that ranks with more rows do not need
 * more waves.
 *
 * Where copies share an expert's rows (shares.h) each wave shares out its own. Which
 * copy takes a row is not known before a wave has been counted, only which part of
 * them each takes. So a row counts on each rank with that part, in units of 1/UNIT,
 * and each such copy leaves room for a leaf, to which its part is rounded.
 * In order (plan->in_order) a wave has the next tokens of all ranks one after the
 * other: of each source all, then of one a part, of the rest none. All ranks know
 * what each source has left for each rank, so they agree on which these are; where
 * the part ends says only how many rows the wave has.
 */
#ifndef SHUNTI_WAVES_H
#define SHUNTI_WAVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shunt_moe;
struct shunti_plan;

struct shunti_waves {
    bool cut;  /* the plan has waves; else it is its only one itself */
    int count; /* with padding even a plan that is cut may have a single one: it
                  pads less than the whole */
    struct shunti_plan **plan; /* (made) with their memory; the first `count`
                                  are waves, if it is cut */
    size_t made, plan_max;
    /* In units: */
    uint64_t *mine, *rest; /* (nranks) rows that are in no wave yet, for each
                              rank: ours, and those of all ranks */
    uint64_t *share;       /* (nranks) rows of ours that fit into a wave */
    uint64_t *taken;       /* (nranks) rows of ours in the wave */
    uint32_t *of_expert;   /* (experts) rows of ours in the wave */
    uint32_t *part;        /* (copies) with shares: of an expert's rows */
    size_t part_max;
    uint32_t
        *left; /* (nranks, nranks) in order: rows of each source that are in no
                       wave yet, for each rank */
};

/* The least max_rows: of each rank's tokens at least one fits into a wave. */
size_t shunti_waves_least(const struct shunt_moe *moe);

/* Memory to cut a plan into waves. False: there is none. */
bool shunti_waves_prepare(struct shunti_plan *plan);
/* Memory for one more wave: its plan, which is not in use yet. NULL: none. */
struct shunti_plan *shunti_waves_next(struct shunti_plan *whole);

/* Does any rank get more than max_rows? After shunti_remote_offsets_find(). */
bool shunti_waves_needed(const struct shunti_plan *plan);
/* In order, before the first wave: what a source has. count: (experts) its
 * assignments in the whole plan. */
void shunti_waves_source(struct shunti_plan *whole, int source,
                         const uint32_t *count);
/* Before the first wave. count: (experts) our assignments in the whole plan. */
void shunti_waves_begin(struct shunti_plan *whole, const uint32_t *count);
/* How many of our tokens go into the next wave: the first of those whose experts
 * these are; at least one, if there is any. */
size_t shunti_waves_take(struct shunti_plan *whole, const int32_t *expert,
                         size_t tokens);
/* It has been laid out, and is the last one that was. */
void shunti_waves_add(struct shunti_plan *whole,
                      const struct shunti_plan *wave);
/* With shares: what the whole plan has is what its waves have together. */
void shunti_waves_end(struct shunti_plan *whole);

/* The plan of a wave; the plan itself, if it is its only one. */
struct shunti_plan *shunti_wave_of(const struct shunti_plan *plan, int wave);

#endif
