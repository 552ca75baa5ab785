// SPDX-License-Identifier: Apache-2.0
/*
 * The mistakes in the SHUNT_ variables that are set: names that are not in the
 * table, and values that are not valid.
 */
#include "src/base/env.h"

#include <ctype.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "src/base/distance.h"
#include "src/base/log.h"
#include "src/plugin/plugin.h"

#define PREFIX "SHUNT_"

/* Variables of Shunt's scripts and tests, which the library does not read. */
static const char *const others[] = {
    "SHUNT_HOSTS",
    "SHUNT_PERF",
    "SHUNT_PERF_RANKS",
    "SHUNT_PERF_BIRTH",
    "SHUNT_PERF_BIRTHS_FILE",
    "SHUNT_RUN",
    "SHUNT_SCALING",
};

#define TESTS "SHUNT_TEST_" /* the prefix of variables of the tests */

static bool is_other(const char *name)
{
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        if (!strcmp(others[i], name))
            return true;
    return !strncmp(name, TESTS, strlen(TESTS));
}

static const char *nearest(const char *name)
{
    const char *best = NULL;
    unsigned least_far = UINT_MAX;
    const struct shunti_env_row *row;

    for (size_t i = 0; (row = shunti_env_row_at(i)); i++) {
        unsigned far = shunti_distance(name, row->name);

        if (far < least_far) {
            least_far = far;
            best = row->name;
        }
    }
    return best;
}

/* Is `name` a variable of this plugin? A plugin that reaches other hosts is not
 * loaded for the answer: any name with its prefix counts as its own. */
static bool is_of(const char *plugin, const char *name)
{
    char why[256];

    if (!shunti_transport_is_there(plugin))
        return false;
    if (shunti_transport_is_far(plugin))
        return true;
    if (!shunti_transport_find(plugin, why, sizeof(why)))
        (void)shunti_engine_find(plugin, why, sizeof(why));
    return shunti_env_row_of(name) != NULL;
}

/* Is `name` SHUNT_<PLUGIN> or SHUNT_<PLUGIN>_..., of a plugin that exists? The
 * plugin's name may contain a '_'. */
static bool is_plugins(const char *name)
{
    char plugin[SHUNTI_TRANSPORT_NAME_MAX] = "";
    const char *rest = name + strlen(PREFIX);

    for (size_t n = 0; n + 1 < sizeof(plugin) && rest[n]; n++) {
        plugin[n] = (char)tolower((unsigned char)rest[n]);
        plugin[n + 1] = '\0';
        if ((!rest[n + 1] || rest[n + 1] == '_') && is_of(plugin, name))
            return true;
    }
    return false;
}

size_t shunti_env_mistakes(shunti_env_take *take, void *arg)
{
    size_t count = 0;

    if (getauxval(AT_SECURE)) /* setuid: no variable is read */
        return 0;
    for (char **e = environ; e && *e; e++) {
        struct shunti_env_mistake m = {0};
        char name[256];
        size_t length = strcspn(*e, "=");

        if (strncmp(*e, PREFIX, strlen(PREFIX)) || length >= sizeof(name))
            continue;
        memcpy(name, *e, length);
        name[length] = '\0';
        m.name = name;
        m.value = (*e)[length] ? *e + length + 1 : "";
        m.row = shunti_env_row_of(name);
        if (m.row ? !*m.value || shunti_env_valid(m.row, m.value)
                  : is_other(name) || is_plugins(name))
            continue;
        if (m.row && m.row->secret)
            m.value = "...";
        if (!m.row)
            m.nearest = nearest(name);
        take(arg, &m);
        count++;
    }
    return count;
}

static void warn(void *arg, const struct shunti_env_mistake *m)
{
    (void)arg;
    if (m->row)
        shunti_warn("env", "%s='%s' is not valid: it takes %s; using %s",
                    m->name, m->value, shunti_env_takes(m->row),
                    m->row->fallback ? m->row->fallback : "none");
    else
        shunti_warn("env",
                    "%s is set, but Shunt has no such variable; the nearest "
                    "name is %s (shunt-info --env explains them all)",
                    m->name, m->nearest);
}

void shunti_env_report(void)
{
    static atomic_flag reported = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set_explicit(&reported, memory_order_relaxed))
        shunti_env_mistakes(warn, NULL);
}
