// SPDX-License-Identifier: Apache-2.0
/*
 * Children of fork() in the middle of a random program. Some stay as long as
 * the program runs. Others make calls with inherited handles, which must return
 * an error, or destroy these handles, or exit. Meanwhile the program goes on,
 * and must not be affected.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/random/world.h"

enum end { STAYS, CALLS, CALLS_AND_STAYS, DESTROYS, EXITS, ENDS };

/* Called in a child. Returns 1 if a call did not fail with the expected
 * error. */
static int refused(enum shunt_status st)
{
    if (st == SHUNT_ERR_INVALID &&
        strstr(shunt_last_error(NULL), "made before fork()"))
        return 0;
    return rank_fail(__FILE__, __LINE__, "a call in a child", "%s: %s",
                     shunt_strerror(st), shunt_last_error(NULL));
}

static int try_exchange(const struct exchange *x)
{
    static float rows[1 << 12];
    struct shunt_moe_plan *plan;
    int bad = 0;

    bad += refused(shunt_moe_plan_create(x->moe, NULL, NULL, 0, &plan));
    for (int p = 0; p < MAX_PLANS; p++) {
        struct shunt_moe_plan *old = x->plans[p].plan;

        if (!old)
            continue;
        bad += refused(shunt_moe_dispatch(old, rows, rows, 1));
        bad += refused(shunt_moe_combine(old, rows, NULL, rows));
    }
    return bad;
}

static int try_group(const struct group *g)
{
    struct shunt_comm_stats stats;
    struct shunt_request *request;
    struct shunt_comm *made;
    uint64_t one = 1, sum;
    int bad = 0;

    bad +=
        refused(shunt_allreduce(g->comm, &one, &sum, 1, SHUNT_U64, SHUNT_SUM));
    bad += refused(shunt_barrier_start(g->comm, &request));
    bad += refused(shunt_comm_get_stats(g->comm, &stats, sizeof(stats)));
    bad += refused(shunt_mem_free(g->comm, g->arena));
    bad += refused(shunt_comm_dup(g->comm, &made));
    shunt_comm_abort(g->comm);
    for (int x = 0; x < g->nexchanges; x++)
        bad += try_exchange(&g->exchanges[x]);
    return bad;
}

static int try_all(struct world *w)
{
    int bad = 0;

    for (int i = 0; i < w->ngroups; i++)
        if (w->groups[i].comm)
            bad += try_group(&w->groups[i]);
    for (int i = 0; i < w->npending; i++) {
        struct shunt_request *request = w->pending[i]->request;

        if (!request)
            continue;
        bad += refused(i % 2 ? shunt_test(&request) : shunt_wait(&request));
        bad += request != NULL;
    }
    return bad;
}

static void destroy_all(struct world *w)
{
    for (int i = 0; i < w->ngroups; i++) {
        struct group *g = &w->groups[i];

        for (int x = 0; x < g->nexchanges; x++)
            shunt_moe_destroy(g->exchanges[x].moe);
        shunt_comm_destroy(g->comm);
    }
}

static void live(struct world *w, enum end end)
{
    int bad = 0;

    if (end == CALLS || end == CALLS_AND_STAYS)
        bad = try_all(w);
    if (end == DESTROYS)
        destroy_all(w);
    while (!bad && (end == STAYS || end == CALLS_AND_STAYS))
        pause();
    if (end == EXITS)
        exit(0);
    _exit(bad != 0);
}

/* Ends child `i` if it stays, else waits until it has ended. */
static int collect(struct world *w, int i)
{
    const struct child child = w->children[i];
    int status = -1;

    w->children[i] = w->children[--w->nchildren];
    if (child.stays) {
        CHECK(waitpid(child.pid, &status, WNOHANG) == 0,
              "a child that stays ended with %x", (unsigned)status);
        kill(child.pid, SIGKILL);
        CHECK(waitpid(child.pid, &status, 0) == child.pid, "waitpid: %s",
              strerror(errno));
        return 0;
    }
    CHECK(waitpid(child.pid, &status, 0) == child.pid && !status,
          "a child ended with %x", (unsigned)status);
    return 0;
}

int fork_children(struct world *w)
{
    enum end end;
    pid_t pid;

    if (!w->forks || !one_in(&w->local, 8))
        return 0;
    if (w->nchildren == MAX_CHILDREN)
        CHECK_RUN(collect(w, below(&w->local, w->nchildren)));
    end = (enum end)below(&w->local, ENDS);
    pid = fork();
    CHECK(pid >= 0, "fork: %s", strerror(errno));
    if (!pid)
        live(w, end);
    w->children[w->nchildren++] =
        (struct child){pid, end == STAYS || end == CALLS_AND_STAYS};
    w->forked++;
    return 0;
}

int end_children(struct world *w)
{
    while (w->nchildren)
        CHECK_RUN(collect(w, 0));
    return 0;
}
