// SPDX-License-Identifier: Apache-2.0
/*
 * Network devices, from /sys and getifaddrs().
 */
#include "tools/info_network.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/first_line.h"

#define NET "/sys/class/net"
#define RDMA "/sys/class/infiniband"

/* Read the first line of a file, without its newline. */
static bool read_line(const char *path, char *text, size_t size)
{
    const bool good = shunti_first_line(path, text, (int)size);

    if (good)
        text[strcspn(text, "\n")] = '\0';
    return good;
}

struct list {
    struct info_device *device;
    size_t n;
};

static struct info_device *add(struct list *list, const char *name)
{
    struct info_device *more =
        realloc(list->device, (list->n + 1) * sizeof(*more));

    if (!more)
        return NULL;
    list->device = more;
    more += list->n++;
    memset(more, 0, sizeof(*more));
    snprintf(more->name, sizeof(more->name), "%s", name);
    return more;
}

static int visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* Call `each` for the entries of a folder, in alphabetical order. */
static void for_entries(const char *folder, struct list *list,
                        void (*each)(struct list *list, const char *name))
{
    struct dirent **entries;
    int n = scandir(folder, &entries, visible, alphasort);

    for (int i = 0; i < n; i++) {
        each(list, entries[i]->d_name);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

/* --- RDMA ----------------------------------------------------------------- */

/* Add a port. Its files contain "4: ACTIVE", "100 Gb/sec (4X EDR)" and
 * "InfiniBand". */
static void find_port(struct list *list, const char *device, int port)
{
    char path[512], line[128], name[64];
    struct info_device *d;

    snprintf(name, sizeof(name), "%.50s:%d", device, port);
    d = add(list, name);
    if (!d)
        return;
    d->rdma = true;
    snprintf(path, sizeof(path), RDMA "/%s/ports/%d/state", device, port);
    if (read_line(path, line, sizeof(line))) {
        const char *word = strchr(line, ' ');
        snprintf(d->state, sizeof(d->state), "%.31s", word ? word + 1 : line);
    }
    d->up = strcmp(d->state, "ACTIVE") == 0;
    snprintf(path, sizeof(path), RDMA "/%s/ports/%d/rate", device, port);
    if (read_line(path, line, sizeof(line)))
        d->mbps = strtod(line, NULL) * 1e3;
    snprintf(path, sizeof(path), RDMA "/%s/ports/%d/link_layer", device, port);
    if (read_line(path, line, sizeof(line)))
        snprintf(d->addresses, sizeof(d->addresses), "%s", line);
}

static void find_rdma(struct list *list, const char *device)
{
    char path[512];
    struct dirent **ports;
    int n;

    snprintf(path, sizeof(path), RDMA "/%s/ports", device);
    n = scandir(path, &ports, visible, alphasort);
    for (int i = 0; i < n; i++) {
        find_port(list, device, atoi(ports[i]->d_name));
        free(ports[i]);
    }
    if (n >= 0)
        free(ports);
}

/* --- interfaces ----------------------------------------------------------- */

static void find_interface(struct list *list, const char *name)
{
    char path[512], line[64];
    struct info_device *d;

    snprintf(path, sizeof(path), NET "/%s/flags", name);
    if (read_line(path, line, sizeof(line)) &&
        strtol(line, NULL, 16) & IFF_LOOPBACK)
        return;
    /* The folder may have other files than interfaces, such as
     * bonding_masters. */
    snprintf(path, sizeof(path), NET "/%s/operstate", name);
    if (!read_line(path, line, sizeof(line)))
        return;
    d = add(list, name);
    if (!d)
        return;
    snprintf(d->state, sizeof(d->state), "%.31s", line);
    /* Virtual interfaces often report no state. */
    d->up = strcmp(line, "up") == 0 || strcmp(line, "unknown") == 0;
    snprintf(path, sizeof(path), NET "/%s/speed", name);
    if (read_line(path, line, sizeof(line)) && atof(line) > 0)
        d->mbps = atof(line);
    snprintf(path, sizeof(path), NET "/%s/mtu", name);
    if (read_line(path, line, sizeof(line)))
        d->mtu = atoi(line);
}

/* Returns the `*length` bytes of the address. *length 0: an address of a kind
 * that is not shown. */
static const unsigned char *address_of(const struct sockaddr *a, int *length)
{
    const void *p = a;

    *length = 0;
    if (a && a->sa_family == AF_INET) {
        *length = 4;
        p = &((const struct sockaddr_in *)p)->sin_addr;
    } else if (a && a->sa_family == AF_INET6) {
        *length = 16;
        p = &((const struct sockaddr_in6 *)p)->sin6_addr;
    }
    return p;
}

static void add_address(struct info_device *d, const struct ifaddrs *a)
{
    char text[INET6_ADDRSTRLEN];
    int length, mask_length, bits = 0;
    const unsigned char *address = address_of(a->ifa_addr, &length);
    const unsigned char *mask = address_of(a->ifa_netmask, &mask_length);
    size_t used = strlen(d->addresses);

    if (!length ||
        !inet_ntop(a->ifa_addr->sa_family, address, text, sizeof(text)))
        return;
    for (int i = 0; i < mask_length; i++)
        bits += __builtin_popcount(mask[i]);
    snprintf(d->addresses + used, sizeof(d->addresses) - used, "%s%s/%d",
             used ? ", " : "", text, bits);
}

static void find_addresses(const struct list *list)
{
    struct ifaddrs *all;

    if (getifaddrs(&all))
        return;
    for (const struct ifaddrs *a = all; a; a = a->ifa_next)
        for (size_t i = 0; a->ifa_addr && i < list->n; i++)
            if (!list->device[i].rdma &&
                strcmp(list->device[i].name, a->ifa_name) == 0)
                add_address(&list->device[i], a);
    freeifaddrs(all);
}

/* --- all of them ---------------------------------------------------------- */

static int better_first(const void *a, const void *b)
{
    const struct info_device *x = a, *y = b;

    if (x->rdma != y->rdma)
        return y->rdma - x->rdma;
    if (x->up != y->up)
        return y->up - x->up;
    return strcmp(x->name, y->name);
}

struct info_device *info_devices(size_t *count)
{
    struct list list = {NULL, 0};

    for_entries(RDMA, &list, find_rdma);
    for_entries(NET, &list, find_interface);
    find_addresses(&list);
    if (list.n)
        qsort(list.device, list.n, sizeof(*list.device), better_first);
    *count = list.n;
    return list.device;
}

void info_network_print(const struct info_device *devices, size_t count)
{
    printf("\nNetwork devices\n");
    if (!count)
        printf("  none but loopback\n");
    for (size_t i = 0; i < count; i++) {
        const struct info_device *d = &devices[i];

        printf("  %-13s %s", d->name, d->state);
        if (d->mbps >= 1000)
            printf(", %g Gbit/s", d->mbps / 1000);
        else if (d->mbps > 0)
            printf(", %g Mbit/s", d->mbps);
        if (d->mtu)
            printf(", MTU %d", d->mtu);
        if (d->addresses[0])
            printf(", %s", d->addresses);
        printf("\n");
    }
}

void info_network_json(const struct info_device *devices, size_t count,
                       void (*text)(const char *))
{
    printf("[");
    for (size_t i = 0; i < count; i++) {
        const struct info_device *d = &devices[i];

        printf("%s\n {\"name\":", i ? "," : "");
        text(d->name);
        printf(",\"kind\":\"%s\",\"up\":%s,\"state\":",
               d->rdma ? "rdma" : "interface", d->up ? "true" : "false");
        text(d->state);
        printf(",\"mbps\":%g,\"mtu\":%d,\"%s\":", d->mbps, d->mtu,
               d->rdma ? "link_layer" : "addresses");
        text(d->addresses);
        printf("}");
    }
    printf("]");
}
