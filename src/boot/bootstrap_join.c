// SPDX-License-Identifier: Apache-2.0
/*
 * A rank's connection to the root: connect and handshake.
 *
 * A rank retries until its timeout in three cases. The root may not be up yet
 * (ids from the environment). The root may have dropped it in a flood of
 * unauthenticated peers. The root of another job may still have the port. A
 * rank fails at once if retrying cannot help: nothing listens where an id was
 * made, or the secrets differ.
 */
#include "src/boot/bootstrap_join.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/boot/bootstrap.h"
#include "src/boot/bootstrap_io.h"
#include "src/boot/bootstrap_wire.h"
#include "src/boot/peer_user.h"

#define BACKOFF_MIN 0.005
#define BACKOFF_MAX 0.2
/* Seconds to connect to one of several addresses. The first round allows
 * PATIENCE_MIN. An address that has not answered within PATIENCE_MAX is not
 * tried again. */
#define PATIENCE_MIN 0.5
#define PATIENCE_MAX 4.0
#define HANDSHAKE_MIN 1.5
/* Try the spare port after this time. Until then rank 0 may still be trying to
 * listen at the port of the id. */
#define SPARE_SECONDS 0.8
#define NOT_SHUNT_SECONDS 2.0 /* fail if another program has the port so long */
#define WHY 192               /* bytes of a reason */

enum outcome {
    JOINED,
    RETRY,         /* may work later */
    FATAL,         /* will never work */
    NO_DESCRIPTOR, /* this process has no descriptor or memory left: as FATAL */
    NOT_SHUNT,     /* another program listens: FATAL if it keeps listening, or
                      without SHUNTI_ID_RETRY */
    OTHER_JOB,     /* the root there serves another job or communicator: FATAL
                      without SHUNTI_ID_RETRY */
    NOT_LISTENING, /* nobody listens: FATAL without SHUNTI_ID_RETRY */
};

static const char *refusal(int32_t reason)
{
    return reason == SHUNTI_WIRE_WRONG_USER
               ? "it refused us: it runs as another user"
               : "it refused us: the secret is not the same (another job's "
                 "id, or another SHUNT_SECRET?)";
}

/* The state of joining, with the addresses that this rank tries. */
struct attempt {
    const struct shunti_id_parts *parts;
    struct shunti_bootstrap *bs;
    double start, deadline;
    int order[1 + SHUNTI_ID_MORE], count; /* order of the addresses */
    double patience; /* limit for connecting to one of several addresses */
    /* Seconds to wait for the root's challenge. The program that listens there
     * may not be a root, and may never send anything. */
    double handshake;
    char why[WHY];
};

static uint32_t milliseconds(double seconds)
{
    return seconds < 4e6 ? (uint32_t)(seconds * 1e3) : 4000000000u;
}

/* Fill in the hello of this rank. */
static void introduce(const struct attempt *a, double now,
                      struct shunti_auth_transcript *transcript)
{
    *transcript = (struct shunti_auth_transcript){
        .rank = a->bs->rank,
        .nranks = a->bs->nranks,
        .timeout_ms = milliseconds(a->bs->timeout),
        .waited_ms = milliseconds(now - a->start),
        .pid = (uint32_t)getpid(),
    };
    (void)gethostname(transcript->host, sizeof(transcript->host) - 1);
    memcpy(transcript->start, a->parts->start, sizeof(transcript->start));
}

/* Connect to the first address of `parts` within `patience` seconds, and prove
 * the secret. On failure `why` (WHY bytes) holds the reason. */
