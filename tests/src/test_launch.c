// SPDX-License-Identifier: Apache-2.0
/* Tests of launchers' variables, and of the places of ranks. */

#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/boot/hostlist.h"
#include "src/boot/id.h"
#include "src/boot/launch.h"
#include "src/host/cgroup.h"
#include "src/host/topology.h"

/* Clears the environment, and sets `variables`. */
static void with(const char *const *variables)
{
    extern char **environ;
    char *keep_path = getenv("PATH");

    keep_path = keep_path ? strdup(keep_path) : NULL;
    clearenv();
    if (keep_path)
        setenv("PATH", keep_path, 1);
    free(keep_path);
    for (; *variables; variables++) {
        char text[256], *equals;

        snprintf(text, sizeof(text), "%s", *variables);
        equals = strchr(text, '=');
        *equals = '\0';
        setenv(text, equals + 1, 1);
    }
}

#define WITH(...) with((const char *const[]){__VA_ARGS__, NULL})

static struct shunti_launch found(void)
{
    struct shunti_launch l;

    cr_assert_eq(shunti_launch_find(&l), SHUNT_OK, "%s",
                 shunt_last_error(NULL));
    return l;
}

static void where(const struct shunti_launch *l, char *text, size_t len)
{
    struct shunti_id_parts parts;

    cr_assert_eq(shunti_id_unpack(&l->id, &parts), SHUNT_OK);
    shunti_id_describe(&parts, text, len);
}

static void expect(const char *how, int rank, int nranks, const char *address)
{
    struct shunti_launch l = found();
    char text[64];

    cr_assert_str_eq(l.how, how);
    cr_assert_eq(l.rank, rank);
    cr_assert_eq(l.nranks, nranks);
    where(&l, text, sizeof(text));
    cr_assert(!strncmp(text, address, strlen(address)), "%s, not %s", text,
              address);
}

static void expect_error(enum shunt_status status, const char *part)
{
    struct shunti_launch l;

    cr_assert_eq(shunti_launch_find(&l), status);
    cr_assert(strstr(shunt_last_error(NULL), part), "'%s' should say '%s'",
              shunt_last_error(NULL), part);
}

TestSuite(launch, .timeout = 30);

Test(launch, launchers)
{
    WITH("HOME=/");
    expect("none", 0, 1, "unix:");
    WITH("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1",
         "MASTER_PORT=29500");
    expect("torchrun", 1, 4, "127.0.0.1:29501");
    WITH("RANK=1", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=4",
         "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500");
    expect("torchrun", 1, 4, "unix:");
    WITH("RANK=1", "WORLD_SIZE=4", "LOCAL_WORLD_SIZE=2",
         "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", "SHUNT_PORT=4000");
    expect("torchrun", 1, 4, "127.0.0.1:4000");
    WITH("OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=3",
         "OMPI_COMM_WORLD_LOCAL_SIZE=3", "PMIX_NAMESPACE=77");
    expect("Open MPI", 2, 3, "unix:");
    WITH("PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALNRANKS=2");
    expect("MPICH", 0, 2, "unix:");
    WITH("SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=8", "SLURM_JOB_ID=9",
         "SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES=1");
    expect("Slurm", 5, 8, "unix:");
    WITH("SLURM_PROCID=5", "SLURM_NTASKS=8", "SLURM_JOB_ID=9",
         "SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES=2",
         "SLURM_STEP_NODELIST=localhost,other[001-004]");
    expect("Slurm", 5, 8, "127.0.0.1:");
}

/* Without srun a batch script is one process, even if it asked for several
 * tasks. */
Test(launch, a_batch_script_without_srun_is_one_rank)
{
    WITH("SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=9",
         "SLURM_LOCALID=0", "SLURM_NODEID=0", "SLURM_JOB_NUM_NODES=2",
         "SLURM_JOB_NODELIST=host[1-2]", "SLURM_TASKS_PER_NODE=4(x2)");
    expect("none", 0, 1, "unix:");
    WITH("SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=9",
         "SLURM_STEP_ID=4294967291"); /* the step id of a batch script */
    expect("none", 0, 1, "unix:");
    WITH("SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=9",
         /* the step id of a shell */
         "SLURM_STEP_NUM_TASKS=8", "SLURM_STEP_ID=4294967290");
    expect("none", 0, 1, "unix:");
}

