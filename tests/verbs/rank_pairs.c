// SPDX-License-Identifier: Apache-2.0
/*
 * Which ranks of a communicator have queue pairs, on nodes of two ranks: by calls in two
 * levels, and from its creation on, those that are rail peers, one for each other node.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <shunt/shunt.h>

#define PER_NODE 2

static int (*count)(void); /* verbs_count() of the stand-in (now.h) */

static int check(struct shunt_comm *comm, const char *when, int expected)
{
    const int found = count();

    if (found == expected)
        return 0;
    printf("rank %d %s: %d queue pairs, not %d\n", shunt_comm_rank(comm), when,
           found, expected);
    return 1;
}

static int run(struct shunt_comm *comm)
{
    const int size = shunt_comm_size(comm), nodes = shunt_comm_nodes(comm);
    int bad = 0;

    if (nodes * PER_NODE != size)
        return 1;
    bad += check(comm, "at first", nodes - 1);
    for (int i = 0; i < 3; i++)
        if (shunt_barrier(comm))
            return 1;
    bad += check(comm, "in two levels", nodes - 1);
    /* Nobody leaves before all have counted. */
    return shunt_barrier(comm) ? 1 : bad;
}

int main(void)
{
    const char *rank = getenv("RANK");
    struct shunt_comm *comm;
    void *library;
    char node[16];
    int bad;

    snprintf(node, sizeof(node), "n%d", rank ? atoi(rank) / PER_NODE : 0);
    setenv("SHUNT_NODE", node, 1);
    setenv("SHUNT_ALGORITHM", "two_level", 1);
    if (shunt_comm_create_env(NULL, &comm)) {
        printf("no communicator: %s\n", shunt_last_error(NULL));
        return 1;
    }
    library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library)
        *(void **)&count = dlsym(library, "verbs_count");
    bad = count ? run(comm) : 1;
    if (bad)
        printf("%s\n", shunt_last_error(comm));
    shunt_comm_destroy(comm);
    return bad;
}
