// SPDX-License-Identifier: Apache-2.0
/*
 * Hosts are distinguished by the running kernel and the network namespace of a
 * process. So containers with their own addresses are hosts, too.
 */
#include "perf/ranks/hosts.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "perf/base/perf.h"
#include "perf/ranks/group.h"

struct identity {
    char name[64];
    char boot[64];
    char network[64];
};

static void identify(struct identity *id)
{
    memset(id, 0, sizeof(*id));
    gethostname(id->name, sizeof(id->name) - 1);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, id->boot, sizeof(id->boot) - 1) < 0)
            id->boot[0] = '\0';
        close(fd);
    }
    if (readlink("/proc/self/ns/net", id->network, sizeof(id->network) - 1) < 0)
        id->network[0] = '\0';
}

void perf_hosts_find(const struct perf_group *g, struct perf_hosts *h)
{
    struct identity mine, *all = perf_alloc((size_t)g->ranks * sizeof(*all));

    *h = (struct perf_hosts){
        .of = perf_alloc((size_t)g->ranks * sizeof(int)),
        .size = perf_alloc((size_t)g->ranks * sizeof(int)),
    };
    identify(&mine);
    perf_allgather(g, &mine, all, sizeof(mine));
    for (int r = 0; r < g->ranks; r++) {
        int same = 0;
        while (same < r && memcmp(&all[same], &all[r], sizeof(mine)) != 0)
            same++;
        h->of[r] = same < r ? h->of[same] : h->n;
        if (same == r)
            h->size[h->n++] = 0;
        if (r == g->rank)
            h->local = h->size[h->of[r]];
        h->size[h->of[r]]++;
    }
    h->mine = h->of[g->rank];
    free(all);
}

void perf_hosts_finish(struct perf_hosts *h)
{
    free(h->of);
    free(h->size);
    *h = (struct perf_hosts){0};
}

int perf_host_rank(const struct perf_group *g, int host, int local)
{
    for (int r = 0; r < g->ranks; r++)
        if (g->hosts.of[r] == host && local-- == 0)
            return r;
    return -1;
}
