// SPDX-License-Identifier: Apache-2.0
/* Gathering and checking of terms; see terms.h. */
#include "collectives/fused/terms.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/fnv.h"
#include "src/comm.h"
#include "src/kernels/dtype.h"
#include "src/op/device.h"
#include "src/progress/turns.h"

static const char *const names[SHUNTI_TERMS] = {
    [SHUNTI_TERM_ROWS] = "rows",
    [SHUNTI_TERM_COLS] = "cols",
    [SHUNTI_TERM_COUNTS] = "counts (hash)",
    [SHUNTI_TERM_ROW_BYTES] = "row_bytes",
    [SHUNTI_TERM_DTYPE] = "dtype",
};

__attribute__((constructor)) static void register_purposes(void)
{
    shunti_purpose_register(SHUNTI_PURPOSE_GEMM_REDUCE_SCATTER,
                            "gemm_reduce_scatter");
    shunti_purpose_register(SHUNTI_PURPOSE_ALLGATHER_GEMM, "allgather_gemm");
}

bool shunti_terms_refuse(struct shunti_terms *terms, enum shunt_status status,
                         const char *format, ...)
{
    va_list args;

    if (terms->check.status)
        return false;
    terms->check.status = status;
    va_start(args, format);
    vsnprintf(terms->check.why, sizeof(terms->check.why), format, args);
    va_end(args);
    return false;
}

/* --- the agreement -------------------------------------------------------- */

static void print_term(char *text, size_t len, int term, uint64_t value)
{
    if (term == SHUNTI_TERM_DTYPE)
        snprintf(text, len, "%s", shunti_dtype_name((enum shunt_dtype)value));
    else if (term == SHUNTI_TERM_COUNTS)
        snprintf(text, len, "%" PRIx64, value);
    else
        snprintf(text, len, "%" PRIu64, value);
}

static enum shunt_status compare(struct shunt_comm *comm, const char *call,
                                 const struct shunti_terms *mine,
                                 const struct shunti_terms *all)
{
    char theirs[32], ours[32];

    for (int r = 0; r < comm->nranks; r++)
        for (int t = 0; t < SHUNTI_TERMS; t++) {
            if (all[r].term[t] == mine->term[t])
                continue;
            print_term(theirs, sizeof(theirs), t, all[r].term[t]);
            print_term(ours, sizeof(ours), t, mine->term[t]);
            return shunti_fail(&comm->error, SHUNT_ERR_MISMATCH,
                               "%s: rank %d has %s %s, this rank (%d) %s", call,
                               r, names[t], theirs, comm->rank, ours);
        }
    return SHUNT_OK;
}

enum shunt_status shunti_terms_agree(struct shunt_comm *comm,
                                     const struct shunti_options *options,
                                     const struct shunti_terms *mine)
{
    void *all;
    enum shunt_status st =
        shunti_argument_checks_gather(comm, options, mine, sizeof(*mine), &all);

    shunti_comm_enter(comm);
    if (!st)
        st = compare(comm, shunti_purpose_name(options->purpose), mine, all);
    shunti_comm_leave(comm);
    free(all);
    return st;
}

uint64_t shunti_terms_digest(const struct shunti_terms *terms,
                             enum shunti_purpose purpose)
{
    const uint64_t digest =
        shunti_fnv(shunti_fnv_step(SHUNTI_FNV, (uint64_t)purpose), terms->term,
                   sizeof(terms->term));

    return digest ? digest : 1;
}

/* --- checks --------------------------------------------------------------- */

bool shunti_terms_read(struct shunti_terms *terms, const void *from, void *to,
                       size_t known)
{
    size_t size;

    memset(to, 0, known);
    if (!from)
        return shunti_terms_refuse(terms, SHUNT_ERR_INVALID, "args is NULL");
    memcpy(&size, from, sizeof(size)); /* the first field */
    if (size < known)
        return shunti_terms_refuse(terms, SHUNT_ERR_INVALID,
                                   "args->size is %zu: set it to the sizeof of "
                                   "the struct",
                                   size);
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)from)[i])
            return shunti_terms_refuse(
                terms, SHUNT_ERR_INVALID,
                "args has a field (at byte %zu) that this version does not "
                "know: update the library",
                i);
    memcpy(to, from, known);
    return true;
}

bool shunti_terms_rows(struct shunti_terms *terms, int nranks, size_t total,
                       const size_t *counts, size_t *rows, size_t *most)
{
    const size_t n = (size_t)nranks;
    size_t sum = 0;

    *most = 0;
    for (size_t r = 0; r < n; r++) {
        rows[r] = counts ? counts[r] : total / n + (r < total % n);
        if (__builtin_add_overflow(sum, rows[r], &sum))
            return shunti_terms_refuse(terms, SHUNT_ERR_INVALID,
                                       "the sum of counts overflows");
        *most = rows[r] > *most ? rows[r] : *most;
    }
    if (sum != total)
        return shunti_terms_refuse(terms, SHUNT_ERR_INVALID,
                                   "the sum of counts is %zu, and rows %zu",
                                   sum, total);
    terms->term[SHUNTI_TERM_ROWS] = total;
    terms->term[SHUNTI_TERM_COUNTS] =
        shunti_fnv(SHUNTI_FNV, rows, n * sizeof(*rows));
    return true;
}

bool shunti_terms_out(struct shunti_terms *terms, struct shunti_fused_out *out,
                      const struct shunt_epilogue *epilogue)
{
    static const struct shunt_epilogue none = {.alpha = 1};
    size_t bytes;

    out->epilogue = epilogue ? *epilogue : none;
    if (!out->ld)
        out->ld = out->cols;
    terms->term[SHUNTI_TERM_DTYPE] = out->dtype;
    if (out->dtype != SHUNT_F32 && out->dtype != SHUNT_BF16)
        return shunti_terms_refuse(
            terms, SHUNT_ERR_INVALID, "dtype is %s (%d); out is f32 or bf16",
            shunti_dtype_name(out->dtype), (int)out->dtype);
    if (out->ld < out->cols)
        return shunti_terms_refuse(terms, SHUNT_ERR_INVALID,
                                   "ld is %zu, less than the %zu columns of "
                                   "out",
                                   out->ld, out->cols);
    if (__builtin_mul_overflow(out->rows, out->ld, &bytes) ||
        __builtin_mul_overflow(bytes, shunti_dtype_bytes(out->dtype), &bytes) ||
        bytes > PTRDIFF_MAX)
        return shunti_terms_refuse(terms, SHUNT_ERR_INVALID,
                                   "out: %zu rows of %zu elements do not fit "
                                   "into memory",
                                   out->rows, out->ld);
    if ((uintptr_t)out->at % shunti_dtype_bytes(out->dtype))
        return shunti_terms_refuse(terms, SHUNT_ERR_INVALID,
                                   "out is not aligned to its %s",
                                   shunti_dtype_name(out->dtype));
    if (out->rows && out->cols && !out->at)
        return shunti_terms_refuse(terms, SHUNT_ERR_INVALID,
                                   "out is NULL, but must hold %zu rows",
                                   out->rows);
    if (out->rows && out->cols &&
        (shunti_is_device(out->at) || shunti_is_device(out->epilogue.bias)))
        return shunti_terms_refuse(terms, SHUNT_ERR_UNSUPPORTED,
                                   "out or bias is memory of a device: copy it "
                                   "to the host first");
    return true;
}
