// SPDX-License-Identifier: Apache-2.0
/* Variables whose values all ranks take from rank 0. */

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/env.h"
#include "src/base/shared_env.h"

TestSuite(shared_env, .timeout = 30);

Test(shared_env, has_valid_values_and_defaults)
{
    struct shunti_shared_env values;

    setenv("SHUNT_ALGORITHM", "flat,allreduce=direct:0-4k", 1);
    setenv("SHUNT_MOE_CHUNK", "3k", 1);
    /* a value that is not valid counts as unset */
    setenv("SHUNT_RELAY_PART", "many", 1);
    setenv("SHUNT_CARRY", "", 1); /* and so does an empty value */
    setenv("SHUNT_FUSED", "Always", 1);
    shunti_shared_env_collect(&values);
    /* Later changes in this process have no effect. */
    setenv("SHUNT_MOE_CHUNK", "5k", 1);
    unsetenv("SHUNT_ALGORITHM");
    cr_assert_str_eq(shunti_shared_string(&values, "SHUNT_ALGORITHM"),
                     "flat,allreduce=direct:0-4k");
    cr_assert_eq(shunti_shared_size(&values, "SHUNT_MOE_CHUNK"), 3 << 10);
    cr_assert_eq(shunti_shared_size(&values, "SHUNT_RELAY_PART"), 256 << 10);
    cr_assert_eq(shunti_shared_size(&values, "SHUNT_CARRY"), SHUNTI_ENV_AUTO);
    cr_assert_str_eq(shunti_shared_choice(&values, "SHUNT_FUSED"), "Always");
    /* "SHUNT_MOE_CHUNK" is no prefix of another name */
    cr_assert_eq(shunti_shared_size(&values, "SHUNT_MOE_RECORDS"),
                 SHUNTI_ENV_AUTO);
}

Test(shared_env, has_no_value_of_other_variables)
{
    struct shunti_shared_env values;

    setenv("SHUNT_SECRET", "a secret of this rank", 1);
    setenv("SHUNT_EAGER", "4k", 1);
    shunti_shared_env_collect(&values);
    cr_assert_eq(values.text[0], 0);
}

/* The values of another process may have no end, or fill the text up to its
 * last byte. */
Test(shared_env, reads_nothing_behind_the_end)
{
    struct shunti_shared_env *values = malloc(sizeof(*values));

    cr_assert(values);
    memset(values->text, 'x', sizeof(values->text));
    memcpy(values->text, "SHUNT_ALGORITHM=", 16);
    cr_assert_null(shunti_shared_string(values, "SHUNT_ALGORITHM"));
    values->text[sizeof(values->text) - 1] = 0;
    cr_assert_eq(shunti_shared_size(values, "SHUNT_MOE_CHUNK"),
                 SHUNTI_ENV_AUTO);
    free(values);
}

/* There must be room for all variables, each with its longest value. */
Test(shared_env, has_room_for_all)
{
    const struct shunti_env_row *row;
    struct shunti_shared_env values;
    char longest[2 * SHUNTI_SHARED_VALUE_MAX];

    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = 0;
    for (size_t i = 0; (row = shunti_env_row_at(i)); i++)
        if (row->from_rank_0)
            setenv(row->name,
                   row->type == SHUNTI_ENV_STRING ? longest
                   : row->type == SHUNTI_ENV_SIZE ? "18014398509481984"
                                                  : "always",
                   1);
    shunti_shared_env_collect(&values);
    cr_assert_eq(strlen(shunti_shared_string(&values, "SHUNT_ALGORITHM")),
                 SHUNTI_SHARED_VALUE_MAX);
    for (size_t i = 0; (row = shunti_env_row_at(i)); i++)
        if (row->from_rank_0 && row->type == SHUNTI_ENV_SIZE)
            cr_assert_eq(shunti_shared_size(&values, row->name),
                         (size_t)18014398509481984, "%s", row->name);
}
