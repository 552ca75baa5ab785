// SPDX-License-Identifier: Apache-2.0
/*
 * Communicators of all kinds: they are made and freed in any order, and have
 * attributes of the program.
 */

#include "check.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RANKS = 64 };

/* Check that `comm` connects its ranks: the results of an alltoallv and an
 * allreduce show which ranks are in it, in which order. */
static void use(MPI_Comm comm)
{
    int rank = comm_rank(comm), size = comm_size(comm);
    int worlds[MAX_RANKS], in[MAX_RANKS * 2], out[MAX_RANKS * 2];
    int counts[MAX_RANKS], displs[MAX_RANKS];
    MPI_Group group, world;

    /* The ranks' numbers in the world, from the group. */
    MPI(MPI_Comm_group(comm, &group));
    MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (int r = 0; r < size; r++)
        displs[r] = r;
    MPI(MPI_Group_translate_ranks(group, size, displs, world, worlds));
    MPI(MPI_Group_free(&group));
    MPI(MPI_Group_free(&world));
    CHECK(worlds[rank] == world_rank);

    for (int r = 0; r < size; r++) {
        counts[r] = 2;
        displs[r] = 2 * (size - 1 - r);
        in[displs[r]] = 100 * world_rank + r;
        in[displs[r] + 1] = size;
    }
    memset(out, 0xff, sizeof(out));
    MPI(MPI_Alltoallv(in, counts, displs, MPI_INT, out, counts, displs, MPI_INT,
                      comm));
    for (int r = 0; r < size; r++) {
        CHECK(out[displs[r]] == 100 * worlds[r] + rank);
        CHECK(out[displs[r] + 1] == size);
    }
    int sum = 0, want = 0;
    MPI(MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    for (int r = 0; r < size; r++)
        want += worlds[r];
    CHECK(sum == want);
}

static void dups(int variant)
{
    MPI_Comm a, b, c;

    (void)variant;
    use(MPI_COMM_WORLD);
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &a));
    MPI(MPI_Comm_dup(a, &b)); /* duplicate of a communicator that was not
                               * used */
    use(a);
    MPI(MPI_Comm_dup(a, &c)); /* duplicate of a communicator that was used */
    use(b);
    MPI(MPI_Comm_free(&a));
    use(c);
    use(b);
    MPI(MPI_Comm_free(&c));
    use(MPI_COMM_WORLD);
    use(b);
    MPI(MPI_Comm_free(&b));
}

static void idup(int variant)
{
    MPI_Comm a, b;
    MPI_Request request;

    (void)variant;
    MPI(MPI_Comm_idup(MPI_COMM_WORLD, &a, &request));
    use(MPI_COMM_WORLD);
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    use(a);
    MPI(MPI_Comm_dup_with_info(a, MPI_INFO_NULL, &b));
    use(b);
    MPI(MPI_Comm_free(&a));
    use(b);
    MPI(MPI_Comm_disconnect(&b));
    CHECK(b == MPI_COMM_NULL);
}

/* Parts of the world, whose ranks make different calls at the same time. */
static void split(int variant)
{
    (void)variant;
    for (int round = 0; round < 6; round++) {
        start_round(round);
        MPI_Comm part, again;
        int parts = 1 + (int)draw(3), key = (int)draw_own(100);

        MPI(MPI_Comm_split(MPI_COMM_WORLD, world_rank % parts, key, &part));
        /* Each part makes a different number of calls. */
        for (int i = 0; i <= world_rank % parts; i++)
            use(part);
        MPI(MPI_Comm_split(part, 0, -comm_rank(part), &again));
        use(again);
        use(part);
        MPI(MPI_Comm_free(&part));
        use(again);
        MPI(MPI_Comm_free(&again));
    }
}

static void split_type(int variant)
{
    MPI_Comm host;

    (void)variant;
    MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, -world_rank,
                            MPI_INFO_NULL, &host));
    use(host);
    MPI(MPI_Comm_free(&host));
}

/* Communicators from groups: with reversed ranks, and without some ranks. All
 * ranks call MPI_Comm_create(); only members call MPI_Comm_create_group(). */
