// SPDX-License-Identifier: Apache-2.0
/*
 * The root's side of the handshake: hello, challenge, proof, and the refusal of
 * a peer whose proof is wrong.
 */
#include "src/base/limits.h"
#include "src/boot/bootstrap_root.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/log.h"
#include "src/boot/bootstrap.h"
#include "src/boot/peer_user.h"

void shunti_root_refuse(struct shunti_conn *c, const char *why)
{
    shunti_info("bootstrap", "refused a connection from %s: %s", c->from, why);
    shunti_conn_close(c);
}

static void on_hello(const struct shunti_root *root, struct shunti_conn *c)
{
    struct shunti_reply *challenge;

    shunti_wire_get_hello(c->in, &c->transcript);
    /* The challenge is not a frame: after its hello a rank expects exactly
     * these bytes. */
    challenge = malloc(sizeof(*challenge) + SHUNTI_WIRE_CHALLENGE_BYTES);
    if (!challenge ||
        !shunti_auth_random(c->transcript.root_nonce, SHUNTI_NONCE_BYTES)) {
        free(challenge);
        shunti_root_refuse(c, "no memory");
        return;
    }
    challenge->refs = 1;
    challenge->len = SHUNTI_WIRE_CHALLENGE_BYTES;
    memcpy(challenge->bytes, SHUNTI_WIRE_MAGIC, SHUNTI_WIRE_MAGIC_BYTES);
    memcpy(challenge->bytes + SHUNTI_WIRE_MAGIC_BYTES, c->transcript.root_nonce,
           SHUNTI_NONCE_BYTES);
    memcpy(challenge->bytes + SHUNTI_WIRE_MAGIC_BYTES + SHUNTI_NONCE_BYTES,
           root->parts.tag, SHUNTI_TAG_BYTES);
    shunti_conn_send(c, challenge);
    shunti_reply_release(challenge);
    c->stage = SHUNTI_CONN_PROOF;
    c->in_used = 0;
}

/* Send only the reason. The peer stays unauthenticated, and keeps its
 * deadline. */
static void send_refusal(struct shunti_conn *c, enum shunti_wire_refusal why)
{
    struct shunti_reply *refused =
        shunti_reply_new(SHUNTI_WIRE_REFUSED, why, 0);
    double deadline = c->deadline;

    if (!shunti_conn_send(c, refused))
        shunti_conn_close(c);
    else
        shunti_conn_leave(c);
    c->deadline = deadline;
    shunti_reply_release(refused);
}

/* May this be a rank of this job that has another SHUNT_SECRET? False if that
 * rank has joined, or all ranks have. Also false for an id that the program
 * distributed, since such an id holds the secret. */
static bool is_plausible_rank(const struct shunti_root *root,
                              const struct shunti_auth_transcript *transcript)
{
    return root->parts.flags & SHUNTI_ID_RETRY && transcript->nranks >= 1 &&
           transcript->nranks <= SHUNTI_RANKS_MAX && transcript->rank >= 0 &&
           transcript->rank < transcript->nranks &&
           (!root->nranks || root->joined < root->nranks) &&
           !(transcript->rank < root->nranks &&
             root->members[transcript->rank]);
}

/*
 * The proof is wrong. The peer may be a rank of this job with another
 * SHUNT_SECRET, or any other program. Its claims count only if the kernel says
 * that it is a process of this user, because such a process could do worse harm
 * anyway. In that case the init fails for all ranks.
 */
static void on_wrong_proof(struct shunti_root *root, struct shunti_conn *c,
                           enum shunti_peer_user user)
{
    shunti_info("bootstrap",
                "refused a connection from %s, which calls itself rank %d of "
                "%d: it does not know the secret of this communicator",
                c->from, c->transcript.rank, c->transcript.nranks);
    send_refusal(c, SHUNTI_WIRE_WRONG_SECRET);
    if (user == SHUNTI_USER_OURS && is_plausible_rank(root, &c->transcript))
        shunti_root_fail(
            root, SHUNT_ERR_MISMATCH,
            "rank %d was given another SHUNT_SECRET than rank 0: it must "
            "be the same on all ranks",
            c->transcript.rank);
}

static void on_proof(struct shunti_root *root, struct shunti_conn *c)
{
    bool public = root->parts.flags & SHUNTI_ID_PUBLIC;
    unsigned char expected[SHUNTI_KEY_BYTES];
    enum shunti_peer_user user;
    bool authenticated;

    shunti_auth_prove(root->parts.secret, SHUNTI_AUTH_RANK, &c->transcript,
                      expected);
    c->in_used = 0;
    authenticated = shunti_auth_equal(expected, c->in, sizeof(expected));
    /* Finding the user of a TCP peer on this host takes milliseconds. Do it
     * only if the result matters. */
    user = shunti_peer_user(
        c->fd,
        authenticated ? public : is_plausible_rank(root, &c->transcript));
    if (user == SHUNTI_USER_GONE) {
        shunti_root_refuse(c, "it left with its proof");
    } else if (user == SHUNTI_USER_OTHER &&
               (public || root->parts.kind == SHUNTI_ID_LOCAL)) {
        shunti_info("bootstrap",
                    "refused a connection from %s, which calls itself rank %d "
                    "of %d: it runs as another user",
                    c->from, c->transcript.rank, c->transcript.nranks);
        send_refusal(c, SHUNTI_WIRE_WRONG_USER);
    } else if (user == SHUNTI_USER_HIDDEN && !authenticated) {
        shunti_root_refuse(c, "the kernel does not say whose it is");
    } else if (user == SHUNTI_USER_HIDDEN) {
        shunti_root_fail(root, SHUNT_ERR_SYSTEM,
                         "the kernel does not tell rank 0 which user a rank "
                         "runs as: %s (is getsockopt denied, by a filter of "
                         "seccomp?)",
                         strerror(errno));
        shunti_root_admit(root, c); /* sends the failure to this rank */
    } else if (authenticated) {
        shunti_root_admit(root, c);
    } else {
        on_wrong_proof(root, c, user);
    }
}

void shunti_root_handshake(struct shunti_root *root, struct shunti_conn *c)
{
    while (c->fd >= 0 &&
           (c->stage == SHUNTI_CONN_HELLO || c->stage == SHUNTI_CONN_PROOF)) {
        size_t want = c->stage == SHUNTI_CONN_HELLO ? SHUNTI_WIRE_HELLO_BYTES
                                                    : SHUNTI_WIRE_PROOF_BYTES;
        size_t known;
        ssize_t n =
            shunti_conn_receive(c, c->in + c->in_used, want - c->in_used);

        if (n == 0)
            return;
        if (n < 0) {
            shunti_root_refuse(c,
                               "it left before it proved to know the secret");
            return;
        }
        c->in_used += (size_t)n;
        known = c->in_used < SHUNTI_WIRE_MAGIC_BYTES ? c->in_used
                                                     : SHUNTI_WIRE_MAGIC_BYTES;
        if (c->stage == SHUNTI_CONN_HELLO &&
            memcmp(c->in, SHUNTI_WIRE_MAGIC, known)) {
            shunti_root_refuse(c, "it does not speak our protocol");
            return;
        }
        if (c->in_used < want)
            return;
        if (c->stage == SHUNTI_CONN_HELLO)
            on_hello(root, c);
        else
            on_proof(root, c);
    }
}
