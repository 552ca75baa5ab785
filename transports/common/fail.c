// SPDX-License-Identifier: Apache-2.0
/* The error text of a transport's context; see fail.h. */
#include "transports/common/fail.h"

#include <stdarg.h>
#include <stdio.h>

enum shunt_status transport_fail(struct transport_text *error,
                                 enum shunt_status status, const char *format,
                                 ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    return status;
}

enum shunt_status transport_fail_gone(struct transport_text *error, int peer,
                                      bool left, const char *reason)
{
    const bool says_why = !left && reason;

    return transport_fail(error, SHUNT_ERR_PEER, "rank %d %s%s%s", peer,
                          left ? "has left" : "is lost", says_why ? ": " : "",
                          says_why ? reason : "");
}

enum shunt_status transport_fail_outside(struct transport_text *error, int peer)
{
    return transport_fail(error, SHUNT_ERR_INVALID,
                          "put outside the memory of rank %d", peer);
}

enum shunt_status transport_fail_refused(struct transport_text *error, int peer,
                                         enum shunt_status status)
{
    return transport_fail(error, status,
                          "rank %d refused a put: its memory there is not, or "
                          "no more, registered",
                          peer);
}
