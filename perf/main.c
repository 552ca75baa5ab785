// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-perf: time the operations of Shunt, check them, and compare them with
 * MPI or a plain copy in the same run. See --help and docs/performance.md.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "perf/base/perf.h"
#include "perf/collectives/coll.h"
#include "perf/collectives/experts.h"
#include "perf/collectives/fused.h"
#include "perf/copies/copy.h"
#include "perf/copies/put.h"
#include "perf/options/options.h"
#include "perf/peers/device.h"
#include "perf/peers/engine.h"
#include "perf/perf_config.h"
#include "perf/ranks/group.h"
#include "perf/ranks/launch.h"
#include "perf/ranks/net.h"
#include "perf/ranks/pair.h"
#include "perf/ranks/world.h"
#include "perf/sampling/wire.h"
#include "perf/tables/repeat_births.h"
#include "perf/tables/table.h"
#include "perf/tokens/moe.h"
#include "perf/tokens/moe_layer.h"
#include "perf/tokens/moe_parts.h"
#include "perf/tokens/moe_step.h"

static struct perf_group group = {.ranks = 1};

_Noreturn void perf_die(int status, const char *format, ...)
{
    va_list args;
    char text[1024];

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    /* All ranks find the same error in the command line: rank 0 prints it. */
    if (status != PERF_EXIT_USAGE && group.ranks > 1)
        fprintf(stderr, "shunt-perf: rank %d: %s\n", group.rank, text);
    else if (group.rank == 0)
        fprintf(stderr, "shunt-perf: %s\n", text);
    fflush(NULL);
    if (group.mpi && status != PERF_EXIT_USAGE)
        group.mpi->abort(status);
    else if (group.mpi)
        group.mpi->close();
    exit(status);
}

void *perf_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        perf_die(PERF_EXIT_FAILED, "no memory for %zu bytes", bytes);
    return p;
}

/* Find a module: in the program's folder (just built), in PERF_MODULE_DIR
 * (installed), or relative to the program (an installation that was moved). */
static bool find_module(const char *file, char *path, size_t len)
{
    const char *const folders[][2] = {
        {perf_program_folder(), ""},
        {PERF_MODULE_DIR, ""},
        {perf_program_folder(), "/../" PERF_MODULE_LIBDIR},
    };

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, len, "%s%s/%s", folders[i][0], folders[i][1], file);
        if (access(path, R_OK) == 0)
            return true;
    }
    return false;
}

/* Load a module and return its symbol, whose first member must be `abi`. If
 * there is no file, prints `without`, which says what to install. */
static const void *load(const char *peer, const char *file, const char *symbol,
                        int abi, int flags, const char *without)
{
    char path[PATH_MAX + 256];

    if (!find_module(file, path, sizeof(path)))
        perf_die(PERF_EXIT_USAGE, "--peer %s: this shunt-perf was built %s",
                 peer, without);
    void *handle = dlopen(path, RTLD_NOW | flags);
    if (!handle)
        perf_die(PERF_EXIT_FAILED, "--peer %s: %s", peer, dlerror());
    const int *module = dlsym(handle, symbol);
    if (!module || *module != abi)
        perf_die(PERF_EXIT_FAILED,
                 "--peer %s: %s is not of this shunt-perf; install it again",
                 peer, path);
    return module;
}

const struct perf_module *perf_load_mpi(void)
{
    /* RTLD_GLOBAL, because MPI loads components that need its symbols. */
    return load("mpi", "shunt-perf-mpi.so", "perf_mpi_module", PERF_MODULE_ABI,
                RTLD_GLOBAL,
                "without MPI; install Open MPI or MPICH (libopenmpi-dev, "
                "libmpich-dev) and build with -Dmpi=enabled");
}

static const struct perf_messenger *load_verbs(void)
{
    return load("verbs", "shunt-perf-verbs.so", "perf_verbs_module",
                PERF_MESSENGER_ABI, 0,
                "without libibverbs; install libibverbs-dev and build with "
                "-Drdma=enabled");
}

static const char *pin(const struct perf_options *o)
{
    static char text[128];
    const char *why = "as asked";
    int cpu = -1;

    if (o->pin != PERF_PIN_NO)
        cpu = perf_pin(&group, o->pin == PERF_PIN_YES, &why);
    double missed = perf_sum(&group, cpu < 0);
    if (missed == 0)
        snprintf(text, sizeof(text), "pinned: rank i%s to core i of %d",
                 group.hosts.n > 1 ? " of a host" : "", group.processors);
    else
        snprintf(text, sizeof(text), "not pinned (%s)", why);
    return text;
}

