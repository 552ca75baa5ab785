// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that the drop-in must pass on to MPI, between calls that it may serve:
 * communicators of one rank, intercommunicators, non-blocking, persistent and
 * neighbourhood calls, and calls of other kinds. Also tests that ranks make MPI
 * progress while they wait in a served call.
 */

#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RANKS = 64 };

/* A call on the world that the drop-in may serve. */
static void usual_call(void)
{
    int one = world_rank + 1, sum = 0;
    MPI(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == world_size * (world_size + 1) / 2);
}

/* -- one rank -----------------------------------------------------------------
 */

static void alone_on(MPI_Comm comm)
{
    int in[3] = {1, 2, world_rank}, out[3] = {0}, count = 3, zero = 0;
    MPI_Datatype type = MPI_INT;

    MPI(MPI_Barrier(comm));
    MPI(MPI_Bcast(in, 3, MPI_INT, 0, comm));
    MPI(MPI_Alltoall(in, 3, MPI_INT, out, 3, MPI_INT, comm));
    CHECK(memcmp(in, out, sizeof(in)) == 0);
    memset(out, 0, sizeof(out));
    MPI(MPI_Alltoallv(in, &count, &zero, MPI_INT, out, &count, &zero, MPI_INT,
                      comm));
    CHECK(memcmp(in, out, sizeof(in)) == 0);
    memset(out, 0, sizeof(out));
    MPI(MPI_Alltoallw(in, &count, &zero, &type, out, &count, &zero, &type,
                      comm));
    CHECK(memcmp(in, out, sizeof(in)) == 0);
    memset(out, 0, sizeof(out));
    MPI(MPI_Allgather(in, 3, MPI_INT, out, 3, MPI_INT, comm));
    CHECK(memcmp(in, out, sizeof(in)) == 0);
    memset(out, 0, sizeof(out));
    MPI(MPI_Allgatherv(in, 3, MPI_INT, out, &count, &zero, MPI_INT, comm));
    CHECK(memcmp(in, out, sizeof(in)) == 0);
    memset(out, 0, sizeof(out));
    MPI(MPI_Allreduce(in, out, 3, MPI_INT, MPI_SUM, comm));
    CHECK(memcmp(in, out, sizeof(in)) == 0);
    memset(out, 0, sizeof(out));
    MPI(MPI_Reduce_scatter(in, out, &count, MPI_INT, MPI_MAX, comm));
    CHECK(memcmp(in, out, sizeof(in)) == 0);
    memset(out, 0, sizeof(out));
    MPI(MPI_Reduce_scatter_block(in, out, 3, MPI_INT, MPI_MIN, comm));
    CHECK(memcmp(in, out, sizeof(in)) == 0);
}

static void alone(int variant)
{
    MPI_Comm mine;

    (void)variant;
    alone_on(MPI_COMM_SELF);
    MPI(MPI_Comm_split(MPI_COMM_WORLD, world_rank, 0, &mine));
    alone_on(mine);
    usual_call();
    MPI(MPI_Comm_free(&mine));
    MPI(MPI_Comm_dup(MPI_COMM_SELF, &mine));
    alone_on(mine);
    MPI(MPI_Comm_free(&mine));
}

/* -- intercommunicators -------------------------------------------------------
 */

/* Returns element i of the block that rank `world` of the world sends to rank
 * `to` of the world, on the other side. */
static int item(int world, int to, int i)
{
    return 10000 * world + 100 * to + i;
}

