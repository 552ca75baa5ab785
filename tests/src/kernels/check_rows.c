// SPDX-License-Identifier: Apache-2.0
/* Row kernels, compared with shunti_rows_ref. */
#include "src/kernels/rows.h"

#include "src/kernels/fp8.h"
#include "tests/src/kernels/check.h"

enum { SUM, PARTIAL, SCALE, DOT, FP8, PACK, UNPACK };
enum { TERMS = 9, MOST = 2100, BENCH = 7168 };
/* Slots of memory. The rows of terms come first. */
enum { BIAS = TERMS, GOT, WANT };

struct rows_case {
    enum shunt_dtype dtype;
    size_t n, nterms;
    struct shunti_rows_term terms[TERMS];
    const void *bias; /* or NULL */
    const void *a, *b;
    float weight;
};

static const struct shunti_rows *rows_of(int v, enum shunt_dtype dtype)
{
    const struct shunti_rows_set *set =
        v == REFERENCE ? &shunti_rows_ref : shunti_rows_sets[v];

    return dtype == SHUNT_F32 ? &set->f32 : &set->bf16;
}

static void run(int which, int v, const struct rows_case *c, void *y)
{
    const struct shunti_rows *rows = rows_of(v, c->dtype);
    float product;

    switch (which) {
    case SUM:
        rows->sum(c->terms, c->nterms, c->terms, c->nterms, c->bias, y, c->n);
        break;
    case PARTIAL:
        rows->partial(c->terms, c->nterms, c->terms, c->nterms, y, c->n);
        break;
    case SCALE:
        rows->scale(y, c->a, c->weight, c->n);
        break;
    case DOT:
        product = rows->dot(c->a, c->b, c->b, c->n);
        memcpy(y, &product, sizeof(product));
        break;
    case FP8:
        rows->fp8(y, c->a, c->n);
        break;
    case PACK:
        rows->pack(y, c->a, c->n);
        break;
    default:
        rows->unpack(y, c->a, c->n);
        break;
    }
}

static size_t bytes_of(int which, const struct rows_case *c)
{
    switch (which) {
    case PARTIAL:
        return c->n * sizeof(float);
    case DOT:
        return sizeof(float);
    case PACK:
        return shunti_fp8_bytes(c->n);
    default:
        return c->n * shunt_dtype_size(c->dtype);
    }
}

static void *row(struct random *r, int slot, size_t n, enum shunt_dtype dtype)
{
    void *at = memory(r, slot, n * shunt_dtype_size(dtype), 1);

    values(r, at, n, dtype);
    return at;
}

static void make_terms(struct random *r, struct rows_case *c)
{
    c->nterms = random_below(r, TERMS + 1);
    for (size_t t = 0; t < c->nterms; t++) {
        uint16_t wide = random_below(r, 4) == 0;

        c->terms[t] = (struct shunti_rows_term){
            .row = row(r, (int)t, c->n, wide ? SHUNT_F32 : c->dtype),
            .weight = (float)((int)random_below(r, 97) - 20) / 31.0f,
            .op = (uint16_t)random_below(r, 3),
            .wide = wide,
        };
    }
}

/* Makes a packed row, with random codes, and scales like those of real rows. */
static void *packed(struct random *r, size_t n)
{
    unsigned char *at = memory(r, 0, shunti_fp8_bytes(n), 1);

    random_elements(r, at, n, SHUNT_U8);
    for (size_t i = n; i < shunti_fp8_bytes(n); i += 4) {
        float scale = (float)(1 + random_below(r, 1000)) / 448;

        memcpy(at + i, &scale, 4);
    }
    return at;
}

static void make_case(struct random *r, int which, struct rows_case *c)
{
    c->n = random_below(r, 4) ? random_below(r, 300) : random_below(r, MOST);
    c->weight = (float)(1 + random_below(r, 97)) / 31.0f;
    if (which == SUM || which == PARTIAL) {
        make_terms(r, c);
        c->bias = which == SUM && random_below(r, 2)
                      ? row(r, BIAS, c->n, c->dtype)
                      : NULL;
    } else if (which == UNPACK) {
        c->a = packed(r, c->n);
    } else {
        c->a = row(r, 0, c->n, c->dtype);
        c->b = row(r, 1, c->n, c->dtype);
    }
}

