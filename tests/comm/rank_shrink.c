// SPDX-License-Identifier: Apache-2.0
/*
 * Shrinking when only silence shows which ranks are lost. The first ranks stop.
 * The other ranks miss only rank 0, because the messages of the other stopped
 * ranks had arrived before. In rounds they may miss another stopped rank.
 *
 *     rank_shrink silent_ranks K first|any
 *                            K ranks stop; rank 0 is missed, or any of them
 *     rank_shrink crossed    two ranks wait for each other, on two communicators
 *     rank_shrink closing    a rank ends other communicators meanwhile
 *     rank_shrink deaf       rank 0 receives nothing, and rank 2 is busy
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

enum { CLOSED = 16, BLOCK = 1 << 20 };

static void sleep_s(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};

    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

static int be_silent(const struct rank *self)
{
    struct shunt_request *request = NULL;

    if (self->rank)
        CHECK_OK(self->comm, shunt_barrier_start(self->comm, &request));
    raise(SIGSTOP); /* test_shrink.c continues it */
    CHECK(shunt_wait(&request) || shunt_barrier(self->comm),
          "it was not missed");
    return 0;
}

/* The first ranks stop; argv[0]: how many. The others miss rank 0 ("first"), or
 * any of those that stopped ("any"). The first of the remaining ranks enters the
 * shrink a little later than the others. */
static int silent_ranks(const struct rank *self)
{
    const int stopped = atoi(self->argv[0]);
    const bool any = !strcmp(self->argv[1], "any");
    struct shunt_comm *made;
    const int *lost;
    size_t count;

    if (self->rank < stopped)
        return be_silent(self);
    CHECK_STATUS(self->comm, shunt_barrier(self->comm), SHUNT_ERR_TIMEOUT);
    CHECK_OK(self->comm, shunt_comm_lost(self->comm, &lost, &count));
    for (size_t i = 0; i < count; i++)
        CHECK(lost[i] < stopped, "rank %d is lost: %s", lost[i],
              shunt_last_error(self->comm));
    CHECK(count && (any || (count == 1 && lost[0] == 0)), "%zu lost: %s", count,
          shunt_last_error(self->comm));
    if (self->rank == stopped)
        sleep_s(0.9);
    CHECK_OK(self->comm, shunt_comm_shrink(self->comm, &made));
    CHECK(shunt_comm_size(made) == self->size - stopped, "%d ranks of %d",
          shunt_comm_size(made), self->size);
    CHECK_OK(made, shunt_barrier(made));
    rank_say("went on");
    shunt_comm_destroy(made);
    return 0;
}

/* Rank 2 ends. So rank 1 shrinks, and waits for rank 0. Rank 0 waits for rank 1
 * in a communicator of ranks 0 and 1, in which no rank is lost. Rank 0 must
 * give up that wait before rank 1 gives up rank 0. */
static int crossed(const struct rank *self)
{
    struct shunt_comm *both, *made;

    CHECK_OK(self->comm,
             shunt_comm_split(self->comm, self->rank < 2 ? 0 : -1, 0, &both));
    if (self->rank == 2)
        return 0;
    if (self->rank == 0)
        CHECK_STATUS(both, shunt_barrier(both), SHUNT_ERR_TIMEOUT);
    CHECK_STATUS(self->comm, shunt_barrier(self->comm), SHUNT_ERR_PEER);
    CHECK_OK(self->comm, shunt_comm_shrink(self->comm, &made));
    CHECK(shunt_comm_size(made) == 2, "%d ranks", shunt_comm_size(made));
    CHECK_OK(made, shunt_barrier(made));
    shunt_comm_destroy(made);
    shunt_comm_destroy(both);
    return 0;
}

/* Rank 0 stops. Rank 2 then ends other communicators, whose last messages rank
 * 0 does not receive. Meanwhile rank 1 must find out that only rank 0 is
 * missing. */
