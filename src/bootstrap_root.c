// SPDX-License-Identifier: Apache-2.0
/*
 * The root: one thread, one poll(2) over the listening socket, the strangers
 * who have not proved anything yet, and the members.
 *
 * Strangers are bounded in number (the oldest is dropped for a new one) and in
 * time, from when they connect until they are gone, and they are read a few
 * bytes at a time into a fixed buffer: whatever they send, or do not, costs one
 * entry of the table for ten seconds. A rank that was dropped in such a flood
 * comes again by itself.
 *
 * The first failure is final. It is told to every member and, for a while, to
 * ranks that come late; then the thread ends. It ends, too, when every member
 * has left, when nobody came in time, or when nothing happened for long.
 */
#include "src/bootstrap.h"

#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/bootstrap_wire.h"
#include "src/error.h"
#include "src/log.h"
#include "src/peer_user.h"

#define STRANGERS_MAX 256
#define STRANGERS_SHARE 4 /* at most one in so many of our descriptors */
#define ACCEPTS_PER_ROUND 64
#define LINGER_SECONDS 10.0 /* to tell latecomers of a failure */
#define LATE_SECONDS 1.5    /* the process stays so long for that; see settle */
#define GATHER_GRACE_SECONDS 0.5 /* for a rank that knows who is missing */
#define STUCK_SECONDS 1.0        /* without descriptors: before giving up */
#define PAUSE_SECONDS 0.1        /* without them: before accepting again */
#define OUTBOX 4                 /* READY, ALL, ERROR and one to spare */

/* A message on its way to several. */
struct reply {
    unsigned refs;
    size_t len;
    unsigned char bytes[];
};

enum stage {
    HELLO,   /* a stranger that has said nothing yet */
    PROOF,   /* a stranger that was challenged */
    MEMBER,  /* has proved the secret, and has a rank */
    LEAVING, /* nothing more is expected: send what is left, then read on until
                the other side closes, so that it can read the end */
};

struct conn {
    int fd; /* -1: to be forgotten */
    enum stage stage;
    bool proven;     /* it knows the secret: no stranger */
    double deadline; /* of a stranger, or of LEAVING */
    int rank;        /* of a member, else -1 */
    char from[64];   /* its address, for the log */
    struct shunti_auth_talk talk;

    unsigned char in[SHUNTI_WIRE_HELLO_BYTES]; /* hello, proof, or header */
    size_t in_used;
    struct shunti_wire_header header;
    bool in_body;
    unsigned char *body;
    size_t body_used;

    struct reply *out[OUTBOX];
    unsigned nout;
    size_t out_sent; /* of out[0] */
    bool shut;       /* our direction is closed */
};

struct blob {
    unsigned char *data;
    size_t len;
    bool here;
};

struct root {
    int listen_fd; /* -1: all have come */
    struct shunti_id_parts parts;
    char where[64];
    double timeout;       /* of this process's SHUNT_TIMEOUT */
    size_t strangers_max; /* as many are kept */
    double pause;         /* do not accept before */
    double stuck;         /* since when nobody can be accepted; 0: they can */
    int spare_fd;         /* nothing: given up to tell them of that; or -1 */

    struct conn **conns;
    size_t nconns, room;
    struct pollfd *polls; /* room + 1 */

    int *names; /* (nnames) what ranks are called in errors */
    int nnames;
    int nranks;            /* 0: nobody has said yet */
    struct conn **members; /* (nranks) by rank */
    int joined;            /* how many have come */
    int left;              /* how many have said goodbye */
    struct blob *blobs;    /* (nranks) of the gather under way */
    int gathered;
    double patience; /* the shortest timeout of a member */
    double deadline; /* of what is under way */

    enum shunt_status failure;
    double failed_at;
    char text[512];
    struct reply *bad_news; /* the failure, as a frame */
    int told;               /* how many were sent it */
    int expected;           /* how many may come: the most that anybody said */
    size_t counted;         /* connections in the census */
};

double shunti_wire_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int shunti_wire_poll_ms(double deadline)
{
    double ms = ceil((deadline - shunti_wire_now()) * 1e3);

    if (ms <= 0)
        return 0;
    return ms < 1e6 ? (int)ms : 1000000;
}

/* -- messages out ------------------------------------------------------------- */

static struct reply *reply_new(uint32_t type, int32_t status, size_t bytes)
{
    struct reply *r = malloc(sizeof(*r) + SHUNTI_WIRE_HEADER_BYTES + bytes);

    if (!r)
        return NULL;
    r->refs = 1;
    r->len = SHUNTI_WIRE_HEADER_BYTES + bytes;
    shunti_wire_put_header(r->bytes, type, status, bytes);
    return r;
}

static void reply_release(struct reply *r)
{
    if (r && !--r->refs)
        free(r);
}

