// SPDX-License-Identifier: Apache-2.0
/*
 * Mutual challenge-response authentication with a shared secret: a proof is an
 * HMAC-SHA256 over fresh nonces of both sides. The secret is never sent.
 *
 * A proof covers the side that proves, so that it cannot be reflected. It
 * covers both nonces, so that it cannot be replayed. It also covers the rank's
 * claims about itself. Rank 0 of a launcher's job also proves that it was
 * started together with the root.
 */
#ifndef SHUNTI_AUTH_H
#define SHUNTI_AUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHUNTI_KEY_BYTES 32
#define SHUNTI_NONCE_BYTES 32
#define SHUNTI_START_BYTES 16
#define SHUNTI_HOST_BYTES 32

enum shunti_auth_side { SHUNTI_AUTH_RANK, SHUNTI_AUTH_ROOT };

/* The data that a proof covers. Both sides know all of it. */
struct shunti_auth_transcript {
    unsigned char rank_nonce[SHUNTI_NONCE_BYTES];
    unsigned char root_nonce[SHUNTI_NONCE_BYTES];
    int32_t rank;
    int32_t nranks;
    uint32_t timeout_ms;
    uint32_t waited_ms;
    uint32_t pid; /* the rank's process; errors name the process and `host` */
    char host[SHUNTI_HOST_BYTES];
    /* Random bytes of the root, which rank 0 of a launcher's job sends back. */
    unsigned char start[SHUNTI_START_BYTES];
};

void shunti_auth_prove(const unsigned char secret[SHUNTI_KEY_BYTES],
                       enum shunti_auth_side side,
                       const struct shunti_auth_transcript *transcript,
                       unsigned char proof[SHUNTI_KEY_BYTES]);

/* Derive a key for another use: the HMAC of the label, a zero, and the salt. */
void shunti_auth_derive(const unsigned char secret[SHUNTI_KEY_BYTES],
                        const char *label, const void *salt, size_t salt_len,
                        unsigned char out[SHUNTI_KEY_BYTES]);

/* Compare in a time that does not depend on the contents. */
bool shunti_auth_equal(const void *a, const void *b, size_t len);

/* The SHA-256 of some data. */
void shunti_auth_digest(const void *data, size_t len,
                        unsigned char out[SHUNTI_KEY_BYTES]);

/* Random bytes from the kernel. False: the kernel has none. */
bool shunti_auth_random(void *out, size_t len);

#endif
