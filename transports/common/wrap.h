// SPDX-License-Identifier: Apache-2.0
/*
 * Helpers of transports that wrap another one: SHUNT_TRANSPORTS=fault+shm,
 * trace+fault+shm.
 */
#ifndef TRANSPORT_WRAP_H
#define TRANSPORT_WRAP_H

#include <stddef.h>

#include <shunt/transport.h>

/*
 * Open the transport that the options of `params` name first. For the options
 * "shm" it is shm; for "fault+shm" it is fault, which gets the options "shm".
 *
 * transport, ctx  out; after an error *ctx is NULL, and `why` has the reason.
 */
enum shunt_status
transport_wrap_open(const struct shunt_transport_params *params,
                    const struct shunt_transport **transport,
                    struct shunt_transport_ctx **ctx, char *why,
                    size_t why_len);

#endif
