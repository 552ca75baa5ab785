// SPDX-License-Identifier: Apache-2.0
/* The error text of a transport's context, which error() returns. */
#ifndef TRANSPORT_FAIL_H
#define TRANSPORT_FAIL_H

#include <stdbool.h>

#include <shunt/transport.h>

struct transport_text {
    char text[512];
};

/* Returns the advice that ends an error text about `error` (an errno), from
 * shunt_transport_host.remedy(), or "". */
static inline const char *
transport_remedy(const struct shunt_transport_host *host, int error)
{
    return host->remedy ? host->remedy(error) : "";
}

/* Write the text, cut to 511 bytes, and return `status`. */
enum shunt_status transport_fail(struct transport_text *error,
                                 enum shunt_status status, const char *format,
                                 ...) __attribute__((format(printf, 3, 4)));

/* Errors of puts whose texts do not depend on the transport. */
/* SHUNT_ERR_PEER: the peer has left (`left`), or it is lost because of `reason`
 * (NULL: unknown). */
enum shunt_status transport_fail_gone(struct transport_text *error, int peer,
                                      bool left, const char *reason);
/* SHUNT_ERR_INVALID: the put is not inside of the peer's registered memory. */
enum shunt_status transport_fail_outside(struct transport_text *error,
                                         int peer);
/* `status`: the peer refused an earlier put. */
enum shunt_status transport_fail_refused(struct transport_text *error, int peer,
                                         enum shunt_status status);

#endif