static void compare(int which, const struct rows_case *c, const void *got,
                    const void *want)
{
    size_t scales = (bytes_of(PACK, c) - c->n) / 4;

    switch (which) {
    case PARTIAL:
        expect_same("sums", got, want, c->n, SHUNT_F32);
        break;
    case DOT:
        expect_same("product", got, want, 1, SHUNT_F32);
        break;
    case PACK:
        expect_same("codes", got, want, c->n, SHUNT_FP8_E4M3);
        expect_same("scales", (const char *)got + c->n,
                    (const char *)want + c->n, scales, SHUNT_F32);
        break;
    default:
        expect_same("row", got, want, c->n, c->dtype);
        break;
    }
}

static void trial(const struct kernel *k, int v, struct random *r)
{
    struct rows_case c = {.dtype = k->dtype};
    void *got, *want;

    make_case(r, k->which, &c);
    want = memory(r, WANT, bytes_of(k->which, &c), 1);
    got = memory(r, GOT, bytes_of(k->which, &c), 1);
    run(k->which, REFERENCE, &c, want);
    if (c.bias && random_below(r, 2)) /* in place */
        c.bias = memcpy(got, c.bias, bytes_of(k->which, &c));
    run(k->which, v, &c, got);
    compare(k->which, &c, got, want);
    expect_guards(GOT);
}

/* A row has 7168 elements, as in DeepSeek-V3. Sums have eight terms. */
static double once(const struct kernel *k, int v, bool prepare)
{
    static struct rows_case c;
    static void *y;
    size_t row_bytes = BENCH * shunt_dtype_size(k->dtype);

    if (prepare || !y) {
        struct random r = {1};

        memset(&c, 0, sizeof(c));
        c.dtype = k->dtype;
        c.n = BENCH;
        c.weight = 0.3f;
        for (c.nterms = 0; c.nterms < 8; c.nterms++) {
            void *at = memory(&r, (int)c.nterms, row_bytes, 64);

            ordinary(&r, at, BENCH, k->dtype);
            c.terms[c.nterms] = (struct shunti_rows_term){
                .row = at, .weight = 0.3f, .op = (uint16_t)(c.nterms % 3)};
        }
        c.a = k->which == UNPACK ? packed(&r, BENCH) : c.terms[0].row;
        c.b = c.terms[1].row;
        y = memory(&r, GOT, BENCH * sizeof(float), 64);
    }
    run(k->which, v, &c, y);
    switch (k->which) {
    case SUM:
    case PARTIAL:
        return (double)(8 * row_bytes + bytes_of(k->which, &c));
    case UNPACK:
        return (double)(row_bytes + shunti_fp8_bytes(BENCH));
    case DOT:
        return 2.0 * (double)row_bytes;
    default:
        return (double)(row_bytes + bytes_of(k->which, &c));
    }
}

static const struct kernel kernels[] = {
    {"sum f32", SUM, SHUNT_F32},
    {"sum bf16", SUM, SHUNT_BF16},
    {"partial f32", PARTIAL, SHUNT_F32},
    {"partial bf16", PARTIAL, SHUNT_BF16},
    {"scale f32", SCALE, SHUNT_F32},
    {"scale bf16", SCALE, SHUNT_BF16},
    {"dot f32", DOT, SHUNT_F32},
    {"dot bf16", DOT, SHUNT_BF16},
    {"fp8 f32", FP8, SHUNT_F32},
    {"fp8 bf16", FP8, SHUNT_BF16},
    {"pack f32", PACK, SHUNT_F32},
    {"pack bf16", PACK, SHUNT_BF16},
    {"unpack f32", UNPACK, SHUNT_F32},
    {"unpack bf16", UNPACK, SHUNT_BF16},
    {.name = NULL},
};

const struct family family_rows = {
    .name = "rows",
    .kernels = kernels,
    .trials = 400,
    .variant = isa_variant,
    .trial = trial,
    .once = once,
    .digests = true,
};
