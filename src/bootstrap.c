// SPDX-License-Identifier: Apache-2.0
/*
 * The rank's side of the bootstrap, and the making of ids.
 *
 * A rank knocks until its time is over: a root that is not up yet (ids from
 * the environment), one that was busy with strangers and dropped us, a port
 * that another job's root still has, are all reasons to come again. What is
 * hopeless ends at once: nobody listens where an id was made, or the secrets
 * differ.
 */
#include "src/bootstrap.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "src/bootstrap_wire.h"
#include "src/env.h"
#include "src/error.h"
#include "src/log.h"
#include "src/peer_user.h"

#define BACKOFF_MIN 0.005
#define BACKOFF_MAX 0.2
#define NO_TYPE 0         /* of no message */
#define GRACE_SECONDS 1.0 /* for the root's own verdict to arrive */
/* A port in use: for long if an earlier root of this process may have it, which
 * is still telling latecomers; else only for what is just ending. */
#define BIND_SECONDS 1.0
#define BIND_BEHIND_SECONDS 15.0
#define NOT_SHUNT_SECONDS 1.0 /* no root of ours will come to that port */

/* Between two looks at whether a birth is doomed. */
#define LOOK_SECONDS 0.02

struct shunti_bootstrap {
    int fd;
    int rank;
    int nranks;
    struct shunti_parent *parent; /* or NULL */
    int name;                     /* of this rank, in errors */
    double timeout;
    bool failed;
    char where[64]; /* the root's address */
    unsigned char key[SHUNTI_KEY_BYTES];
};

/* -- what a birth has from its parent -------------------------------------------- */

bool shunti_parent_gives_up(struct shunti_parent *parent)
{
    return parent && parent->doomed &&
           parent->doomed(parent->arg, parent->why, sizeof(parent->why));
}

void shunti_parent_blame(struct shunti_parent *parent, int name)
{
    int *blamed;

    if (!parent)
        return;
    blamed = realloc(parent->blamed, (parent->nblamed + 1) * sizeof(*blamed));
    if (!blamed)
        return;
    blamed[parent->nblamed++] = name;
    parent->blamed = blamed;
}

/* -- sockets with deadlines ---------------------------------------------------- */

int (*shunti_bootstrap_poll)(struct pollfd *fds, unsigned long n,
                             int ms) = poll;

enum io { IO_OK, IO_TIMEOUT, IO_CLOSED, IO_DOOMED };

/* IO_OK: ready, or broken, which the call after will find out. */
static enum io wait_ready(int fd, short events, double deadline,
                          struct shunti_parent *parent)
{
    const double soon = shunti_wire_now() + SHUNTI_WIRE_STOPPED_SECONDS;

    /* If this process was stopped, what it waits for may be about to come. */
    if (deadline < soon)
        deadline = soon;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        double until = shunti_wire_now() + LOOK_SECONDS, late;
        int n;

        if (!parent || !parent->doomed || until > deadline)
            until = deadline;
        n = shunti_bootstrap_poll(&p, 1, shunti_wire_poll_ms(until));
        if (n > 0)
            return IO_OK;
        late = shunti_wire_now() - until;
        if (late > SHUNTI_WIRE_STOPPED_SECONDS)
            deadline += late;
        if (n == 0 && shunti_wire_now() >= deadline)
            return IO_TIMEOUT;
        if (n == 0 && shunti_parent_gives_up(parent))
            return IO_DOOMED;
        if (n < 0 && errno != EINTR)
            return IO_CLOSED;
    }
}

static enum io send_all(int fd, const void *data, size_t len, double deadline,
                        struct shunti_parent *parent)
{
    const unsigned char *p = data;

    while (len) {
        ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        enum io io;

        if (n >= 0) {
            p += n;
            len -= (size_t)n;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return IO_CLOSED;
        io = wait_ready(fd, POLLOUT, deadline, parent);
        if (io)
            return io;
    }
    return IO_OK;
}

static enum io recv_all(int fd, void *data, size_t len, double deadline,
                        struct shunti_parent *parent)
{
    unsigned char *p = data;

