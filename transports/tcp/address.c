// SPDX-License-Identifier: Apache-2.0
/*
 * Interfaces and addresses.
 *
 * A rank publishes the addresses of its interfaces. A peer tries one after the
 * other: first those in one of its own networks, and faster ones before slower
 * ones. The process that answers is authenticated (handshake.c). In the peer's
 * network an address may belong to another host, such as the address of a
 * container bridge. Such an address costs only an attempt.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/tcp/tcp.h"

static const char address_magic[8] = "shuntcp1";

static size_t ip_bytes(int family)
{
    return family == AF_INET ? 4 : 16;
}

/* --- places --------------------------------------------------------------- */

static const unsigned char *ip_of(const struct sockaddr *addr)
{
    if (addr->sa_family == AF_INET)
        return (const unsigned char *)&(
                   (const struct sockaddr_in *)(const void *)addr)
            ->sin_addr;
    return (const unsigned char *)&(
               (const struct sockaddr_in6 *)(const void *)addr)
        ->sin6_addr;
}

static uint16_t prefix_of(const struct sockaddr *mask)
{
    const unsigned char *bytes = mask ? ip_of(mask) : NULL;
    uint16_t bits = 0;

    for (size_t i = 0; bytes && i < ip_bytes(mask->sa_family); i++)
        bits = (uint16_t)(bits + __builtin_popcount(bytes[i]));
    return bits;
}

/* Returns the speed of an interface in Mbit/s according to its driver; 0:
 * unknown. */
static uint32_t speed_of(const char *interface)
{
    char path[64 + IF_NAMESIZE];
    long speed = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/sys/class/net/%s/speed", interface);
    f = fopen(path, "r");
    if (!f)
        return 0;
    if (fscanf(f, "%ld", &speed) != 1)
        speed = 0;
    fclose(f);
    return speed > 0 ? (uint32_t)speed : 0;
}

/* Is the name in the list "eth0,ib0"? */
static bool is_listed(const char *list, const char *name)
{
    const size_t len = strlen(name);

    for (const char *word = list; *word;) {
        const size_t n = strcspn(word, ",");

        if (n == len && !strncmp(word, name, n))
            return true;
        word += n + (word[n] != 0);
    }
    return false;
}

/* Does SHUNT_TCP_INTERFACES allow this interface? */
static bool is_chosen(const struct shunt_transport_ctx *ctx, const char *name)
{
    const char *list = ctx->host->env("SHUNT_TCP_INTERFACES");

    if (!list || !*list)
        return true;
    return *list == '^' ? !is_listed(list + 1, name) : is_listed(list, name);
}

/* Is the address usable? Ranks of one host use only its loopback device, so
 * that nothing listens on other networks. */
static bool is_usable(const struct shunt_transport_ctx *ctx,
                      const struct ifaddrs *i)
{
    const bool loopback = i->ifa_flags & IFF_LOOPBACK;

    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || loopback != ctx->one_host)
        return false;
    if (i->ifa_addr->sa_family == AF_INET6) {
        const struct in6_addr *ip =
            (const struct in6_addr *)(const void *)ip_of(i->ifa_addr);

        /* A peer could use it only with the number of its own interface. */
        if (IN6_IS_ADDR_LINKLOCAL(ip))
            return false;
    } else if (i->ifa_addr->sa_family != AF_INET) {
        return false;
    }
    return loopback || is_chosen(ctx, i->ifa_name);
}

enum shunt_status tcp_find_places(struct shunt_transport_ctx *ctx, char *why,
                                  size_t why_len)
{
    const char *list = ctx->host->env("SHUNT_TCP_INTERFACES");
    /* with one_host listen.c binds only the first place */
    const int room = ctx->one_host ? 1 : TCP_ADDRESSES;
    struct ifaddrs *all;

    if (getifaddrs(&all)) {
        snprintf(why, why_len, "the network interfaces cannot be listed: %s%s",
                 strerror(errno), transport_remedy(ctx->host, errno));
        return SHUNT_ERR_SYSTEM;
    }
    for (struct ifaddrs *i = all; i && ctx->places < room; i = i->ifa_next) {
        struct tcp_place *place = &ctx->place[ctx->places];

        if (!is_usable(ctx, i))
            continue;
        place->family = i->ifa_addr->sa_family;
        place->prefix = prefix_of(i->ifa_netmask);
        place->speed = speed_of(i->ifa_name);
        memcpy(place->ip, ip_of(i->ifa_addr), ip_bytes(place->family));
        ctx->places++;
    }
    freeifaddrs(all);
    if (ctx->places)
        return SHUNT_OK;
    snprintf(why, why_len, "no network interface with an address is up%s%s%s",
             list && *list ? " that SHUNT_TCP_INTERFACES='" : "",
             list && *list ? list : "", list && *list ? "' permits" : "");
    return list && *list ? SHUNT_ERR_INVALID : SHUNT_ERR_UNSUPPORTED;
}

