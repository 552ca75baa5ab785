// SPDX-License-Identifier: Apache-2.0
/*
 * Every kernel of every instruction set that this processor has, over the same
 * random inputs: each set must have the bits of the plain reference. Prints a
 * digest for each kernel, which must be the same on every processor
 * (scripts/cross-arm64 compares).
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/dtype.h"
#include "kernels/fp8.h"
#include "kernels/reduce.h"
#include "kernels/rows.h"
#include "tests/collectives/random.h"
#include "tests/collectives/reduce_ref.h"
#include "tests/cross/digest.h"

enum { MOST = 2100, TERMS = 9, SHAPES = 120 };

static int failures;

static void compare(const char *what, const char *set, uint64_t got,
                    uint64_t want)
{
    if (got == want)
        return;
    failures++;
    fprintf(stderr, "%s: %s gives %016llx, the reference %016llx\n", what, set,
            (unsigned long long)got, (unsigned long long)want);
}

static void tell(const char *what, uint64_t digest)
{
    printf("%-24s %016llx\n", what, (unsigned long long)digest);
}

/* Numbers like those of rows: no infinities, of which a sum makes NaNs. */
static void fill(struct random *r, void *row, size_t n, enum shunt_dtype dtype)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t dice = random_next(r);
        float value = (float)((int)(dice % 8001) - 4000) /
                      (float)(1u << (dice >> 32 & 15));

        if (dtype == SHUNT_F32)
            memcpy((char *)row + 4 * i, &value, 4);
        else
            memcpy((char *)row + 2 * i, &(uint16_t){shunti_f32_to_bf16(value)},
                   2);
    }
}

/* -- rows ------------------------------------------------------------------ */

struct rows_case {
    size_t n;
    struct shunti_rows_term terms[TERMS];
    size_t nterms;
    unsigned char row[TERMS][MOST * 4], bias[MOST * 4];
    bool biased;
};

static void make_case(struct random *r, enum shunt_dtype dtype,
                      struct rows_case *c)
{
    c->n = random_below(r, 4) ? random_below(r, 300) : random_below(r, MOST);
    c->nterms = 1 + random_below(r, TERMS);
    c->biased = random_below(r, 2);
    fill(r, c->bias, c->n, dtype);
    for (size_t t = 0; t < c->nterms; t++) {
        c->terms[t] = (struct shunti_rows_term){
            c->row[t], (float)(1 + random_below(r, 97)) / 31.0f,
            (uint16_t)random_below(r, 3), (uint16_t)(random_below(r, 4) == 0)};
        fill(r, c->row[t], c->n, c->terms[t].wide ? SHUNT_F32 : dtype);
    }
}

enum { SUM, PARTIAL, SCALE, DOT, FP8, PACK, UNPACK, KERNELS };

static const char *const kernel_names[] = {"sum", "partial", "scale", "dot",
                                           "fp8", "pack",    "unpack"};

static uint64_t run_kernel(const struct shunti_rows *rows, int kernel,
                           enum shunt_dtype dtype, const struct rows_case *c,
                           uint64_t digest)
{
    static unsigned char out[MOST * 8], packed[MOST * 8];
    size_t bytes = shunti_fp8_bytes(c->n);
    const void *src = c->terms[0].wide ? c->bias : c->row[0];
    float product;

    memset(out, 0, sizeof(out));
    switch (kernel) {
    case SUM:
        rows->sum(c->terms, c->nterms, NULL, 0, c->biased ? c->bias : NULL, out,
                  c->n);
        return digest_add(digest, out, c->n, dtype);
    case PARTIAL:
        rows->partial(c->terms, c->nterms, NULL, 0, out, c->n);
        return digest_add(digest, out, c->n, SHUNT_F32);
    case SCALE:
        rows->scale(out, src, c->terms[0].weight, c->n);
        return digest_add(digest, out, c->n, dtype);
    case DOT:
        product = rows->dot(src, c->bias, c->bias, c->n);
        return digest_add(digest, &product, 1, SHUNT_F32);
    case FP8:
        rows->fp8(out, src, c->n);
        return digest_add(digest, out, c->n, dtype);
    case PACK:
        rows->pack(out, src, c->n);
        return digest_add(digest, out, bytes, SHUNT_U8);
    default:
        shunti_fp8_pack(dtype, packed, src, c->n);
        rows->unpack(out, packed, c->n);
        return digest_add(digest, out, c->n, dtype);
    }
}

