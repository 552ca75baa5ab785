// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of a run.
 *
 * On one host, the gate is a page of shared memory (a memfd). Rank 0 makes it
 * and the others open it through /proc, so that no file is left behind. Between
 * hosts, each rank sends a byte to rank 0 and gets one back, over plain
 * sockets. If neither is possible, as between containers of one host, the gate
 * is a small all-gather.
 */
#include "perf/ranks/group.h"

#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <shunt/coll.h>

#include "perf/base/perf.h"
#include "perf/ranks/net.h"

#define GATE_BYTES 4096
#define GATE_TIMEOUT_US 300e6 /* us until a missing rank counts as stuck */

struct perf_gate {
    uint64_t nonce; /* identifies the page of this run */
    /* The number of ranks that have arrived. The last one starts the next
     * round, which releases the others: its release store pairs with their
     * acquire load. */
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_uint round;
    _Alignas(64) atomic_uint line; /* returned by perf_gate_line() */
};

/* --- the gate ------------------------------------------------------------- */

/* The gate's address, as sent by rank 0. */
struct gate_address {
    int64_t pid;
    int64_t fd;
    uint64_t nonce;
};

static struct perf_gate *map_gate(int fd)
{
    void *p = mmap(NULL, GATE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

static int make_gate(struct perf_group *g, struct gate_address *address)
{
    int fd = memfd_create("shunt-perf-gate", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    if (ftruncate(fd, GATE_BYTES) == 0)
        g->gate = map_gate(fd);
    if (g->gate) {
        g->gate->nonce = (uint64_t)getpid() << 32 ^ (uint64_t)perf_now_us();
        *address = (struct gate_address){getpid(), fd, g->gate->nonce};
    }
    return fd;
}

static void join_gate(struct perf_group *g, const struct gate_address *address)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%lld/fd/%lld", (long long)address->pid,
             (long long)address->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    struct perf_gate *gate = map_gate(fd);
    close(fd);
    /* On another host the same path may be another file. */
    if (gate && gate->nonce == address->nonce)
        g->gate = gate;
    else if (gate)
        munmap(gate, GATE_BYTES);
}

static void open_gate(struct perf_group *g)
{
    struct gate_address mine = {0};
    struct gate_address *all = perf_alloc((size_t)g->ranks * sizeof(*all));
    int fd = -1;

    if (g->rank == 0)
        fd = make_gate(g, &mine);
    perf_allgather(g, &mine, all, sizeof(mine));
    if (g->rank != 0 && all[0].nonce)
        join_gate(g, &all[0]);
    free(all);
    /* Either all ranks use the page, or none does. This exchange also keeps the
     * memfd open until all have opened it. */
    bool everywhere = perf_max(g, g->gate ? 0 : 1) == 0;
    if (fd >= 0)
        close(fd);
    if (!everywhere && g->gate) {
        munmap(g->gate, GATE_BYTES);
        g->gate = NULL;
    }
}

void perf_gate_wait(const struct perf_group *g)
{
    struct perf_gate *gate = g->gate;

    if (g->net) {
        perf_net_gate(g->net);
        return;
    }
    if (!gate) {
        perf_max(g, 0);
        return;
    }
    unsigned round = atomic_load_explicit(&gate->round, memory_order_relaxed);
    int before =
        atomic_fetch_add_explicit(&gate->arrived, 1, memory_order_acq_rel);
    if (before == g->ranks - 1) {
        atomic_store_explicit(&gate->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&gate->round, round + 1, memory_order_release);
        return;
    }
    /* With a processor for each rank, spinning delays no other rank. Otherwise
     * the waiting rank yields at once. */
    int spins = g->crowded ? 50 : 20000;
    double give_up = 0;
    while (atomic_load_explicit(&gate->round, memory_order_acquire) == round) {
        if (spins > 0) {
            spins--;
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();
#endif
            continue;
        }
        sched_yield();
        double now = perf_now_us();
        if (give_up == 0)
            give_up = now + GATE_TIMEOUT_US;
        if (now > give_up)
            perf_die(PERF_EXIT_FAILED,
                     "waited %.0f s for the other ranks; is one gone?",
                     GATE_TIMEOUT_US * 1e-6);
    }
}

atomic_uint *perf_gate_line(const struct perf_group *g)
{
    return g->gate ? &g->gate->line : NULL;
}

const char *perf_gate_name(const struct perf_group *g)
{
    if (g->net)
        return "a byte to rank 0 and back by TCP";
    return g->gate ? "a counter in shared memory"
                   : "an all-gather (no shared memory)";
}

/* --- agreement ------------------------------------------------------------ */

void perf_allgather(const struct perf_group *g, const void *mine, void *all,
                    size_t bytes)
{
    if (g->mpi) {
        g->mpi->allgather(mine, all, bytes);
    } else if (g->comm) {
        if (shunt_allgather(g->comm, mine, all, bytes, SHUNT_U8) != SHUNT_OK)
            perf_die(PERF_EXIT_FAILED, "allgather: %s",
                     shunt_last_error(g->comm));
    } else {
        memcpy(all, mine, bytes);
    }
}

double perf_max(const struct perf_group *g, double value)
{
    double *all = perf_alloc((size_t)g->ranks * sizeof(*all)), max = value;
    perf_allgather(g, &value, all, sizeof(value));
    for (int r = 0; r < g->ranks; r++)
        max = all[r] > max ? all[r] : max;
    free(all);
    return max;
}

double perf_sum(const struct perf_group *g, double value)
{
    double *all = perf_alloc((size_t)g->ranks * sizeof(*all)), sum = 0;
    perf_allgather(g, &value, all, sizeof(value));
    for (int r = 0; r < g->ranks; r++)
        sum += all[r];
    free(all);
    return sum;
}

/* --- processors ----------------------------------------------------------- */

/* Returns whether the user set the libraries to yield. Then there are more
 * ranks than processors, even if the host seems to have enough: containers
 * share them. */
static bool is_set_to_yield(void)
{
    const char *spin = getenv("SHUNT_SPIN");
    const char *yield = getenv("OMPI_MCA_mpi_yield_when_idle");

    return (spin && strcmp(spin, "0") == 0) ||
           (yield && strcmp(yield, "1") == 0);
}

/* Find the processors of the job on this host: those of all its ranks
 * together, because the launcher may have bound each rank already. */
static void find_processors(struct perf_group *g)
{
    cpu_set_t mine;
    cpu_set_t *all = perf_alloc((size_t)g->ranks * sizeof(*all));

    if (sched_getaffinity(0, sizeof(mine), &mine) != 0)
        CPU_ZERO(&mine);
    perf_allgather(g, &mine, all, sizeof(mine));
    CPU_ZERO(&g->cpus);
    for (int r = 0; r < g->ranks; r++)
        if (g->hosts.of[r] == g->hosts.mine)
            CPU_OR(&g->cpus, &g->cpus, &all[r]);
    g->processors = CPU_COUNT(&g->cpus);
    free(all);
    bool crowded = g->hosts.size[g->hosts.mine] > g->processors;
    g->crowded = perf_max(g, crowded || is_set_to_yield()) > 0;
}

int perf_pin(const struct perf_group *g, bool force, const char **why)
{
    if (!force && g->hosts.n > 1) {
        *why = "between hosts the launcher binds; or --pin";
        return -1;
    }
    if (!g->processors || (g->crowded && !force)) {
        *why = "more ranks than cores";
        return -1;
    }
    int before = g->hosts.local % g->processors;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        cpu_set_t one;

        if (!CPU_ISSET(cpu, &g->cpus) || before-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof(one), &one) == 0)
            return cpu;
        break;
    }
    *why = "the system does not allow it";
    return -1;
}

