// SPDX-License-Identifier: Apache-2.0
/*
 * The same exchanges by MPI. This is a module, so that shunt-perf itself needs
 * no MPI.
 */
#include "perf/peers/engine_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include <shunt/mpi.h>

void *perf_mpi_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) {
        fprintf(stderr, "shunt-perf: no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, PERF_EXIT_FAILED);
    }
    return p;
}

/* Complete the previous calls on all ranks: a rank in the barrier finishes what
 * is left of them. The first barrier may open connections, so a second one
 * follows. */
static void settle(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* --- processes ------------------------------------------------------------ */

static char version[MPI_MAX_LIBRARY_VERSION_STRING + 64];
static struct perf_world world;

static const char *world_open(int *rank, int *ranks)
{
    int length = 0;

    if (MPI_Init(NULL, NULL) != MPI_SUCCESS)
        return "MPI_Init failed";
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, ranks);
    MPI_Get_library_version(version, &length);
    /* After the version, MPICH lists all its build options, and Open MPI its
     * packager. Both are cut off. */
    version[strcspn(version, "\n")] = '\0';
    char *package = strstr(version, ", package");
    if (package)
        *package = '\0';
    for (char *c = version; *c; c++)
        *c = *c == '\t' ? ' ' : *c;
    const char *yield = getenv("OMPI_MCA_mpi_yield_when_idle");
    if (yield)
        snprintf(version + strlen(version), 64, " (mpi_yield_when_idle=%.8s)",
                 yield);
    world.version = version;
    return NULL;
}

static void world_close(void)
{
    MPI_Finalize();
}

static void world_abort(int status)
{
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void world_allgather(const void *mine, void *all, size_t bytes)
{
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                  MPI_COMM_WORLD);
}

static void world_progress(void)
{
    int any;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any,
               MPI_STATUS_IGNORE);
}

static const char *world_create_comm(struct shunt_comm **comm)
{
    enum shunt_status st = shunt_comm_create_mpi(MPI_COMM_WORLD, NULL, comm);
    return st == SHUNT_OK ? NULL : shunt_last_error(NULL);
}

static const struct perf_engine engine = {
    .name = "mpi",
    .delivers = true,
    .settle = settle,
    .call_open = perf_mpi_call_open,
    .call_run = perf_mpi_call_run,
    .call_close = perf_mpi_call_close,
    .call_start = perf_mpi_call_start,
    .call_test = perf_mpi_call_test,
    .call_wait = perf_mpi_call_wait,
    .moe_open = perf_mpi_moe_open,
    .moe_plan = perf_mpi_moe_plan,
    .moe_go = perf_mpi_moe_go,
    .moe_release = perf_mpi_moe_release,
    .moe_close = perf_mpi_moe_close,
    .moe_start = perf_mpi_moe_start,
    .moe_test = perf_mpi_moe_test,
    .moe_wait = perf_mpi_moe_wait,
    .moe_buffer = perf_mpi_moe_buffer,
    .moe_note = perf_mpi_moe_note,
};

static struct perf_world world = {
    .open = world_open,
    .close = world_close,
    .abort = world_abort,
    .allgather = world_allgather,
    .progress = world_progress,
    .create_comm = world_create_comm,
};

extern const struct perf_module perf_mpi_module;
SHUNT_API const struct perf_module perf_mpi_module = {
    .abi = PERF_MODULE_ABI,
    .engine = &engine,
    .world = &world,
};
