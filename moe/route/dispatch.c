// SPDX-License-Identifier: Apache-2.0
/* Dispatch and its gradient, which is a combine without weights. */
#include "moe/device/staged.h"
#include "moe/plan.h"
#include "moe/plan/moe_call.h"
#include "moe/route.h"
#include "moe/route/pull.h"
#include "moe/route/push.h"
#include "src/trace/track.h"

static const struct shunti_moe_call dispatch_call = {"moe_dispatch",
                                                     SHUNTI_KIND_MOE_DISPATCH};
static const struct shunti_moe_call dispatch_backward_call = {
    "moe_dispatch_backward", SHUNTI_KIND_MOE_DISPATCH_BACKWARD};

static bool is_rounded(const struct shunti_plan *plan)
{
    return plan->moe->config.wire == SHUNT_MOE_WIRE_FP8;
}

static enum shunt_status stage_rows(struct shunti_plan *plan,
                                    struct shunti_cut cut, const void *x,
                                    void *rows, struct shunti_staged *staged,
                                    unsigned *device)
{
    shunti_staged_init(staged, cut);
    shunti_staged_add(staged, shunti_tokens_span(plan, "x", x),
                      SHUNTI_STAGED_IN);
    shunti_staged_add(staged, shunti_rows_span(plan, "rows", rows),
                      SHUNTI_STAGED_OUT | SHUNTI_STAGED_ROWS);
    *device = 0;
    return is_rounded(plan)
               ? shunti_stage(&dispatch_call, plan, staged)
               : shunti_stage_copies(&dispatch_call, plan, staged, device);
}

static enum shunt_status dispatch(struct shunt_moe_plan *handle,
                                  const int *part, const void *x, void *rows,
                                  size_t max_rows,
                                  struct shunt_request **request)
{
    const struct shunti_moe_call *call = &dispatch_call;
    struct shunti_cut cut;
    struct shunti_staged staged;
    unsigned device;
    enum shunt_status st;
    SHUNTI_TRACK(LIBRARY);
    struct shunti_plan *plan = shunti_moe_call_plan(call, handle, &st);

    if (!plan)
        return st;
    st = shunti_moe_call_check_rows(call, plan, "rows", rows, max_rows, "x", x);
    if (!st)
        st = shunti_moe_call_cut(call, plan, part, &cut);
    if (!st)
        st = stage_rows(plan, cut, x, rows, &staged, &device);
    if (st)
        return st;
    st = shunti_route_dispatch(call, plan,
                               &(struct shunti_push){
                                   .cut = cut,
                                   .src = staged.arg[0].use,
                                   .dst = staged.arg[1].use,
                                   .arrivals = SHUNT_MOE_ROWS,
                                   .fp8 = is_rounded(plan),
                                   .device = device,
                               },
                               shunti_staged_request(&staged, request));
    return shunti_staged_begun(&staged, st, request);
}

enum shunt_status shunt_moe_dispatch(struct shunt_moe_plan *plan, const void *x,
                                     void *rows, size_t max_rows)
{
    return dispatch(plan, NULL, x, rows, max_rows, NULL);
}

enum shunt_status shunt_moe_dispatch_start(struct shunt_moe_plan *plan,
                                           const void *x, void *rows,
                                           size_t max_rows,
                                           struct shunt_request **request)
{
    if (!request)
        return shunti_moe_call_no_request(&dispatch_call, plan);
    *request = NULL;
    return dispatch(plan, NULL, x, rows, max_rows, request);
}

enum shunt_status shunt_moe_dispatch_part(struct shunt_moe_plan *plan, int part,
                                          const void *x, void *rows,
                                          size_t max_rows)
{
    return dispatch(plan, &part, x, rows, max_rows, NULL);
}

enum shunt_status shunt_moe_dispatch_part_start(struct shunt_moe_plan *plan,
                                                int part, const void *x,
                                                void *rows, size_t max_rows,
                                                struct shunt_request **request)
{
    if (!request)
        return shunti_moe_call_no_request(&dispatch_call, plan);
    *request = NULL;
    return dispatch(plan, &part, x, rows, max_rows, request);
}

static enum shunt_status stage_sum(struct shunti_plan *plan,
                                   struct shunti_cut cut, const void *drows,
                                   void *dx, struct shunti_staged *staged)
{
    shunti_staged_init(staged, cut);
    shunti_staged_add(staged, shunti_rows_span(plan, "drows", drows),
                      SHUNTI_STAGED_IN | SHUNTI_STAGED_ROWS);
    shunti_staged_add(staged, shunti_tokens_span(plan, "dx", dx),
                      SHUNTI_STAGED_OUT);
    return shunti_stage(&dispatch_backward_call, plan, staged);
}

static enum shunt_status dispatch_backward(struct shunt_moe_plan *handle,
                                           const int *part, const void *drows,
                                           void *dx,
                                           struct shunt_request **request)
{
    const struct shunti_moe_call *call = &dispatch_backward_call;
    struct shunti_cut cut;
    struct shunti_staged staged;
    enum shunt_status st;
    SHUNTI_TRACK(LIBRARY);
    struct shunti_plan *plan = shunti_moe_call_plan(call, handle, &st);

    if (!plan)
        return st;
    st = shunti_moe_call_check_tokens(call, plan, "drows", drows, "dx", dx);
    if (!st)
        st = shunti_moe_call_cut(call, plan, part, &cut);
    if (!st)
        st = stage_sum(plan, cut, drows, dx, &staged);
    if (st)
        return st;
    st = shunti_route_combine(call, plan,
                              &(struct shunti_pull){
                                  .cut = cut,
                                  .src = staged.arg[0].use,
                                  .staging = SHUNT_MOE_DROWS,
                                  .dst = staged.arg[1].use,
                              },
                              shunti_staged_request(&staged, request));
    return shunti_staged_begun(&staged, st, request);
}

enum shunt_status shunt_moe_dispatch_backward(struct shunt_moe_plan *plan,
                                              const void *drows, void *dx)
{
    return dispatch_backward(plan, NULL, drows, dx, NULL);
}

enum shunt_status
shunt_moe_dispatch_backward_start(struct shunt_moe_plan *plan,
                                  const void *drows, void *dx,
                                  struct shunt_request **request)
{
    if (!request)
        return shunti_moe_call_no_request(&dispatch_backward_call, plan);
    *request = NULL;
    return dispatch_backward(plan, NULL, drows, dx, request);
}

enum shunt_status shunt_moe_dispatch_backward_part(struct shunt_moe_plan *plan,
                                                   int part, const void *drows,
                                                   void *dx)
{
    return dispatch_backward(plan, &part, drows, dx, NULL);
}

enum shunt_status
shunt_moe_dispatch_backward_part_start(struct shunt_moe_plan *plan, int part,
                                       const void *drows, void *dx,
                                       struct shunt_request **request)
{
    if (!request)
        return shunti_moe_call_no_request(&dispatch_backward_call, plan);
    *request = NULL;
    return dispatch_backward(plan, &part, drows, dx, request);
}
