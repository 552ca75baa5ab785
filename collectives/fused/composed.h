// SPDX-License-Identifier: Apache-2.0
/*
 * The frame of both fused calls: a request that is made of other requests
 * (shunti_request_compose()), and that ends as a blocking call or as a `_start`
 * call.
 *
 * The ranks must agree on the terms (terms.h) before anything is written. A
 * small blocking call that needs only one collective skips that step. Its
 * collective has a digest of the terms (`digest` of src/op/request.h). The
 * received data stay in scratch memory until the collective has succeeded. If
 * the ranks disagree, all of them notice that in the collective. A rank whose
 * arguments are wrong sends a refusal in place of the collective. Then all
 * ranks begin again, and gather the terms. So each rank learns what is wrong.
 */
#ifndef SHUNTI_FUSED_COMPOSED_H
#define SHUNTI_FUSED_COMPOSED_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/fused/terms.h"
#include "src/op/request.h"

struct shunti_fused_call {
    struct shunt_comm *comm;
    const void *args;
    enum shunti_purpose purpose;
    bool start; /* true for a `_start` call, which returns `*request` */
    struct shunt_request **request;
    const struct shunti_class *class;
    size_t state_bytes;
    /* Check the arguments and allocate all memory, on this rank alone. Returns
     * false after a refusal. *trusts: in, whether the call may skip the
     * gathering of terms; out, whether it does. */
    bool (*prepare)(struct shunt_request *request, const void *args,
                    struct shunti_terms *terms, bool *trusts);
    /* Begin the call, once the ranks have agreed. options: for the collectives
     * that it starts. Errors are recorded in the request. */
    void (*begin)(struct shunt_request *request,
                  const struct shunti_options *options);
};

enum shunt_status shunti_fused_call(const struct shunti_fused_call *call);

/* Record the error `status` of a part of the request. Does nothing if it is
 * SHUNT_OK. */
void shunti_composed_note(struct shunt_request *request,
                          enum shunt_status status);

/* True if the communicator has failed. Then nothing more is begun, and
 * operations under way end at once. After any other error, this rank still
 * makes all calls that the other ranks make. */
bool shunti_composed_lost(const struct shunt_request *request);

/* Test a part of the request, or wait for it. Returns true when the part is
 * over. Then *part is NULL, and the error of the part, if any, is recorded. */
bool shunti_composed_over(struct shunt_request *request,
                          struct shunt_request **part, bool wait);

#endif
