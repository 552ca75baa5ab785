// SPDX-License-Identifier: Apache-2.0
/*
 * Checks which ranks of a communicator have queue pairs, with nodes of PER_NODE
 * ranks:
 *
 *     rank_pairs PER_NODE [abort]
 *
 * From the communicator's creation on, the two ranks between which its links
 * were measured have one. That does not change when windows are created and
 * freed, when calls are refused, or when the communicator ends without other
 * calls. Calls in two levels add queue pairs between rail peers, one for each
 * other node.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

static int (*count)(void); /* verbs_count() of the stand-in (now.h) */
static int per_node;

static int check(struct shunt_comm *comm, const char *when, int expected)
{
    const int found = count();

    if (found == expected)
        return 0;
    printf("rank %d %s: %d queue pairs, not %d\n", shunt_comm_rank(comm), when,
           found, expected);
    return 1;
}

/* Both calls return only after all ranks have made them, so no rank makes
 * another call in between. */
static int use_windows(struct shunt_comm *comm, int expected)
{
    const size_t bytes = 4096 * ((size_t)shunt_comm_rank(comm) + 1);
    int bad = 0;

    for (int i = 0; i < 20; i++) {
        void *window = NULL;

        if (shunt_mem_alloc(comm, bytes, &window) || !window)
            return 1;
        memset(window, i, bytes);
        if (!bad)
            bad = check(comm, "with a window", expected);
        if (shunt_mem_free(comm, window))
            return 1;
    }
    return bad;
}

/* One rank makes a bad call, and all ranks get an error that names it. */
static int be_refused(struct shunt_comm *comm)
{
    const int rank = shunt_comm_rank(comm), last = shunt_comm_size(comm) - 1;
    enum shunt_status st;
    char name[32];
    void *window;

    snprintf(name, sizeof(name), "rank %d", last);
    st = shunt_mem_alloc(comm, 64, rank == last ? NULL : &window);
    if (st != SHUNT_OK &&
        (rank == last || strstr(shunt_last_error(comm), name)))
        return 0;
    printf("rank %d: not refused: %s\n", rank, shunt_last_error(comm));
    return 1;
}

/* The last rank aborts the communicator in the middle of calls. The ranks may
 * be in different calls then. */
static int end(struct shunt_comm *comm, int expected)
{
    const int rank = shunt_comm_rank(comm), last = shunt_comm_size(comm) - 1;
    enum shunt_status st = SHUNT_OK;
    char said[64];

    snprintf(said, sizeof(said), "rank %d called shunt_comm_abort()", last);
    for (int i = 0; !st; i++) {
        void *window;

        if (rank == last && i == 20)
            shunt_comm_abort(comm);
        st = shunt_mem_alloc(comm, 64, &window);
        if (!st)
            st = shunt_mem_free(comm, window);
    }
    if (st != SHUNT_ERR_ABORTED || !strstr(shunt_last_error(comm), said)) {
        printf("rank %d: not ended: %s\n", rank, shunt_last_error(comm));
        return 1;
    }
    return check(comm, "at the end", expected);
}

static int talk(struct shunt_comm *comm)
{
    for (int i = 0; i < 3; i++)
        if (shunt_barrier(comm))
            return 1;
    return check(comm, "in two levels", shunt_comm_nodes(comm) - 1);
}

static int run(struct shunt_comm *comm, int aborts)
{
    const int rank = shunt_comm_rank(comm);
    const int measured = rank == 0 || rank == per_node;
    int bad;

    if (shunt_comm_nodes(comm) * per_node != shunt_comm_size(comm))
        return 1;
    bad = check(comm, "at first", measured);
    if (aborts)
        return bad + end(comm, measured);
    bad += use_windows(comm, measured) + be_refused(comm);
    /* use_windows() synchronizes: no rank communicates or leaves before all
     * ranks have counted. */
    bad += use_windows(comm, measured) + talk(comm);
    return bad + use_windows(comm, shunt_comm_nodes(comm) - 1);
}

int main(int argc, char **argv)
{
    const char *rank = getenv("RANK");
    struct shunt_comm *comm;
    void *library;
    char node[16];
    int bad;

    per_node = argc > 1 ? atoi(argv[1]) : 1;
    snprintf(node, sizeof(node), "n%d", rank ? atoi(rank) / per_node : 0);
    setenv("SHUNT_NODE", node, 1);
    setenv("SHUNT_ALGORITHM", "two_level", 1);
    if (shunt_comm_create_env(NULL, &comm)) {
        printf("no communicator: %s\n", shunt_last_error(NULL));
        return 1;
    }
    library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library)
        *(void **)&count = dlsym(library, "verbs_count");
    bad = count ? run(comm, argc > 2) : 1;
    if (bad)
        printf("%s\n", shunt_last_error(comm));
    shunt_comm_destroy(comm);
    return bad;
}
