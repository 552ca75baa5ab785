// SPDX-License-Identifier: Apache-2.0
/*
 * Communicators from MPI: a plain MPI program, so that mpirun starts it like
 * the programs of users. Ends with status 1 at the first mistake.
 */

#include <shunt/coll.h>
#include <shunt/mpi.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static int world_rank, world_size;

#define CHECK(what)                                                       \
    do {                                                                  \
        if (!(what)) {                                                    \
            fprintf(stderr, "rank %d, line %d: not true: %s (%s)\n",      \
                    world_rank, __LINE__, #what, shunt_last_error(NULL)); \
            MPI_Abort(MPI_COMM_WORLD, 1);                                 \
        }                                                                 \
    } while (0)

/* Check that `comm` has the ranks of `mpi` and works. */
static void check_comm(struct shunt_comm *comm, MPI_Comm mpi)
{
    int rank, size;

    MPI_Comm_rank(mpi, &rank);
    MPI_Comm_size(mpi, &size);
    CHECK(shunt_comm_rank(comm) == rank);
    CHECK(shunt_comm_size(comm) == size);

    /* Compare the world ranks of the communicators' ranks. */
    int *ours = calloc((size_t)size, sizeof(*ours));
    int *mpis = calloc((size_t)size, sizeof(*mpis));
    CHECK(ours && mpis);
    CHECK(shunt_allgather(comm, &world_rank, ours, 1, SHUNT_I32) == SHUNT_OK);
    MPI_Allgather(&world_rank, 1, MPI_INT, mpis, 1, MPI_INT, mpi);
    for (int r = 0; r < size; r++)
        CHECK(ours[r] == mpis[r]);
    free(ours);
    free(mpis);
}

static void world(void)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_comm *comm = NULL;

    config.name = "from MPI";
    CHECK(shunt_comm_create_mpi(MPI_COMM_WORLD, &config, &comm) == SHUNT_OK);
    check_comm(comm, MPI_COMM_WORLD);
    CHECK(shunt_comm_finish(comm) == SHUNT_OK);
    shunt_comm_destroy(comm);
}

/* Communicators of the odd and of the even ranks, in descending order. */
static void parts(void)
{
    struct shunt_comm *comm = NULL;
    MPI_Comm part;

    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, -world_rank, &part);
    CHECK(shunt_comm_create_mpi(part, NULL, &comm) == SHUNT_OK);
    check_comm(comm, part);
    /* The communicator no longer needs `part`. */
    int one = 1, all = 0, size;
    MPI_Comm_size(part, &size);
    MPI_Comm_free(&part);
    CHECK(shunt_allreduce(comm, &one, &all, 1, SHUNT_I32, SHUNT_SUM) ==
          SHUNT_OK);
    CHECK(all == size);
    CHECK(shunt_comm_finish(comm) == SHUNT_OK);
    shunt_comm_destroy(comm);
}

static void bad_arguments(void)
{
    struct shunt_comm *comm = (struct shunt_comm *)&world_rank;

    CHECK(shunt_comm_create_mpi(MPI_COMM_NULL, NULL, &comm) ==
          SHUNT_ERR_INVALID);
    CHECK(comm == NULL);

    /* One rank passes no place for the result: all ranks get an error. */
    enum shunt_status st = shunt_comm_create_mpi(
        MPI_COMM_WORLD, NULL, world_rank == world_size - 1 ? NULL : &comm);
    CHECK(st == (world_rank == world_size - 1 ? SHUNT_ERR_INVALID
                                              : SHUNT_ERR_REMOTE));
    CHECK(comm == NULL);

    if (world_size < 2)
        return;
    MPI_Comm half, inter;
    MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - world_rank % 2, 7,
                         &inter);
    CHECK(shunt_comm_create_mpi(inter, NULL, &comm) == SHUNT_ERR_INVALID);
    CHECK(comm == NULL);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

/* Rank 0 cannot make an id, because it may open no more files. */
static void no_id(void)
{
    struct shunt_comm *comm = NULL;
    struct rlimit before, none;

    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    if (world_rank == 0) {
        none = (struct rlimit){0, before.rlim_max};
        CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    }
    enum shunt_status st = shunt_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm);
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(st == (world_rank == 0 ? SHUNT_ERR_SYSTEM : SHUNT_ERR_REMOTE));
    CHECK(comm == NULL);
}

int main(int argc, char **argv)
{
    struct shunt_comm *comm = NULL;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (shunt_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm) !=
            SHUNT_ERR_INVALID ||
        comm) {
        fprintf(stderr, "a communicator before MPI_Init()\n");
        return 1;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (argc > 1 && world_size != atoi(argv[1])) {
        fprintf(stderr, "%d ranks instead of %s\n", world_size, argv[1]);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }

    world();
    parts();
    bad_arguments();
    no_id();
    world(); /* after that, everything still works */

    /* A communicator outlives MPI. */
    CHECK(shunt_comm_create_mpi(MPI_COMM_WORLD, NULL, &comm) == SHUNT_OK);
    MPI_Finalize();
    if (shunt_barrier(comm) != SHUNT_OK ||
        shunt_comm_finish(comm) != SHUNT_OK) {
        fprintf(stderr, "after MPI_Finalize(): %s\n", shunt_last_error(comm));
        return 1;
    }
    shunt_comm_destroy(comm);
    return 0;
}