    while (len) {
        ssize_t n = recv(fd, p, len, MSG_DONTWAIT);
        enum io io;

        if (n > 0) {
            p += n;
            len -= (size_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK))
            return IO_CLOSED;
        io = wait_ready(fd, POLLIN, deadline, parent);
        if (io)
            return io;
    }
    return IO_OK;
}

static void nap(double seconds)
{
    shunti_bootstrap_poll(NULL, 0,
                          (int)(seconds * 1e3)); /* ended early: no harm */
}

/* A TCP port of the range that the kernel gives to clients can connect to
 * itself when nobody listens there. */
static bool is_self_connected(int fd)
{
    struct sockaddr_storage us = {0}, them = {0};
    socklen_t us_len = sizeof(us), them_len = sizeof(them);

    if (getsockname(fd, (struct sockaddr *)&us, &us_len) ||
        getpeername(fd, (struct sockaddr *)&them, &them_len))
        return false;
    return us.ss_family != AF_UNIX && us_len == them_len &&
           !memcmp(&us, &them, us_len);
}

/* A connected socket, or -1 and errno. */
static int connect_once(const struct shunti_id_parts *parts, double deadline,
                        struct shunti_parent *parent)
{
    struct sockaddr_storage addr;
    socklen_t len, error_len = sizeof(int);
    int error = 0, one = 1, fd;

