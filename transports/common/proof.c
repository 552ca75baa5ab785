// SPDX-License-Identifier: Apache-2.0
/* Proofs of the communicator's secret; see proof.h. */
#include "transports/common/proof.h"

#include <string.h>

#include <nettle/hmac.h>
#include <nettle/memops.h>

void transport_prove(const struct transport_proof *proof, unsigned char *out,
                     size_t bytes)
{
    const int32_t ranks[2] = {proof->from, proof->to};
    struct hmac_sha256_ctx hmac;

    hmac_sha256_set_key(&hmac, 32, proof->secret);
    /* Include the terminating 0, so that no label is the beginning of
     * another. */
    hmac_sha256_update(&hmac, strlen(proof->label) + 1,
                       (const uint8_t *)proof->label);
    hmac_sha256_update(&hmac, sizeof(ranks), (const uint8_t *)ranks);
    for (int i = 0; i < 2; i++)
        hmac_sha256_update(&hmac, TRANSPORT_NONCE, proof->nonces[i]);
    hmac_sha256_digest(&hmac, bytes, out);
    explicit_bzero(&hmac, sizeof(hmac));
}

bool transport_proven(const struct transport_proof *proof,
                      const unsigned char *found, size_t bytes)
{
    unsigned char good[TRANSPORT_PROOF_MAX];
    bool same;

    transport_prove(proof, good, bytes);
    same = memeql_sec(good, found, bytes);
    explicit_bzero(good, sizeof(good));
    return same;
}
