// SPDX-License-Identifier: Apache-2.0
/* One descriptor as copies of the driver. */
#ifndef CUDA_ROWS_H
#define CUDA_ROWS_H

#include <stddef.h>

struct cuda_driver;
struct shunt_engine_copy;

/* How far it got. */
struct cuda_issue {
    const struct cuda_driver *driver;
    void *stream;
    size_t max_pitch;
    size_t issued;    /* calls that the driver has taken */
    const char *call; /* the last one */
};

/* Have the stream copy all rows. A CUresult; not 0: `issue` says which call
 * returned it, and how many before it were taken. The context is current. */
int cuda_issue_rows(struct cuda_issue *issue,
                    const struct shunt_engine_copy *copy);

#endif
