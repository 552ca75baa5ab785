// SPDX-License-Identifier: Apache-2.0
/*
 * DIRECT: every rank maps the memory of all others, so it writes rows straight
 * to their places (push.h) and reads results where they are (pull.h).
 */
#include "moe/plan/records.h"
#include "moe/route.h"
#include "moe/route/pull.h"
#include "moe/route/push.h"
#include "src/comm.h"

static const char *unsuited(const struct shunt_moe *moe)
{
    return shunti_comm_all_mapped(moe->comm)
               ? NULL
               : "some ranks do not map each other's memory";
}

/* On this route, a row is copied once for each assignment. */
static void traffic(struct shunti_direction *direction,
                    enum shunt_moe_mode asked)
{
    const struct shunt_moe *moe = direction->plan->moe;
    const struct shunti_sent sent = shunti_records_sent(moe);

    (void)asked;
    direction->mode = SHUNT_MOE_DIRECT;
    direction->network.rows = sent.far;
    direction->network.dispatch_bytes = sent.far * moe->row_bytes;
    direction->network.combine_rows = sent.far;
    direction->network.combine_bytes = 0;
    direction->bytes_sent = (sent.near + sent.far) * moe->row_bytes;
}

static enum shunt_status dispatch(const struct shunti_moe_call *call,
                                  struct shunti_direction *direction,
                                  const struct shunti_push *what,
                                  struct shunt_request **request)
{
    return shunti_push_start(call, direction, what, false, request);
}

static enum shunt_status combine(const struct shunti_moe_call *call,
                                 struct shunti_direction *direction,
                                 const struct shunti_pull *what,
                                 struct shunt_request **request)
{
    return shunti_pull_start(call, direction, what, false, request);
}

const struct shunti_route shunti_route_direct = {
    .name = "direct",
    .unsuited = unsuited,
    .traffic = traffic,
    .dispatch = dispatch,
    .combine = combine,
    .refuse = shunti_moe_call_refuse_one,
    .operations = 1,
};
