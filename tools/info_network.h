// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info: the network devices of this host, as the kernel lists them.
 */
#ifndef SHUNT_TOOLS_INFO_NETWORK_H
#define SHUNT_TOOLS_INFO_NETWORK_H

#include <stdbool.h>
#include <stddef.h>

struct info_device {
    char name[64];
    bool rdma; /* an InfiniBand or RoCE device; otherwise an interface */
    bool up;
    char state[32];      /* "up", "down", "ACTIVE" */
    double mbps;         /* megabits a second, one way; 0: not known */
    int mtu;             /* bytes; 0: not known */
    char addresses[512]; /* "10.0.0.1/24, fe80::1/64"; for an RDMA device, the
                          * type of its port */
};

/* All devices except loopback: RDMA devices first, with an entry for each port,
 * then interfaces that are up. The caller frees the list. */
struct info_device *info_devices(size_t *count);

void info_network_print(const struct info_device *devices, size_t count);
/* Print the devices as a JSON array. `text` prints a JSON string. */
void info_network_json(const struct info_device *devices, size_t count,
                       void (*text)(const char *));

#endif
