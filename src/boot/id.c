// SPDX-License-Identifier: Apache-2.0
/*
 * Ids: packing, unpacking, socket addresses, and the lookup of host names.
 * id_address.c chooses the addresses that an id advertises.
 */
#include "src/boot/id.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/own_table.h"
#include "src/boot/auth.h"
#include "src/boot/bootstrap_io.h"
#include "transports/common/descriptor.h"

enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_KIND = 9,
    AT_FLAGS = 10,
    AT_OTHER = 11,
    AT_PORT = 12,
    AT_SCOPE = 16,
    AT_SECRET = 20,
    AT_TAG = 52,
    AT_ADDRESS = 68,
    AT_START = 96,
    AT_DIGEST = 112,
};

#define LAYOUT 3
#define LOOK_UP_DESCRIPTORS 3
#define NAP_SECONDS 0.002

static const char magic[8] = "shuntid";

_Static_assert(sizeof(struct shunt_id) == 128, "the layout is of 128 bytes");

/* The offset at which the addresses end. */
static size_t addresses_end(const struct shunti_id_parts *parts)
{
    return parts->flags & SHUNTI_ID_START ? AT_START : AT_DIGEST;
}

/* Bytes of an address of `kind`. */
static size_t address_bytes(enum shunti_id_kind kind)
{
    return kind == SHUNTI_ID_IPV6 ? 16 : 4;
}

/* Bytes of the first address. If the first kind is a unix socket, the address
 * is that of the second kind. */
static size_t first_bytes(const struct shunti_id_parts *parts)
{
    return address_bytes(parts->other == SHUNTI_ID_IPV6 ? parts->other
                                                        : parts->kind);
}

/* Pack the first address, then each further one that there is room for,
 * preceded by its kind. The rest stays 0. */
static void pack_addresses(const struct shunti_id_parts *parts,
                           unsigned char *at, const unsigned char *end)
{
    memcpy(at, parts->address, first_bytes(parts));
    at += first_bytes(parts);
    for (int i = 0; i < parts->nmore; i++) {
        const struct shunti_id_place *place = &parts->more[i];
        const size_t bytes = address_bytes(place->kind);

        if (1 + bytes > (size_t)(end - at))
            continue;
        *at++ = (unsigned char)place->kind;
        memcpy(at, place->address, bytes);
        at += bytes;
    }
}

static void unpack_addresses(struct shunti_id_parts *parts,
                             const unsigned char *at, const unsigned char *end)
{
    memcpy(parts->address, at, first_bytes(parts));
    at += first_bytes(parts);
    while (at < end && *at && parts->nmore < SHUNTI_ID_MORE) {
        struct shunti_id_place *place = &parts->more[parts->nmore];
        size_t bytes;

        place->kind = (enum shunti_id_kind) * at++;
        bytes = address_bytes(place->kind);
        if (bytes > (size_t)(end - at))
            break;
        memcpy(place->address, at, bytes);
        at += bytes;
        parts->nmore++;
    }
}

void shunti_id_pack(const struct shunti_id_parts *parts, struct shunt_id *id)
{
    unsigned char digest[SHUNTI_KEY_BYTES];
    uint16_t port = htons(parts->port);
    uint32_t scope = htonl(parts->scope);
    unsigned char *b = id->bytes;

    memset(b, 0, sizeof(id->bytes));
    memcpy(b + AT_MAGIC, magic, sizeof(magic));
    b[AT_VERSION] = LAYOUT;
    b[AT_KIND] = (unsigned char)parts->kind;
    b[AT_OTHER] = (unsigned char)parts->other;
    b[AT_FLAGS] = (unsigned char)parts->flags;
    memcpy(b + AT_PORT, &port, sizeof(port));
    pack_addresses(parts, b + AT_ADDRESS, b + addresses_end(parts));
    if (parts->flags & SHUNTI_ID_START)
        memcpy(b + AT_START, parts->start, SHUNTI_START_BYTES);
    memcpy(b + AT_SCOPE, &scope, sizeof(scope));
    memcpy(b + AT_SECRET, parts->secret, SHUNTI_SECRET_BYTES);
    memcpy(b + AT_TAG, parts->tag, SHUNTI_TAG_BYTES);
    shunti_auth_digest(b, AT_DIGEST, digest);
    memcpy(b + AT_DIGEST, digest, sizeof(id->bytes) - AT_DIGEST);
}

enum shunt_status shunti_id_unpack(const struct shunt_id *id,
                                   struct shunti_id_parts *parts)
{
    unsigned char digest[SHUNTI_KEY_BYTES];
    const unsigned char *b;
    uint16_t port;
    uint32_t scope;