static enum outcome try_join(const struct attempt *a,
                             const struct shunti_id_parts *parts,
                             double patience, char *why)
{
    unsigned char bytes[SHUNTI_WIRE_HELLO_BYTES];
    unsigned char proof[SHUNTI_KEY_BYTES];
    struct shunti_parent *parent = a->bs->parent;
    struct shunti_wire_header header;
    const double now = shunti_wire_now();
    struct shunti_auth_transcript transcript;
    double until = now + a->handshake;
    enum outcome result = RETRY;
    enum shunti_peer_user user;
    enum shunti_io io;
    int fd;

    introduce(a, now, &transcript);
    if (until > a->deadline)
        until = a->deadline;
    fd = shunti_io_connect(
        parts, now + patience < until ? now + patience : until, parent);
    if (fd < 0) {
        snprintf(why, WHY, "%s%s", strerror(errno), shunti_remedy(errno));
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
            errno == ENOBUFS)
            return NO_DESCRIPTOR;
        return errno == ECONNREFUSED ? NOT_LISTENING : RETRY;
    }
    if (shunti_io_is_other_user(fd, why, WHY)) {
        close(fd);
        return FATAL;
    }

    if (!shunti_auth_random(transcript.rank_nonce, SHUNTI_NONCE_BYTES)) {
        snprintf(why, WHY, "the kernel gives no random numbers: %s",
                 strerror(errno));
        close(fd);
        return FATAL;
    }
    shunti_wire_put_hello(bytes, &transcript);
    io = shunti_io_send(fd, bytes, SHUNTI_WIRE_HELLO_BYTES, until, parent);
    /* Another program may send less than a challenge, and then wait or close.
     * So compare the magic byte by byte. */
    for (size_t i = 0; !io && i < SHUNTI_WIRE_MAGIC_BYTES; i++) {
        io = shunti_io_receive(fd, bytes + i, 1, until, parent);
        if (io || bytes[i] == (unsigned char)SHUNTI_WIRE_MAGIC[i])
            continue;
        snprintf(why, WHY,
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
    user = shunti_peer_user(fd, parts->flags & SHUNTI_ID_PUBLIC);
    if (user == SHUNTI_USER_HIDDEN && parts->flags & SHUNTI_ID_START)
        user =
            SHUNTI_USER_OURS; /* the root is in this process, and notifies the
                                 others */
    if (user == SHUNTI_USER_HIDDEN)
        snprintf(why, WHY,
                 "the kernel does not say which user listens there: %s (is "
                 "getsockopt denied, by a filter of seccomp?)",
                 strerror(errno));
    if (user == SHUNTI_USER_OTHER) {
        snprintf(why, WHY,
                 "what listens there runs as another user: run all ranks as "
                 "one");
        result = FATAL;
        goto out;
    }
    if (memcmp(bytes + SHUNTI_WIRE_MAGIC_BYTES + SHUNTI_NONCE_BYTES, parts->tag,
               SHUNTI_TAG_BYTES)) {
        snprintf(why, WHY,
                 "the ranks of another job, or of another "
                 "communicator of this one, meet there");
        result = OTHER_JOB;
        goto out;
    }
    memcpy(transcript.root_nonce, bytes + SHUNTI_WIRE_MAGIC_BYTES,
           SHUNTI_NONCE_BYTES);
    until = shunti_wire_now() + SHUNTI_WIRE_HANDSHAKE_SECONDS;
    if (until > a->deadline)
        until = a->deadline;
    shunti_auth_prove(parts->secret, SHUNTI_AUTH_RANK, &transcript, proof);
    io = shunti_io_send(fd, proof, sizeof(proof), until, parent);
    if (!io)
        io = shunti_io_receive(fd, bytes, SHUNTI_WIRE_HEADER_BYTES, until,
                               parent);
    if (io)
        goto broken;
    header = shunti_wire_get_header(bytes);
    if (header.type == SHUNTI_WIRE_REFUSED) {
        snprintf(why, WHY, "%s", refusal(header.status));
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
    shunti_auth_prove(parts->secret, SHUNTI_AUTH_ROOT, &transcript, proof);
    if (!shunti_auth_equal(proof, bytes, sizeof(proof))) {
        snprintf(why, WHY, "what listens there does not know the secret");
        result = FATAL;
        goto out;
    }
    a->bs->fd = fd;
    if (user != SHUNTI_USER_HIDDEN)
        return JOINED;
    /* Notify the other ranks, which would wait for this rank otherwise. */
    shunti_bootstrap_abort(a->bs, why);
    a->bs->fd = -1;
    result = FATAL;
    goto out;

broken:
    snprintf(why, WHY, "%s",
             io == SHUNTI_IO_TIMEOUT ? "it does not answer"
                                     : "it closed the connection");
out:
    close(fd);
    return result;
}

/* Rank 0's own addresses of its root. If the root listens on all addresses,
 * rank 0 may not reach the one that other ranks use. So it tries the loopback
 * addresses, and the address of `parts`. False: use the addresses of
 * `parts`. */
static bool own_places(const struct shunti_id_parts *parts,
                       struct shunti_id_parts *own)
{
    static const unsigned char loopback[4] = {127, 0, 0, 1};

    if (parts->kind == SHUNTI_ID_LOCAL || !(parts->flags & SHUNTI_ID_START) ||
        !(parts->flags & SHUNTI_ID_ANY))
        return false;
    *own = *parts;
    own->kind = SHUNTI_ID_IPV4;
    own->scope = 0;
    memset(own->address, 0, sizeof(own->address));
    memcpy(own->address, loopback, sizeof(loopback));
    own->nmore = 2; /* the second is the address of `parts`, for hosts without
                       loopback */
    own->more[0] = (struct shunti_id_place){.kind = SHUNTI_ID_IPV6};
    own->more[0].address[15] = 1;
    own->more[1] = (struct shunti_id_place){.kind = parts->kind};
    memcpy(own->more[1].address, parts->address, sizeof(parts->address));
    return true;
}

/* Try the spare port. If rank 0 cannot listen at the port of the id, it sends
 * its error there. */
static bool try_spare(const struct attempt *a)
{
    struct shunti_id_parts spare = *a->parts;
    char ignored[WHY];
    bool joined;

    if (spare.kind == SHUNTI_ID_LOCAL)
        return false;
    spare.port = shunti_id_spare_port(&spare);
    joined = try_join(a, &spare, PATIENCE_MIN, ignored) == JOINED;
    explicit_bzero(&spare, sizeof(spare));
    return joined;
}

/* Set `other` to the second address of the id. False: the id has none. */
static bool other_place(const struct shunti_id_parts *parts,
                        struct shunti_id_parts *other)
{
    if (!parts->other)
        return false;
    *other = *parts;
    other->kind = parts->other;
    return true;
}

/* The position of an outcome in `order`. The first outcome there says most
 * about the root. */
static int weight(enum outcome outcome)
{
    static const enum outcome order[] = {
        NO_DESCRIPTOR, FATAL, OTHER_JOB, NOT_SHUNT, NOT_LISTENING, RETRY};
    int i = 0;

    while (order[i] != outcome)
        i++;
    return i;
}

/*
 * Try each address of the id once. An address that does not answer takes
 * `patience` seconds. Such an address may lead to another host, as the address
 * of a container bridge does. Later rounds double `patience`. Returns the
 * outcome that says most about the root.
 */
static enum outcome try_each(struct attempt *a)
{
    enum outcome most = RETRY;

    for (int i = 0; i < a->count; i++) {
        struct shunti_id_parts one;
        enum outcome outcome;
        char why[sizeof(a->why)] = "";

        (void)shunti_id_nth(a->parts, a->order[i], &one);
        outcome = try_join(a, &one, a->count > 1 ? a->patience : INFINITY, why);
        if (outcome == JOINED)
            shunti_id_describe(&one, a->bs->where, sizeof(a->bs->where));
        explicit_bzero(&one, sizeof(one));
        if (outcome == JOINED || shunti_parent_cancelled(a->bs->parent))
            return outcome;
        shunti_debug("bootstrap", "root %s, address %d: %s", a->bs->where,
                     a->order[i], why);
        if (!i || weight(outcome) < weight(most)) {
            most = outcome;
            memcpy(a->why, why, sizeof(why));
        }
        if (outcome == FATAL || outcome == NO_DESCRIPTOR)
            break;
    }
    a->patience *= 2;
    return most;
}

/* The error of a rank that gave up. */
static enum shunt_status cannot_join(const struct attempt *a,
                                     enum outcome outcome)
{
    const bool retry = a->parts->flags & SHUNTI_ID_RETRY;
    struct shunti_bootstrap *bs = a->bs;
    char where[160], whose[48] = "";

    shunti_id_describe_all(a->parts, where, sizeof(where));
    if (outcome == NO_DESCRIPTOR)
        return shunti_fail(NULL, SHUNT_ERR_SYSTEM,
                           "rank %d: no connection to %s: %s", bs->name, where,
                           a->why);
    if (bs->parent)
        snprintf(whose, sizeof(whose), ", in rank %d", bs->parent->root);
    if (!retry && outcome == NOT_LISTENING)
        return shunti_fail(NULL, SHUNT_ERR_PEER,
                           "rank %d: no process listens at %s%s: the one that "
                           "made the id has ended, or the id is used up (it "
                           "serves one communicator, and waits SHUNT_TIMEOUT "
                           "for its first rank)",
                           bs->name, where, whose);
    if (outcome == FATAL || outcome == NOT_SHUNT ||
        (!retry && outcome == OTHER_JOB))
        return shunti_fail(NULL, SHUNT_ERR_MISMATCH, "rank %d: %s: %s",
                           bs->name, where, a->why);
    if (bs->parent)
        shunti_parent_blame(bs->parent, bs->parent->root);
    return shunti_fail(
        NULL, SHUNT_ERR_TIMEOUT,
        "rank %d of %d could not join at %s%s within %g s: %s%s", bs->name,
        bs->nranks, where, whose, a->deadline - a->start, a->why,
        !retry     ? "; set SHUNT_HOST, where the id is made, to an address or "
                     "interface that all ranks reach"
        : bs->rank ? "; is rank 0 running, and at this address?"
                   : "; is this an address of rank 0's host?");
}

enum shunt_status shunti_bootstrap_connect(const struct shunti_id_parts *parts,
                                           struct shunti_bootstrap *bs,
                                           double start, double deadline)
{
    const bool retry = parts->flags & SHUNTI_ID_RETRY;
    struct attempt a = {.parts = parts,
                        .bs = bs,
                        .start = start,
                        .deadline = deadline,
                        .patience = PATIENCE_MIN,
                        .handshake = SHUNTI_WIRE_HANDSHAKE_SECONDS};
    struct shunti_id_parts own, other = {0};
    bool elsewhere = other_place(parts, &other);
    double backoff = BACKOFF_MIN, not_shunt_since = start, now;
    enum outcome outcome;

    if (own_places(parts, &own))
        a.parts = &own;
    if (retry)
        a.handshake = HANDSHAKE_MIN;
    a.count = shunti_id_order(a.parts, a.order);
    for (;;) {
        outcome = try_each(&a);
        if (outcome == JOINED)
            return SHUNT_OK;
        if (shunti_parent_cancelled(bs->parent))
            return shunti_parent_error(bs->parent);
        if (outcome == FATAL || outcome == NO_DESCRIPTOR)
            break;
        /* Continue if one of several addresses may be the root's, and slow to
         * answer. */
        if (outcome != RETRY && !retry &&
            (a.count == 1 || a.patience > PATIENCE_MAX))
            break;
        if (elsewhere) {
            char ignored[WHY];

            if (try_join(&a, &other, INFINITY, ignored) == JOINED)
                return SHUNT_OK;
        }
        now = shunti_wire_now();
        if (retry && now - start > SPARE_SECONDS && try_spare(&a))
            return SHUNT_OK;
        a.handshake = fmin(a.handshake * 2, SHUNTI_WIRE_HANDSHAKE_SECONDS);
        if (outcome != NOT_SHUNT)
            not_shunt_since = now;
        if (now >= deadline || now - not_shunt_since > NOT_SHUNT_SECONDS)
            break;
        shunti_io_sleep(deadline - now < backoff ? deadline - now : backoff);
        backoff = backoff * 2 < BACKOFF_MAX ? backoff * 2 : BACKOFF_MAX;
    }
    return cannot_join(&a, outcome);
}

bool shunti_bootstrap_try(const struct shunti_id_parts *parts,
                          struct shunti_bootstrap *bs, double deadline)
{
    struct attempt a = {.parts = parts,
                        .bs = bs,
                        .start = shunti_wire_now(),
                        .deadline = deadline,
                        .handshake = SHUNTI_WIRE_HANDSHAKE_SECONDS};
    struct shunti_id_parts own, one;
    bool joined = false;

    if (own_places(parts, &own))
        a.parts = &own;
    for (int i = 0; !joined && shunti_id_nth(a.parts, i, &one) &&
                    (!i || parts->kind != SHUNTI_ID_LOCAL);
         i++)
        joined = try_join(&a, &one, INFINITY, a.why) == JOINED;
    return joined;
}
