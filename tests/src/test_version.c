// SPDX-License-Identifier: Apache-2.0
/* The version at run time, of the shared library. */

#include <criterion/criterion.h>
#include <stdio.h>

#include <shunt/version.h>

TestSuite(version, .timeout = 30);

Test(version, is_that_of_the_headers)
{
    cr_assert_eq(shunt_version(), SHUNT_VERSION_NUMBER);
    cr_assert_str_eq(shunt_version_text(), SHUNT_VERSION);
}

Test(version, number_and_text_agree)
{
    int major, minor, patch, end = 0;

    cr_assert_eq(sscanf(shunt_version_text(), "%d.%d.%d%n", &major, &minor,
                        &patch, &end),
                 3);
    cr_assert_eq(shunt_version_text()[end], '\0');
    cr_assert_eq(shunt_version(), major * 10000 + minor * 100 + patch);
    cr_assert_eq(major, SHUNT_VERSION_MAJOR);
    cr_assert_eq(minor, SHUNT_VERSION_MINOR);
    cr_assert_eq(patch, SHUNT_VERSION_PATCH);
}