socklen_t tcp_sockaddr(const struct tcp_place *place, uint16_t port,
                       struct sockaddr_storage *to)
{
    memset(to, 0, sizeof(*to));
    if (place->family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)(void *)to;

        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        memcpy(&in->sin_addr, place->ip, 4);
        return sizeof(*in);
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)to;

    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(port);
    memcpy(&in6->sin6_addr, place->ip, 16);
    return sizeof(*in6);
}

void tcp_place_text(const struct tcp_place *place, uint16_t port, char *text,
                    size_t len)
{
    const bool v6 = place->family == AF_INET6;
    char ip[INET6_ADDRSTRLEN] = "?";

    inet_ntop(place->family, place->ip, ip, sizeof(ip));
    snprintf(text, len, "%s%s%s:%u", v6 ? "[" : "", ip, v6 ? "]" : "", port);
}

/* --- the address of a rank ------------------------------------------------ */

enum shunt_status tcp_address(struct shunt_transport_ctx *ctx, void *blob,
                              size_t *len)
{
    struct tcp_address a = {.port = ctx->port, .places = ctx->places};

    if (*len < sizeof(a))
        return tcp_fail(ctx, SHUNT_ERR_OVERFLOW, "an address takes %zu bytes",
                        sizeof(a));
    memcpy(a.magic, address_magic, sizeof(a.magic));
    transport_process_describe(&a.process);
    memcpy(a.place, ctx->place, sizeof(a.place));
    memcpy(blob, &a, sizeof(a));
    *len = sizeof(a);
    return SHUNT_OK;
}

bool tcp_address_read(struct tcp_address *address, const void *blob, size_t len)
{
    if (len != sizeof(*address))
        return false;
    memcpy(address, blob, sizeof(*address));
    if (memcmp(address->magic, address_magic, sizeof(address->magic)) ||
        address->places > TCP_ADDRESSES)
        return false;
    for (int i = 0; i < address->places; i++)
        if (address->place[i].family != AF_INET &&
            address->place[i].family != AF_INET6)
            return false;
    return true;
}

/* --- which to try first --------------------------------------------------- */

static bool same_network(const struct tcp_place *a, const struct tcp_place *b)
{
    const size_t bits = a->prefix, whole = bits / 8;
    const unsigned char mask = (unsigned char)(0xff00 >> bits % 8);

    if (a->family != b->family || a->prefix != b->prefix ||
        bits > 8 * ip_bytes(a->family))
        return false;
    return !memcmp(a->ip, b->ip, whole) &&
           (bits % 8 == 0 || !((a->ip[whole] ^ b->ip[whole]) & mask));
}

/*
 * Returns a number for a place: the place with the larger number is tried
 * first. Places that are reached without a router are first, then faster places
 * before slower ones. Equal places keep the peer's order. An address that this
 * host also has is last, because it most likely belongs to a bridge that every
 * host has.
 */
static int64_t worth_of(const struct shunt_transport_ctx *ctx,
                        const struct tcp_place *theirs)
{
    int64_t worth = (int64_t)(theirs->speed) + ((int64_t)1 << 40);

    for (int i = 0; i < ctx->places; i++) {
        const struct tcp_place *ours = &ctx->place[i];

        if (ours->family == theirs->family &&
            !memcmp(ours->ip, theirs->ip, ip_bytes(ours->family)))
            return ctx->one_host ? worth : 0;
        if (same_network(ours, theirs))
            worth |= (int64_t)1 << 41;
    }
    return worth;
}

void tcp_order_places(struct shunt_transport_ep *ep,
                      const struct tcp_address *theirs)
{
    int64_t worth[TCP_ADDRESSES];

    ep->places = 0;
    for (int i = 0; i < theirs->places; i++) {
        const int64_t w = worth_of(ep->ctx, &theirs->place[i]);
        int at = ep->places++;

        for (; at > 0 && worth[at - 1] < w; at--) {
            worth[at] = worth[at - 1];
            ep->place[at] = ep->place[at - 1];
        }
        worth[at] = w;
        ep->place[at] = theirs->place[i];
    }
}
