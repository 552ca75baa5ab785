// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of a copy engine plugin: a library that copies memory while its
 * caller computes.
 *
 * A plugin is a shared object `shunt_<name>.so` that exports one symbol:
 *
 *     const struct shunt_engine shunt_engine_v5 = {
 *         .abi = SHUNT_ENGINE_ABI,
 *         .name = "<name>",
 *         .summary = "one line, for shunt-info",
 *         .probe = probe,
 *         .open = open_engine,
 *         .close = close_engine,
 *         .submit = submit,
 *         .poll = poll_engine,
 *     };
 *
 * The fields shown are mandatory. An engine copies between memory that this
 * process can address: its own, and windows of peers that a transport has
 * mapped. Transports connect ranks; an engine does not know ranks.
 *
 * A plugin includes only the public headers of the library, and calls only the
 * functions of `struct shunt_transport_host` (shunt/transport.h). It is
 * found as transports are.
 *
 * Threads. Any thread may call submit(), poll(), failed() and counters(), also
 * at the same time as others. Only close() blocks.
 *
 * Memory model. An engine copies the content that the source has at the time of
 * submit(). When the signal has its value (load-acquire), every byte is in
 * place, and neither source nor destination is accessed any more. Copies may
 * finish in any order.
 */
#ifndef SHUNT_ENGINE_H
#define SHUNT_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>
#include <shunt/transport.h>

#define SHUNT_ENGINE_ABI 5u
#define SHUNT_ENGINE_SYMBOL "shunt_engine_v5"

/*
 * A descriptor: `rows` rows of `bytes` bytes each. Row i is copied
 *
 *     from  from + (index ? index[i] : i) * from_stride
 *     to    to + i * to_stride
 *
 * Source and destination must not overlap. 0 rows, or rows of 0 bytes, only
 * raise the signal. A contiguous copy has one row.
 *
 * submit() copies the descriptor itself. `index` (rows entries), source and
 * destination must remain valid until the signal.
 */
struct shunt_engine_copy {
    void *to;
    const void *from;
    size_t bytes;
    size_t rows;
    size_t to_stride, from_stride; /* bytes; unused with one row */
    const uint32_t *index;         /* NULL: rows in order */
    uint64_t *signal; /* raised to `value` (store-release); aligned */
    uint64_t value;
    /* an eventfd to write 1 to after the signal; -1: none. It stays open until
     * no copy is under way: poll() */
    int wake_fd;
    /* Bytes of all copies that belong together, including this one; 0: only
     * this one. Copies that are large together should bypass the caches. */
    size_t whole;
    /* NULL: rows in order; else row i goes to `to` + to_index[i] * to_stride.
     * Given only to engines that have SHUNT_ENGINE_SCATTERS. */
    const uint32_t *to_index;
};

#define SHUNT_ENGINE_SCATTERS 1u /* takes descriptors with a to_index */

struct shunt_engine_params {
    const struct shunt_transport_host *host;
};

struct shunt_engine_ctx;

/* The node of this process, and its spare CPUs. */
struct shunt_engine_node {
    int ranks;      /* ranks of the job on this node */
    int cpus;       /* CPUs that these ranks may use together */
    int spare_cpus; /* CPUs beyond one for each rank; may be negative */
    /* The CPUs on which a thread of the engine should run: bit i % 64 of word
     * i / 64 for CPU i. They are near the caller, and no rank is bound to them,
     * if there are such CPUs. */
    const uint64_t *where;
    size_t words;
};

/*
 * Functions for memory that an engine of devices copies from and to: memory of
 * the devices, and memory of the host in a form that a device can access
 * (page-locked). Any thread may call them. The memory is freed before close(),
 * and no copy that is under way uses it then. Errors: SHUNT_ERR_MEMORY, or
 * SHUNT_ERR_SYSTEM; `why` names the call that failed.
 */
struct shunt_engine_memory {
    enum shunt_status (*alloc)(struct shunt_engine_ctx *ctx,
                               enum shunt_transport_memory_kind kind,
                               size_t bytes, void **memory, char *why,
                               size_t why_len);
    void (*free)(struct shunt_engine_ctx *ctx,
                 enum shunt_transport_memory_kind kind, void *memory);
};

/*
 * Functions that share memory of a device with other processes of this host,
 * which copy from and to it. The memory is memory of a device from alloc(), or
 * begins inside such memory. Any thread may call the functions. Errors:
 * SHUNT_ERR_UNSUPPORTED, these devices or this driver cannot share memory, and
 * never will; SHUNT_ERR_MEMORY; SHUNT_ERR_SYSTEM. `why` names the call that
 * failed.
 *
 * The memory must not be freed while a process has it open.
 */
#define SHUNT_ENGINE_HANDLE_BYTES 128