    shunti_id_sockaddr(parts, false, &addr, &len);
    fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (parts->kind != SHUNTI_ID_LOCAL)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (connect(fd, (struct sockaddr *)&addr, len)) {
        if (errno != EINPROGRESS && errno != EINTR) {
            error = errno;
        } else if (wait_ready(fd, POLLOUT, deadline, parent)) {
            error = ETIMEDOUT;
        } else {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len);
        }
    }
    if (!error && is_self_connected(fd))
        error = ECONNREFUSED;
    if (error) {
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* The name of a job's unix socket is no secret, and whoever is first has it:
 * somebody who is silent there is not to cost us a handshake's time. True:
 * another user has it; `why` says who. */
static bool is_held(int fd, char *why, size_t why_len)
{
    uid_t uid;

    if (!shunti_peer_uid(fd, &uid) || uid == geteuid())
        return false;
    snprintf(why, why_len,
             "user %lu holds the meeting place of this job, and we are another "
             "user: run all ranks as one; if that is no rank, choose another "
             "MASTER_PORT",
             (unsigned long)uid);
    return true;
}

/* -- joining ------------------------------------------------------------------ */

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
    enum io io;
    int fd;

    if (until > deadline)
        until = deadline;
    fd = connect_once(parts, until, parent);
    if (fd < 0) {
        snprintf(why, why_len, "%s%s", strerror(errno), shunti_remedy(errno));
        if (errno == EMFILE || errno == ENFILE)
            return LACKING;
        return errno == ECONNREFUSED ? NOBODY : AGAIN;
    }
    if (is_held(fd, why, why_len)) {
        close(fd);
        return HOPELESS;
    }

    if (!shunti_auth_random(talk->rank_nonce, SHUNTI_NONCE_BYTES)) {
        snprintf(why, why_len, "no random numbers");
        close(fd);
        return AGAIN;
    }
    shunti_wire_put_hello(bytes, talk);
    io = send_all(fd, bytes, SHUNTI_WIRE_HELLO_BYTES, until, parent);
    /* What is not Shunt may say less than a challenge, and wait or hang up. */
    for (size_t i = 0; !io && i < SHUNTI_WIRE_MAGIC_BYTES; i++) {
        io = recv_all(fd, bytes + i, 1, until, parent);
        if (io || bytes[i] == (unsigned char)SHUNTI_WIRE_MAGIC[i])
            continue;
        snprintf(why, why_len,
                 "what listens there is not Shunt, or another release of it: "
                 "is the port in use (SHUNT_PORT sets another)?");
        result = ALIEN;
        goto out;
    }
    if (!io)
        io = recv_all(fd, bytes + SHUNTI_WIRE_MAGIC_BYTES,
                      SHUNTI_WIRE_CHALLENGE_BYTES - SHUNTI_WIRE_MAGIC_BYTES,
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
    io = send_all(fd, proof, sizeof(proof), until, parent);
    if (!io)
        io = recv_all(fd, bytes, SHUNTI_WIRE_HEADER_BYTES, until, parent);
    if (io)
        goto broken;
    header = shunti_wire_get_header(bytes);
    if (header.type == SHUNTI_WIRE_REFUSED) {
        snprintf(why, why_len, "%s", refusal(header.status));
        result = HOPELESS;
        goto out;
    }
    io = IO_CLOSED;
    if (header.type == SHUNTI_WIRE_WELCOME &&
        header.bytes == SHUNTI_WIRE_PROOF_BYTES)
        io = recv_all(fd, bytes, SHUNTI_WIRE_PROOF_BYTES, until, parent);
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
             io == IO_TIMEOUT ? "it does not answer"
                              : "it closed the connection");
out:
    close(fd);
    return result;
}

static uint32_t milliseconds(double seconds)
{
    return seconds < 4e6 ? (uint32_t)(seconds * 1e3) : 4000000000u;
}

/* Somebody will not come. */
static enum shunt_status doomed(const struct shunti_bootstrap *bs)
{
    return shunti_fail(NULL, SHUNT_ERR_PEER, "%s", bs->parent->why);
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
static enum shunt_status get_in(const struct shunti_id_parts *parts,
                                struct shunti_bootstrap *bs, double start,
                                double deadline)
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
            return doomed(bs);
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
        nap(deadline - now < backoff ? deadline - now : backoff);
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

/* -- frames ------------------------------------------------------------------- */

/* The process that runs the root is stuck, or cannot be reached. */
static enum shunt_status root_is_silent(struct shunti_bootstrap *bs,
                                        const char *doing)
{
    char whose[48] = "";

    if (bs->parent) {
        shunti_parent_blame(bs->parent, bs->parent->root);
        snprintf(whose, sizeof(whose), " (in rank %d)", bs->parent->root);
    }
    return shunti_fail(NULL, SHUNT_ERR_TIMEOUT,
                       "rank %d: the root at %s%s did not answer within %g s "
                       "while %s",
                       bs->name, bs->where, whose, bs->timeout, doing);
}

static enum shunt_status io_failed(struct shunti_bootstrap *bs, enum io io,
                                   const char *doing)
{
    if (io == IO_DOOMED) /* which the root is to hear from us */
        return doomed(bs);
    bs->failed = true;
    if (io == IO_TIMEOUT)
        return root_is_silent(bs, doing);
    return shunti_fail(NULL, SHUNT_ERR_PEER,
                       "rank %d: the root at %s is gone (the process that made "
                       "the id, or rank 0, has ended) while %s",
                       bs->name, bs->where, doing);
}

static bool is_error(int32_t status)
{
    return status <= SHUNT_ERR_INVALID && status >= SHUNT_ERR_BUSY;
}

/*
 * The next frame's header, which must be of `type`, or an error that the root
 * tells us.
 */
static enum shunt_status expect(struct shunti_bootstrap *bs, uint32_t type,
                                double deadline, const char *doing,
                                uint64_t *bytes)
{
    unsigned char raw[SHUNTI_WIRE_HEADER_BYTES];
    char text[SHUNTI_WIRE_TEXT_MAX + 1];
    struct shunti_wire_header header;
    enum io io = recv_all(bs->fd, raw, sizeof(raw), deadline, bs->parent);

    if (io)
        return io_failed(bs, io, doing);
    header = shunti_wire_get_header(raw);
    *bytes = header.bytes;
    if (header.type == type)
        return SHUNT_OK;

    bs->failed = true;
    if (header.type != SHUNTI_WIRE_ERROR || !is_error(header.status) ||
        header.bytes >= sizeof(text))
        return shunti_fail(NULL, SHUNT_ERR_MISMATCH,
                           "rank %d: the root at %s sent an unknown message "
                           "(%u): different releases of the library?",
                           bs->name, bs->where, (unsigned)header.type);
    io = recv_all(bs->fd, text, (size_t)header.bytes, deadline, bs->parent);
    if (io)
        return io_failed(bs, io, doing);
    text[header.bytes] = '\0';
    for (size_t at = strlen(text) + 1; at + 4 <= header.bytes; at += 4)
        shunti_parent_blame(bs->parent, (int32_t)shunti_wire_get32(
                                            (const unsigned char *)text + at));
    return shunti_fail(NULL, (enum shunt_status)header.status, "%s", text);
}

enum shunt_status shunti_bootstrap_check(struct shunti_bootstrap *bs)
{
    struct pollfd p = {.fd = bs->fd, .events = POLLIN};
    uint64_t bytes;

