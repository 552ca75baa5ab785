// SPDX-License-Identifier: Apache-2.0
/* Turns one descriptor into copies of the driver. */
#ifndef CUDA_ROWS_H
#define CUDA_ROWS_H

#include <stddef.h>

struct cuda_driver;
struct shunt_engine_copy;

/* Progress of one descriptor. */
struct cuda_issue {
    const struct cuda_driver *driver;
    void *stream;
    size_t max_pitch;
    size_t issued;    /* calls that the driver accepted */
    const char *call; /* name of the last call */
};

/* Issue copies of all rows on the stream, in the current context. Returns a
 * CUresult. If it is not 0, `issue` tells which call returned it and how many
 * calls before it were accepted. */
int cuda_issue_rows(struct cuda_issue *issue,
                    const struct shunt_engine_copy *copy);

#endif