static void groups(int variant)
{
    MPI_Group world, some;
    MPI_Comm comm;
    int ranks[MAX_RANKS], n = 0;

    (void)variant;
    MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (int r = world_size - 1; r >= 0; r--)
        ranks[n++] = r;
    MPI(MPI_Group_incl(world, n, ranks, &some));
    MPI(MPI_Comm_create(MPI_COMM_WORLD, some, &comm));
    use(comm);
    CHECK(comm_rank(comm) == world_size - 1 - world_rank);
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Group_free(&some));

    MPI(MPI_Group_incl(world, n > 2 ? n - 1 : n, ranks, &some));
    if (world_rank != 0 || n <= 2) {
        for (int i = 0; i < 4; i++) {
            MPI(MPI_Comm_create_group(MPI_COMM_WORLD, some, i, &comm));
            use(comm);
            MPI(MPI_Comm_free(&comm));
        }
    }
    MPI(MPI_Comm_create(MPI_COMM_WORLD, some, &comm));
    if (comm != MPI_COMM_NULL) {
        use(comm);
        MPI(MPI_Comm_free(&comm));
    }
    MPI(MPI_Group_free(&some));
    MPI(MPI_Group_free(&world));
}

static void topologies(int variant)
{
    MPI_Comm cart, row, graph, distributed;
    int dims[2] = {0, 0}, periods[2] = {1, 0}, keep[2] = {1, 0};

    (void)variant;
    MPI(MPI_Dims_create(world_size, 2, dims));
    MPI(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &cart));
    use(cart);
    MPI(MPI_Cart_sub(cart, keep, &row));
    use(row);
    MPI(MPI_Comm_free(&cart));
    use(row);
    MPI(MPI_Comm_free(&row));

    /* A ring whose ranks MPI may renumber. */
    int index[MAX_RANKS], edges[MAX_RANKS];
    for (int r = 0; r < world_size; r++) {
        index[r] = r + 1;
        edges[r] = (r + 1) % world_size;
    }
    MPI(MPI_Graph_create(MPI_COMM_WORLD, world_size, index, edges, 1, &graph));
    if (graph != MPI_COMM_NULL) {
        use(graph);
        MPI(MPI_Comm_free(&graph));
    }
    int next = (world_rank + 1) % world_size, weight = 1;
    int previous = (world_rank + world_size - 1) % world_size;
    MPI(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &previous, &weight, 1,
                                       &next, &weight, MPI_INFO_NULL, 1,
                                       &distributed));
    use(distributed);
    MPI(MPI_Comm_free(&distributed));
}

/* Many communicators exist at once. They are freed in random order, and used in
 * between. */
static void any_order(int variant)
{
    enum { N = 12 };
    MPI_Comm comms[N];
    int order[N];

    (void)variant;
    start_round(0);
    for (int i = 0; i < N; i++) {
        MPI(MPI_Comm_split(i && chance(50) ? comms[draw((uint64_t)i)]
                                           : MPI_COMM_WORLD,
                           0, i % 2 ? -world_rank : world_rank, &comms[i]));
        if (chance(60))
            use(comms[i]);
    }
    draw_order(order, N);
    for (int i = 0; i < N; i++) {
        MPI(MPI_Comm_free(&comms[order[i]]));
        if (i < N - 1)
            use(comms[order[i + 1 + (int)draw((uint64_t)(N - 1 - i))]]);
    }
}

/* Make so many communicators that handles, and the state behind them, are
 * reused. The next communicator with a handle may have the ranks in another
 * order, or fewer ranks, or may never be used. */
static void reuse(int variant)
{
    for (int i = 0; i < variant; i++) {
        start_round(i);
        MPI_Comm comm;
        int kind = (int)draw(4), outside = (int)draw((uint64_t)world_size);
        int color = kind == 1 && world_rank == outside;
        int key = kind == 2 ? -world_rank : world_rank;

        MPI(MPI_Comm_split(MPI_COMM_WORLD, color, key, &comm));
        if (kind != 3)
            use(comm);
        MPI(MPI_Comm_free(&comm));
    }
    use(MPI_COMM_WORLD);
}

/* Make thousands of communicators, with a small call on every tenth. File
 * descriptors and memory of each one must be freed, too. */
