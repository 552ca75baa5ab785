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
