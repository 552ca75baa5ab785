// SPDX-License-Identifier: Apache-2.0
/*
 * Reductions: every predefined operation on every predefined type for which it
 * is defined, and operations of the program. Values are small, so that sums and
 * products are exact and the order does not matter. Separate cases test results
 * that depend on the order.
 */

#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RANKS = 64 };

enum kind {
    INTEGER, /* signed or not */
    FORTRAN, /* an integer without logical operations */
    REAL,
    COMPLEX,
    LOGICAL,
    BYTES,
    PAIR, /* a value and an int behind it */
};

struct type {
    const char *name;
    MPI_Datatype type;
    enum kind kind;
    int size;   /* bytes of an element; PAIR: of its value */
    bool sign;  /* INTEGER: may be negative. PAIR: the value is a real */
    int at;     /* PAIR: offset of the int */
    int extent; /* PAIR: extent of value and int */
};

struct pair_of_short {
    short value;
    int where;
};
struct pair_of_int {
    int value, where;
};
struct pair_of_long {
    long value;
    int where;
};
struct pair_of_float {
    float value;
    int where;
};
struct pair_of_double {
    double value;
    int where;
};
struct pair_of_long_double {
    long double value;
    int where;
};

#define PAIR_OF(mpi, c, real)                                  \
    {                                                          \
#mpi, mpi, PAIR, sizeof(((struct c *)0)->value), real, \
            offsetof(struct c, where), sizeof(struct c)        \
    }

static const struct type *get_types(int *n)
{
    /* MPI's handles need not be constants. */
    static struct type types[64];
    const struct type all[] = {
        {"SIGNED_CHAR", MPI_SIGNED_CHAR, INTEGER, 1, true, 0, 0},
        {"UNSIGNED_CHAR", MPI_UNSIGNED_CHAR, INTEGER, 1, false, 0, 0},
        {"SHORT", MPI_SHORT, INTEGER, sizeof(short), true, 0, 0},
        {"UNSIGNED_SHORT", MPI_UNSIGNED_SHORT, INTEGER, sizeof(short), false, 0,
         0},
        {"INT", MPI_INT, INTEGER, sizeof(int), true, 0, 0},
        {"UNSIGNED", MPI_UNSIGNED, INTEGER, sizeof(int), false, 0, 0},
        {"LONG", MPI_LONG, INTEGER, sizeof(long), true, 0, 0},
        {"UNSIGNED_LONG", MPI_UNSIGNED_LONG, INTEGER, sizeof(long), false, 0,
         0},
        {"LONG_LONG", MPI_LONG_LONG, INTEGER, sizeof(long long), true, 0, 0},
        {"UNSIGNED_LONG_LONG", MPI_UNSIGNED_LONG_LONG, INTEGER,
         sizeof(long long), false, 0, 0},
        {"INT8_T", MPI_INT8_T, INTEGER, 1, true, 0, 0},
        {"UINT8_T", MPI_UINT8_T, INTEGER, 1, false, 0, 0},
        {"INT16_T", MPI_INT16_T, INTEGER, 2, true, 0, 0},
        {"UINT16_T", MPI_UINT16_T, INTEGER, 2, false, 0, 0},
        {"INT32_T", MPI_INT32_T, INTEGER, 4, true, 0, 0},
        {"UINT32_T", MPI_UINT32_T, INTEGER, 4, false, 0, 0},
        {"INT64_T", MPI_INT64_T, INTEGER, 8, true, 0, 0},
        {"UINT64_T", MPI_UINT64_T, INTEGER, 8, false, 0, 0},
        /* Open MPI treats an offset as unsigned, so none is below zero. */
        {"AINT", MPI_AINT, INTEGER, sizeof(MPI_Aint), false, 0, 0},
        {"OFFSET", MPI_OFFSET, INTEGER, sizeof(MPI_Offset), false, 0, 0},
        {"COUNT", MPI_COUNT, INTEGER, sizeof(MPI_Count), false, 0, 0},
        {"FLOAT", MPI_FLOAT, REAL, sizeof(float), true, 0, 0},
        {"DOUBLE", MPI_DOUBLE, REAL, sizeof(double), true, 0, 0},
        {"LONG_DOUBLE", MPI_LONG_DOUBLE, REAL, sizeof(long double), true, 0, 0},
        {"C_FLOAT_COMPLEX", MPI_C_FLOAT_COMPLEX, COMPLEX, sizeof(float), true,
         0, 0},
        {"C_DOUBLE_COMPLEX", MPI_C_DOUBLE_COMPLEX, COMPLEX, sizeof(double),
         true, 0, 0},
        {"C_LONG_DOUBLE_COMPLEX", MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX,
         sizeof(long double), true, 0, 0},
        {"C_BOOL", MPI_C_BOOL, LOGICAL, sizeof(_Bool), false, 0, 0},
        {"BYTE", MPI_BYTE, BYTES, 1, false, 0, 0},
        PAIR_OF(MPI_SHORT_INT, pair_of_short, false),
        PAIR_OF(MPI_2INT, pair_of_int, false),
        PAIR_OF(MPI_LONG_INT, pair_of_long, false),
        PAIR_OF(MPI_FLOAT_INT, pair_of_float, true),
        PAIR_OF(MPI_DOUBLE_INT, pair_of_double, true),
        PAIR_OF(MPI_LONG_DOUBLE_INT, pair_of_long_double, true),
        /* Types of Fortran, if this MPI was built with Fortran. */
        {"INTEGER", MPI_INTEGER, FORTRAN, sizeof(int), true, 0, 0},
        {"REAL", MPI_REAL, REAL, sizeof(float), true, 0, 0},
        {"DOUBLE_PRECISION", MPI_DOUBLE_PRECISION, REAL, sizeof(double), true,
         0, 0},
        {"COMPLEX", MPI_COMPLEX, COMPLEX, sizeof(float), true, 0, 0},
        {"DOUBLE_COMPLEX", MPI_DOUBLE_COMPLEX, COMPLEX, sizeof(double), true, 0,
         0},
    };

    *n = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (all[i].type != MPI_DATATYPE_NULL)
            types[(*n)++] = all[i];
    return types;
}

