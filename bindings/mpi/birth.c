// SPDX-License-Identifier: Apache-2.0
/*
 * How the ranks of an MPI communicator come to a Shunt communicator.
 *
 * At the first call of any kind they agree on what the decisions rest on and a
 * rank alone cannot know: on how many hosts they are, and SHUNT_MPI, which
 * launchers do not carry to other hosts unless told so. That costs one small
 * MPI_Allreduce(), between hosts an MPI_Allgather() as well, and neither socket
 * nor thread. At the first call that is to be served they make the Shunt
 * communicator, or none of them does.
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

/* To make a Shunt communicator when all ranks are here. */
#define BIRTH_SECONDS 60.0
/* MPI has looked around in less if there was nothing to do: measured, 0.5 us,
 * and 2.3 if it yields; a piece of a message takes twice as long. */
#define MPI_IDLE_NS 4000

/* --- agreeing ------------------------------------------------------------- */

/* What every rank says; the least of each counts. */
enum {
    SAY_WELL,     /* 0: this rank has no memory for it */
    SAY_FILES,    /* 0: nor files to spare */
    SAY_MODE,     /* enum shunti_mpi_mode */
    SAY_NO_STATS, /* 0: SHUNT_MPI_STATS */
    SAY_ANY_WAY,  /* 0: SHUNT_TRANSPORTS */
    SAY_HOST,     /* a hash of the host's name, */
    SAY_NOT_HOST, /* and its complement: equal on all ranks if the least of both
                     are complements */
    SAYS
};

static uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; text && *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_host(void)
{
    char name[MPI_MAX_PROCESSOR_NAME + 1] = "";
    int length;

    PMPI_Get_processor_name(name, &length);
    return hash_text(hash_text(0xcbf29ce484222325u, name),
                     getenv("SHUNT_NODE"));
}

/* Half of the files that the program may open are for it to open: a Shunt
 * communicator takes some three a rank. */
static bool files_to_spare(void)
{
    struct rlimit limit;
    int next = eventfd(0, EFD_CLOEXEC);

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

/* On how many hosts the ranks are; collective. */
static bool count_hosts(MPI_Comm comm, const struct shunti_mpi_comm *state,
                        uint64_t ours, int *hosts)
{
    uint64_t *all =
        (uint64_t *)(void *)state->numbers; /* has room for 4 each */

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

/* --- making the Shunt communicator ------------------------------------------ */

/* Of this thread's own time: Open MPI may give the CPU away meanwhile. */
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
    /* Open MPI looks through all ranks for any source; MPICH makes no progress
     * when a rank looks for messages of its own. */
#ifdef OPEN_MPI
    PMPI_Comm_rank(MPI_COMM_WORLD, &probed);
#else
    probed = MPI_ANY_SOURCE;
#endif
}

/*
 * While a call waits in Shunt, MPI must get on: others may wait for messages
 * that this rank has begun to send. Nobody sends with this tag. MPI does not say
 * whether it got on, but then it takes longer.
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
    /* MPI waits for as long as it takes. Who sets a timeout wants it. */
    if (!getenv("SHUNT_TIMEOUT")) {
        config.timeout = BIRTH_SECONDS;
        config.call_timeout = -1;
    }
    return config;
}

/* Why this rank cannot; empty if it can. */
struct excuse {
    char text[256];
};

/* Collective over `comm`, when none could be made: the first rank's excuse. */
static void tell_why(MPI_Comm comm, const struct shunti_mpi_comm *state,
                     struct excuse *excuse)
{
    int mine = excuse->text[0] ? state->rank : state->size, first = 0;

    if (PMPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm) ==
            MPI_SUCCESS &&
        first < state->size &&
        PMPI_Bcast(excuse->text, (int)sizeof(excuse->text), MPI_CHAR, first,
                   comm) == MPI_SUCCESS)
        shunti_mpi_stats_why(excuse->text);
}

/* Rank 0's id for all. */
static enum shunt_status share_id(MPI_Comm comm, int rank, struct shunt_id *id)
{
    struct {
        int status;
        struct shunt_id id;
    } birth;

    memset(&birth, 0, sizeof(birth));
    if (rank == 0)
        birth.status = shunt_id_create(&birth.id);
    if (PMPI_Bcast(&birth, (int)sizeof(birth), MPI_BYTE, 0, comm) !=
        MPI_SUCCESS)
        return SHUNT_ERR_SYSTEM;
    *id = birth.id;
    return (enum shunt_status)birth.status;
}

/*
 * Collective; true: every rank has it. `transports` may be NULL: any.
 *
 * Who has made one waits for the others in it. If one of them has failed after
 * all it has left, and nobody gets through.
 */
static bool try_to_make(MPI_Comm comm, struct shunti_mpi_comm *state,
                        const char *transports, struct excuse *excuse)
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
    snprintf(excuse->text, sizeof(excuse->text), "%.255s",
             shunt_last_error(state->shunt));
    shunt_comm_destroy(state->shunt);
    state->shunt = NULL;
    return false;
}

/* On one host nothing but shared memory is tried first: to open a network takes
 * time, and a dozen files. */
SHUNTI_MPI_APART void shunti_mpi_birth(MPI_Comm comm,
                                       struct shunti_mpi_comm *state)
{
    struct excuse excuse = {""};

    /* They may come minutes apart, which MPI does not mind: the time that a
     * birth has begins when all are here. */
    PMPI_Barrier(comm);
    if ((state->shm_first && try_to_make(comm, state, "shm", &excuse)) ||
        try_to_make(comm, state, NULL, &excuse)) {
        shunti_mpi_ask_table(state, shunt_comm_nodes(state->shunt));
        return;
    }
    tell_why(comm, state, &excuse);
    shunti_mpi_serve_none(state, SHUNTI_MPI_NO_COMM);
}
