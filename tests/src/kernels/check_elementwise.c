// SPDX-License-Identifier: Apache-2.0
/* Element-wise kernels, compared with elementwise_ref.c. */
#include "src/kernels/elementwise.h"

#include <math.h>

#include "tests/src/kernels/check.h"
#include "tests/src/kernels/elementwise_ref.h"

enum {
    TRANSPOSE,
    ADD,
    SUM_SQUARES,
    RMSNORM,
    RMSNORM_BACKWARD,
    SOFTMAX,
    SOFTMAX_BACKWARD,
    SWIGLU,
    SWIGLU_BACKWARD,
    ROTATE,
    ADAMW,
    TO_BF16,
    FROM_BF16,
    ROUND_BF16,
    PAIR_BF16,
    SIGMOID,
    ADD_F64,
    SUM,
    DOT,
    LOG_SUM_EXP,
    SOFTMAX_TILE,
    SOFTMAX_TILE_BACKWARD,
    ROW_DOTS,
    SCALE_ROWS,
};

enum { INPUTS = 3, OUTPUTS = 3, MOST_ROWS = 3 };
/* Slots of memory: first the inputs, then the outputs of the variant, then
 * those of the reference. */
enum { GOT = INPUTS, WANT = GOT + OUTPUTS };

/* Arrays of f32, unless a kernel takes a narrower type. Some outputs are also
 * inputs, so outputs have values before the call. */
struct elementwise_case {
    size_t rows, n;
    size_t pad;      /* elements between rows */
    ptrdiff_t first; /* the first column of a tile, which may be negative */
    float scale;
    struct shunti_adamw step;
    bool one; /* pair_bf16: there is no second array */
    const void *in[INPUTS];
    void *out[OUTPUTS];
    double result; /* the value that the kernel returns */
};

/* The number of elements of each output; 0 if there is no such output. */
static void sizes_of(int which, const struct elementwise_case *c,
                     size_t out[OUTPUTS])
{
    size_t all = c->rows * c->n;

    memset(out, 0, OUTPUTS * sizeof(*out));
    switch (which) {
    case TRANSPOSE: /* a of shape (rows, n) to b of shape (n, rows) */
        out[0] = c->n ? (c->n - 1) * (c->rows + c->pad) + c->rows : 0;
        break;
    case SUM_SQUARES:
    case SUM:
    case DOT:
    case LOG_SUM_EXP:
        break;
    case RMSNORM:
        out[0] = all;
        out[1] = c->rows;
        break;
    case RMSNORM_BACKWARD:
        out[0] = all;
        out[1] = c->n;
        break;
    case SOFTMAX_TILE:
        out[0] = all;
        out[1] = 3 * c->n;
        break;
    case SOFTMAX_TILE_BACKWARD:
        out[0] = out[1] = all;
        break;
    case ROW_DOTS:
        out[0] = c->rows;
        break;
    case SCALE_ROWS:
        out[0] = (c->rows - 1) * (c->n + c->pad) + c->n;
        break;
    case SWIGLU:
    case ROTATE:
        out[0] = all;
        break;
    case SWIGLU_BACKWARD:
        out[0] = 2 * all;
        break;
    case ADAMW:
        out[0] = out[1] = out[2] = c->n;
        break;
    default:
        out[0] = c->n;
        break;
    }
}

static enum shunt_dtype dtype_of(int which)
{
    return which == TO_BF16     ? SHUNT_BF16
           : which == PAIR_BF16 ? SHUNT_U32
           : which == ADD_F64   ? SHUNT_F64
                                : SHUNT_F32;
}

