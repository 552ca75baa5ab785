// SPDX-License-Identifier: Apache-2.0
/*
 * Sizes and names of element types, and the values of reductions.
 */
#include "src/kernels/dtype.h"

static const char *const dtypes[] = {
    [SHUNT_I8] = "i8",
    [SHUNT_U8] = "u8",
    [SHUNT_I32] = "i32",
    [SHUNT_U32] = "u32",
    [SHUNT_I64] = "i64",
    [SHUNT_U64] = "u64",
    [SHUNT_F16] = "f16",
    [SHUNT_BF16] = "bf16",
    [SHUNT_F32] = "f32",
    [SHUNT_F64] = "f64",
    [SHUNT_FP8_E4M3] = "fp8_e4m3",
};

size_t shunt_dtype_size(enum shunt_dtype dtype)
{
    return shunti_dtype_bytes(dtype);
}

const char *shunti_dtype_name(enum shunt_dtype dtype)
{
    return shunti_dtype_bytes(dtype) ? dtypes[dtype] : "unknown dtype";
}

bool shunti_op_valid(enum shunt_op op)
{
    return (unsigned)op - SHUNT_SUM <= SHUNT_PROD - SHUNT_SUM;
}
