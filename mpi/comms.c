// SPDX-License-Identifier: Apache-2.0
/*
 * A Shunt communicator for each MPI communicator, made at the first call that is
 * to be served, and gone when MPI's goes.
 *
 * Ours is an attribute of MPI's. A duplicate has none and gets its own; freeing
 * calls drop(). Whatever is still there at MPI_Finalize() is in a list.
 *
 * At the first call of any kind on a communicator its ranks agree on what the
 * decisions rest on and a rank alone cannot know: whether they are on one host,
 * and SHUNT_MPI, which launchers do not carry to other hosts unless told so.
 * That costs one small MPI_Allreduce(), and neither socket nor thread.
 *
 * No lock is held during anything collective: two threads may come with two
 * communicators, in one order here and in the other there.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "dropin.h"

/* To make a Shunt communicator when all ranks are here. */
#define BIRTH_SECONDS 60.0
/* MPI has looked around in less if there was nothing to do: measured, 0.5 us,
 * and 2.3 if it yields; a piece of a message takes twice as long. */
#define MPI_IDLE_NS 4000
/* A room that is larger is given back after the call. */
#define ROOM_KEPT ((size_t)64 << 20)
/* Communicators that a thread finds without asking MPI. */
#define CACHED 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shunti_mpi_comm *all;     /* under lock */
static int keyval = MPI_KEYVAL_INVALID; /* under lock, while it is made */
static int tag_never, probed;           /* made with keyval */
static atomic_bool over;                /* MPI_Finalize() was called */

/* Counts communicators that have gone: a handle seen before may be another's
 * now. */
static _Atomic uint64_t gone;

static _Thread_local struct {
    MPI_Comm mpi;
    uint64_t gone;
    struct shunti_mpi_comm *state;
} cache[CACHED];

/* The communicator that this thread is freeing. */
static _Thread_local MPI_Comm dying = MPI_COMM_NULL;

/* --- rooms ---------------------------------------------------------------- */

char *shunti_mpi_make_room(struct shunti_mpi_room *room, size_t bytes)
{
    if (bytes <= room->bytes && room->at)
        return room->at;
    free(room->at);
    room->bytes = bytes < 4096 ? 4096 : bytes;
    room->at = malloc(room->bytes);
    if (!room->at)
        room->bytes = 0;
    return room->at;
}

bool shunti_mpi_types_room(struct shunti_mpi_comm *state)
{
    if (!state->types)
        state->types = calloc(2 * (size_t)state->size, sizeof(*state->types));
    return state->types != NULL;
}

static void trim(struct shunti_mpi_room *room)
{
    if (room->bytes <= ROOM_KEPT)
        return;
    free(room->at);
    *room = (struct shunti_mpi_room){NULL, 0};
}

void shunti_mpi_done(struct shunti_mpi_comm *state, enum shunti_mpi_call call,
                     size_t bytes)
{
    struct shunti_mpi_tally *tally = &state->tallies.served[call];

    tally->calls++;
    tally->bytes += bytes;
    trim(&state->send);
    trim(&state->recv);
}

/* --- states --------------------------------------------------------------- */

static void serve_none(struct shunti_mpi_comm *state,
                       enum shunti_mpi_reason reason)
{
    for (int call = 0; call < SHUNTI_MPI_CALLS; call++)
        state->served[call] = (struct shunti_mpi_range){1, 0};
    state->reason = reason;
    state->never = true;
}

static void ask_table(struct shunti_mpi_comm *state, int nodes)
{
    if (state->mode == SHUNTI_MPI_MODE_OFF) {
        serve_none(state, SHUNTI_MPI_OFF);
        return;
    }
    if (state->mode == SHUNTI_MPI_MODE_OFF) {
        serve_none(state, SHUNTI_MPI_OFF);
        return;
    }
    for (int call = 0; call < SHUNTI_MPI_CALLS; call++)
        state->served[call] = shunti_mpi_served(
            state->mode, (enum shunti_mpi_call)call, state->size, nodes);
    state->reason = SHUNTI_MPI_FASTER;
}

static struct shunti_mpi_comm *state_new(MPI_Comm comm, int size)
{
    struct shunti_mpi_comm *state = calloc(1, sizeof(*state));

    if (!state)
        return NULL;
    state->numbers = calloc(4 * (size_t)size, sizeof(*state->numbers));
    if (!state->numbers) {
        free(state);
        return NULL;
    }
    state->size = size;
    PMPI_Comm_rank(comm, &state->rank);
    return state;
}

