// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of a copy engine plugin.
 *
 * An engine copies between memory that this process can address: its own, and
 * windows of peers that a transport has mapped. It does so while its caller
 * computes. Transports connect ranks; an engine does not know ranks.
 *
 * A plugin is a shared object `shunt_<name>.so` that exports one symbol,
 * `shunt_engine_v5`, a `const struct shunt_engine`. Of the library it includes
 * only the public headers, and it calls only what `struct shunt_transport_host`
 * (shunt/transport.h) offers. It is found as transports are.
 *
 * Threads. Any thread may call submit(), poll(), failed() and counters(), also
 * at the same time as others. Only close() blocks.
 *
 * Memory model. The content at the time of submit() is copied. When the signal
 * has its value (load-acquire), every byte is in place, and neither source nor
 * destination is accessed any more. Copies may finish in any order.
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
     * nothing is under way: poll() */
    int wake_fd;
    /* Bytes of all copies that belong together, of which this is one; 0: of this
     * one. What is large together should bypass the caches. */
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

/* The node of this process, and those of its CPUs that are left. */
struct shunt_engine_node {
    int ranks;      /* of the job here */
    int cpus;       /* that these may use together */
    int spare_cpus; /* beyond one for each rank; may be negative */
    /* A thread should run on these, which are near its caller and not those that
     * a rank is bound to, where there are others: bit i % 64 of word i / 64 for
     * CPU i. */
    const uint64_t *where;
    size_t words;
};

/*
 * Memory that an engine of devices copies from and to: theirs, and the host's in
 * the form in which a device reaches it (page-locked). Any thread may call this.
 * The memory is freed before close(), and no copy that is under way uses it then.
 * Errors: SHUNT_ERR_MEMORY, or SHUNT_ERR_SYSTEM; `why` says which call failed.
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
 * Memory of a device that other processes of this host copy to and from: what
 * alloc() returned, and any place in it, but no memory of the host. Any thread may
 * call this. Errors: SHUNT_ERR_UNSUPPORTED, these devices or this driver cannot,
 * and never will; SHUNT_ERR_MEMORY; SHUNT_ERR_SYSTEM. `why` says which call failed.
 *
 * The memory must not be freed while a process has it open.
 */
#define SHUNT_ENGINE_HANDLE_BYTES 128

struct shunt_engine_sharing {
    /* A handle by which the engine of another process, also of another device,
     * opens it: plain bytes, as long as the memory is. */
    enum shunt_status (*share)(struct shunt_engine_ctx *ctx, const void *memory,
                               unsigned char handle[SHUNT_ENGINE_HANDLE_BYTES],
                               char *why, size_t why_len);
    /* The memory of a handle, here. Not in the process that made the handle, which
     * has the memory already. */
    enum shunt_status (*open)(
        struct shunt_engine_ctx *ctx,
        const unsigned char handle[SHUNT_ENGINE_HANDLE_BYTES], void **memory,
        char *why, size_t why_len);
    /* Once for each open(), before the engine's close(). No copy that is under way
     * uses it. */
    void (*close)(struct shunt_engine_ctx *ctx, void *memory);
};

struct shunt_engine {
    uint32_t abi; /* SHUNT_ENGINE_ABI */
    const char *name;
    const char *summary; /* one line, for shunt-info */

    /* Can this engine work here? No side effects. SHUNT_ERR_UNSUPPORTED: `why`
     * says why not. OK: `why` says what it found. */
    enum shunt_status (*probe)(const struct shunt_transport_host *host,
                               char *why, size_t why_len);

    enum shunt_status (*open)(const struct shunt_engine_params *params,
                              struct shunt_engine_ctx **ctx, char *why,
                              size_t why_len);
    /* Wait for the copies under way, and free the context. NULL is allowed. */
    void (*close)(struct shunt_engine_ctx *ctx);

    /* OK: accepted. SHUNT_IN_PROGRESS: no room now; poll(), and call again.
     * SHUNT_ERR_UNSUPPORTED: the engine can never do this copy (a kind of
     * memory, or strides). SHUNT_ERR_SYSTEM: it has failed. In these cases the
     * caller copies itself. */
    enum shunt_status (*submit)(struct shunt_engine_ctx *ctx,
                                const struct shunt_engine_copy *copy);
    /* The number of copies under way; a copy is under way until its wake_fd has
     * been written. An engine without a thread or hardware of its own advances
     * them here, and one with a thread may make here what takes less time than to
     * wake that. */
    size_t (*poll)(struct shunt_engine_ctx *ctx);
    /* NULL: it works. Otherwise it has failed for good, and the text, which
     * lasts as long as the context, says how: what is under way and has no
     * signal yet never gets one, and its memory is not accessed any more. The
     * library then makes these copies itself. The member may be NULL: such an
     * engine cannot fail. */
    const char *(*failed)(const struct shunt_engine_ctx *ctx);

    /* As in shunt/transport.h; NULL: none. */
    size_t (*counters)(const struct shunt_engine_ctx *ctx,
                       struct shunt_transport_counter *counters, size_t room);
    const struct shunt_transport_knob *knobs;

    /* NULL: the engine is for the host's memory, of any kind. */
    const struct shunt_engine_memory *memory;

    /* What follows may be 0 or NULL. */

    unsigned caps; /* SHUNT_ENGINE_SCATTERS */
    /* Take a copy back that has this signal and that has not been begun: true,
     * it never will be, and the signal stays. For a caller that waits and can
     * as well copy itself. */
    bool (*take_back)(struct shunt_engine_ctx *ctx, const uint64_t *signal);
    /* The node is known; once, before the first submit(). For engines that need
     * a CPU. SHUNT_ERR_UNSUPPORTED: it has none for this one, `why` says so, and
     * the engine is not used. */
    enum shunt_status (*settle)(struct shunt_engine_ctx *ctx,
                                const struct shunt_engine_node *node, char *why,
                                size_t why_len);
    /* A caller has waited `seconds` for a copy and will wait no longer: from now
     * on the engine has failed(), with a text that names the device. Returns
     * without waiting for it. Memory of this engine that such a device may still
     * access stays, also when it is freed and after close(). NULL: for engines
     * whose copies end whatever happens. */
    void (*give_up)(struct shunt_engine_ctx *ctx, double seconds);
    /* NULL: its devices' memory is for one process. */
    const struct shunt_engine_sharing *sharing;
    /* What its copies have cost so far: nanoseconds of CPU time of the engine's
     * threads, and the bytes for that. By this the library finds out whether they
     * are worth it. Any thread may call it. NULL: they take no CPU of the host. */
    void (*spent)(const struct shunt_engine_ctx *ctx, uint64_t *cpu_ns,
                  uint64_t *bytes);
};

#endif
