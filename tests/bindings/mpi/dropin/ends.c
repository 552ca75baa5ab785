// SPDX-License-Identifier: Apache-2.0
/*
 * Tests calls before MPI_Init() and after MPI_Finalize(), and programs that
 * make few collective calls, or none:
 *
 *     ends             calls that are legal outside of them work
 *     ends silent      no collective call at all
 *     ends once        one call, on the world
 *     ends self        only MPI_COMM_SELF
 *     ends late        one rank calls seconds after the others
 *     ends apart       like `late`, by more than SHUNT_TIMEOUT, after a call
 *                      for which the drop-in makes no communicator
 *     ends fork        rank 0 has children, which make a call or exit
 *     ends wait        ranks print their process ids, and then make calls until
 *                      they are killed
 */

#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void outside(int before)
{
    int on = -1, major, minor, length;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];

    MPI(MPI_Initialized(&on));
    CHECK(on == !before);
    MPI(MPI_Finalized(&on));
    CHECK(on == !before);
    MPI(MPI_Get_version(&major, &minor));
    CHECK(major >= 3);
    MPI(MPI_Get_library_version(text, &length));
    CHECK(length > 0);
}

static void sum_of_ranks(void)
{
    int sum = -1;
    MPI(MPI_Allreduce(&world_rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == world_size * (world_size - 1) / 2);
}

/* A child that calls MPI_Allreduce() gets an error of the drop-in. Without the
 * drop-in MPI may do anything, so the child does not call it. */
static void child(int calls)
{
    int one = 1000, sum = -1;

    if (!calls)
        exit(0);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    _exit(getenv("SHUNT_MPI") && MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM,
                                               MPI_COMM_WORLD) == MPI_SUCCESS);
}

static void children(void)
{
    for (int calls = 0; calls < 2; calls++) {
        int status = -1;
        pid_t pid;

        fflush(stdout);
        pid = fork();
        CHECK(pid >= 0);
        if (!pid)
            child(calls);
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(status == 0);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    int level;

    if (strcmp(what, "apart") == 0)
        setenv("SHUNT_TIMEOUT", "1", 1);
    outside(1);
    if (*what)
        MPI(MPI_Init(&argc, &argv));
    else
        MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level));
    MPI(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    MPI(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
    if (strcmp(what, "self") == 0) {
        MPI(MPI_Barrier(MPI_COMM_SELF));
    } else if (strcmp(what, "late") == 0) {
        if (world_rank == world_size - 1)
            sleep(2);
        sum_of_ranks();
    } else if (strcmp(what, "fork") == 0) {
        sum_of_ranks();
        if (world_rank == 0)
            children();
        for (int i = 0; i < 3; i++)
            sum_of_ranks();
    } else if (strcmp(what, "apart") == 0) {
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        if (world_rank == world_size - 1)
            sleep(3);
        sum_of_ranks();
    } else if (strcmp(what, "wait") == 0) {
        sum_of_ranks();
        printf("rank %d pid %d\n", world_rank, (int)getpid());
        fflush(stdout);
        for (;;) {
            sum_of_ranks();
            usleep(1000);
        }
    } else if (strcmp(what, "silent") != 0) {
        sum_of_ranks();
    }
    MPI(MPI_Finalize());
    outside(0);
    return 0;
}
