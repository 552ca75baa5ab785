// SPDX-License-Identifier: Apache-2.0
/*
 * The root's members: authenticated peers with a rank.
 *
 * This file checks the claims of a peer against the other members, and notifies
 * all members when the last one has joined. It gathers a blob from each member
 * and sends all blobs to each. At a deadline it finds the missing ranks.
 */
#include "src/base/limits.h"
#include "src/boot/bootstrap_root.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/log.h"
#include "src/boot/bootstrap.h"

#define GATHER_GRACE_SECONDS 0.5 /* see on_frame() */

/* --- admission ------------------------------------------------------------ */

bool shunti_root_is_complete(const struct shunti_root *root)
{
    return root->nranks && root->left == root->nranks;
}

/* Print "process 4711 on host a". */
static void print_process(const struct shunti_auth_transcript *transcript,
                          char *text, size_t len)
{
    char host[SHUNTI_HOST_BYTES];

    snprintf(host, sizeof(host), "%.*s", (int)sizeof(host) - 1,
             transcript->host);
    for (char *c = host; *c; c++)
        if (*c <= ' ' || *c > '~')
            *c = '?';
    snprintf(text, len, "process %lu on host %s",
             (unsigned long)transcript->pid, host);
}

/* Print that two processes claim one rank. `first` is NULL for this process. */
static void print_taken(const struct shunti_root *root,
                        const struct shunti_auth_transcript *first,
                        const struct shunti_auth_transcript *second, char *text,
                        size_t len)
{
    struct shunti_auth_transcript own = {.pid = (uint32_t)getpid()};
    char one[96], two[96];

    (void)gethostname(own.host, sizeof(own.host) - 1);
    print_process(first ? first : &own, one, sizeof(one));
    print_process(second, two, sizeof(two));
    snprintf(
        text, len,
        "rank %d (of %d) joined twice, as %s and as %s: each process needs "
        "a rank of its own%s",
        shunti_root_rank_name(root, second->rank), second->nranks, one, two,
        root->parts.flags & SHUNTI_ID_RETRY
            ? ", and each of two jobs at a time a MASTER_PORT or SHUNT_PORT "
              "of its own (PMI_JOBID under MPICH)"
            : "");
}

/* Is this rank 0 of another job? The rank 0 of this job runs the root, and has
 * the root's start (id.h). */
static bool is_other_start(const struct shunti_root *root,
                           const struct shunti_auth_transcript *transcript)
{
    return root->parts.flags & SHUNTI_ID_RETRY && transcript->rank == 0 &&
           memcmp(root->parts.start, transcript->start, SHUNTI_START_BYTES);
}

static bool is_taken(const struct shunti_root *root,
                     const struct shunti_auth_transcript *transcript)
{
    return root->nranks && transcript->rank >= 0 &&
           transcript->rank < root->nranks && root->members[transcript->rank];
}

/* Is the claim of an authenticated peer wrong? If so, `text` says why. */
static bool is_wrong_claim(const struct shunti_root *root,
                           const struct shunti_auth_transcript *transcript,
                           char *text, size_t len)
{
    if (transcript->nranks < 1 || transcript->nranks > SHUNTI_RANKS_MAX) {
        snprintf(text, len,
                 "rank %d joined with %d as the number of ranks; it must be 1 "
                 "to %d",
                 transcript->rank, transcript->nranks, SHUNTI_RANKS_MAX);
    } else if (root->nranks && transcript->nranks != root->nranks) {
        int other = 0;

        while (!root->members[other])
            other++;
        snprintf(text, len,
                 "rank %d says that there are %d ranks, rank %d that there "
                 "are %d",
                 transcript->rank, transcript->nranks, other, root->nranks);
    } else if (transcript->rank < 0 || transcript->rank >= transcript->nranks) {
        snprintf(text, len,
                 "a process joined as rank %d of %d; ranks are 0 to %d",
                 transcript->rank, transcript->nranks, transcript->nranks - 1);
    } else if (is_taken(root, transcript)) {
        print_taken(root, &root->members[transcript->rank]->transcript,
                    transcript, text, len);
    } else if (is_other_start(root, transcript)) {
        print_taken(root, NULL, transcript, text, len);
    } else {
        return false;
    }
    return true;
}

/* True if the peer may join. A wrong claim fails the init for all ranks, unless
 * the init is complete: then only the peer is refused. */
