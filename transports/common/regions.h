// SPDX-License-Identifier: Apache-2.0
/*
 * The registrations of a transport whose peers name memory by a number, which
 * only the owner of the memory can interpret. The owner looks the number up for
 * every put that arrives. So a put cannot write outside of registered memory.
 *
 * struct shunt_transport_reg begins with a struct transport_region, and struct
 * shunt_transport_remote with a struct transport_far.
 */
#ifndef TRANSPORT_REGIONS_H
#define TRANSPORT_REGIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/transport.h>

#include "transports/common/remotes.h"

/* Memory of this rank. */
struct transport_region {
    struct shunt_transport_memory memory;
    /* slot + 1 (upper half), and a number that differs each time (lower
     * half) */
    uint64_t id;
    /* the registration is one reference, and so is each put under way to or
     * from this memory */
    int refs;
    /* true: brief memory that was deregistered, and belongs to the caller
     * again */
    bool withdrawn;
};

/* Memory of a peer. */
struct transport_far {
    struct transport_link link;
    uint64_t region;
    uint64_t bytes;
};

/* All registrations of a context. */
struct transport_regions {
    struct transport_region **slot;
    size_t count; /* slots */
    uint32_t last;
};

/* The key that is sent to the peers. */
struct transport_key {
    char magic[8]; /* names the transport */
    uint64_t region;
    uint64_t bytes;
};

/* Add a region whose memory is set, with one reference. False: memory ran
 * out. */
bool transport_region_add(struct transport_regions *all,
                          struct transport_region *region);
/* Remove a region from the list, as dereg() does. The caller must still drop
 * the registration's reference. */
void transport_region_remove(struct transport_regions *all,
                             struct transport_region *region);
/* Returns the region of this id, or NULL. */
static inline struct transport_region *
transport_region_find(const struct transport_regions *all, uint64_t id)
{
    uint64_t slot = (id >> 32) - 1;
    struct transport_region *region =
        slot < all->count ? all->slot[slot] : NULL;

    return region && region->id == id ? region : NULL;
}

/* Write the key of a region. */
void transport_region_key(const struct transport_region *region,
                          const char magic[8], struct transport_key *key);
/* Read a key that a peer sent. False: the key is malformed. */
bool transport_far_read(struct transport_far *far, const char magic[8],
                        const void *key, size_t len);

/* Are these bytes inside the region? */
static inline bool transport_region_has(const struct transport_region *region,
                                        uint64_t offset, uint64_t bytes)
{
    return bytes <= region->memory.bytes &&
           offset <= region->memory.bytes - bytes;
}

/* Are these bytes inside the peer's memory? */
static inline bool transport_far_has(const struct transport_far *far,
                                     uint64_t offset, uint64_t bytes)
{
    return bytes <= far->bytes && offset <= far->bytes - bytes;
}

/* Set a signal word of the region, after its payload. */
static inline void
transport_region_signal(const struct transport_region *region, uint64_t offset,
                        uint64_t value)
{
    unsigned char *word = (unsigned char *)region->memory.addr + offset;

    __atomic_store_n((uint64_t *)(void *)word, value, __ATOMIC_RELEASE);
}

#endif
