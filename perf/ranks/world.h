// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of a run that MPI starts. MPI is a module that is loaded only if it
 * is needed; it uses no functions of the program.
 */
#ifndef SHUNT_PERF_WORLD_H
#define SHUNT_PERF_WORLD_H

#include <stddef.h>

#include <shunt/comm.h>

struct perf_engine;

/* The functions of a library that starts the processes: MPI. */
struct perf_world {
    const char *version;
    const char *(*open)(int *rank, int *ranks);
    void (*close)(void);
    void (*abort)(int status);
    void (*allgather)(const void *mine, void *all, size_t bytes);
    void (*progress)(void); /* let messages advance, without waiting */
    const char *(*create_comm)(struct shunt_comm **comm);
};

/* The MPI module exports one of these, named perf_mpi_module. */
#define PERF_MODULE_ABI 4
struct perf_module {
    int abi;
    const struct perf_engine *engine;
    struct perf_world *world;
};

/* Load the MPI module. If there is none, ends the program with a message. */
const struct perf_module *perf_load_mpi(void);

#endif