    if (!id)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "the id is NULL");
    b = id->bytes;
    if (memcmp(b + AT_MAGIC, magic, sizeof(magic)))
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "not an id: make it with shunt_id_create() and hand "
                           "on all %d bytes",
                           SHUNT_ID_BYTES);
    if (b[AT_VERSION] != LAYOUT)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "the id has layout version %d, this library knows "
                           "version %d: use the same release everywhere",
                           b[AT_VERSION], LAYOUT);
    shunti_auth_digest(b, AT_DIGEST, digest);
    if (memcmp(b + AT_DIGEST, digest, sizeof(id->bytes) - AT_DIGEST))
        return shunti_fail(
            NULL, SHUNT_ERR_INVALID,
            "the id is damaged (its digest does not match): hand "
            "on all %d bytes unchanged",
            SHUNT_ID_BYTES);

    memset(parts, 0, sizeof(*parts));
    parts->kind = (enum shunti_id_kind)b[AT_KIND];
    parts->other = (enum shunti_id_kind)b[AT_OTHER];
    parts->flags = b[AT_FLAGS];
    memcpy(&port, b + AT_PORT, sizeof(port));
    parts->port = ntohs(port);
    unpack_addresses(parts, b + AT_ADDRESS, b + addresses_end(parts));
    if (parts->flags & SHUNTI_ID_START)
        memcpy(parts->start, b + AT_START, SHUNTI_START_BYTES);
    memcpy(&scope, b + AT_SCOPE, sizeof(scope));
    parts->scope = ntohl(scope);
    memcpy(parts->secret, b + AT_SECRET, SHUNTI_SECRET_BYTES);
    memcpy(parts->tag, b + AT_TAG, SHUNTI_TAG_BYTES);
    if (parts->kind != SHUNTI_ID_IPV4 && parts->kind != SHUNTI_ID_IPV6 &&
        parts->kind != SHUNTI_ID_LOCAL)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "the id has an address of an unknown kind (%d)",
                           (int)parts->kind);
    return SHUNT_OK;
}

/* --- socket addresses ----------------------------------------------------- */

/* The name of the unix socket, without the leading zero. */
static void local_name(const struct shunti_id_parts *parts, char name[32])
{
    int n = snprintf(name, 32, "shunt-");

    for (int i = 0; i < 12; i++)
        n += snprintf(name + n, 32 - (size_t)n, "%02x", parts->tag[i]);
}

void shunti_id_sockaddr(const struct shunti_id_parts *parts, bool listening,
                        struct sockaddr_storage *addr, socklen_t *len)
{
    bool any = listening && (parts->flags & SHUNTI_ID_ANY);

    memset(addr, 0, sizeof(*addr));
    if (parts->kind == SHUNTI_ID_LOCAL) {
        struct sockaddr_un *un = (struct sockaddr_un *)addr;

        un->sun_family = AF_UNIX;
        local_name(parts, un->sun_path + 1); /* [0] is 0: abstract */
        *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                           strlen(un->sun_path + 1));
    } else if (parts->kind == SHUNTI_ID_IPV6) {
        struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;

        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(parts->port);
        if (!any) {
            memcpy(&in6->sin6_addr, parts->address, 16);
            in6->sin6_scope_id = parts->scope;
        }
        *len = sizeof(*in6);
    } else {
        struct sockaddr_in *in = (struct sockaddr_in *)addr;

        in->sin_family = AF_INET;
        in->sin_port = htons(parts->port);
        if (!any)
            memcpy(&in->sin_addr, parts->address, 4);
        *len = sizeof(*in);
    }
}

bool shunti_id_set_sockaddr(struct shunti_id_parts *parts,
                            const struct sockaddr_storage *addr)
{
    memset(parts->address, 0, sizeof(parts->address));
    parts->scope = 0;
    if (addr->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)addr;

        parts->kind = SHUNTI_ID_IPV4;
        parts->port = ntohs(in->sin_port);
        memcpy(parts->address, &in->sin_addr, 4);
        return true;
    }
    if (addr->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)addr;
        /* A socket for both families reports an IPv4 peer with an IPv6
         * address. */
        const bool v4 = IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr);

        parts->kind = v4 ? SHUNTI_ID_IPV4 : SHUNTI_ID_IPV6;
        parts->port = ntohs(in6->sin6_port);
        if (v4)
            memcpy(parts->address, in6->sin6_addr.s6_addr + 12, 4);
        else
            memcpy(parts->address, &in6->sin6_addr, 16);
        parts->scope = in6->sin6_scope_id;
        return true;
    }
    return false;
}

