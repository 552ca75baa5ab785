// SPDX-License-Identifier: Apache-2.0
/*
 * Terms: what all ranks must agree on in a fused call. One all-gather before
 * the call collects every rank's terms, and whether its arguments are valid. So
 * each rank knows of a bad call before anything is computed or written. Small
 * calls do this only after they have found a disagreement (composed.h).
 */
#ifndef SHUNTI_FUSED_TERMS_H
#define SHUNTI_FUSED_TERMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>
#include <shunt/fused.h>

#include "collectives/argument_check.h"
#include "src/base/kind.h"

struct shunt_comm;

/* Values that must be the same on every rank. A value that a call does not have
 * is 0. */
enum shunti_term {
    SHUNTI_TERM_ROWS,
    SHUNTI_TERM_COLS,
    SHUNTI_TERM_COUNTS,
    SHUNTI_TERM_ROW_BYTES,
    SHUNTI_TERM_DTYPE,
    SHUNTI_TERMS,
};

struct shunti_terms {
    struct shunti_argument_check check;
    uint64_t term[SHUNTI_TERMS];
};

/* Record that this rank's call is wrong. Only the first reason is kept. The
 * gathering of terms sends it to all ranks. Returns false, so that a check is
 * `return shunti_terms_refuse(...)`. */
bool shunti_terms_refuse(struct shunti_terms *terms, enum shunt_status status,
                         const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Gather the terms of all ranks and compare them. Errors: this rank's own
 * refusal; SHUNT_ERR_REMOTE for a refusal of another rank; SHUNT_ERR_MISMATCH
 * if the terms differ; errors of the all-gather. The texts begin with the name
 * of the purpose in `options`.
 */
enum shunt_status shunti_terms_agree(struct shunt_comm *comm,
                                     const struct shunti_options *options,
                                     const struct shunti_terms *mine);

/* A digest of the terms, never 0. */
uint64_t shunti_terms_digest(const struct shunti_terms *terms,
                             enum shunti_purpose purpose);

/* --- checks of both calls; they return false after a refusal -------------- */

/* Copy the caller's struct to `to`. Its first field is its size; this version
 * knows the first `known` bytes, and later ones must be 0. */
bool shunti_terms_read(struct shunti_terms *terms, const void *from, void *to,
                       size_t known);

/* Fill in rows[r], for each rank: counts[r], or, if counts is NULL, an even
 * share of `total`. *most is the largest. */
bool shunti_terms_rows(struct shunti_terms *terms, int nranks, size_t total,
                       const size_t *counts, size_t *rows, size_t *most);

/* The memory for this rank's result. */
struct shunti_fused_out {
    void *at;
    size_t rows, cols;
    size_t ld; /* elements from row to row; 0 becomes cols */
    enum shunt_dtype dtype;
    struct shunt_epilogue epilogue;
};

bool shunti_terms_out(struct shunti_terms *terms, struct shunti_fused_out *out,
                      const struct shunt_epilogue *epilogue);

#endif