enum which {
    SUM,
    PROD,
    MIN,
    MAX,
    LAND,
    LOR,
    LXOR,
    BAND,
    BOR,
    BXOR,
    MINLOC,
    MAXLOC,
    OPS
};

static MPI_Op op_of(enum which op)
{
    const MPI_Op ops[] = {MPI_SUM,  MPI_PROD, MPI_MIN,    MPI_MAX,
                          MPI_LAND, MPI_LOR,  MPI_LXOR,   MPI_BAND,
                          MPI_BOR,  MPI_BXOR, MPI_MINLOC, MPI_MAXLOC};
    return ops[op];
}

/* Returns whether MPI defines the operation for this kind of type ("Predefined
 * Reduction Operations"). */
static bool defined(enum which op, enum kind kind)
{
    bool whole = kind == INTEGER || kind == FORTRAN;

    switch (op) {
    case SUM:
    case PROD:
        return whole || kind == REAL || kind == COMPLEX;
    case MIN:
    case MAX:
        return whole || kind == REAL;
    case LAND:
    case LOR:
    case LXOR:
        return kind == INTEGER || kind == LOGICAL;
    case BAND:
    case BOR:
    case BXOR:
        return whole || kind == BYTES;
    default:
        return kind == PAIR;
    }
}

/* A value of any type. Whole numbers are exact. */
struct value {
    long double re, im;
    int where;
};

static int extent_of(const struct type *t)
{
    if (t->kind == PAIR)
        return t->extent;
    return t->kind == COMPLEX ? 2 * t->size : t->size;
}

static void store_real(void *to, int size, long double x)
{
    float f = (float)x;
    double d = (double)x;

    if (size == (int)sizeof(float))
        memcpy(to, &f, sizeof(f));
    else if (size == (int)sizeof(double))
        memcpy(to, &d, sizeof(d));
    else
        *(long double *)to = x;
}

