// SPDX-License-Identifier: Apache-2.0
/* See info_comm.h. */
#include "tools/info_comm.h"

#include <stdio.h>

#include "src/host/launchers.h"
#include "tools/cli/cli.h"

int info_comm_run(enum shunt_status (*collect)(struct shunt_comm *comm,
                                               void *data),
                  void (*print)(const struct shunt_comm *comm,
                                const char *launcher, void *data),
                  void *data)
{
    struct shunt_comm *comm = NULL;
    const char *launcher = "none";
    int rank = 0, nranks = 1;
    enum shunt_status st = shunti_launch_rank(&rank, &nranks, &launcher);

    if (!st)
        st = shunt_comm_create_env(NULL, &comm);
    if (!st && collect)
        st = collect(comm, data);
    if (!st)
        st = shunt_comm_finish(comm);
    if (st)
        fprintf(stderr, "shunt-info: rank %d: %s: %s\n", rank,
                shunt_strerror(st), shunt_last_error(comm));
    else if (rank == 0)
        print(comm, launcher, data);
    shunt_comm_destroy(comm);
    return !cli_written("shunt-info") || st;
}
