// SPDX-License-Identifier: Apache-2.0
/*
 * The version that this library was built as.
 */
#include <shunt/version.h>

int shunt_version(void)
{
    return SHUNT_VERSION_NUMBER;
}

const char *shunt_version_text(void)
{
    return SHUNT_VERSION;
}