    if (bs->failed || poll(&p, 1, 0) <= 0)
        return SHUNT_OK;
    return expect(bs, NO_TYPE, shunti_wire_now() + GRACE_SECONDS,
                  "ranks were connecting", &bytes);
}

static enum shunt_status wait_for_all(struct shunti_bootstrap *bs,
                                      const unsigned char *secret,
                                      double deadline)
{
    static const char doing[] = "ranks were joining";
    unsigned char salt[SHUNTI_WIRE_SALT_BYTES];
    uint64_t bytes;
    enum io io;
    enum shunt_status st =
        expect(bs, SHUNTI_WIRE_READY, deadline, doing, &bytes);

    if (st)
        return st;
    io = bytes == sizeof(salt)
             ? recv_all(bs->fd, salt, sizeof(salt), deadline, bs->parent)
             : IO_CLOSED;
    if (io)
        return io_failed(bs, io, doing);
    shunti_auth_derive(secret, "shunt transports", salt, sizeof(salt), bs->key);
    return SHUNT_OK;
}

enum shunt_status shunti_bootstrap_join(const struct shunt_id *id, int nranks,
                                        int rank, double timeout,
                                        struct shunti_bootstrap **out)
{
    return shunti_bootstrap_join_from(NULL, id, nranks, rank, timeout, out);
}

enum shunt_status shunti_bootstrap_join_from(struct shunti_parent *parent,
                                             const struct shunt_id *id,
                                             int nranks, int rank,
                                             double timeout,
                                             struct shunti_bootstrap **out)
{
    bool sane =
        nranks >= 1 && nranks <= SHUNTI_RANKS_MAX && rank >= 0 && rank < nranks;
    double start = shunti_wire_now(), deadline;
    struct shunti_id_parts parts;
    struct shunti_bootstrap *bs;
    enum shunt_status st = shunti_id_unpack(id, &parts);

    *out = NULL;
    if (st)
        return st;
    bs = calloc(1, sizeof(*bs));
    if (!bs)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory to join");
    bs->fd = -1;
    bs->parent = parent;
    bs->rank = rank;
    bs->name = sane ? shunti_rank_name(parent, rank) : rank;
    bs->nranks = nranks;
    bs->timeout = timeout;
    /* Ranks that make no sense join too, so that the others hear of it; but
     * that is no reason to wait long. */
    deadline = start + (sane || timeout < 5 ? timeout : 5);
    shunti_id_describe(&parts, bs->where, sizeof(bs->where));

