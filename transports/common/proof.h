// SPDX-License-Identifier: Apache-2.0
/*
 * Proofs that a rank knows the communicator's secret: HMAC-SHA-256 (RFC 2104)
 * over what is proven, between which ranks, and a nonce of either. So a proof
 * cannot be used again, by another rank, or in the other direction.
 */
#ifndef TRANSPORT_PROOF_H
#define TRANSPORT_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRANSPORT_PROOF_MAX 32
#define TRANSPORT_NONCE 32

struct transport_proof {
    const unsigned char *secret;    /* (32) shunt_transport_params.secret */
    const char *label;              /* the transport, and what is proven */
    int32_t from, to;               /* ranks */
    const unsigned char *nonces[2]; /* (TRANSPORT_NONCE) in an order that both
                                       sides know */
};

/* The first `bytes` of it, at most TRANSPORT_PROOF_MAX. */
void transport_prove(const struct transport_proof *proof, unsigned char *out,
                     size_t bytes);
/* Is it what it should be? In constant time. */
bool transport_proven(const struct transport_proof *proof,
                      const unsigned char *found, size_t bytes);

#endif
