// SPDX-License-Identifier: Apache-2.0
/*
 * The ranks of tests/faults/survive, which kills or stops some of them. The
 * ranks make calls, splits and dups until one fails, then call
 * shunt_comm_shrink(), and continue with its result. SIGUSR1 to all ranks ends
 * them. SIGUSR2 to all ranks makes them print once that all are present.
 *
 *     rank_survive calls | groups | blocks | plans
 *
 * The output has the numbers that ranks had in the first communicator:
 *
 *     world N: R R ...               the N-th communicator, and its ranks
 *     failed STATUS, lost R R: TEXT  a call failed
 *     shrunk STATUS, lost R R: TEXT  a shrink failed
 *     settled N, lost R R            a shrink succeeded with N ranks
 *     left STATUS                    the end
 */
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

enum { RANKS_MAX = 64, SHRINKS = 3 };
enum { BLOCK = 600 << 10 }; /* bytes; sent in several pieces between hosts */

/* The calls that the ranks of a world make, besides those that count the
 * ranks. */
enum work { CALLS, GROUPS, BLOCKS, PLANS };

/* Sizes of an exchange of tokens: two experts a rank. */
enum { TOKENS = 64, TOPK = 2, PER_RANK = 2 };

struct world {
    struct shunt_comm *comm;
    int number;
    int size;
    /* (size): the numbers of the ranks in the first communicator */
    int32_t first[RANKS_MAX];
    struct shunt_moe *moe; /* used by PLANS */
};

static volatile sig_atomic_t to_end, to_tell;

static void on_signal(int number)
{
    if (number == SIGUSR1)
        to_end = 1;
    else
        to_tell = 1;
}

static const char *names(const struct world *w)
{
    static char text[RANKS_MAX * 4];
    const int *lost;
    size_t count, len = 0;

    text[0] = 0;
    if (shunt_comm_lost(w->comm, &lost, &count))
        return " ?";
    for (size_t i = 0; i < count && len + 8 < sizeof(text); i++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, " %d",
                                w->first[lost[i]]);
    return text;
}

/* Prints an error. The rank numbers in its text are those of w->comm. */
static void tell(const char *what, enum shunt_status status,
                 const struct world *w)
{
    char text[512];

    snprintf(text, sizeof(text), "%s", shunt_last_error(w->comm));
    rank_say("%s %d, lost%s: %s", what, (int)status, names(w), text);
}

/* Makes a call to find out which ranks are in the world. If a rank was lost
 * right after the communicator was created, this call fails first. */
static enum shunt_status look_round(struct world *w, int32_t me)
{
    char text[RANKS_MAX * 4] = "";
    enum shunt_status st;
    size_t len = 0;

    st = shunt_allgather(w->comm, &me, w->first, 1, SHUNT_I32);
    for (int r = 0; !st && r < w->size; r++)
        len += (size_t)snprintf(text + len, sizeof(text) - len, " %d",
                                w->first[r]);
    if (!st)
        rank_say("world %d:%s", w->number, text);
    return st;
}

/* Makes a group of some ranks, makes a call in it, and ends it. */
static enum shunt_status one_group(const struct world *w, int round)
{
    const int rank = shunt_comm_rank(w->comm);
    struct shunt_comm *group = NULL;
    int64_t one = 1, sum = 0;
    enum shunt_status st;

    st = round % 2 ? shunt_comm_dup(w->comm, &group)
                   : shunt_comm_split(w->comm, rank % 2, -rank, &group);
    if (st || !group)
        return st;
    st = shunt_allreduce(group, &one, &sum, 1, SHUNT_I64, SHUNT_SUM);
    if (!st && sum != shunt_comm_size(group))
        abort();
    shunt_comm_destroy(group);
    /* the next call of the world reports a loss in the group */
    return SHUNT_OK;
}

static unsigned char block_byte(int from, int to, int round)
{
    return (unsigned char)(1 + from * 31 + to * 7 + round);
}

/* Exchanges large blocks. Their memory must not be accessed after the call has
 * returned, with or without an error, nor in the next call. So the memory is
 * protected: a late access crashes this process, and a late read by another
 * process fails or returns other data. */
static enum shunt_status exchange_blocks(const struct world *w, int round)
{
    static void *before;
    static size_t bytes_before;
    const int rank = shunt_comm_rank(w->comm);
    const size_t bytes = (size_t)w->size * BLOCK;
    unsigned char *send = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *recv = send + bytes;
    enum shunt_status st;

    if (send == MAP_FAILED)
        abort();
    for (int r = 0; r < w->size; r++)
        memset(send + (size_t)r * BLOCK, block_byte(rank, r, round), BLOCK);
    st = shunt_alltoall(w->comm, send, recv, BLOCK, SHUNT_U8);
    for (int r = 0; !st && r < w->size; r++)
        for (size_t i = 0; i < BLOCK; i += 511)
            if (recv[(size_t)r * BLOCK + i] != block_byte(r, rank, round))
                abort();
    if (before)
        munmap(before, bytes_before);
    if (mprotect(send, 2 * bytes, PROT_NONE))
        abort();
    before = send;
    bytes_before = 2 * bytes;
    return st;
}

/* Makes a plan in which each expert gets the same number of rows from every
 * rank. */
