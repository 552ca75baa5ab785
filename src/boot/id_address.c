// SPDX-License-Identifier: Apache-2.0
/*
 * The addresses of this host: which ones an id advertises, and in which order a
 * rank tries those of another host.
 *
 * No host knows which of its addresses another host reaches: 172.17.0.1 is that
 * of a container bridge on every host that has one. So an id has several
 * addresses, and the root listens at all of them.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/error.h"
#include "src/boot/id.h"
#include "transports/common/descriptor.h"

#define BEST_RATE 9

static const struct sockaddr_in *in4(const struct sockaddr *addr)
{
    return (const struct sockaddr_in *)(const void *)addr;
}

static const struct sockaddr_in6 *in6(const struct sockaddr *addr)
{
    return (const struct sockaddr_in6 *)(const void *)addr;
}

/* --- addresses of an id that is made here --------------------------------- */

/* How useful an address is to other hosts, from 0 (useless) to BEST_RATE. A
 * link that is up counts more than the address family. */
static int rate_address(const struct ifaddrs *ifa)
{
    const int up = ifa->ifa_flags & IFF_RUNNING ? 3 : 0;

    if (!ifa->ifa_addr || !(ifa->ifa_flags & IFF_UP))
        return 0;
    if (ifa->ifa_addr->sa_family == AF_INET) {
        uint32_t a = ntohl(in4(ifa->ifa_addr)->sin_addr.s_addr);

        if (ifa->ifa_flags & IFF_LOOPBACK || a >> 24 == 127)
            return 1;
        if (a >> 16 == 0xa9fe) /* 169.254/16: link-local */
            return 2 + up;
        return 6 + up;
    }
    if (ifa->ifa_addr->sa_family == AF_INET6)
        return ifa->ifa_flags & IFF_LOOPBACK ||
                       IN6_IS_ADDR_LINKLOCAL(&in6(ifa->ifa_addr)->sin6_addr)
                   ? 0
                   : 4 + up;
    return 0;
}

/* Append an address. */
static void add_address(struct shunti_id_parts *parts, bool first,
                        const struct sockaddr *addr)
{
    struct sockaddr_storage storage = {0};
    struct shunti_id_parts one;

    memcpy(&storage, addr,
           addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                      : sizeof(struct sockaddr_in6));
    if (first) {
        shunti_id_set_sockaddr(parts, &storage);
    } else if (parts->nmore < SHUNTI_ID_MORE &&
               shunti_id_set_sockaddr(&one, &storage)) {
        struct shunti_id_place *place = &parts->more[parts->nmore++];

        place->kind = one.kind;
        memcpy(place->address, one.address, sizeof(place->address));
    }
}

/* The addresses of `interface`, or of all interfaces (NULL), best first. The
 * loopback device counts only if there is no other. False: there are none.
 * errno is then not 0 if the interfaces cannot be listed. */
static bool find_addresses(const char *interface, struct shunti_id_parts *parts)
{
    struct ifaddrs *list;
    bool found = false;

    errno = 0;
    if (getifaddrs(&list))
        return false;
    parts->nmore = 0;
    for (int rate = BEST_RATE; rate > 0; rate--)
        for (const struct ifaddrs *ifa = list; ifa; ifa = ifa->ifa_next) {
            if ((interface && strcmp(interface, ifa->ifa_name) != 0) ||
                rate_address(ifa) != rate || (rate == 1 && found))
                continue;
            add_address(parts, !found, ifa->ifa_addr);
            found = true;
        }
    freeifaddrs(list);
    errno = 0;
    return found;
}

bool shunti_id_interface(const char *name, struct shunti_id_parts *parts)
{
    return find_addresses(name, parts);
}

/* Is this an address of this host? */
bool shunti_id_is_of_this_host(const struct shunti_id_parts *parts)
{
    struct shunti_id_parts any_port = *parts;
    struct sockaddr_storage addr;
    socklen_t len;
    bool here;
    int fd;

    any_port.port = 0;
    any_port.flags &= ~(unsigned)SHUNTI_ID_ANY;
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
    if (host && !find_addresses(host, parts)) {
        enum shunt_status st = shunti_id_resolve(host, 0, parts);

        if (st)
            return shunti_fail(NULL, st, "SHUNT_HOST: %s", shunti_error_last());
        if (later && !shunti_id_is_of_this_host(parts))
            host = NULL;
    }
    if (!host && !find_addresses(NULL, parts)) {
        if (errno)
            return shunti_fail(
                NULL, errno == ENOMEM ? SHUNT_ERR_MEMORY : SHUNT_ERR_SYSTEM,
                "the network interfaces cannot be listed: %s%s",
                strerror(errno), shunti_remedy(errno));
        memset(parts->address, 0, sizeof(parts->address));
        parts->kind = SHUNTI_ID_IPV4;
        parts->address[0] = 127;
        parts->address[3] = 1;
    }
    parts->port = port > 0 ? (uint16_t)port : 0;
    if (parts->nmore)
        parts->flags |= SHUNTI_ID_ANY;
    return SHUNT_OK;
}

/* --- order of the addresses of an id that is joined from here ------------- */

static bool same_bits(const unsigned char *a, const unsigned char *b,
                      const unsigned char *mask, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if ((a[i] ^ b[i]) & (mask ? mask[i] : 0xff))
            return false;
    return true;
}

static const unsigned char *ip_of(const struct sockaddr *addr)
{
    if (!addr)
        return NULL;
    return addr->sa_family == AF_INET
               ? (const unsigned char *)&in4(addr)->sin_addr
               : (const unsigned char *)&in6(addr)->sin6_addr;
}

/* 0: `one` is in a network of this host; 1: it is not; 2: this host has the
 * address itself. */
static int distance_to(const struct shunti_id_parts *one,
                       const struct ifaddrs *list)
{
    const int family = one->kind == SHUNTI_ID_IPV6 ? AF_INET6 : AF_INET;
    const size_t bytes = family == AF_INET6 ? 16 : 4;
    int distance = 1;

    for (; list; list = list->ifa_next) {
        const unsigned char *ours = ip_of(list->ifa_addr);

        if (!ours || list->ifa_addr->sa_family != family)
            continue;
        if (same_bits(ours, one->address, NULL, bytes))
            return 2;
        if (list->ifa_flags & IFF_UP && list->ifa_netmask &&
            same_bits(ours, one->address, ip_of(list->ifa_netmask), bytes))
            distance = 0;
    }
    return distance;
}

int shunti_id_order(const struct shunti_id_parts *parts,
                    int order[1 + SHUNTI_ID_MORE])
{
    struct ifaddrs *list = NULL;
    struct shunti_id_parts one;
    int count = 0;

    if (parts->nmore && getifaddrs(&list))
        list = NULL;
    for (int distance = 0; distance <= 2; distance++)
        for (int i = 0; shunti_id_nth(parts, i, &one); i++)
            if (distance_to(&one, list) == distance)
                order[count++] = i;
    if (list)
        freeifaddrs(list);
    explicit_bzero(&one, sizeof(one));
    return count;
}
