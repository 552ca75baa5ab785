// SPDX-License-Identifier: Apache-2.0

#include "tests/harness/together.h"

#include <stdio.h>
#include <string.h>

static void print_line(struct tap *tap, const char *name, const char *setting,
                       const char *story)
{
    printf("%sok %d - %s, %s\n", story ? "not " : "", ++tap->number, name,
           setting);
    tap->failed += story != NULL;
    while (story && *story) {
        size_t length = strcspn(story, "\n");

        printf("# %.*s\n", (int)length, story);
        story += length + (story[length] == '\n');
    }
    fflush(stdout);
}

void tap_line(struct tap *tap, const char *name, const char *setting,
              struct harness *ended)
{
    print_line(tap, name, setting,
               harness_ok(ended) ? NULL : harness_story(ended));
}

/* Has every rank passed case n of its list? */
static bool all_passed(struct harness *h, int ranks, int n)
{
    char line[32];

    snprintf(line, sizeof(line), "passed %d", n);
    for (int r = 0; r < ranks; r++)
        if (!harness_await(h, r, line))
            return false;
    return true;
}

/* Run cases from `first` on in one world, up to the first case that fails. The
 * line of the last case is printed after the world has ended. Returns the index
 * behind the last case that ran. */
static int run_world(struct tap *tap, const struct together *t, int first)
{
    const double case_s = t->job.timeout_s > 0 ? t->job.timeout_s : 60;
    struct harness_job job = t->job;
    struct harness *h;
    int at = first;
    int n = 0;
    bool ok = true;

    job.args[n++] = "--together";
    for (int i = first; i < t->count; i++) {
        if (i > first)
            job.args[n++] = "+";
        job.args[n++] = t->cases[i];
    }
    job.timeout_s = case_s;
    h = harness_start(&job);
    while (at < t->count && ok) {
        ok = all_passed(h, job.ranks, at - first);
        if (ok && at == t->count - 1)
            ok = harness_wait(h);
        print_line(tap, t->cases[at], t->setting, ok ? NULL : harness_story(h));
        harness_allow(h, case_s);
        at++;
    }
    harness_finish(h);
    return at;
}

void together_run(struct tap *tap, const struct together *t)
{
    for (int at = 0; at < t->count;)
        at = run_world(tap, t, at);
}

int tap_end(const struct tap *tap)
{
    printf("1..%d\n", tap->number);
    return tap->failed > 0 || tap->number == 0;
}
