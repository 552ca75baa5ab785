// SPDX-License-Identifier: Apache-2.0
/* Pages as a NIC sees them; see pages.c. */
#ifndef VERBS_PAGES_H
#define VERBS_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NIC_PAGES_MOST 4096 /* most bytes of one call */

struct nic_pages;

/* Pin the pages that are mapped there now. Returns NULL if that is not
 * possible; errno says why. */
struct nic_pages *nic_pages_pin(void *addr, size_t bytes);
void nic_pages_unpin(struct nic_pages *pages);
/* Write up to NIC_PAGES_MOST bytes to the pages that were mapped at
 * `address`. */
void nic_pages_write(struct nic_pages *pages, uint64_t address,
                     const void *data, size_t n);
/* Does `address` still have the pages that it had at registration? */
bool nic_pages_are(struct nic_pages *pages, uint64_t address, size_t n);

#endif
