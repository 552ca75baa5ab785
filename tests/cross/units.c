// SPDX-License-Identifier: Apache-2.0
/* Runs the unit tests that were compiled with this folder's criterion.h. */
#include <criterion/criterion.h>
#include <stdarg.h>

static struct unit *first, **last = &first;

void unit_add(struct unit *unit)
{
    if (!first)
        last = &first;
    *last = unit;
    last = &unit->next;
}

void unit_fail(const char *file, int line, const char *what, const char *more,
               ...)
{
    va_list args;

    fprintf(stderr, "%s:%d: %s: ", file, line, what);
    va_start(args, more);
    vfprintf(stderr, more, args);
    va_end(args);
    fputc('\n', stderr);
    exit(EXIT_FAILURE);
}

int main(void)
{
    int n = 0;

    for (struct unit *u = first; u; u = u->next) {
        u->run();
        printf("ok %d - %s::%s\n", ++n, u->suite, u->name);
        fflush(stdout);
    }
    printf("1..%d\n", n);
    return n ? EXIT_SUCCESS : EXIT_FAILURE;
}
