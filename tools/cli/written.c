// SPDX-License-Identifier: Apache-2.0
/* Checks that what was printed has been written. */
#include "tools/cli/cli.h"

#include <errno.h>
#include <string.h>

const char *cli_lost(FILE *stream)
{
    const bool failed = ferror(stream);

    if (fflush(stream))
        return strerror(errno);
    return failed ? "an earlier write failed" : NULL;
}

bool cli_written(const char *program)
{
    const char *why = cli_lost(stdout);

    if (why)
        fprintf(stderr, "%s: cannot write to stdout: %s\n", program, why);
    return !why;
}
