// SPDX-License-Identifier: Apache-2.0
/* Makes ids, and starts the root that serves them. */
#include "src/boot/bootstrap.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/own_table.h"
#include "src/boot/bootstrap_io.h"
#include "src/boot/bootstrap_join.h"
#include "src/boot/bootstrap_root.h"
#include "transports/common/descriptor.h"

/* How long to retry if the address is in use. Long if an earlier root of this
 * process may still hold it to notify late ranks of a failure. Otherwise only
 * long enough for a process that is about to exit. */
#define BIND_SECONDS 1.0
#define BIND_AFTER_ROOT_SECONDS 15.0
#define ANSWER_SECONDS 2.0 /* for another root to answer */
#define NAP_SECONDS 0.002
#define SEND_SECONDS 3.0 /* to notify the others that there is no root */

/* Does a process of another user listen at the address of `parts`? */
static bool is_other_user_at(const struct shunti_id_parts *parts, char *why,
                             size_t why_len)
{
    int fd = parts->kind == SHUNTI_ID_LOCAL
                 ? shunti_io_connect(parts, shunti_wire_now(), NULL)
                 : -1;
    bool taken = fd >= 0 && shunti_io_is_other_user(fd, why, why_len);

    if (fd >= 0)
        close(fd);
    return taken;
}

/* A socket of the family of `addr`, and in *addr the address to bind. With
 * SHUNTI_ID_ANY the socket accepts both IPv6 and IPv4, if this system has
 * IPv6. */
static int make_socket(const struct shunti_id_parts *parts,
                       struct sockaddr_storage *addr, socklen_t *len)
{
    const int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
    const bool any =
        parts->kind != SHUNTI_ID_LOCAL && parts->flags & SHUNTI_ID_ANY;
    struct sockaddr_in6 all = {.sin6_family = AF_INET6,
                               .sin6_port = htons(parts->port)};
    int fd = any ? shunti_fd_lift(socket(AF_INET6, type, 0)) : -1, no = 0;

    if (fd >= 0 &&
        !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no))) {
        memset(addr, 0, sizeof(*addr));
        memcpy(addr, &all, sizeof(all));
        *len = sizeof(all);
        return fd;
    }
    if (fd >= 0)
        close(fd);
    shunti_id_sockaddr(parts, true, addr, len);
    return shunti_fd_lift(socket(addr->ss_family, type, 0));
}

/*
 * Does rank 0 of another job with the same name run a root at this address?
 * Joining notifies that root of this job. `why` is its answer.
 */
static bool is_other_root_at(const struct shunti_id_parts *parts, int nranks,
                             char *why, size_t why_len)
{
    struct shunti_bootstrap bs = {
        .fd = -1, .nranks = nranks, .timeout = ANSWER_SECONDS};
    double deadline = shunti_wire_now() + ANSWER_SECONDS;
    bool answers;

    if (!(parts->flags & SHUNTI_ID_RETRY) ||
        !shunti_bootstrap_try(parts, &bs, deadline))
        return false;
    shunti_id_describe(parts, bs.where, sizeof(bs.where));
    answers = shunti_bootstrap_wait_for_error(&bs, deadline);
    if (answers)
        snprintf(why, why_len, "%s", shunti_error_last());
    close(bs.fd);
    return answers;
}

/*
 * Listen at the addresses of `parts`. A port that the kernel chose is stored in
 * `parts`.
 *
 * An address in use is retried until `deadline`. The retries end early if a
 * process of another user has the address, or (with EEXIST) the root of another
 * job for `nranks` ranks. `why` then says so.
 *
 * Returns the socket, or -1 and errno.
 */
