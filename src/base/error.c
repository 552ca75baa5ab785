// SPDX-License-Identifier: Apache-2.0
/* Status texts, and this thread's last error text; see error.h. */
#include "src/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/log.h"

static _Thread_local char thread_text[1024];

const char *shunt_strerror(enum shunt_status status)
{
    switch (status) {
    case SHUNT_OK:
        return "success";
    case SHUNT_IN_PROGRESS:
        return "not finished yet";
    case SHUNT_ERR_INVALID:
        return "invalid argument";
    case SHUNT_ERR_MISMATCH:
        return "ranks disagree";
    case SHUNT_ERR_REMOTE:
        return "the call failed on another rank";
    case SHUNT_ERR_MEMORY:
        return "out of memory";
    case SHUNT_ERR_SYSTEM:
        return "the operating system refused";
    case SHUNT_ERR_PEER:
        return "a rank is gone";
    case SHUNT_ERR_TIMEOUT:
        return "a rank did not arrive in time";
    case SHUNT_ERR_ABORTED:
        return "the communicator was aborted";
    case SHUNT_ERR_UNSUPPORTED:
        return "not supported here";
    case SHUNT_ERR_OVERFLOW:
        return "a buffer is too small";
    case SHUNT_ERR_BUSY:
        return "too many operations in flight";
    }
    return "unknown status";
}

const char *shunti_error_last(void)
{
    return thread_text[0] ? thread_text : "no error";
}

static void keep(struct shunti_error *error, const char *text)
{
    snprintf(thread_text, sizeof(thread_text), "%s", text);
    if (error)
        snprintf(error->text, sizeof(error->text), "%.*s",
                 (int)sizeof(error->text) - 1, text);
}

enum shunt_status shunti_fail(struct shunti_error *error,
                              enum shunt_status status, const char *format, ...)
{
    int saved = errno;
    char text[sizeof(thread_text)]; /* a copy, since the arguments may point
                                       into the buffer */
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);

    keep(error, text);
    shunti_debug("error", "%s: %s", shunt_strerror(status), text);
    errno = saved;
    return status;
}

void shunti_fail_again(struct shunti_error *error, const char *text)
{
    char copy[sizeof(thread_text)]; /* `text` may point into the buffer */

    snprintf(copy, sizeof(copy), "%s", text);
    keep(error, copy);
}

const char *shunti_remedy(int error)
{
    switch (error) {
    case EMFILE:
        return "; raise `ulimit -n`";
    case ENFILE:
        return "; raise fs.file-max";
    case EFBIG:
        return "; raise `ulimit -f`, which limits shared memory, too";
    case ENOMEM:
        return "; see `ulimit -v` and the memory limit of the container";
    case ENOSYS:
    case EPERM:
        return "; does a seccomp filter (of a container, a sandbox) forbid it?";
    default:
        return "";
    }
}
