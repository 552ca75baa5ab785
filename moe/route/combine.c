// SPDX-License-Identifier: Apache-2.0
/* Combine and its gradient, which is a dispatch with weights. */
#include "moe/device/staged.h"
#include "moe/plan.h"
#include "moe/plan/moe_call.h"
#include "moe/route.h"
#include "moe/route/pull.h"
#include "moe/route/push.h"
#include "src/trace/track.h"

static const struct shunti_moe_call combine_call = {"moe_combine",
                                                    SHUNTI_KIND_MOE_COMBINE};
static const struct shunti_moe_call combine_backward_call = {
    "moe_combine_backward", SHUNTI_KIND_MOE_COMBINE_BACKWARD};

static bool weighted(const struct shunti_plan *plan)
{
    return plan->moe->config.weights == SHUNT_MOE_APPLY_WEIGHTS;
}

static enum shunt_status check_bias(struct shunti_plan *plan, const void *bias,
                                    const void *y)
{
    const struct shunti_span b = shunti_tokens_span(plan, "bias", bias);
    const struct shunti_span sum = shunti_tokens_span(plan, "y", y);

    return shunti_moe_call_check_apart(&combine_call, plan, &b, &sum, true);
}

static enum shunt_status stage_sum(struct shunti_plan *plan,
                                   struct shunti_cut cut, const void *out,
                                   const void *bias, void *y,
                                   struct shunti_staged *staged)
{
    shunti_staged_init(staged, cut);
    shunti_staged_add(staged, shunti_rows_span(plan, "out", out),
                      SHUNTI_STAGED_IN | SHUNTI_STAGED_ROWS);
    shunti_staged_add(staged, shunti_tokens_span(plan, "bias", bias),
                      SHUNTI_STAGED_IN);
    shunti_staged_add(staged, shunti_tokens_span(plan, "y", y),
                      SHUNTI_STAGED_OUT);
    return shunti_stage(&combine_call, plan, staged);
}

static enum shunt_status combine(struct shunt_moe_plan *handle, const int *part,
                                 const void *out, const void *bias, void *y,
                                 struct shunt_request **request)
{
    const struct shunti_moe_call *call = &combine_call;
    struct shunti_cut cut;
    struct shunti_staged staged;
    enum shunt_status st;
    SHUNTI_TRACK(LIBRARY);
    struct shunti_plan *plan = shunti_moe_call_plan(call, handle, &st);

    if (!plan)
        return st;
    st = shunti_moe_call_check_tokens(call, plan, "out", out, "y", y);
    if (!st)
        st = check_bias(plan, bias, y);
    if (!st)
        st = shunti_moe_call_cut(call, plan, part, &cut);
    if (!st)
        st = stage_sum(plan, cut, out, bias, y, &staged);
    if (st)
        return st;
    st = shunti_route_combine(call, plan,
                              &(struct shunti_pull){
                                  .cut = cut,
                                  .src = staged.arg[0].use,
                                  .staging = SHUNT_MOE_OUT,
                                  .bias = staged.arg[1].use,
                                  .dst = staged.arg[2].use,
                                  .weighted = weighted(plan),
                              },
                              shunti_staged_request(&staged, request));
    return shunti_staged_begun(&staged, st, request);
}

enum shunt_status shunt_moe_combine(struct shunt_moe_plan *plan,
                                    const void *out, const void *bias, void *y)
{
    return combine(plan, NULL, out, bias, y, NULL);
}

enum shunt_status shunt_moe_combine_start(struct shunt_moe_plan *plan,
                                          const void *out, const void *bias,
                                          void *y,
                                          struct shunt_request **request)
{
    if (!request)
        return shunti_moe_call_no_request(&combine_call, plan);
    *request = NULL;
    return combine(plan, NULL, out, bias, y, request);
}

enum shunt_status shunt_moe_combine_part(struct shunt_moe_plan *plan, int part,
                                         const void *out, const void *bias,
                                         void *y)
{
    return combine(plan, &part, out, bias, y, NULL);
}

enum shunt_status shunt_moe_combine_part_start(struct shunt_moe_plan *plan,
                                               int part, const void *out,
                                               const void *bias, void *y,
                                               struct shunt_request **request)
{
    if (!request)
        return shunti_moe_call_no_request(&combine_call, plan);
    *request = NULL;
    return combine(plan, &part, out, bias, y, request);
}

static struct shunti_span products_span(const struct shunti_plan *plan,
                                        const float *dweight)
{
    return (struct shunti_span){"dweight", dweight,
                                plan->tokens * (size_t)plan->moe->config.topk *
                                    sizeof(*dweight)};
}

/* True if this rank offers its `out` to the other ranks. A rank with tokens
 * does so if it wants dweight. The dweight of a rank without tokens is an empty
 * array, and does not say whether other ranks want theirs. So it offers `out`
 * if it has no rows, or if `out` is given and is not partly overwritten. */
static bool offers(const struct shunti_plan *plan, const void *out,
                   const void *dout, const float *dweight)
{
    const struct shunti_span results = shunti_rows_span(plan, "out", out);
    const struct shunti_span gradient = shunti_rows_span(plan, "dout", dout);

    if (plan->tokens)
        return dweight != NULL;
    return !plan->received.total ||
           (out && (out == dout || !shunti_spans_overlap(&results, &gradient)));
}

/* Check the arguments of the gradient. `dout` may be the same memory as `out`,
 * since each row is read before it is written. */
