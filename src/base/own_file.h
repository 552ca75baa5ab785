// SPDX-License-Identifier: Apache-2.0
/*
 * The file that a piece of code was loaded from: a program or a library. What
 * belongs to it, such as plugins, is found from there.
 *
 * dladdr() gives argv[0] for a program, and for a library the name by which it was
 * loaded. Either may be relative, and argv[0] may be any text. So the file would
 * depend on the current folder, and so would the code that is loaded from beside
 * it.
 */
#ifndef SHUNTI_OWN_FILE_H
#define SHUNTI_OWN_FILE_H

#include <limits.h>
#include <stdbool.h>

/* The absolute path, without symbolic links, of the file that has the code at
 * `code`. It does not depend on the current folder. False: it cannot be found
 * out. */
bool shunti_own_file(const void *code, char path[PATH_MAX]);

#endif