Test(launch, mpirun_in_a_batch_script_is_mpirun)
{
    WITH("SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_JOB_ID=9",
         "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
         "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_NAMESPACE=77");
    expect("Open MPI", 1, 2, "unix:");
}

Test(launch, torchrun_inside_slurm_is_torchrun)
{
    WITH("SLURM_PROCID=0", "SLURM_NTASKS=2", "RANK=3", "WORLD_SIZE=4",
         "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1");
    expect("torchrun", 3, 4, "unix:");
}

Test(launch, mistakes_are_named)
{
    WITH("RANK=one", "WORLD_SIZE=4");
    expect_error(SHUNT_ERR_INVALID, "RANK='one'");
    WITH("RANK=4", "WORLD_SIZE=4");
    expect_error(SHUNT_ERR_INVALID, "RANK='4'");
    WITH("RANK=-1", "WORLD_SIZE=4");
    expect_error(SHUNT_ERR_INVALID, "RANK='-1'");
    WITH("RANK=0", "WORLD_SIZE=99999999999999999999");
    expect_error(SHUNT_ERR_INVALID, "WORLD_SIZE='99999999999999999999'");
    WITH("RANK=0", "WORLD_SIZE=0");
    expect_error(SHUNT_ERR_INVALID, "WORLD_SIZE='0'");
    WITH("RANK=0", "HOME=/");
    expect_error(SHUNT_ERR_INVALID, "WORLD_SIZE is not");
    WITH("RANK=0", "WORLD_SIZE=2");
    expect_error(SHUNT_ERR_INVALID, "MASTER_ADDR");
    WITH("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=http");
    expect_error(SHUNT_ERR_INVALID, "MASTER_PORT='http'");
    WITH("PMI_RANK=x", "PMI_SIZE=2");
    expect_error(SHUNT_ERR_INVALID, "PMI_RANK='x'");
    WITH("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4",
         "OMPI_COMM_WORLD_LOCAL_SIZE=2");
    expect_error(SHUNT_ERR_UNSUPPORTED, "SHUNT_HOST");
}

/* Two calls of one process must find different ids, and so must two jobs. */
Test(launch, ranks_agree_call_by_call)
{
    struct shunti_launch first, second, other;

    WITH("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500",
         "LOCAL_WORLD_SIZE=2");
    first = found();
    second = found();
    cr_assert(memcmp(&first.id, &second.id, sizeof(first.id)),
              "calls must not meet one another");

    setenv("MASTER_PORT", "29600", 1); /* another job */
    other = found();
    cr_assert(memcmp(&other.id, &second.id, sizeof(first.id)));
}

/* Returns the id that the first call of a process finds with these
 * variables. */
static struct shunt_id id_with(const char *const *variables)
{
    struct shunti_launch l = {0};
    int ends[2], status;
    pid_t pid;

    cr_assert_eq(pipe(ends), 0);
    pid = fork();
    if (!pid) {
        with(variables);
        if (shunti_launch_find(&l) ||
            write(ends[1], &l.id, sizeof(l.id)) != (ssize_t)sizeof(l.id))
            _exit(1);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0);
    cr_assert_eq(read(ends[0], &l.id, sizeof(l.id)), (ssize_t)sizeof(l.id));
    close(ends[0]);
    close(ends[1]);
    return l.id;
}

#define ID(...) id_with((const char *const[]){__VA_ARGS__, NULL})

static bool same_id(struct shunt_id a, struct shunt_id b)
{
    return !memcmp(&a, &b, sizeof(a));
}

/* True if ranks with these ids connect to the same root, even if that root
 * refuses them. */
static bool same_tag(struct shunt_id a, struct shunt_id b)
{
    struct shunti_id_parts x, y;

    cr_assert_eq(shunti_id_unpack(&a, &x), SHUNT_OK);
    cr_assert_eq(shunti_id_unpack(&b, &y), SHUNT_OK);
    return !memcmp(x.tag, y.tag, sizeof(x.tag));
}

#define BY_HAND "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500"