/* Send what the socket takes; false: the other side is gone. */
static bool conn_flush(struct conn *c)
{
    while (c->nout) {
        struct reply *r = c->out[0];
        ssize_t n = send(c->fd, r->bytes + c->out_sent, r->len - c->out_sent,
                         MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK;
        c->out_sent += (size_t)n;
        if (c->out_sent < r->len)
            continue;
        reply_release(r);
        c->nout--;
        memmove(c->out, c->out + 1, c->nout * sizeof(c->out[0]));
        c->out_sent = 0;
    }
    if (c->stage == LEAVING && !c->shut) {
        shutdown(c->fd, SHUT_WR);
        c->shut = true;
    }
    return true;
}

/* Queue a message; takes a reference of its own. */
static bool conn_send(struct conn *c, struct reply *r)
{
    if (!r || c->nout == OUTBOX)
        return false;
    r->refs++;
    c->out[c->nout++] = r;
    return true;
}

static void conn_close(struct conn *c)
{
    if (c->fd < 0)
        return;
    close(c->fd);
    c->fd = -1;
    for (unsigned i = 0; i < c->nout; i++)
        reply_release(c->out[i]);
    c->nout = 0;
    free(c->body);
    c->body = NULL;
}

static void conn_leave(struct conn *c)
{
    c->stage = LEAVING;
    c->deadline = shunti_wire_now() + LINGER_SECONDS;
    free(c->body);
    c->body = NULL;
    if (!conn_flush(c))
        conn_close(c);
}

/* -- the census --------------------------------------------------------------- */

/* Connections of members, of all roots of this process; see settle. */
static pthread_mutex_t census_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t census_changed = PTHREAD_COND_INITIALIZER;
static size_t census;
static size_t roots; /* threads */

static void count_members(struct root *root, size_t now)
{
    if (now == root->counted)
        return;
    pthread_mutex_lock(&census_lock);
    census += now - root->counted;
    pthread_cond_broadcast(&census_changed);
    pthread_mutex_unlock(&census_lock);
    root->counted = now;
}

/* -- failure ------------------------------------------------------------------ */

static int name_of(const struct root *root, int rank)
{
    return rank >= 0 && rank < root->nnames ? root->names[rank] : rank;
}

/* Tell one connection of the failure. That may be a rank of this process, which
 * then looks into the census and ends: count as if one more were there until
 * the thread counts anew. */
static void tell(struct root *root, struct conn *c)
{
    root->told++;
    count_members(root, root->counted + 1);
    if (c->fd < 0)
        return;
    if (!conn_send(c, root->bad_news)) {
        conn_close(c); /* no memory for words: the end of file says it */
        return;
    }
    conn_leave(c);
}

/* Most ranks that are named as those that did not come. */
#define BLAMED_MAX 100

/* The frame that tells of the failure, and of the ranks for which `is`. */
static struct reply *make_bad_news(const struct root *root,
                                   bool (*is)(const struct root *, int))
{
    size_t len = strlen(root->text), blamed = 0;
    struct reply *news;
    unsigned char *at;

    for (int r = 0; is && r < root->nranks && blamed < BLAMED_MAX; r++)
        blamed += is(root, r);
    news = reply_new(SHUNTI_WIRE_ERROR, root->failure,
                     len + (blamed ? 1 + 4 * blamed : 0));
    if (!news)
        return NULL;
    at = news->bytes + SHUNTI_WIRE_HEADER_BYTES;
    memcpy(at, root->text, len);
    at += len;
    if (blamed)
        *at++ = 0;
    for (int r = 0; blamed && r < root->nranks; r++) {
        if (!is(root, r))
            continue;
        shunti_wire_put32(at, (uint32_t)name_of(root, r));
        at += 4;
        blamed--;
    }
    return news;
}

/* `is`: for the ranks that did not come; NULL: that is not what is wrong. */
__attribute__((format(printf, 4, 5))) static void
root_fail_for(struct root *root, enum shunt_status status,
              bool (*is)(const struct root *, int), const char *format, ...)
{
    va_list args;

    if (root->failure)
        return;
    va_start(args, format);
    vsnprintf(root->text, sizeof(root->text), format, args);
    va_end(args);
    root->failure = status;
    root->failed_at = shunti_wire_now();
    shunti_info("bootstrap", "root %s: %s", root->where, root->text);
    root->bad_news = make_bad_news(root, is);
    for (int r = 0; r < root->nranks; r++)
        if (root->members[r] && root->members[r]->stage == MEMBER)
            tell(root, root->members[r]);
    root->deadline =
        shunti_wire_now() +
        (root->timeout < LINGER_SECONDS ? root->timeout : LINGER_SECONDS);
}

#define root_fail(root, status, ...) \
    root_fail_for(root, status, NULL, __VA_ARGS__)

/* "2, 5 and 7 more": ranks for which `is` says so. */
static void list_ranks(const struct root *root,
                       bool (*is)(const struct root *, int), char *text,
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
                                     shown ? ", " : "", name_of(root, r));
            shown++;
        } else {
            more++;
        }
    }
    if (more)
        snprintf(text + used, len - used, " and %d more", more);
}