static bool has_place(struct shunti_root *root, struct shunti_conn *c)
{
    char text[400];

    if (!root->failure &&
        is_wrong_claim(root, &c->transcript, text, sizeof(text))) {
        if (shunti_root_is_complete(root)) {
            shunti_root_turn_away(root, c, text);
            return false;
        }
        shunti_root_fail(root, SHUNT_ERR_MISMATCH, "%s", text);
        if (is_taken(root, &c->transcript) ||
            is_other_start(root, &c->transcript))
            root->expected *= 2; /* the ranks of another job may connect, too */
    }
    if (root->failure)
        shunti_root_send_failure(root, c);
    return !root->failure;
}

static void all_joined(struct shunti_root *root)
{
    struct shunti_reply *ready =
        shunti_reply_new(SHUNTI_WIRE_READY, 0, SHUNTI_WIRE_SALT_BYTES);

    if (root->parts.flags & SHUNTI_ID_RETRY)
        shunti_root_hold(root);
    else
        shunti_root_close_listener(root); /* an id serves one communicator */
    shunti_root_release_spare(root);
    root->deadline = shunti_wire_now() + 2 * root->member_timeout;
    if (!ready || !shunti_auth_random(ready->bytes + SHUNTI_WIRE_HEADER_BYTES,
                                      SHUNTI_WIRE_SALT_BYTES)) {
        shunti_reply_release(ready);
        shunti_root_fail(root, SHUNT_ERR_MEMORY,
                         "the root has no memory or random numbers");
        return;
    }
    shunti_debug("bootstrap", "root %s: all %d ranks have joined", root->where,
                 root->nranks);
    for (int r = 0; r < root->nranks; r++) {
        struct shunti_conn *c = root->members[r];

        if (c->stage == SHUNTI_CONN_MEMBER && !shunti_conn_send(c, ready))
            /* Cannot happen: the outbox holds at most the WELCOME. */
            shunti_conn_close(c);
    }
    shunti_reply_release(ready);
}

void shunti_root_admit(struct shunti_root *root, struct shunti_conn *c)
{
    double now = shunti_wire_now();
    double timeout = c->transcript.timeout_ms * 1e-3;
    /* The rank's timeout began when it began to join. */
    double until = now + timeout - c->transcript.waited_ms * 1e-3;
    struct shunti_reply *welcome =
        shunti_reply_new(SHUNTI_WIRE_WELCOME, 0, SHUNTI_WIRE_PROOF_BYTES);

    c->rank = c->transcript.rank;
    c->authenticated = true;
    if (!welcome) {
        shunti_conn_close(c);
        return;
    }
    shunti_auth_prove(root->parts.secret, SHUNTI_AUTH_ROOT, &c->transcript,
                      welcome->bytes + SHUNTI_WIRE_HEADER_BYTES);
    shunti_conn_send(c, welcome);
    shunti_reply_release(welcome);

    if (c->transcript.nranks > root->expected &&
        c->transcript.nranks <= SHUNTI_RANKS_MAX)
        root->expected = c->transcript.nranks;
    if (!has_place(root, c))
        return;
    if (!root->nranks) {
        root->members =
            calloc((size_t)c->transcript.nranks, sizeof(*root->members));
        root->blobs =
            calloc((size_t)c->transcript.nranks, sizeof(*root->blobs));
        if (!root->members || !root->blobs) {
            shunti_root_fail(root, SHUNT_ERR_MEMORY,
                             "the root has no memory for %d ranks",
                             c->transcript.nranks);
            shunti_root_send_failure(root, c);
            return;
        }
        root->nranks = c->transcript.nranks;
        root->member_timeout = timeout;
        root->deadline = until;
    }
    if (timeout < root->member_timeout)
        root->member_timeout = timeout;
    if (until < root->deadline)
        root->deadline = until;
    c->stage = SHUNTI_CONN_MEMBER;
    root->members[c->rank] = c;
    shunti_debug("bootstrap", "root %s: rank %d of %d came from %s",
                 root->where, c->rank, root->nranks, c->from);
    if (++root->joined == root->nranks)
        all_joined(root);
}

/* --- gathering ------------------------------------------------------------ */

