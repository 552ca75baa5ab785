// SPDX-License-Identifier: Apache-2.0
/* shunt_comm_create() and its variants: get an id, or use a launcher. Then
 * init. */
#include <stddef.h>

#include "src/base/error.h"
#include "src/boot/bootstrap.h"
#include "src/boot/launch.h"
#include "src/comm/init.h"

enum shunt_status shunt_comm_create(const struct shunt_id *id, int nranks,
                                    int rank,
                                    const struct shunt_comm_config *config,
                                    struct shunt_comm **comm)
{
    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_create: comm is NULL");
    *comm = NULL;
    if (!id)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "comm_create: id is NULL");
    return shunti_comm_init(id, nranks, rank, config, NULL, comm);
}

enum shunt_status shunt_comm_create_env(const struct shunt_comm_config *config,
                                        struct shunt_comm **comm)
{
    struct shunti_launch launch;
    enum shunt_status st;

    if (!comm)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "comm_create_env: comm is NULL");
    *comm = NULL;
    st = shunti_launch_find(&launch);
    if (st)
        return st;
    if (launch.nranks == 1)
        return shunti_comm_init(NULL, 1, 0, config, NULL, comm);
    if (launch.rank == 0) {
        st = shunti_bootstrap_serve(&launch.id, launch.nranks);
        if (st)
            return st;
    }
    return shunti_comm_init(&launch.id, launch.nranks, launch.rank, config,
                            NULL, comm);
}