static void run(int which, int v, struct elementwise_case *c)
{
    const struct shunti_elementwise *e =
        v == REFERENCE ? &elementwise_ref : shunti_elementwise_sets[v];
    const float *in[INPUTS] = {c->in[0], c->in[1], c->in[2]};
    float *out[OUTPUTS] = {c->out[0], c->out[1], c->out[2]};

    c->result = 0;
    switch (which) {
    case TRANSPOSE:
        e->transpose(c->rows, c->n, in[0], c->n + c->pad, out[0],
                     c->rows + c->pad);
        break;
    case ADD:
        e->add(c->n, in[0], out[0]);
        break;
    case ADD_F64:
        e->add_f64(c->n, in[0], c->out[0]);
        break;
    case SUM:
        c->result = (double)e->sum(c->n, in[0]);
        break;
    case DOT:
        c->result = (double)e->dot(c->n, in[0], in[1]);
        break;
    case LOG_SUM_EXP:
        c->result = (double)e->log_sum_exp(c->n, in[0]);
        break;
    case SUM_SQUARES:
        c->result = e->sum_squares(c->n, in[0]);
        break;
    case RMSNORM:
        e->rmsnorm(c->rows, c->n, 1e-5f, in[0], in[1], out[0], out[1]);
        break;
    case RMSNORM_BACKWARD: /* the inverses may have any values */
        e->rmsnorm_backward(c->rows, c->n, in[0], in[1], in[1], in[2], out[0],
                            out[1]);
        break;
    case SOFTMAX:
        c->result = (double)e->softmax(c->n, c->scale, out[0]);
        break;
    case SOFTMAX_TILE:
        e->softmax_tile(c->rows, c->n, c->first, out[0], out[1], out[1] + c->n,
                        out[1] + 2 * c->n);
        break;
    case SOFTMAX_TILE_BACKWARD:
        e->softmax_tile_backward(c->rows, c->n, c->first, in[0], in[1], out[0],
                                 out[1]);
        break;
    case ROW_DOTS:
        e->row_dots(c->rows, c->n, in[0], in[1], c->n + c->pad, out[0]);
        break;
    case SCALE_ROWS:
        e->scale_rows(c->rows, c->n, in[0], out[0], c->n + c->pad);
        break;
    case SOFTMAX_BACKWARD:
        e->softmax_backward(c->n, c->scale, in[0], out[0]);
        break;
    case SWIGLU:
        e->swiglu(c->rows, c->n, in[0], out[0]);
        break;
    case SWIGLU_BACKWARD:
        e->swiglu_backward(c->rows, c->n, in[0], in[1], out[0]);
        break;
    case ROTATE:
        e->rotate(c->rows, c->n, in[0], in[1], c->scale < 0 ? -1.0f : 1.0f,
                  c->scale, out[0]);
        break;
    case SIGMOID:
        e->sigmoid(c->n, in[0], out[0]);
        break;
    case ADAMW:
        e->adamw(c->n, &c->step, in[0], out[0], out[1], out[2]);
        break;
    case TO_BF16:
        e->to_bf16(c->n, in[0], c->out[0]);
        break;
    case FROM_BF16:
        e->from_bf16(c->n, c->in[0], out[0]);
        break;
    case ROUND_BF16:
        e->round_bf16(c->n, in[0], out[0]);
        break;
    default:
        e->pair_bf16(c->n, in[0], c->one ? NULL : in[1], c->out[0]);
        break;
    }
}

/* The number of elements of input `i`. */
static size_t input_size(int which, const struct elementwise_case *c, int i)
{
    size_t all = c->rows * c->n;

    switch (which) {
    case TRANSPOSE:
        return (c->rows - 1) * (c->n + c->pad) + c->n;
    case RMSNORM:
        return i == 0 ? all : c->n;
    case RMSNORM_BACKWARD:
        return i == 1 ? (c->n > c->rows ? c->n : c->rows) : all;
    case SWIGLU:
        return 2 * all;
    case SWIGLU_BACKWARD:
        return i == 0 ? 2 * all : all;
    case ROTATE:
        return c->n / 2;
    case ROW_DOTS:
        return (c->rows - 1) * (c->n + c->pad) + c->n;
    case SCALE_ROWS:
        return c->rows;
    default:
        return c->n;
    }
}

