// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Windows: memory that other ranks can access, which saves copies.
 *
 * Every call of the library accepts any pointer to the host's memory. A pointer into
 * a window is faster: local peers copy straight from and to it. Windows are the
 * host's memory; what calls do with memory of a GPU is in moe.h. A child of fork()
 * shares them with its parent (comm.h).
 */
#ifndef SHUNT_MEMORY_H
#define SHUNT_MEMORY_H

#include <stddef.h>

#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

struct shunt_comm;

/**
 * Allocate `bytes` of memory that is a window of `comm`.
 *
 * bytes  may differ between ranks; 0 gives NULL (the rank still takes part).
 * ptr    out; page aligned, zeroed. Pages are allocated on first touch.
 *
 * Collective: every rank calls it, in the same order. Free with
 * shunt_mem_free(), or with the communicator.
 * Errors: SHUNT_ERR_MEMORY on a rank without enough memory, SHUNT_ERR_REMOTE on
 * the others.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_mem_alloc(struct shunt_comm *comm, size_t bytes, void **ptr);

/**
 * Free memory of shunt_mem_alloc().
 *
 * ptr  what the same call of shunt_mem_alloc() returned on each rank: NULL on a
 *      rank that asked for 0 bytes. NULL on all ranks frees nothing.
 *
 * Collective: every rank calls it, in the same order, for memory of the same
 * call of shunt_mem_alloc(); sizes and addresses may differ. Waits until this
 * rank's pending operations have completed and no peer can access the memory
 * any more.
 * Errors: SHUNT_ERR_INVALID on a rank whose ptr is not such memory,
 * SHUNT_ERR_REMOTE on the others; SHUNT_ERR_MISMATCH on every rank if the
 * pointers belong to different calls of shunt_mem_alloc(), or a rank passes
 * NULL instead of its own. After an error no rank has freed anything, and all
 * of the memory can be used as before.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_mem_free(struct shunt_comm *comm, void *ptr);

/**
 * Register memory of the caller's own that calls will often send from, so that
 * transports that put straight from it (large blocks to ranks whose memory is not
 * mapped) prepare it once: a NIC pins its pages. Memory of shunt_mem_alloc() is
 * registered already.
 *
 * ptr, bytes  stays allocated until it is deregistered; what it holds does not
 *             matter. May differ between ranks; may overlap what is registered.
 *
 * Local. Calls take memory that is not registered, too.
 *
 * Errors: SHUNT_ERR_INVALID, NULL or 0 bytes; SHUNT_ERR_UNSUPPORTED, memory of a
 * GPU; SHUNT_ERR_MEMORY; or what the transport says, as when `ulimit -l` is too
 * low. Nothing is registered then.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_mem_register(struct shunt_comm *comm, void *ptr, size_t bytes);

/**
 * Take back one shunt_mem_register(): the last one of this address. No unfinished
 * request uses the memory. Local; shunt_comm_destroy() does it, too.
 *
 * Errors: SHUNT_ERR_INVALID, nothing that begins at `ptr` is registered.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_mem_deregister(struct shunt_comm *comm, void *ptr);

#ifdef __cplusplus
}
#endif

#endif