static int closing(const struct rank *self)
{
    struct shunt_comm *more[CLOSED];
    const int *lost;
    size_t count;

    for (int i = 0; i < CLOSED; i++)
        CHECK_OK(self->comm, shunt_comm_dup(self->comm, &more[i]));
    if (self->rank == 0) {
        raise(SIGSTOP); /* test_shrink.c continues it */
        /* LeakSanitizer may crash if UCX's threads still run at exit. */
        _exit(0);
    }
    for (int i = 0; self->rank == 2 && i < CLOSED; i++) {
        /* this waits only for answers of the other ranks */
        shunt_comm_abort(more[i]);
        shunt_comm_destroy(more[i]);
    }
    CHECK_STATUS(self->comm, shunt_barrier(self->comm), SHUNT_ERR_TIMEOUT);
    CHECK_OK(self->comm, shunt_comm_lost(self->comm, &lost, &count));
    CHECK(count == 1 && lost[0] == 0, "%zu lost: %s", count,
          shunt_last_error(self->comm));
    rank_say("went on");
    for (int i = 0; self->rank == 1 && i < CLOSED; i++)
        shunt_comm_destroy(more[i]);
    return 0;
}

/* Each other rank sends many pieces to rank 0. Rank 2 stops as soon as another
 * rank has failed, so that it takes no part in the shrink. */
static enum shunt_status send_to_first(struct shunt_comm *comm)
{
    static unsigned char send[BLOCK], recv[4 * BLOCK];
    const int rank = shunt_comm_rank(comm);
    const size_t to[4] = {rank ? BLOCK : 0},
                 at[4] = {0, BLOCK, 2 * BLOCK, 3 * BLOCK};
    const size_t from[4] = {0, rank ? 0 : BLOCK, rank ? 0 : BLOCK,
                            rank ? 0 : BLOCK};
    const size_t none[4] = {0};
    struct shunt_request *request = NULL;
    enum shunt_status st;

    st = shunt_alltoallv_start(comm, send, to, none, recv, from, at, SHUNT_U8,
                               &request);
    while (!st && rank == 2) {
        sleep_s(1e-3);
        if (shunt_comm_async_status(comm)) {
            raise(SIGSTOP); /* test_shrink.c continues it */
            break;
        }
        st = shunt_test(&request);
        if (st == SHUNT_OK)
            return st;
        st = st == SHUNT_IN_PROGRESS ? SHUNT_OK : st;
    }
    return st ? st : shunt_wait(&request);
}

/* After a while SHUNT_FAULT makes rank 0 receive nothing, so rank 0 soon misses
 * all others. Rank 2 is stopped meanwhile, and only rank 0 reports that it is
 * missing. That must not be a reason to give rank 2 up. */
static int deaf(const struct rank *self)
{
    struct shunt_comm_config config = SHUNT_COMM_CONFIG_INIT;
    struct shunt_comm *comm, *made;
    enum shunt_status st;
    const int *lost;
    size_t count;

    config.call_timeout = self->rank ? 40 : 2;
    CHECK_OK(NULL, shunt_comm_create_env(&config, &comm));
    do
        st = send_to_first(comm);
    while (!st);
    CHECK_STATUS(comm, st, SHUNT_ERR_TIMEOUT);
    CHECK_OK(comm, shunt_comm_lost(comm, &lost, &count));
    if (self->rank) {
        CHECK(count == 1 && lost[0] == 0, "%zu lost: %s", count,
              shunt_last_error(comm));
        rank_say("has settled");
        CHECK_OK(comm, shunt_comm_shrink(comm, &made));
        CHECK(shunt_comm_size(made) == self->size - 1, "%d ranks",
              shunt_comm_size(made));
        CHECK_OK(made, shunt_barrier(made));
        shunt_comm_destroy(made);
    }
    shunt_comm_destroy(comm);
    return 0;
}

static const struct rank_case cases[] = {
    {"closing", closing, .breaks_comm = true, .no_threads = true},
    {"crossed", crossed, .breaks_comm = true},
    {"deaf", deaf, .no_comm = true, .no_threads = true},
    {"silent_ranks", silent_ranks, .breaks_comm = true, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
