// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of a GPU, for --mem device, and copies by the CUDA driver itself. The
 * driver is loaded at run time, as the engine `cuda` loads it. A call of the
 * driver that fails ends the program.
 */
#ifndef SHUNT_PERF_DEVICE_H
#define SHUNT_PERF_DEVICE_H

#include <stddef.h>

/* Load the driver and find a GPU. If there is none, ends the program with a
 * text that says what to do. */
void perf_device_find(void);
/* Make the GPU's context current in this thread. Call it before the
 * communicator is created. The engine uses the same GPU: that of
 * SHUNT_CUDA_DEVICE, or the first one. */
void perf_device_open(void);
/* Release the context. Call it after all memory has been freed and the
 * communicator destroyed. */
void perf_device_close(void);

/* The name of the GPU, and whether its driver is the tests' fake one. */
const char *perf_device_words(void);

/* Allocate memory of the GPU; `bytes` may be 0. Ends the program if memory runs
 * out. */
void *perf_device_alloc(size_t bytes);
void perf_device_free(void *memory);
/* Copy between the GPU and the host's memory; the copy is done on return. */
void perf_device_write(void *to, const void *from, size_t bytes);
void perf_device_read(void *to, const void *from, size_t bytes);
/* Start a copy within the device. It runs after the copies that were started
 * before. */
void perf_device_copy(void *to, const void *from, size_t bytes);
/* Wait for all started copies, without sleeping. */
void perf_device_wait(void);

#endif