static void intercommunicators(int variant)
{
    enum { N = 3 };
    int border = 1 + variant % (world_size - 1), low = world_rank < border;
    MPI_Comm half, inter, merged;
    int in[MAX_RANKS * N], out[MAX_RANKS * N];
    int counts[MAX_RANKS], displs[MAX_RANKS], bytes[MAX_RANKS];
    MPI_Datatype types[MAX_RANKS];
    int there, here, other = low ? border : 0;

    MPI(MPI_Comm_split(MPI_COMM_WORLD, low, 0, &half));
    MPI(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, low ? border : 0, 7,
                             &inter));
    MPI(MPI_Comm_remote_size(inter, &there));
    MPI(MPI_Comm_size(inter, &here));
    int rank = comm_rank(inter);

    MPI(MPI_Barrier(inter));
    for (int r = 0; r < there; r++) {
        counts[r] = N;
        displs[r] = N * r;
        bytes[r] = N * r * (int)sizeof(int);
        types[r] = MPI_INT;
        for (int i = 0; i < N; i++)
            in[N * r + i] = item(world_rank, other + r, i);
    }
    for (int what = 0; what < 3; what++) {
        memset(out, 0xff, sizeof(out));
        if (what == 0)
            MPI(MPI_Alltoall(in, N, MPI_INT, out, N, MPI_INT, inter));
        if (what == 1)
            MPI(MPI_Alltoallv(in, counts, displs, MPI_INT, out, counts, displs,
                              MPI_INT, inter));
        if (what == 2)
            MPI(MPI_Alltoallw(in, counts, bytes, types, out, counts, bytes,
                              types, inter));
        for (int r = 0; r < there; r++)
            for (int i = 0; i < N; i++)
                CHECK(out[N * r + i] == item(other + r, world_rank, i));
        usual_call();
    }

    /* Gather the other side's blocks. The block length differs between the
     * sides. */
    int mine = low ? 1 : 2, theirs = low ? 2 : 1;
    for (int i = 0; i < mine; i++)
        in[i] = item(world_rank, 0, i);
    memset(out, 0xff, sizeof(out));
    MPI(MPI_Allgather(in, mine, MPI_INT, out, theirs, MPI_INT, inter));
    for (int r = 0; r < there; r++)
        for (int i = 0; i < theirs; i++)
            CHECK(out[theirs * r + i] == item(other + r, 0, i));
    memset(out, 0xff, sizeof(out));
    for (int r = 0; r < there; r++) {
        counts[r] = theirs;
        displs[r] = theirs * (there - 1 - r);
    }
    MPI(MPI_Allgatherv(in, mine, MPI_INT, out, counts, displs, MPI_INT, inter));
    for (int r = 0; r < there; r++)
        for (int i = 0; i < theirs; i++)
            CHECK(out[displs[r] + i] == item(other + r, 0, i));

    /* Rank 0 of the lower side broadcasts to the whole upper side. */
    int value = world_rank == 0 ? 4711 : -1;
    int root = low ? (rank == 0 ? MPI_ROOT : MPI_PROC_NULL) : 0;
    MPI(MPI_Bcast(&value, 1, MPI_INT, root, inter));
    CHECK(value == (world_rank == 0 || !low ? 4711 : -1));

    /* Each side gets the sum of the other side. */
    int sum = -1, want = 0;
    value = world_rank + 1;
    MPI(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, inter));
    for (int r = 0; r < there; r++)
        want += other + r + 1;
    CHECK(sum == want);
    /* Both sides have equally many elements. The receiving side splits them
     * among its ranks. */
    int total = here * there;
    for (int i = 0; i < total; i++)
        in[i] = (world_rank + 1) * (i + 1);
    for (int r = 0; r < here; r++)
        counts[r] = there;
    memset(out, 0xff, sizeof(out));
    MPI(MPI_Reduce_scatter(in, out, counts, MPI_INT, MPI_SUM, inter));
    for (int i = 0; i < there; i++)
        CHECK(out[i] == want * (rank * there + i + 1));
    memset(out, 0xff, sizeof(out));
    MPI(MPI_Reduce_scatter_block(in, out, there, MPI_INT, MPI_SUM, inter));
    for (int i = 0; i < there; i++)
        CHECK(out[i] == want * (rank * there + i + 1));

    MPI(MPI_Intercomm_merge(inter, low, &merged));
    MPI(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, merged));
    CHECK(sum == world_size * (world_size + 1) / 2);
    /* Free these while the merged communicator is in use. */
    MPI(MPI_Comm_free(&inter));
    MPI(MPI_Comm_free(&half));
    MPI(MPI_Allgather(&world_rank, 1, MPI_INT, out, 1, MPI_INT, merged));
    for (int r = 0; r < world_size; r++)
        CHECK(out[r] ==
              (r < world_size - border ? border + r : r - world_size + border));
    MPI(MPI_Comm_free(&merged));
}

