// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * The version of these headers. The build reads it from here, so that this is
 * the only place to change.
 */
#ifndef SHUNT_VERSION_H
#define SHUNT_VERSION_H

/** Major version: raised when programs must be changed. */
#define SHUNT_VERSION_MAJOR 0
/** Minor version: raised when something is added. */
#define SHUNT_VERSION_MINOR 1
/** Patch version: raised when something is repaired. */
#define SHUNT_VERSION_PATCH 0

/** The same as text, "major.minor.patch". */
#define SHUNT_VERSION "0.1.0"

#endif
