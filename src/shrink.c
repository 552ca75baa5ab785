// SPDX-License-Identifier: Apache-2.0
/*
 * Shrinking: the survivors of a dead communicator find each other.
 *
 * Operations do not work any more, but the control windows are still mapped.
 * Each survivor leaves a record in its own: "I am here". The lowest rank that
 * is not lost coordinates: once every rank is here, lost, or late by more than
 * the timeout, it makes an id and writes it down with the list of members.
 * The others read that, and the members are born as a new communicator. When
 * the coordinator is lost meanwhile, the next one takes over.
 */
#include <stdio.h>
#include <string.h>

#include "comm.h"
#include "error.h"
#include "trace.h"
#include "wait.h"

#define MAX_RANKS 4096
#define NAP_MS 20

struct record {
    uint64_t here;    /* atomic: 1 once this rank shrinks */
    uint64_t decided; /* atomic: 1 once id and members are valid */
    struct shunt_id id;
    uint64_t members[MAX_RANKS / 64];
};

_Static_assert(sizeof(struct record) <= SHUNTI_SHRINK_BYTES, "record's room");

static struct record *record_of(const struct shunt_comm *comm, int rank)
{
    unsigned char *control =
        rank == comm->rank ? comm->control : comm->peers[rank].control;

    return (struct record *)(void *)(control + comm->layout.shrink);
}

static bool flag_up(const uint64_t *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE) != 0;
}

static bool is_lost(const struct shunt_comm *comm, int rank)
{
    const struct shunti_peer *p = &comm->peers[rank];
    size_t i;

    if (rank == comm->rank)
        return false;
    for (i = 0; i < comm->nlost; i++)
        if (comm->lost[i] == rank)
            return true;
    return !p->transport->alive(p->ep);
}

static int coordinator(const struct shunt_comm *comm)
{
    int r = 0;

    while (is_lost(comm, r))
        r++;
    return r; /* at the latest ourselves */
}

static void wake_all(struct shunt_comm *comm)
{
    int r;

    for (r = 0; r < comm->nranks; r++)
        if (r != comm->rank)
            comm->peers[r].transport->wake(comm->peers[r].ep);
}

/* The coordinator's part; false: wait on. */
static bool decide(struct shunt_comm *comm, bool late, enum shunt_status *st)
{
    struct record *mine = record_of(comm, comm->rank);
    int r;

    for (r = 0; r < comm->nranks && !late; r++)
        if (!is_lost(comm, r) && !flag_up(&record_of(comm, r)->here))
            return false;
    memset(mine->members, 0, sizeof(mine->members));
    for (r = 0; r < comm->nranks; r++)
        if (!is_lost(comm, r) && flag_up(&record_of(comm, r)->here))
            mine->members[r / 64] |= UINT64_C(1) << r % 64;
    *st = shunt_id_create(&mine->id);
    if (!*st) {
        __atomic_store_n(&mine->decided, 1, __ATOMIC_RELEASE);
        wake_all(comm);
    }
    return true;
}

static bool is_member(const struct record *record, int rank)
{
    return record->members[rank / 64] >> rank % 64 & 1;
}

static enum shunt_status join(struct shunt_comm *comm,
                              const struct record *record,
                              struct shunt_comm **out)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    int size = 0, place = 0, r;
    enum shunt_status st;

    if (!is_member(record, comm->rank))
        return shunti_fail(comm, SHUNT_ERR_TIMEOUT,
                           "comm_shrink: the others went on without this rank: "
                           "it came too late");
    for (r = 0; r < comm->nranks; r++) {
        if (is_member(record, r)) {
            size++;
            place += r < comm->rank;
        }
    }
    config.timeout = comm->birth_timeout;
    config.call_timeout = comm->call_timeout;
    config.idle = comm->idle_call;
    config.idle_arg = comm->idle_arg;
    config.name = comm->name;
    config.progress_thread = comm->threaded ? 1 : -1;
    config.transports = comm->transports[0] ? comm->transports : NULL;
    config.node = comm->node_name[0] ? comm->node_name : NULL;
    st = shunt_comm_create(&record->id, size, place, &config, out);
    if (st)
        shunti_fail(comm, st, "comm_shrink: %s", shunt_last_error(NULL));
    return st;
}

static enum shunt_status shrink(struct shunt_comm *comm,
                                struct shunt_comm **out)
{
    uint64_t start = shunti_now_ns();
    enum shunt_status st = SHUNT_OK;

    memset(&record_of(comm, comm->rank)->members, 0,
           sizeof(record_of(comm, comm->rank)->members));
    __atomic_store_n(&record_of(comm, comm->rank)->here, 1, __ATOMIC_RELEASE);
    wake_all(comm);
    for (;;) {
        double waited = (double)(shunti_now_ns() - start) * 1e-9;
        int first = coordinator(comm);
        const struct record *record = record_of(comm, first);

        if (flag_up(&record->decided))
            return join(comm, record, out);
        if (first == comm->rank) {
            if (decide(comm, waited > comm->birth_timeout, &st) && st)
                return shunti_fail(comm, st, "comm_shrink: %s",
                                   shunt_last_error(NULL));
            if (flag_up(&record->decided))
                continue;
        } else if (waited > 2 * comm->birth_timeout) {
            return shunti_fail(comm, SHUNT_ERR_TIMEOUT,
                               "comm_shrink: rank %d did not decide in %g s",
                               first, waited);
        }
        shunti_transports_nap(comm, NAP_MS);
    }
}

enum shunt_status shunt_comm_shrink(struct shunt_comm *comm,
                                    struct shunt_comm **out)
{
    enum shunt_status st;

    if (!comm || !out)
        return shunti_fail(comm, SHUNT_ERR_INVALID, "comm_shrink: %s is NULL",
                           comm ? "out" : "comm");
    *out = NULL;
    if (!comm->control) /* it has been destroyed */
        return shunti_comm_check(comm);
    if (!shunti_comm_check(comm))
        return shunti_fail(
            comm, SHUNT_ERR_INVALID,
            "comm_shrink: no rank is lost; use shunt_comm_split()");
    if (!comm->all_mapped || comm->nranks > MAX_RANKS)
        return shunti_fail(comm, SHUNT_ERR_UNSUPPORTED,
                           "comm_shrink: needs mapped peers, at most %d",
                           MAX_RANKS);
    shunti_comm_enter(comm);
    st = shrink(comm, out);
    shunti_comm_leave(comm);
    return st;
}