    st = get_in(&parts, bs, start, deadline);
    if (!st && parent)
        parent->known = true;
    if (!st)
        st = wait_for_all(bs, parts.secret, deadline + GRACE_SECONDS);
    explicit_bzero(&parts, sizeof(parts));
    if (!sane)
        st = shunti_fail(NULL, SHUNT_ERR_INVALID,
                         nranks < 1 || nranks > SHUNTI_RANKS_MAX
                             ? "nranks is %d (rank %d); it must be 1 to %d"
                             : "there are %d ranks, and this is rank %d; "
                               "ranks start at 0 (at most %d)",
                         nranks, rank, SHUNTI_RANKS_MAX);
    if (st) {
        bs->failed = true;
        shunti_bootstrap_leave(bs);
        return st;
    }
    shunti_debug("bootstrap", "rank %d of %d joined at %s", rank, nranks,
                 bs->where);
    *out = bs;
    return SHUNT_OK;
}

/* -- exchanging --------------------------------------------------------------- */

void shunti_blobs_finish(struct shunti_blobs *blobs)
{
    if (!blobs)
        return;
    free(blobs->data);
    free(blobs->len);
    free(blobs->storage);
    *blobs = (struct shunti_blobs){0};
}

/* Find the blobs in the root's answer; false: it makes no sense. */
static bool split_blobs(struct shunti_blobs *all, int nranks, uint64_t bytes)
{
    unsigned char *p = all->storage;
    uint64_t at = (uint64_t)nranks * 8;

    if (bytes < at)
        return false;
    for (int r = 0; r < nranks; r++) {
        uint64_t len = shunti_wire_get64(p + (size_t)r * 8);

        if (len > SHUNTI_BLOB_MAX || len > bytes - at)
            return false;
        all->data[r] = p + at;
        all->len[r] = (size_t)len;
        at += (len + 7) & ~(uint64_t)7;
        if (at > bytes)
            return false;
    }
    all->count = nranks;
    return true;
}

enum shunt_status shunti_bootstrap_allgather(struct shunti_bootstrap *bs,
                                             const void *mine, size_t len,
                                             struct shunti_blobs *all)
{
    static const char doing[] = "addresses were exchanged";
    double deadline = shunti_wire_now() + bs->timeout + GRACE_SECONDS;
    unsigned char header[SHUNTI_WIRE_HEADER_BYTES];
    uint64_t bytes;
    enum shunt_status st;
    enum io io;

    *all = (struct shunti_blobs){0};
    if (bs->failed)
        return shunti_fail(NULL, SHUNT_ERR_PEER,
                           "rank %d: the bootstrap has failed before",
                           bs->name);
    if (len > SHUNTI_BLOB_MAX)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "a blob of %zu bytes; at most %zu", len,
                           SHUNTI_BLOB_MAX);

    shunti_wire_put_header(header, SHUNTI_WIRE_GATHER, 0, len);
    io = send_all(bs->fd, header, sizeof(header), deadline, bs->parent);
    if (!io)
        io = send_all(bs->fd, mine, len, deadline, bs->parent);
    /* A root that is done with us may have said why: look before giving up. */
    if (io == IO_TIMEOUT || io == IO_DOOMED)
        return io_failed(bs, io, doing);
    st = expect(bs, SHUNTI_WIRE_ALL, deadline, doing, &bytes);
    if (st)
        return st;

