// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Windows: memory that other ranks can access, which saves copies.
 *
 * Every call of the library accepts any pointer to the host's memory. A pointer
 * into a window is faster: local peers copy directly from it and to it. Windows
 * are the host's memory; moe.h says which calls accept memory of a GPU. A child
 * of fork() shares its parent's windows (comm.h).
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
 * ptr  the pointer that shunt_mem_alloc() returned on this rank, from the same
 *      call on every rank: NULL on a rank that asked for 0 bytes. NULL on all
 *      ranks frees nothing.
 *
 * Collective: every rank calls it, in the same order; sizes and addresses may
 * differ. Waits until this rank's pending operations have completed and no peer
 * can access the memory any more.
 *
 * Errors: SHUNT_ERR_INVALID on a rank whose ptr is not such memory,
 * SHUNT_ERR_REMOTE on the others; SHUNT_ERR_MISMATCH on every rank if the
 * pointers belong to different calls of shunt_mem_alloc(), or a rank passes
 * NULL instead of its own. After an error no rank has freed anything, and all
 * of the memory can be used as before.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_mem_free(struct shunt_comm *comm, void *ptr);

/**
 * Register memory of the caller's own that calls will often send from.
 *
 * ptr, bytes  the memory, which must stay allocated until it is deregistered.
 *             Its contents do not matter. It may differ between ranks, and may
 *             overlap registered memory.
 *
 * Some transports put directly from the caller's memory (large blocks to ranks
 * whose memory is not mapped). They prepare registered memory only once: a NIC
 * pins its pages. Memory of shunt_mem_alloc() is registered already. Calls
 * accept memory that is not registered, too.
 *
 * Local. Errors: SHUNT_ERR_INVALID, NULL or 0 bytes; SHUNT_ERR_UNSUPPORTED,
 * memory of a GPU; SHUNT_ERR_MEMORY; or the transport's error, as when
 * `ulimit -l` is too low. After an error nothing is registered.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_mem_register(struct shunt_comm *comm, void *ptr, size_t bytes);

/**
 * Undo one shunt_mem_register(): the last one of this address.
 *
 * No unfinished request may use the memory. Local; shunt_comm_destroy()
 * deregisters the rest.
 *
 * Errors: SHUNT_ERR_INVALID, nothing that begins at `ptr` is registered.
 */
SHUNT_API SHUNT_NODISCARD enum shunt_status
shunt_mem_deregister(struct shunt_comm *comm, void *ptr);

#ifdef __cplusplus
}
#endif

#endif