static bool is_missing(const struct root *root, int rank)
{
    return !root->members[rank];
}

static bool is_silent(const struct root *root, int rank)
{
    return !root->blobs[rank].here;
}

static void on_deadline(struct root *root)
{
    char ranks[160];

    if (!root->nranks) {
        shunti_info("bootstrap", "root %s: nobody came within %g s; giving up",
                    root->where, root->timeout);
        root->failure = SHUNT_ERR_TIMEOUT;
    } else if (root->joined < root->nranks) {
        list_ranks(root, is_missing, ranks, sizeof(ranks));
        root_fail_for(
            root, SHUNT_ERR_TIMEOUT, is_missing,
            "%s %s did not come within %g s (%d of %d did); started? with "
            "the same id? (SHUNT_TIMEOUT sets the time)",
            root->nranks - root->joined > 1 ? "ranks" : "rank", ranks,
            root->patience, root->joined, root->nranks);
    } else if (root->gathered) {
        list_ranks(root, is_silent, ranks, sizeof(ranks));
        root_fail_for(root, SHUNT_ERR_TIMEOUT, is_silent,
                      "%s %s joined, but then did not send for %g s; stuck?",
                      root->nranks - root->gathered > 1 ? "ranks" : "rank",
                      ranks, root->patience);
    } else {
        root_fail(root, SHUNT_ERR_TIMEOUT,
                  "nothing was heard from any rank for %g s",
                  2 * root->patience);
    }
}

/* -- members ------------------------------------------------------------------ */

/* What a claim gets wrong, as a failure of all; true: nothing. */
static bool judge(struct root *root, const struct shunti_auth_talk *talk)
{
    if (talk->nranks < 1 || talk->nranks > SHUNTI_RANKS_MAX) {
        root_fail(root, SHUNT_ERR_MISMATCH,
                  "rank %d came with %d as the number of ranks; it must be 1 "
                  "to %d",
                  talk->rank, talk->nranks, SHUNTI_RANKS_MAX);
    } else if (root->nranks && talk->nranks != root->nranks) {
        int other = 0;

        while (!root->members[other])
            other++;
        root_fail(root, SHUNT_ERR_MISMATCH,
                  "rank %d says that there are %d ranks, rank %d that there "
                  "are %d",
                  talk->rank, talk->nranks, other, root->nranks);
    } else if (talk->rank < 0 || talk->rank >= talk->nranks) {
        root_fail(root, SHUNT_ERR_MISMATCH,
                  "a rank came as rank %d of %d; ranks are 0 to %d", talk->rank,
                  talk->nranks, talk->nranks - 1);
    } else if (root->nranks && root->members[talk->rank]) {
        root_fail(root, SHUNT_ERR_MISMATCH,
                  "rank %d (of %d) came twice: each process needs a rank of "
                  "its own",
                  name_of(root, talk->rank), talk->nranks);
    } else {
        return true;
    }
    return false;
}

/* Room for one connection: those who wait are told one after the other. */
static void give_up_spare(struct root *root)
{
    if (root->spare_fd >= 0)
        close(root->spare_fd);
    root->spare_fd = -1;
}

static void all_have_come(struct root *root)
{
    struct reply *ready =
        reply_new(SHUNTI_WIRE_READY, 0, SHUNTI_WIRE_SALT_BYTES);

    close(root->listen_fd); /* an id serves one communicator */
    root->listen_fd = -1;
    give_up_spare(root);
    root->deadline = shunti_wire_now() + 2 * root->patience;
    if (!ready || !shunti_auth_random(ready->bytes + SHUNTI_WIRE_HEADER_BYTES,
                                      SHUNTI_WIRE_SALT_BYTES)) {
        reply_release(ready);
        root_fail(root, SHUNT_ERR_MEMORY,
                  "the root has no memory or random numbers");
        return;
    }
    shunti_debug("bootstrap", "root %s: all %d ranks have come", root->where,
                 root->nranks);
    for (int r = 0; r < root->nranks; r++) {
        struct conn *c = root->members[r];

        if (c->stage == MEMBER && !conn_send(c, ready))
            conn_close(c); /* cannot be: the outbox holds the welcome at most */
    }
    reply_release(ready);
}

