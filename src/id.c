// SPDX-License-Identifier: Apache-2.0
/*
 * Ids: packing, unpacking, and choosing the address that they advertise.
 */
#include "src/id.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "src/auth.h"
#include "src/bootstrap.h"
#include "src/env.h"
#include "src/error.h"
#include "src/log.h"
#include "transports/common/descriptor.h"

enum {
    AT_MAGIC = 0,
    AT_VERSION = 8,
    AT_KIND = 9,
    AT_FLAGS = 10,
    AT_OTHER = 11,
    AT_PORT = 12,
    AT_ADDRESS = 16,
    AT_SCOPE = 32,
    AT_SECRET = 48,
    AT_TAG = 80,
    AT_DIGEST = 112,
};

#define LAYOUT 2

static const char magic[8] = "shuntid";

_Static_assert(sizeof(struct shunt_id) == 128, "the layout is of 128 bytes");

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
    memcpy(b + AT_ADDRESS, parts->address, sizeof(parts->address));
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
    memcpy(parts->address, b + AT_ADDRESS, sizeof(parts->address));
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

        parts->kind = SHUNTI_ID_IPV6;
        parts->port = ntohs(in6->sin6_port);
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

/* --- choosing an address -------------------------------------------------- */

/* How useful an address is to other hosts: 0, not at all; more is better. */
static int rate_address(const struct ifaddrs *ifa)
{
    if (!ifa->ifa_addr || !(ifa->ifa_flags & IFF_UP))
        return 0;
    if (ifa->ifa_addr->sa_family == AF_INET) {
        const struct sockaddr_in *in =
            (const struct sockaddr_in *)(const void *)ifa->ifa_addr;
        uint32_t a = ntohl(in->sin_addr.s_addr);

        if (ifa->ifa_flags & IFF_LOOPBACK || a >> 24 == 127)
            return 1;
        if (a >> 16 == 0xa9fe) /* 169.254/16: link-local */
            return 2;
        return 6;
    }
    if (ifa->ifa_addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 =
            (const struct sockaddr_in6 *)(const void *)ifa->ifa_addr;

        if (ifa->ifa_flags & IFF_LOOPBACK ||
            IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
            return 0;
        return 4;
    }
    return 0;
}

/* The best address of `interface`, or of any interface (NULL). That the link is
 * up counts more than the address family. False: none. */
static bool best_address(const char *interface, struct shunti_id_parts *parts)
{
    struct ifaddrs *list;
    int best = 0;

    if (getifaddrs(&list))
        return false;
    for (const struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next) {
        struct sockaddr_storage addr = {0};
        int score;

        if (interface && strcmp(interface, ifa->ifa_name))
            continue;
        score = rate_address(ifa);
        if (score > 1 && ifa->ifa_flags & IFF_RUNNING)
            score += 3;
        if (score <= best)
            continue;
        memcpy(&addr, ifa->ifa_addr,
               ifa->ifa_addr->sa_family == AF_INET
                   ? sizeof(struct sockaddr_in)
                   : sizeof(struct sockaddr_in6));
        if (shunti_id_set_sockaddr(parts, &addr))
            best = score;
    }
    freeifaddrs(list);
    return best > 0;
}

enum shunt_status shunti_id_resolve(const char *host, uint16_t port,
                                    struct shunti_id_parts *parts)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *ai;
    struct sockaddr_storage addr = {0};
    int rc = getaddrinfo(host, NULL, &hints, &list);

    if (rc)
        return shunti_fail(
            NULL, SHUNT_ERR_SYSTEM, "cannot find the address of host '%s': %s",
            host, rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
    /* Prefer IPv4: names often have an IPv6 address that does not work. */
    for (ai = list; ai && ai->ai_family != AF_INET; ai = ai->ai_next)
        ;
    if (!ai)
        ai = list;
    memcpy(&addr, ai->ai_addr, ai->ai_addrlen);
    freeaddrinfo(list);
    if (!shunti_id_set_sockaddr(parts, &addr))
        return shunti_fail(NULL, SHUNT_ERR_SYSTEM,
                           "host '%s' has neither an IPv4 nor an IPv6 address",
                           host);
    parts->port = port;
    return SHUNT_OK;
}

/* Is this an address of this host? */
static bool is_local_address(const struct shunti_id_parts *parts)
{
    struct shunti_id_parts any_port = *parts;
    struct sockaddr_storage addr;
    socklen_t len;
    bool here;
    int fd;

    any_port.port = 0;
    shunti_id_sockaddr(&any_port, true, &addr, &len);
    fd = shunti_fd_lift(socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    here = fd >= 0 &&
           (!bind(fd, (struct sockaddr *)&addr, len) || errno != EADDRNOTAVAIL);
    if (fd >= 0)
        close(fd);
    return here;
}

enum shunt_status shunti_id_choose_address(struct shunti_id_parts *parts,
                                           bool later)
{
    const char *host = shunti_env_string("SHUNT_HOST");
    double port = shunti_env_number("SHUNT_PORT");

    if (port > 65535)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "SHUNT_PORT=%.0f is not a TCP port (1 to 65535)",
                           port);
    if (host && !best_address(host, parts)) {
        enum shunt_status st = shunti_id_resolve(host, 0, parts);

        if (st)
            return shunti_fail(NULL, st, "SHUNT_HOST: %s", shunti_error_last());
        if (later && !is_local_address(parts))
            host = NULL;
    }
    if (!host && !best_address(NULL, parts)) {
        memset(parts->address, 0, sizeof(parts->address));
        parts->kind = SHUNTI_ID_IPV4;
        parts->address[0] = 127;
        parts->address[3] = 1;
    }
    parts->port = port > 0 ? (uint16_t)port : 0;
    return SHUNT_OK;
}