Test(launch, all_ranks_find_the_same_id)
{
    struct shunt_id a = ID(BY_HAND, "RANK=0", "SHUNT_SECRET=swordfish");

    cr_assert(same_id(a, ID(BY_HAND, "RANK=1", "SHUNT_SECRET=swordfish")));
    cr_assert(!same_id(a, ID(BY_HAND, "RANK=1", "SHUNT_SECRET=haddock")));
    /* Both have the same tag, so they connect and get an error text. */
    cr_assert(same_tag(a, ID(BY_HAND, "RANK=1", "SHUNT_SECRET=haddock")));
    cr_assert(!same_tag(a, ID("WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                              "MASTER_PORT=29700", "RANK=1",
                              "SHUNT_SECRET=swordfish")));
}

#define STEP(rank, size)                                                  \
    "SLURM_JOB_ID=9", "SLURM_PROCID=" rank, "SLURM_STEP_NUM_TASKS=" size, \
        "SLURM_STEP_NODELIST=localhost", "SLURM_STEP_NUM_NODES=1"

/* A usual wrapper of a step sets RANK and WORLD_SIZE, but no MASTER_ADDR. */
Test(launch, steps_of_slurm_are_jobs)
{
    struct shunt_id a = ID(STEP("0", "2"), "SLURM_STEP_ID=3"),
                    w = ID(STEP("0", "2"), "SLURM_STEP_ID=3", "RANK=0",
                           "WORLD_SIZE=2"),
                    b = ID(STEP("0", "2"), "SLURM_STEP_ID=3", "RANK=0",
                           BY_HAND);

    cr_expect(same_id(a, ID(STEP("1", "2"), "SLURM_STEP_ID=3")));
    cr_expect(!same_id(a, ID(STEP("0", "2"), "SLURM_STEP_ID=4")));
    cr_expect(!same_id(
        a, ID(STEP("0", "2"), "SLURM_STEP_ID=3", "SLURM_RESTART_COUNT=1")));
    cr_expect(same_id(
        w, ID(STEP("1", "2"), "SLURM_STEP_ID=3", "RANK=1", "WORLD_SIZE=2")));
    cr_expect(!same_id(
        w, ID(STEP("0", "2"), "SLURM_STEP_ID=4", "RANK=0", "WORLD_SIZE=2")));
    cr_expect(!same_id(w, ID(STEP("0", "2"), "SLURM_STEP_ID=3", "RANK=0",
                             "WORLD_SIZE=2", "SLURM_RESTART_COUNT=1")));
    cr_expect(
        !same_id(b, ID(STEP("0", "2"), "SLURM_STEP_ID=4", "RANK=0", BY_HAND)));
}

/* torchrun starts the workers again, at the same address. This is another
 * job. */
Test(launch, a_restarted_job_is_another_one)
{
    struct shunt_id a = ID(BY_HAND, "RANK=0", "TORCHELASTIC_RUN_ID=7",
                           "TORCHELASTIC_RESTART_COUNT=0");

    cr_expect(same_id(a, ID(BY_HAND, "RANK=1", "TORCHELASTIC_RUN_ID=7",
                            "TORCHELASTIC_RESTART_COUNT=0")));
    cr_expect(!same_id(a, ID(BY_HAND, "RANK=1", "TORCHELASTIC_RUN_ID=7",
                             "TORCHELASTIC_RESTART_COUNT=1")));
}

/* Each step, or another launcher, starts a part of the ranks. */
Test(launch, a_job_may_have_several_steps)
{
    struct shunt_id hand = ID(BY_HAND, "RANK=0", STEP("0", "1"),
                              "SLURM_STEP_ID=3"),
                    run = ID(BY_HAND, "RANK=0", STEP("0", "1"),
                             "SLURM_STEP_ID=3", "TORCHELASTIC_RUN_ID=none"),
                    mpi = ID("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2",
                             "PMIX_NAMESPACE=77", "SHUNT_HOST=127.0.0.1");

    cr_expect(same_id(
        hand, ID(BY_HAND, "RANK=1", STEP("0", "1"), "SLURM_STEP_ID=4")));
    cr_expect(same_id(run, ID(BY_HAND, "RANK=1", STEP("0", "2"),
                              "SLURM_STEP_ID=4", "TORCHELASTIC_RUN_ID=none")));
    cr_expect(
        same_id(mpi, ID("OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2",
                        "PMIX_NAMESPACE=77", "SHUNT_HOST=127.0.0.1",
                        STEP("0", "1"), "SLURM_STEP_ID=0")));
}