/* All blobs have arrived: send them to every member. */
static void finish_gather(struct shunti_root *root)
{
    size_t table = (size_t)root->nranks * 8, bytes = table;
    struct shunti_reply *all;
    unsigned char *out;

    for (int r = 0; r < root->nranks; r++)
        bytes += (root->blobs[r].len + 7) & ~(size_t)7;
    all = shunti_reply_new(SHUNTI_WIRE_ALL, 0, bytes);
    if (!all) {
        shunti_root_fail(root, SHUNT_ERR_MEMORY,
                         "the root has no memory for %zu bytes of addresses",
                         bytes);
        return;
    }
    out = all->bytes + SHUNTI_WIRE_HEADER_BYTES;
    memset(out, 0, bytes);
    for (int r = 0; r < root->nranks; r++)
        shunti_wire_put64(out + (size_t)r * 8, root->blobs[r].len);
    out += table;
    for (int r = 0; r < root->nranks; r++) {
        struct shunti_root_blob *b = &root->blobs[r];

        if (b->len)
            memcpy(out, b->data, b->len);
        out += (b->len + 7) & ~(size_t)7;
        free(b->data);
        *b = (struct shunti_root_blob){0};
    }
    root->gathered = 0;
    root->deadline = shunti_wire_now() + 2 * root->member_timeout;
    for (int r = 0; r < root->nranks; r++) {
        struct shunti_conn *c = root->members[r];

        if (c->fd >= 0 && c->stage == SHUNTI_CONN_MEMBER &&
            !shunti_conn_send(c, all))
            shunti_root_fail(root, SHUNT_ERR_PEER,
                             "rank %d does not read what the root sends",
                             shunti_root_rank_name(root, r));
    }
    shunti_reply_release(all);
}

static void on_frame(struct shunti_root *root, struct shunti_conn *c)
{
    struct shunti_root_blob *b = &root->blobs[c->rank];
    size_t bytes = (size_t)c->header.bytes;

    switch (c->header.type) {
    case SHUNTI_WIRE_GATHER:
        if (b->here || root->joined < root->nranks) {
            shunti_root_fail(
                root, SHUNT_ERR_MISMATCH,
                "rank %d sent out of turn: different releases of the "
                "library?",
                shunti_root_rank_name(root, c->rank));
            return;
        }
        b->here = true;
        b->data = c->body;
        b->len = bytes;
        c->body = NULL;
        /* A rank that has not sent yet may wait, in its transports, for another
         * rank to connect. It times out later, and knows which rank to blame.
         * So the root's deadline is a little longer than that timeout, but
         * shorter than the timeout of the ranks in this gather. */
        if (!root->gathered++)
            root->deadline =
                shunti_wire_now() + root->member_timeout + GATHER_GRACE_SECONDS;
        if (root->gathered == root->nranks)
            finish_gather(root);
        return;
    case SHUNTI_WIRE_ABORT:
        c->stage = SHUNTI_CONN_LEAVING; /* this rank is not notified */
        shunti_root_fail(root, SHUNT_ERR_REMOTE, "rank %d: %.*s",
                         shunti_root_rank_name(root, c->rank), (int)bytes,
                         c->body ? (const char *)c->body : "");
        shunti_conn_leave(c);
        return;
    case SHUNTI_WIRE_BYE:
        if (++root->left == root->nranks)
            root->deadline = shunti_wire_now() + SHUNTI_ROOT_HOLD_SECONDS;
        shunti_conn_leave(c);
        return;
    default:
        shunti_root_fail(
            root, SHUNT_ERR_MISMATCH,
            "rank %d sent an unknown message (%u): different releases of "
            "the library?",
            shunti_root_rank_name(root, c->rank), (unsigned)c->header.type);
    }
}

void shunti_root_check_left(struct shunti_root *root)
{
    if (root->failure || !root->gathered || !root->left)
        return;
    for (int r = 0; r < root->nranks; r++) {
        if (root->members[r]->stage == SHUNTI_CONN_LEAVING &&
            !root->blobs[r].here) {
            shunti_root_fail(
                root, SHUNT_ERR_PEER,
                "rank %d left while the communicator was being made",
                shunti_root_rank_name(root, r));
            return;
        }
    }
}

void shunti_root_member_lost(struct shunti_root *root, struct shunti_conn *c)
{
    int rank = shunti_root_rank_name(root, c->rank);

    shunti_conn_close(c);
    shunti_root_fail(
        root, SHUNT_ERR_PEER,
        "rank %d went away while the communicator was being made: it "
        "died, or gave up",
        rank);
}

/* Prepare for the body of the frame whose header has arrived. False: the header
 * is invalid, or memory ran out, and the init has failed. */
static bool start_body(struct shunti_root *root, struct shunti_conn *c)
{
    size_t limit = 0;

    c->header = shunti_wire_get_header(c->in);
    c->in_used = 0;
    if (c->header.type == SHUNTI_WIRE_GATHER)
        limit = SHUNTI_BLOB_MAX;
    else if (c->header.type == SHUNTI_WIRE_ABORT)
        limit = SHUNTI_WIRE_TEXT_MAX;
    if (c->header.bytes > limit) {
        shunti_root_fail(
            root, SHUNT_ERR_MISMATCH,
            "rank %d sent a message of type %u with %llu bytes, more than the "
            "root takes: different releases of the library?",
            shunti_root_rank_name(root, c->rank), (unsigned)c->header.type,
            (unsigned long long)c->header.bytes);
        return false;
    }
    c->in_body = true;
    c->body_used = 0;
    c->body = NULL;
    if (c->header.bytes)
        c->body = malloc((size_t)c->header.bytes);
    if (c->body || !c->header.bytes)
        return true;
    shunti_root_fail(root, SHUNT_ERR_MEMORY,
                     "the root has no memory for %llu bytes from rank %d",
                     (unsigned long long)c->header.bytes,
                     shunti_root_rank_name(root, c->rank));
    return false;
}

