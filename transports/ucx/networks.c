// SPDX-License-Identifier: Apache-2.0
/*
 * The network devices that UCP found, and which of them lead to no other host.
 *
 * A bridge of containers has the same address on each host (172.17.0.1 with
 * Docker). UCP would use that address to reach other hosts, and so would
 * connect a rank to its own host. Then UCP finds no connection, or ends the
 * process by an assertion (1.13).
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "transports/ucx/ucx.h"

/* Does this port of a bridge lead to other hosts? Such a port is hardware, or
 * is made of other devices (a VLAN, a bond). Ports of containers and of virtual
 * machines are neither. */
static bool leads_out(const char *port)
{
    char path[300];
    struct dirent *entry;
    bool out;
    DIR *dir;

    snprintf(path, sizeof(path), "/sys/class/net/%.200s/device", port);
    out = !access(path, F_OK);
    snprintf(path, sizeof(path), "/sys/class/net/%.200s", port);
    dir = opendir(path);
    while (dir && !out && (entry = readdir(dir)))
        out = !strncmp(entry->d_name, "lower_", 6);
    if (dir)
        closedir(dir);
    return out;
}

static bool is_inner_bridge(const char *device)
{
    char path[300];
    struct dirent *entry;
    bool out = false;
    DIR *ports;

    snprintf(path, sizeof(path), "/sys/class/net/%.200s/brif", device);
    ports = opendir(path);
    if (!ports)
        return false; /* no bridge at all */
    while (!out && (entry = readdir(ports)))
        out = entry->d_name[0] != '.' && leads_out(entry->d_name);
    closedir(ports);
    return !out;
}

/* Append `name` to the list, unless it is there. False: no room. */
static bool add(char *list, size_t len, const char *name)
{
    const size_t used = strlen(list), bytes = strlen(name);

    for (const char *at = list; (at = strstr(at, name)); at += bytes)
        if ((at == list || at[-1] == ',') && (!at[bytes] || at[bytes] == ','))
            return true;
    if (used + bytes + 2 > len)
        return false;
    snprintf(list + used, len - used, "%s%s", used ? "," : "", name);
    return true;
}

/* Read UCP's list ("resource 0 : md 0 dev 0 flags -- tcp/eth0"), line by
 * line. */
static void look_at(char *text, struct ucx_networks *networks)
{
    bool tcp = false, other = false, inner = false, outer = false, all = true;
    char *line, *rest;

    for (line = strtok_r(text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        char *name = strstr(line, "resource "), *device;

        name = name ? strstr(name, "-- ") : NULL;
        device = name ? strchr(name, '/') : NULL;
        if (!device || !strncmp(name, "-- self/", 8))
            continue;
        device++;
        device[strcspn(device, " \t")] = '\0';
        if (strncmp(name, "-- tcp/", 7)) {
            other = true;
            if (strchr(device, ':')) { /* an RDMA device and its port */
                outer = true;
                all &=
                    add(networks->devices, sizeof(networks->devices), device);
            }
            continue;
        }
        tcp = true;
        if (is_inner_bridge(device)) {
            inner = true;
            continue;
        }
        outer |= strcmp(device, "lo") != 0;
        all &= add(networks->devices, sizeof(networks->devices), device);
    }
    networks->tcp = !tcp ? UCX_NO_TCP : other ? UCX_TCP_TOO : UCX_ONLY_TCP;
    if (!inner || !outer || !all || getenv("UCX_NET_DEVICES"))
        networks->devices[0] = '\0';
}

void ucx_look_at_networks(ucp_context_h ucp, struct ucx_networks *networks)
{
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);

    memset(networks, 0, sizeof(*networks));
    if (!f)
        return;
    ucp_context_print_info(ucp, f);
    fclose(f);
    if (text)
        look_at(text, networks);
    free(text);
}