/* srun can follow the protocol of MPICH's processes. */
Test(launch, mpich_in_a_step_is_the_step)
{
    struct shunt_id a = ID("PMI_RANK=0", "PMI_SIZE=2", "PMI_JOBID=9.3",
                           STEP("0", "2"), "SLURM_STEP_ID=3");

    cr_expect(same_id(a, ID("PMI_RANK=1", "PMI_SIZE=2", "PMI_JOBID=9.3",
                            STEP("1", "2"), "SLURM_STEP_ID=3")));
    cr_expect(!same_id(a, ID("PMI_RANK=0", "PMI_SIZE=2", "PMI_JOBID=9.3",
                             STEP("0", "2"), "SLURM_STEP_ID=4")));
}

/* Here no launcher was started inside of another one, so the library cannot
 * know which of them counts. tests/src/launchers has launchers inside of
 * others. */
Test(launch, contradictions_name_both)
{
    static const char slurm[] = "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 (Slurm)";

    WITH("RANK=0", "WORLD_SIZE=1", STEP("1", "2"), "SLURM_STEP_ID=0");
    expect_error(SHUNT_ERR_INVALID, "RANK=0 WORLD_SIZE=1 (torchrun, or set by");
    expect_error(SHUNT_ERR_INVALID, slurm);
    WITH("RANK=0", BY_HAND, STEP("1", "2"), "SLURM_STEP_ID=0");
    expect_error(SHUNT_ERR_INVALID, slurm);
    WITH("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500",
         STEP("1", "2"), "SLURM_STEP_ID=0");
    expect_error(SHUNT_ERR_INVALID, slurm);
    WITH("RANK=0", "WORLD_SIZE=1", "PMI_RANK=1", "PMI_SIZE=2");
    expect_error(SHUNT_ERR_INVALID, "PMI_RANK=1 PMI_SIZE=2 (MPICH)");
    WITH("RANK=0", "WORLD_SIZE=1", "OMPI_COMM_WORLD_RANK=1",
         "OMPI_COMM_WORLD_SIZE=2");
    expect_error(SHUNT_ERR_INVALID, "OMPI_COMM_WORLD_RANK=1");
    /* The batch script's own variables do not count as those of a step. */
    WITH("RANK=0", BY_HAND, "SLURM_PROCID=0", "SLURM_NTASKS=8");
    expect("torchrun", 0, 2, "127.0.0.1:29501");
    WITH("RANK=1", BY_HAND, STEP("1", "2"), "SLURM_STEP_ID=0");
    expect("torchrun", 1, 2, "127.0.0.1:29501");
    WITH("RANK=3", "WORLD_SIZE=4", "TORCHELASTIC_RUN_ID=none",
         "MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", STEP("1", "2"),
         "SLURM_STEP_ID=0");
    expect("torchrun", 3, 4, "127.0.0.1:29501");
    WITH("OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4",
         "OMPI_COMM_WORLD_LOCAL_SIZE=4", STEP("0", "1"), "SLURM_STEP_ID=0");
    expect("Open MPI", 3, 4, "unix:");
}

/* Slurm's list of hosts, and the host of rank 0. The hosts here are loopback
 * addresses, which need no name service. */
#define LISTS "SLURM_JOB_ID=9", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_NODES=2"

Test(launch, rank_0_by_the_lists_of_slurm)
{
    WITH(LISTS, "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_NODEID=1",
         "SLURM_STEP_NODELIST=127.0.0.[1-2]");
    expect("Slurm", 1, 2, "127.0.0.1:");
    /* Components in another order than that of the sorted list. */
    WITH(LISTS, "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_NODEID=1",
         "SLURM_STEP_NODELIST=127.0.0.[1-2]", "SLURM_HET_SIZE=2",
         "SLURM_JOB_NODELIST_HET_GROUP_0=127.0.0.2");
    expect("Slurm", 0, 2, "127.0.0.2:");
    /* A step has only the second component. */
    WITH(LISTS, "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_NODEID=1",
         "SLURM_STEP_NODELIST=127.0.0.[3-4]", "SLURM_HET_SIZE=2",
         "SLURM_JOB_NODELIST_HET_GROUP_0=127.0.0.2");
    expect("Slurm", 1, 2, "127.0.0.3:");
    /* mpirun starts its daemons on the other hosts by a step. */
    WITH(LISTS, "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4",
         "OMPI_COMM_WORLD_LOCAL_SIZE=2", "SLURM_PROCID=0",
         "SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_NODELIST=127.0.0.2",
         "SLURM_JOB_NODELIST=127.0.0.[1-2]");
    expect("Open MPI", 3, 4, "127.0.0.1:");
}

