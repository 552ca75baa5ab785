// SPDX-License-Identifier: Apache-2.0
/*
 * The peer MPI. Its module is three files. The functions declared here are in
 * engine_mpi_coll.c and engine_mpi_moe.c, in the order of struct perf_engine.
 * engine_mpi.c has the processes and the module itself.
 */
#ifndef SHUNT_PERF_ENGINE_MPI_H
#define SHUNT_PERF_ENGINE_MPI_H

#include "perf/peers/engine.h"
#include "perf/ranks/world.h"

/* malloc() that ends all ranks if memory runs out. */
void *perf_mpi_alloc(size_t bytes);

const char *perf_mpi_call_open(const struct perf_call *call, void **state);
void perf_mpi_call_run(void *state);
void perf_mpi_call_close(void *state);
void perf_mpi_call_start(void *state);
void perf_mpi_call_test(void *state);
void perf_mpi_call_wait(void *state);

const char *perf_mpi_moe_open(const struct perf_exchange *exchange,
                              void **state);
void perf_mpi_moe_plan(void *state);
void perf_mpi_moe_go(void *state, enum perf_go what);
void perf_mpi_moe_release(void *state);
void perf_mpi_moe_close(void *state);
void perf_mpi_moe_start(void *state, enum perf_go what);
void perf_mpi_moe_test(void *state);
void perf_mpi_moe_wait(void *state);
void *perf_mpi_moe_buffer(void *state, enum shunt_moe_buffer which);
const char *perf_mpi_moe_note(void *state);

#endif
