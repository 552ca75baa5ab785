// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * The version of these headers, and that of the library at run time. The build
 * reads it from here, so that this is the only place to change.
 */
#ifndef SHUNT_VERSION_H
#define SHUNT_VERSION_H

#include <shunt/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Major version: raised when programs must be changed. */
#define SHUNT_VERSION_MAJOR 0
/** Minor version: raised when something is added. */
#define SHUNT_VERSION_MINOR 1
/** Patch version: raised when something is repaired. */
#define SHUNT_VERSION_PATCH 0

/** The same as text, "major.minor.patch". */
#define SHUNT_VERSION "0.1.0"

/** The same as one number, larger in a later version. */
#define SHUNT_VERSION_NUMBER                                   \
    (SHUNT_VERSION_MAJOR * 10000 + SHUNT_VERSION_MINOR * 100 + \
     SHUNT_VERSION_PATCH)

/**
 * The version of the library that the program runs with, as
 * SHUNT_VERSION_NUMBER. A program that was compiled with later headers than
 * that may meet a library without what it needs; until 1.0 another minor
 * version is another library.
 *
 * Needs no communicator. Thread safe; never fails.
 */
SHUNT_API int shunt_version(void);

/** The same as text, "major.minor.patch". Never NULL. Static storage. */
SHUNT_API const char *shunt_version_text(void);

#ifdef __cplusplus
}
#endif

#endif