/* Somebody has proved the secret. */
static void admit(struct root *root, struct conn *c)
{
    double now = shunti_wire_now();
    double patience = c->talk.timeout_ms * 1e-3;
    /* It has been trying for a while: its time is up when it thinks so. */
    double until = now + patience - c->talk.waited_ms * 1e-3;
    struct reply *welcome =
        reply_new(SHUNTI_WIRE_WELCOME, 0, SHUNTI_WIRE_PROOF_BYTES);

    c->rank = c->talk.rank;
    c->proven = true;
    if (!welcome) {
        conn_close(c);
        return;
    }
    shunti_auth_prove(root->parts.secret, SHUNTI_AUTH_ROOT, &c->talk,
                      welcome->bytes + SHUNTI_WIRE_HEADER_BYTES);
    conn_send(c, welcome);
    reply_release(welcome);

    if (c->talk.nranks > root->expected && c->talk.nranks <= SHUNTI_RANKS_MAX)
        root->expected = c->talk.nranks;
    if (root->failure || !judge(root, &c->talk)) {
        tell(root, c);
        return;
    }
    if (!root->nranks) {
        root->members = calloc((size_t)c->talk.nranks, sizeof(*root->members));
        root->blobs = calloc((size_t)c->talk.nranks, sizeof(*root->blobs));
        if (!root->members || !root->blobs) {
            root_fail(root, SHUNT_ERR_MEMORY,
                      "the root has no memory for %d ranks", c->talk.nranks);
            tell(root, c);
            return;
        }
        root->nranks = c->talk.nranks;
        root->patience = patience;
        root->deadline = until;
    }
    if (patience < root->patience)
        root->patience = patience;
    if (until < root->deadline)
        root->deadline = until;
    c->stage = MEMBER;
    root->members[c->rank] = c;
    shunti_debug("bootstrap", "root %s: rank %d of %d came from %s",
                 root->where, c->rank, root->nranks, c->from);
    if (++root->joined == root->nranks)
        all_have_come(root);
}

/* Everyone's blobs are here: hand them out. */
static void answer_gather(struct root *root)
{
    size_t table = (size_t)root->nranks * 8, bytes = table;
    struct reply *all;
    unsigned char *out;

    for (int r = 0; r < root->nranks; r++)
        bytes += (root->blobs[r].len + 7) & ~(size_t)7;
    all = reply_new(SHUNTI_WIRE_ALL, 0, bytes);
    if (!all) {
        root_fail(root, SHUNT_ERR_MEMORY,
                  "the root has no memory for %zu bytes of addresses", bytes);
        return;
    }
    out = all->bytes + SHUNTI_WIRE_HEADER_BYTES;
    memset(out, 0, bytes);
    for (int r = 0; r < root->nranks; r++)
        shunti_wire_put64(out + (size_t)r * 8, root->blobs[r].len);
    out += table;
    for (int r = 0; r < root->nranks; r++) {
        struct blob *b = &root->blobs[r];

        if (b->len)
            memcpy(out, b->data, b->len);
        out += (b->len + 7) & ~(size_t)7;
        free(b->data);
        *b = (struct blob){0};
    }
    root->gathered = 0;
    root->deadline = shunti_wire_now() + 2 * root->patience;
    for (int r = 0; r < root->nranks; r++) {
        struct conn *c = root->members[r];

        if (c->fd >= 0 && c->stage == MEMBER && !conn_send(c, all))
            root_fail(root, SHUNT_ERR_PEER,
                      "rank %d does not read what the root sends",
                      name_of(root, r));
    }
    reply_release(all);
}

static void on_frame(struct root *root, struct conn *c)
{
    struct blob *b = &root->blobs[c->rank];
    size_t bytes = (size_t)c->header.bytes;

    switch (c->header.type) {
    case SHUNTI_WIRE_GATHER:
        if (b->here || root->joined < root->nranks) {
            root_fail(root, SHUNT_ERR_MISMATCH,
                      "rank %d sent out of turn: different releases of the "
                      "library?",
                      name_of(root, c->rank));
            return;
        }
        b->here = true;
        b->data = c->body;
        b->len = bytes;
        c->body = NULL;
        /* Later than those who wait for a rank to connect: they are silent,
         * too, and know whom it is for; but before the ranks' own time is up. */
        if (!root->gathered++)
            root->deadline =
                shunti_wire_now() + root->patience + GATHER_GRACE_SECONDS;
        if (root->gathered == root->nranks)
            answer_gather(root);
        return;
    case SHUNTI_WIRE_ABORT:
        c->stage = LEAVING; /* it knows, and is not told */
        root_fail(root, SHUNT_ERR_REMOTE, "rank %d: %.*s",
                  name_of(root, c->rank), (int)bytes,
                  c->body ? (const char *)c->body : "");
        conn_leave(c);
        return;
    case SHUNTI_WIRE_BYE:
        root->left++;
        conn_leave(c);
        return;
    default:
        root_fail(root, SHUNT_ERR_MISMATCH,
                  "rank %d sent an unknown message (%u): different releases of "
                  "the library?",
                  name_of(root, c->rank), (unsigned)c->header.type);
    }
}

/* Ranks wait for one who will never send. */
static void check_left(struct root *root)
{
    if (root->failure || !root->gathered || !root->left)
        return;
    for (int r = 0; r < root->nranks; r++) {
        if (root->members[r]->stage == LEAVING && !root->blobs[r].here) {
            root_fail(root, SHUNT_ERR_PEER,
                      "rank %d left while the communicator was being made",
                      name_of(root, r));
            return;
        }
    }
}

/* -- messages in -------------------------------------------------------------- */

