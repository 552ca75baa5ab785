// SPDX-License-Identifier: Apache-2.0
/*
 * The protocol between a rank and the root.
 *
 *     rank -> root   hello      magic, nonce, rank, nranks, timeout, how long
 *                               it has been trying (milliseconds), its process
 *                               and host, and the root's start (rank 0)
 *     root -> rank   challenge  magic, nonce, the id's tag
 *     rank -> root   proof
 *     root -> rank   WELCOME (proof), or REFUSED (as status, why)
 *     root -> rank   READY (salt): all ranks have joined
 *
 * then, any number of times,
 *
 *     rank -> root   GATHER (blob)
 *     root -> rank   ALL (lengths, blobs)
 *
 * and BYE from the rank. After WELCOME the root may send ERROR instead of any
 * other message: status, text, and optionally a zero byte and the numbers of
 * the ranks that did not join, 4 bytes each. A rank may send ABORT (text)
 * instead of any other message. Messages in capitals are frames: a header of 16
 * bytes, then `bytes` more. Numbers are little endian.
 */
#ifndef SHUNTI_BOOTSTRAP_WIRE_H
#define SHUNTI_BOOTSTRAP_WIRE_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "src/boot/auth.h"
#include "src/boot/id.h"

#define SHUNTI_WIRE_MAGIC "shuntbs3" /* 8 bytes */
#define SHUNTI_WIRE_MAGIC_BYTES ((size_t)8)
#define SHUNTI_WIRE_HELLO_BYTES ((size_t)108)
#define SHUNTI_WIRE_CHALLENGE_BYTES ((size_t)56)
#define SHUNTI_WIRE_PROOF_BYTES ((size_t)SHUNTI_KEY_BYTES)
#define SHUNTI_WIRE_HEADER_BYTES ((size_t)16)
#define SHUNTI_WIRE_TEXT_MAX ((size_t)1024)
#define SHUNTI_WIRE_SALT_BYTES ((size_t)32)

/* Time limit of a handshake on either side, in seconds. */
#define SHUNTI_WIRE_HANDSHAKE_SECONDS 10.0

/* If poll(2) returns this much later than its timeout, this process was stopped
 * meanwhile. Deadlines for other processes are then extended by the delay. */
#define SHUNTI_WIRE_STOPPED_SECONDS 0.25

enum shunti_wire_type {
    SHUNTI_WIRE_WELCOME = 1,
    SHUNTI_WIRE_REFUSED,
    SHUNTI_WIRE_READY,
    SHUNTI_WIRE_GATHER,
    SHUNTI_WIRE_ALL,
    SHUNTI_WIRE_ERROR,
    SHUNTI_WIRE_ABORT,
    SHUNTI_WIRE_BYE,
};

enum shunti_wire_refusal {
    SHUNTI_WIRE_WRONG_SECRET,
    SHUNTI_WIRE_WRONG_USER,
};

struct shunti_wire_header {
    uint32_t type;
    int32_t status; /* only of ERROR and REFUSED */
    uint64_t bytes; /* bytes that follow the header */
};

static inline void shunti_wire_put32(unsigned char *out, uint32_t value)
{
    value = htole32(value);
    memcpy(out, &value, sizeof(value));
}

static inline void shunti_wire_put64(unsigned char *out, uint64_t value)
{
    value = htole64(value);
    memcpy(out, &value, sizeof(value));
}

static inline uint32_t shunti_wire_get32(const unsigned char *in)
{
    uint32_t value;

    memcpy(&value, in, sizeof(value));
    return le32toh(value);
}

static inline uint64_t shunti_wire_get64(const unsigned char *in)
{
    uint64_t value;

    memcpy(&value, in, sizeof(value));
    return le64toh(value);
}

static inline void shunti_wire_put_header(unsigned char *out, uint32_t type,
                                          int32_t status, uint64_t bytes)
{
    shunti_wire_put32(out, type);
    shunti_wire_put32(out + 4, (uint32_t)status);
    shunti_wire_put64(out + 8, bytes);
}

static inline struct shunti_wire_header
shunti_wire_get_header(const unsigned char *in)
{
    return (struct shunti_wire_header){
        .type = shunti_wire_get32(in),
        .status = (int32_t)shunti_wire_get32(in + 4),
        .bytes = shunti_wire_get64(in + 8),
    };
}

/* Read or write a hello, the rank's part of the transcript. The magic is
 * checked separately. */
static inline void
shunti_wire_put_hello(unsigned char *out,
                      const struct shunti_auth_transcript *transcript)
{
    memcpy(out, SHUNTI_WIRE_MAGIC, SHUNTI_WIRE_MAGIC_BYTES);
    memcpy(out + 8, transcript->rank_nonce, SHUNTI_NONCE_BYTES);
    shunti_wire_put32(out + 40, (uint32_t)transcript->rank);
    shunti_wire_put32(out + 44, (uint32_t)transcript->nranks);
    shunti_wire_put32(out + 48, transcript->timeout_ms);
    shunti_wire_put32(out + 52, transcript->waited_ms);
    shunti_wire_put32(out + 56, transcript->pid);
    memcpy(out + 60, transcript->host, SHUNTI_HOST_BYTES);
    memcpy(out + 92, transcript->start, SHUNTI_START_BYTES);
}

static inline void
shunti_wire_get_hello(const unsigned char *in,
                      struct shunti_auth_transcript *transcript)
{
    memcpy(transcript->rank_nonce, in + 8, SHUNTI_NONCE_BYTES);
    transcript->rank = (int32_t)shunti_wire_get32(in + 40);
    transcript->nranks = (int32_t)shunti_wire_get32(in + 44);
    transcript->timeout_ms = shunti_wire_get32(in + 48);
    transcript->waited_ms = shunti_wire_get32(in + 52);
    transcript->pid = shunti_wire_get32(in + 56);
    memcpy(transcript->host, in + 60, SHUNTI_HOST_BYTES);
    memcpy(transcript->start, in + 92, SHUNTI_START_BYTES);
}

/* Seconds on the monotonic clock. */
double shunti_wire_now(void);

/* Milliseconds for poll(2) until `deadline`, rounded up, at least 0. */
int shunti_wire_poll_ms(double deadline);

/*
 * Run the root (bootstrap_root.c) on a listening socket.
 *
 * listen_fd  owned by the root from now on; closed if this fails.
 * parts      of the id; copied.
 * names      (nranks) numbers of the ranks in errors; copied.
 * nranks     0: errors use the ranks' own numbers.
 * failure    NULL, or the text of a failure before the start. The root then
 *            only sends the text to ranks that connect, at most `nranks`, for
 *            some seconds.
 *
 * Returns 0 or an errno.
 */
int shunti_root_start(int listen_fd, const struct shunti_id_parts *parts,
                      double timeout, const int *names, int nranks,
                      const char *failure);

/* Does this process run a root, which may still be listening? */
bool shunti_root_is_running(void);

#endif
