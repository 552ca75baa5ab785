// SPDX-License-Identifier: Apache-2.0
/*
 * The sum of the shares' gradients by MPI, with the same bits as by libshunt.
 * MPI_Reduce_scatter promises no order. So slices are exchanged and added here.
 * If the wanted order allows, a rank adds its shares before it sends them.
 * Likewise, the ranks of a node add their sums before they send to other nodes.
 */
#include "train/parameters/reduction.h"

#include "src/kernels/elementwise.h"
#include "train/base/clock.h"
#include "train/base/error.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static size_t length_of(const struct reduction *r, size_t rank)
{
    return r->begin[rank + 1] - r->begin[rank];
}

/* Exchange slices of `from`: this rank receives its slice of one vector of each
 * rank. The slice from rank d is stored in r->work as slice number d * every +
 * first. */
static int exchange_slices(struct reduction *r, const float *from, size_t every,
                           size_t first, int *counts)
{
    const size_t ranks = (size_t)r->team->size, me = (size_t)r->team->rank;
    int *at = counts + ranks, *own = at + ranks, *to = own + ranks;

    for (size_t d = 0; d < ranks; d++) {
        const size_t place = (d * every + first) * length_of(r, me);

        counts[d] = (int)length_of(r, d);
        at[d] = (int)r->begin[d];
        own[d] = (int)length_of(r, me);
        if (place > INT_MAX)
            return train_error("these are more gradients than MPI's int "
                               "counts: take more ranks");
        to[d] = (int)place;
    }
    r->team->mpi->alltoallv(MPI_ALL, sizeof(float), from, counts, at, r->work,
                            own, to);
    for (size_t d = 0; d < ranks; d++)
        if (team_is_far(r->team, (int)d))
            r->team->mpi_bytes += (double)counts[d] * sizeof(float);
    return 0;
}

/* Add within each node first. A rank makes its node's sum of the slices of all
 * ranks with the same index on their nodes. Then these ranks exchange the
 * sums. */
static int by_nodes(struct reduction *r, size_t nodes, int *counts)
{
    const size_t ranks = (size_t)r->team->size, me = (size_t)r->team->rank;
    const size_t each = ranks / nodes, place = me % each;
    int *at = counts + ranks, *own = at + ranks, *to = own + ranks;
    float *arrived = r->work, *sums = arrived + each * r->length;
    float *home = sums + r->length;
    size_t done = 0;

    for (size_t n = 0; n < nodes; n++) {
        const size_t length = length_of(r, n * each + place);

        for (size_t l = 0; l < each; l++) {
            counts[l] = (int)length_of(r, n * each + l);
            at[l] = (int)r->begin[n * each + l];
            own[l] = (int)length;
            to[l] = (int)(l * length);
        }
        r->team->mpi->alltoallv(MPI_NODE, sizeof(float), r->grad, counts, at,
                                arrived, own, to);
        reduction_add(arrived, each, 1, length, sums + done);
        done += length;
    }
    done = 0;
    for (size_t n = 0; n < nodes; n++) {
        counts[n] = (int)length_of(r, n * each + place);
        at[n] = (int)done;
        own[n] = (int)length_of(r, me);
        to[n] = (int)(n * length_of(r, me));
        done += (size_t)counts[n];
        if (n != me / each)
            r->team->mpi_bytes += (double)counts[n] * sizeof(float);
    }
    r->team->mpi->alltoallv(MPI_RAIL, sizeof(float), sums, counts, at, home,
                            own, to);
    reduction_add(home, nodes, nodes, length_of(r, me), r->slice);
    return 0;
}

static int add_all(struct reduction *r, int *counts)
{
    const size_t ranks = (size_t)r->team->size, me = (size_t)r->team->rank;
    const size_t nodes = team_nodes(r->team);

    if (r->length > INT_MAX)
        return train_error("these are more gradients than MPI's int counts");
    if (!reduction_is_of_ranks(r)) {
        for (size_t i = 0; i < r->shares; i++)
            if (exchange_slices(r, r->grad + i * r->length, r->shares, i,
                                counts))
                return -1;
        reduction_add(r->work, ranks * r->shares, r->nodes ? r->nodes : 1,
                      length_of(r, me), r->slice);
        return 0;
    }
    for (size_t i = 1; i < r->shares; i++)
        shunti_elementwise()->add(r->length, r->grad + i * r->length, r->grad);
    if (nodes > 1 && nodes < ranks)
        return by_nodes(r, nodes, counts);
    if (exchange_slices(r, r->grad, 1, 0, counts))
        return -1;
    reduction_add(r->work, ranks, nodes == ranks ? nodes : 1, length_of(r, me),
                  r->slice);
    return 0;
}

int reduction_mpi(struct reduction *r)
{
    int *counts = calloc(4 * (size_t)r->team->size, sizeof(*counts));
    struct spent t = clock_read();
    const double began = t.time;
    int st;

    if (!counts)
        return train_error("out of memory");
    st = add_all(r, counts);
    free(counts);
    r->seconds += clock_now() - began;
    clock_add_as("gradients", &r->team->spent, &t);
    return st;
}

size_t reduction_mpi_work(const struct reduction *r)
{
    const size_t ranks = (size_t)r->team->size;
    const size_t own = length_of(r, (size_t)r->team->rank);
    const size_t nodes = team_nodes(r->team);

    if (!reduction_is_of_ranks(r))
        return ranks * r->shares * own;
    if (nodes > 1 && nodes < ranks) /* see by_nodes() */
        return (ranks / nodes + 1) * r->length + nodes * own;
    return ranks * own;
}
