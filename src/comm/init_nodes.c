// SPDX-License-Identifier: Apache-2.0
/*
 * Finding out which ranks make up a node, and how crowded its CPUs are.
 *
 * A node is a set of ranks that map each other's memory, directly or through
 * another rank of the set. Ranks with the same node name are one node even if
 * they map nothing. Ranks with different names are on different nodes.
 */
#include "src/comm/init_rounds.h"

#include <stdlib.h>

#include "src/base/error.h"
#include "src/wire/nodes.h"

static int root_of(const int *parent, int r)
{
    while (parent[r] != r)
        r = parent[r];
    return r;
}

/* Are ranks `i` and `j` on one node? They are if `i` maps `j` and their names
 * do not differ, or if both have the same node name. */
static bool on_one_node(const struct shunti_init *init,
                        const struct shunti_blobs *reach, int i, int j)
{
    const struct shunti_introduction *a = shunti_introduction_of(init, i);
    const unsigned char *caps = shunti_caps_of(reach, i);

    if (shunti_named_apart(init, i, j))
        return false;
    return a->node[0] || caps[j] & SHUNT_TRANSPORT_MAP;
}

/* Number the nodes by their lowest rank, and their ranks by locality. */
static void number_nodes(struct shunti_init *init, const int *parent)
{
    struct shunt_comm *comm = init->comm;
    int r, o;

    comm->nodes = 0;
    for (r = 0; r < comm->nranks; r++) {
        int root = root_of(parent, r);

        comm->peers[r].node =
            root == r ? comm->nodes++ : comm->peers[root].node;
    }
    for (r = 0; r < comm->nranks; r++) {
        int local = 0;

        for (o = 0; o < comm->nranks; o++) {
            int order;

            if (o == r || comm->peers[o].node != comm->peers[r].node)
                continue;
            order = shunti_place_compare(&init->places[o], &init->places[r]);
            local += order < 0 || (order == 0 && o < r);
        }
        comm->peers[r].local = local;
    }
    comm->node = comm->peers[comm->rank].node;
    comm->local_rank = comm->peers[comm->rank].local;
    comm->local_size = 0;
    for (r = 0; r < comm->nranks; r++)
        comm->local_size += comm->peers[r].node == comm->node;
}

/* On the host of `rank`: the number of ranks, divided by the number of CPUs
 * that they may use; 1 or more. */
static double crowd_of(const struct shunti_init *init, int rank,
                       struct shunti_place *here)
{
    size_t count = 0;
    int cpus;

    for (int r = 0; r < init->comm->nranks; r++)
        if (shunti_place_same_host(&init->places[r], &init->places[rank]))
            here[count++] = init->places[r];
    cpus = shunti_places_cpus(here, count);
    return cpus > 0 && (int)count > cpus ? (double)count / cpus : 1;
}

/* Find out whether there are more ranks on this host than CPUs for them; then
 * spinning would hurt. The figure for rank 0's host is the same on all ranks,
 * because algorithms depend on it. */
static enum shunt_status find_oversubscription(struct shunti_init *init)
{
    struct shunt_comm *comm = init->comm;
    struct shunti_place *here = calloc((size_t)comm->nranks, sizeof(*here));

    if (!here)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    comm->oversubscribed = crowd_of(init, comm->rank, here) > 1;
    comm->links.crowd = crowd_of(init, 0, here);
    free(here);
    return SHUNT_OK;
}

enum shunt_status shunti_init_engine(const struct shunti_init *init)
{
    struct shunt_comm *comm = init->comm;
    struct shunti_place *here;
    size_t count = 0, own = 0;

    if (!comm->engine.engine)
        return SHUNT_OK;
    here = calloc((size_t)comm->nranks, sizeof(*here));
    if (!here)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    for (int r = 0; r < comm->nranks; r++) {
        if (r == comm->rank)
            own = count;
        if (shunti_place_same_host(&init->places[r], &init->places[comm->rank]))
            here[count++] = init->places[r];
    }
    shunti_engine_settle(comm, here, count, own);
    free(here);
    return SHUNT_OK;
}

enum shunt_status shunti_init_nodes(struct shunti_init *init,
                                    const struct shunti_blobs *reach)
{
    struct shunt_comm *comm = init->comm;
    int *parent = calloc((size_t)comm->nranks, sizeof(*parent));
    enum shunt_status st;
    int i, j;

    if (!parent)
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    comm->all_mapped = true;
    for (i = 0; i < comm->nranks; i++)
        parent[i] = i;
    for (i = 0; i < comm->nranks; i++) {
        const unsigned char *caps = shunti_caps_of(reach, i);

        for (j = 0; j < comm->nranks; j++) {
            int a = root_of(parent, i), c = root_of(parent, j);

            if (i == j)
                continue;
            if (!(caps[j] & SHUNT_TRANSPORT_MAP))
                comm->all_mapped = false;
            if (a != c && on_one_node(init, reach, i, j))
                parent[a < c ? c : a] = a < c ? a : c;
        }
    }
    number_nodes(init, parent);
    free(parent);
    comm->node_map.mapped = true;
    for (i = 0; i < comm->nranks; i++)
        for (j = 0; j < comm->nranks; j++)
            if (i != j && comm->peers[i].node == comm->peers[j].node &&
                !(shunti_caps_of(reach, i)[j] & SHUNT_TRANSPORT_MAP))
                comm->node_map.mapped = false;
    if (!shunti_nodes_init(comm))
        return shunti_fail(NULL, SHUNT_ERR_MEMORY, "no memory");
    st = find_oversubscription(init);
    return st ? st : shunti_init_engine(init);
}
