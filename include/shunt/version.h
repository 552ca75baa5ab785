// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * The version of these headers, and that of the library at run time. The
 * build reads the version from this file.
 */
#ifndef SHUNT_VERSION_H
#define SHUNT_VERSION_H

#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Major version: raised by incompatible changes. */
#define SHUNT_VERSION_MAJOR 0
/** Minor version: raised by additions. */
#define SHUNT_VERSION_MINOR 1
/** Patch version: raised by fixes. */
#define SHUNT_VERSION_PATCH 0

/** The version as text, "major.minor.patch". */
#define SHUNT_VERSION "0.1.0"

/** The version as one number, which is larger in a later version. */
#define SHUNT_VERSION_NUMBER                                   \
    (SHUNT_VERSION_MAJOR * 10000 + SHUNT_VERSION_MINOR * 100 + \
     SHUNT_VERSION_PATCH)

/**
 * Return the version of the library at run time, as SHUNT_VERSION_NUMBER. If
 * the program's headers are later, the library may lack functions that the
 * program needs. Until 1.0, different minor versions are incompatible.
 *
 * Needs no communicator; thread safe; never fails.
 */
SHUNT_API int shunt_version(void);

/** Return shunt_version() as text, "major.minor.patch". Never NULL. Static
 * storage. */
SHUNT_API const char *shunt_version_text(void);

#ifdef __cplusplus
}
#endif

#endif
