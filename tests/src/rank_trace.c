// SPDX-License-Identifier: Apache-2.0
//
// What ranks do while trace.py looks at their timelines.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <shunt/shunt.h>

#include "rank_main.h"

#define LARGE ((size_t)256 << 10)

/* An all-gather of 8 bytes from each, a broadcast of much from rank 1. */
static int calls(const struct rank *self)
{
    int64_t mine = self->rank, all[16];
    char *much = malloc(LARGE);

    CHECK(much && self->size <= 16, "%d ranks", self->size);
    memset(much, self->rank, LARGE);
    CHECK_OK(self->comm, shunt_allgather(self->comm, &mine, all, 1, SHUNT_I64));
    CHECK_OK(self->comm, shunt_broadcast(self->comm, much, LARGE, SHUNT_U8, 1));
    CHECK(much[LARGE - 1] == 1, "not rank 1's");
    free(much);
    return 0;
}

static const struct rank_case cases[] = {
    {"calls", calls, .min_ranks = 2},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