    st = SHUNT_ERR_MEMORY;
    if (bytes <= (uint64_t)bs->nranks * (SHUNTI_BLOB_MAX + 8)) {
        all->data = calloc((size_t)bs->nranks, sizeof(*all->data));
        all->len = calloc((size_t)bs->nranks, sizeof(*all->len));
        all->storage = malloc(bytes ? (size_t)bytes : 1);
    }
    if (!all->data || !all->len || !all->storage) {
        shunti_fail(NULL, st, "no memory for %llu bytes of addresses",
                    (unsigned long long)bytes);
        goto failed;
    }
    io = recv_all(bs->fd, all->storage, (size_t)bytes, deadline, bs->parent);
    if (io) {
        st = io_failed(bs, io, doing);
        goto failed;
    }
    if (split_blobs(all, bs->nranks, bytes))
        return SHUNT_OK;
    st = shunti_fail(NULL, SHUNT_ERR_MISMATCH,
                     "rank %d: the root at %s sent nonsense: different "
                     "releases of the library?",
                     bs->name, bs->where);
failed:
    bs->failed = true;
    shunti_blobs_finish(all);
    return st;
}

bool shunti_bootstrap_failed(const struct shunti_bootstrap *bs)
{
    return bs->failed;
}

void shunti_bootstrap_abort(struct shunti_bootstrap *bs, const char *text)
{
    unsigned char header[SHUNTI_WIRE_HEADER_BYTES];
    size_t len = strlen(text);
    double deadline = shunti_wire_now() + GRACE_SECONDS;

    if (bs->failed)
        return;
    if (len > SHUNTI_WIRE_TEXT_MAX / 2)
        len = SHUNTI_WIRE_TEXT_MAX / 2;
    shunti_wire_put_header(header, SHUNTI_WIRE_ABORT, 0, len);
    if (!send_all(bs->fd, header, sizeof(header), deadline, NULL))
        (void)send_all(bs->fd, text, len, deadline, NULL);
    bs->failed = true;
}

void shunti_bootstrap_leave(struct shunti_bootstrap *bs)
{
    unsigned char header[SHUNTI_WIRE_HEADER_BYTES];

    if (!bs)
        return;
    if (!bs->failed) {
        shunti_wire_put_header(header, SHUNTI_WIRE_BYE, 0, 0);
        (void)send_all(bs->fd, header, sizeof(header), shunti_wire_now(), NULL);
    }
    if (bs->fd >= 0)
        close(bs->fd);
    explicit_bzero(bs->key, sizeof(bs->key));
    free(bs);
}

void shunti_bootstrap_secret(const struct shunti_bootstrap *bs,
                             unsigned char out[32])
{
    memcpy(out, bs->key, SHUNTI_KEY_BYTES);
}

/* -- serving ------------------------------------------------------------------ */

/* Is it another user who listens where the parts say? */
static bool is_held_at(const struct shunti_id_parts *parts, char *why,
                       size_t why_len)
{
    int fd = parts->kind == SHUNTI_ID_LOCAL
                 ? connect_once(parts, shunti_wire_now(), NULL)
                 : -1;
    bool held = fd >= 0 && is_held(fd, why, why_len);

    if (fd >= 0)
        close(fd);
    return held;
}

/* Listen where the parts say; takes the port that the kernel chose into them.
 * An address in use is tried again until `deadline`, unless another user has
 * it, which `why` then says. */
static int listen_at(struct shunti_id_parts *parts, double deadline, char *why,
                     size_t why_len)
{
    struct sockaddr_storage addr;
    socklen_t len;
    int one = 1, fd, error;
    bool looked = false;

    shunti_id_sockaddr(parts, true, &addr, &len);
    fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    for (;;) {
        if (!bind(fd, (struct sockaddr *)&addr, len) && !listen(fd, 1024))
            break;
        if (errno != EADDRINUSE)
            goto failed;
        if ((!looked && is_held_at(parts, why, why_len)) ||
            shunti_wire_now() >= deadline) {
            errno = EADDRINUSE;
            goto failed;
        }
        looked = true;
        nap(0.02);
    }
    if (parts->kind != SHUNTI_ID_LOCAL && !parts->port) {
        struct shunti_id_parts bound = *parts;

        len = sizeof(addr);
        if (getsockname(fd, (struct sockaddr *)&addr, &len))
            goto failed;
        shunti_id_set_sockaddr(&bound, &addr);
        parts->port = bound.port;
    }
    return fd;

failed:
    error = errno;
    close(fd);
    errno = error;
    return -1;
}

static enum shunt_status serve(struct shunti_id_parts *parts, double patience,
                               const int *names, int nranks)
{
    static const char in_use[] =
        "; the port is in use, by another program or another job: set "
        "SHUNT_PORT to a free one, on all ranks";
    char where[64], why[192] = "";
    int fd = listen_at(parts, shunti_wire_now() + patience, why, sizeof(why));
    int rc, error = errno;

    shunti_id_describe(parts, where, sizeof(where));
    if (fd < 0 && why[0])
        return shunti_fail(NULL, SHUNT_ERR_SYSTEM, "cannot listen at %s: %s",
                           where, why);
    if (fd < 0)
        return shunti_fail(NULL, SHUNT_ERR_SYSTEM, "cannot listen at %s: %s%s",
                           where, strerror(error),
                           error == EMFILE || error == ENFILE
                               ? shunti_remedy(error)
                           : error != EADDRINUSE
                               ? "; set SHUNT_HOST to an address of this host"
                           : parts->kind == SHUNTI_ID_LOCAL
                               ? "; another process is rank 0 of this job, or "
                                 "holds its place: if it is none of yours, "
                                 "choose another MASTER_PORT"
                               : in_use);
    rc = shunti_root_start(fd, parts, shunti_env_number("SHUNT_TIMEOUT"), names,
                           nranks);
    if (rc) {
        close(fd);
        return shunti_fail(
            NULL, rc == ENOMEM ? SHUNT_ERR_MEMORY : SHUNT_ERR_SYSTEM,
            "cannot start the bootstrap's thread: %s", strerror(rc));
    }
    shunti_debug("bootstrap", "root %s: waiting for ranks", where);
    return SHUNT_OK;
}

enum shunt_status shunti_bootstrap_serve(const struct shunt_id *id)
{
    double timeout = shunti_env_number("SHUNT_TIMEOUT");
    double patience =
        shunti_roots_linger() ? BIND_BEHIND_SECONDS : BIND_SECONDS;
    struct shunti_id_parts parts;
    enum shunt_status st = shunti_id_unpack(id, &parts);

