// SPDX-License-Identifier: Apache-2.0
/* Short forms of the harness that fail a Criterion test. */

#include <criterion/criterion.h>

#include "tests/harness/harness.h"

void harness_check(const struct harness_job *job)
{
    struct harness *h = harness_start(job);

    if (!harness_wait(h)) {
        /* Criterion copies the text. The ranks have ended already. */
        cr_assert_fail("%s %s, %d ranks:\n%s", job->program,
                       job->args[0] ? job->args[0] : "",
                       job->threads > 0 ? job->threads : job->ranks,
                       harness_story(h));
    }
    harness_finish(h);
}

void harness_case(const char *program, const char *name, int ranks)
{
    harness_check(&(struct harness_job){
        .program = program, .args = {name}, .ranks = ranks});
}
