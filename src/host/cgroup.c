// SPDX-License-Identifier: Apache-2.0
/* Quotas of control groups; see cgroup.h. */
#include "src/host/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/first_line.h"

#define NAME \
    1024 /* bytes of a group's path, which the kernel keeps below 4096 */

static uint32_t milli(long long quota, long long period)
{
    if (quota <= 0 || period <= 0 || quota > period * 1000000)
        return 0;
    return (uint32_t)(quota * 1000 / period);
}

/* The quota of one group, by version 2 ("150000 100000", or "max 100000"). */
static uint32_t quota_of_v2(const char *folder)
{
    char path[NAME + 64], line[64];
    long long quota, period;

    snprintf(path, sizeof(path), "%s/cpu.max", folder);
    if (!shunti_first_line(path, line, sizeof(line)) ||
        sscanf(line, "%lld %lld", &quota, &period) != 2)
        return 0;
    return milli(quota, period);
}

/* The quota of one group, by version 1 (-1: none). */
static uint32_t quota_of_v1(const char *folder)
{
    char path[NAME + 64], quota[32], period[32];

    snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
    if (!shunti_first_line(path, quota, sizeof(quota)))
        return 0;
    snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
    if (!shunti_first_line(path, period, sizeof(period)))
        return 0;
    return milli(strtoll(quota, NULL, 10), strtoll(period, NULL, 10));
}

/* The least quota of the group and of the groups above it, up to `mount`. */
static uint32_t least(const char *mount, const char *group,
                      uint32_t (*quota_of)(const char *))
{
    char folder[NAME];
    uint32_t least = 0;
    size_t top = strlen(mount);
    /* "/../..": the group is above the root that is visible here. */
    int n = snprintf(folder, sizeof(folder), "%s%s", mount,
                     strstr(group, "/..") || !strcmp(group, "/") ? "" : group);

    if (n < 0 || (size_t)n >= sizeof(folder))
        folder[top] = '\0';
    for (;;) {
        uint32_t quota = quota_of(folder);

        if (quota && (!least || quota < least))
            least = quota;
        if (strlen(folder) <= top)
            return least;
        *strrchr(folder, '/') = '\0';
    }
}

/* Is `name` one of the words between commas? */
static bool has_word(const char *words, const char *name)
{
    for (const char *w = words; *w;
         w += strcspn(w, ",") + (w[strcspn(w, ",")] != 0))
        if (strcspn(w, ",") == strlen(name) && !strncmp(w, name, strlen(name)))
            return true;
    return false;
}

uint32_t shunti_cgroup_quota(const char *root)
{
    static const char *const mounts[] = {"/sys/fs/cgroup",
                                         "/sys/fs/cgroup/unified"};
    char path[NAME], line[NAME + 256], v1[NAME] = "/", v2[NAME] = "/";
    uint32_t quota = 0, found;
    FILE *f;

    /* "0::/a/b" of version 2, "4:cpu,cpuacct:/a/b" of version 1. */
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        char *words = strchr(line, ':');
        char *group = words ? strchr(words + 1, ':') : NULL;

        if (!group)
            continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (!words[1])
            snprintf(v2, sizeof(v2), "%s", group);
        else if (has_word(words + 1, "cpu"))
            snprintf(v1, sizeof(v1), "%s", group);
    }
    if (f)
        fclose(f);
    for (size_t i = 0; i < sizeof(mounts) / sizeof(mounts[0]); i++) {
        snprintf(path, sizeof(path), "%s%s", root, mounts[i]);
        found = least(path, v2, quota_of_v2);
        if (found && (!quota || found < quota))
            quota = found;
    }
    snprintf(path, sizeof(path), "%s/sys/fs/cgroup/cpu", root);
    found = least(path, v1, quota_of_v1);
    return found && (!quota || found < quota) ? found : quota;
}
