// SPDX-License-Identifier: Apache-2.0
/*
 * A rank's connection to the root: connect and handshake.
 *
 * A rank retries until its timeout if the root may not be up yet (ids from the
 * environment), if the root dropped it in a flood of unauthenticated peers, or
 * if the root of another job still has the port. It fails at once if retrying
 * cannot help: nothing listens where an id was made, or the secrets differ.
 */
#include "src/bootstrap_join.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/bootstrap.h"
#include "src/bootstrap_io.h"
#include "src/bootstrap_wire.h"
#include "src/error.h"
#include "src/log.h"
#include "src/peer_user.h"

#define BACKOFF_MIN 0.005
#define BACKOFF_MAX 0.2
#define NOT_SHUNT_SECONDS 1.0 /* another program has the port */

enum outcome {
    JOINED,
    RETRY,         /* may work later */
    FATAL,         /* will never work */
    NO_DESCRIPTOR, /* this process is out of them: as FATAL */
    NOT_SHUNT,     /* another program: FATAL if it stays, or without
                      SHUNTI_ID_RETRY */
    OTHER_JOB,     /* meets there: FATAL without SHUNTI_ID_RETRY */
    NOT_LISTENING, /* FATAL without SHUNTI_ID_RETRY */
};

static const char *refusal(int32_t reason)
{
    return reason == SHUNTI_WIRE_WRONG_USER
               ? "it refused us: it runs as another user"
               : "it refused us: the secret is not the same (another job's "
                 "id, or another SHUNT_SECRET?)";
}

/* One attempt: connect, and prove the secret. If it fails, `why` says why. */
static enum outcome try_join(const struct shunti_id_parts *parts,
                             struct shunti_auth_transcript *transcript,
                             double deadline, struct shunti_parent *parent,
                             int *fd_out, char *why, size_t why_len)
{
    unsigned char bytes[SHUNTI_WIRE_HELLO_BYTES];
    unsigned char proof[SHUNTI_KEY_BYTES];
    struct shunti_wire_header header;
    double until = shunti_wire_now() + SHUNTI_WIRE_HANDSHAKE_SECONDS;
    enum outcome result = RETRY;
    enum shunti_io io;
    int fd;

    if (until > deadline)
        until = deadline;
    fd = shunti_io_connect(parts, until, parent);
    if (fd < 0) {
        snprintf(why, why_len, "%s%s", strerror(errno), shunti_remedy(errno));
        if (errno == EMFILE || errno == ENFILE)
            return NO_DESCRIPTOR;
        return errno == ECONNREFUSED ? NOT_LISTENING : RETRY;
    }
    if (shunti_io_is_other_user(fd, why, why_len)) {
        close(fd);
        return FATAL;
    }

    if (!shunti_auth_random(transcript->rank_nonce, SHUNTI_NONCE_BYTES)) {
        snprintf(why, why_len, "no random numbers");
        close(fd);
        return RETRY;
    }
    shunti_wire_put_hello(bytes, transcript);
    io = shunti_io_send(fd, bytes, SHUNTI_WIRE_HELLO_BYTES, until, parent);
    /* Another program may send less than a challenge, and then wait or close.
     * So compare the magic byte by byte. */
    for (size_t i = 0; !io && i < SHUNTI_WIRE_MAGIC_BYTES; i++) {
        io = shunti_io_receive(fd, bytes + i, 1, until, parent);
        if (io || bytes[i] == (unsigned char)SHUNTI_WIRE_MAGIC[i])
            continue;
        snprintf(why, why_len,
                 "what listens there is not Shunt, or another release of it: "
                 "is the port in use (SHUNT_PORT sets another)?");
        result = NOT_SHUNT;
        goto out;
    }
    if (!io)
        io = shunti_io_receive(fd, bytes + SHUNTI_WIRE_MAGIC_BYTES,
                               SHUNTI_WIRE_CHALLENGE_BYTES -
                                   SHUNTI_WIRE_MAGIC_BYTES,
                               until, parent);
    if (io)
        goto broken;
    if (shunti_peer_user(fd, parts->flags & SHUNTI_ID_PUBLIC) ==
        SHUNTI_USER_OTHER) {
        snprintf(why, why_len,
                 "what listens there runs as another user: run all ranks as "
                 "one");
        result = FATAL;
        goto out;
    }
    if (memcmp(bytes + SHUNTI_WIRE_MAGIC_BYTES + SHUNTI_NONCE_BYTES, parts->tag,
               SHUNTI_TAG_BYTES)) {
        snprintf(why, why_len,
                 "the ranks of another job, or of another "
                 "communicator of this one, meet there");
        result = OTHER_JOB;
        goto out;
    }
    memcpy(transcript->root_nonce, bytes + SHUNTI_WIRE_MAGIC_BYTES,
           SHUNTI_NONCE_BYTES);
    shunti_auth_prove(parts->secret, SHUNTI_AUTH_RANK, transcript, proof);
    io = shunti_io_send(fd, proof, sizeof(proof), until, parent);
    if (!io)
        io = shunti_io_receive(fd, bytes, SHUNTI_WIRE_HEADER_BYTES, until,
                               parent);
    if (io)
        goto broken;
    header = shunti_wire_get_header(bytes);
    if (header.type == SHUNTI_WIRE_REFUSED) {
        snprintf(why, why_len, "%s", refusal(header.status));
        result = FATAL;
        goto out;
    }
    io = SHUNTI_IO_CLOSED;
    if (header.type == SHUNTI_WIRE_WELCOME &&
        header.bytes == SHUNTI_WIRE_PROOF_BYTES)
        io = shunti_io_receive(fd, bytes, SHUNTI_WIRE_PROOF_BYTES, until,
                               parent);
    if (io)
        goto broken;
    shunti_auth_prove(parts->secret, SHUNTI_AUTH_ROOT, transcript, proof);
    if (!shunti_auth_equal(proof, bytes, sizeof(proof))) {
        snprintf(why, why_len, "what listens there does not know the secret");
        result = FATAL;
        goto out;
    }
    *fd_out = fd;
    return JOINED;

broken:
    snprintf(why, why_len, "%s",
             io == SHUNTI_IO_TIMEOUT ? "it does not answer"
                                     : "it closed the connection");
out:
    close(fd);
    return result;
}

