// SPDX-License-Identifier: Apache-2.0
/* The file of a piece of code; see own_file.h. */
#include "src/base/own_file.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

/* The file that the kernel has mapped at `code`. */
static bool find_mapped(const void *code, char path[PATH_MAX])
{
    FILE *f = fopen("/proc/self/maps", "re");
    const uintptr_t at = (uintptr_t)code;
    char *line = NULL, *name;
    bool found = false;
    size_t room = 0;

    while (f && getline(&line, &room, f) > 0) {
        uintptr_t from, to;

        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR, &from, &to) != 2 ||
            at < from || at >= to)
            continue;
        line[strcspn(line, "\n")] = '\0';
        name = strchr(line, '/');
        found = name && realpath(name, path);
        break;
    }
    free(line);
    if (f)
        fclose(f);
    return found;
}

bool shunti_own_file(const void *code, char path[PATH_MAX])
{
    Dl_info info, program;
    const char *name;

    if (!dladdr(code, &info))
        return false;
    name = info.dli_fname;
    /* For the program, dladdr() gives argv[0]. */
    if (dladdr((void *)getauxval(AT_PHDR), &program) &&
        program.dli_fbase == info.dli_fbase)
        name = NULL;
    if ((!name || name[0] != '/') && find_mapped(code, path))
        return true;
    /* Used if there is no /proc. */
    if (!name)
        name = (const char *)getauxval(AT_EXECFN);
    return name && name[0] == '/' && realpath(name, path);
}
