// SPDX-License-Identifier: Apache-2.0
/* Loads and chooses transports, good and bad ones (plugin_sample.c). */

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/error.h"
#include "src/plugin/plugin.h"
#include "src/plugin/plugin_files.h"

static void use_samples(void)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/tests/src", getenv("SHUNT_TEST_BUILD"));
    setenv("SHUNT_PLUGIN_PATH", path, 1);
    unsetenv("SHUNT_TRANSPORTS");
}

TestSuite(plugin, .timeout = 30, .init = use_samples);

static void expect_refused(const char *name, const char *part)
{
    char why[512] = "";

    cr_assert_null(shunti_transport_find(name, why, sizeof(why)));
    cr_assert(strstr(why, part), "%s: '%s' should say '%s'", name, why, part);
}

static void ignore(void *arg, const struct shunti_env_mistake *m)
{
    (void)arg;
    (void)m;
}

Test(plugin, bad_ones)
{
    expect_refused("nosymbol", "does not export shunt_transport_v2");
    expect_refused("oldabi", "version 1 of the transport interface");
    expect_refused("newabi", "version 4711 of the transport interface");
    expect_refused("newabi", "rebuild it");
    expect_refused("misnamed", "calls itself 'someone'");
    expect_refused("partial", "lacks the operation 'flush'");
    expect_refused("thief", "declares the variable 'SHUNT_TIMEOUT'");
    expect_refused("nowhere", "no shunt_nowhere.so in");
    expect_refused("../../etc/passwd", "cannot be the name");
    expect_refused("", "cannot be the name");
}

/* Copy engines are refused for the same reasons as transports. */
Test(plugin, bad_engines)
{
    static const struct {
        const char *name, *part;
    } rows[] = {
        {"e_old", "version 1 of the engine interface"},
        {"e_new", "version 4711 of the engine interface"},
        {"e_misnamed", "calls itself 'someone'"},
        {"e_partial", "lacks an operation"},
        {"e_thief", "declares the variable 'SHUNT_TIMEOUT'"},
        {"good", "is a transport, not a copy engine"},
    };
    char why[512];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cr_expect_null(shunti_engine_find(rows[i].name, why, sizeof(why)));
        cr_expect(strstr(why, rows[i].part), "%s: '%s'", rows[i].name, why);
    }
    cr_assert(shunti_engine_find("e_good", why, sizeof(why)), "%s", why);
    expect_refused("e_good", "is a copy engine, not a transport");
}

static bool is_far(const char *path, const char *text, int *score)
{
    FILE *f = fopen(path, "w");

    cr_assert(f);
    fputs(text, f);
    fclose(f);
    return shunti_plugin_file_is_far(path, score);
}

/* A plugin that was built with -g3 also contains the text of the macros. */
Test(plugin, the_mark_of_a_far_one)
{
    static const char text[] =
        "#define MARK \"" SHUNT_TRANSPORT_FAR_MARK "\"\n";
    char path[] = "/tmp/shunt-test-plugin-XXXXXX", both[256];
    int fd = mkstemp(path), score = 4711;

    cr_assert(fd >= 0);
    close(fd);
    cr_assert(!is_far(path, "", &score));
    cr_assert(!is_far(path, SHUNT_TRANSPORT_FAR_MARK, &score));
    cr_assert(!is_far(path, text, &score));
    cr_assert_eq(score, 4711);
    snprintf(both, sizeof(both), "%s" SHUNT_TRANSPORT_FAR_MARK "-12", text);
    cr_assert(is_far(path, both, &score));
    cr_assert_eq(score, -12);
    cr_assert(is_far(path, both, NULL));
    unlink(path);
}

Test(plugin, a_file_that_is_no_object)
{
    char folder[] = "/tmp/shunt-test-plugin-XXXXXX", path[64];
    FILE *f;

    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/shunt_garbage.so", folder);
    f = fopen(path, "w");
    fputs("not an ELF file at all, but long enough to be looked at as one; "
          "dlopen has to say so",
          f);
    fclose(f);
    setenv("SHUNT_PLUGIN_PATH", folder, 1);
    expect_refused("garbage", "could not be loaded");
    unlink(path);
    rmdir(folder);
}

Test(plugin, a_good_one_is_loaded_once)
{
    char why[512];
    const struct shunt_transport *t =
        shunti_transport_find("good", why, sizeof(why));

    cr_assert(t, "%s", why);
    cr_assert_str_eq(t->name, "good");
    cr_assert_eq(shunti_transport_find("good", why, sizeof(why)), t);
    cr_assert_eq(shunti_transport_host()->find("good"), t);
    cr_assert_null(shunti_transport_host()->find("nosymbol"));
    cr_assert_null(shunti_transport_host()->env("HOME"));
    cr_assert(strstr(shunti_transport_host()->remedy(EMFILE), "ulimit -n"));
    cr_assert_str_eq(shunti_transport_host()->remedy(0), "");
}

/* A plugin has only the operations that it must have. The loader fills in the
 * others, also for plugins that wrap it. */
Test(plugin, a_bare_one_gets_defaults)
{
    char why[512] = "?";
    const struct shunt_transport *t =
        shunti_transport_find("bare", why, sizeof(why));
    struct shunt_transport_estimate estimate = {1, 1};
    struct shunt_transport_get get = {.bytes = 8};

    cr_assert(t, "%s", why);
    cr_assert_eq(shunti_transport_host()->find("bare"), t);
    cr_expect_eq(t->probe(shunti_transport_host(), &estimate, why, sizeof(why)),
                 SHUNT_OK);
    cr_expect_str_eq(why, "");
    cr_expect(estimate.latency == 0 && estimate.bandwidth == 0);
    cr_expect_eq(t->caps(NULL), 0);
    cr_expect_null(t->map(NULL, NULL));
    cr_expect_eq(t->get(NULL, &get), SHUNT_ERR_UNSUPPORTED);
    cr_expect_eq(t->let_go(NULL, true), SHUNT_OK);
    t->disarm(NULL);
    cr_expect(!t->busy(NULL));
    cr_expect_eq(t->counters(NULL, NULL, 0), 0);
}