Test(launch, rank_0_on_another_host_than_slurms_first)
{
    static const char text[] = "rank 0 is not on 127.0.0.1, the first host of";

    WITH(LISTS, "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_NODEID=1",
         "SLURM_GTIDS=0", "SLURM_STEP_NODELIST=127.0.0.[1-2]");
    expect_error(SHUNT_ERR_UNSUPPORTED, text);
    expect_error(SHUNT_ERR_UNSUPPORTED, "set SHUNT_HOST");
    /* A rank on the first host notices that, too. */
    WITH(LISTS, "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_NODEID=0",
         "SLURM_GTIDS=1", "SLURM_STEP_NODELIST=127.0.0.[1-2]");
    expect_error(SHUNT_ERR_UNSUPPORTED, text);
    WITH(LISTS, "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_NODEID=1",
         "SLURM_GTIDS=0", "SLURM_STEP_NODELIST=127.0.0.[1-2]",
         "SHUNT_HOST=127.0.0.2");
    expect("Slurm", 0, 2, "127.0.0.2:");
    /* No host has the address 192.0.2.1. */
    WITH("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4",
         "OMPI_COMM_WORLD_LOCAL_SIZE=2", "SLURM_JOB_NODELIST=192.0.2.[1-2]");
    expect_error(SHUNT_ERR_UNSUPPORTED, "rank 0 is not on 192.0.2.1");
}

Test(launch, lists_of_hosts)
{
    static const struct {
        const char *list, *first, *in, *out;
    } rows[] = {
        {"a", "a", "a", "b"},
        {"a,b", "a", "b", "a,b"},
        {"node[003-005,9],x", "node003", "node004", "node4"},
        {"node[003-005,9],x", "node003", "node9", "node009"},
        {"node[003-005,9],x", "node003", "x", "node"},
        {"n[8-11]", "n8", "n10", "n12"},
        {"rack[0-1]n[0-3]b,z", "rack0n0b", "rack1n2b", "rack2n2b"},
        {"rack[0-1]n[0-3]b,z", "rack0n0b", "z", "rack1n2"},
        {"n[1-2]1", "n11", "n21", "n31"},
        {"n[1-2]", "n1", "n2", "n11111111111111111111111111111111111111111"},
        {"n[1,3],m[5-6],z", "n1", "m6", "n2"},
        {"n[1,3],m[5-6],z", "n1", "z", "m5-6"},
    };
    char host[16];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cr_expect(shunti_hostlist_first(rows[i].list, host, sizeof(host)));
        cr_expect_str_eq(host, rows[i].first);
        cr_expect(shunti_hostlist_has(rows[i].list, rows[i].first));
        cr_expect(shunti_hostlist_has(rows[i].list, rows[i].in), "%s in %s",
                  rows[i].in, rows[i].list);
        cr_expect(!shunti_hostlist_has(rows[i].list, rows[i].out), "%s in %s",
                  rows[i].out, rows[i].list);
    }
    cr_expect(!shunti_hostlist_first("", host, sizeof(host)));
    cr_expect(!shunti_hostlist_first("a[", host, sizeof(host)));
    cr_expect(!shunti_hostlist_first("a[b]", host, sizeof(host)));
    cr_expect(!shunti_hostlist_first("a_name_that_is_too_long", host, 16));
    cr_expect(!shunti_hostlist_has("a[", "a1"));
    cr_expect(!shunti_hostlist_has("a[1-", "a1"));
}

Test(launch, addresses_of_ipv6)
{
    WITH("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=[::1]", "MASTER_PORT=29500");
    expect("torchrun", 1, 4, "[::1]:29501");
    WITH("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=::1", "MASTER_PORT=29500");
    expect("torchrun", 1, 4, "[::1]:29501");
    WITH("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=fe80::1%lo",
         "MASTER_PORT=29500");
    expect("torchrun", 1, 4, "[fe80::1]:29501");
    WITH("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=[fe80::1%lo]",
         "MASTER_PORT=29500");
    expect("torchrun", 1, 4, "[fe80::1]:29501");
}

