// SPDX-License-Identifier: Apache-2.0
/* Disagreement about digests; see digest.h. */
#include "collectives/digest.h"

#include "collectives/coll_state.h"
#include "src/op/request.h"

void shunti_digest_disagrees(struct shunt_request *request, uint32_t signature)
{
    struct shunti_coll_state *coll = shunti_coll_state(request->comm);

    if (!request->digest)
        return;
    coll->disagreed = true;
    if (shunti_purpose_of(signature) != shunti_purpose_of(request->signature))
        coll->strayed = true;
}