/* -- calls of other kinds -----------------------------------------------------
 */

/* Non-blocking calls that are started before blocking ones and end after
 * them. */
static void nonblocking(int variant)
{
    enum { N = 1000 };
    int in[N], sums[N], blocks[MAX_RANKS], all[MAX_RANKS], root[N];
    MPI_Request requests[5];
    MPI_Comm comm;

    (void)variant;
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < N; i++) {
            in[i] = world_rank * i + round;
            root[i] = world_rank == 0 ? i - round : -1;
        }
        for (int r = 0; r < world_size; r++)
            blocks[r] = 100 * world_rank + r;
        MPI(MPI_Iallreduce(in, sums, N, MPI_INT, MPI_SUM, comm, &requests[0]));
        usual_call();
        MPI(MPI_Ibcast(root, N, MPI_INT, 0, comm, &requests[1]));
        MPI(MPI_Ialltoall(blocks, 1, MPI_INT, all, 1, MPI_INT, comm,
                          &requests[2]));
        MPI(MPI_Barrier(comm));
        MPI(MPI_Ibarrier(comm, &requests[3]));
        int gathered[MAX_RANKS], displs[MAX_RANKS], ones[MAX_RANKS];
        for (int r = 0; r < world_size; r++) {
            displs[r] = r;
            ones[r] = 1;
        }
        MPI(MPI_Iallgatherv(&world_rank, 1, MPI_INT, gathered, ones, displs,
                            MPI_INT, MPI_COMM_WORLD, &requests[4]));
        usual_call();
        for (int i = 0; i < 5; i++)
            MPI(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        for (int i = 0; i < N; i++) {
            CHECK(sums[i] ==
                  world_size * (world_size - 1) / 2 * i + world_size * round);
            CHECK(root[i] == i - round);
        }
        for (int r = 0; r < world_size; r++) {
            CHECK(all[r] == 100 * r + world_rank);
            CHECK(gathered[r] == r);
        }
    }
    MPI(MPI_Comm_free(&comm));
}

