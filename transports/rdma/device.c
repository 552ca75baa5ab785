// SPDX-License-Identifier: Apache-2.0
/*
 * Chooses devices, ports and addresses. SHUNT_RDMA_DEVICE names devices and
 * their order. Without it, all ports are used that are active and have the same
 * kind of network as the first one. The nearest ports are the first.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/rdma/locality.h"
#include "transports/rdma/rdma.h"

#define MAX_DEVICES 64

/* The state of the search for ports, and its result. */
struct search {
    const struct shunt_transport_host *host;
    const char *asked;
    struct rdma_nic *nics; /* (RDMA_RAILS) */
    int count;
    char used[512], unused[512];
};

/* Returns the value of a knob, or NULL if it is not set. */
static const char *knob(const struct shunt_transport_host *host,
                        const char *name)
{
    const char *value = host->env ? host->env(name) : NULL;

    return value && value[0] ? value : NULL;
}

__attribute__((format(printf, 3, 4))) static void
append(char *text, size_t room, const char *format, ...)
{
    size_t n = strlen(text);
    va_list args;

    if (n > 0 && n + 2 < room)
        n += (size_t)snprintf(text + n, room - n, "; ");
    va_start(args, format);
    vsnprintf(text + n, room - n, format, args);
    va_end(args);
}

#define UNUSED(search, ...) \
    append((search)->unused, sizeof((search)->unused), __VA_ARGS__)

/* --- GIDs -------------------------------------------------------------------- */

static bool is_ipv4(const union ibv_gid *gid)
{
    static const unsigned char prefix[12] = {[10] = 0xff, [11] = 0xff};

    return !memcmp(gid->raw, prefix, sizeof(prefix));
}

