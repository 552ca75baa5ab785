// SPDX-License-Identifier: Apache-2.0
/*
 * Environment variables of the mixture of experts. settings.c reads the
 * variables that are taken from rank 0.
 */
#include "src/base/env.h"

static const struct shunti_env_row rows[] = {
    {
        .name = "SHUNT_MOE_MODE",
        .type = SHUNTI_ENV_PAIR,
        .fallback = "auto",
        .choices = "auto|direct|flat|two-level|allgather",
        .help = "How the rows of dispatch and combine travel, unless the "
                "program decides it; auto: two-level between nodes. Two words, "
                "as in two-level,flat: for dispatch and for combine.",
    },
    {
        .name = "SHUNT_MOE_CHUNK",
        .type = SHUNTI_ENV_SIZE,
        .from_rank_0 = true,
        .fallback = "auto",
        .help = "Bytes of rows that dispatch and combine send to another node "
                "at once.",
    },
    {
        .name = "SHUNT_MOE_RECORDS",
        .type = SHUNTI_ENV_SIZE,
        .from_rank_0 = true,
        .fallback = "auto",
        .help = "Bytes up to which a plan gathers the counts of all ranks on "
                "every rank. If they are more, a rank gets only the counts of "
                "its own experts, by two more exchanges.",
    },
};

__attribute__((constructor)) static void declare_variables(void)
{
    shunti_env_declare_all(rows, sizeof(rows) / sizeof(rows[0]));
}