static long double load_real(const void *from, int size)
{
    float f;
    double d;

    if (size == (int)sizeof(float)) {
        memcpy(&f, from, sizeof(f));
        return f;
    }
    if (size == (int)sizeof(double)) {
        memcpy(&d, from, sizeof(d));
        return d;
    }
    return *(const long double *)from;
}

/* Assumes little endian, like every machine on which this runs. */
static void store_integer(void *to, int size, long double x)
{
    int64_t i = x < 0 ? (int64_t)x : (int64_t)(uint64_t)x;
    memcpy(to, &i, (size_t)size);
}

static long double load_integer(const void *from, int size, bool sign)
{
    uint64_t u = 0;

    memcpy(&u, from, (size_t)size);
    if (!sign)
        return u;
    int shift = 64 - 8 * size;
    return (int64_t)(u << shift) >> shift;
}

static void store(const struct type *t, unsigned char *to, struct value v)
{
    switch (t->kind) {
    case REAL:
        store_real(to, t->size, v.re);
        return;
    case COMPLEX:
        store_real(to, t->size, v.re);
        store_real(to + t->size, t->size, v.im);
        return;
    case PAIR:
        if (t->sign)
            store_real(to, t->size, v.re);
        else
            store_integer(to, t->size, v.re);
        memcpy(to + t->at, &v.where, sizeof(v.where));
        return;
    default:
        store_integer(to, t->size, v.re);
    }
}

static struct value load(const struct type *t, const unsigned char *from)
{
    struct value v = {0};

    switch (t->kind) {
    case REAL:
        v.re = load_real(from, t->size);
        break;
    case COMPLEX:
        v.re = load_real(from, t->size);
        v.im = load_real(from + t->size, t->size);
        break;
    case PAIR:
        v.re = t->sign ? load_real(from, t->size)
                       : load_integer(from, t->size, true);
        memcpy(&v.where, from + t->at, sizeof(v.where));
        break;
    default:
        v.re = load_integer(from, t->size, t->sign);
    }
    return v;
}

/* Returns the input for `op` that the key determines. */
static struct value make(const struct type *t, enum which op, uint64_t key)
{
    struct value v = {0};
    long double x = (long double)(key % 11);

    switch (op) {
    case PROD:
        /* Values whose products are exact in any order: 1 and 2, with either
         * sign, or times i. */
        x = (long double)(key % 2 + 1);
        if (t->kind == COMPLEX && key % 3 == 0) {
            v.im = x;
            x = 0;
        }
        break;
    case LAND:
    case LOR:
    case LXOR:
        x = t->kind == LOGICAL ? (long double)(key % 2)
                               : (long double)(key % 3);
        break;
    case BAND:
    case BOR:
    case BXOR:
        /* All bits except the sign. */
        x = (long double)((key >> 3) &
                          ((UINT64_C(1) << (8 * t->size - 1)) - 1));
        break;
    default:
        v.im = (long double)(key / 16 % 13) - 6;
    }
    if (t->sign && op != LAND && op != LOR && op != LXOR && op != BAND &&
        op != BOR && op != BXOR && key / 1024 % 2)
        x = -x;
    /* Few values, so that there are ties. */
    if (t->kind == PAIR)
        x = (long double)(key % 3) - 1;
    v.re = x;
    v.where = (int)(key / 64 % 1000);
    return v;
}

static uint64_t bits(long double x)
{
    return x < 0 ? (uint64_t)(int64_t)x : (uint64_t)x;
}

static struct value combine(enum which op, struct value a, struct value b)
{
    struct value v = a;

