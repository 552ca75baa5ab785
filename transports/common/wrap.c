// SPDX-License-Identifier: Apache-2.0
/* Opening the transport inside a wrapper; see wrap.h. */
#include "transports/common/wrap.h"

#include <stdio.h>
#include <string.h>

enum shunt_status
transport_wrap_open(const struct shunt_transport_params *params,
                    const struct shunt_transport **transport,
                    struct shunt_transport_ctx **ctx, char *why, size_t why_len)
{
    struct shunt_transport_params inner = *params;
    char name[32];
    size_t n = strcspn(params->options, "+");

    *ctx = NULL;
    if (n == 0 || n >= sizeof(name)) {
        snprintf(why, why_len, "name the transport to wrap, after a '+'");
        return SHUNT_ERR_UNSUPPORTED;
    }
    memcpy(name, params->options, n);
    name[n] = 0;
    *transport = params->host->find ? params->host->find(name) : NULL;
    if (!*transport) {
        snprintf(why, why_len, "there is no transport %s to wrap", name);
        return SHUNT_ERR_UNSUPPORTED;
    }
    inner.options = params->options[n] ? params->options + n + 1 : "";
    return (*transport)->open(&inner, ctx, why, why_len);
}
