// SPDX-License-Identifier: Apache-2.0
/* Programs that have closed their descriptors 0 to 2; the ranks run
 * rank_stdio.c. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "tests/harness/harness.h"

TestSuite(stdio, .timeout = 240);

#define RANKS 3

static void closed(const char *a, const char *b)
{
    static const char *const cases[] = {"closed_before", "closed_after"};

    for (int i = 0; i < 2; i++)
        harness_check(&(struct harness_job){
            .program = "rank_stdio",
            .args = {cases[i]},
            .ranks = RANKS,
            .env = {a, b, "SHUNT_LOG=info"},
            .timeout_s = 60,
        });
}

Test(stdio, shm)
{
    closed("SHUNT_TRANSPORTS=shm", NULL);
}

Test(stdio, tcp)
{
    closed("SHUNT_TRANSPORTS=tcp", NULL);
}

Test(stdio, shm_and_tcp_on_two_nodes)
{
    closed("SHUNT_TEST_NODES=0,0,1", "SHUNT_TRANSPORTS=shm,tcp");
}

Test(stdio, fault)
{
    closed("SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap,delay=50");
}

/* The descriptors are closed only before init, because a descriptor that is
 * closed later may become a socket of UCX (comm.h). */
Test(stdio, ucx)
{
    if (!getenv("SHUNT_TEST_UCX"))
        cr_skip_test("no UCX");
    harness_check(&(struct harness_job){
        .program = "rank_stdio",
        .args = {"closed_before"},
        .ranks = RANKS,
        .env = {"SHUNT_TRANSPORTS=ucx", "SHUNT_LOG=info"},
        .timeout_s = 60,
    });
}

Test(stdio, engine)
{
    closed("SHUNT_ENGINE=dma", "SHUNT_DMA=on");
}

Test(stdio, progress_thread)
{
    closed("SHUNT_PROGRESS=thread", "SHUNT_TRANSPORTS=tcp");
}

/* The shell closes all three descriptors, so that they are closed when the
 * library is loaded. The program's messages go to descriptor 9. */
static void from_a_shell(const char *name, const char *argument)
{
    char program[512], file[128];
    const char *folder = getenv("SHUNT_TEST_BIN");

    snprintf(program, sizeof(program), "%s/rank_stdio", folder ? folder : ".");
    snprintf(file, sizeof(file), "/tmp/shunt-stdio-%d", (int)getpid());
    unlink(file);
    harness_check(&(struct harness_job){
        .program = "/bin/sh",
        .args = {"-c", "exec \"$0\" \"$@\" 9>&2 0<&- 1>&- 2>&-", program, name,
                 argument ? file : NULL},
        .ranks = RANKS,
        .env = {"SHUNT_LOG=debug"},
    });
    unlink(file);
}

Test(stdio, a_file_in_place_of_stderr)
{
    from_a_shell("file_in_place_of_stderr", "a file");
}