/* As recv(2) into a part of `buffer`; 0: nothing now, -1: gone. */
static ssize_t take(struct conn *c, void *buffer, size_t len)
{
    for (;;) {
        ssize_t n = recv(c->fd, buffer, len, MSG_DONTWAIT);

        if (n > 0)
            return n;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        return -1;
    }
}

static void refuse(struct conn *c, const char *why)
{
    shunti_info("bootstrap", "refused a connection from %s: %s", c->from, why);
    conn_close(c);
}

static void on_hello(const struct root *root, struct conn *c)
{
    struct reply *challenge;

    shunti_wire_get_hello(c->in, &c->talk);
    /* Not a frame: who says hello expects exactly these bytes. */
    challenge = malloc(sizeof(*challenge) + SHUNTI_WIRE_CHALLENGE_BYTES);
    if (!challenge ||
        !shunti_auth_random(c->talk.root_nonce, SHUNTI_NONCE_BYTES)) {
        free(challenge);
        refuse(c, "no memory");
        return;
    }
    challenge->refs = 1;
    challenge->len = SHUNTI_WIRE_CHALLENGE_BYTES;
    memcpy(challenge->bytes, SHUNTI_WIRE_MAGIC, SHUNTI_WIRE_MAGIC_BYTES);
    memcpy(challenge->bytes + SHUNTI_WIRE_MAGIC_BYTES, c->talk.root_nonce,
           SHUNTI_NONCE_BYTES);
    memcpy(challenge->bytes + SHUNTI_WIRE_MAGIC_BYTES + SHUNTI_NONCE_BYTES,
           root->parts.tag, SHUNTI_TAG_BYTES);
    conn_send(c, challenge);
    reply_release(challenge);
    c->stage = PROOF;
    c->in_used = 0;
}

/* Tell it why, and no more; it stays a stranger. */
static void refuse_politely(struct conn *c, enum shunti_wire_refusal why)
{
    struct reply *refused = reply_new(SHUNTI_WIRE_REFUSED, why, 0);
    double deadline = c->deadline;

    if (!conn_send(c, refused))
        conn_close(c);
    else
        conn_leave(c);
    c->deadline = deadline;
    reply_release(refused);
}

/* May this be a rank of ours that was given another SHUNT_SECRET? Not if that
 * rank has come, or if the id, which was handed on, holds the secret. */
static bool may_be_ours(const struct root *root,
                        const struct shunti_auth_talk *talk)
{
    return root->parts.flags & SHUNTI_ID_PATIENT && talk->nranks >= 1 &&
           talk->nranks <= SHUNTI_RANKS_MAX && talk->rank >= 0 &&
           talk->rank < talk->nranks &&
           !(talk->rank < root->nranks && root->members[talk->rank]);
}

/*
 * A rank of ours with another SHUNT_SECRET, or a stranger? What it says of
 * itself proves nothing, unless the kernel says that it is a process of our
 * user, to whom it could do worse. Ids that were handed on hold their secret.
 */
static void on_wrong_proof(struct root *root, struct conn *c,
                           enum shunti_peer_user user)
{
    shunti_info("bootstrap",
                "refused a connection from %s, which calls itself rank %d of "
                "%d: it does not know the secret of this communicator",
                c->from, c->talk.rank, c->talk.nranks);
    refuse_politely(c, SHUNTI_WIRE_WRONG_SECRET);
    if (user == SHUNTI_USER_OURS && may_be_ours(root, &c->talk))
        root_fail(root, SHUNT_ERR_MISMATCH,
                  "rank %d was given another SHUNT_SECRET than rank 0: it must "
                  "be the same on all ranks",
                  c->talk.rank);
}

static void on_proof(struct root *root, struct conn *c)
{
    bool public = root->parts.flags & SHUNTI_ID_PUBLIC;
    unsigned char expected[SHUNTI_KEY_BYTES];
    enum shunti_peer_user user;
    bool proven;

    shunti_auth_prove(root->parts.secret, SHUNTI_AUTH_RANK, &c->talk, expected);
    c->in_used = 0;
    proven = shunti_auth_equal(expected, c->in, sizeof(expected));
    /* To find it out takes milliseconds if they are of this host: only if it
     * matters. */
    user =
        shunti_peer_user(c->fd, proven ? public : may_be_ours(root, &c->talk));
    if (user == SHUNTI_USER_GONE) {
        refuse(c, "it left with its proof");
    } else if (user == SHUNTI_USER_OTHER &&
               (public || root->parts.kind == SHUNTI_ID_LOCAL)) {
        shunti_info("bootstrap",
                    "refused a connection from %s, which calls itself rank %d "
                    "of %d: it runs as another user",
                    c->from, c->talk.rank, c->talk.nranks);
        refuse_politely(c, SHUNTI_WIRE_WRONG_USER);
    } else if (proven) {
        admit(root, c);
    } else {
        on_wrong_proof(root, c, user);
    }
}

