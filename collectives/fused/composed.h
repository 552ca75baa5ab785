// SPDX-License-Identifier: Apache-2.0
/*
 * What both fused calls have in common: a request that is made of others
 * (shunti_request_compose()), and ends as a blocking call or as `_start`.
 *
 * The ranks must agree before anything is written (terms.h). A small blocking
 * call of one collective need not ask first: it hands that collective a digest of
 * the terms (`digest` of src/op/request.h), and keeps what it brings in scratch memory
 * until it has ended well. If the ranks disagree, all of them find so in this
 * operation; a rank whose arguments are wrong refuses in its place. Then all begin
 * again, and ask, which tells each what is wrong.
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
    enum shunti_purpose_fused purpose;
    bool start; /* a `_start` call: returns `*request` */
    struct shunt_request **request;
    const struct shunti_class *class;
    size_t state_bytes;
    /* Check the arguments, and get all memory: local. False: refused. *trusts:
     * in, whether the call may be made without asking first; out, whether it is
     * to be. */
    bool (*prepare)(struct shunt_request *request, const void *args,
                    struct shunti_terms *terms, bool *trusts);
    /* The ranks have agreed: begin. Errors are recorded. */
    void (*begin)(struct shunt_request *request);
};

enum shunt_status shunti_fused_call(const struct shunti_fused_call *call);

/* A part of the request ended with `status`: record an error. */
void shunti_composed_note(struct shunt_request *request,
                          enum shunt_status status);

/* Has the communicator failed? Then nothing more is begun, and whatever is under
 * way ends at once. After any other error this rank goes on to make all calls
 * that the others make. */
bool shunti_composed_lost(const struct shunt_request *request);

/* Test a part, or wait for it. True: it is over (and *part NULL); its error, if
 * there is one, is recorded. */
bool shunti_composed_over(struct shunt_request *request,
                          struct shunt_request **part, bool wait);

#endif