static int listen_at(struct shunti_id_parts *parts, int nranks, double deadline,
                     char *why, size_t why_len)
{
    struct sockaddr_storage addr;
    socklen_t len;
    int one = 1, fd, error;
    bool looked = false;

    fd = make_socket(parts, &addr, &len);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    for (;;) {
        if (!bind(fd, (struct sockaddr *)&addr, len) && !listen(fd, 1024))
            break;
        if (errno != EADDRINUSE)
            goto failed;
        if (nranks && is_other_root_at(parts, nranks, why, why_len)) {
            errno = EEXIST;
            goto failed;
        }
        if ((!looked && is_other_user_at(parts, why, why_len)) ||
            shunti_wire_now() >= deadline) {
            errno = EADDRINUSE;
            goto failed;
        }
        looked = true;
        shunti_io_sleep(0.02);
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

static enum shunt_status no_random_numbers(void)
{
    return shunti_fail(NULL, SHUNT_ERR_SYSTEM,
                       "the kernel gives no random numbers: %s",
                       strerror(errno));
}

static enum shunt_status serve(struct shunti_id_parts *parts,
                               double retry_seconds, const int *names,
                               int nranks)
{
    static const char in_use[] =
        "; the port is in use, by another program or another job: set "
        "SHUNT_PORT to a free one, on all ranks";
    char where[64], why[400] = "";
    int fd = listen_at(parts, names ? 0 : nranks,
                       shunti_wire_now() + retry_seconds, why, sizeof(why));
    int rc, error = errno;

    shunti_id_describe(parts, where, sizeof(where));
    if (fd < 0 && why[0])
        return shunti_fail(
            NULL, error == EEXIST ? SHUNT_ERR_MISMATCH : SHUNT_ERR_SYSTEM,
            "cannot listen at %s: %s", where, why);
    if (fd < 0)
        return shunti_fail(
            NULL, SHUNT_ERR_SYSTEM, "cannot listen at %s: %s%s", where,
            strerror(error),
            error == EMFILE || error == ENFILE ? shunti_remedy(error)
            : error != EADDRINUSE
                ? "; set SHUNT_HOST to an address of this host"
            : parts->kind == SHUNTI_ID_LOCAL
                ? "; another process is rank 0 of this job, or "
                  "holds its address: if it is not one of yours, "
                  "choose another MASTER_PORT"
                : in_use);
    rc = shunti_root_start(fd, parts, shunti_env_number("SHUNT_TIMEOUT"), names,
                           names ? nranks : 0, NULL);
    if (rc)
        return shunti_fail(NULL,
                           rc == ENOMEM ? SHUNT_ERR_MEMORY : SHUNT_ERR_SYSTEM,
                           "cannot start the bootstrap's thread: %s%s",
                           strerror(rc), shunti_remedy(rc));
    shunti_debug("bootstrap", "root %s: waiting for ranks", where);
    return SHUNT_OK;
}

/* Run a root that sends `text` to the other ranks, at one of the addresses
 * where they look for the root. False: it cannot listen there. */
static bool send_refusal_at(struct shunti_id_parts *place, int nranks,
                            const char *text)
{
    char why[400];
    int fd = listen_at(place, 0, shunti_wire_now(), why, sizeof(why));

    return fd >= 0 &&
           !shunti_root_start(fd, place, shunti_env_number("SHUNT_TIMEOUT"),
                              NULL, nranks - 1, text);
}

struct refusal {
    const struct shunti_id_parts *parts;
    int nranks;
    const char *text;
};

/* Use the root's own address if it is free. Otherwise use the unix socket and
 * the spare port. */
static void send_refusal(void *arg)
{
    const struct refusal *refusal = arg;
    struct shunti_id_parts place = *refusal->parts;

    if (!send_refusal_at(&place, refusal->nranks, refusal->text) &&
        place.kind != SHUNTI_ID_LOCAL) {
        place.kind = SHUNTI_ID_LOCAL;
        send_refusal_at(&place, refusal->nranks, refusal->text);
        place = *refusal->parts;
        place.port = shunti_id_spare_port(&place);
        send_refusal_at(&place, refusal->nranks, refusal->text);
    }
    explicit_bzero(&place, sizeof(place));
    shunti_bootstrap_settle(SEND_SECONDS, NULL);
}

static void nap(void *arg)
{
    (void)arg;
    shunti_io_sleep(NAP_SECONDS);
}

/* This process cannot listen, as shunti_error_last() says. Notify the other
 * ranks, so that they do not look for a root until their timeout. The thread
 * has its own table of descriptors, since this process may have none left. */
static void refuse_others(const struct shunti_id_parts *parts, int nranks)
{
    char text[512];
    struct refusal refusal = {.parts = parts, .nranks = nranks, .text = text};

    snprintf(text, sizeof(text), "rank 0 %s", shunti_error_last());
    if (!shunti_own_table_run(send_refusal, nap, &refusal))
        send_refusal(&refusal);
    shunti_fail(NULL, SHUNT_ERR_SYSTEM, "%s", text);
}

void shunti_bootstrap_send_failure(const struct shunti_id_parts *parts,
                                   int ranks)
{
    struct shunti_id_parts place = *parts;
    char text[512];

    snprintf(text, sizeof(text), "%s", shunti_error_last());
    (void)send_refusal_at(&place, ranks + 1, text);
    explicit_bzero(&place, sizeof(place));
    shunti_bootstrap_settle(SEND_SECONDS, NULL);
    shunti_fail(NULL, SHUNT_ERR_UNSUPPORTED, "%s", text);
}

enum shunt_status shunti_bootstrap_serve(struct shunt_id *id, int nranks)
{
    double timeout = shunti_env_number("SHUNT_TIMEOUT");
    double retry_seconds =
        shunti_root_is_running() ? BIND_AFTER_ROOT_SECONDS : BIND_SECONDS;
    struct shunti_id_parts parts;
    enum shunt_status st = shunti_id_unpack(id, &parts);

    if (st)
        return st;
    shunti_root_release_held();
    parts.flags |= SHUNTI_ID_START;
    if (!shunti_auth_random(parts.start, sizeof(parts.start)))
        st = no_random_numbers();
    if (!st)
        st = serve(&parts, timeout < retry_seconds ? timeout : retry_seconds,
                   NULL, nranks);
    if (!st)
        shunti_id_pack(&parts, id);
    else if (st == SHUNT_ERR_SYSTEM)
        refuse_others(&parts, nranks);
    explicit_bzero(&parts, sizeof(parts));
    return st;
}

/* Choose the address of a new id by the location of its ranks. */
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
        return no_random_numbers();
    st = serve(&parts, 0, names, nranks);
    if (st && names && parts.port) {
        /* SHUNT_PORT is in use, since other ranks of this host may be making
         * communicators at the same time. Let the kernel choose a port. */
        parts.port = 0;
        st = serve(&parts, 0, names, nranks);
    }
    if (!st)
        shunti_id_pack(&parts, id);
    explicit_bzero(&parts, sizeof(parts));
    return st;
}

enum shunt_status shunt_id_create(struct shunt_id *id)
{
    return shunti_id_create_named(NULL, 0, SHUNTI_REACH_HOSTS, id);
}