/* A stranger's bytes. */
static void read_stranger(struct root *root, struct conn *c)
{
    while (c->fd >= 0 && (c->stage == HELLO || c->stage == PROOF)) {
        size_t want = c->stage == HELLO ? SHUNTI_WIRE_HELLO_BYTES
                                        : SHUNTI_WIRE_PROOF_BYTES;
        size_t known;
        ssize_t n = take(c, c->in + c->in_used, want - c->in_used);

        if (n == 0)
            return;
        if (n < 0) {
            refuse(c, "it left before it proved to know the secret");
            return;
        }
        c->in_used += (size_t)n;
        known = c->in_used < SHUNTI_WIRE_MAGIC_BYTES ? c->in_used
                                                     : SHUNTI_WIRE_MAGIC_BYTES;
        if (c->stage == HELLO && memcmp(c->in, SHUNTI_WIRE_MAGIC, known)) {
            refuse(c, "it does not speak our protocol");
            return;
        }
        if (c->in_used < want)
            return;
        if (c->stage == HELLO)
            on_hello(root, c);
        else
            on_proof(root, c);
    }
}

static void member_lost(struct root *root, struct conn *c)
{
    int rank = name_of(root, c->rank);

    conn_close(c);
    root_fail(root, SHUNT_ERR_PEER,
              "rank %d went away while the communicator was being made: it "
              "died, or gave up",
              rank);
}

/* A header has come; false: nonsense. */
static bool start_body(struct conn *c)
{
    size_t limit = 0;

    c->header = shunti_wire_get_header(c->in);
    c->in_used = 0;
    if (c->header.type == SHUNTI_WIRE_GATHER)
        limit = SHUNTI_BLOB_MAX;
    else if (c->header.type == SHUNTI_WIRE_ABORT)
        limit = SHUNTI_WIRE_TEXT_MAX;
    if (c->header.bytes > limit)
        return false;
    c->in_body = true;
    c->body_used = 0;
    c->body = NULL;
    if (c->header.bytes)
        c->body = malloc((size_t)c->header.bytes);
    return c->body || !c->header.bytes;
}

