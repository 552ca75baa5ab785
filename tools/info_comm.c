// SPDX-License-Identifier: Apache-2.0
/* See info_comm.h. */
#include "tools/info_comm.h"

#include <stdio.h>

enum shunt_status info_comm_finish(struct shunt_comm *comm, int rank,
                                   enum shunt_status st)
{
    if (!st)
        st = shunt_comm_finish(comm);
    if (st)
        fprintf(stderr, "shunt-info: rank %d: %s: %s\n", rank,
                shunt_strerror(st), shunt_last_error(comm));
    return st;
}
