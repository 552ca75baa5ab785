// SPDX-License-Identifier: Apache-2.0
/* Can the NICs of the stand-in pin pages on this machine? The exit status is 0
 * if they can. Otherwise the program prints why not: the kernel may have no
 * io_uring, or may not let this user pin so much memory. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/verbs/pages.h"

#define BYTES ((size_t)64 << 20)

int main(void)
{
    void *addr = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct nic_pages *pages;

    if (addr == MAP_FAILED)
        return 1;
    pages = nic_pages_pin(addr, BYTES);
    if (!pages)
        printf("no pages can be pinned by io_uring: %s\n", strerror(errno));
    nic_pages_unpin(pages);
    return !pages;
}