/* The number of inputs of a kernel. */
static int inputs_of(int which)
{
    static const int inputs[] = {
        [TRANSPOSE] = 1,    [ADD] = 1,
        [SUM_SQUARES] = 1,  [RMSNORM] = 2,
        [SOFTMAX] = 0,      [RMSNORM_BACKWARD] = 3,
        [SWIGLU] = 1,       [ROTATE] = 2,
        [ADAMW] = 1,        [SOFTMAX_BACKWARD] = 1,
        [TO_BF16] = 1,      [SWIGLU_BACKWARD] = 2,
        [FROM_BF16] = 1,    [PAIR_BF16] = 2,
        [ROUND_BF16] = 1,   [SIGMOID] = 1,
        [SOFTMAX_TILE] = 0, [SOFTMAX_TILE_BACKWARD] = 2,
        [ROW_DOTS] = 2,     [SCALE_ROWS] = 1,
        [ADD_F64] = 1,      [SUM] = 1,
        [DOT] = 2,          [LOG_SUM_EXP] = 1,
    };

    return inputs[which];
}

static void make_case(struct random *r, int which, struct elementwise_case *c)
{
    enum shunt_dtype in = which == FROM_BF16 ? SHUNT_BF16 : SHUNT_F32;

    c->rows = 1 + random_below(r, which == TRANSPOSE ? 40 : MOST_ROWS);
    c->n =
        1 + (random_below(r, 4) ? random_below(r, 70) : random_below(r, 700));
    c->n *= which == ROTATE ? 2 : 1;
    c->pad = random_below(r, 5);
    c->first = (ptrdiff_t)random_below(r, 9) - 4;
    c->scale = ((float)random_below(r, 100) - 50) / 40;
    c->one = random_below(r, 2);
    c->step = (struct shunti_adamw){
        1e-3f, 0.9f,  0.95f, 1.5f,
        2.5f,  1e-8f, 0.1f,  (float)random_below(r, 9) / 4};
    for (int i = 0; i < inputs_of(which); i++) {
        size_t n = input_size(which, c, i);
        void *at = memory(r, i, n * shunt_dtype_size(in), shunt_dtype_size(in));

        values(r, at, n, in);
        /* input 0 must be no less than any score */
        if (which == SOFTMAX_TILE_BACKWARD && i == 0)
            for (size_t j = 0; j < n; j++)
                ((float *)at)[j] = fabsf(((float *)at)[j]);
        c->in[i] = at;
    }
}

/* Makes the outputs, with the same values for the variant and the reference. */
static void make_outputs(struct random *r, int which,
                         const size_t sizes[OUTPUTS],
                         struct elementwise_case *c,
                         struct elementwise_case *ref)
{
    size_t element = shunt_dtype_size(dtype_of(which));

    for (int i = 0; i < OUTPUTS; i++) {
        c->out[i] = memory(r, GOT + i, sizes[i] * element, element);
        values(r, c->out[i], sizes[i], dtype_of(which));
        if (which == ADAMW && i == 2) /* a second moment is not negative */
            for (size_t j = 0; j < sizes[i]; j++)
                ((float *)c->out[i])[j] = fabsf(((float *)c->out[i])[j]);
        if (which == SOFTMAX_TILE_BACKWARD && i == 0)
            for (size_t j = 0; j < sizes[i]; j++)
                ((float *)c->out[i])[j] = -fabsf(((float *)c->out[i])[j]);
        ref->out[i] = memory(r, WANT + i, sizes[i] * element, element);
        memcpy(ref->out[i], c->out[i], sizes[i] * element);
    }
}

