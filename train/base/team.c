// SPDX-License-Identifier: Apache-2.0
/* The program's collectives, by libshunt or MPI. */
#include "train/base/team.h"

#include "src/kernels/elementwise.h"
#include "train/base/clock.h"
#include "train/base/error.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

int team_check(const struct team *team, enum shunt_status status,
               const char *what)
{
    if (status == SHUNT_OK)
        return 0;
    return train_error("%s%s: %s: %s", what, team->where,
                       shunt_strerror(status), shunt_last_error(team->comm));
}

int team_memory(struct team *team, size_t bytes, void **memory)
{
    return team_check(team, shunt_mem_alloc(team->comm, bytes, memory),
                      "memory for gradients and rows");
}

int team_broadcast(struct team *team, void *data, size_t bytes, int root)
{
    struct spent t = clock_read();
    enum shunt_status st =
        shunt_broadcast(team->comm, data, bytes, SHUNT_U8, root);

    clock_add_as("broadcast", &team->spent, &t);
    return team_check(team, st, "broadcast");
}

bool team_is_far(const struct team *team, int rank)
{
    return shunt_comm_node(team->comm, rank) !=
           shunt_comm_node(team->comm, team->rank);
}

/* Gather the elements of all ranks, `bytes` bytes each, in rank order. own
 * NULL: this rank's elements are already in `all`. */
static int gather_by_mpi(struct team *team, size_t bytes, const void *own,
                         void *all, const size_t *counts)
{
    const size_t ranks = (size_t)team->size;
    int *count = calloc(2 * ranks, sizeof(*count)), *at = count + ranks;
    size_t sum = 0;

    if (!count)
        return train_error("out of memory");
    for (size_t r = 0; r < ranks; sum += counts[r++]) {
        count[r] = (int)counts[r];
        at[r] = (int)sum;
        if (team_is_far(team, (int)r))
            team->mpi_bytes += (double)(counts[team->rank] * bytes);
    }
    if (sum > INT_MAX) {
        free(count);
        return train_error("%zu are more elements than MPI's int counts", sum);
    }
    team->mpi->allgatherv(bytes, own, all, count, at);
    free(count);
    return 0;
}

/* Gather in the same way, by MPI or by libshunt, and add the time to
 * team->spent. */
static int gather(struct team *team, enum shunt_dtype dtype, const void *own,
                  void *all, const size_t *counts, const char *what,
                  const char *span)
{
    const size_t bytes = shunt_dtype_size(dtype);
    struct spent t = clock_read();
    int st;

    if (team->mpi)
        st = gather_by_mpi(team, bytes, own, all, counts);
    else
        st = team_check(team,
                        shunt_allgatherv(team->comm, own ? own : SHUNT_IN_PLACE,
                                         counts[team->rank], all, counts, NULL,
                                         dtype),
                        what);
    clock_add_as(span, &team->spent, &t);
    return st;
}

/* Allocate an array with the count of each rank: from `begin`, or `alike` if
 * `begin` is NULL. The caller frees it. */
static size_t *counts_of(const struct team *team, const size_t *begin,
                         size_t alike)
{
    size_t *n = malloc((size_t)team->size * sizeof(*n));

    for (int r = 0; n && r < team->size; r++)
        n[r] = begin ? begin[r + 1] - begin[r] : alike;
    if (!n)
        train_error("out of memory");
    return n;
}

int team_gather(struct team *team, const void *own, void *all, size_t bytes)
{
    struct spent t = clock_read();

    if (team->mpi) {
        size_t *counts = counts_of(team, NULL, bytes);
        int st = counts ? gather(team, SHUNT_U8, own, all, counts, "gathering",
                                 "statistics")
                        : -1;
        free(counts);
        return st;
    }
    enum shunt_status st =
        shunt_allgather(team->comm, own, all, bytes, SHUNT_U8);
    clock_add_as("statistics", &team->spent, &t);
    return team_check(team, st, "gathering");
}

int team_gather_doubles(struct team *team, const double *own, size_t count,
                        double *all, const size_t *counts)
{
    (void)count; /* equal to counts[rank] */
    return gather(team, SHUNT_F64, own, all, counts, "gathering norms",
                  "norms");
}

int team_gather_slices(struct team *team, float *vector, const size_t *begin)
{
    size_t *counts = counts_of(team, begin, 0);
    int st = counts ? gather(team, SHUNT_F32, NULL, vector, counts,
                             "gathering parameters", "parameters")
                    : -1;

    free(counts);
    return st;
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
    struct outcome {
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