void shunti_root_read_member(struct shunti_root *root, struct shunti_conn *c)
{
    while (c->fd >= 0 && c->stage == SHUNTI_CONN_MEMBER) {
        ssize_t n;

        if (!c->in_body) {
            n = shunti_conn_receive(c, c->in + c->in_used,
                                    SHUNTI_WIRE_HEADER_BYTES - c->in_used);
            if (n == 0)
                return;
            if (n < 0) {
                shunti_root_member_lost(root, c);
                return;
            }
            c->in_used += (size_t)n;
            if (c->in_used < SHUNTI_WIRE_HEADER_BYTES)
                continue;
            if (!start_body(root, c))
                return;
        }
        if (c->body_used < c->header.bytes) {
            n = shunti_conn_receive(c, c->body + c->body_used,
                                    (size_t)c->header.bytes - c->body_used);
            if (n == 0)
                return;
            if (n < 0) {
                shunti_root_member_lost(root, c);
                return;
            }
            c->body_used += (size_t)n;
            if (c->body_used < c->header.bytes)
                continue;
        }
        c->in_body = false;
        on_frame(root, c);
        if (c->fd >= 0) {
            free(c->body);
            c->body = NULL;
        }
    }
}

/* --- deadlines ------------------------------------------------------------ */

/* Print the ranks for which `is` returns true: "2, 5 and 7 more". */
static void list_ranks(const struct shunti_root *root,
                       bool (*is)(const struct shunti_root *, int), char *text,
                       size_t len)
{
    int shown = 0, more = 0;
    size_t used = 0;

    text[0] = '\0';
    for (int r = 0; r < root->nranks; r++) {
        if (!is(root, r))
            continue;
        if (shown < 8) {
            used += (size_t)snprintf(text + used, len - used, "%s%d",
                                     shown ? ", " : "",
                                     shunti_root_rank_name(root, r));
            shown++;
        } else {
            more++;
        }
    }
    if (more)
        snprintf(text + used, len - used, " and %d more", more);
}

static bool is_missing(const struct shunti_root *root, int rank)
{
    return !root->members[rank];
}

static bool has_not_sent(const struct shunti_root *root, int rank)
{
    return !root->blobs[rank].here;
}

/* Is the id's address not one of this host? A service may forward to this host,
 * but it is more likely a mistake. */
static bool is_elsewhere(const struct shunti_root *root)
{
    return root->parts.kind != SHUNTI_ID_LOCAL &&
           root->parts.flags & SHUNTI_ID_RETRY &&
           !shunti_id_is_of_this_host(&root->parts);
}

void shunti_root_on_deadline(struct shunti_root *root)
{
    char ranks[160];

    if (shunti_root_is_complete(root)) {
        shunti_root_close_listener(root);
        root->deadline = shunti_wire_now() + SHUNTI_ROOT_LINGER_SECONDS;
    } else if (!root->nranks) {
        shunti_info("bootstrap",
                    "root %s: no rank joined within %g s; giving up",
                    root->where, root->timeout);
        root->failure = SHUNT_ERR_TIMEOUT;
    } else if (root->joined < root->nranks) {
        list_ranks(root, is_missing, ranks, sizeof(ranks));
        shunti_root_fail_for(
            root, SHUNT_ERR_TIMEOUT, is_missing,
            "%s %s did not join within %g s (%d of %d did); were they "
            "started, with the same id? (SHUNT_TIMEOUT sets the time)%s",
            root->nranks - root->joined > 1 ? "ranks" : "rank", ranks,
            root->member_timeout, root->joined, root->nranks,
            is_elsewhere(root)
                ? "; the address where they look for rank 0 is not one of its "
                  "host"
                : "");
    } else if (root->gathered) {
        list_ranks(root, has_not_sent, ranks, sizeof(ranks));
        shunti_root_fail_for(
            root, SHUNT_ERR_TIMEOUT, has_not_sent,
            "%s %s joined, but then did not send for %g s; stuck?",
            root->nranks - root->gathered > 1 ? "ranks" : "rank", ranks,
            root->member_timeout);
    } else {
        shunti_root_fail(root, SHUNT_ERR_TIMEOUT,
                         "nothing was heard from any rank for %g s",
                         2 * root->member_timeout);
    }
}
