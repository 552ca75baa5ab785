// SPDX-License-Identifier: Apache-2.0
/*
 * A Shunt communicator for each MPI communicator. It is made at the first call
 * that is to be served, and freed with MPI's communicator.
 *
 * The state of the drop-in is an attribute of the MPI communicator. A duplicate
 * does not inherit it and gets its own. Freeing the MPI communicator calls
 * drop(). States that still exist at MPI_Finalize() are found in a list.
 *
 * No lock is held during collective calls, because two threads may use two
 * communicators in a different order on each rank.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bindings/mpi/dropin.h"

/* Larger buffers are freed after the call. */
#define ROOM_KEPT ((size_t)64 << 20)
/* Most communicators whose state a thread finds without a call of MPI. */
#define CACHED 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shunti_mpi_comm *all;     /* protected by `lock` */
static int keyval = MPI_KEYVAL_INVALID; /* created under `lock` */
static atomic_bool over;                /* MPI_Finalize() was called */

/* Number of communicators that have been freed. A cached state is valid only
 * while this number does not change, because MPI may reuse a handle for another
 * communicator. */
static _Atomic uint64_t gone;

static _Thread_local struct {
    MPI_Comm mpi;
    uint64_t gone;
    struct shunti_mpi_comm *state;
} cache[CACHED];

/* The communicator that this thread is freeing. */
static _Thread_local MPI_Comm dying = MPI_COMM_NULL;

/* --- buffers -------------------------------------------------------------- */

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

atomic_bool shunti_mpi_progress_due;

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
    /* Read before writing. Threads on different communicators would otherwise
     * all write the same cache line. */
    if (!atomic_load_explicit(&shunti_mpi_progress_due, memory_order_relaxed))
        atomic_store_explicit(&shunti_mpi_progress_due, true,
                              memory_order_relaxed);
    trim(&state->send);
    trim(&state->recv);
}

/* --- states --------------------------------------------------------------- */

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

/* Free everything but the state itself, which an attribute may still point
 * to. */
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

/* The attribute's delete function: MPI's communicator is being freed. */
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

/* Create the key of the drop-in's attributes. Not collective. */
static bool keyval_made(void)
{
    bool made;

    pthread_mutex_lock(&lock);
    if (keyval == MPI_KEYVAL_INVALID) {
        if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, drop, &keyval,
                                    NULL) != MPI_SUCCESS)
            keyval = MPI_KEYVAL_INVALID;
    }
    made = keyval != MPI_KEYVAL_INVALID;
    pthread_mutex_unlock(&lock);
    return made;
}

/* --- finding states ------------------------------------------------------- */

/* Create the state at the first call on `comm`. */
static struct shunti_mpi_comm *introduce(MPI_Comm comm)
{
    struct shunti_mpi_comm *state;
    int inter = 0, size = 1;

    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_size(comm, &size);
    state = state_new(comm, size);
    /* Set the attribute before agreeing, so that the ranks agree on a failure
     * too. */
    if (state && PMPI_Comm_set_attr(comm, keyval, state) != MPI_SUCCESS) {
        free(state->numbers);
        free(state);
        state = NULL;
    }
    if (state)
        enlist(state);
    if (inter || size == 1) {
        if (state)
            shunti_mpi_serve_none(state,
                                  inter ? SHUNTI_MPI_INTER : SHUNTI_MPI_ALONE);
    } else if (!shunti_mpi_agree(comm, state)) {
        if (state)
            PMPI_Comm_delete_attr(comm, keyval);
        return NULL;
    }
    return state;
}

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

/* Returns the agreed state of `comm`. NULL: there is none, because of
 * `*reason`, which is the same on all ranks. */
SHUNTI_MPI_NOINLINE static struct shunti_mpi_comm *
find(MPI_Comm comm, enum shunti_mpi_reason *reason)
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
    /* The state may have been freed already, and a new one would never be
     * freed. */
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
            shunti_mpi_pass(state, call, shunti_mpi_why_not(state, call),
                            bytes);
            return false;
        }
        if (__builtin_expect(state->shunt != NULL, 1))
            return true;
        /* The table may decide differently when the nodes are known. */
        shunti_mpi_create(comm, state);
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

/* --- bad arguments -------------------------------------------------------- */

/* Make a call that Shunt refuses, which notifies the other ranks. */
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
    (void)st; /* MPI reports the error */
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
    /* If the size decides whether the call is served, this rank does not know
     * whether the other ranks are in Shunt, and cannot notify them. */
    if (state->served[call].from == 0 && state->served[call].upto == SIZE_MAX) {
        if (!state->shunt)
            shunti_mpi_create(comm, state);
        if (state->shunt)
            refuse(state->shunt, call);
    }
    return shunti_mpi_pass(state, call, SHUNTI_MPI_ARGUMENTS, 0);
}

/* --- the end of a communicator -------------------------------------------- */

/* Free or disconnect `comm`. Meanwhile the delete functions of the program's
 * attributes may call the drop-in. */
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

/* --- the end -------------------------------------------------------------- */

int shunti_mpi_finalize(void)
{
    if (mpi_lives()) {
        struct shunti_mpi_comm *state;

        atomic_store_explicit(&over, true, memory_order_release);
        atomic_fetch_add_explicit(&gone, 1, memory_order_release);
        /* The states are not freed: attributes of communicators that were not
         * freed point to them until MPI deletes the attributes. */
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
