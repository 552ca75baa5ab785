// SPDX-License-Identifier: Apache-2.0
/*
 * Sizes and names of element types and reductions.
 */
#include "dtype.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [SHUNT_I8] = {"i8", 1},
    [SHUNT_U8] = {"u8", 1},
    [SHUNT_I32] = {"i32", 4},
    [SHUNT_U32] = {"u32", 4},
    [SHUNT_I64] = {"i64", 8},
    [SHUNT_U64] = {"u64", 8},
    [SHUNT_F16] = {"f16", 2},
    [SHUNT_BF16] = {"bf16", 2},
    [SHUNT_F32] = {"f32", 4},
    [SHUNT_F64] = {"f64", 8},
    [SHUNT_FP8_E4M3] = {"fp8_e4m3", 1},
};

static const char *const ops[] = {
    [SHUNT_SUM] = "sum", [SHUNT_MIN] = "min",   [SHUNT_MAX] = "max",
    [SHUNT_AVG] = "avg", [SHUNT_PROD] = "prod",
};

static bool dtype_valid(enum shunt_dtype dtype)
{
    /* By way of unsigned: an enum may hold any integer, negative ones too. */
    return (unsigned)dtype - 1 < sizeof dtypes / sizeof dtypes[0] - 1;
}

size_t shunt_dtype_size(enum shunt_dtype dtype)
{
    return dtype_valid(dtype) ? dtypes[dtype].size : 0;
}

const char *shunti_dtype_name(enum shunt_dtype dtype)
{
    return dtype_valid(dtype) ? dtypes[dtype].name : "unknown dtype";
}

bool shunti_op_valid(enum shunt_op op)
{
    return (unsigned)op - 1 < sizeof ops / sizeof ops[0] - 1;
}

const char *shunti_op_name(enum shunt_op op)
{
    return shunti_op_valid(op) ? ops[op] : "unknown reduction";
}
