// SPDX-License-Identifier: Apache-2.0
/* Rank, number of ranks and id, from the launcher; see launch.h. */
#include "src/boot/launch.h"

#include <stdatomic.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/boot/auth.h"
#include "src/boot/id.h"
#include "src/boot/launch_job.h"
#include "src/boot/launch_place.h"
#include "src/host/launchers.h"

/* Warn if the secret can be guessed, and other hosts can connect. */
static void warn_of_public_secret(const struct shunti_launch *launch,
                                  const struct shunti_id_parts *parts)
{
    static atomic_bool warned;
    char where[64];

    if (launch->rank != 0 || !(parts->flags & SHUNTI_ID_PUBLIC) ||
        parts->kind == SHUNTI_ID_LOCAL ||
        atomic_exchange_explicit(&warned, true, memory_order_relaxed))
        return;
    shunti_id_describe(parts, where, sizeof(where));
    shunti_warn("launch",
                "SHUNT_SECRET is not set: any process that can connect to %s "
                "and guess %s's name for this job can join it; set "
                "SHUNT_SECRET to a text that only its ranks know "
                "(docs/security.md)",
                where, launch->how);
}

/* The address of a single rank, which no other process looks for. */
static enum shunt_status choose_private_place(struct shunti_id_parts *parts)
{
    parts->kind = SHUNTI_ID_LOCAL;
    if (!shunti_auth_random(parts->secret, sizeof(parts->secret)) ||
        !shunti_auth_random(parts->tag, sizeof(parts->tag)))
        return shunti_fail(NULL, SHUNT_ERR_SYSTEM,
                           "the kernel gives no random numbers");
    return SHUNT_OK;
}

enum shunt_status shunti_launch_find(struct shunti_launch *launch)
{
    static atomic_ulong calls;
    unsigned long call =
        atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    const struct shunti_launcher *l = shunti_launcher_detect();
    struct shunti_id_parts parts = {0};
    enum shunt_status st;
    char where[64];

    memset(launch, 0, sizeof(*launch));
    st = shunti_launch_rank(&launch->rank, &launch->nranks, &launch->how);
    if (st)
        return st;
    shunti_log_set_rank(launch->rank);
    if (l && launch->nranks > 1) {
        shunti_launch_derive_secret(l, call, &parts);
        st = shunti_launch_place(l, launch->rank, launch->nranks, &parts);
        if (!st)
            warn_of_public_secret(launch, &parts);
    } else {
        st = choose_private_place(&parts);
    }
    if (!st) {
        shunti_id_pack(&parts, &launch->id);
        shunti_id_describe(&parts, where, sizeof(where));
        shunti_debug("launch", "%s: rank %d of %d, meeting at %s", launch->how,
                     launch->rank, launch->nranks, where);
    }
    explicit_bzero(&parts, sizeof(parts));
    return st;
}