/* A plugin keeps the operations that it has. */
Test(plugin, a_full_one_keeps_its_own)
{
    char why[512] = "?";
    const struct shunt_transport *t =
        shunti_transport_find("good", why, sizeof(why));
    struct shunt_transport_estimate estimate = {0};

    cr_assert(t, "%s", why);
    cr_expect_eq(t->probe(shunti_transport_host(), &estimate, why, sizeof(why)),
                 SHUNT_OK);
    cr_expect_str_eq(why, "does nothing");
    cr_expect(estimate.bandwidth == 1e9);
}

/* A plugin's variable is in the table once the plugin is loaded, and no other
 * plugin's variable is. To check a variable with such a name, the library loads
 * the plugin if its file exists. */
Test(plugin, knobs)
{
    const struct shunt_transport_host *host = shunti_transport_host();
    char why[512];

    setenv("SHUNT_GOOD_TASTE", "sweet", 1);
    setenv("SHUNT_GOOFY_TASTE", "sour", 1);
    cr_assert_null(host->env("SHUNT_GOOD_TASTE"));
    cr_assert_eq(shunti_env_mistakes(ignore, NULL), 1);
    /* the plugin has no such variable */
    setenv("SHUNT_GOOD_TASTES", "none", 1);
    cr_assert_eq(shunti_env_mistakes(ignore, NULL), 2);
    unsetenv("SHUNT_GOOD_TASTES");
    cr_assert(shunti_transport_find("good", why, sizeof(why)), "%s", why);
    cr_assert_str_eq(host->env("SHUNT_GOOD_TASTE"), "sweet");
    cr_assert_str_eq(shunti_env_row_of("SHUNT_GOOD_TASTE")->fallback, "plain");
    cr_assert_null(host->env("SHUNT_GOOFY_TASTE"));
    cr_assert_eq(shunti_env_mistakes(ignore, NULL), 1);
}

/* The names of the candidates of `spec`, with their options, separated by
 * spaces. */
static const char *chosen(const char *spec)
{
    static struct shunti_candidates c;
    static char text[256];
    enum shunt_status st = shunti_transport_candidates(spec, &c);

    text[0] = '\0';
    cr_assert_eq(st, SHUNT_OK, "%s: %s", spec, shunt_last_error(NULL));
    for (size_t i = 0; i < c.count; i++) {
        strcat(text, i ? " " : "");
        strcat(text, c.item[i].name);
        strcat(text, c.item[i].options[0] ? "+" : "");
        strcat(text, c.item[i].options);
    }
    return text;
}

static void expect_error(const char *spec, enum shunt_status status,
                         const char *part)
{
    static struct shunti_candidates c;

    cr_assert_eq(shunti_transport_candidates(spec, &c), status, "%s", spec);
    cr_assert(strstr(shunt_last_error(NULL), part), "%s: '%s' should say '%s'",
              spec, shunt_last_error(NULL), part);
}

Test(plugin, lists)
{
    cr_assert_str_eq(chosen("good"), "good");
    cr_assert_str_eq(chosen("good,better"), "good better");
    cr_assert_str_eq(chosen(" better , good,"), "better good");
    cr_assert_str_eq(chosen("shy+good"), "shy+good");
    cr_assert_str_eq(chosen("shy+good+a=1,good"), "shy+good+a=1 good");
}

Test(plugin, all_but_some)
{
    const char *all;

    /* The default list is sorted by score. It lacks transports that do not
     * work, are broken, or must be named. */
    all = chosen(NULL);
    cr_assert(strstr(all, "better good"), "%s", all);
    cr_assert(!strstr(all, "shy") && !strstr(all, "unusable"), "%s", all);
    cr_assert_str_eq(chosen(""), all);
    all = chosen("^better");
    cr_assert(strstr(all, "good") && !strstr(all, "better"), "%s", all);
}

Test(plugin, mistakes)
{
    expect_error("nope", SHUNT_ERR_INVALID, "there are: ");
    expect_error("nope", SHUNT_ERR_INVALID, "better");
    expect_error("^nope", SHUNT_ERR_INVALID, "'nope'");
    expect_error("good,^better", SHUNT_ERR_INVALID, "after one ^");
    expect_error("^", SHUNT_ERR_INVALID, "after one ^");
    expect_error("+good", SHUNT_ERR_INVALID, "'+good'");
    expect_error("unusable", SHUNT_ERR_UNSUPPORTED, "no such hardware");
    expect_error("partial", SHUNT_ERR_INVALID, "lacks the operation");
}

Test(plugin, the_list_says_why)
{
    size_t count, seen = 0;
    struct shunti_transport_entry *list = shunti_transport_list(&count);

    for (size_t i = 0; i < count; i++) {
        if (!strcmp(list[i].name, "unusable")) {
            cr_assert(list[i].transport && !list[i].usable);
            cr_assert_str_eq(list[i].why, "no such hardware");
            seen++;
        } else if (!strcmp(list[i].name, "oldabi")) {
            cr_assert(!list[i].transport && strstr(list[i].why, "rebuild"));
            seen++;
        } else if (!strcmp(list[i].name, "good") ||
                   !strcmp(list[i].name, "bare")) {
            cr_assert(list[i].usable);
            seen++;
        }
    }
    cr_assert_eq(seen, 4);
    shunti_transport_list_destroy(list, count);
}
