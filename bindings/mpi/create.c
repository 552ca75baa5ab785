// SPDX-License-Identifier: Apache-2.0
/*
 * How the ranks of an MPI communicator make their Shunt communicator.
 *
 * The number of hosts and SHUNT_MPI decide which calls are served. A single
 * rank has neither for sure: launchers do not forward SHUNT_MPI to other hosts
 * by default. So at the first call of any kind, the ranks agree on both. The
 * agreement costs one small MPI_Allreduce(), and between hosts an
 * MPI_Allgather() as well, but no socket and no thread. At the first call that
 * is to be served, either all ranks make the Shunt communicator, or none does.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "bindings/mpi/dropin.h"
#include "src/base/fnv.h"
#include "transports/common/descriptor.h"

/* Timeout of the init of a Shunt communicator, once all ranks have started
 * it. */
#define INIT_SECONDS 60.0
/* A progress call of MPI that finds no work takes less time than this: measured
 * 0.5 us, or 2.3 us if it yields the CPU. A call that finds a piece of a
 * message takes twice this limit. */
#define MPI_IDLE_NS 4000

/* --- agreeing ------------------------------------------------------------- */

/* Values of each rank. The ranks agree on the minimum of each value. */
enum {
    SAY_WELL,     /* 0: this rank has no memory for the state */
    SAY_FILES,    /* 0: this rank has no file descriptors to spare */
    SAY_MODE,     /* enum shunti_mpi_mode */
    SAY_NO_STATS, /* 0: SHUNT_MPI_STATS is set */
    SAY_ANY_WAY,  /* 0: SHUNT_TRANSPORTS is set */
    SAY_HOST,     /* hash of the host's name */
    SAY_NOT_HOST, /* complement of SAY_HOST. If the two minima are complements,
                   * all ranks are on one host */
    SAYS
};

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return text ? shunti_fnv(hash, text, strlen(text)) : hash;
}

static uint64_t hash_host(void)
{
    char name[MPI_MAX_PROCESSOR_NAME + 1] = "";
    int length;

    PMPI_Get_processor_name(name, &length);
    return hash_text(hash_text(SHUNTI_FNV, name), getenv("SHUNT_NODE"));
}

/* True if at most half of the process's file descriptors are in use. A Shunt
 * communicator needs about three for each rank. */
static bool files_to_spare(void)
{
    struct rlimit limit;
    int next = shunti_fd_lift(eventfd(0, EFD_CLOEXEC));

    if (next < 0)
        return false;
    close(next);
    return !getrlimit(RLIMIT_NOFILE, &limit) &&
           (rlim_t)next < limit.rlim_cur / 2;
}

static int compare_hashes(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Count the hosts that the ranks are on. Collective. */
static bool count_hosts(MPI_Comm comm, const struct shunti_mpi_comm *state,
                        uint64_t ours, int *hosts)
{
    uint64_t *all =
        (uint64_t *)(void *)state->numbers; /* room for 4 for each rank */

    _Static_assert(sizeof(*state->numbers) == sizeof(*all), "64 bits");
    if (PMPI_Allgather(&ours, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, comm) !=
        MPI_SUCCESS)
        return false;
    qsort(all, (size_t)state->size, sizeof(*all), compare_hashes);
    *hosts = 1;
    for (int r = 1; r < state->size; r++)
        *hosts += all[r] != all[r - 1];
    return true;
}

bool shunti_mpi_agree(MPI_Comm comm, struct shunti_mpi_comm *state)
{
    uint64_t mine[SAYS], least[SAYS] = {0};
    bool one_host;
    int same = MPI_UNEQUAL, hosts = 1;

    mine[SAY_WELL] = state != NULL;
    mine[SAY_FILES] = files_to_spare();
    mine[SAY_MODE] = shunti_mpi_mode();
    mine[SAY_NO_STATS] = !shunti_mpi_stats_wanted();
    mine[SAY_ANY_WAY] = !getenv("SHUNT_TRANSPORTS");
    mine[SAY_HOST] = hash_host();
    mine[SAY_NOT_HOST] = ~mine[SAY_HOST];
    if (PMPI_Allreduce(mine, least, SAYS, MPI_UINT64_T, MPI_MIN, comm) !=
        MPI_SUCCESS)
        return false;
    PMPI_Comm_compare(comm, MPI_COMM_WORLD, &same);
    if (same != MPI_UNEQUAL)
        shunti_mpi_stats_agreed(!least[SAY_NO_STATS]);
    if (!least[SAY_WELL])
        return false;
    state->mode = (enum shunti_mpi_mode)least[SAY_MODE];
    one_host = least[SAY_HOST] == ~least[SAY_NOT_HOST];
    state->shm_first = one_host && least[SAY_ANY_WAY];
    if (!one_host && !count_hosts(comm, state, mine[SAY_HOST], &hosts))
        return false;
    shunti_mpi_ask_table(state, hosts);
    if (!least[SAY_FILES] && !state->never) {
        shunti_mpi_stats_why("half of the files that a process may open are "
                             "open (ulimit -n)");
        shunti_mpi_serve_none(state, SHUNTI_MPI_NO_COMM);
    }
    return true;
}

/* --- making the Shunt communicator ---------------------------------------- */

/* Returns the CPU time of this thread. The time of day would include other
 * threads, because Open MPI may yield the CPU. */
static uint64_t busy_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int tag_never, probed;
static pthread_once_t probe_chosen = PTHREAD_ONCE_INIT;

static void choose_probe(void)
{
    int *tag_ub, found = 0;

    PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &found);
    tag_never = found ? *tag_ub : 32767;
    /* With Open MPI, probe for messages from this rank, because MPI_ANY_SOURCE
     * would make it search all ranks. With MPICH, a probe for messages from
     * this rank makes no progress, so use MPI_ANY_SOURCE. */
#ifdef OPEN_MPI
    PMPI_Comm_rank(MPI_COMM_WORLD, &probed);
#else
    probed = MPI_ANY_SOURCE;
#endif
}

