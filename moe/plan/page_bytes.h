// SPDX-License-Identifier: Apache-2.0
/* The page size of windows. Windows are memory of a memfd, so their pages have
 * the kernel's usual size. If the kernel uses larger pages for a window, a part
 * of such a page can still be released. */
#ifndef SHUNTI_PAGE_BYTES_H
#define SHUNTI_PAGE_BYTES_H

#include <stddef.h>

/* Round `bytes` up to whole pages. Areas whose offsets are whole pages share no
 * page. */
size_t shunti_in_pages(size_t bytes);

#endif