static uint64_t run_rows(const struct shunti_rows_set *set, int kernel,
                         enum shunt_dtype dtype)
{
    static struct rows_case c;
    struct random r = {17};
    uint64_t digest = DIGEST_BEGIN;

    for (int i = 0; i < SHAPES; i++) {
        make_case(&r, dtype, &c);
        digest = run_kernel(dtype == SHUNT_F32 ? &set->f32 : &set->bf16, kernel,
                            dtype, &c, digest);
    }
    return digest;
}

static void all_rows(void)
{
    static const enum shunt_dtype dtypes[] = {SHUNT_F32, SHUNT_BF16};
    for (int d = 0; d < 2; d++)
        for (int k = 0; k < KERNELS; k++) {
            uint64_t want = run_rows(&shunti_rows_ref, k, dtypes[d]);
            char what[64];

            snprintf(what, sizeof(what), "%s of %s", kernel_names[k],
                     d == 0 ? "f32" : "bf16");
            for (int i = 0; i < SHUNTI_ISA_COUNT; i++)
                if (shunti_isa_runs((enum shunti_isa)i))
                    compare(what, shunti_isa_name((enum shunti_isa)i),
                            run_rows(shunti_rows_sets[i], k, dtypes[d]), want);
            tell(what, want);
        }
}

/* -- reductions ------------------------------------------------------------ */

static uint64_t run_reduce(const struct shunti_reduce_set *table,
                           enum shunt_dtype dtype)
{
    static unsigned char sources[TERMS][MOST * 8], out[MOST * 8];
    struct random r = {23};
    uint64_t digest = DIGEST_BEGIN;

    for (int i = 0; i < SHAPES; i++) {
        enum shunt_op op = (enum shunt_op)(SHUNT_SUM + random_below(&r, 5));
        int n = 1 + (int)random_below(&r, TERMS);
        size_t count = random_below(&r, MOST);
        const void *srcs[TERMS];

        for (int k = 0; k < n; k++) {
            random_elements(&r, sources[k], count, dtype);
            srcs[k] = sources[k];
        }
        if (table)
            table->run(out, srcs, n, count, dtype, op, n);
        else
            reduce_ref(out, srcs, n, count, dtype, op, n);
        digest = digest_add(digest, out, count, dtype);
    }
    return digest;
}

static void all_reductions(void)
{
    for (int d = SHUNT_I8; d <= SHUNT_F64; d++) {
        uint64_t want = run_reduce(NULL, (enum shunt_dtype)d);
        char what[64];

        snprintf(what, sizeof(what), "reduction of dtype %d", d);
        for (int i = 0; i < SHUNTI_ISA_COUNT; i++)
            if (shunti_isa_runs((enum shunti_isa)i))
                compare(what, shunti_isa_name((enum shunti_isa)i),
                        run_reduce(shunti_reduce_sets[i], (enum shunt_dtype)d),
                        want);
        tell(what, want);
    }
}

/* -- conversions ----------------------------------------------------------- */

static void all_conversions(void)
{
    uint64_t half = DIGEST_BEGIN, brain = DIGEST_BEGIN, byte = DIGEST_BEGIN;

    for (uint64_t bits = 0; bits < 1ull << 32; bits += 4099) {
        float value = shunti_f32_from_bits((uint32_t)bits), back[3];
        uint16_t h = shunti_f32_to_f16(value), b = shunti_f32_to_bf16(value);
        uint8_t e = shunti_f32_to_fp8(value);

        back[0] = shunti_f16_to_f32(h);
        back[1] = shunti_bf16_to_f32(b);
        back[2] = shunti_fp8_to_f32(e);
        half =
            digest_add(digest_add(half, &h, 1, SHUNT_F16), back, 1, SHUNT_F32);
        brain = digest_add(digest_add(brain, &b, 1, SHUNT_BF16), back + 1, 1,
                           SHUNT_F32);
        byte = digest_add(digest_add(byte, &e, 1, SHUNT_U8), back + 2, 1,
                          SHUNT_F32);
    }
    tell("f32 to f16 and back", half);
    tell("f32 to bf16 and back", brain);
    tell("f32 to fp8 and back", byte);
}

int main(void)
{
    fprintf(stderr, "instruction sets:");
    for (int i = 0; i < SHUNTI_ISA_COUNT; i++)
        if (shunti_isa_runs((enum shunti_isa)i))
            fprintf(stderr, " %s", shunti_isa_name((enum shunti_isa)i));
    fprintf(stderr, "\n");
    all_rows();
    all_reductions();
    all_conversions();
    return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
