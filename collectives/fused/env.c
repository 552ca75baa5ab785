// SPDX-License-Identifier: Apache-2.0
/* The environment variable of the fused calls; worthwhile.c reads it. */
#include "src/base/env.h"

static const struct shunti_env_row rows[] = {
    {
        .name = "SHUNT_FUSED",
        .type = SHUNTI_ENV_CHOICE,
        .from_rank_0 = true,
        .fallback = "auto",
        .choices = "auto|always|off|no|0",
        .help = "Overlap the product and the collective of "
                "shunt_gemm_reduce_scatter() and shunt_allgather_gemm(): auto, "
                "where links are slow enough; always; or off, one after the "
                "other, to compare. The tiles and the bits are the same.",
    },
};

__attribute__((constructor)) static void declare_variables(void)
{
    shunti_env_declare_all(rows, sizeof(rows) / sizeof(rows[0]));
}