/* The parts of the id that the launcher's variables give. */
static struct shunti_id_parts place(void)
{
    struct shunti_launch l = found();
    struct shunti_id_parts parts;

    cr_assert_eq(shunti_id_unpack(&l.id, &parts), SHUNT_OK);
    return parts;
}

/* Rank 0 listens on all its addresses, because a name may resolve to other
 * addresses on other hosts. It does not if the others connect to the
 * loopback. */
Test(launch, where_rank_0_listens)
{
    static const struct {
        const char *host;
        bool everywhere;
    } rows[] = {
        {"SHUNT_HOST=127.0.0.1", false}, {"SHUNT_HOST=localhost", false},
        {"SHUNT_HOST=::1", false},       {"SHUNT_HOST=[::1]", false},
        {"SHUNT_HOST=127.0.0.2", true},  {"SHUNT_HOST=192.0.2.1", true},
        {"SHUNT_HOST=fd00::1", true},    {"SHUNT_HOST=[fd00::1]", true},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        WITH("RANK=0", "WORLD_SIZE=2", rows[i].host);
        cr_expect_eq(!!(place().flags & SHUNTI_ID_ANY), rows[i].everywhere,
                     "%s", rows[i].host);
    }
}

Test(launch, ports)
{
    int port;

    WITH("RANK=0", BY_HAND, "SHUNT_PORT=65535");
    expect("torchrun", 0, 2, "127.0.0.1:65535");
    WITH("RANK=0", BY_HAND, "SHUNT_PORT=65536");
    expect_error(SHUNT_ERR_INVALID, "SHUNT_PORT=65536 is not a TCP port");
    WITH("RANK=0", BY_HAND, "SHUNT_PORT=1");
    expect("torchrun", 0, 2, "127.0.0.1:1");
    /* torchrun's store listens on MASTER_PORT, so ranks connect to the next
     * port. */
    WITH("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
         "MASTER_PORT=65534");
    expect("torchrun", 0, 2, "127.0.0.1:65535");
    WITH("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
         "MASTER_PORT=65535");
    expect_error(SHUNT_ERR_INVALID, "MASTER_PORT='65535'");
    /* The port is below those that the kernel gives to any socket. */
    WITH("RANK=0", "WORLD_SIZE=2", "SHUNT_HOST=127.0.0.1");
    port = place().port;
    cr_expect(port >= 10000 && port < 30000, "%d", port);
}

/* SHUNT_HOST and SHUNT_PORT hold even if all ranks are on one host, and they
 * take precedence over the list of Slurm. */
Test(launch, a_place_that_was_asked_for)
{
    WITH("RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2",
         "SHUNT_HOST=127.0.0.2");
    expect("torchrun", 1, 2, "127.0.0.2:");
    WITH("PMI_RANK=0", "PMI_SIZE=2", "MPI_LOCALNRANKS=2", "SHUNT_PORT=4000");
    expect("MPICH", 0, 2, "127.0.0.1:4000");
    /* Slurm's first host is not that of rank 0, but SHUNT_HOST is set. */
    WITH("OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4",
         "OMPI_COMM_WORLD_LOCAL_SIZE=2", "SLURM_JOB_NODELIST=192.0.2.[1-2]",
         "SHUNT_HOST=127.0.0.2");
    expect("Open MPI", 0, 4, "127.0.0.2:");
    /* SHUNT_HOST is an interface here, and not the host of rank 0. */
    WITH(LISTS, "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_NODEID=1",
         "SLURM_STEP_NODELIST=127.0.0.[3-4]", "SHUNT_HOST=lo");
    expect("Slurm", 1, 2, "127.0.0.3:");
}

/* Some ranks may know that the job has a single host, and others not. They must
 * still connect to each other. */
