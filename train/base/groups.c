// SPDX-License-Identifier: Apache-2.0
/* Groups of ranks, made by splitting one communicator. */
#include "train/base/groups.h"

#include <stdio.h>
#include <string.h>

/* Name the ranks of a group for error texts: " among ranks 4, 6 (here 0,
 * 1...)". */
static void name_group(const struct team *all, size_t stride, struct team *team)
{
    const size_t first = (size_t)all->rank - (size_t)team->rank * stride;
    const size_t most = sizeof(team->where);
    size_t at = 0;

    for (size_t i = 0; i < (size_t)team->size && at < most; i++)
        at += (size_t)snprintf(team->where + at, most - at, "%s%zu",
                               i ? ", " : " among ranks ", first + i * stride);
    if (at < most)
        snprintf(team->where + at, most - at, " (here 0, 1...)");
}

/* Make a group of all ranks with this `colour`, which are `stride` apart. */
static int split(struct team *all, size_t colour, size_t stride,
                 const char *what, struct team *team)
{
    if (team_check(
            all,
            shunt_comm_split(all->comm, (int)colour, all->rank, &team->comm),
            what))
        return -1;
    team->rank = shunt_comm_rank(team->comm);
    team->size = shunt_comm_size(team->comm);
    name_group(all, stride, team);
    return 0;
}

static int split_tensor(struct team *all, struct groups *g)
{
    const size_t rank = (size_t)all->rank;

    g->data = all;
    if (g->tp == 1)
        return 0;
    g->data = &g->of_data;
    return split(all, rank / g->tp, 1, "tensor-parallel groups", &g->tensor) ||
                   split(all, rank % g->tp, g->tp, "data-parallel groups",
                         g->data)
               ? -1
               : 0;
}

static int split_experts(struct team *all, size_t copies, struct groups *g)
{
    const size_t rank = (size_t)all->rank, each = (size_t)all->size / copies;

    g->experts = all;
    g->copies.size = 1;
    if (copies == 1)
        return 0;
    g->experts = &g->of_experts;
    return split(all, rank / each, 1, "groups of experts", g->experts) ||
                   split(all, rank % each, each, "copies of experts",
                         &g->copies)
               ? -1
               : 0;
}

int groups_create(struct team *all, size_t tp, size_t copies, struct groups *g)
{
    memset(g, 0, sizeof(*g));
    g->tp = tp;
    return split_tensor(all, g) || split_experts(all, copies, g) ? -1 : 0;
}

void groups_destroy(struct groups *g)
{
    shunt_comm_destroy(g->tensor.comm);
    shunt_comm_destroy(g->of_data.comm);
    shunt_comm_destroy(g->of_experts.comm);
    shunt_comm_destroy(g->copies.comm);
    memset(g, 0, sizeof(*g));
}
