// SPDX-License-Identifier: Apache-2.0
/* Arguments that are memory of a device; see staged.h. */
#include "moe/device/staged.h"

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <shunt/request.h>

#include "moe/device/device_rows.h"
#include "moe/plan.h"
#include "moe/plan/plan_rows.h"
#include "src/base/error.h"
#include "src/comm.h"
#include "src/op/device.h"
#include "src/progress/turns.h"

/* The part of an argument that is copied, in either direction. */
struct what {
    size_t offset, bytes;         /* without a list: one piece at this offset */
    struct shunti_copy_rows rows; /* with a list: the rows to copy */
    uint32_t *list;               /* numbers of these rows; NULL: one piece */
};

struct state {
    struct shunti_staged staged;
    struct what what[SHUNTI_STAGED_MAX];
    struct shunti_device_copy copy[SHUNTI_STAGED_MAX]; /* copies of results to
                                                          the device */
};

static struct state *state_of(const struct shunt_request *request)
{
    return (struct state *)(void *)(uintptr_t)request->state;
}

/* Pause before the next test, since a device does not report the end of a copy.
 * Most copies take microseconds. If a copy takes longer, test it less often. */
static void rest(unsigned looks)
{
    const struct timespec nap = {.tv_nsec = 50000};

    if (looks < 1000)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

/* Count a copy. The caller does not hold the communicator during a copy. */
static void count(struct shunt_comm *comm,
                  const struct shunti_device_copy *copy)
{
    shunti_comm_enter(comm);
    shunti_device_count(comm, copy);
    shunti_comm_leave(comm);
}

/* Begin the copy, if it has not begun. Then test the copy, or wait for it. If
 * the device is lost or takes too long, the engine ends the copy with an
 * error. */
static enum shunt_status copy_over(struct shunt_comm *comm,
                                   struct shunti_device_copy *copy, bool wait,
                                   char *why, size_t why_len)
{
    for (unsigned looks = 0;; looks++) {
        enum shunt_status st = SHUNT_OK;

        if (!copy->begun) {
            st = shunti_device_copy_begin(comm, copy, why, why_len);
            if (!st)
                count(comm, copy);
        }
        if (!st)
            st = shunti_device_copy_test(comm, copy, why, why_len);
        if (st != SHUNT_IN_PROGRESS || !wait)
            return st;
        rest(looks);
    }
}

/* Find the part of an argument that the call reads or writes. A call of the
 * first part also writes the gaps. False: no memory. */
static bool find(const struct shunti_plan *plan, struct shunti_cut cut,
                 const struct shunti_staged_argument *arg, struct what *what)
{
    const size_t first = shunti_parts_token(plan, cut.from);
    const size_t end = shunti_parts_token(plan, cut.to);
    size_t n;

    *what = (struct what){.bytes = arg->span.bytes};
    if (shunti_cut_is_whole(plan, cut))
        return true;
    if (!(arg->way & SHUNTI_STAGED_ROWS)) {
        what->bytes = arg->span.bytes / plan->tokens; /* not 0 tokens, since
                                                         span.bytes is not 0 */
        what->offset = first * what->bytes;
        what->bytes *= end - first;
        return true;
    }
    what->list = malloc((plan->received.total + 1) * sizeof(*what->list));
    if (!what->list)
        return false;
    n = shunti_parts_list(plan, cut, what->list);
    if (!cut.from && arg->way & SHUNTI_STAGED_OUT)
        n += shunti_plan_list_gaps(plan, what->list + n);
    what->bytes = plan->moe->row_bytes;
    what->rows =
        (struct shunti_copy_rows){n, what->list, what->list, what->bytes, 0};
    return true;
}

static struct shunti_device_copy copy_of(const struct what *what, void *to,
                                         const void *from)
{
    return (struct shunti_device_copy){
        .to = (unsigned char *)to + what->offset,
        .from = (const unsigned char *)from + what->offset,
        .bytes = what->bytes,
        .rows = what->list ? &what->rows : NULL,
    };
}

/* --- the request -------------------------------------------------------------- */

static void cleanup(struct shunt_request *request)
{
    struct state *s = state_of(request);
    char why[512];

    for (int i = 0; i < s->staged.count; i++)
        if (s->copy[i].begun)
            (void)copy_over(request->comm, &s->copy[i], true, why, sizeof(why));
    for (int i = 0; i < s->staged.count; i++) {
        if (s->staged.arg[i].ours)
            shunti_device_host_free(request->comm, s->staged.arg[i].use);
        free(s->what[i].list);
    }
}

static bool is_result(const struct shunti_staged_argument *arg)
{
    return arg->way & SHUNTI_STAGED_OUT && arg->use != arg->span.at;
}

static enum shunt_status copy_results(struct shunt_request *request, bool wait)
{
    struct state *s = state_of(request);
    char why[512] = "";

    for (int i = 0; i < s->staged.count; i++) {
        const struct shunti_staged_argument *arg = &s->staged.arg[i];
        enum shunt_status st;

        if (!is_result(arg))
            continue;
        if (!s->copy[i].begun)
            s->copy[i] =
                copy_of(&s->what[i], (void *)(uintptr_t)arg->span.at, arg->use);
        st = copy_over(request->comm, &s->copy[i], wait, why, sizeof(why));
        if (st == SHUNT_IN_PROGRESS)
            return st;
        if (st) {
            shunti_comm_enter(request->comm);
            shunti_request_error(
                request, st, "%s: copying %s to the device: %s",
                shunti_request_name(request), arg->span.name, why);
            shunti_comm_leave(request->comm);
            return st;
        }
    }
    return SHUNT_OK;
}

static enum shunt_status run(struct shunt_request *request, bool wait)
{
    struct state *s = state_of(request);
    enum shunt_status st =
        wait ? shunt_wait(&s->staged.inner) : shunt_test(&s->staged.inner);

    if (st == SHUNT_IN_PROGRESS)
        return st;
    if (st) {
        shunti_comm_enter(request->comm);
        shunti_request_error(request, st, "%s", shunti_error_last());
        shunti_comm_leave(request->comm);
    }
    /* After an error, do not copy the call's results. */
    return request->error ? request->error : copy_results(request, wait);
}

static const struct shunti_class staged_class = {
    .name = "moe call on memory of a device",
    .run = run,
    .cleanup = cleanup,
};

/* --- before the call ------------------------------------------------------------ */

/* An earlier argument that has the same memory, whose copy both can use. NULL:
 * there is none. */
static const struct shunti_staged_argument *
same(const struct shunti_staged *staged, int i)
{
    for (int j = 0; j < i; j++)
        if (staged->arg[j].span.at == staged->arg[i].span.at &&
            staged->arg[j].use != staged->arg[j].span.at)
            return &staged->arg[j];
    return NULL;
}

static enum shunt_status stage_one(const struct shunti_plan *plan,
                                   struct shunti_staged *staged, int i,
                                   char *why, size_t why_len)
{
    struct shunt_comm *comm = plan->moe->comm;
    struct shunti_staged_argument *arg = &staged->arg[i];
    const struct shunti_staged_argument *before = same(staged, i);
    struct what *what = &state_of(staged->request)->what[i];
    struct shunti_device_copy copy;
    enum shunt_status st = SHUNT_OK;

    if (before && before->span.bytes >= arg->span.bytes) {
        arg->use = before->use;
    } else {
        st = shunti_device_host_alloc(comm, arg->span.bytes, &arg->use, why,
                                      why_len);
        arg->ours = !st;
    }
    if (!st && !find(plan, staged->cut, arg, what)) {
        snprintf(why, why_len, "no memory");
        st = SHUNT_ERR_MEMORY;
    }
    if (!st && arg->way & SHUNTI_STAGED_IN) {
        copy = copy_of(what, arg->use, arg->span.at);
        st = copy_over(comm, &copy, true, why, why_len);
    }
    return st;
}

static enum shunt_status stage_all(const struct shunti_plan *plan,
                                   struct shunti_staged *staged,
                                   unsigned device, char *why, size_t why_len)
{
    const char *unable = shunti_device_unable(plan->moe->comm);
    enum shunt_status st = SHUNT_OK;

    for (int i = 0; i < staged->count && !st; i++) {
        if (!(device >> i & 1))
            continue;
        if (unable) {
            snprintf(why, why_len, "%s is memory of a device: %s",
                     staged->arg[i].span.name, unable);
            return SHUNT_ERR_UNSUPPORTED;
        }
        st = stage_one(plan, staged, i, why, why_len);
    }
    return st;
}

static void give_up(struct shunt_comm *comm, struct shunti_staged *staged)
{
    shunti_comm_enter(comm);
    state_of(staged->request)->staged = *staged;
    shunti_request_drop(staged->request);
    shunti_comm_leave(comm);
}

void shunti_staged_init(struct shunti_staged *staged, struct shunti_cut cut)
{
    staged->cut = cut;
    staged->count = 0;
    staged->any = false;
    staged->request = staged->inner = NULL;
}

void shunti_staged_add(struct shunti_staged *staged, struct shunti_span span,
                       unsigned way)
{
    staged->arg[staged->count++] = (struct shunti_staged_argument){
        .span = span,
        .way = way,
        .use = (void *)(uintptr_t)span.at,
    };
}

/* A mask with a bit for each argument that is memory of a device. */
static unsigned look(const struct shunti_staged *staged)
{
    unsigned device = 0;

    shunti_device_look();
    for (int i = 0; i < staged->count; i++) {
        const struct shunti_staged_argument *arg = &staged->arg[i];

        if (arg->span.bytes && shunti_is_device(arg->span.at))
            device |= 1u << i;
    }
    return device;
}

static enum shunt_status stage(const struct shunti_moe_call *call,
                               struct shunti_plan *plan,
                               struct shunti_staged *staged, unsigned device)
{
    struct shunt_comm *comm = plan->moe->comm;
    char why[640] = "";
    enum shunt_status st;

    staged->any = device != 0;
    if (!device)
        return SHUNT_OK;
    shunti_comm_enter(comm);
    st = shunti_request_compose(comm, &staged_class, sizeof(struct state),
                                &staged->request);
    shunti_comm_leave(comm);
    if (st)
        return shunti_moe_call_refuse(call, plan, st, "no memory");
    st = stage_all(plan, staged, device, why, sizeof(why));
    if (!st)
        return SHUNT_OK;
    give_up(comm, staged);
    return shunti_moe_call_refuse(call, plan, st, "%s", why);
}

enum shunt_status shunti_stage(const struct shunti_moe_call *call,
                               struct shunti_plan *plan,
                               struct shunti_staged *staged)
{
    return stage(call, plan, staged, look(staged));
}

enum shunt_status shunti_stage_copies(const struct shunti_moe_call *call,
                                      struct shunti_plan *plan,
                                      struct shunti_staged *staged,
                                      unsigned *device)
{
    const struct shunti_direction *there =
        shunti_plan_direction(plan, SHUNTI_TO_EXPERTS);
    const unsigned here = look(staged);

    *device = 0;
    if (!here || there->mode != SHUNT_MOE_DIRECT ||
        !shunti_device_rows_may(plan))
        return stage(call, plan, staged, here);
    for (int i = 0; i < staged->count; i++)
        if (here >> i & 1)
            *device |= staged->arg[i].way & SHUNTI_STAGED_ROWS
                           ? SHUNTI_DEVICE_ROWS
                           : SHUNTI_DEVICE_TOKENS;
    return SHUNT_OK;
}

enum shunt_status shunti_staged_begun(struct shunti_staged *staged,
                                      enum shunt_status status,
                                      struct shunt_request **request)
{
    struct shunt_request *ours = staged->request;

    if (!staged->any)
        return status;
    if (status) {
        give_up(ours->comm, staged);
        return status;
    }
    state_of(ours)->staged = *staged;
    if (!request)
        return shunt_wait(&ours);
    *request = ours;
    return SHUNT_OK;
}
