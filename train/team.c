// SPDX-License-Identifier: Apache-2.0
/* The program's collectives, on libshunt's. */
#include "train/team.h"

#include "kernels/elementwise.h"
#include "train/clock.h"
#include "train/error.h"

#include <stdlib.h>
#include <string.h>

int team_check(const struct team *team, enum shunt_status status,
               const char *what)
{
    if (status == SHUNT_OK)
        return 0;
    return train_error("%s: %s: %s", what, shunt_strerror(status),
                       shunt_last_error(team->comm));
}

int team_memory(struct team *team, size_t bytes, void **memory)
{
    return team_check(team, shunt_mem_alloc(team->comm, bytes, memory),
                      "memory for gradients and rows");
}

int team_broadcast(struct team *team, void *data, size_t bytes, int root)
{
    double t = clock_now();
    enum shunt_status st =
        shunt_broadcast(team->comm, data, bytes, SHUNT_U8, root);

    clock_add_as("broadcast", &team->seconds, &t);
    return team_check(team, st, "broadcast");
}

int team_gather(struct team *team, const void *own, void *all, size_t bytes)
{
    double t = clock_now();
    enum shunt_status st =
        shunt_allgather(team->comm, own, all, bytes, SHUNT_U8);

    clock_add_as("statistics", &team->seconds, &t);
    return team_check(team, st, "gathering");
}

int team_gather_doubles(struct team *team, const double *own, size_t count,
                        double *all, const size_t *counts)
{
    double t = clock_now();
    enum shunt_status st =
        shunt_allgatherv(team->comm, own, count, all, counts, NULL, SHUNT_F64);

    clock_add_as("norms", &team->seconds, &t);
    return team_check(team, st, "gathering norms");
}

/* Lengths of slices. Freed by the caller. */
static size_t *lengths(const struct team *team, const size_t *begin)
{
    size_t *n = malloc((size_t)team->size * sizeof(*n));

    for (int r = 0; n && r < team->size; r++)
        n[r] = begin[r + 1] - begin[r];
    return n;
}

int team_gather_slices(struct team *team, float *vector, const size_t *begin)
{
    size_t *counts = lengths(team, begin);
    double t = clock_now();

    if (!counts)
        return train_error("out of memory");
    enum shunt_status st =
        shunt_allgatherv(team->comm, SHUNT_IN_PLACE, counts[team->rank], vector,
                         counts, NULL, SHUNT_F32);
    free(counts);
    clock_add_as("parameters", &team->seconds, &t);
    return team_check(team, st, "gathering parameters");
}

size_t team_nodes(const struct team *team)
{
    int nodes = shunt_comm_nodes(team->comm), each = team->size / nodes;

    for (int r = 0; r < team->size; r++)
        if (team->size % nodes || shunt_comm_node(team->comm, r) != r / each)
            return 0;
    return (size_t)nodes;
}

int team_agree(struct team *team, int ok, const char *what)
{
    struct verdict {
        int ok;
        char text[512];
    } own = {.ok = ok}, *all;

    if (!ok)
        strncpy(own.text, train_error_text(), sizeof(own.text) - 1);
    all = calloc((size_t)team->size, sizeof(*all));
    if (!all)
        return train_error("out of memory");
    if (team_gather(team, &own, all, sizeof(own))) {
        free(all);
        return -1;
    }
    int bad = 0;
    for (int r = team->size - 1; r >= 0; r--)
        if (!all[r].ok)
            bad = train_error("%s on rank %d: %s", what, r, all[r].text);
    free(all);
    return bad;
}
