// SPDX-License-Identifier: Apache-2.0
/*
 * The file that a piece of code was loaded from: a program or a library. Files
 * that belong to it, such as plugins, are searched relative to it.
 *
 * dladdr() gives argv[0] for a program, and for a library the name by which it
 * was loaded. Either may be relative, and argv[0] may be any text. So the
 * result would depend on the current folder, and so would the plugins that are
 * loaded.
 */
#ifndef SHUNTI_OWN_FILE_H
#define SHUNTI_OWN_FILE_H

#include <limits.h>
#include <stdbool.h>

/* The absolute path, without symbolic links, of the file that has the code at
 * `code`. It does not depend on the current folder. False: the file cannot be
 * determined. */
bool shunti_own_file(const void *code, char path[PATH_MAX]);

#endif
