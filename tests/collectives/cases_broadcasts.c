// SPDX-License-Identifier: Apache-2.0
/*
 * Broadcasts on one host, where a rank is done as soon as it has the block. So
 * ranks run ahead of each other, and later calls return the errors.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/collectives/cases.h"
#include "tests/collectives/random.h"

/* One rank's call in a round of any_roots(). */
struct odd_call {
    enum { ROOTED, ODD_BARRIER, ODD_GATHER, REFUSED, ODD_CALLS } kind;
    int root;
    size_t bytes;
};

static struct odd_call draw_odd(struct random *random, int nranks)
{
    static const size_t sizes[] = {1, 40, 3000, 100000};
    struct odd_call c = {.kind = ROOTED,
                         .bytes = sizes[random_below(random, 4)]};
    uint64_t kind = random_below(random, 10), root = random_below(random, 4);

    if (kind < ODD_CALLS)
        c.kind = (int)kind;
    /* Draw the same root often, so that most ranks agree. */
    c.root = root ? 1 % nranks : (int)random_below(random, (uint64_t)nranks);
    return c;
}

static bool same_call(const struct odd_call *a, const struct odd_call *b)
{
    return a->kind == b->kind &&
           (a->kind != ROOTED || (a->root == b->root && a->bytes == b->bytes));
}

/* Each rank makes a call of its own choice, mostly a broadcast from any root.
 * All calls return. A rank whose broadcast succeeds has the block of a rank
 * that called as root. Afterwards the communicator still works. */
static int any_roots(const struct rank *self)
{
    struct random shared = {seed_of(self, 0)};
    const int n = self->size;
    unsigned char *block = malloc(100000), *all = malloc((size_t)n * 100);

    for (int round = 0; round < rounds_of(self, 1, 40); round++) {
        struct odd_call calls[MAX_RANKS];
        const struct odd_call *mine = &calls[self->rank], *roots;
        const size_t bytes = draw_odd(&shared, n).bytes;
        bool agree = true;
        enum shunt_status st;
        char text[512];

        for (int r = 0; r < n; r++) {
            calls[r] = draw_odd(&shared, n);
            if (random_below(&shared, 8))
                calls[r].bytes = bytes;
            agree = agree && same_call(&calls[r], &calls[0]);
        }
        roots = &calls[mine->root];
        memset(block, self->rank + 1, mine->bytes);
        switch (mine->kind) {
        case ODD_BARRIER:
            st = shunt_barrier(self->comm);
            break;
        case ODD_GATHER:
            st = shunt_allgather(self->comm, block, all, 100, SHUNT_U8);
            break;
        default:
            st = shunt_broadcast(self->comm,
                                 mine->kind == REFUSED ? NULL : block,
                                 mine->bytes, SHUNT_U8, mine->root);
            break;
        }
        if (!st && mine->kind == ROOTED) {
            CHECK(same_call(mine, roots), "round %d: rank %d is no such root",
                  round, mine->root);
            size_t at = filled_with(block, mine->root + 1, mine->bytes);

            CHECK(at == mine->bytes, "round %d, byte %zu: %d", round, at,
                  block[at]);
        }
        CHECK(!st || shunt_last_error(self->comm)[0], "no text");
        st = sooner_or_later(self, st, text, sizeof(text));
        if (agree && mine->kind != REFUSED)
            CHECK_STATUS(self->comm, st, SHUNT_OK);
        else if (mine->kind != ROOTED || mine->root == self->rank ||
                 shunt_comm_nodes(self->comm) > 1)
            CHECK(st, "round %d: it was not told", round);
        CHECK_RUN(still_usable(self));
    }
    free(all);
    free(block);
    return 0;
}

/* A broadcast is over on a rank that has the block. So the other ranks return
 * from these broadcasts before the last rank enters any of them. */
static int runs_ahead(const struct rank *self)
{
    enum { CALLS = 10, MOST = 3000 };
    const bool late = self->rank == self->size - 1;
    unsigned char block[MOST];
    struct shunt_comm *other;

    if (shunt_comm_nodes(self->comm) > 1)
        return 0; /* between nodes a broadcast waits for all ranks */
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &other));
    for (int round = 0; round < 5; round++) {
        if (late)
            CHECK_OK(other, shunt_barrier(other));
        for (int i = 0; i < CALLS; i++) {
            size_t n = 1 + (size_t)(round * CALLS + i) * 60 % MOST;

            memset(block, self->rank ? 0 : i + 1, n);
            CHECK_OK(self->comm,
                     shunt_broadcast(self->comm, block, n, SHUNT_U8, 0));
            size_t at = filled_with(block, i + 1, n);
            CHECK(at == n, "byte %zu is %d", at, block[at]);
        }
        if (!late)
            CHECK_OK(other, shunt_barrier(other));
    }
    shunt_comm_destroy(other);
    return still_usable(self);
}

/* A later call returns the error of a refused broadcast to the root. This is
 * not a call that consists of several operations: the root would leave such a
 * call in the middle, and the other ranks would wait in it. */