static void enlist(struct shunti_mpi_comm *state)
{
    pthread_mutex_lock(&lock);
    state->next = all;
    state->link = &all;
    if (all)
        all->link = &state->next;
    all = state;
    pthread_mutex_unlock(&lock);
}

static void unlist(struct shunti_mpi_comm *state)
{
    pthread_mutex_lock(&lock);
    if (state->link) {
        *state->link = state->next;
        if (state->next)
            state->next->link = state->link;
        state->link = NULL;
    }
    pthread_mutex_unlock(&lock);
}

/* All but the state itself, which an attribute may still point to. */
static void state_finish(struct shunti_mpi_comm *state)
{
    shunti_mpi_stats_add(&state->tallies);
    shunt_comm_destroy(state->shunt);
    state->shunt = NULL;
    free(state->numbers);
    free(state->types);
    free(state->send.at);
    free(state->recv.at);
}

/* The attribute's delete function: MPI's communicator goes. */
static int drop(MPI_Comm comm, int key, void *attribute, void *extra)
{
    struct shunti_mpi_comm *state = attribute;

    (void)comm, (void)key, (void)extra;
    /* Pairs with the acquire in cached(). */
    atomic_fetch_add_explicit(&gone, 1, memory_order_release);
    if (!atomic_load_explicit(&over, memory_order_acquire)) {
        unlist(state);
        state_finish(state);
    }
    free(state);
    return MPI_SUCCESS;
}

/* Whether attributes can be had. Local. */
static bool keyval_made(void)
{
    bool made;

    pthread_mutex_lock(&lock);
    if (keyval == MPI_KEYVAL_INVALID) {
        int *tag_ub, found = 0;

        if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, drop, &keyval,
                                    NULL) != MPI_SUCCESS)
            keyval = MPI_KEYVAL_INVALID;
        PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &found);
        tag_never = found ? *tag_ub : 32767;
        /* Open MPI looks through all ranks for any source; MPICH makes no
         * progress when a rank looks for messages of its own. */
#ifdef OPEN_MPI
        PMPI_Comm_rank(MPI_COMM_WORLD, &probed);
#else
        probed = MPI_ANY_SOURCE;
#endif
    }
    made = keyval != MPI_KEYVAL_INVALID;
    pthread_mutex_unlock(&lock);
    return made;
}

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

static void warn_of_mode(const char *unknown)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    int rank = 0;

    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (unknown && rank == 0 && !atomic_flag_test_and_set(&warned))
        fprintf(stderr,
                "shunt-mpi: SHUNT_MPI='%s' is ignored: it takes off, on or "
                "force; using on\n",
                unknown);
}

/* Collective over `comm`. `state` is NULL where it could not be made. False:
 * nothing is agreed on. */
static bool agree(MPI_Comm comm, struct shunti_mpi_comm *state, int size)
{
    uint64_t mine[SAYS], least[SAYS] = {0};
    const char *unknown;
    bool one_host;
    int world = 0;

    mine[SAY_WELL] = state != NULL;
    mine[SAY_FILES] = files_to_spare();
    mine[SAY_MODE] = shunti_mpi_mode(&unknown);
    mine[SAY_NO_STATS] = !shunti_mpi_stats_wanted();
    mine[SAY_ANY_WAY] = !getenv("SHUNT_TRANSPORTS");
    mine[SAY_HOST] = hash_host();
    mine[SAY_NOT_HOST] = ~mine[SAY_HOST];
    warn_of_mode(unknown);
    if (PMPI_Allreduce(mine, least, SAYS, MPI_UINT64_T, MPI_MIN, comm) !=
        MPI_SUCCESS)
        return false;
    PMPI_Comm_size(MPI_COMM_WORLD, &world);
    if (size == world)
        shunti_mpi_stats_agreed(!least[SAY_NO_STATS]);
    if (!least[SAY_WELL])
        return false;
    state->mode = (enum shunti_mpi_mode)least[SAY_MODE];
    one_host = least[SAY_HOST] == ~least[SAY_NOT_HOST];
    state->shm_first = one_host && least[SAY_ANY_WAY];
    ask_table(state, one_host ? 1 : 2);
    if (!least[SAY_FILES] && !state->never) {
        shunti_mpi_stats_why("half of the files that a process may open are "
                             "open (ulimit -n)");
        serve_none(state, SHUNTI_MPI_NO_COMM);
    }
    return true;
}