    switch (op) {
    case SUM:
        v.re = a.re + b.re;
        v.im = a.im + b.im;
        break;
    case PROD:
        v.re = a.re * b.re - a.im * b.im;
        v.im = a.re * b.im + a.im * b.re;
        break;
    case MIN:
        v.re = a.re < b.re ? a.re : b.re;
        break;
    case MAX:
        v.re = a.re > b.re ? a.re : b.re;
        break;
    case LAND:
        v.re = a.re != 0 && b.re != 0;
        break;
    case LOR:
        v.re = a.re != 0 || b.re != 0;
        break;
    case LXOR:
        v.re = (a.re != 0) != (b.re != 0);
        break;
    case BAND:
        v.re = (long double)(bits(a.re) & bits(b.re));
        break;
    case BOR:
        v.re = (long double)(bits(a.re) | bits(b.re));
        break;
    case BXOR:
        v.re = (long double)(bits(a.re) ^ bits(b.re));
        break;
    case MINLOC:
        if (b.re < a.re || (b.re == a.re && b.where < a.where))
            v = b;
        break;
    default:
        if (b.re > a.re || (b.re == a.re && b.where < a.where))
            v = b;
    }
    return v;
}

/* -- the three reductions -----------------------------------------------------
 */

enum call { ALLREDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, CALLS };

/* A reduction. Elements [begin, end) of the whole vector are this rank's
 * result. */
struct job {
    enum call call;
    bool in_place;
    MPI_Comm comm;
    int rank, size, total, begin, end;
    int counts[MAX_RANKS];
    uint64_t key;
};

static bool job_make(struct job *j, enum call call, bool in_place, int scale)
{
    int uneven = (int)draw(3);
    uint64_t key = fresh();

    memset(j, 0, sizeof(*j));
    j->call = call;
    j->in_place = in_place;
    j->comm = some_comm();
    j->key = fresh();
    if (j->comm == MPI_COMM_NULL)
        return false;
    j->rank = comm_rank(j->comm);
    j->size = comm_size(j->comm);
    if (call == ALLREDUCE) {
        j->total = (int)(key % (unsigned)scale);
        j->end = j->total;
        return true;
    }
    for (int r = 0; r < j->size; r++) {
        uint64_t x = call == REDUCE_SCATTER ? mix(key, (uint64_t)r) : key;
        j->counts[r] = (int)(x % (unsigned)(scale / j->size + 1));
        if (call == REDUCE_SCATTER && uneven == 1 && x / 7 % 2)
            j->counts[r] = 0;
        if (r == j->rank) {
            j->begin = j->total;
            j->end = j->total + j->counts[r];
        }
        j->total += j->counts[r];
    }
    return true;
}

static int job_run(const struct job *j, const void *in, void *out,
                   MPI_Datatype type, MPI_Op op)
{
    if (j->in_place)
        in = MPI_IN_PLACE;
    switch (j->call) {
    case ALLREDUCE:
        return MPI_Allreduce(in, out, j->total, type, op, j->comm);
    case REDUCE_SCATTER:
        return MPI_Reduce_scatter(in, out, j->counts, type, op, j->comm);
    default:
        return MPI_Reduce_scatter_block(in, out, j->counts[0], type, op,
                                        j->comm);
    }
}

static struct value input(const struct job *j, const struct type *t,
                          enum which op, int rank, int i)
{
    return make(t, op, mix(mix(j->key, (uint64_t)rank), (uint64_t)i));
}

/* In place, must the input behind the result be unchanged? Shunt does not
 * change it. Open MPI 4.1 does, in some calls of MPI_Reduce_scatter(). */
static bool keeps_input(const struct type *t, enum which op)
{
    return check_wild && op <= MAX && (t->kind == INTEGER || t->kind == REAL) &&
           (t->size == 8 || t->size == 4);
}

