// SPDX-License-Identifier: Apache-2.0
/* Creates the matrix products that the options ask for. */
#ifndef TRAIN_PRODUCTS_H
#define TRAIN_PRODUCTS_H

#include "src/kernels/gemm/gemm.h"

/* backend: as in shunti_gemm_create(). Returns 0, or -1 with
 * train_error_text(). A product that runs out of memory ends the program. */
int products_create(const char *backend, enum shunti_gemm_compute compute,
                    struct shunti_gemm **gemm);

#endif
