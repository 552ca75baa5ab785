// SPDX-License-Identifier: Apache-2.0
/*
 * Shrinking where nothing says which ranks are lost but that they are silent. The
 * first ranks stop; the others miss only rank 0, since the words of those that stop
 * beside it had come before.
 *
 *     rank_shrink silent_ranks K    K ranks stop
 *     rank_shrink crossed           a rank comes late
 *     rank_shrink closing           a rank closes others meanwhile
 */
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

enum { CLOSED = 16 };

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

/* The first of the others comes a little later than they do. */
static int silent_ranks(const struct rank *self)
{
    const int stopped = atoi(self->argv[0]);
    struct shunt_comm *made;
    const int *lost;
    size_t count;

    if (self->rank < stopped)
        return be_silent(self);
    CHECK_STATUS(self->comm, shunt_barrier(self->comm), SHUNT_ERR_TIMEOUT);
    CHECK_OK(self->comm, shunt_comm_lost(self->comm, &lost, &count));
    CHECK(count == 1 && lost[0] == 0, "%zu lost: %s", count,
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

/* Rank 2 leaves. Rank 1 shrinks for that, and needs rank 0, which waits for rank 1 in
 * a communicator of both, where nobody is lost: it must give up there before rank 1
 * gives it up. */
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

/* Rank 0 stops. Rank 2 then ends communicators in which rank 0 does not hear its
 * good-bye, one after the other, while rank 1 finds out who is missing: only rank 0. */
static int closing(const struct rank *self)
{
    struct shunt_comm *more[CLOSED];
    const int *lost;
    size_t count;

    for (int i = 0; i < CLOSED; i++)
        CHECK_OK(self->comm, shunt_comm_dup(self->comm, &more[i]));
    if (self->rank == 0) {
        raise(SIGSTOP); /* test_shrink.c continues it */
        /* LeakSanitizer may die where UCX's threads still run at the exit. */
        _exit(0);
    }
    for (int i = 0; self->rank == 2 && i < CLOSED; i++) {
        shunt_comm_abort(more[i]); /* nothing is awaited in it but answers */
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

static const struct rank_case cases[] = {
    {"closing", closing, .breaks_comm = true, .no_threads = true},
    {"crossed", crossed, .breaks_comm = true},
    {"silent_ranks", silent_ranks, .breaks_comm = true, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
