// SPDX-License-Identifier: Apache-2.0
/*
 * What all ranks say before a fused call: one all-gather of what each was called
 * with, also if that is wrong. So each knows at once of all, before anything is
 * computed or written. Small calls say it only once they have found that they
 * disagree (composed.h).
 */
#ifndef SHUNTI_FUSED_TERMS_H
#define SHUNTI_FUSED_TERMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>
#include <shunt/fused.h>

#include "collectives/argument_check.h"
#include "collectives/fused/kinds.h"

struct shunt_comm;

/* What must be the same on every rank. What a call does not have is 0. */
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

/* This rank's call is wrong, which all ranks will learn: the first reason
 * stays. False, so that a check is `return shunti_terms_refuse(...)`. */
bool shunti_terms_refuse(struct shunti_terms *terms, enum shunt_status status,
                         const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Tell, and hear. Every rank returns the same or an error of its own: its own
 * refusal, SHUNT_ERR_REMOTE for another rank's, SHUNT_ERR_MISMATCH. The texts
 * begin with the purpose's name.
 */
enum shunt_status shunti_terms_agree(struct shunt_comm *comm,
                                     enum shunti_purpose_fused purpose,
                                     const struct shunti_terms *mine);

/* A digest of the terms, never 0. */
uint64_t shunti_terms_digest(const struct shunti_terms *terms,
                             enum shunti_purpose_fused purpose);

/* --- checks that both calls make; false: refused --------------------------- */

/* The caller's struct, of `size` bytes as it says, is copied to `to`, of which
 * this version knows the first `known` bytes. */
bool shunti_terms_read(struct shunti_terms *terms, const void *from, void *to,
                       size_t known);

/* rows[r] = counts[r], or an even share, for each rank. *most: the largest. */
bool shunti_terms_rows(struct shunti_terms *terms, int nranks, size_t total,
                       const size_t *counts, size_t *rows, size_t *most);

/* Where results go. */
struct shunti_fused_out {
    void *at;
    size_t rows, cols;
    size_t ld; /* 0: becomes cols */
    enum shunt_dtype dtype;
    struct shunt_epilogue epilogue;
};

bool shunti_terms_out(struct shunti_terms *terms, struct shunti_fused_out *out,
                      const struct shunt_epilogue *epilogue);

#endif