struct shunt_engine_sharing {
    /* Make a handle by which the engine of another process, also of another
     * device, opens the memory. The handle is plain bytes, and is valid as long
     * as the memory. */
    enum shunt_status (*share)(struct shunt_engine_ctx *ctx, const void *memory,
                               unsigned char handle[SHUNT_ENGINE_HANDLE_BYTES],
                               char *why, size_t why_len);
    /* Open the memory of a handle in this process. Not called in the process
     * that made the handle, which has the memory already. */
    enum shunt_status (*open)(
        struct shunt_engine_ctx *ctx,
        const unsigned char handle[SHUNT_ENGINE_HANDLE_BYTES], void **memory,
        char *why, size_t why_len);
    /* Close the memory: called once for each open(), before the engine's
     * close(). No copy that is under way uses the memory. */
    void (*close)(struct shunt_engine_ctx *ctx, void *memory);
};

struct shunt_engine {
    uint32_t abi; /* SHUNT_ENGINE_ABI */
    const char *name;
    const char *summary; /* one line, for shunt-info */

    /* Check whether this engine can work here, without side effects.
     * SHUNT_ERR_UNSUPPORTED: `why` gives the reason. OK: `why` describes what
     * was found. */
    enum shunt_status (*probe)(const struct shunt_transport_host *host,
                               char *why, size_t why_len);

    enum shunt_status (*open)(const struct shunt_engine_params *params,
                              struct shunt_engine_ctx **ctx, char *why,
                              size_t why_len);
    /* Wait for the copies under way, and free the context. NULL is allowed. */
    void (*close)(struct shunt_engine_ctx *ctx);

    /* Start a copy. OK: accepted. SHUNT_IN_PROGRESS: no room now; poll(), and
     * call again. SHUNT_ERR_UNSUPPORTED: the engine can never do this copy (a
     * kind of memory, or strides). SHUNT_ERR_SYSTEM: the engine has failed.
     * After these two errors the caller copies the data itself. */
    enum shunt_status (*submit)(struct shunt_engine_ctx *ctx,
                                const struct shunt_engine_copy *copy);
    /* Return the number of copies under way; a copy is under way until its
     * wake_fd has been written. An engine without a thread or hardware of its
     * own makes its copies here. An engine with a thread may make copies here
     * that take less time than waking the thread. */
    size_t (*poll)(struct shunt_engine_ctx *ctx);
    /* Return NULL if the engine works. Otherwise it has failed for good, and
     * the text, which lasts as long as the context, gives the reason. Copies
     * under way that have no signal yet never get one, and their memory is not
     * accessed any more. The library then makes these copies itself. The member
     * may be NULL: such an engine cannot fail. */
    const char *(*failed)(const struct shunt_engine_ctx *ctx);

    /* counters and knobs: as in shunt/transport.h; NULL: none. */
    size_t (*counters)(const struct shunt_engine_ctx *ctx,
                       struct shunt_transport_counter *counters, size_t room);
    const struct shunt_transport_knob *knobs;

    /* NULL: the engine copies only memory of the host, of any kind. */
    const struct shunt_engine_memory *memory;

    /* All members below may be 0 or NULL. */

    unsigned caps; /* SHUNT_ENGINE_SCATTERS */
    /* Cancel the copy that has this signal, if it has not begun. True: it will
     * never begin, and the signal stays as it is. A caller that waits uses this
     * to copy the data itself. */
    bool (*take_back)(struct shunt_engine_ctx *ctx, const uint64_t *signal);
    /* Receive the node of this process: called once, before the first submit().
     * For engines that need a CPU. SHUNT_ERR_UNSUPPORTED: no CPU is left for
     * this engine, `why` says so, and the engine is not used. */
    enum shunt_status (*settle)(struct shunt_engine_ctx *ctx,
                                const struct shunt_engine_node *node, char *why,
                                size_t why_len);
    /* Fail the engine, because a caller has waited `seconds` for a copy: from
     * now on failed() returns a text that names the device. Returns without
     * waiting for the device. Memory of this engine that the device may still
     * access stays allocated, even if it is freed, and after close(). NULL: the
     * copies of this engine end whatever happens. */
    void (*give_up)(struct shunt_engine_ctx *ctx, double seconds);
    /* NULL: memory of the devices cannot be shared with other processes. */
    const struct shunt_engine_sharing *sharing;
    /* Report the cost of all copies so far: nanoseconds of CPU time of the
     * engine's threads, and the bytes that they copied. The library uses it to
     * decide whether copies by the engine are worthwhile. Any thread may call
     * it. NULL: the copies take no CPU time of the host. */
    void (*spent)(const struct shunt_engine_ctx *ctx, uint64_t *cpu_ns,
                  uint64_t *bytes);
};

#endif