static void thousands(int variant)
{
    int n = world_size <= 2 ? 2000 : 60; /* fewer with more ranks, whose calls
                                          * take longer */

    (void)variant;
    for (int i = 0; i < n; i++) {
        MPI_Comm comm;
        int one = i, sum = 0;

        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        if (i % 10 == 0) {
            MPI(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
            CHECK(sum == i * world_size);
        }
        MPI(MPI_Comm_free(&comm));
    }
}

/* One rank frees the communicator later than the others. Freeing is collective,
 * but need not wait. */
static void late(int variant)
{
    (void)variant;
    for (int round = 0; round < 5; round++) {
        start_round(round);
        MPI_Comm comm;
        int slow = (int)draw((uint64_t)world_size);

        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        use(comm);
        if (world_rank == slow)
            usleep(20000);
        MPI(MPI_Comm_free(&comm));
        use(MPI_COMM_WORLD);
    }
}

/* Two communicators of pairs overlap, and ranks are in calls of both at the
 * same time. */
static void overlapping(int variant)
{
    MPI_Comm even, odd;

    (void)variant;
    MPI(MPI_Comm_split(MPI_COMM_WORLD, world_rank / 2, 0, &even));
    MPI(MPI_Comm_split(MPI_COMM_WORLD, (world_rank + 1) / 2, 0, &odd));
    for (int i = 0; i < 20; i++) {
        use(even);
        use(odd);
    }
    MPI(MPI_Comm_free(&odd));
    for (int i = 0; i < 5; i++)
        use(even);
    MPI(MPI_Comm_free(&even));
}

/* -- attributes ---------------------------------------------------------------
 */

static int copies, deletes;

static int copy_attribute(MPI_Comm comm, int key, void *extra, void *value,
                          void *copy, int *flag)
{
    (void)comm;
    (void)key;
    (void)extra;
    copies++;
    *(void **)copy = (char *)value + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_attribute(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static char marks[16];

static void expect_attribute(MPI_Comm comm, int key, int number)
{
    void *value = NULL;
    int flag;

    MPI(MPI_Comm_get_attr(comm, key, &value, &flag));
    CHECK(flag == (number >= 0));
    CHECK(number < 0 || value == &marks[number]);
}

/* The drop-in must not change how often attributes are copied and deleted,
 * which a program can count. */
static void attributes(int variant)
{
    MPI_Comm a, b, c;
    int key, other;

    (void)variant;
    MPI(MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, NULL));
    MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_attribute, &other,
                               NULL));
    copies = deletes = 0;
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &a));
    MPI(MPI_Comm_set_attr(a, key, &marks[0]));
    MPI(MPI_Comm_set_attr(a, other, &marks[9]));
    use(a);
    MPI(MPI_Comm_dup(a, &b));
    CHECK(copies == 1 && deletes == 0);
    expect_attribute(b, key, 1);
    expect_attribute(b, other, -1);
    use(b);
    MPI(MPI_Comm_dup(b, &c));
    CHECK(copies == 2 && deletes == 0);
    expect_attribute(c, key, 2);
    use(c);
    MPI(MPI_Comm_free(&b));
    CHECK(copies == 2 && deletes == 1);
    expect_attribute(a, key, 0);
    expect_attribute(a, other, 9);
    MPI(MPI_Comm_delete_attr(a, key));
    CHECK(deletes == 2);
    expect_attribute(a, key, -1);
    use(a);
    use(c);
    MPI(MPI_Comm_free(&a));
    CHECK(deletes == 3);
    /* A communicator from a split has no attributes. */
    MPI(MPI_Comm_split(c, 0, 0, &a));
    CHECK(copies == 2);
    use(a);
    MPI(MPI_Comm_free(&a));
    MPI(MPI_Comm_free_keyval(&key));
    MPI(MPI_Comm_free(&c));
    CHECK(copies == 2 && deletes == 4);
    MPI(MPI_Comm_free_keyval(&other));
}

/* The callback refuses a copy. Then MPI_Comm_dup() must fail, and the original
 * must still work. */
static int refuse_copy(MPI_Comm comm, int key, void *extra, void *value,
                       void *copy, int *flag)
{
    (void)comm;
    (void)key;
    (void)extra;
    (void)value;
    (void)copy;
    *flag = 0;
    return MPI_ERR_OTHER;
}

