// SPDX-License-Identifier: Apache-2.0
/* Creates matrix products; errors name the options. */
#include "train/layers/products.h"

#include "train/base/error.h"

int products_create(const char *backend, enum shunti_gemm_compute compute,
                    struct shunti_gemm **gemm)
{
    switch (shunti_gemm_create(backend, compute, train_out_of_memory, gemm)) {
    case SHUNT_OK:
        return 0;
    case SHUNT_ERR_UNSUPPORTED:
        return train_error("matrix products by \"%s\" do not work on this "
                           "CPU; leave --gemm out",
                           backend);
    case SHUNT_ERR_INVALID:
        return train_error("no matrix products by \"%s\" in this build; leave "
                           "--gemm out, or take \"%s\"",
                           backend, shunti_gemm_default());
    default:
        return train_error("out of memory");
    }
}
