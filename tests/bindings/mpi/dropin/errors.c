// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments that MPI refuses. Checks the class of the error, and that the
 * handler of the right communicator is called once. All ranks make the same
 * mistake, and later calls work. `errors fatal` makes a mistake without a
 * handler.
 */

#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 64 };

enum call {
    BARRIER,
    BCAST,
    ALLGATHER,
    ALLGATHERV,
    ALLTOALL,
    ALLTOALLV,
    ALLTOALLW,
    ALLREDUCE,
    REDUCE_SCATTER,
    REDUCE_SCATTER_BLOCK,
    CALLS
};

/* The mistake in a call. */
enum mistake {
    NO_COMM,
    NO_TYPE,
    UNCOMMITTED,
    NEGATIVE,
    BAD_ROOT,
    LARGE_ROOT,
    NO_OP,
    WRONG_OP, /* MPI_BAND on reals */
    MISTAKES
};

static bool right_class(enum mistake mistake, int class)
{
    const int classes[] = {MPI_ERR_COMM,  MPI_ERR_TYPE, MPI_ERR_TYPE,
                           MPI_ERR_COUNT, MPI_ERR_ROOT, MPI_ERR_ROOT,
                           MPI_ERR_OP,    MPI_ERR_OP};

    /* MPI may also say that the operation is not defined for the type. */
    if ((mistake == NO_TYPE || mistake == UNCOMMITTED) && class == MPI_ERR_OP)
        return true;
    return class == classes[mistake];
}

static bool possible(enum call call, enum mistake mistake)
{
    bool reduces = call == ALLREDUCE || call == REDUCE_SCATTER ||
                   call == REDUCE_SCATTER_BLOCK;

    if (mistake == BAD_ROOT || mistake == LARGE_ROOT)
        return call == BCAST;
    if (mistake == NO_OP || mistake == WRONG_OP)
        return reduces;
    /* Open MPI 4.1 crashes in other calls. */
    if (mistake == NO_COMM)
        return call == BARRIER || call == BCAST || call == ALLREDUCE;
    /* MPICH 4.0 crashes in reductions. */
    if (mistake == NEGATIVE && reduces)
        return false;
    return call != BARRIER;
}

static MPI_Datatype uncommitted;

static int make_call(enum call call, enum mistake mistake, MPI_Comm comm)
{
    int in[4 * MAX_RANKS] = {0}, out[4 * MAX_RANKS] = {0}, displs[MAX_RANKS];
    double reals[2 * MAX_RANKS] = {0}, more[2 * MAX_RANKS] = {0};
    void *from = mistake == WRONG_OP ? (void *)reals : in;
    void *to = mistake == WRONG_OP ? (void *)more : out;
    int counts[MAX_RANKS], n = mistake == NEGATIVE ? -1 : 1, root = 0;
    MPI_Datatype type = MPI_INT, types[MAX_RANKS];
    MPI_Op op = MPI_SUM;

    if (mistake == NO_COMM)
        comm = MPI_COMM_NULL;
    if (mistake == NO_TYPE)
        type = MPI_DATATYPE_NULL;
    if (mistake == UNCOMMITTED)
        type = uncommitted;
    if (mistake == BAD_ROOT)
        root = -17;
    if (mistake == LARGE_ROOT)
        root = world_size;
    if (mistake == NO_OP)
        op = MPI_OP_NULL;
    if (mistake == WRONG_OP) {
        op = MPI_BAND;
        type = MPI_DOUBLE;
    }
    for (int r = 0; r < MAX_RANKS; r++) {
        counts[r] = n;
        displs[r] = r;
        types[r] = type;
    }
    switch (call) {
    case BARRIER:
        return MPI_Barrier(comm);
    case BCAST:
        return MPI_Bcast(to, n, type, root, comm);
    case ALLGATHER:
        return MPI_Allgather(from, n, type, to, n, type, comm);
    case ALLGATHERV:
        return MPI_Allgatherv(from, n, type, to, counts, displs, type, comm);
    case ALLTOALL:
        return MPI_Alltoall(from, n, type, to, n, type, comm);
    case ALLTOALLV:
        return MPI_Alltoallv(from, counts, displs, type, to, counts, displs,
                             type, comm);
    case ALLTOALLW:
        return MPI_Alltoallw(from, counts, displs, types, to, counts, displs,
                             types, comm);
    case ALLREDUCE:
        return MPI_Allreduce(from, to, n, type, op, comm);
    case REDUCE_SCATTER:
        return MPI_Reduce_scatter(from, to, counts, type, op, comm);
    default:
        return MPI_Reduce_scatter_block(from, to, n, type, op, comm);
    }
}

