// SPDX-License-Identifier: Apache-2.0
/* The last error of each thread. Ranks can be threads, hence _Thread_local. */
#include "train/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local char text[1024];

int train_error(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return -1;
}

const char *train_error_text(void)
{
    return text;
}

void train_out_of_memory(void)
{
    fputs("shunt-train: out of memory in the middle of a step\n", stderr);
    abort();
}
