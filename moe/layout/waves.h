// SPDX-License-Identifier: Apache-2.0
/*
 * A plan in waves: no rank gets more than max_rows rows at once.
 *
 * If a rank would get more, the tokens of all ranks are divided into waves.
 * Each wave is a plan of its own, on the same buffers. A token is in one wave
 * with all its experts, so no sum is divided.
 *
 * All ranks know from the counts whether waves are needed. For each wave, a
 * rank then takes as many of its tokens as its quotas of the other ranks'
 * max_rows hold. A rank's quota of another rank's max_rows is in proportion to
 * the rows that it has left for that rank. So a rank with more rows needs no
 * more waves than others. A rank's record (records.h) says how many tokens it
 * has left. After the last wave, no rank has any left.
 *
 * If copies share an expert's rows (shares.h), each wave shares out its own
 * rows. Before a wave is counted, no rank knows which copy takes a row. Only
 * the part of the rows that each copy takes is known. So a row counts on each
 * rank with that part, in units of 1/UNIT row. Each copy that takes only a part
 * also reserves room for a leaf, because its part is rounded to leaves.
 *
 * In order (waves.in_order), a wave has the next tokens of the ranks one after
 * the other: all that the first sources have left, a part of the next source's
 * tokens, and nothing of the rest. All ranks know what each source has left for
 * each rank, so they agree on these sources. The rows of the finished wave say
 * where the part ends.
 */
#ifndef SHUNTI_WAVES_H
#define SHUNTI_WAVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shunt_moe;
struct shunti_plan;

/* The waves of a plan. */
struct shunti_waves {
    size_t max_rows; /* 0: no limit */
    bool in_order;   /* waves are ranges of the global order of rows */
    bool cut;  /* the plan has waves; false: the plan is its own only wave */
    int count; /* number of waves. A plan that is cut may have only one: a wave
                  may need less padding than the whole plan */
    struct shunti_plan **plan; /* (made) plans for waves, kept with their
                                  memory; if the plan is cut, the first `count`
                                  are used */
    size_t made, plan_max;
    /* The next four arrays are in units of 1/UNIT row. */
    uint64_t *mine, *rest; /* (nranks) rows for each rank that are in no wave
                              yet: this rank's rows; all ranks' rows */
    uint64_t *quota; /* (nranks) how many of this rank's rows for each rank fit
                        into a wave */
    uint64_t *taken; /* (nranks) this rank's rows for each rank in the wave */
    uint32_t *of_expert; /* (experts) this rank's rows for each expert in the
                            wave */
    uint32_t *part; /* (copies) with shares: the part of its expert's rows that
                       a copy takes */
    size_t part_max;
    /* (nranks, nranks) In order: rows of each source for each rank that are in
     * no wave yet. */
    uint32_t *left;
};

/* One wave of a plan. In a plan that is no wave, all fields are 0. */
struct shunti_wave {
    struct shunti_plan *whole; /* the plan that the wave is a part of */
    int number;                /* number of the wave in `whole` */
    size_t first_token;        /* number of its first token in `whole` */
    size_t left;               /* tokens of this rank in later waves */
};

/* The least max_rows with which one token of each rank fits into a wave. */
size_t shunti_waves_least(const struct shunt_moe *moe);

/* Get memory to cut a plan into waves. False: no memory. */
bool shunti_waves_prepare(struct shunti_plan *plan);
/* Free that memory, but not the plans of the waves. */
void shunti_waves_finish(struct shunti_waves *waves);
/* Get memory for one more wave. Returns its plan, not in use yet. NULL: no
 * memory. */
struct shunti_plan *shunti_waves_next(struct shunti_plan *whole);

/* True if any rank gets more than max_rows. After
 * shunti_remote_offsets_find(). */
bool shunti_waves_needed(const struct shunti_plan *plan);
/* In order, before the first wave: store how many rows a source has for each
 * rank. count: (experts) its assignments in the whole plan. */
void shunti_waves_source(struct shunti_plan *whole, int source,
                         const uint32_t *count);
/* Begin to cut the plan, before the first wave. count: (experts) this rank's
 * assignments in the whole plan. */
void shunti_waves_begin(struct shunti_plan *whole, const uint32_t *count);
/* Choose how many of this rank's tokens go into the next wave. expert: (tokens,
 * topk) of the tokens that are in no wave yet; the first ones are taken. Takes
 * at least one token if there is any; but in order it may take none. */
size_t shunti_waves_take(struct shunti_plan *whole, const int32_t *expert,
                         size_t tokens);
/* Append `wave`, whose layout is complete, to the plan. */
void shunti_waves_add(struct shunti_plan *whole,
                      const struct shunti_plan *wave);
/* With shares, after the last wave: set the counts and ranges of the whole plan
 * to the sums over its waves. */
void shunti_waves_end(struct shunti_plan *whole);

/* The plan of wave number `wave`. If `plan` is not cut: `plan` itself. */
struct shunti_plan *shunti_wave_of(const struct shunti_plan *plan, int wave);

#endif