static void works(MPI_Comm comm)
{
    int one = 1, sum = 0, all[MAX_RANKS], rank = comm_rank(comm);

    MPI(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == comm_size(comm));
    MPI(MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, comm));
    for (int r = 0; r < comm_size(comm); r++)
        CHECK(all[r] == r);
}

static int handled, handled_code;
static MPI_Comm handled_comm;

static void handler(MPI_Comm *comm, int *code, ...)
{
    handled++;
    handled_code = *code;
    handled_comm = *comm;
}

static void expect_error(enum call call, enum mistake mistake, MPI_Comm comm)
{
    int status = make_call(call, mistake, comm), class = MPI_SUCCESS, length;
    char text[MPI_MAX_ERROR_STRING];

    if (status == MPI_SUCCESS)
        check_fail(__FILE__, __LINE__, "call %d did not mind mistake %d", call,
                   mistake);
    MPI(MPI_Error_class(status, &class));
    if (!right_class(mistake, class))
        check_fail(__FILE__, __LINE__, "call %d, mistake %d: error class %d",
                   call, mistake, class);
    /* The test compares this line with the line of plain MPI. */
    if (world_rank == 0)
        printf("say call %d mistake %d class %d\n", call, mistake, class);
    MPI(MPI_Error_string(status, text, &length));
    CHECK(length > 0);
}

/* Errors with MPI_ERRORS_RETURN, before the communicator is used and after. */
static void returned(int variant)
{
    MPI_Comm comm;

    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    if (variant)
        works(comm);
    MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    /* Errors of MPI_COMM_NULL go to the handler of the world. */
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    MPI(MPI_Type_contiguous(1, MPI_INT, &uncommitted));
    for (int call = 0; call < CALLS; call++) {
        for (int mistake = 0; mistake < MISTAKES; mistake++) {
            if (!possible((enum call)call, (enum mistake)mistake))
                continue;
            expect_error((enum call)call, (enum mistake)mistake, comm);
            if (variant)
                works(comm);
        }
    }
    works(comm);
    MPI(MPI_Type_free(&uncommitted));
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
}

static void handlers(int variant)
{
    MPI_Comm comm, copy;
    MPI_Errhandler ours, now;

    (void)variant;
    MPI(MPI_Comm_create_errhandler(handler, &ours));
    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    works(comm);
    MPI(MPI_Comm_set_errhandler(comm, ours));
    MPI(MPI_Type_contiguous(1, MPI_INT, &uncommitted));
    for (int call = 0; call < CALLS; call++) {
        for (int mistake = 0; mistake < MISTAKES; mistake++) {
            if (!possible((enum call)call, (enum mistake)mistake) ||
                mistake == NO_COMM)
                continue;
            handled = 0;
            expect_error((enum call)call, (enum mistake)mistake, comm);
            if (handled != 1)
                check_fail(__FILE__, __LINE__,
                           "call %d, mistake %d: the handler was called %d "
                           "times",
                           call, mistake, handled);
            CHECK(handled_comm == comm);
            int class;
            MPI(MPI_Error_class(handled_code, &class));
            CHECK(right_class((enum mistake)mistake, class));
        }
    }
    /* The duplicate inherits the error handler, which is still the
     * program's. */
    MPI(MPI_Comm_dup(comm, &copy));
    works(copy);
    handled = 0;
    expect_error(BCAST, BAD_ROOT, copy);
    CHECK(handled == 1 && handled_comm == copy);
    MPI(MPI_Comm_get_errhandler(copy, &now));
    CHECK(now == ours);
    MPI(MPI_Errhandler_free(&now));
    works(copy);
    works(comm);
    MPI(MPI_Comm_free(&copy));
    MPI(MPI_Comm_free(&comm));
    MPI(MPI_Errhandler_free(&ours));
    MPI(MPI_Type_free(&uncommitted));
}

static const struct check_case cases[] = {
    {"returned", returned, 0, 1},
    {"returned_after_use", returned, 1, 1},
    {"handlers", handlers, 0, 1},
    {0},
};

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "fatal") == 0) {
        MPI(MPI_Init(&argc, &argv));
        check_start(argc, argv);
        works(MPI_COMM_WORLD);
        (void)make_call(ALLTOALLV, NEGATIVE, MPI_COMM_WORLD);
        /* Not reached, because MPI_ERRORS_ARE_FATAL is the default. */
        return 0;
    }
    return check_main(argc, argv, cases, MPI_THREAD_SINGLE, NULL, NULL);
}