static void rooted(int variant)
{
    int all[MAX_RANKS], mine = -1, sum = -1, before = 0;

    (void)variant;
    for (int root = 0; root < world_size; root++) {
        MPI(MPI_Gather(&world_rank, 1, MPI_INT, all, 1, MPI_INT, root,
                       MPI_COMM_WORLD));
        usual_call();
        MPI(MPI_Scatter(all, 1, MPI_INT, &mine, 1, MPI_INT, root,
                        MPI_COMM_WORLD));
        CHECK(mine == world_rank);
        MPI(MPI_Reduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, root,
                       MPI_COMM_WORLD));
        CHECK(world_rank != root || sum == world_size * (world_size - 1) / 2);
    }
    MPI(MPI_Exscan(&mine, &before, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(world_rank == 0 || before == world_rank * (world_rank - 1) / 2);
}

static void neighbours(int variant)
{
    MPI_Comm ring;
    int periodic = 1, in[2] = {10 * world_rank, 10 * world_rank + 1}, out[2];
    int previous = (world_rank + world_size - 1) % world_size;
    int next = (world_rank + 1) % world_size;
    MPI_Request request;

    (void)variant;
    MPI(MPI_Cart_create(MPI_COMM_WORLD, 1, &world_size, &periodic, 0, &ring));
    MPI(MPI_Neighbor_alltoall(in, 1, MPI_INT, out, 1, MPI_INT, ring));
    if (world_size > 2)
        CHECK(out[0] == 10 * previous + 1 && out[1] == 10 * next);
    MPI(MPI_Barrier(ring));
    MPI(MPI_Ineighbor_allgather(in, 1, MPI_INT, out, 1, MPI_INT, ring,
                                &request));
    MPI(MPI_Barrier(ring));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(out[0] == 10 * previous && out[1] == 10 * next);
    MPI(MPI_Comm_free(&ring));
}

#if MPI_VERSION >= 4
static void persistent(int variant)
{
    int in[MAX_RANKS] = {0}, out[MAX_RANKS], sum;
    MPI_Request requests[2];

    (void)variant;
    MPI(MPI_Alltoall_init(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD,
                          MPI_INFO_NULL, &requests[0]));
    MPI(MPI_Allreduce_init(&world_rank, &sum, 1, MPI_INT, MPI_SUM,
                           MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]));
    for (int round = 0; round < 5; round++) {
        for (int r = 0; r < world_size; r++)
            in[r] = 100 * world_rank + r + round;
        MPI(MPI_Startall(2, requests));
        usual_call();
        for (int i = 0; i < 2; i++)
            MPI(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        for (int r = 0; r < world_size; r++)
            CHECK(out[r] == 100 * r + world_rank + round);
        CHECK(sum == world_size * (world_size - 1) / 2);
        usual_call();
    }
    MPI(MPI_Request_free(&requests[0]));
    MPI(MPI_Request_free(&requests[1]));
}

/* Calls for counts of more than 32 bits have other names. */
static void large_counts(int variant)
{
    MPI_Count counts[MAX_RANKS];
    MPI_Aint displs[MAX_RANKS];
    int in[MAX_RANKS], out[MAX_RANKS], sum;

    (void)variant;
    for (int r = 0; r < world_size; r++) {
        counts[r] = 1;
        displs[r] = world_size - 1 - r;
        in[displs[r]] = 100 * world_rank + r;
    }
    MPI(MPI_Alltoallv_c(in, counts, displs, MPI_INT, out, counts, displs,
                        MPI_INT, MPI_COMM_WORLD));
    for (int r = 0; r < world_size; r++)
        CHECK(out[displs[r]] == 100 * r + world_rank);
    MPI(MPI_Allreduce_c(&world_rank, &sum, 1, MPI_INT, MPI_SUM,
                        MPI_COMM_WORLD));
    CHECK(sum == world_size * (world_size - 1) / 2);
    MPI(MPI_Allgather_c(&world_rank, 1, MPI_INT, out, 1, MPI_INT,
                        MPI_COMM_WORLD));
    for (int r = 0; r < world_size; r++)
        CHECK(out[r] == r);
}
#endif

/* -- progress -----------------------------------------------------------------
 */

enum {
    BLOCK = 1 << 20
}; /* number of ints: no MPI sends so many before the
                           * receiver asks for them */

static void wait_in(int what)
{
    static int in[MAX_RANKS], out[MAX_RANKS];
    int ones[MAX_RANKS], displs[MAX_RANKS];

    for (int r = 0; r < world_size; r++) {
        ones[r] = 1;
        displs[r] = r;
        in[r] = 100 * world_rank + r;
    }
    switch (what) {
    case 0:
        MPI(MPI_Alltoallv(in, ones, displs, MPI_INT, out, ones, displs, MPI_INT,
                          MPI_COMM_WORLD));
        for (int r = 0; r < world_size; r++)
            CHECK(out[r] == 100 * r + world_rank);
        break;
    case 1:
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        break;
    case 2:
        usual_call();
        break;
    case 3:
        MPI(MPI_Allgather(in, 1, MPI_INT, out, 1, MPI_INT, MPI_COMM_WORLD));
        break;
    default:
        /* The root is rank 1, which receives the message of the sender. */
        MPI(MPI_Bcast(in, 1, MPI_INT, 1, MPI_COMM_WORLD));
    }
}

/* Rank 0 waits in a collective call while it sends a large message. Rank 1
 * makes the call only when it has the message, so rank 0 must make progress. */
static void progress(int variant)
{
    int *block = calloc(BLOCK, sizeof(*block));
    MPI_Request request = MPI_REQUEST_NULL;

    CHECK(block);
    for (int round = 0; round < 3; round++) {
        if (world_rank == 0) {
            for (int i = 0; i < BLOCK; i++)
                block[i] = i ^ round;
            MPI(MPI_Isend(block, BLOCK, MPI_INT, 1, 3, MPI_COMM_WORLD,
                          &request));
        }
        if (world_rank == 1) {
            usleep(2000);
            MPI(MPI_Recv(block, BLOCK, MPI_INT, 0, 3, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE));
            for (int i = 0; i < BLOCK; i++)
                CHECK(block[i] == (i ^ round));
        }
        wait_in(variant);
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    free(block);
}

/* Like progress(), with a non-blocking collective call of MPI instead of the
 * message. */
static void progress_of_collective(int variant)
{
    int *block = calloc(BLOCK, sizeof(*block));
    MPI_Request request;
    MPI_Comm comm;

    CHECK(block);
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int round = 0; round < 3; round++) {
        if (world_rank == 0)
            for (int i = 0; i < BLOCK; i++)
                block[i] = i ^ round;
        MPI(MPI_Ibcast(block, BLOCK, MPI_INT, 0, comm, &request));
        if (world_rank % 2 == 1)
            MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        wait_in(variant);
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int i = 0; i < BLOCK; i++)
            CHECK(block[i] == (i ^ round));
    }
    MPI(MPI_Comm_free(&comm));
    free(block);
}