static enum shunt_status one_plan(struct world *w, int round)
{
    struct shunt_moe_config config = SHUNT_MOE_CONFIG_INIT;
    const int experts = PER_RANK * w->size;
    const int tokens = experts * (TOKENS / experts);
    int32_t expert[TOKENS][TOPK];
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows rows;
    enum shunt_status st = SHUNT_OK;

    config.hidden = 8;
    config.dtype = SHUNT_F32;
    config.experts = experts;
    config.topk = TOPK;
    config.max_tokens = TOKENS;
    config.weights = SHUNT_MOE_PLAIN_SUM;
    for (int t = 0; t < tokens; t++)
        for (int k = 0; k < TOPK; k++)
            expert[t][k] = (t + k + round) % experts;
    if (!w->moe)
        st = shunt_moe_create(w->comm, &config, &w->moe);
    if (!st)
        st =
            shunt_moe_plan_create(w->moe, *expert, NULL, (size_t)tokens, &plan);
    if (st)
        return st;
    shunt_moe_plan_rows(plan, &rows, sizeof(rows));
    if (rows.total != (size_t)tokens * TOPK)
        abort();
    shunt_moe_plan_destroy(plan);
    return SHUNT_OK;
}

/* Makes calls until one fails, or until all ranks are to end. */
static enum shunt_status live(struct world *w, enum work work)
{
    enum shunt_status st = SHUNT_OK;

    for (int round = 0; !st; round++) {
        int64_t mine[3] = {1, to_end, to_tell}, sum[3] = {0, 0, 0};

        if (work == GROUPS)
            st = one_group(w, round);
        if (work == BLOCKS)
            st = exchange_blocks(w, round);
        if (work == PLANS)
            st = one_plan(w, round);
        if (!st)
            st = shunt_allreduce(w->comm, mine, sum, 3, SHUNT_I64, SHUNT_SUM);
        if (!st && sum[0] != w->size)
            abort(); /* wrong data */
        if (!st && sum[1])
            return SHUNT_OK;
        if (!st && sum[2] == w->size) {
            to_tell = 0;
            rank_say("all are here %d", w->number);
        }
        if (round == 3)
            rank_say("in the loop %d", w->number);
    }
    return st;
}

/* Removes the lost ranks, and keeps the order of the others. */
static void forget_lost(struct world *w)
{
    const int *lost;
    int left = 0;
    size_t count;

    if (shunt_comm_lost(w->comm, &lost, &count))
        abort();
    for (int r = 0; r < w->size; r++) {
        bool gone = false;

        for (size_t i = 0; i < count; i++)
            gone |= lost[i] == r;
        if (!gone)
            w->first[left++] = w->first[r];
    }
    w->size = left;
}

/* Puts the world of the survivors in the place of `w`. Returns false if there
 * is none. */
static bool go_on(struct world *w, int32_t me)
{
    struct shunt_comm *made = NULL;
    enum shunt_status st = SHUNT_ERR_PEER;

    rank_say("shrinking %d", w->number);
    for (int i = 0; st && i < SHRINKS; i++) {
        st = shunt_comm_shrink(w->comm, &made);
        if (st)
            tell("shrunk", st, w);
    }
    if (st)
        return false;
    rank_say("settled %d, lost%s", shunt_comm_size(made), names(w));
    forget_lost(w);
    if (w->first[shunt_comm_rank(made)] != me)
        /* the order or the ranks differ from those that were reported */
        abort();
    shunt_moe_destroy(w->moe);
    w->moe = NULL;
    shunt_comm_destroy(w->comm);
    w->comm = made;
    w->number++;
    if (w->size != shunt_comm_size(made))
        abort();
    return true;
}

static int survive(const struct rank *self, enum work work)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    const int32_t me = self->rank;
    struct world w = {.size = self->size};
    enum shunt_status st;

    CHECK(self->size <= RANKS_MAX, "%d ranks", self->size);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    CHECK_OK(NULL, shunt_comm_create_env(NULL, &w.comm));
    for (int r = 0; r < w.size; r++)
        w.first[r] = r;
    for (;;) {
        st = look_round(&w, me);
        if (!st)
            st = live(&w, work);
        if (!st)
            break;
        tell("failed", st, &w);
        if (!go_on(&w, me))
            break;
    }
    if (!st)
        st = shunt_comm_finish(w.comm);
    shunt_moe_destroy(w.moe);
    shunt_comm_destroy(w.comm);
    return 0;
}

static int calls(const struct rank *self)
{
    return survive(self, CALLS);
}

static int groups(const struct rank *self)
{
    return survive(self, GROUPS);
}

static int blocks(const struct rank *self)
{
    return survive(self, BLOCKS);
}

static int plans(const struct rank *self)
{
    return survive(self, PLANS);
}

static const struct rank_case cases[] = {
    {"calls", calls, .no_comm = true, .no_threads = true},
    {"groups", groups, .no_comm = true, .no_threads = true},
    {"blocks", blocks, .no_comm = true, .no_threads = true},
    {"plans", plans, .no_comm = true, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    int status = rank_main(argc, argv, cases);

    rank_say("left %d", status); /* the rank has not crashed */
    return status;
}
