// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments in the memory of a device, which the host cannot access.
 *
 * The CUDA driver recognizes such memory. The library asks the driver only if
 * the program has loaded it, and never loads it. Memory that the driver moves
 * between device and host ("managed") counts as the host's.
 *
 * Calls that accept device memory copy it to the host, and results back, by the
 * copy engine of the process. All other calls refuse it.
 */
#ifndef SHUNTI_DEVICE_H
#define SHUNTI_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/engine.h>
#include <shunt/status.h>

#include "src/op/engine.h"

struct shunt_comm;

/* Look whether the program has loaded the driver. Called when a communicator is
 * made, and in calls of exchanges. Costs 10 ns. */
void shunti_device_look(void);

/* Is this the memory of a device? Costs nothing if the latest look found no
 * driver. */
bool shunti_is_device(const void *memory);

/* The reason why this process cannot copy from and to devices, as the end of a
 * sentence; NULL: it can. */
const char *shunti_device_unable(const struct shunt_comm *comm);

/* Allocate memory of the host that the engine copies from and to. Errors: the
 * text is in `why`. */
enum shunt_status shunti_device_host_alloc(struct shunt_comm *comm,
                                           size_t bytes, void **memory,
                                           char *why, size_t why_len);
void shunti_device_host_free(struct shunt_comm *comm, void *memory);

/* Allocate memory of the device that the engine uses. */
enum shunt_status shunti_device_alloc(struct shunt_comm *comm, size_t bytes,
                                      void **memory, char *why, size_t why_len);
void shunti_device_free(struct shunt_comm *comm, void *memory);

/* --- memory of other ranks of this host ----------------------------------- */

/* The place of a rank's device memory. A rank sends it to the other ranks as
 * plain bytes. */
struct shunti_device_place {
    /* name of the owner's process, where `address` suffices */
    uint64_t process[2];
    uint64_t address, bytes;
    unsigned char handle[SHUNT_ENGINE_HANDLE_BYTES];
};

/* Can this process open the device memory of other processes of this host, and
 * share its own with them? */
bool shunti_device_shares(const struct shunt_comm *comm);
/* Fill in the place of `bytes` at `memory`, which shunti_device_alloc()
 * returned. */
enum shunt_status shunti_device_share(struct shunt_comm *comm,
                                      const void *memory, size_t bytes,
                                      struct shunti_device_place *place,
                                      char *why, size_t why_len);
/* Open the memory at `place` in this process. Close it with
 * shunti_device_close() before its owner frees it. */
enum shunt_status shunti_device_open(struct shunt_comm *comm,
                                     const struct shunti_device_place *place,
                                     void **memory, char *why, size_t why_len);
void shunti_device_close(struct shunt_comm *comm,
                         const struct shunti_device_place *place, void *memory);

/* --- copies --------------------------------------------------------------- */

/* A copy between two devices, or between a device and the host. Zeroed before
 * it begins. It must live until it has ended. */
struct shunti_device_copy {
    uint64_t done; /* atomic; the engine sets it to 1 */
    bool begun;
    /* True if a step started this copy. The step holds the communicator, which
     * may sleep until the copy ends. If false, nobody holds the communicator,
     * and the end of the copy wakes nobody. */
    bool inside;
    bool between_devices; /* both ends are in devices; for the statistics */
    uint64_t since_ns;    /* when the copy was first submitted */
    void *to;
    const void *from;
    size_t bytes; /* bytes of a row */
    /* NULL: the copy is one row. Otherwise this must live as long as the
     * copy. */
    const struct shunti_copy_rows *rows;
};

/* Begin `copy`. SHUNT_IN_PROGRESS: the engine has no room; call again. The time
 * of a copy is bounded: it may take three quarters of the timeout of a call
 * (SHUNT_TIMEOUT). After that the engine is given up for good, and beginning or
 * testing the copy returns SHUNT_ERR_TIMEOUT. So this rank reports the error
 * before other ranks blame this rank. */
enum shunt_status shunti_device_copy_begin(struct shunt_comm *comm,
                                           struct shunti_device_copy *copy,
                                           char *why, size_t why_len);
/* Add a copy that has begun to the statistics. A copy that is `inside` is
 * counted when it begins. Any other copy is counted by its caller, in a call on
 * the communicator. */
void shunti_device_count(struct shunt_comm *comm,
                         const struct shunti_device_copy *copy);
/* Test a copy. SHUNT_IN_PROGRESS: the copy is under way. Any other status: it
 * has ended. */
enum shunt_status shunti_device_copy_test(struct shunt_comm *comm,
                                          struct shunti_device_copy *copy,
                                          char *why, size_t why_len);

#endif
