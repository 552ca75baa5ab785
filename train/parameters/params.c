// SPDX-License-Identifier: Apache-2.0
/* Vectors of parameters and their slices; see params.h. */
#include "train/parameters/params.h"

#include "src/kernels/elementwise.h"
#include "train/base/error.h"

#include <stdlib.h>
#include <string.h>

static size_t units_of(const struct params *p, size_t n)
{
    return (n + p->unit - 1) / p->unit;
}

static float *zeroed(size_t floats)
{
    return calloc(floats ? floats : 1, sizeof(float));
}

/* Allocate the vector and its gradient. */
static int allocate_whole(struct params *p)
{
    void *w = NULL, *grad = NULL;

    if (p->alone) {
        w = zeroed(p->length);
        grad = zeroed(p->length);
    } else if (team_memory(p->team, p->length * sizeof(float), &w) ||
               team_memory(p->team, p->shares * p->length * sizeof(float),
                           &grad)) {
        return -1;
    }
    p->w = w;
    p->grad = grad;
    return w && grad ? 0 : train_error("out of memory");
}

/* Units do not depend on the number of ranks. So norms do not depend on it,
 * either. */
static int allocate(struct params *p)
{
    const size_t ranks = (size_t)p->team->size, n = p->length;

    p->begin = calloc(ranks + 1, sizeof(*p->begin));
    if (!p->begin)
        return train_error("out of memory");
    for (size_t r = 0; r <= ranks; r++) {
        size_t at = units_of(p, n) * r / ranks * p->unit;
        p->begin[r] = at < n ? at : n;
    }
    if (allocate_whole(p))
        return -1;
    const size_t slice = params_slice(p, p->team->rank);
    p->slice_grad = p->alone ? p->grad : zeroed(slice);
    p->m = zeroed(slice);
    p->v = zeroed(slice);
    return p->slice_grad && p->m && p->v ? 0 : train_error("out of memory");
}

int params_create(struct params *p, struct team *team, size_t length,
                  size_t shares, size_t nodes, size_t unit)
{
    *p = (struct params){.team = team,
                         .length = length,
                         .shares = shares,
                         .unit = unit,
                         .alone = team->size == 1 && shares == 1};
    if (!length)
        return 0;
    if (allocate(p))
        return -1;
    if (p->alone)
        return 0;
    p->reduction = (struct reduction){
        .team = team,
        .grad = p->grad,
        .shares = shares,
        .length = length,
        .nodes = nodes,
        .begin = p->begin,
        .slice = p->slice_grad,
    };
    return reduction_create(&p->reduction);
}

int params_grow(struct params *p, size_t more)
{
    const size_t all = p->length + more;
    float *w = realloc(p->w, all * sizeof(*w));
    float *grad = w ? realloc(p->grad, all * sizeof(*grad)) : NULL;

    p->w = w ? w : p->w;
    if (!grad)
        return train_error("out of memory for copies of experts");
    p->grad = p->slice_grad = grad;
    memset(w + p->length, 0, more * sizeof(*w));
    memset(grad + p->length, 0, more * sizeof(*grad));
    return 0;
}

void params_destroy(struct params *p)
{
    free(p->begin);
    free(p->m);
    free(p->v);
    if (p->alone) {
        free(p->w);
        free(p->grad);
    } else { /* the windows belong to the communicator */
        free(p->slice_grad);
        reduction_destroy(&p->reduction);
    }
    memset(p, 0, sizeof(*p));
}

size_t params_slice(const struct params *p, int rank)
{
    return p->length ? p->begin[rank + 1] - p->begin[rank] : 0;
}

size_t params_units(const struct params *p, int rank)
{
    return p->length ? units_of(p, params_slice(p, rank)) : 0;
}

void params_clear(struct params *p)
{
    if (p->length)
        memset(p->grad, 0, p->shares * p->length * sizeof(*p->grad));
}

int params_complete(struct params *p, size_t first, size_t last)
{
    return p->alone ? 0 : reduction_start(&p->reduction, first, last);
}

int params_sum(struct params *p)
{
    return p->alone || !p->length ? 0 : reduction_wait(&p->reduction);
}

int params_gather(struct params *p)
{
    return p->alone || !p->length ? 0
                                  : team_gather_slices(p->team, p->w, p->begin);
}

size_t params_norms(const struct params *p, double *norms)
{
    const size_t slice = p->length ? params_slice(p, p->team->rank) : 0;
    size_t n = 0;

    for (size_t at = 0; at < slice; at += p->unit)
        norms[n++] = shunti_elementwise()->sum_squares(
            slice - at < p->unit ? slice - at : p->unit, p->slice_grad + at);
    return n;
}
