// SPDX-License-Identifier: Apache-2.0
/*
 * How a rank gets its connection to the root.
 *
 * A rank knocks until its time is over: a root that is not up yet (ids from
 * the environment), one that was busy with strangers and dropped us, a port
 * that another job's root still has, are all reasons to come again. What is
 * hopeless ends at once: nobody listens where an id was made, or the secrets
 * differ.
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
#define NOT_SHUNT_SECONDS 1.0 /* no root of ours will come to that port */

enum knock {
    IN,       /* welcome */
    AGAIN,    /* may be better later */
    HOPELESS, /* at once */
    LACKING,  /* of what this process needs to knock; likewise */
    ALIEN,    /* listens: hopeless if it stays, or the id is not patient */
    OTHERS,   /* meet there: hopeless if the id is not patient */
    NOBODY,   /* listens; likewise */
};

static const char *refusal(int32_t reason)
{
    return reason == SHUNTI_WIRE_WRONG_USER
               ? "it refused us: it runs as another user"
               : "it refused us: the secret is not the same (another job's "
                 "id, or another SHUNT_SECRET?)";
}

/*
 * One attempt at being let in; `why` says what stood against it.
 */
static enum knock knock(const struct shunti_id_parts *parts,
                        struct shunti_auth_talk *talk, double deadline,
                        struct shunti_parent *parent, int *fd_out, char *why,
                        size_t why_len)
{
    unsigned char bytes[SHUNTI_WIRE_HELLO_BYTES];
    unsigned char proof[SHUNTI_KEY_BYTES];
    struct shunti_wire_header header;
    double until = shunti_wire_now() + SHUNTI_WIRE_HANDSHAKE_SECONDS;
    enum knock result = AGAIN;
    enum shunti_io io;
    int fd;

    if (until > deadline)
        until = deadline;
    fd = shunti_io_connect(parts, until, parent);
    if (fd < 0) {
        snprintf(why, why_len, "%s%s", strerror(errno), shunti_remedy(errno));
        if (errno == EMFILE || errno == ENFILE)
            return LACKING;
        return errno == ECONNREFUSED ? NOBODY : AGAIN;
    }
    if (shunti_io_is_held(fd, why, why_len)) {
        close(fd);
        return HOPELESS;
    }

    if (!shunti_auth_random(talk->rank_nonce, SHUNTI_NONCE_BYTES)) {
        snprintf(why, why_len, "no random numbers");
        close(fd);
        return AGAIN;
    }
    shunti_wire_put_hello(bytes, talk);
    io = shunti_io_send(fd, bytes, SHUNTI_WIRE_HELLO_BYTES, until, parent);
    /* What is not Shunt may say less than a challenge, and wait or hang up. */
    for (size_t i = 0; !io && i < SHUNTI_WIRE_MAGIC_BYTES; i++) {
        io = shunti_io_receive(fd, bytes + i, 1, until, parent);
        if (io || bytes[i] == (unsigned char)SHUNTI_WIRE_MAGIC[i])
            continue;
        snprintf(why, why_len,
                 "what listens there is not Shunt, or another release of it: "
                 "is the port in use (SHUNT_PORT sets another)?");
        result = ALIEN;
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
        result = HOPELESS;
        goto out;
    }
    if (memcmp(bytes + SHUNTI_WIRE_MAGIC_BYTES + SHUNTI_NONCE_BYTES, parts->tag,
               SHUNTI_TAG_BYTES)) {
        snprintf(why, why_len,
                 "the ranks of another job, or of another "
                 "communicator of this one, meet there");
        result = OTHERS;
        goto out;
    }
    memcpy(talk->root_nonce, bytes + SHUNTI_WIRE_MAGIC_BYTES,
           SHUNTI_NONCE_BYTES);
    shunti_auth_prove(parts->secret, SHUNTI_AUTH_RANK, talk, proof);
    io = shunti_io_send(fd, proof, sizeof(proof), until, parent);
    if (!io)
        io = shunti_io_receive(fd, bytes, SHUNTI_WIRE_HEADER_BYTES, until,
                               parent);
    if (io)
        goto broken;
    header = shunti_wire_get_header(bytes);
    if (header.type == SHUNTI_WIRE_REFUSED) {
        snprintf(why, why_len, "%s", refusal(header.status));
        result = HOPELESS;
        goto out;
    }
    io = SHUNTI_IO_CLOSED;
    if (header.type == SHUNTI_WIRE_WELCOME &&
        header.bytes == SHUNTI_WIRE_PROOF_BYTES)
        io = shunti_io_receive(fd, bytes, SHUNTI_WIRE_PROOF_BYTES, until,
                               parent);
    if (io)
        goto broken;
    shunti_auth_prove(parts->secret, SHUNTI_AUTH_ROOT, talk, proof);
    if (!shunti_auth_equal(proof, bytes, sizeof(proof))) {
        snprintf(why, why_len, "what listens there does not know the secret");
        result = HOPELESS;
        goto out;
    }
    *fd_out = fd;
    return IN;

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

/* The other place to look at, if there is one. */
static bool other_place(const struct shunti_id_parts *parts,
                        struct shunti_id_parts *other)
{
    if (!parts->other)
        return false;
    *other = *parts;
    other->kind = parts->other;
    return true;
}

/* Knock until we are in or the time is over. */
enum shunt_status shunti_bootstrap_connect(const struct shunti_id_parts *parts,
                                           struct shunti_bootstrap *bs,
                                           double start, double deadline)
{
    bool patient = parts->flags & SHUNTI_ID_PATIENT;
    struct shunti_id_parts other = {0};
    bool elsewhere = other_place(parts, &other);
    double backoff = BACKOFF_MIN, alien_since = start;
    char why[192] = "";
    enum knock k;

    for (;;) {
        double now = shunti_wire_now();
        struct shunti_auth_talk talk = {
            .rank = bs->rank,
            .nranks = bs->nranks,
            .timeout_ms = milliseconds(bs->timeout),
            .waited_ms = milliseconds(now - start),
        };

        k = knock(parts, &talk, deadline, bs->parent, &bs->fd, why,
                  sizeof(why));
        if (k == IN)
            return SHUNT_OK;
        if (shunti_parent_gives_up(bs->parent))
            return shunti_parent_error(bs->parent);
        shunti_debug("bootstrap", "root %s: %s", bs->where, why);
        if (k == HOPELESS || k == LACKING || (k != AGAIN && !patient))
            break;
        if (elsewhere) {
            char ignored[192];

            if (knock(&other, &talk, deadline, bs->parent, &bs->fd, ignored,
                      sizeof(ignored)) == IN)
                return SHUNT_OK;
        }
        now = shunti_wire_now();
        if (k != ALIEN)
            alien_since = now;
        if (now >= deadline || now - alien_since > NOT_SHUNT_SECONDS)
            break;
        shunti_io_sleep(deadline - now < backoff ? deadline - now : backoff);
        backoff = backoff * 2 < BACKOFF_MAX ? backoff * 2 : BACKOFF_MAX;
    }

    if (k == LACKING)
        return shunti_fail(NULL, SHUNT_ERR_SYSTEM,
                           "rank %d: no connection to %s: %s", bs->name,
                           bs->where, why);
    if (!patient && k == NOBODY)
        return shunti_fail(NULL, SHUNT_ERR_PEER,
                           "rank %d: nobody listens at %s: the process that "
                           "made the id has ended, or the id is used up (it "
                           "serves one communicator, and waits SHUNT_TIMEOUT "
                           "for its first rank)",
                           bs->name, bs->where);
    if (k == HOPELESS || k == ALIEN || (!patient && k == OTHERS))
        return shunti_fail(NULL, SHUNT_ERR_MISMATCH, "rank %d: %s: %s",
                           bs->name, bs->where, why);
    if (bs->parent)
        shunti_parent_blame(bs->parent, bs->parent->root);
    return shunti_fail(NULL, SHUNT_ERR_TIMEOUT,
                       "rank %d of %d could not join at %s within %g s: %s%s",
                       bs->name, bs->nranks, bs->where, bs->timeout, why,
                       !patient   ? ""
                       : bs->rank ? "; is rank 0 running, and at this address?"
                                  : "; is this an address of rank 0's host?");
}
