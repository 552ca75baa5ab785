// SPDX-License-Identifier: Apache-2.0
/*
 * Proofs that a rank knows the communicator's secret: HMAC-SHA-256 (RFC 2104)
 * over a label, the two ranks, and a nonce of each rank. So a proof cannot be
 * used again, by another rank, or in the other direction.
 */
#ifndef TRANSPORT_PROOF_H
#define TRANSPORT_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRANSPORT_PROOF_MAX 32
#define TRANSPORT_NONCE 32

struct transport_proof {
    const unsigned char *secret; /* (32) shunt_transport_params.secret */
    const char *label;           /* names the transport and the side */
    int32_t from, to; /* the rank that proves, and the rank that checks */
    /* (TRANSPORT_NONCE bytes each) the nonces of the two ranks, in an order
     * that both ranks know */
    const unsigned char *nonces[2];
};

/* Write the first `bytes` of the proof to `out`. `bytes` is at most
 * TRANSPORT_PROOF_MAX. */
void transport_prove(const struct transport_proof *proof, unsigned char *out,
                     size_t bytes);
/* Is `found` the right proof? Compares in constant time. */
bool transport_proven(const struct transport_proof *proof,
                      const unsigned char *found, size_t bytes);

#endif
