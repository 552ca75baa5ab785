// SPDX-License-Identifier: Apache-2.0
/*
 * The contract of a copy engine plugin.
 *
 * An engine moves bytes between memory that this process can already address: its
 * own, and windows of peers that a transport has mapped. It does so beside its
 * caller, which computes meanwhile. Transports connect ranks; an engine knows no
 * rank.
 *
 * A plugin is a shared object `shunt_<name>.so` that exports one symbol,
 * `shunt_engine_v1`, a `const struct shunt_engine`. It includes nothing of the
 * library but the public headers, and calls nothing of it but what
 * `struct shunt_transport_host` (shunt/transport.h) offers. It is found as
 * transports are.
 *
 * Threads: submit(), poll() and error() may be called by any thread, also at the
 * same time. No operation blocks but close().
 *
 * Memory model. What the submitter wrote before submit() is what is copied. When
 * the signal has its value (load-acquire), every byte is at its place, and neither
 * source nor destination is touched any more. Copies may finish in any order.
 */
#ifndef SHUNT_ENGINE_H
#define SHUNT_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/status.h>
#include <shunt/transport.h>

#define SHUNT_ENGINE_ABI 1u
#define SHUNT_ENGINE_SYMBOL "shunt_engine_v1"

/*
 * A descriptor: `rows` rows of `bytes` bytes each. Row i is copied
 *
 *     from  from + (index ? index[i] : i) * from_stride
 *     to    to + i * to_stride
 *
 * Source and destination must not overlap. 0 rows, or rows of 0 bytes, only raise
 * the signal. A contiguous copy has one row.
 *
 * The descriptor itself is copied by submit(). `index` (rows entries), like source
 * and destination, must stay until the signal.
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
    int wake_fd; /* an eventfd to write 1 to after the signal; -1: none. It stays
                  * open until nothing is under way: poll() */
};

struct shunt_engine_params {
    const struct shunt_transport_host *host;
};

struct shunt_engine_ctx;

struct shunt_engine {
    uint32_t abi; /* SHUNT_ENGINE_ABI */
    const char *name;
    const char *summary; /* one line, for shunt-info */

    /* May this engine work here? No side effects. SHUNT_ERR_UNSUPPORTED: `why`
     * says why not; OK: what it found. */
    enum shunt_status (*probe)(const struct shunt_transport_host *host,
                               char *why, size_t why_len);

    enum shunt_status (*open)(const struct shunt_engine_params *params,
                              struct shunt_engine_ctx **ctx, char *why,
                              size_t why_len);
    /* Waits for the copies under way, and frees the context. NULL is allowed. */
    void (*close)(struct shunt_engine_ctx *ctx);

    /* OK: taken. SHUNT_IN_PROGRESS: no room now; poll(), and call again.
     * SHUNT_ERR_UNSUPPORTED: not this copy, ever (a kind of memory, or strides,
     * that the engine cannot move): the caller copies by itself. */
    enum shunt_status (*submit)(struct shunt_engine_ctx *ctx,
                                const struct shunt_engine_copy *copy);
    /* Copies that are under way; each is until its wake_fd was written. An engine without a thread or hardware of its own
     * advances them here. */
    size_t (*poll)(struct shunt_engine_ctx *ctx);

    /* As in shunt/transport.h; NULL: none. */
    size_t (*counters)(const struct shunt_engine_ctx *ctx,
                       struct shunt_transport_counter *counters, size_t room);
    const struct shunt_transport_knob *knobs;
};

#endif