/* Inputs go to `in` or, in place, to `out`. */
static void predefined(const struct job *j, const struct type *t, enum which op)
{
    struct memory in, out;
    int step = extent_of(t);
    struct memory *source = j->in_place ? &out : &in;
    MPI_Datatype type = t->type;

    memory_make(&in, 0, (ptrdiff_t)j->total * step);
    memory_make(&out, 0,
                (ptrdiff_t)(j->in_place ? j->total : j->end - j->begin) * step);
    for (int i = 0; i < j->total; i++) {
        unsigned char bytes[64];
        memcpy(bytes, memory_at(source, (ptrdiff_t)i * step), (size_t)step);
        store(t, bytes, input(j, t, op, j->rank, i));
        memory_set(source, (ptrdiff_t)i * step, bytes, (size_t)step);
    }
    if (j->total == 0 && draw_own(2))
        MPI(job_run(j, NULL, NULL, type, op_of(op)));
    else
        MPI(job_run(j, memory_at(&in, 0), memory_at(&out, 0), type, op_of(op)));
    for (int i = j->begin; i < j->end; i++) {
        struct value want = input(j, t, op, 0, i);
        for (int r = 1; r < j->size; r++)
            want = combine(op, want, input(j, t, op, r, i));
        unsigned char *at = memory_at(&out, (ptrdiff_t)(i - j->begin) * step);
        struct value got = load(t, at);
        if (got.re != want.re || got.im != (t->kind == COMPLEX ? want.im : 0) ||
            (t->kind == PAIR && got.where != want.where))
            check_fail(__FILE__, __LINE__,
                       "%s, operation %d, call %d, %d ranks, element %d of %d: "
                       "%Lg %Lg %d instead of %Lg %Lg %d",
                       t->name, op, j->call, j->size, i, j->total, got.re,
                       got.im, got.where, want.re, want.im, want.where);
        /* The value is right. Accept any bytes between its parts. */
        memory_expect(&out, (ptrdiff_t)(i - j->begin) * step, at, (size_t)step);
    }
    if (j->in_place && j->call != ALLREDUCE && !keeps_input(t, op))
        memory_expect(&out, (ptrdiff_t)(j->end - j->begin) * step,
                      memory_at(&out, (ptrdiff_t)(j->end - j->begin) * step),
                      (size_t)(j->total - (j->end - j->begin)) * (size_t)step);
    memory_check(&in, "reduction, send");
    memory_check(&out, "reduction, receive");
}

static void case_predefined(int variant)
{
    enum call call = (enum call)(variant / 2);
    int n, round = 0;
    const struct type *types = get_types(&n);
    struct job j;

    for (int i = 0; i < n; i++) {
        for (int op = 0; op < OPS; op++) {
            if (!defined((enum which)op, types[i].kind))
                continue;
            start_round(round++);
            /* Skip most rounds with many ranks: with more ranks than cores a
             * call takes long. */
            if (world_size > 2 && chance(75))
                continue;
            if (job_make(&j, call, variant % 2, chance(5) ? 20000 : 60))
                predefined(&j, &types[i], (enum which)op);
        }
    }
}

/* -- rounding -----------------------------------------------------------------
 */

/* Sums of reals must be as exact as in some order of additions, and the same on
 * every rank. */