void shunti_id_describe(const struct shunti_id_parts *parts, char *text,
                        size_t len)
{
    char host[INET6_ADDRSTRLEN] = "?", name[32];

    switch (parts->kind) {
    case SHUNTI_ID_LOCAL:
        local_name(parts, name);
        snprintf(text, len, "unix:@%s", name);
        return;
    case SHUNTI_ID_IPV6:
        inet_ntop(AF_INET6, parts->address, host, sizeof(host));
        snprintf(text, len, "[%s]:%u", host, parts->port);
        return;
    case SHUNTI_ID_IPV4:
        inet_ntop(AF_INET, parts->address, host, sizeof(host));
        snprintf(text, len, "%s:%u", host, parts->port);
        return;
    }
    snprintf(text, len, "?");
}

void shunti_id_describe_all(const struct shunti_id_parts *parts, char *text,
                            size_t len)
{
    struct shunti_id_parts one;
    size_t used = 0;

    for (int i = 0; shunti_id_nth(parts, i, &one); i++) {
        char where[64];

        shunti_id_describe(&one, where, sizeof(where));
        if (used + 2 + strlen(where) < len)
            used += (size_t)snprintf(text + used, len - used, "%s%s",
                                     used ? ", " : "", where);
    }
}

bool shunti_id_nth(const struct shunti_id_parts *parts, int i,
                   struct shunti_id_parts *one)
{
    if (i > parts->nmore)
        return false;
    *one = *parts;
    one->nmore = 0;
    if (!i)
        return true;
    one->kind = parts->more[i - 1].kind;
    one->other = 0;
    one->scope = 0;
    memcpy(one->address, parts->more[i - 1].address, sizeof(one->address));
    return true;
}

uint16_t shunti_id_spare_port(const struct shunti_id_parts *parts)
{
    uint16_t port =
        (uint16_t)(10000 + (parts->tag[2] | parts->tag[3] << 8) % 20000);

    return port == parts->port ? port + 1 : port;
}

/* --- names of hosts -------------------------------------------------------- */

/* Arguments and results of getaddrinfo(). */
struct look_up {
    const char *host;
    struct addrinfo hints, *list;
    int rc, error;
};

static void look_up(void *arg)
{
    struct look_up *look = arg;

    look->rc = getaddrinfo(look->host, NULL, &look->hints, &look->list);
    look->error = errno;
}

static void nap(void *arg)
{
    (void)arg;
    shunti_io_sleep(NAP_SECONDS);
}

/* Does the process lack the few descriptors that a look-up opens? The error of
 * getaddrinfo() may not say so. */
static bool lacks_descriptors(void)
{
    int fds[LOOK_UP_DESCRIPTORS], n = 0, error;

    while (n < LOOK_UP_DESCRIPTORS &&
           (fds[n] = shunti_fd_lift(
                socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0))) >= 0)
        n++;
    error = errno;
    for (int i = 0; i < n; i++)
        close(fds[i]);
    return n < LOOK_UP_DESCRIPTORS && error == EMFILE;
}

enum shunt_status shunti_id_resolve(const char *host, uint16_t port,
                                    struct shunti_id_parts *parts)
{
    struct look_up look = {.hints = {.ai_socktype = SOCK_STREAM}};
    struct sockaddr_storage addr = {0};
    struct addrinfo *ai;
    const size_t len = strlen(host);
    char bare[INET6_ADDRSTRLEN + IF_NAMESIZE];

    if (len > 2 && len < sizeof(bare) && host[0] == '[' &&
        host[len - 1] == ']') {
        snprintf(bare, sizeof(bare), "%.*s", (int)len - 2, host + 1);
        host = bare;
    }
    look.host = host;
    look_up(&look);
    /* Look the name up in a thread with its own descriptors: the rank must find
     * the root to report that it lacks them. */
    if (look.rc && lacks_descriptors())
        shunti_own_table_run(look_up, nap, &look);
    if (look.rc)
        return shunti_fail(NULL, SHUNT_ERR_SYSTEM,
                           "cannot find the address of host '%s': %s", host,
                           look.rc == EAI_SYSTEM ? strerror(look.error)
                                                 : gai_strerror(look.rc));
    /* Prefer IPv4: names often have an IPv6 address that does not work. */
    for (ai = look.list; ai && ai->ai_family != AF_INET; ai = ai->ai_next)
        ;
    if (!ai)
        ai = look.list;
    memcpy(&addr, ai->ai_addr, ai->ai_addrlen);
    freeaddrinfo(look.list);
    if (!shunti_id_set_sockaddr(parts, &addr))
        return shunti_fail(NULL, SHUNT_ERR_SYSTEM,
                           "host '%s' has neither an IPv4 nor an IPv6 address",
                           host);
    parts->port = port;
    return SHUNT_OK;
}