Test(launch, a_second_place_to_meet)
{
    struct shunti_id_parts p;

    WITH("RANK=0", BY_HAND);
    cr_expect_eq(place().other, SHUNTI_ID_LOCAL);
    WITH("RANK=0", BY_HAND, "LOCAL_WORLD_SIZE=2");
    p = place();
    cr_expect_eq(p.kind, SHUNTI_ID_LOCAL);
    cr_expect_eq(p.other, SHUNTI_ID_IPV4);
    cr_expect_eq(p.port, 29501);
    cr_expect_eq(p.address[0], 127);
    cr_expect_eq(p.address[3], 1);
    /* There is no second address if a name service might be asked for it. */
    WITH("RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2",
         "MASTER_ADDR=0x7f000001", "MASTER_PORT=29500");
    cr_expect_eq(place().other, 0);
    WITH("RANK=0", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2",
         "MASTER_ADDR=localhost", "MASTER_PORT=29500");
    cr_expect_eq(place().port, 29501);
}

Test(launch, names_that_do_not_resolve)
{
    WITH("RANK=1", "WORLD_SIZE=4", "MASTER_ADDR=no-such-host.invalid",
         "MASTER_PORT=29500");
    expect_error(SHUNT_ERR_SYSTEM, "set MASTER_ADDR to an address of rank 0's");
    WITH(LISTS, "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_NODEID=1",
         "SLURM_STEP_NODELIST=no-such-host.invalid,b");
    expect_error(SHUNT_ERR_SYSTEM, "set SHUNT_HOST to an address of rank 0's");
}

/* -- places -------------------------------------------------------------------
 */

TestSuite(topology, .timeout = 30);

Test(topology, this_thread)
{
    struct shunti_place p, q;
    cpu_set_t set;
    int cpu = -1;

    shunti_place_here(&p);
    cr_assert_geq(p.first_cpu, 0);
    cr_assert_geq(p.machine_cpus, 1);
    cr_assert_gt(p.machine_memory, 0);
    cr_assert_geq(shunti_places_cpus(&p, 1), 1);

    cr_assert_eq(sched_getaffinity(0, sizeof(set), &set), 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            cpu = i;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    cr_assert_eq(sched_setaffinity(0, sizeof(set), &set), 0);
    shunti_place_here(&q);
    cr_assert_eq(q.first_cpu, cpu);
    cr_assert_eq(shunti_places_cpus(&q, 1), 1);
    cr_assert(shunti_place_same_host(&p, &q));
    q.boot++;
    cr_assert(!shunti_place_same_host(&p, &q));
}

/* Makes a system call fail, as the filters of containers do. */
static bool deny(int number)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = code};

    return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
           !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* If the call fails, hwloc would ask again forever. */
Test(topology, affinity_is_denied)
{
    struct shunti_place p;

    if (!deny(SYS_sched_getaffinity))
        cr_skip_test("no filter of system calls can be set here");
    shunti_place_here(&p);
    cr_assert_eq(p.first_cpu, -1);
    cr_assert_geq(p.machine_cpus, 1);
    cr_assert_eq(p.machine_cores, 0);
}

Test(topology, order_and_numbers)
{
    struct shunti_place p[4] = {0};

    for (int i = 0; i < 4; i++) {
        p[i].numa = i / 2;
        p[i].first_cpu = i;
        p[i].cpus[i] = 3; /* CPUs 64 i and 64 i + 1 */
    }
    cr_assert_lt(shunti_place_compare(&p[1], &p[2]), 0);
    cr_assert_gt(shunti_place_compare(&p[3], &p[2]), 0);
    cr_assert_eq(shunti_place_compare(&p[3], &p[3]), 0);
    cr_assert_eq(shunti_places_cpus(p, 4), 8);
    p[1].cpus[1] = 0;
    p[1].cpus[0] = 6; /* shares CPU 1 with place 0 */
    cr_assert_eq(shunti_places_cpus(p, 2), 3);
    p[0].quota_milli = 1500;
    cr_assert_eq(shunti_places_cpus(p, 2), 1);
}

/* Writes `text` to a file in a folder, and creates missing folders. */
static void put_file(const char *folder, const char *name, const char *text)
{
    char command[512];

    snprintf(command, sizeof(command),
             "mkdir -p $(dirname %s%s) && printf '%%s\\n' '%s' > %s%s", folder,
             name, text, folder, name);
    cr_assert_eq(system(command), 0);
}

/* Writes a file for each control group, and returns the quota that they result
 * in. */
static uint32_t quota_of(const char *const *files)
{
    char folder[] = "/tmp/shunt-cgroup-XXXXXX", command[64];
    uint32_t quota;

    cr_assert_not_null(mkdtemp(folder));
    for (; *files; files += 2)
        put_file(folder, files[0], files[1]);
    quota = shunti_cgroup_quota(folder);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
    return quota;
}