static void read_member(struct root *root, struct conn *c)
{
    while (c->fd >= 0 && c->stage == MEMBER) {
        ssize_t n;

        if (!c->in_body) {
            n = take(c, c->in + c->in_used,
                     SHUNTI_WIRE_HEADER_BYTES - c->in_used);
            if (n == 0)
                return;
            if (n < 0) {
                member_lost(root, c);
                return;
            }
            c->in_used += (size_t)n;
            if (c->in_used < SHUNTI_WIRE_HEADER_BYTES)
                continue;
            if (!start_body(c)) {
                root_fail(root, SHUNT_ERR_MISMATCH,
                          "rank %d sent a message of type %u with %llu bytes, "
                          "more than the root takes: different releases of "
                          "the library?",
                          name_of(root, c->rank), (unsigned)c->header.type,
                          (unsigned long long)c->header.bytes);
                return;
            }
        }
        if (c->body_used < c->header.bytes) {
            n = take(c, c->body + c->body_used,
                     (size_t)c->header.bytes - c->body_used);
            if (n == 0)
                return;
            if (n < 0) {
                member_lost(root, c);
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

/* What comes after the end is thrown away, until the other side closes. */
static void read_leaving(struct conn *c)
{
    char waste[4096];

    for (int i = 0; i < 64; i++) {
        ssize_t n = take(c, waste, sizeof(waste));

        if (n == 0)
            return;
        if (n < 0) {
            conn_close(c);
            return;
        }
    }
}

/* -- connections -------------------------------------------------------------- */

static bool is_stranger(const struct conn *c)
{
    return c->fd >= 0 && !c->proven;
}

static void drop_oldest_stranger(struct root *root)
{
    struct conn *oldest = NULL;

    for (size_t i = 0; i < root->nconns; i++) {
        struct conn *c = root->conns[i];

        if (is_stranger(c) && (!oldest || c->deadline < oldest->deadline))
            oldest = c;
    }
    if (oldest && oldest->stage == LEAVING)
        conn_close(oldest); /* it was refused before */
    else if (oldest)
        refuse(oldest, "too many connections wait; it was the oldest");
}

/* Room for one more; the table and what poll(2) reads grow together. */
static bool make_room(struct root *root)
{
    size_t room = root->room ? root->room * 2 : 64;
    struct conn **conns;
    struct pollfd *polls;

    if (root->nconns < root->room)
        return true;
    conns = realloc(root->conns, room * sizeof(*conns));
    if (!conns)
        return false;
    root->conns = conns;
    polls = realloc(root->polls, (room + 1) * sizeof(*polls));
    if (!polls)
        return false;
    root->polls = polls;
    root->room = room;
    return true;
}

static void name_peer(struct conn *c, const struct sockaddr_storage *addr)
{
    struct shunti_id_parts parts;

    if (shunti_id_set_sockaddr(&parts, addr)) {
        shunti_id_describe(&parts, c->from, sizeof(c->from));
    } else {
        struct ucred cred = {0};
        socklen_t len = sizeof(cred);

        getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len);
        snprintf(c->from, sizeof(c->from), "pid %ld", (long)cred.pid);
    }
}

/* No descriptors or memory: strangers go first, then we wait a little. What the
 * process does not get back by then it does not get back at all. */
static void cannot_accept(struct root *root, int error)
{
    struct pollfd p = {.fd = root->listen_fd, .events = POLLIN};
    double now = shunti_wire_now();

    if (poll(&p, 1, 0) <= 0)
        return; /* without a descriptor to spare it fails for nobody, too */
    shunti_info("bootstrap", "root %s: accept: %s", root->where,
                strerror(error));
    drop_oldest_stranger(root);
    root->pause = now + PAUSE_SECONDS;
    if (!root->stuck)
        root->stuck = now;
    else if (now - root->stuck > STUCK_SECONDS) {
        root_fail(root, SHUNT_ERR_SYSTEM,
                  "the process that ranks meet at (that made the id, or rank "
                  "0) cannot take their connections: %s%s",
                  strerror(error), shunti_remedy(error));
        give_up_spare(root);
    }
}

/* false: there is nobody, or no means to take them in. */
static bool accept_one(struct root *root)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    struct conn *c;
    int one = 1;
    int fd = accept4(root->listen_fd, (struct sockaddr *)&addr, &len,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0) {
        if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO)
            return true;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            cannot_accept(root, errno);
        return false;
    }
    root->stuck = 0;
    c = make_room(root) ? calloc(1, sizeof(*c)) : NULL;
    if (!c) {
        close(fd);
        root->pause = shunti_wire_now() + PAUSE_SECONDS;
        return false;
    }
    if (root->parts.kind != SHUNTI_ID_LOCAL)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    c->fd = fd;
    c->rank = -1;
    c->stage = HELLO;
    c->deadline =
        shunti_wire_now() + fmin(SHUNTI_WIRE_HANDSHAKE_SECONDS, root->timeout);
    name_peer(c, &addr);
    root->conns[root->nconns++] = c;
    return true;
}

static void accept_some(struct root *root)
{
    size_t strangers = 0;

    for (int i = 0; i < ACCEPTS_PER_ROUND && accept_one(root); i++)
        ;
    for (size_t i = 0; i < root->nconns; i++)
        strangers += is_stranger(root->conns[i]);
    for (; strangers > root->strangers_max; strangers--)
        drop_oldest_stranger(root);
}

static void expire(struct root *root, double now)
{
    for (size_t i = 0; i < root->nconns; i++) {
        struct conn *c = root->conns[i];

        if (c->fd < 0 || c->stage == MEMBER || now < c->deadline)
            continue;
        if (c->stage == LEAVING)
            conn_close(c);
        else
            refuse(c, "it did not prove to know the secret in time");
    }
}

/* Members stay in the table: `members` points at them. */
static void forget_closed(struct root *root)
{
    size_t kept = 0;

    for (size_t i = 0; i < root->nconns; i++) {
        struct conn *c = root->conns[i];

        if (c->fd < 0 && c->rank < 0)
            free(c);
        else if (c->fd < 0 && (!root->nranks || c->rank >= root->nranks ||
                               root->members[c->rank] != c))
            free(c);
        else
            root->conns[kept++] = c;
    }
    root->nconns = kept;
}

/* -- the thread --------------------------------------------------------------- */

static size_t open_conns(const struct root *root)
{
    size_t n = 0;

    for (size_t i = 0; i < root->nconns; i++)
        n += root->conns[i]->fd >= 0 && !is_stranger(root->conns[i]);
    return n;
}

/* Nothing is left to do. */
static bool is_over(const struct root *root, double now)
{
    if (root->failure) {
        /* Late ranks are told as long as we listen. */
        bool more = root->listen_fd >= 0 && now < root->deadline &&
                    (!root->expected || root->told < root->expected);

        return !more && (!open_conns(root) || now >= root->deadline);
    }
    return root->nranks && root->joined == root->nranks && !open_conns(root);
}

/* Until when the process should not end, because ranks that are about to come
 * would look for us in vain; 0: it may. Those that did not come in time are not
 * waited for. */
static double late_until(const struct root *root)
{
    return root->failure && root->failure != SHUNT_ERR_TIMEOUT &&
                   root->listen_fd >= 0 && root->told < root->expected
               ? root->failed_at + LATE_SECONDS
               : 0;
}

static int wait_for_something(struct root *root, double now)
{
    double late = late_until(root), stopped;
    double until = late > now && late < root->deadline ? late : root->deadline;
    int n;
    bool listening = root->listen_fd >= 0 && now >= root->pause;
    struct pollfd *p = root->polls;

    if (root->listen_fd >= 0 && !listening && root->pause < until)
        until = root->pause;
    p[0] = (struct pollfd){.fd = listening ? root->listen_fd : -1,
                           .events = POLLIN};
    for (size_t i = 0; i < root->nconns; i++) {
        struct conn *c = root->conns[i];

        p[i + 1] = (struct pollfd){
            .fd = c->fd, .events = (short)(POLLIN | (c->nout ? POLLOUT : 0))};
        if (c->fd >= 0 && c->stage != MEMBER && c->deadline < until)
            until = c->deadline;
    }
    n = poll(p, root->nconns + 1, shunti_wire_poll_ms(until));
    stopped = shunti_wire_now() - until;
    if (stopped > SHUNTI_WIRE_STOPPED_SECONDS)
        root->deadline += stopped;
    return n;
}

static void serve_conn(struct root *root, struct conn *c)
{
    if (c->stage == MEMBER)
        read_member(root, c);
    else if (c->stage != LEAVING)
        read_stranger(root, c);
    /* A stranger who proved itself may have sent more already. */
    if (c->fd >= 0 && c->stage == MEMBER)
        read_member(root, c);
    if (c->fd >= 0 && c->stage == LEAVING)
        read_leaving(c);
    check_left(root);
}

static void flush_all(struct root *root)
{
    for (size_t i = 0; i < root->nconns; i++) {
        struct conn *c = root->conns[i];

        if (c->fd < 0 || !(c->nout || (c->stage == LEAVING && !c->shut)) ||
            conn_flush(c))
            continue;
        if (c->stage == MEMBER)
            member_lost(root, c);
        else
            conn_close(c);
    }
}

static void root_destroy(struct root *root)
{
    if (root->listen_fd >= 0)
        close(root->listen_fd);
    give_up_spare(root);
    for (size_t i = 0; i < root->nconns; i++) {
        conn_close(root->conns[i]);
        free(root->conns[i]);
    }
    for (int r = 0; root->blobs && r < root->nranks; r++)
        free(root->blobs[r].data);
    reply_release(root->bad_news);
    explicit_bzero(&root->parts, sizeof(root->parts));
    free(root->names);
    free(root->blobs);
    free(root->members);
    free(root->conns);
    free(root->polls);
    free(root);
}

void shunti_bootstrap_settle(double seconds)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - floor(seconds)) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&census_lock);
    while (census &&
           !pthread_cond_timedwait(&census_changed, &census_lock, &until))
        ;
    pthread_mutex_unlock(&census_lock);
}

