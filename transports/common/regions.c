// SPDX-License-Identifier: Apache-2.0
/* The registrations of a transport; see regions.h. */
#include "transports/common/regions.h"

#include <stdlib.h>
#include <string.h>

static bool find_slot(struct transport_regions *all, size_t *slot)
{
    struct transport_region **grown;
    size_t i, n;

    for (i = 0; i < all->count; i++) {
        if (!all->slot[i]) {
            *slot = i;
            return true;
        }
    }
    n = all->count ? 2 * all->count : 8;
    grown = realloc(all->slot, n * sizeof(*grown));
    if (!grown)
        return false;
    memset(grown + all->count, 0, (n - all->count) * sizeof(*grown));
    *slot = all->count;
    all->slot = grown;
    all->count = n;
    return true;
}

bool transport_region_add(struct transport_regions *all,
                          struct transport_region *region)
{
    size_t slot;

    if (!find_slot(all, &slot))
        return false;
    region->refs = 1;
    region->withdrawn = false;
    region->id = ((uint64_t)slot + 1) << 32 | ++all->last;
    all->slot[slot] = region;
    return true;
}

void transport_region_remove(struct transport_regions *all,
                             struct transport_region *region)
{
    all->slot[(region->id >> 32) - 1] = NULL;
    region->withdrawn = region->memory.brief;
}

void transport_region_key(const struct transport_region *region,
                          const char magic[8], struct transport_key *key)
{
    memcpy(key->magic, magic, sizeof(key->magic));
    key->region = region->id;
    key->bytes = region->memory.bytes;
}

bool transport_far_read(struct transport_far *far, const char magic[8],
                        const void *key, size_t len)
{
    struct transport_key k;

    if (len != sizeof(k))
        return false;
    memcpy(&k, key, sizeof(k));
    if (memcmp(k.magic, magic, sizeof(k.magic)))
        return false;
    far->region = k.region;
    far->bytes = k.bytes;
    return true;
}
