// SPDX-License-Identifier: Apache-2.0
/* What birth leaves behind in a process; rank_birth.c looks. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "harness.h"

TestSuite(birth, .timeout = 60);

#define PROGRAM "rank_birth"

static bool have_ucx(void)
{
    char path[512];
    const char *folder = getenv("SHUNT_PLUGIN_PATH");

    snprintf(path, sizeof(path), "%s/shunt_ucx.so", folder ? folder : ".");
    return access(path, R_OK) == 0;
}

Test(birth, on_one_host_nothing_listens)
{
    harness_check(&(struct harness_job){
        .program = PROGRAM, .args = {"ports", "nothing"}, .ranks = 3});
}

/* Virtual nodes talk through UCX, which has no need to be reached by others. */
Test(birth, on_one_host_ucx_listens_on_loopback)
{
    if (!have_ucx())
        cr_skip_test("no UCX");
    harness_check(&(struct harness_job){.program = PROGRAM,
                                        .args = {"ports", "loopback"},
                                        .env = {"SHUNT_TRANSPORTS=ucx"},
                                        .ranks = 3});
}

Test(birth, on_one_host_ucx_is_not_loaded)
{
    harness_check(&(struct harness_job){
        .program = PROGRAM, .args = {"not_loaded", "libucp"}, .ranks = 2});
    harness_check(&(struct harness_job){
        .program = PROGRAM, .args = {"not_loaded", "shunt_ucx"}, .ranks = 2});
}

Test(birth, signal_handlers_stay)
{
    harness_check(&(struct harness_job){
        .program = PROGRAM, .args = {"handlers", "shm"}, .ranks = 2});
    if (have_ucx())
        harness_check(&(struct harness_job){.program = PROGRAM,
                                            .args = {"handlers", "ucx"},
                                            .env = {"SHUNT_TRANSPORTS=ucx"},
                                            .ranks = 2});
}