    if (!st)
        st = serve(&parts, timeout < patience ? timeout : patience, NULL, 0);
    explicit_bzero(&parts, sizeof(parts));
    return st;
}

enum shunt_status shunt_id_create(struct shunt_id *id)
{
    return shunti_id_create_named(NULL, 0, SHUNTI_REACH_HOSTS, id);
}

/* The address of an id, by who is to meet there. */
static enum shunt_status choose_address(enum shunti_reach reach, bool later,
                                        struct shunti_id_parts *parts)
{
    static const unsigned char loopback[4] = {127, 0, 0, 1};

    if (reach == SHUNTI_REACH_HOSTS)
        return shunti_id_choose_address(parts, later);
    parts->kind = reach == SHUNTI_REACH_USER ? SHUNTI_ID_LOCAL : SHUNTI_ID_IPV4;
    memcpy(parts->address, loopback, sizeof(loopback));
    return SHUNT_OK;
}

enum shunt_status shunti_id_create_named(const int *names, int nranks,
                                         enum shunti_reach reach,
                                         struct shunt_id *id)
{
    struct shunti_id_parts parts = {0};
    enum shunt_status st;

    if (!id)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "shunt_id_create: id is "
                           "NULL");
    st = choose_address(reach, names != NULL, &parts);
    if (st)
        return st;
    if (!shunti_auth_random(parts.secret, sizeof(parts.secret)) ||
        !shunti_auth_random(parts.tag, sizeof(parts.tag)))
        return shunti_fail(NULL, SHUNT_ERR_SYSTEM,
                           "the kernel gives no random numbers: %s",
                           strerror(errno));
    st = serve(&parts, 0, names, nranks);
    if (st && names && parts.port) {
        /* SHUNT_PORT: other ranks of this host may be making communicators. */
        parts.port = 0;
        st = serve(&parts, 0, names, nranks);
    }
    if (!st)
        shunti_id_pack(&parts, id);
    explicit_bzero(&parts, sizeof(parts));
    return st;
}