/* --- opening and closing -------------------------------------------------- */

/* Returns the number of ranks from the environment; 0: not set. */
static int launched_ranks(void)
{
    static const char *const names[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE",
                                        "PMI_SIZE"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *value = getenv(names[i]);
        if (value)
            return atoi(value);
    }
    return 0;
}

static void open_by_mpi(struct perf_group *g, bool without_shunt)
{
    const char *wrong = g->mpi->open(&g->rank, &g->ranks);
    if (wrong)
        perf_die(PERF_EXIT_FAILED, "%s", wrong);
    if (g->ranks == 1 && launched_ranks() > 1)
        perf_die(PERF_EXIT_USAGE,
                 "%d ranks were started, but not by this MPI's mpirun, which "
                 "--peer mpi needs; use mpirun, or shunt-perf's own --ranks",
                 launched_ranks());
    if (without_shunt)
        return;
    wrong = g->mpi->create_comm(&g->comm);
    if (wrong)
        perf_die(PERF_EXIT_FAILED, "no communicator: %s", wrong);
}

void perf_group_open(struct perf_group *g, const struct perf_module *module,
                     bool without_shunt, const char *interface)
{
    *g = (struct perf_group){.ranks = 1};
    if (module) {
        g->mpi = module->world;
        open_by_mpi(g, without_shunt);
    } else if (!without_shunt) {
        if (shunt_comm_create_env(NULL, &g->comm) != SHUNT_OK)
            perf_die(PERF_EXIT_FAILED, "no communicator: %s",
                     shunt_last_error(NULL));
        g->rank = shunt_comm_rank(g->comm);
        g->ranks = shunt_comm_size(g->comm);
    } else if (launched_ranks() > 1) {
        perf_die(PERF_EXIT_USAGE, "--only-peer with several ranks needs MPI");
    }
    perf_hosts_find(g, &g->hosts);
    g->node_of = perf_alloc((size_t)g->ranks * sizeof(int));
    for (int r = 0; r < g->ranks; r++)
        g->node_of[r] = g->comm ? shunt_comm_node(g->comm, r) : 0;
    find_processors(g);
    if (g->hosts.n > 1)
        g->net = perf_net_open(g, interface);
    else
        open_gate(g);
}

struct perf_places perf_group_places(const struct perf_group *g)
{
    if (g->hosts.n > 1)
        return (struct perf_places){g->hosts.n, g->hosts.of};
    return (struct perf_places){g->comm ? shunt_comm_nodes(g->comm) : 1,
                                g->node_of};
}

void perf_group_close(struct perf_group *g)
{
    if (g->gate)
        munmap(g->gate, GATE_BYTES);
    perf_net_close(g->net);
    perf_hosts_finish(&g->hosts);
    free(g->node_of);
    if (g->comm && shunt_comm_finish(g->comm) != SHUNT_OK)
        perf_die(PERF_EXIT_FAILED, "finish: %s", shunt_last_error(g->comm));
    shunt_comm_destroy(g->comm);
    if (g->mpi)
        g->mpi->close();
    *g = (struct perf_group){0};
}