static void refused_copy(int variant)
{
    MPI_Comm a, b = MPI_COMM_NULL;
    int key;

    (void)variant;
    MPI(MPI_Comm_create_keyval(refuse_copy, MPI_COMM_NULL_DELETE_FN, &key,
                               NULL));
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &a));
    MPI(MPI_Comm_set_errhandler(a, MPI_ERRORS_RETURN));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    use(a);
    MPI(MPI_Comm_set_attr(a, key, &marks[0]));
    CHECK(MPI_Comm_dup(a, &b) != MPI_SUCCESS);
    MPI(MPI_Comm_delete_attr(a, key));
    use(a);
    MPI(MPI_Comm_dup(a, &b));
    use(b);
    MPI(MPI_Comm_free(&b));
    MPI(MPI_Comm_free(&a));
    MPI(MPI_Comm_free_keyval(&key));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
}

/* A callback of the program that uses the communicator that is being freed. MPI
 * allows that. */
static int use_it(MPI_Comm comm, int key, void *value, void *extra)
{
    (void)key;
    (void)value;
    (void)extra;
    use(comm);
    deletes++;
    return MPI_SUCCESS;
}

static void use_in_delete(int variant)
{
    MPI_Comm a;
    int key;

    (void)variant;
    deletes = 0;
    MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, use_it, &key, NULL));
    for (int i = 0; i < 3; i++) {
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &a));
        /* Set the attribute before or after the first use, or without any
         * use. */
        if (i == 1)
            use(a);
        MPI(MPI_Comm_set_attr(a, key, &marks[0]));
        if (i == 0)
            use(a);
        MPI(MPI_Comm_free(&a));
        CHECK(deletes == i + 1);
    }
    MPI(MPI_Comm_free_keyval(&key));
}

/* Names, infos and comparisons of communicators are as the program expects. */
static void properties(int variant)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length, same;
    MPI_Comm a, b;

    (void)variant;
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &a));
    MPI(MPI_Comm_set_name(a, "mine"));
    use(a);
    MPI(MPI_Comm_get_name(a, name, &length));
    CHECK(strcmp(name, "mine") == 0);
    MPI(MPI_Comm_dup(a, &b));
    MPI(MPI_Comm_compare(a, b, &same));
    CHECK(same == MPI_CONGRUENT);
    use(b);
    MPI(MPI_Comm_compare(a, b, &same));
    CHECK(same == MPI_CONGRUENT);
    MPI(MPI_Comm_free(&a));
    MPI(MPI_Comm_free(&b));
}

/* -- what is left at the end --------------------------------------------------
 */

static int at_finalize(MPI_Comm comm, int key, void *value, void *extra)
{
    int on;

    (void)comm;
    (void)key;
    (void)value;
    (void)extra;
    /* MPI still works in this callback, for the whole world. */
    MPI(MPI_Finalized(&on));
    CHECK(!on);
    use(MPI_COMM_WORLD);
    return MPI_SUCCESS;
}

static void left_behind(int variant)
{
    MPI_Comm comm;
    int key;

    (void)variant;
    for (int i = 0; i < 8; i++) {
        MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank, &comm));
        if (i % 2)
            use(comm);
    }
    MPI(MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &comm));
    use(comm);
    MPI(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_finalize, &key, NULL));
    MPI(MPI_Comm_set_attr(MPI_COMM_SELF, key, &marks[0]));
    MPI(MPI_Comm_free_keyval(&key));
}

static const struct check_case cases[] = {
    {"dup", dups, 0, 1},
    {"idup_and_disconnect", idup, 0, 1},
    {"split", split, 0, 1},
    {"split_type", split_type, 0, 1},
    {"groups", groups, 0, 1},
    {"topologies", topologies, 0, 1},
    {"freed_in_any_order", any_order, 0, 1},
    {"handles_again", reuse, 40, 1},
    {"thousands", thousands, 0, 1},
    {"freed_late", late, 0, 1},
    {"overlapping", overlapping, 0, 2},
    {"attributes", attributes, 0, 1},
    {"refused_copy", refused_copy, 0, 1},
    {"use_in_delete", use_in_delete, 0, 1},
    {"properties", properties, 0, 1},
    {"left_behind", left_behind, 0, 1},
    {0},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases, MPI_THREAD_SINGLE, NULL, NULL);
}
