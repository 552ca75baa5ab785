// SPDX-License-Identifier: Apache-2.0
/*
 * Environment variables of the drop-in, as rows of libshunt's table. This file
 * is linked into libshunt, not into the drop-in: libshunt checks the
 * environment of every job, and shunt-info and the manual list what it knows.
 * The drop-in is a library of its own, which sees only libshunt's public
 * functions and reads the variables by their names in env.h.
 */
#include "bindings/mpi/env.h"
#include "src/base/env.h"

static const struct shunti_env_row rows[] = {
    {
        .name = SHUNTI_MPI_VARIABLE,
        .type = SHUNTI_ENV_CHOICE,
        .fallback = "on",
        .choices = "off|on|force",
        .help = "libshunt-mpi: whether MPI's collective calls are served: on, "
                "where that is faster; force, wherever it is possible. Ranks "
                "that disagree take the least.",
    },
    {
        .name = SHUNTI_MPI_STATS_VARIABLE,
        .type = SHUNTI_ENV_BOOL,
        .fallback = "no",
        .help = "libshunt-mpi: print at MPI_Finalize() what was served and "
                "what was passed on to MPI, and why.",
    },
};

__attribute__((constructor)) static void declare_variables(void)
{
    shunti_env_declare_all(rows, sizeof(rows) / sizeof(rows[0]));
}