/* Check that all ranks have the same options: a launcher can start ranks with
 * different arguments. */
static void agree(const struct perf_options *o)
{
    uint64_t mine = perf_options_digest(o);
    uint64_t *all = perf_alloc((size_t)group.ranks * sizeof(*all));

    perf_allgather(&group, &mine, all, sizeof(mine));
    for (int r = 1; r < group.ranks; r++)
        if (all[r] != all[0])
            perf_die(PERF_EXIT_USAGE,
                     "rank %d was started with other options than rank 0", r);
    free(all);
}

/* Between hosts: measure the link, and find how its bytes are counted. */
static void look_at_link(const struct perf_options *o,
                         struct perf_settings *settings)
{
    if (!group.net) {
        if (o->link)
            perf_die(PERF_EXIT_USAGE,
                     "--peer link: all ranks are on one host, there is no "
                     "link");
        return;
    }
    settings->uncounted = perf_wire_open(&group);
    settings->link = perf_net_measure(group.net);
    perf_link_use(group.net);
}

int main(int argc, char **argv)
{
    struct perf_options options, one;
    const struct perf_module *module = NULL;
    const struct perf_engine *ours = NULL, *peer = NULL, *whole = NULL;
    const struct perf_messenger *raw = NULL;
    struct perf_settings settings = {.options = &options, .group = &group};

    perf_options_parse(&options, argc, argv);
    if (options.peer == PERF_PEER_MPI)
        module = perf_load_mpi();
    if (options.peer == PERF_PEER_VERBS)
        raw = load_verbs();
    if (options.mem == PERF_MEM_DEVICE)
        perf_device_find();
    perf_births(&options);
    perf_launch(&options, argv);
    /* For shunt_comm_create_env(), which reads this variable. */
    if (options.algorithm)
        setenv("SHUNT_ALGORITHM", options.algorithm, 1);

    if (options.mem == PERF_MEM_DEVICE) {
        setenv("SHUNT_ENGINE", "cuda", 0);
        perf_device_open();
    }

    perf_group_open(&group, module, options.only_peer, options.interface);
    if (options.ranks && options.ranks != group.ranks)
        perf_die(PERF_EXIT_USAGE, "--ranks %d, but %d were started",
                 options.ranks, group.ranks);
    agree(&options);
    settings.pinning = pin(&options);
    settings.place = perf_pair_place(&group);
    settings.pair = perf_pair_latency(&group);
    look_at_link(&options, &settings);
    if (!options.only_peer) {
        perf_shunt_use(group.comm);
        ours = &perf_engine_shunt;
    }
    if (module) {
        peer = module->engine;
        settings.peer = module->world->version;
    } else if (options.peer == PERF_PEER_MEMCPY) {
        peer = &perf_engine_memcpy;
        settings.peer =
            options.mem == PERF_MEM_DEVICE
                ? "cuMemcpyAsync of each row, within the GPU, all ranks at once"
                : "memcpy, one core for each rank, all at once";
        if (options.mem == PERF_MEM_DEVICE)
            whole = &perf_engine_whole;
    } else if (raw) {
        settings.peer =
            "libibverbs by a queue pair of this program, in turns with Shunt";
    }

    const struct perf_contest contest = {
        .options = &one,
        .group = &group,
        .link = settings.link,
        .engine = {ours, peer, options.link ? &perf_engine_link : NULL, whole},
        .raw = raw,
    };
    perf_table_open(&settings);
    for (int i = 0; i < options.nops; i++) {
        one = perf_options_of(&options, i);
        perf_table_operation(&one);
        if (one.op == PERF_MOE_LAYER)
            perf_moe_layer(&contest);
        else if (one.op == PERF_MOE_PARTS)
            perf_moe_parts(&contest);
        else if (one.op == PERF_MOE_STEP)
            perf_moe_step(&contest);
        else if (perf_op_is_moe(one.op))
            perf_moe(&contest);
        else if (perf_op_is_experts(one.op))
            perf_experts(&contest);
        else if (perf_op_is_fused(one.op))
            perf_fused(&contest);
        else if (one.op == PERF_COPY)
            perf_copy(&contest);
        else if (one.op == PERF_PUT)
            perf_put(&contest);
        else
            perf_coll(&contest);
    }
    /* All ranks return the same status, since wrong elements are summed over
     * all ranks. */
    int right = perf_table_close();
    perf_group_close(&group);
    perf_device_close();
    return right ? PERF_EXIT_OK : PERF_EXIT_WRONG;
}