/* The first call on `comm`. */
static struct shunti_mpi_comm *introduce(MPI_Comm comm)
{
    struct shunti_mpi_comm *state;
    int inter = 0, size = 1;

    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_size(comm, &size);
    state = state_new(comm, size);
    /* The attribute before agreeing: who cannot set it says so. */
    if (state && PMPI_Comm_set_attr(comm, keyval, state) != MPI_SUCCESS) {
        free(state->numbers);
        free(state);
        state = NULL;
    }
    if (state)
        enlist(state);
    if (inter || size == 1) {
        if (state)
            serve_none(state, inter ? SHUNTI_MPI_INTER : SHUNTI_MPI_ALONE);
    } else if (!agree(comm, state, size)) {
        if (state)
            PMPI_Comm_delete_attr(comm, keyval);
        return NULL;
    }
    return state;
}

/* --- making the Shunt communicator ------------------------------------------ */

/* Of this thread's own time: Open MPI may give the CPU away meanwhile. */
static uint64_t busy_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
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

/*
 * Collective. Afterwards there is one on every rank, or none is ever served.
 *
 * On one host nothing but shared memory is tried first: to open a network takes
 * time, and a dozen files.
 */
static void make_shunt(MPI_Comm comm, struct shunti_mpi_comm *state)
{
    struct excuse excuse = {""};

    if ((state->shm_first && try_to_make(comm, state, "shm", &excuse)) ||
        try_to_make(comm, state, NULL, &excuse)) {
        ask_table(state, shunt_comm_nodes(state->shunt));
        return;
    }
    tell_why(comm, state, &excuse);
    serve_none(state, SHUNTI_MPI_NO_COMM);
}

/* --- finding them ----------------------------------------------------------- */

static unsigned slot_of(MPI_Comm comm)
{
    uintptr_t handle = (uintptr_t)comm;

    return (unsigned)(handle ^ handle >> 4 ^ handle >> 9) % CACHED;
}

static inline struct shunti_mpi_comm *cached(MPI_Comm comm)
{
    unsigned slot = slot_of(comm);

    /* Pairs with the release in drop() and shunti_mpi_finalize(). */
    if (cache[slot].mpi == comm && cache[slot].state &&
        cache[slot].gone == atomic_load_explicit(&gone, memory_order_acquire))
        return cache[slot].state;
    return NULL;
}

static void remember(MPI_Comm comm, struct shunti_mpi_comm *state,
                     uint64_t before)
{
    unsigned slot = slot_of(comm);

    cache[slot].mpi = comm;
    cache[slot].gone = before;
    cache[slot].state = state;
}

static bool mpi_lives(void)
{
    int begun = 0, ended = 0;

    if (atomic_load_explicit(&over, memory_order_acquire))
        return false;
    PMPI_Initialized(&begun);
    PMPI_Finalized(&ended);
    return begun && !ended;
}

/* The agreed state. NULL: there is none, for `*reason`, which holds on all
 * ranks. */
static struct shunti_mpi_comm *find(MPI_Comm comm,
                                    enum shunti_mpi_reason *reason)
{
    const uint64_t before = atomic_load_explicit(&gone, memory_order_acquire);
    struct shunti_mpi_comm *state = NULL;
    int found = 0;

    *reason = SHUNTI_MPI_TIME;
    if (!mpi_lives())
        return NULL;
    *reason = SHUNTI_MPI_ARGUMENTS;
    if (comm == MPI_COMM_NULL)
        return NULL;
    /* Ours may have been dropped already: another one would never be. */
    *reason = SHUNTI_MPI_DYING;
    if (comm == dying)
        return NULL;
    *reason = SHUNTI_MPI_NO_COMM;
    if (!keyval_made() ||
        PMPI_Comm_get_attr(comm, keyval, &state, &found) != MPI_SUCCESS)
        return NULL;
    if (!found)
        state = introduce(comm);
    if (state)
        remember(comm, state, before);
    return state;
}

struct shunti_mpi_comm *shunti_mpi_state(MPI_Comm comm,
                                         enum shunti_mpi_call call)
{
    struct shunti_mpi_comm *state = cached(comm);
    enum shunti_mpi_reason reason;

    if (!state) {
        state = find(comm, &reason);
        if (!state) {
            shunti_mpi_stats_passed(call, reason);
            return NULL;
        }
    }
    if (state->never) {
        shunti_mpi_pass(state, call, state->reason, 0);
        return NULL;
    }
    return state;
}

bool shunti_mpi_take(struct shunti_mpi_comm *state, MPI_Comm comm,
                     enum shunti_mpi_call call, size_t bytes)
{
    for (;;) {
        const struct shunti_mpi_range *served = &state->served[call];

        if (bytes < served->from || bytes > served->upto) {
            shunti_mpi_pass(state, call, state->reason, bytes);
            return false;
        }
        if (__builtin_expect(state->shunt != NULL, 1))
            return true;
        /* The table may know better afterwards. */
        make_shunt(comm, state);
    }
}