static void case_rounding(int variant)
{
    struct job j;

    (void)variant;
    for (int round = 0; round < 12; round++) {
        start_round(round);
        if (!job_make(&j, ALLREDUCE, round % 2, round % 4 ? 50 : 30000))
            continue;
        struct memory in, out;
        struct memory *source = j.in_place ? &out : &in;
        ptrdiff_t bytes = j.total * (ptrdiff_t)sizeof(double);
        memory_make(&in, 0, bytes);
        memory_make(&out, 0, bytes);
        for (int i = 0; i < j.total; i++) {
            uint64_t key = mix(mix(j.key, (uint64_t)j.rank), (uint64_t)i);
            double x = ldexp((double)key, -(int)(key % 70)) - 1e3;
            memory_set(source, i * (ptrdiff_t)sizeof(x), &x, sizeof(x));
        }
        MPI(job_run(&j, memory_at(&in, 0), memory_at(&out, 0), MPI_DOUBLE,
                    MPI_SUM));
        uint64_t sums = 0;
        for (int i = 0; i < j.total; i++) {
            long double sum = 0, size = 0;
            for (int r = 0; r < j.size; r++) {
                uint64_t key = mix(mix(j.key, (uint64_t)r), (uint64_t)i);
                double x = ldexp((double)key, -(int)(key % 70)) - 1e3;
                sum += x;
                size += fabsl(x);
            }
            double got;
            void *at = memory_at(&out, i * (ptrdiff_t)sizeof(got));
            memcpy(&got, at, sizeof(got));
            CHECK(fabsl(got - sum) <= j.size * 0x1p-52L * size);
            memory_expect(&out, i * (ptrdiff_t)sizeof(got), at, sizeof(got));
            uint64_t word;
            memcpy(&word, &got, sizeof(word));
            sums = mix(sums, word);
        }
        /* Compare the bits with those of other ranks, which arrive in
         * messages. */
        for (int r = 0; r < j.size; r++) {
            uint64_t theirs = sums;
            int next = (j.rank + 1) % j.size;
            int previous = (j.rank + j.size - 1) % j.size;
            MPI(MPI_Sendrecv_replace(&theirs, 8, MPI_BYTE, next, 3, previous, 3,
                                     j.comm, MPI_STATUS_IGNORE));
            CHECK(theirs == sums);
        }
        memory_check(&in, "rounding, send");
        memory_check(&out, "rounding, receive");
    }
}

/* -- operations of the program's own ------------------------------------------
 */

/* The function x -> a x + b, modulo a prime. The operation is composition, so
 * the order matters. */
struct affine {
    uint32_t a, b;
};

enum { PRIME = 65521 };

static struct affine then(struct affine f, struct affine g)
{
    return (struct affine){(uint32_t)((uint64_t)f.a * g.a % PRIME),
                           (uint32_t)(((uint64_t)g.a * f.b + g.b) % PRIME)};
}

static int calls_of_then;

static void then_of_mpi(void *in, void *inout, int *n, MPI_Datatype *type)
{
    struct affine *f = in, *g = inout;

    (void)type;
    calls_of_then++;
    for (int i = 0; i < *n; i++)
        g[i] = then(f[i], g[i]);
}

static void xor_of_mpi(void *in, void *inout, int *n, MPI_Datatype *type)
{
    uint32_t *a = in, *b = inout;
    int size;

    MPI_Type_size(*type, &size);
    for (int i = 0; i < *n * size / 4; i++)
        b[i] ^= a[i];
}

static struct affine affine_of(const struct job *j, int rank, int i)
{
    uint64_t key = mix(mix(j->key, (uint64_t)rank), (uint64_t)i);
    return (struct affine){(uint32_t)(key % PRIME),
                           (uint32_t)(key / PRIME % PRIME)};
}

/* `variant`: 1 for an operation that does not commute. */
static void case_own(int variant)
{
    MPI_Datatype type;
    MPI_Op op;
    struct job j;

    MPI(MPI_Op_create(variant ? then_of_mpi : xor_of_mpi, !variant, &op));
    MPI(MPI_Type_contiguous(2, MPI_UINT32_T, &type));
    MPI(MPI_Type_commit(&type));
    for (int round = 0; round < 18; round++) {
        start_round(round);
        if (!job_make(&j, (enum call)(round % CALLS), round / CALLS % 2, 90))
            continue;
        struct memory in, out;
        struct memory *source = j.in_place ? &out : &in;
        ptrdiff_t step = sizeof(struct affine);
        memory_make(&in, 0, j.total * step);
        memory_make(&out, 0, (j.in_place ? j.total : j.end - j.begin) * step);
        for (int i = 0; i < j.total; i++) {
            struct affine x = affine_of(&j, j.rank, i);
            memory_set(source, i * step, &x, sizeof(x));
        }
        MPI(job_run(&j, memory_at(&in, 0), memory_at(&out, 0), type, op));
        for (int i = j.begin; i < j.end; i++) {
            struct affine x = affine_of(&j, 0, i);
            for (int r = 1; r < j.size; r++) {
                struct affine y = affine_of(&j, r, i);
                x = variant ? then(x, y)
                            : (struct affine){x.a ^ y.a, x.b ^ y.b};
            }
            memory_expect(&out, (i - j.begin) * step, &x, sizeof(x));
        }
        int rest = j.in_place ? j.total - (j.end - j.begin) : 0;
        if (rest > 0)
            memory_expect(&out, (j.end - j.begin) * step,
                          memory_at(&out, (j.end - j.begin) * step),
                          (size_t)(rest * step));
        memory_check(&in, "own operation, send");
        memory_check(&out, "own operation, receive");
    }
    MPI(MPI_Type_free(&type));
    MPI(MPI_Op_free(&op));
    CHECK(!variant || world_size == 1 || calls_of_then > 0);
}

