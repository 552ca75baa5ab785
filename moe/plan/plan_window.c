// SPDX-License-Identifier: Apache-2.0
/* Windows of plans; see plan_window.h. */
#include "moe/plan/plan_window.h"

#include <stdio.h>

#include "src/base/error.h"
#include "src/comm.h"
#include "src/progress/turns.h"
#include "src/wire/failure.h"
#include "src/wire/window.h"

enum shunt_status shunti_plan_window(struct shunt_comm *comm, size_t bytes,
                                     const char *what,
                                     struct shunti_window **window)
{
    struct shunti_window *old = *window;
    enum shunt_status st = SHUNT_OK;
    char why[300];

    *window = NULL;
    shunti_comm_enter(comm);
    if (old)
        st = shunti_window_free(comm, SHUNTI_PURPOSE_MOE_PLAN_CREATE, old);
    if (!st)
        st = shunti_window_create(comm, SHUNTI_PURPOSE_MOE_PLAN_CREATE, bytes,
                                  window);
    if (st && st != shunti_comm_failed(comm)) {
        snprintf(why, sizeof(why), "%.299s", comm->error.text);
        st = shunti_fail(&comm->error, st, "moe_plan_create: no %s: %s", what,
                         why);
    }
    shunti_comm_leave(comm);
    return st;
}
