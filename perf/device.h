// SPDX-License-Identifier: Apache-2.0
/*
 * Memory of a GPU, for --mem device, and copies by the CUDA driver itself. The
 * driver is loaded at run time, as the engine `cuda` loads it.
 *
 * A call of the driver that fails ends the program.
 */
#ifndef SHUNT_PERF_DEVICE_H
#define SHUNT_PERF_DEVICE_H

#include <stddef.h>

/* Load the driver and find a GPU. Ends the program, with what to do, if there is
 * none. */
void perf_device_find(void);
/* Make the GPU's context current in this thread, before the communicator is made.
 * The engine takes the same GPU: that of SHUNT_CUDA_DEVICE, or the first one. */
void perf_device_open(void);
/* After the last memory has been freed, and the communicator destroyed. */
void perf_device_close(void);

/* The GPU, and whether its driver is the tests' fake one, in words. */
const char *perf_device_words(void);

/* Memory of zero bytes is legal. Ends the program if there is none. */
void *perf_device_alloc(size_t bytes);
void perf_device_free(void *memory);
/* Copy from the host's memory, and to it, at once. */
void perf_device_write(void *to, const void *from, size_t bytes);
void perf_device_read(void *to, const void *from, size_t bytes);
/* Start a copy within the device, behind those that were started before. */
void perf_device_copy(void *to, const void *from, size_t bytes);
/* Wait for the end of all copies, without sleeping. */
void perf_device_wait(void);

#endif