#define QUOTA(...) quota_of((const char *const[]){__VA_ARGS__, NULL})
#define SELF "/proc/self/cgroup"
#define GROUPS "/sys/fs/cgroup"

Test(topology, quotas_of_groups)
{
    cr_expect_eq(QUOTA(SELF, "0::/"), 0);
    cr_expect_eq(QUOTA(SELF, "0::/", GROUPS "/cpu.max", "150000 100000"), 1500);
    cr_expect_eq(QUOTA(SELF, "0::/", GROUPS "/cpu.max", "max 100000"), 0);
    /* The quota of a group below the visible root, and of the groups between
     * them. */
    cr_expect_eq(QUOTA(SELF, "0::/a/b", GROUPS "/a/b/cpu.max", "50000 100000"),
                 500);
    cr_expect_eq(QUOTA(SELF, "0::/a/b", GROUPS "/a/b/cpu.max", "max 100000",
                       GROUPS "/a/cpu.max", "200000 100000"),
                 2000);
    cr_expect_eq(QUOTA(SELF, "0::/a/b", GROUPS "/a/b/cpu.max", "300000 100000",
                       GROUPS "/a/cpu.max", "200000 100000",
                       GROUPS "/c/cpu.max", "1000 100000"),
                 2000);
    /* The process is in another namespace of control groups. */
    cr_expect_eq(QUOTA(SELF, "0::/../..", GROUPS "/cpu.max", "50000 100000"),
                 500);
    /* Version 1 of control groups, and both versions together. */
    cr_expect_eq(QUOTA(SELF, "4:cpu,cpuacct:/a",
                       GROUPS "/cpu/a/cpu.cfs_quota_us", "50000",
                       GROUPS "/cpu/a/cpu.cfs_period_us", "100000"),
                 500);
    cr_expect_eq(QUOTA(SELF, "4:cpuset:/a", GROUPS "/cpu/a/cpu.cfs_quota_us",
                       "50000", GROUPS "/cpu/a/cpu.cfs_period_us", "100000"),
                 0);
    cr_expect_eq(QUOTA(SELF, "4:cpu:/", GROUPS "/cpu/cpu.cfs_quota_us", "-1",
                       GROUPS "/cpu/cpu.cfs_period_us", "100000"),
                 0);
    cr_expect_eq(
        QUOTA(SELF, "0::/a", GROUPS "/unified/a/cpu.max", "50000 100000"), 500);
}

/* These places have the last CPUs that are possible, of which hwloc knows
 * nothing here. */
Test(topology, what_ranks_leave)
{
    enum { WORD = SHUNTI_CPUS_MAX / 64 - 1 };
    struct shunti_place p[3] = {0};
    uint64_t where[SHUNTI_CPUS_MAX / 64];

    shunti_place_here(&p[0]); /* reads the machine */
    for (int i = 0; i < 3; i++) {
        p[i] = (struct shunti_place){0};
        p[i].numa = p[i].cache = -1;
        p[i].cpus[WORD] = 0xff;
    }
    /* All ranks may use any of eight CPUs, so five are spare. */
    cr_assert_eq(shunti_places_spare(p, 3, 0, where), 5);
    cr_assert_eq(where[WORD], 0xff);
    /* CPUs that a rank is bound to are not spare. */
    p[0].cpus[WORD] = 1;
    p[1].cpus[WORD] = 2;
    cr_assert_eq(shunti_places_spare(p, 3, 0, where), 5);
    cr_assert_eq(where[WORD], 0xfc);
    for (int i = 0; i < WORD; i++)
        cr_assert_eq(where[i], 0);
    /* All ranks are bound, so other CPUs of this machine are spare, and none of
     * theirs. */
    p[2].cpus[WORD] = 4;
    cr_assert_eq(shunti_places_spare(p, 3, 2, where), 0);
    cr_assert_eq(where[WORD], 0);
    cr_assert_neq(where[0], 0);
    /* There are more ranks than CPUs. */
    p[1].cpus[WORD] = p[2].cpus[WORD] = 1;
    cr_assert_eq(shunti_places_spare(p, 3, 0, where), -2);
}
