// SPDX-License-Identifier: Apache-2.0
/*
 * The version of this library, which is fixed when it is built.
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
