// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments in the memory of a device, which the host cannot access.
 *
 * They are told by the CUDA driver, if the program has loaded it: nothing is
 * loaded for this. Memory that the driver moves between device and host
 * ("managed") counts as the host's.
 *
 * Calls that accept such memory have the copy engine of the process bring it to
 * the host, and take results back. All others refuse it.
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

/* Look whether the program has loaded the driver: when a communicator is made,
 * and in calls of exchanges (10 ns). */
void shunti_device_look(void);

/* Is it memory of a device? Costs nothing where the latest look found no driver.
 */
bool shunti_is_device(const void *memory);

/* Why this process cannot copy from and to devices, as the end of a sentence;
 * NULL: it can. */
const char *shunti_device_unable(const struct shunt_comm *comm);

/* Memory of the host that the engine copies from and to. Errors: the text is in
 * `why`. */
enum shunt_status shunti_device_host_alloc(struct shunt_comm *comm,
                                           size_t bytes, void **memory,
                                           char *why, size_t why_len);
void shunti_device_host_free(struct shunt_comm *comm, void *memory);

/* Memory of the device that the engine copies by. */
enum shunt_status shunti_device_alloc(struct shunt_comm *comm, size_t bytes,
                                      void **memory, char *why, size_t why_len);
void shunti_device_free(struct shunt_comm *comm, void *memory);

/* --- memory of other ranks of this host --------------------------------------- */

/* Where a rank's memory of a device is: plain bytes, which it shows the others. */
struct shunti_device_place {
    uint64_t process[2]; /* whose it is: in that process `address` is enough */
    uint64_t address, bytes;
    unsigned char handle[SHUNT_ENGINE_HANDLE_BYTES];
};

/* Can this process open memory of others, and they its own? */
bool shunti_device_shares(const struct shunt_comm *comm);
/* Fill in the place of `bytes` at `memory`, of shunti_device_alloc(). */
enum shunt_status shunti_device_share(struct shunt_comm *comm,
                                      const void *memory, size_t bytes,
                                      struct shunti_device_place *place,
                                      char *why, size_t why_len);
/* That memory, here. Closed with shunti_device_close(), before its owner frees
 * it. */
enum shunt_status shunti_device_open(struct shunt_comm *comm,
                                     const struct shunti_device_place *place,
                                     void **memory, char *why, size_t why_len);
void shunti_device_close(struct shunt_comm *comm,
                         const struct shunti_device_place *place, void *memory);

/* --- copies ------------------------------------------------------------------- */

/* A copy between devices, or between one and the host; zeroed before it begins,
 * and it must live until it is over. */
struct shunti_device_copy {
    uint64_t done; /* atomic: 1, by the engine */
    bool begun;
    /* It is one of a step's: the communicator is ours, and may sleep until it has
     * ended. Otherwise it is not, and nothing wakes it. */
    bool inside;
    bool between_devices; /* for the statistics */
    uint64_t since_ns;    /* when the engine was first asked for it */
    void *to;
    const void *from;
    size_t bytes;                        /* of a row */
    const struct shunti_copy_rows *rows; /* NULL: one; else they live as long */
};

/* Begin it. SHUNT_IN_PROGRESS: the engine has no room; call again. Both end in
 * bounded time: if the engine takes three quarters of the time of a call
 * (SHUNT_TIMEOUT), so that this rank speaks before others name it, it is given up
 * for good, and the status is SHUNT_ERR_TIMEOUT. */
enum shunt_status shunti_device_copy_begin(struct shunt_comm *comm,
                                           struct shunti_device_copy *copy,
                                           char *why, size_t why_len);
/* Add a copy that has begun to the statistics. A copy that is `inside` does so by
 * itself; of another one its caller does it, within the communicator. */
void shunti_device_count(struct shunt_comm *comm,
                         const struct shunti_device_copy *copy);
/* SHUNT_IN_PROGRESS: it is under way. Any other status is its end. */
enum shunt_status shunti_device_copy_test(struct shunt_comm *comm,
                                          struct shunti_device_copy *copy,
                                          char *why, size_t why_len);

#endif
