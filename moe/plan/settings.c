// SPDX-License-Identifier: Apache-2.0
/* Settings of plans; see settings.h. */
#include "moe/plan/settings.h"

#include "src/base/env.h"

static size_t size_or(const struct shunti_shared_env *values, const char *name,
                      size_t fallback)
{
    const size_t value = shunti_shared_size(values, name);

    return value == SHUNTI_ENV_AUTO ? fallback : value;
}

static void begin(void *state, int nranks,
                  const struct shunti_shared_env *values)
{
    struct shunti_moe_settings *s = state;
    const size_t most = (size_t)1 << 28;
    /* With its header, a chunk is one segment of UCX's TCP (transports/ucx). */
    const size_t chunk = size_or(values, "SHUNT_MOE_CHUNK", 60 << 10);

    (void)nranks;
    s->chunk = chunk < 1 ? 1 : chunk > most ? most : chunk;
    /* From about this size on, two more exchanges take less time than reading
     * all records: docs/scaling.md. */
    s->records = size_or(values, "SHUNT_MOE_RECORDS", 1 << 20);
}

struct shunti_layer shunti_moe_settings_layer = {
    .name = "moe settings",
    .bytes = sizeof(struct shunti_moe_settings),
    .begin = begin,
};

__attribute__((constructor)) static void declare_layer(void)
{
    shunti_layer_declare(&shunti_moe_settings_layer);
}