int shunti_mpi_pass(struct shunti_mpi_comm *state, enum shunti_mpi_call call,
                    enum shunti_mpi_reason reason, size_t bytes)
{
    struct shunti_mpi_tally *tally = &state->tallies.passed[call][reason];

    tally->calls++;
    tally->bytes += bytes;
    return SHUNTI_MPI_PASS;
}

/* --- bad arguments ---------------------------------------------------------- */

/* A call that Shunt refuses, and of which it tells the others. */
static void refuse(struct shunt_comm *comm, enum shunti_mpi_call call)
{
    const enum shunt_dtype none = (enum shunt_dtype)0;
    enum shunt_status st = SHUNT_OK;

    switch (call) {
    case SHUNTI_MPI_ALLTOALL:
        st = shunt_alltoall(comm, NULL, NULL, 0, none);
        break;
    case SHUNTI_MPI_ALLTOALLV:
    case SHUNTI_MPI_ALLTOALLW:
        st = shunt_alltoallv(comm, NULL, NULL, NULL, NULL, NULL, NULL, none);
        break;
    case SHUNTI_MPI_ALLGATHER:
        st = shunt_allgather(comm, NULL, NULL, 0, none);
        break;
    case SHUNTI_MPI_ALLGATHERV:
        st = shunt_allgatherv(comm, NULL, 0, NULL, NULL, NULL, none);
        break;
    case SHUNTI_MPI_REDUCE_SCATTER:
        st = shunt_reduce_scatterv(comm, NULL, NULL, NULL, none, SHUNT_SUM);
        break;
    case SHUNTI_MPI_REDUCE_SCATTER_BLOCK:
        st = shunt_reduce_scatter(comm, NULL, NULL, 0, none, SHUNT_SUM);
        break;
    case SHUNTI_MPI_ALLREDUCE:
        st = shunt_allreduce(comm, NULL, NULL, 0, none, SHUNT_SUM);
        break;
    case SHUNTI_MPI_BCAST:
        st = shunt_broadcast(comm, NULL, 0, none, 0);
        break;
    default:
        break;
    }
    (void)st; /* MPI says what is wrong */
}

void shunti_mpi_withdraw(struct shunti_mpi_comm *state,
                         enum shunti_mpi_call call)
{
    refuse(state->shunt, call);
    shunti_mpi_pass(state, call, SHUNTI_MPI_ARGUMENTS, 0);
}

int shunti_mpi_refuse(struct shunti_mpi_comm *state, MPI_Comm comm,
                      enum shunti_mpi_call call)
{
    /* If it depends on the bytes, which are not known here, whether the others
     * are in Shunt, nothing can be told. */
    if (state->served[call].from == 0 && state->served[call].upto == SIZE_MAX) {
        if (!state->shunt)
            make_shunt(comm, state);
        if (state->shunt)
            refuse(state->shunt, call);
    }
    return shunti_mpi_pass(state, call, SHUNTI_MPI_ARGUMENTS, 0);
}

/* --- the end of a communicator ---------------------------------------------- */

/* Functions that the program gave its attributes may call us while they go. */
static int end(MPI_Comm *comm, int (*pmpi)(MPI_Comm *))
{
    const MPI_Comm before = dying;
    int rc;

    dying = comm ? *comm : MPI_COMM_NULL;
    atomic_fetch_add_explicit(&gone, 1, memory_order_release);
    rc = pmpi(comm);
    dying = before;
    return rc;
}

int shunti_mpi_comm_free(MPI_Comm *comm)
{
    return end(comm, PMPI_Comm_free);
}

int shunti_mpi_comm_disconnect(MPI_Comm *comm)
{
    return end(comm, PMPI_Comm_disconnect);
}

/* --- the end ---------------------------------------------------------------- */

int shunti_mpi_finalize(void)
{
    if (mpi_lives()) {
        struct shunti_mpi_comm *state;

        atomic_store_explicit(&over, true, memory_order_release);
        atomic_fetch_add_explicit(&gone, 1, memory_order_release);
        /* States stay: the attributes of communicators that were not freed
         * point to them until MPI deletes these. */
        pthread_mutex_lock(&lock);
        while ((state = all)) {
            all = state->next;
            state->link = NULL;
            state_finish(state);
        }
        pthread_mutex_unlock(&lock);
        shunti_mpi_stats_print();
        shunti_mpi_types_finish();
        if (keyval != MPI_KEYVAL_INVALID)
            PMPI_Comm_free_keyval(&keyval);
    }
    return PMPI_Finalize();
}
