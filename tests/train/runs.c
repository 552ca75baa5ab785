// SPDX-License-Identifier: Apache-2.0
#include "tests/train/runs.h"

#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char folder[64], program[512], text1[512], text2[512];

static const char *environment(const char *name)
{
    const char *value = getenv(name);

    cr_assert(value, "%s is not set: run this through meson test", name);
    return value;
}

static void set_up(void)
{
    const char *source = environment("SHUNT_TEST_SOURCE");

    strcpy(folder, "/tmp/shunt-run-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(program, sizeof(program), "%s/train/shunt-train",
             environment("SHUNT_TEST_BUILD"));
    /* Files that do not change while tests run, of more than 20 kB. */
    snprintf(text1, sizeof(text1), "%s/LICENSE", source);
    snprintf(text2, sizeof(text2), "%s/train/model/model.c", source);
}

static void tear_down(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(train_run, .init = set_up, .fini = tear_down, .timeout = 120);

char *in_folder(const char *name)
{
    static char paths[8][128];
    static int next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

struct harness_job job(int ranks, const char *const *more)
{
    struct harness_job j = {
        .program = program,
        .args = {"--layers=2", "--dim=32", "--heads=2", "--seq=32",
                 "--experts=6", "--expert-hidden=24", "--shared-expert=16",
                 "--batch=8", "--eval-bytes=1024", "--sample=5",
                 "--print-every=1", text1, text2},
        .ranks = ranks,
        .timeout_s = 60,
    };
    int n = 0;

    while (j.args[n])
        n++;
    for (; *more; more++)
        j.args[n++] = *more;
    return j;
}

void run(struct harness_job j)
{
    harness_check(&j);
}

bool contains(const char *text, const char *what)
{
    return text && strstr(text, what);
}

char *read_all(const char *path)
{
    FILE *f = fopen(path, "r");
    char *text = calloc(1, 1 << 20);

    cr_assert(f, "no %s", path);
    cr_assert_gt(fread(text, 1, (1 << 20) - 1, f), 0u);
    fclose(f);
    return text;
}

size_t losses(const char *path, double *loss, double *val, size_t most)
{
    FILE *f = fopen(path, "r");
    char line[2048];
    size_t n = 0;

    cr_assert(f, "no %s", path);
    while (fgets(line, sizeof(line), f)) {
        cJSON *json = cJSON_Parse(line);
        cr_assert(json, "no JSON: %s", line);
        cr_assert_lt(n, most);
        cr_assert_eq(cJSON_GetObjectItem(json, "step")->valuedouble,
                     (double)n + 1);
        const cJSON *v = cJSON_GetObjectItem(json, "val_blocks");
        loss[n] = cJSON_GetObjectItem(json, "loss")->valuedouble;
        val[n] = v ? v->valuedouble : 0;
        n++;
        cJSON_Delete(json);
    }
    fclose(f);
    return n;
}

void same_losses(const char *a, const char *b, size_t steps)
{
    enum { MOST = 256 };
    double la[MOST], lb[MOST], va[MOST], vb[MOST];
    size_t n = losses(a, la, va, MOST);

    cr_assert_eq(n, steps, "%zu steps in %s", n, a);
    cr_assert_eq(losses(b, lb, vb, MOST), n);
    for (size_t i = 0; i < n; i++)
        cr_assert(la[i] == lb[i] && va[i] == vb[i],
                  "step %zu: %.17g in %s, "
                  "%.17g in %s",
                  i + 1, la[i], a, lb[i], b);
    cr_assert_neq(va[n - 1], 0, "no validation at the end");
    cr_assert_lt(la[n - 1], la[0], "nothing was learnt");
}
