// SPDX-License-Identifier: Apache-2.0
/*
 * Proofs, derived keys and digests: HMAC-SHA256 (RFC 2104) and SHA-256 by
 * nettle.
 */
#include "src/boot/auth.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>

#include "transports/common/descriptor.h"

void shunti_auth_prove(const unsigned char secret[SHUNTI_KEY_BYTES],
                       enum shunti_auth_side side,
                       const struct shunti_auth_transcript *transcript,
                       unsigned char proof[SHUNTI_KEY_BYTES])
{
    /* The labels have the same length, so that the HMAC's input is
     * unambiguous. */
    static const char labels[2][16] = {"shunt join rank", "shunt join root"};
    uint32_t rank = htole32((uint32_t)transcript->rank);
    uint32_t nranks = htole32((uint32_t)transcript->nranks);
    uint32_t timeout = htole32(transcript->timeout_ms);
    uint32_t waited = htole32(transcript->waited_ms);
    uint32_t pid = htole32(transcript->pid);
    struct hmac_sha256_ctx ctx;

    hmac_sha256_set_key(&ctx, SHUNTI_KEY_BYTES, secret);
    hmac_sha256_update(&ctx, sizeof(labels[0]),
                       (const uint8_t *)labels[side == SHUNTI_AUTH_ROOT]);
    hmac_sha256_update(&ctx, SHUNTI_NONCE_BYTES, transcript->rank_nonce);
    hmac_sha256_update(&ctx, SHUNTI_NONCE_BYTES, transcript->root_nonce);
    hmac_sha256_update(&ctx, sizeof(rank), (const uint8_t *)&rank);
    hmac_sha256_update(&ctx, sizeof(nranks), (const uint8_t *)&nranks);
    hmac_sha256_update(&ctx, sizeof(timeout), (const uint8_t *)&timeout);
    hmac_sha256_update(&ctx, sizeof(waited), (const uint8_t *)&waited);
    hmac_sha256_update(&ctx, sizeof(pid), (const uint8_t *)&pid);
    hmac_sha256_update(&ctx, SHUNTI_HOST_BYTES,
                       (const uint8_t *)transcript->host);
    hmac_sha256_update(&ctx, SHUNTI_START_BYTES, transcript->start);
    hmac_sha256_digest(&ctx, SHUNTI_KEY_BYTES, proof);
}

void shunti_auth_derive(const unsigned char secret[SHUNTI_KEY_BYTES],
                        const char *label, const void *salt, size_t salt_len,
                        unsigned char out[SHUNTI_KEY_BYTES])
{
    struct hmac_sha256_ctx ctx;

    hmac_sha256_set_key(&ctx, SHUNTI_KEY_BYTES, secret);
    hmac_sha256_update(&ctx, strlen(label) + 1, (const uint8_t *)label);
    if (salt_len)
        hmac_sha256_update(&ctx, salt_len, salt);
    hmac_sha256_digest(&ctx, SHUNTI_KEY_BYTES, out);
}

bool shunti_auth_equal(const void *a, const void *b, size_t len)
{
    return memeql_sec(a, b, len);
}

void shunti_auth_digest(const void *data, size_t len,
                        unsigned char out[SHUNTI_KEY_BYTES])
{
    struct sha256_ctx ctx;

    sha256_init(&ctx);
    sha256_update(&ctx, len, data);
    sha256_digest(&ctx, SHUNTI_KEY_BYTES, out);
}

/* Read /dev/urandom: used if a filter denies getrandom(). */
static bool read_device(unsigned char *bytes, size_t len)
{
    int fd = shunti_fd_lift(open("/dev/urandom", O_RDONLY | O_CLOEXEC)), error;
    bool all;

    if (fd < 0)
        return false;
    all = read(fd, bytes, len) == (ssize_t)len; /* read() returns less only
                                                   beyond 256 bytes */
    error = errno;
    close(fd);
    errno = error;
    return all;
}

bool shunti_auth_random(void *out, size_t len)
{
    unsigned char *bytes = out;

    while (len) {
        ssize_t n = getrandom(bytes, len, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return read_device(bytes, len);
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}