static bool is_link_local(const union ibv_gid *gid)
{
    return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

bool rdma_on_one_network(const struct rdma_place *a, const struct rdma_place *b)
{
    /* IPv4 networks with RoCE devices are rarely smaller than this prefix. */
    const size_t prefix = is_ipv4(&a->gid) ? 15 : 8;

    return !memcmp(a->gid.raw, b->gid.raw, prefix);
}

bool rdma_may_reach(const struct rdma_place *a, const struct rdma_place *b)
{
    return a->layer == b->layer &&
           (a->layer == IBV_LINK_LAYER_ETHERNET || rdma_on_one_network(a, b));
}

void rdma_subnet_name(const struct rdma_place *place, char name[RDMA_SUBNET])
{
    union ibv_gid prefix = place->gid;

    memset(prefix.raw + 8, 0, 8);
    if (!inet_ntop(AF_INET6, prefix.raw, name, RDMA_SUBNET))
        name[0] = '\0';
}

/* Returns how suitable a GID is. 0: the GID cannot be used. */
static int rank_of_gid(const struct ibv_gid_entry *entry, uint8_t layer)
{
    if (layer != IBV_LINK_LAYER_ETHERNET)
        return entry->gid_index == 0;
    if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
        return 0;
    return is_ipv4(&entry->gid) ? 3 : is_link_local(&entry->gid) ? 1 : 2;
}

/* Find the best GID of the port, or that of SHUNT_RDMA_GID_INDEX. False: there
 * is none. */
static bool find_gid(const struct shunt_transport_host *host,
                     struct rdma_nic *nic, const struct ibv_port_attr *attr)
{
    const char *asked = knob(host, "SHUNT_RDMA_GID_INDEX");
    int best = 0;

    for (int i = 0; i < attr->gid_tbl_len; i++) {
        struct ibv_gid_entry entry;
        int rank;

        if (ibv_query_gid_ex(nic->device, nic->port, (uint32_t)i, &entry, 0))
            continue;
        rank = rank_of_gid(&entry, attr->link_layer);
        if (asked)
            rank = atoi(asked) == i;
        if (rank <= best)
            continue;
        best = rank;
        nic->gid_index = i;
        nic->place.gid = entry.gid;
    }
    return best > 0;
}

/* --- ports ------------------------------------------------------------------- */

static bool is_roce(const struct rdma_nic *nic)
{
    return nic->place.layer == IBV_LINK_LAYER_ETHERNET;
}

/* Read SHUNT_RDMA_SL. False: its value is not a service level. */
static bool find_service(const struct shunt_transport_host *host,
                         struct rdma_nic *nic)
{
    const char *asked = knob(host, "SHUNT_RDMA_SL");
    char *end = NULL;
    const unsigned long level = asked ? strtoul(asked, &end, 10) : 0;

    nic->service = (uint8_t)level;
    return !asked || (!*end && level < 16);
}

/* Read SHUNT_RDMA_IMMEDIATE. False: the value is invalid, or the device cannot
 * do it. "behind" requires a guarantee of InfiniBand and RoCE connections: a
 * receive request completes after all requests that were sent earlier over the
 * same connection. */
static bool find_immediate(const struct shunt_transport_host *host,
                           struct rdma_nic *nic, char *why, size_t why_len)
{
    const char *asked = knob(host, "SHUNT_RDMA_IMMEDIATE");
    const struct ibv_device *device = nic->device->device;

    nic->behind = asked && !strcmp(asked, "behind");
    if (asked && !nic->behind && strcmp(asked, "with") != 0)
        snprintf(why, why_len,
                 "SHUNT_RDMA_IMMEDIATE=%s is neither \"with\" nor \"behind\"",
                 asked);
    else if (nic->behind && device->transport_type != IBV_TRANSPORT_IB)
        snprintf(why, why_len,
                 "%s does not complete requests in order, which "
                 "SHUNT_RDMA_IMMEDIATE=behind needs: unset that",
                 device->name);
    else
        return true;
    return false;
}

/* Describe a port in use, for `why`. */
static void describe(char *text, size_t room, const struct rdma_nic *nic)
{
    const char *name = nic->device->device->name;
    const char *behind = nic->behind ? ", immediates behind" : "";
    char subnet[RDMA_SUBNET];

    rdma_subnet_name(&nic->place, subnet);

    if (is_roce(nic))
        append(text, room, "%s, port %d, GID %d%s", name, nic->port,
               nic->gid_index, behind);
    else
        append(text, room, "%s, port %d, LID %d%s in subnet %s%s", name,
               nic->port, nic->place.lid,
               nic->place.global ? " and a global header" : "", subnet, behind);
}

bool rdma_port_look(const struct shunt_transport_host *host,
                    struct rdma_nic *nic, char *why, size_t why_len)
{
    const char *name = nic->device->device->name;
    struct ibv_port_attr attr;

    if (ibv_query_port(nic->device, nic->port, &attr)) {
        snprintf(why, why_len, "port %d of %s does not answer", nic->port,
                 name);
        return false;
    }
    if (attr.state != IBV_PORT_ACTIVE) {
        snprintf(why, why_len, "port %d of %s is %s", nic->port, name,
                 ibv_port_state_str(attr.state));
        return false;
    }
    nic->place.layer = attr.link_layer;
    nic->place.global = is_roce(nic) || (attr.flags & IBV_QPF_GRH_REQUIRED);
    if (!is_roce(nic) && !attr.lid) {
        snprintf(why, why_len,
                 "port %d of %s has no LID: does its network have a subnet "
                 "manager (opensm)?",
                 nic->port, name);
        return false;
    }
    if (!find_gid(host, nic, &attr)) {
        snprintf(why, why_len,
                 is_roce(nic)
                     ? "port %d of %s has no GID of RoCE v2: does its network "
                       "interface have an address?"
                     : "port %d of %s has no GID",
                 nic->port, name);
        return false;
    }
    nic->place.lid = attr.lid;
    nic->place.mtu = (uint8_t)attr.active_mtu;
    nic->fragment = RDMA_FRAGMENT;
    if (attr.max_msg_sz && attr.max_msg_sz < nic->fragment)
        nic->fragment = attr.max_msg_sz;
    return true;
}

/* Add a port to the result if it can be used. */
static void try_port(struct search *s, struct ibv_device *which, int port)
{
    struct rdma_nic nic = {.port = (uint8_t)port};
    char why[256];

    nic.device = ibv_open_device(which);
    if (!nic.device) {
        UNUSED(s, "%s cannot be opened: %s", ibv_get_device_name(which),
               strerror(errno));
        return;
    }
    snprintf(nic.name, sizeof(nic.name), "%s:%d", ibv_get_device_name(which),
             port);
    snprintf(nic.bytes_name, sizeof(nic.bytes_name), "bytes by %s:%d",
             ibv_get_device_name(which), port);
    if (!find_service(s->host, &nic)) {
        UNUSED(s, "SHUNT_RDMA_SL is not a service level: 0 to 15");
    } else if (!find_immediate(s->host, &nic, why, sizeof(why))) {
        UNUSED(s, "%s", why);
    } else if (!rdma_port_look(s->host, &nic, why, sizeof(why))) {
        UNUSED(s, "%s", why);
    } else if (s->count == RDMA_RAILS) {
        UNUSED(s, "%s: %d are used already", nic.name, RDMA_RAILS);
    } else if (s->count && s->nics[0].place.layer != nic.place.layer) {
        UNUSED(s, "%s: not of the kind of network of %s", nic.name,
               s->nics[0].name);
    } else {
        describe(s->used, sizeof(s->used), &nic);
        nic.index = s->count;
        nic.found = nic.place;
        s->nics[s->count++] = nic;
        return;
    }
    ibv_close_device(nic.device);
}

static void try_device(struct search *s, struct ibv_device *which, int port)
{
    struct ibv_context *device = ibv_open_device(which);
    struct ibv_device_attr attr = {.phys_port_cnt = 0};

    if (!device) {
        UNUSED(s, "%s cannot be opened: %s", ibv_get_device_name(which),
               strerror(errno));
        return;
    }
    if (ibv_query_device(device, &attr))
        UNUSED(s, "%s does not answer", ibv_get_device_name(which));
    ibv_close_device(device);
    for (int p = 1; p <= attr.phys_port_cnt; p++)
        if (!port || p == port)
            try_port(s, which, p);
    if (port > attr.phys_port_cnt)
        UNUSED(s, "%s has no port %d", ibv_get_device_name(which), port);
}

/* --- all --------------------------------------------------------------------- */

/* Try the ports of SHUNT_RDMA_DEVICE: "mlx5_0", "mlx5_0:1", or several with
 * commas. */
static void try_named(struct search *s, struct ibv_device *const *list,
                      int count)
{
    char names[512], *name, *rest = NULL;

    snprintf(names, sizeof(names), "%s", s->asked);
    for (name = strtok_r(names, ", ", &rest); name;
         name = strtok_r(NULL, ", ", &rest)) {
        char *colon = strchr(name, ':');
        int i = 0;

        if (colon)
            *colon = '\0';
        while (i < count && strcmp(ibv_get_device_name(list[i]), name) != 0)
            i++;
        if (i < count)
            try_device(s, list[i], colon ? atoi(colon + 1) : 0);
        else
            UNUSED(s, "there is no device %s (SHUNT_RDMA_DEVICE)", name);
    }
}

static void try_all(struct search *s, struct ibv_device *const *list, int count)
{
    int far[MAX_DEVICES] = {0}, farthest = 0;

    if (count > MAX_DEVICES)
        count = MAX_DEVICES;
    if (count > 1)
        rdma_distances(list, count, far);
    for (int i = 0; i < count; i++)
        farthest = far[i] > farthest ? far[i] : farthest;
    for (int distance = 0; distance <= farthest; distance++)
        for (int i = 0; i < count; i++)
            if (far[i] == distance)
                try_device(s, list[i], 0);
}

int rdma_nics_find(const struct shunt_transport_host *host,
                   struct rdma_nic *nics, char *why, size_t why_len)
{
    struct search s = {
        .host = host, .asked = knob(host, "SHUNT_RDMA_DEVICE"), .nics = nics};
    struct ibv_device **list;
    int count = 0;

    /* Some kernels do not copy pages that NICs use at a fork. There, libibverbs
     * excludes these pages from the child. The call fails (EINVAL) if other
     * code has used libibverbs before. */
    (void)ibv_fork_init();
    list = ibv_get_device_list(&count);
    if (list && s.asked)
        try_named(&s, list, count);
    else if (list)
        try_all(&s, list, count);
    if (list)
        ibv_free_device_list(list);
    if (!s.count && !s.unused[0])
        UNUSED(&s, "there is no RDMA device");
    snprintf(why, why_len, "%s%s%s", s.used,
             s.count && s.unused[0] ? "; not used: " : "", s.unused);
    return s.count;
}
