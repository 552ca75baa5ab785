// SPDX-License-Identifier: Apache-2.0
/* Tests when a peer without a rail is lost, with a simulated clock:
 * transports/rdma/time_without_rail.h. */
#include <stdio.h>

#include "transports/rdma/time_without_rail.h"

#define BEGIN 1000

/* Returns after how many ms a peer is lost. Its port went down `since` ms
 * before. The transport checks every `every` ms, and the other side's software
 * does not respond for the first `waits` ms. */
static int64_t lost_after(int64_t since, int64_t every, int64_t waits)
{
    struct rdma_dark dark;
    int64_t t = 0;

    rdma_dark_begin(&dark, BEGIN, BEGIN - since);
    do
        t += every;
    while (!rdma_dark_look(&dark, BEGIN + t, t < waits));
    return t;
}

static int check(const char *what, int64_t is, int64_t least, int64_t most)
{
    const int ok = is >= least && is <= most;

    printf("%s: lost after %lld ms, %lld to %lld expected%s\n", what,
           (long long)is, (long long)least, (long long)most,
           ok ? "" : ": WRONG");
    return !ok;
}

int main(void)
{
    int bad = 0;

    /* Check every 1 to 10 ms. */
    for (int64_t every = 1; every <= 10; every++)
        bad += check("looked at often", lost_after(0, every, 0), 200, 210);
    bad += check("the other side computes", lost_after(0, 4, 5000), 5200, 5204);
    bad += check("its port went down before", lost_after(500, 4, 0), 4, 4);
    /* 20 ms of each pause count, so there are always 11 checks. */
    bad += check("no CPU", lost_after(0, 300, 0), 11 * 300, 11 * 300);
    return bad != 0;
}
