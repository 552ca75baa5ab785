// SPDX-License-Identifier: Apache-2.0
/*
 * Environment variables of the collectives, all of them taken from rank 0.
 * coll_state.c reads them.
 */
#include "src/base/env.h"

static const struct shunti_env_row rows[] = {
    {
        .name = "SHUNT_ALLREDUCE_DIRECT",
        .type = SHUNTI_ENV_SIZE,
        .from_rank_0 = true,
        .fallback = "auto",
        .help = "Bytes up to which allreduce sends every rank's vector to "
                "every rank; larger ones are reduced in segments, one by each "
                "rank.",
    },
    {
        .name = "SHUNT_ALGORITHM",
        .type = SHUNTI_ENV_STRING,
        .from_rank_0 = true,
        .help =
            "Algorithms of collectives, instead of those that cost least: "
            "'two_level' for all, 'flat,allgather=two_level', or for some "
            "sizes 'allreduce=direct:0-16k,lanes'; of the entries that match "
            "and are possible, the last one is used, and 'auto' is none "
            "(shunt-info --algorithms has the names).",
    },
    {
        .name = "SHUNT_CARRY",
        .type = SHUNTI_ENV_SIZE,
        .from_rank_0 = true,
        .fallback = "auto",
        .help = "Bytes up to which a block of alltoall for a rank of another "
                "node is sent in one message with those of its local peers; "
                "larger ones are sent directly.",
    },
    {
        .name = "SHUNT_RELAY_IN_PLACE",
        .type = SHUNTI_ENV_SIZE,
        .from_rank_0 = true,
        .fallback = "64k",
        .help = "Bytes of a mean block from which allgather in two levels "
                "packs nothing: the ranks of a node copy blocks of other nodes "
                "from the result of the rank at which they arrive.",
    },
    {
        .name = "SHUNT_RELAY_PART",
        .type = SHUNTI_ENV_SIZE,
        .from_rank_0 = true,
        .fallback = "256k",
        .help =
            "Bytes of such a block that the ranks of a node copy at a time, "
            "while the next ones arrive.",
    },
};

__attribute__((constructor)) static void declare_variables(void)
{
    shunti_env_declare_all(rows, sizeof(rows) / sizeof(rows[0]));
}
