// SPDX-License-Identifier: Apache-2.0
/* Variables that are taken from rank 0; see shared_env.h. */
#include "src/base/shared_env.h"

#include <assert.h>
#include <string.h>

#include "src/base/env.h"

/* Add "NAME=value" at *at, if there is room. */
static void add(struct shunti_shared_env *values, size_t *at, const char *name,
                const char *value)
{
    const size_t name_len = strlen(name);
    const size_t len = strnlen(value, SHUNTI_SHARED_VALUE_MAX);

    if (*at + name_len + len + 3 > sizeof(values->text)) {
        assert(!"there are more shared variables than room for them");
        return;
    }
    memcpy(values->text + *at, name, name_len);
    values->text[*at + name_len] = '=';
    memcpy(values->text + *at + name_len + 1, value, len);
    *at += name_len + len + 2; /* with its NUL */
}

void shunti_shared_env_collect(struct shunti_shared_env *values)
{
    const struct shunti_env_row *row;
    size_t at = 0;

    memset(values, 0, sizeof(*values));
    for (size_t i = 0; (row = shunti_env_row_at(i)); i++) {
        const char *value = row->from_rank_0 ? shunti_env_raw(row->name) : NULL;

        if (value && *value && shunti_env_valid(row, value))
            add(values, &at, row->name, value);
    }
}

/* The text of a variable among `values`, or its default. The values come from
 * another process: nothing behind their end is read. */
static const char *value_of(const struct shunti_shared_env *values,
                            const char *name, enum shunti_env_type type)
{
    const struct shunti_env_row *row = shunti_env_row_of(name);
    const char *const end = values->text + sizeof(values->text);
    const size_t len = strlen(name);

    assert(row && row->from_rank_0 && row->type == type);
    if (!row || row->type != type)
        return NULL;
    for (const char *at = values->text, *nul; at < end && *at; at = nul + 1) {
        nul = memchr(at, 0, (size_t)(end - at));
        if (!nul)
            break;
        if (!strncmp(at, name, len) && at[len] == '=')
            return at + len + 1;
    }
    return row->fallback;
}

const char *shunti_shared_string(const struct shunti_shared_env *values,
                                 const char *name)
{
    return value_of(values, name, SHUNTI_ENV_STRING);
}

const char *shunti_shared_choice(const struct shunti_shared_env *values,
                                 const char *name)
{
    return value_of(values, name, SHUNTI_ENV_CHOICE);
}

size_t shunti_shared_size(const struct shunti_shared_env *values,
                          const char *name)
{
    const char *text = value_of(values, name, SHUNTI_ENV_SIZE);
    size_t bytes;

    if (!text || !shunti_parse_size(text, &bytes))
        return SHUNTI_ENV_AUTO;
    return bytes;
}
