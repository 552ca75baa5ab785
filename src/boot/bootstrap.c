// SPDX-License-Identifier: Apache-2.0
/*
 * A rank's calls on the bootstrap: join, allgather, abort, leave.
 */
#include "src/boot/bootstrap.h"
#include "src/base/limits.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/own_table.h"
#include "src/boot/bootstrap_io.h"
#include "src/boot/bootstrap_join.h"
#include "src/boot/bootstrap_root.h"
#include "src/boot/bootstrap_wire.h"

#define NO_TYPE 0 /* no message has this type */
#define NAP_SECONDS 0.002
#define GRACE_SECONDS 1.0 /* time for the root's ERROR to arrive */

/* --- frames --------------------------------------------------------------- */

/* Error: the process of the root is stuck or unreachable. */
static enum shunt_status root_timed_out(struct shunti_bootstrap *bs,
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

static enum shunt_status io_failed(struct shunti_bootstrap *bs,
                                   enum shunti_io io, const char *doing)
{
    if (io == SHUNTI_IO_CANCELLED) /* the caller notifies the root */
        return shunti_parent_error(bs->parent);
    bs->failed = true;
    if (io == SHUNTI_IO_TIMEOUT)
        return root_timed_out(bs, doing);
    return shunti_fail(NULL, SHUNT_ERR_PEER,
                       "rank %d: the root at %s is gone (the process that made "
                       "the id, or rank 0, has ended) while %s",
                       bs->name, bs->where, doing);
}

static bool is_error(int32_t status)
{
    return status <= SHUNT_ERR_INVALID && status >= SHUNT_ERR_BUSY;
}

/* Receive the header of the next frame, which must be of `type`. If it is an
 * ERROR frame, receive all of it, and return its error. */
static enum shunt_status expect(struct shunti_bootstrap *bs, uint32_t type,
                                double deadline, const char *doing,
                                uint64_t *bytes)
{
    unsigned char raw[SHUNTI_WIRE_HEADER_BYTES];
    char text[SHUNTI_WIRE_TEXT_MAX + 1];
    struct shunti_wire_header header;
    enum shunti_io io =
        shunti_io_receive(bs->fd, raw, sizeof(raw), deadline, bs->parent);

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
    io = shunti_io_receive(bs->fd, text, (size_t)header.bytes, deadline,
                           bs->parent);
    if (io)
        return io_failed(bs, io, doing);
    text[header.bytes] = '\0';
    for (size_t at = strlen(text) + 1; at + 4 <= header.bytes; at += 4)
        shunti_parent_add_reported(
            bs->parent,
            (int32_t)shunti_wire_get32((const unsigned char *)text + at));
    /* The process of the root lacks a resource. Name its rank. */
    if (bs->parent && (header.status == SHUNT_ERR_MEMORY ||
                       header.status == SHUNT_ERR_SYSTEM))
        return shunti_fail(NULL, (enum shunt_status)header.status,
                           "%s (in rank %d)", text, bs->parent->root);
    return shunti_fail(NULL, (enum shunt_status)header.status, "%s", text);
}

enum shunt_status shunti_bootstrap_check(struct shunti_bootstrap *bs,
                                         double seconds)
{
    struct pollfd p = {.fd = bs->fd, .events = POLLIN};
    uint64_t bytes;

    if (bs->failed || poll(&p, 1, (int)(seconds * 1e3)) <= 0)
        return SHUNT_OK;
    return expect(bs, NO_TYPE, shunti_wire_now() + GRACE_SECONDS,
                  "ranks were connecting", &bytes);
}

bool shunti_bootstrap_wait_for_error(struct shunti_bootstrap *bs,
                                     double deadline)
{
    uint64_t bytes;

    return expect(bs, NO_TYPE, deadline, "it was asked", &bytes) ==
           SHUNT_ERR_MISMATCH;
}

static enum shunt_status wait_for_all(struct shunti_bootstrap *bs,
                                      const unsigned char *secret,
                                      double deadline)
{
    static const char doing[] = "ranks were joining";
    unsigned char salt[SHUNTI_WIRE_SALT_BYTES];
    uint64_t bytes;
    enum shunti_io io;
    enum shunt_status st =
        expect(bs, SHUNTI_WIRE_READY, deadline, doing, &bytes);

    if (st)
        return st;
    io = bytes == sizeof(salt) ? shunti_io_receive(bs->fd, salt, sizeof(salt),
                                                   deadline, bs->parent)
                               : SHUNTI_IO_CLOSED;
    if (io)
        return io_failed(bs, io, doing);
    shunti_auth_derive(secret, "shunt transports", salt, sizeof(salt), bs->key);
    return SHUNT_OK;
}

/* --- joining and leaving -------------------------------------------------- */

/* Used if malloc() fails: the rank must still connect to notify the others. */
static _Thread_local struct shunti_bootstrap reserve;
static _Thread_local bool reserve_used;

static struct shunti_bootstrap *bootstrap_new(void)
{
    struct shunti_bootstrap *bs = calloc(1, sizeof(*bs));

    if (!bs && !reserve_used) {
        bs = &reserve;
        *bs = (struct shunti_bootstrap){0};
        reserve_used = true;
    }
    if (bs)
        bs->fd = -1;
    return bs;
}

static void bootstrap_free(struct shunti_bootstrap *bs)
{
    explicit_bzero(bs->key, sizeof(bs->key));
    if (bs == &reserve)
        reserve_used = false;
    else
        free(bs);
}

enum shunt_status shunti_bootstrap_join(const struct shunt_id *id, int nranks,
                                        int rank, double timeout,
                                        struct shunti_bootstrap **out)
{
    return shunti_bootstrap_join_from(NULL, id, nranks, rank, timeout, out);
}

/* Called when joining has failed on this or another rank. If a root of this
 * process lacked a resource, return that error instead of `status`. The root
 * may have been unable to send its error. */
static enum shunt_status in_own_words(const struct shunti_id_parts *parts,
                                      enum shunt_status status)
{
    char where[64], why[512];
    enum shunt_status st;

    shunti_id_describe(parts, where, sizeof(where));
    st = shunti_root_failed_here(where, why, sizeof(why));
    if (st != SHUNT_ERR_SYSTEM && st != SHUNT_ERR_MEMORY)
        return status;
    return shunti_fail(NULL, st, "%s", why);
}

/* A rank without descriptors joins in a thread that can open some. These are
 * the arguments of that thread. */
struct telling {
    const struct shunt_id *id;
    int nranks, rank;
    double timeout;
    const char *text;
    struct shunti_parent *parent; /* used only by the calling thread */
    struct shunti_parent there;   /* used by the other thread */
    atomic_bool cancelled;
};

static bool is_cancelled(void *arg, char *why, size_t size)
{
    struct telling *telling = arg;

    (void)why;
    (void)size;
    return atomic_load(&telling->cancelled);
}

static void send_reason(void *arg)
{
    struct telling *telling = arg;
    struct shunti_bootstrap *bs;

    if (shunti_bootstrap_join_from(&telling->there, telling->id,
                                   telling->nranks, telling->rank,
                                   telling->timeout, &bs))
        return;
    shunti_bootstrap_abort(bs, telling->text);
    shunti_bootstrap_leave(bs);
}

static void watch_parent(void *arg)
{
    struct telling *telling = arg;

    shunti_io_sleep(NAP_SECONDS);
    if (shunti_parent_cancelled(telling->parent))
        atomic_store(&telling->cancelled, true);
}

/*
 * This rank has no descriptor for the connection to the root, as
 * shunti_error_last() says. The other ranks would wait for this rank. So join
 * in a thread with its own table of descriptors, and send there the reason why
 * this rank leaves.
 */
static void send_reason_without_descriptors(const struct shunti_bootstrap *bs,
                                            const struct shunt_id *id,
                                            double deadline)
{
    char text[512], ours[32];
    struct telling telling = {
        .id = id,
        .nranks = bs->nranks,
        .rank = bs->rank,
        .timeout = deadline - shunti_wire_now(),
        .parent = bs->parent,
        .there = {.cancelled = is_cancelled, .arg = &telling},
    };
    const size_t len =
        (size_t)snprintf(ours, sizeof(ours), "rank %d: ", bs->name);

    if (bs->parent) {
        telling.there.names = bs->parent->names;
        telling.there.root = bs->parent->root;
    }
    snprintf(text, sizeof(text), "%s", shunti_error_last());
    telling.text = strncmp(text, ours, len) ? text : text + len;
    if (telling.timeout > 0)
        shunti_own_table_run(send_reason, watch_parent, &telling);
    free(telling.there.blamed);
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
    bs = bootstrap_new();
    if (!bs)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory to join");
    bs->parent = parent;
    bs->rank = rank;
    bs->name = sane ? shunti_rank_name(parent, rank) : rank;
    bs->nranks = nranks;
    bs->timeout = timeout;
    /* Join even if rank or nranks are invalid, so that the other ranks are
     * notified, but wait only briefly. If the ranks of the parent agree on the
     * result, wait only half the timeout: they wait the whole timeout for this
     * rank. */
    deadline = start + (sane || timeout < 5 ? timeout : 5);
    if (parent && parent->agree)
        deadline = start + timeout / 2;
    shunti_id_describe(&parts, bs->where, sizeof(bs->where));

    st = shunti_bootstrap_connect(&parts, bs, start, deadline);
    if (st == SHUNT_ERR_SYSTEM && !(parent && parent->agree) &&
        !shunti_own_table_is_here())
        send_reason_without_descriptors(bs, id, deadline);
    if (st == SHUNT_ERR_PEER)
        st = in_own_words(&parts, st);
    if (parent && parent->agree) {
        const enum shunt_status agreed = shunti_parent_agree(parent, st);

        if (agreed && !st) { /* no failure here: send BYE, so that the root ends
                                at once */
            shunti_bootstrap_leave(bs);
            return in_own_words(&parts, agreed);
        }
        st = agreed;
    }
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
    if (!shunti_io_send(bs->fd, header, sizeof(header), deadline, NULL))
        (void)shunti_io_send(bs->fd, text, len, deadline, NULL);
    bs->failed = true;
}

void shunti_bootstrap_leave(struct shunti_bootstrap *bs)
{
    unsigned char header[SHUNTI_WIRE_HEADER_BYTES];

    if (!bs)
        return;
    if (!bs->failed) {
        shunti_wire_put_header(header, SHUNTI_WIRE_BYE, 0, 0);
        (void)shunti_io_send(bs->fd, header, sizeof(header), shunti_wire_now(),
                             NULL);
    }
    if (bs->fd >= 0)
        close(bs->fd);
    bootstrap_free(bs);
}

void shunti_bootstrap_secret(const struct shunti_bootstrap *bs,
                             unsigned char out[32])
{
    memcpy(out, bs->key, SHUNTI_KEY_BYTES);
}

/* --- exchanging ----------------------------------------------------------- */

void shunti_blobs_finish(struct shunti_blobs *blobs)
{
    if (!blobs)
        return;
    free(blobs->data);
    free(blobs->len);
    free(blobs->storage);
    *blobs = (struct shunti_blobs){0};
}

/* Find the blobs in an ALL frame; false: it is malformed. */
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
    enum shunti_io io;

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
    io = shunti_io_send(bs->fd, header, sizeof(header), deadline, bs->parent);
    if (!io)
        io = shunti_io_send(bs->fd, mine, len, deadline, bs->parent);
    /* If the root has closed the connection, it may have sent an ERROR before.
     * Read it. */
    if (io == SHUNTI_IO_TIMEOUT || io == SHUNTI_IO_CANCELLED)
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
        shunti_bootstrap_abort(bs, shunti_error_last());
        goto failed;
    }
    io = shunti_io_receive(bs->fd, all->storage, (size_t)bytes, deadline,
                           bs->parent);
    if (io) {
        st = io_failed(bs, io, doing);
        goto failed;
    }
    if (split_blobs(all, bs->nranks, bytes))
        return SHUNT_OK;
    st = shunti_fail(NULL, SHUNT_ERR_MISMATCH,
                     "rank %d: the root at %s sent a malformed message: "
                     "different releases of the library?",
                     bs->name, bs->where);
failed:
    bs->failed = true;
    shunti_blobs_finish(all);
    return st;
}