/*
 * Let MPI make progress while a call waits in Shunt. Other ranks may wait for
 * messages that this rank has started to send. No message has the tag that is
 * probed for. MPI does not report whether it made progress, but if it did, the
 * probe takes longer. Returns whether MPI made progress.
 */
static int let_mpi_progress(void *arg)
{
    const uint64_t before = busy_ns();
    int found;

    (void)arg;
    PMPI_Iprobe(probed, tag_never, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
    return busy_ns() - before > MPI_IDLE_NS;
}

static struct shunt_comm_config config_of_ours(void)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;

    config.name = "mpi";
    pthread_once(&probe_chosen, choose_probe);
    config.idle = let_mpi_progress;
    /* MPI waits without a limit, so Shunt does, too, unless the user sets
     * one. */
    if (!getenv("SHUNT_TIMEOUT")) {
        config.timeout = INIT_SECONDS;
        config.call_timeout = -1;
    }
    return config;
}

/* The reason why this rank could not make the communicator; empty if it
 * could. */
struct reason {
    char text[256];
};

/* No communicator could be made: record the reason of the lowest rank that has
 * one. Collective over `comm`. */
static void log_reason(MPI_Comm comm, const struct shunti_mpi_comm *state,
                       struct reason *reason)
{
    int mine = reason->text[0] ? state->rank : state->size, first = 0;

    if (PMPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm) ==
            MPI_SUCCESS &&
        first < state->size &&
        PMPI_Bcast(reason->text, (int)sizeof(reason->text), MPI_CHAR, first,
                   comm) == MPI_SUCCESS)
        shunti_mpi_stats_why(reason->text);
}

/* Rank 0 makes an id and broadcasts it. */
static enum shunt_status share_id(MPI_Comm comm, int rank, struct shunt_id *id)
{
    struct {
        int status;
        struct shunt_id id;
    } made;

    memset(&made, 0, sizeof(made));
    if (rank == 0)
        made.status = shunt_id_create(&made.id);
    if (PMPI_Bcast(&made, (int)sizeof(made), MPI_BYTE, 0, comm) != MPI_SUCCESS)
        return SHUNT_ERR_SYSTEM;
    *id = made.id;
    return (enum shunt_status)made.status;
}

/*
 * Make the communicator. Collective; returns true if every rank has made it.
 * `transports` as in struct shunt_comm_config.
 *
 * A barrier on the new communicator shows whether all ranks have made it. A
 * rank that failed has left, so the barrier fails on all other ranks.
 */
static bool try_to_make(MPI_Comm comm, struct shunti_mpi_comm *state,
                        const char *transports, struct reason *reason)
{
    struct shunt_comm_config config = config_of_ours();
    struct shunt_id id;
    enum shunt_status st = share_id(comm, state->rank, &id);

    config.transports = transports;
    if (!st)
        st = shunt_comm_create(&id, state->size, state->rank, &config,
                               &state->shunt);
    if (!st)
        st = shunt_barrier(state->shunt);
    if (!st)
        return true;
    snprintf(reason->text, sizeof(reason->text), "%.255s",
             shunt_last_error(state->shunt));
    shunt_comm_destroy(state->shunt);
    state->shunt = NULL;
    return false;
}

/* On one host only shared memory is tried first: opening a network takes time
 * and a dozen file descriptors. */
SHUNTI_MPI_NOINLINE void shunti_mpi_create(MPI_Comm comm,
                                           struct shunti_mpi_comm *state)
{
    struct reason reason = {""};

    /* MPI allows ranks to make this call minutes apart. With this barrier, the
     * timeout of the init starts when all ranks have made the call. */
    PMPI_Barrier(comm);
    if ((state->shm_first && try_to_make(comm, state, "shm", &reason)) ||
        try_to_make(comm, state, NULL, &reason)) {
        shunti_mpi_ask_table(state, shunt_comm_nodes(state->shunt));
        return;
    }
    log_reason(comm, state, &reason);
    shunti_mpi_serve_none(state, SHUNTI_MPI_NO_COMM);
}