/* Rank 1 writes to a window of rank 0, which is in a collective call. */
static void progress_of_window(int variant)
{
    enum { N = 100000 };
    int *memory, *mine = calloc(N, sizeof(*mine));
    MPI_Win win;

    CHECK(mine);
    MPI(MPI_Win_allocate(N * sizeof(int), sizeof(int), MPI_INFO_NULL,
                         MPI_COMM_WORLD, &memory, &win));
    memset(memory, 0, N * sizeof(int));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank == 1) {
        for (int i = 0; i < N; i++)
            mine[i] = i + 1;
        MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win));
        MPI(MPI_Put(mine, N, MPI_INT, 0, 0, N, MPI_INT, win));
        MPI(MPI_Win_unlock(0, win));
    }
    wait_in(variant);
    if (world_rank == 0) {
        MPI(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
        for (int i = 0; i < N; i++)
            CHECK(memory[i] == i + 1);
        MPI(MPI_Win_unlock(0, win));
    }
    MPI(MPI_Win_free(&win));
    free(mine);
}

/* Messages and collective calls in turn, with any source and any tag. */
static void messages_between(int variant)
{
    int token, sum = 0;

    (void)variant;
    for (int i = 0; i < 50; i++) {
        MPI_Request request;
        int next = (world_rank + 1 + i) % world_size, mine = world_rank + i;
        MPI(MPI_Isend(&mine, 1, MPI_INT, next, i, MPI_COMM_WORLD, &request));
        usual_call();
        MPI(MPI_Recv(&token, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        sum += token;
        usual_call();
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    int all = 0;
    MPI(MPI_Allreduce(&sum, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    int want = 0;
    for (int r = 0; r < world_size; r++)
        for (int i = 0; i < 50; i++)
            want += r + i;
    CHECK(all == want);
}

static const struct check_case cases[] = {
    {"alone", alone, 0, 1},
    {"intercommunicators", intercommunicators, 0, 2},
    {"intercommunicators_uneven", intercommunicators, 1, 3},
    {"nonblocking", nonblocking, 0, 1},
    {"rooted", rooted, 0, 1},
    {"neighbours", neighbours, 0, 1},
#if MPI_VERSION >= 4
    {"persistent", persistent, 0, 1},
    {"large_counts", large_counts, 0, 1},
#endif
    {"progress_in_alltoallv", progress, 0, 2},
    {"progress_in_barrier", progress, 1, 2},
    {"progress_in_allreduce", progress, 2, 2},
    {"progress_in_allgather", progress, 3, 2},
    {"progress_in_bcast", progress, 4, 2},
    {"progress_of_ibcast_in_alltoallv", progress_of_collective, 0, 2},
    {"progress_of_ibcast_in_barrier", progress_of_collective, 1, 2},
    {"progress_of_window_in_barrier", progress_of_window, 1, 2},
    {"progress_of_window_in_alltoallv", progress_of_window, 0, 2},
    {"messages_between", messages_between, 0, 1},
    {0},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases, MPI_THREAD_SINGLE, NULL, NULL);
}
