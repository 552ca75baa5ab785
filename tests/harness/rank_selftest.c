// SPDX-License-Identifier: Apache-2.0
/* Rank program for the tests of rank_main: cases that succeed, fail, hang. */

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include <shunt/coll.h>

#include "tests/harness/rank_main.h"

static int succeeds(const struct rank *self)
{
    CHECK(self->rank == rank_self(), "rank %d", self->rank);
    CHECK(self->rank == shunt_comm_rank(self->comm), "rank %d", self->rank);
    CHECK(self->size == shunt_comm_size(self->comm), "size %d", self->size);
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    return 0;
}

static int last_rank_fails(const struct rank *self)
{
    CHECK(self->rank != self->size - 1, "as it should, %s", "here");
    return 0;
}

/* One rank fails while the others are in a collective. */
static int fails_inside(const struct rank *self)
{
    CHECK(self->rank != 0, "rank 0 gives up");
    CHECK_OK(self->comm, shunt_barrier(self->comm));
    return 0;
}

static int wrong_status(const struct rank *self)
{
    CHECK_STATUS(self->comm, shunt_barrier(self->comm), SHUNT_ERR_INVALID);
    return 0;
}

static int hangs(const struct rank *self)
{
    if (self->rank == self->size - 1)
        pause();
    return 0;
}

static int arguments(const struct rank *self)
{
    CHECK(self->argc == 2, "%d arguments", self->argc);
    CHECK(strcmp(self->argv[1], "two") == 0, "%s", self->argv[1]);
    return 0;
}

static const struct rank_case cases[] = {
    {.name = "succeeds", .run = succeeds},
    {.name = "last_rank_fails", .run = last_rank_fails, .no_comm = true},
    {.name = "fails_inside", .run = fails_inside, .breaks_comm = true},
    {.name = "wrong_status", .run = wrong_status},
    {.name = "hangs", .run = hangs, .no_comm = true, .timeout_s = 1},
    {.name = "arguments", .run = arguments, .no_comm = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