/* Operations are made and freed, so a handle may have belonged to another
 * operation before. */
static void case_op_handles(int variant)
{
    (void)variant;
    for (int round = 0; round < 40; round++) {
        MPI_Op op;
        struct affine mine = {(uint32_t)world_rank + 2, (uint32_t)round};
        struct affine got = {0}, want = {2, (uint32_t)round};

        MPI(MPI_Op_create(then_of_mpi, 0, &op));
        MPI_Datatype type;
        MPI(MPI_Type_contiguous(2, MPI_UINT32_T, &type));
        MPI(MPI_Type_commit(&type));
        MPI(MPI_Allreduce(&mine, &got, 1, type, op, MPI_COMM_WORLD));
        for (int r = 1; r < world_size; r++)
            want =
                then(want, (struct affine){(uint32_t)r + 2, (uint32_t)round});
        CHECK(got.a == want.a && got.b == want.b);
        MPI(MPI_Type_free(&type));
        MPI(MPI_Op_free(&op));
        int one = 1, all = 0;
        MPI(MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        CHECK(all == world_size);
    }
}

/* Sums with NaN, infinity, and zeros with a sign. */
static void case_special(int variant)
{
    double in[4] = {world_rank == 0 ? (double)INFINITY : 1.0,
                    world_rank == world_size - 1 ? (double)NAN : 1.0, -0.0,
                    world_rank == 0 ? -(double)INFINITY : 2.0};
    double out[4];

    (void)variant;
    MPI(MPI_Allreduce(in, out, 4, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    CHECK(isinf(out[0]) && out[0] > 0);
    CHECK(isnan(out[1]));
    CHECK(out[2] == 0);
    CHECK(isinf(out[3]) && out[3] < 0);
}

static void case_large(int variant)
{
    struct job j;
    int n;
    const struct type *types = get_types(&n);

    for (int i = 0; i < n; i++) {
        if (types[i].kind != REAL || types[i].size != 4)
            continue;
        start_round(i);
        if (job_make(&j, (enum call)(variant / 2), variant % 2, 2000000))
            predefined(&j, &types[i], SUM);
    }
}

static const struct check_case cases[] = {
    {"allreduce", case_predefined, 2 * ALLREDUCE, 1},
    {"allreduce_in_place", case_predefined, 2 * ALLREDUCE + 1, 1},
    {"reduce_scatter", case_predefined, 2 * REDUCE_SCATTER, 1},
    {"reduce_scatter_in_place", case_predefined, 2 * REDUCE_SCATTER + 1, 1},
    {"reduce_scatter_block", case_predefined, 2 * REDUCE_SCATTER_BLOCK, 1},
    {"reduce_scatter_block_in_place", case_predefined,
     2 * REDUCE_SCATTER_BLOCK + 1, 1},
    {"rounding", case_rounding, 0, 1},
    {"special_numbers", case_special, 0, 1},
    {"own_op", case_own, 0, 1},
    {"own_op_in_order", case_own, 1, 1},
    {"op_handles", case_op_handles, 0, 1},
    {"large_allreduce", case_large, 2 * ALLREDUCE, 2},
    {"large_reduce_scatter", case_large, 2 * REDUCE_SCATTER, 2},
    {0},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases, MPI_THREAD_SINGLE, NULL, NULL);
}
