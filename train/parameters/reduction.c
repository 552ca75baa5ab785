// SPDX-License-Identifier: Apache-2.0
/* The sum of the shares' gradients; see reduction.h. */
#include "train/parameters/reduction.h"

#include "src/kernels/elementwise.h"
#include "train/base/clock.h"
#include "train/base/error.h"

#include <stdlib.h>
#include <string.h>

static size_t own_length(const struct reduction *r)
{
    return r->begin[r->team->rank + 1] - r->begin[r->team->rank];
}

bool reduction_is_of_ranks(const struct reduction *r)
{
    const size_t ranks = (size_t)r->team->size, nodes = team_nodes(r->team);

    if (r->shares == 1)
        return r->nodes == 0 || r->nodes == nodes;
    /* On one node the ranks are added one after the other. For up to three that
     * is the order of as many nodes. */
    return r->nodes == ranks && (nodes == ranks || (nodes == 1 && ranks <= 3));
}

int reduction_create(struct reduction *r)
{
    const size_t ranks = (size_t)r->team->size;

    r->by_slices = !r->team->mpi && !reduction_is_of_ranks(r);
    const size_t work = r->team->mpi   ? reduction_mpi_work(r)
                        : r->by_slices ? ranks * r->shares * own_length(r)
                                       : 0;
    r->work = NULL;
    r->request = NULL;
    r->requests = r->room = r->parts = 0;
    r->counts = malloc(4 * ranks * sizeof(*r->counts));
    if (r->counts && work)
        r->work = malloc(work * sizeof(*r->work));
    if (r->counts && (r->work || !work))
        return 0;
    reduction_destroy(r);
    return train_error("out of memory");
}

void reduction_destroy(struct reduction *r)
{
    free(r->work);
    free(r->counts);
    free(r->request);
    r->work = NULL;
    r->counts = NULL;
    r->request = NULL;
}

static int reserve(struct reduction *r)
{
    struct shunt_request **more;

    if (r->requests + r->shares <= r->room)
        return 0;
    more = realloc(r->request,
                   (2 * r->room + r->shares) * sizeof(struct shunt_request *));
    if (!more)
        return train_error("out of memory");
    r->request = more;
    r->room = 2 * r->room + r->shares;
    return 0;
}

static size_t within(size_t x, size_t first, size_t last)
{
    return x < first ? first : x > last ? last : x;
}

int reduction_start(struct reduction *r, size_t first, size_t last)
{
    const size_t ranks = (size_t)r->team->size, me = (size_t)r->team->rank;
    size_t *counts = r->counts, *from = counts + ranks;
    size_t *own = from + ranks, *to = own + ranks;
    enum shunt_status st = SHUNT_OK;
    struct spent t = clock_read();
    double called;
    size_t at;

    if (first == last)
        return 0;
    if (reserve(r))
        return -1;
    for (size_t d = 0; d < ranks; d++) {
        from[d] = within(r->begin[d], first, last);
        counts[d] = within(r->begin[d + 1], first, last) - from[d];
    }
    at = from[me] - within(r->begin[me], 0, from[me]);
    for (size_t i = 1; !r->by_slices && i < r->shares; i++)
        shunti_elementwise()->add(last - first, r->grad + i * r->length + first,
                                  r->grad + first);
    called = clock_now();
    if (!r->by_slices) {
        st = shunt_reduce_scatterv_start(r->team->comm, r->grad + first,
                                         r->slice + at, counts, SHUNT_F32,
                                         SHUNT_SUM, &r->request[r->requests]);
        r->requests += !st;
    }
    for (size_t i = 0; r->by_slices && i < r->shares && !st; i++) {
        for (size_t s = 0; s < ranks; s++) { /* work: in batch order */
            own[s] = counts[me];
            to[s] = (s * r->shares + i) * own_length(r) + at;
        }
        st = shunt_alltoallv_start(r->team->comm, r->grad + i * r->length,
                                   counts, from, r->work, own, to, SHUNT_F32,
                                   &r->request[r->requests]);
        r->requests += !st;
    }
    r->parts += last - first;
    r->seconds += clock_now() - called;
    clock_add_as("gradients", &r->team->spent, &t);
    return team_check(r->team, st, "adding gradients");
}

/* Add the first vectors of `nodes` nodes into that of the first node, in the
 * order of shunt/coll.h. `each`: floats of a node. */
static void add_nodes(float *vectors, size_t nodes, size_t each, size_t length)
{
    size_t left = 1;

    if (nodes < 2)
        return;
    while (2 * left < nodes)
        left *= 2;
    add_nodes(vectors, left, each, length);
    add_nodes(vectors + left * each, nodes - left, each, length);
    shunti_elementwise()->add(length, vectors + left * each, vectors);
}

void reduction_add(float *vectors, size_t count, size_t nodes, size_t length,
                   float *sum)
{
    size_t each = count / nodes * length;

    for (size_t n = 0; n < nodes; n++) {
        float *first = vectors + n * each;
        for (size_t at = length; at < each; at += length)
            shunti_elementwise()->add(length, first + at, first);
    }
    add_nodes(vectors, nodes, each, length);
    memcpy(sum, vectors, length * sizeof(*sum));
}

int reduction_wait(struct reduction *r)
{
    enum shunt_status st;
    struct spent t;

    if (r->team->mpi)
        return reduction_mpi(r);
    if (!r->parts && reduction_start(r, 0, r->length))
        return -1;
    t = clock_read();
    st = shunt_wait_all(r->request, r->requests);
    r->seconds += clock_now() - t.time;
    if (!st && r->work) /* NULL: no slice, or no exchange */
        reduction_add(r->work, (size_t)r->team->size * r->shares,
                      r->nodes ? r->nodes : 1, own_length(r), r->slice);
    r->requests = r->parts = 0;
    clock_add_as("gradients", &r->team->spent, &t);
    return team_check(r->team, st, "adding gradients");
}
