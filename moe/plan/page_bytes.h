// SPDX-License-Identifier: Apache-2.0
/* Pages of windows. They are memory of a memfd, so of the usual size: a part of a
 * larger one among them can be given back, too. */
#ifndef SHUNTI_PAGE_BYTES_H
#define SHUNTI_PAGE_BYTES_H

#include <stddef.h>

/* Bytes up to the end of their last page. Parts of a window that begin at a multiple
 * share no page. */
size_t shunti_in_pages(size_t bytes);

#endif