static void trial(const struct kernel *k, int v, struct random *r)
{
    struct elementwise_case c = {0}, ref;
    size_t sizes[OUTPUTS];

    make_case(r, k->which, &c);
    ref = c;
    sizes_of(k->which, &c, sizes);
    make_outputs(r, k->which, sizes, &c, &ref);
    run(k->which, REFERENCE, &ref);
    run(k->which, v, &c);
    for (int i = 0; i < OUTPUTS; i++) {
        expect_same("output", c.out[i], ref.out[i], sizes[i],
                    dtype_of(k->which));
        expect_guards(GOT + i);
    }
    /* The result of the reference is not in the digests, because libm computes
     * logf(). */
    if ((k->which != SOFTMAX && k->which != LOG_SUM_EXP) || v != REFERENCE)
        expect_same("result", &c.result, &ref.result, 1, SHUNT_F64);
}

static double once(const struct kernel *k, int v, bool prepare)
{
    static struct elementwise_case c;
    static size_t sizes[OUTPUTS];
    double bytes = 0;

    if (prepare) {
        struct random r = {1};
        struct elementwise_case other = {0};

        memset(&c, 0, sizeof(c));
        c.rows = k->which == TRANSPOSE ? 64 : 4;
        c.n = k->which == TRANSPOSE ? 64 : 1024;
        c.scale = 0.1f;
        c.step = (struct shunti_adamw){1e-3f, 0.9f,  0.95f, 1.5f,
                                       2.5f,  1e-8f, 0.1f,  0.5f};
        for (int i = 0; i < inputs_of(k->which); i++) {
            size_t n = input_size(k->which, &c, i);
            void *at = memory(&r, i, n * sizeof(float), 64);

            ordinary(&r, at, n, SHUNT_F32);
            c.in[i] = at;
        }
        sizes_of(k->which, &c, sizes);
        make_outputs(&r, k->which, sizes, &c, &other);
        for (int i = 0; i < OUTPUTS; i++)
            memset(c.out[i], 0,
                   sizes[i] * shunt_dtype_size(dtype_of(k->which)));
    }
    run(k->which, v, &c);
    for (int i = 0; i < OUTPUTS; i++)
        bytes += (double)(sizes[i] * shunt_dtype_size(dtype_of(k->which)));
    for (int i = 0; i < inputs_of(k->which); i++)
        bytes += (double)input_size(k->which, &c, i) *
                 (k->which == FROM_BF16 ? 2 : 4);
    return bytes;
}

static const struct kernel kernels[] = {
    {.name = "transpose", .which = TRANSPOSE},
    {.name = "add", .which = ADD},
    {.name = "add_f64", .which = ADD_F64},
    {.name = "sum", .which = SUM},
    {.name = "dot", .which = DOT},
    {.name = "sum_squares", .which = SUM_SQUARES},
    {.name = "rmsnorm", .which = RMSNORM},
    {.name = "rmsnorm_backward", .which = RMSNORM_BACKWARD},
    {.name = "softmax", .which = SOFTMAX},
    {.name = "log_sum_exp", .which = LOG_SUM_EXP},
    {.name = "softmax_backward", .which = SOFTMAX_BACKWARD},
    {.name = "softmax_tile", .which = SOFTMAX_TILE},
    {.name = "softmax_tile_backward", .which = SOFTMAX_TILE_BACKWARD},
    {.name = "row_dots", .which = ROW_DOTS},
    {.name = "scale_rows", .which = SCALE_ROWS},
    {.name = "swiglu", .which = SWIGLU},
    {.name = "swiglu_backward", .which = SWIGLU_BACKWARD},
    {.name = "rotate", .which = ROTATE},
    {.name = "adamw", .which = ADAMW},
    {.name = "to_bf16", .which = TO_BF16},
    {.name = "from_bf16", .which = FROM_BF16},
    {.name = "round_bf16", .which = ROUND_BF16},
    {.name = "pair_bf16", .which = PAIR_BF16},
    {.name = "sigmoid", .which = SIGMOID},
    {.name = NULL},
};

const struct family family_elementwise = {
    .name = "elementwise",
    .kernels = kernels,
    .trials = 300,
    .variant = isa_variant,
    .trial = trial,
    .once = once,
    .digests = true,
};