static enum shunt_status check_gradient(struct shunti_plan *plan,
                                        const void *dy, const void *out,
                                        const void *dout, const float *dweight)
{
    const struct shunti_moe_call *call = &combine_backward_call;
    const struct shunti_span products = products_span(plan, dweight);
    const struct shunti_span results = shunti_rows_span(plan, "out", out);
    const struct shunti_span gradient = shunti_rows_span(plan, "dout", dout);
    const struct shunti_span input = shunti_tokens_span(plan, "dy", dy);
    enum shunt_status st;

    if (!dweight || !plan->tokens) /* offers() decides whether others may read
                                      `out` */
        return SHUNT_OK;
    if (!out && plan->received.total)
        return shunti_moe_call_refuse(call, plan, SHUNT_ERR_INVALID,
                                      "out is NULL, and dweight is wanted");
    st = shunti_moe_call_check_apart(call, plan, &results, &gradient, true);
    if (!st)
        st = shunti_moe_call_check_apart(call, plan, &gradient, &products,
                                         false);
    if (!st)
        st =
            shunti_moe_call_check_apart(call, plan, &results, &products, false);
    if (!st)
        st = shunti_moe_call_check_apart(call, plan, &input, &products, false);
    return st;
}

/* Stage the arguments of the gradient. out: NULL unless it is offered. */
static enum shunt_status
stage_gradient(struct shunti_plan *plan, struct shunti_cut cut, const void *dy,
               const void *out, void *dout, float *dweight,
               struct shunti_staged *staged, unsigned *device)
{
    const struct shunti_moe_call *call = &combine_backward_call;

    shunti_staged_init(staged, cut);
    shunti_staged_add(staged, shunti_tokens_span(plan, "dy", dy),
                      SHUNTI_STAGED_IN);
    shunti_staged_add(staged, shunti_rows_span(plan, "out", out),
                      SHUNTI_STAGED_IN | SHUNTI_STAGED_ROWS);
    shunti_staged_add(staged, shunti_rows_span(plan, "dout", dout),
                      SHUNTI_STAGED_OUT | SHUNTI_STAGED_ROWS);
    shunti_staged_add(staged, products_span(plan, dweight), SHUNTI_STAGED_OUT);
    *device = 0;
    return weighted(plan) || out || dweight
               ? shunti_stage(call, plan, staged)
               : shunti_stage_copies(call, plan, staged, device);
}

static enum shunt_status combine_backward(struct shunt_moe_plan *handle,
                                          const int *part, const void *dy,
                                          const void *out, void *dout,
                                          size_t max_rows, float *dweight,
                                          struct shunt_request **request)
{
    const struct shunti_moe_call *call = &combine_backward_call;
    struct shunti_cut cut;
    struct shunti_staged staged;
    unsigned device;
    bool offered;
    enum shunt_status st;
    SHUNTI_TRACK(LIBRARY);
    struct shunti_plan *plan = shunti_moe_call_plan(call, handle, &st);

    if (!plan)
        return st;
    st = shunti_moe_call_check_rows(call, plan, "dout", dout, max_rows, "dy",
                                    dy);
    if (!st)
        st = check_gradient(plan, dy, out, dout, dweight);
    if (!st)
        st = shunti_moe_call_cut(call, plan, part, &cut);
    if (st)
        return st;
    offered = offers(plan, out, dout, dweight);
    dweight = plan->tokens ? dweight : NULL;
    st = stage_gradient(plan, cut, dy, offered ? out : NULL, dout, dweight,
                        &staged, &device);
    if (st)
        return st;
    st = shunti_route_dispatch(call, plan,
                               &(struct shunti_push){
                                   .cut = cut,
                                   .src = staged.arg[0].use,
                                   .dst = staged.arg[2].use,
                                   .arrivals = SHUNT_MOE_DOUT,
                                   .weighted = weighted(plan),
                                   .offers = offered,
                                   .out = staged.arg[1].use,
                                   .dweight = staged.arg[3].use,
                                   .device = device,
                               },
                               shunti_staged_request(&staged, request));
    return shunti_staged_begun(&staged, st, request);
}

enum shunt_status shunt_moe_combine_backward(struct shunt_moe_plan *plan,
                                             const void *dy, const void *out,
                                             void *dout, size_t max_rows,
                                             float *dweight)
{
    return combine_backward(plan, NULL, dy, out, dout, max_rows, dweight, NULL);
}

enum shunt_status
shunt_moe_combine_backward_start(struct shunt_moe_plan *plan, const void *dy,
                                 const void *out, void *dout, size_t max_rows,
                                 float *dweight, struct shunt_request **request)
{
    if (!request)
        return shunti_moe_call_no_request(&combine_backward_call, plan);
    *request = NULL;
    return combine_backward(plan, NULL, dy, out, dout, max_rows, dweight,
                            request);
}

enum shunt_status shunt_moe_combine_backward_part(struct shunt_moe_plan *plan,
                                                  int part, const void *dy,
                                                  const void *out, void *dout,
                                                  size_t max_rows,
                                                  float *dweight)
{
    return combine_backward(plan, &part, dy, out, dout, max_rows, dweight,
                            NULL);
}

enum shunt_status shunt_moe_combine_backward_part_start(
    struct shunt_moe_plan *plan, int part, const void *dy, const void *out,
    void *dout, size_t max_rows, float *dweight, struct shunt_request **request)
{
    if (!request)
        return shunti_moe_call_no_request(&combine_backward_call, plan);
    *request = NULL;
    return combine_backward(plan, &part, dy, out, dout, max_rows, dweight,
                            request);
}
