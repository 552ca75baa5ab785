// SPDX-License-Identifier: Apache-2.0
/* The kernel's page size; see page_bytes.h. */
#include "moe/plan/page_bytes.h"

#include <stdatomic.h>
#include <unistd.h>

size_t shunti_in_pages(size_t bytes)
{
    static _Atomic size_t known;
    size_t page = atomic_load_explicit(&known, memory_order_relaxed);

    if (!page) {
        const long said = sysconf(_SC_PAGESIZE);

        page = said > 0 ? (size_t)said : 4096;
        atomic_store_explicit(&known, page, memory_order_relaxed);
    }
    return (bytes + page - 1) / page * page;
}