static uint32_t milliseconds(double seconds)
{
    return seconds < 4e6 ? (uint32_t)(seconds * 1e3) : 4000000000u;
}

/* The second address of the id, if it has one. */
static bool other_place(const struct shunti_id_parts *parts,
                        struct shunti_id_parts *other)
{
    if (!parts->other)
        return false;
    *other = *parts;
    other->kind = parts->other;
    return true;
}

enum shunt_status shunti_bootstrap_connect(const struct shunti_id_parts *parts,
                                           struct shunti_bootstrap *bs,
                                           double start, double deadline)
{
    bool retry = parts->flags & SHUNTI_ID_RETRY;
    struct shunti_id_parts other = {0};
    bool elsewhere = other_place(parts, &other);
    double backoff = BACKOFF_MIN, not_shunt_since = start;
    char why[192] = "";
    enum outcome outcome;

    for (;;) {
        double now = shunti_wire_now();
        struct shunti_auth_transcript transcript = {
            .rank = bs->rank,
            .nranks = bs->nranks,
            .timeout_ms = milliseconds(bs->timeout),
            .waited_ms = milliseconds(now - start),
        };

        outcome = try_join(parts, &transcript, deadline, bs->parent, &bs->fd,
                           why, sizeof(why));
        if (outcome == JOINED)
            return SHUNT_OK;
        if (shunti_parent_cancelled(bs->parent))
            return shunti_parent_error(bs->parent);
        shunti_debug("bootstrap", "root %s: %s", bs->where, why);
        if (outcome == FATAL || outcome == NO_DESCRIPTOR ||
            (outcome != RETRY && !retry))
            break;
        if (elsewhere) {
            char ignored[192];

            if (try_join(&other, &transcript, deadline, bs->parent, &bs->fd,
                         ignored, sizeof(ignored)) == JOINED)
                return SHUNT_OK;
        }
        now = shunti_wire_now();
        if (outcome != NOT_SHUNT)
            not_shunt_since = now;
        if (now >= deadline || now - not_shunt_since > NOT_SHUNT_SECONDS)
            break;
        shunti_io_sleep(deadline - now < backoff ? deadline - now : backoff);
        backoff = backoff * 2 < BACKOFF_MAX ? backoff * 2 : BACKOFF_MAX;
    }

    if (outcome == NO_DESCRIPTOR)
        return shunti_fail(NULL, SHUNT_ERR_SYSTEM,
                           "rank %d: no connection to %s: %s", bs->name,
                           bs->where, why);
    if (!retry && outcome == NOT_LISTENING)
        return shunti_fail(NULL, SHUNT_ERR_PEER,
                           "rank %d: no process listens at %s: the one that "
                           "made the id has ended, or the id is used up (it "
                           "serves one communicator, and waits SHUNT_TIMEOUT "
                           "for its first rank)",
                           bs->name, bs->where);
    if (outcome == FATAL || outcome == NOT_SHUNT ||
        (!retry && outcome == OTHER_JOB))
        return shunti_fail(NULL, SHUNT_ERR_MISMATCH, "rank %d: %s: %s",
                           bs->name, bs->where, why);
    if (bs->parent)
        shunti_parent_blame(bs->parent, bs->parent->root);
    return shunti_fail(NULL, SHUNT_ERR_TIMEOUT,
                       "rank %d of %d could not join at %s within %g s: %s%s",
                       bs->name, bs->nranks, bs->where, bs->timeout, why,
                       !retry     ? ""
                       : bs->rank ? "; is rank 0 running, and at this address?"
                                  : "; is this an address of rank 0's host?");
}
