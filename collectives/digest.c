// SPDX-License-Identifier: Apache-2.0
/* Disagreement about digests; see digest.h. */
#include "collectives/digest.h"

#include "src/comm.h"
#include "src/op/request.h"

void shunti_digest_disagrees(struct shunt_request *request, uint32_t signature)
{
    struct shunti_above *above = &request->comm->above;

    if (!request->digest)
        return;
    above->disagreed = true;
    if (shunti_purpose_of(signature) != shunti_purpose_of(request->signature))
        above->strayed = true;
}