static int late_errors_wait(const struct rank *self)
{
    struct shunt_comm *c = self->comm, *other, *half;
    const bool bad = self->rank == 1;
    int64_t number = self->rank;
    enum shunt_status st;
    void *window;

    for (int round = 0; round < 20; round++) {
        char text[512];

        st = shunt_broadcast(c, bad ? NULL : &number, 1, SHUNT_I64, 0);
        if (bad || shunt_comm_nodes(c) > 1)
            CHECK(st, "it was not refused");
        else
            CHECK(!st || st == SHUNT_ERR_REMOTE, "%s", shunt_strerror(st));
        CHECK_OK(c, shunt_mem_alloc(c, 4096, &window));
        CHECK_OK(c, shunt_comm_dup(c, &other));
        CHECK_OK(c, shunt_comm_split(c, self->rank % 2, 0, &half));
        CHECK_OK(c, shunt_mem_free(c, window));
        st = sooner_or_later(self, st, text, sizeof(text));
        if (st || self->rank < 2)
            CHECK_STATUS(c, st, bad ? SHUNT_ERR_INVALID : SHUNT_ERR_REMOTE);
        shunt_comm_destroy(half);
        /* The last call of a communicator returns the error, too. */
        st = shunt_broadcast(other, bad ? NULL : &number, 1, SHUNT_I64, 0);
        if (!bad && !st)
            st = shunt_comm_finish(other);
        else
            CHECK(shunt_comm_finish(other) != SHUNT_ERR_REMOTE, "twice");
        if (self->rank < 2)
            CHECK_STATUS(other, st, bad ? SHUNT_ERR_INVALID : SHUNT_ERR_REMOTE);
        shunt_comm_destroy(other);
    }
    return still_usable(self);
}

/* A root that only broadcasts gets the error of a refused broadcast exactly
 * once. It gets the error before it is further ahead than a rank may be. The
 * other broadcasts succeed. */
static int told_among_broadcasts(const struct rank *self)
{
    enum { CALLS = 60, BAD = 3, AHEAD = 16 };
    struct shunt_comm *c = self->comm;
    int told = 0;

    if (shunt_comm_nodes(c) > 1)
        return 0; /* between nodes a broadcast waits for all ranks */
    for (int i = 0; i < CALLS; i++) {
        const bool bad = self->rank == 1 && i == BAD;
        /* 1 element fits into the control message, 20 do not */
        int64_t number[20] = {self->rank ? -1 : i};
        enum shunt_status st = shunt_broadcast(c, bad ? NULL : number,
                                               i % 2 ? 1 : 20, SHUNT_I64, 0);

        if (bad) {
            CHECK_STATUS(c, st, SHUNT_ERR_INVALID);
            continue;
        }
        CHECK(number[0] == i || (st && self->rank), "call %d: %lld", i,
              (long long)number[0]);
        if (!st)
            continue;
        CHECK_STATUS(c, st, SHUNT_ERR_REMOTE);
        CHECK(strstr(shunt_last_error(c), "rank 1"), "%s", shunt_last_error(c));
        CHECK(i >= BAD && i <= BAD + AHEAD, "in call %d", i);
        CHECK(++told == 1, "told again in call %d", i);
    }
    CHECK(told || self->rank, "the root was not told");
    return still_usable(self);
}

/* The root sends its block and destroys the communicator before the last rank
 * calls. */
static int root_goes(const struct rank *self)
{
    const bool late = self->rank == self->size - 1;
    struct shunt_comm *other;
    int64_t number = self->rank ? 0 : 77;

    if (shunt_comm_nodes(self->comm) > 1)
        return 0; /* between nodes a broadcast waits for all ranks */
    CHECK_OK(self->comm, shunt_comm_dup(self->comm, &other));
    /* The last rank calls after all other ranks have returned. */
    if (late)
        CHECK_OK(self->comm, shunt_barrier(self->comm));
    CHECK_OK(other, shunt_broadcast(other, &number, 1, SHUNT_I64, 0));
    CHECK(number == 77, "%lld", (long long)number);
    if (!late) {
        struct shunt_request *request;

        CHECK_OK(self->comm, shunt_barrier_start(self->comm, &request));
        shunt_comm_destroy(other);
        CHECK_OK(self->comm, shunt_wait(&request));
    } else {
        shunt_comm_destroy(other);
    }
    return still_usable(self);
}

const struct rank_case broadcast_cases[] = {
    {.name = "any_roots", .run = any_roots, .min_ranks = 2},
    {.name = "late_errors_wait", .run = late_errors_wait, .min_ranks = 2},
    {.name = "told_among_broadcasts",
     .run = told_among_broadcasts,
     .min_ranks = 2},
    {.name = "root_goes", .run = root_goes, .min_ranks = 2},
    {.name = "runs_ahead", .run = runs_ahead, .min_ranks = 2},
    {.name = NULL},
};
