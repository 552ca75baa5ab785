// SPDX-License-Identifier: Apache-2.0
/* See cores.h. */
#include "train/base/cores.h"

#include "train/base/error.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct place {
    char machine[40]; /* boot id of the kernel; "": not known */
    cpu_set_t may;    /* CPUs that the rank may use */
};

static void find_place(struct place *place)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

    memset(place, 0, sizeof(*place));
    if (f && !fgets(place->machine, sizeof(place->machine), f))
        place->machine[0] = '\0';
    if (f)
        fclose(f);
    /* This fails on a machine with more CPUs than a cpu_set_t has. */
    if (sched_getaffinity(0, sizeof(place->may), &place->may))
        CPU_ZERO(&place->may);
}

/* The number of cores of rank `first`'s machine, if no earlier rank is on that
 * machine; else 0. */
static size_t cores_there(const struct place *all, int first, int ranks)
{
    cpu_set_t may = all[first].may;
    size_t here = 1, cpus;

    for (int r = 0; r < ranks; r++) {
        if (r == first || strcmp(all[r].machine, all[first].machine) != 0)
            continue;
        if (r < first)
            return 0;
        CPU_OR(&may, &may, &all[r].may);
        here++;
    }
    cpus = (size_t)CPU_COUNT(&may);
    return cpus && cpus < here ? cpus : here;
}

int cores_count(struct team *team, size_t *cores)
{
    struct place own, *all = calloc((size_t)team->size, sizeof(*all));
    int st;

    if (!all)
        return train_error("out of memory");
    find_place(&own);
    st = team_gather(team, &own, all, sizeof(own));
    *cores = 0;
    for (int r = 0; !st && r < team->size; r++)
        *cores += cores_there(all, r, team->size);
    free(all);
    return st;
}