static void count_root(int by)
{
    pthread_mutex_lock(&census_lock);
    roots += (size_t)by;
    pthread_mutex_unlock(&census_lock);
}

bool shunti_roots_linger(void)
{
    bool any;

    pthread_mutex_lock(&census_lock);
    any = roots > 0;
    pthread_mutex_unlock(&census_lock);
    return any;
}

/* They leave descriptors to the process, whose transports need them. */
static size_t strangers_max(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) ||
        limit.rlim_cur / STRANGERS_SHARE > STRANGERS_MAX)
        return STRANGERS_MAX;
    return (size_t)limit.rlim_cur / STRANGERS_SHARE + 1;
}

static void *root_main(void *arg)
{
    struct root *root = arg;

    shunti_log_set_rank(-1);
    for (;;) {
        double now = shunti_wire_now();
        size_t polled = root->nconns;

        expire(root, now);
        if (!root->failure && now >= root->deadline)
            on_deadline(root);
        if (is_over(root, now))
            break;
        if (wait_for_something(root, now) < 0 && errno != EINTR)
            break; /* the ranks see the end of their connections */
        for (size_t i = 0; i < polled; i++)
            if (root->conns[i]->fd >= 0 && root->polls[i + 1].revents)
                serve_conn(root, root->conns[i]);
        if (root->listen_fd >= 0 && root->polls[0].revents)
            accept_some(root);
        flush_all(root);
        forget_closed(root);
        count_members(root, open_conns(root) +
                                (late_until(root) > shunti_wire_now()));
    }
    count_members(root, 0);
    shunti_debug("bootstrap", "root %s: done", root->where);
    root_destroy(root);
    count_root(-1);
    return NULL;
}

int shunti_root_start(int listen_fd, const struct shunti_id_parts *parts,
                      double timeout, const int *names, int nranks)
{
    struct root *root = calloc(1, sizeof(*root));
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    if (root && nranks > 0)
        root->names = calloc((size_t)nranks, sizeof(*names));
    if (!root || (nranks > 0 && !root->names) || !make_room(root)) {
        free(root ? root->conns : NULL);
        free(root ? root->names : NULL);
        free(root);
        return ENOMEM;
    }
    if (nranks > 0)
        memcpy(root->names, names, (size_t)nranks * sizeof(*names));
    root->nnames = nranks;
    root->listen_fd = listen_fd;
    root->spare_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    root->parts = *parts;
    root->strangers_max = strangers_max();
    root->timeout = timeout;
    root->deadline = shunti_wire_now() + timeout;
    shunti_id_describe(parts, root->where, sizeof(root->where));

    /* The program's signals are not for this thread. */
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    count_root(1);
    rc = pthread_create(&thread, &attr, root_main, root);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc) {
        count_root(-1);
        root->listen_fd = -1; /* stays the caller's */
        root_destroy(root);
    }
    return rc;
}
