// SPDX-License-Identifier: Apache-2.0
/* Operations: numbering, stepping, finishing; see request.h. */
#include "src/request.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/comm.h"
#include "src/error.h"
#include "src/note.h"
#include "src/scratch.h"
#include "src/trace.h"
#include "src/trace_request.h"
#include "src/wait.h"
#include "src/whole.h"

/* Tests without a wait between two looks at the transports. */
#define TESTS_PER_LOOK 32

const char *shunti_request_name(const struct shunt_request *request)
{
    const char *name = shunti_purpose_name(request->signature);

    return name ? name : request->class->name;
}

static struct shunt_request *take_spare(struct shunt_comm *comm,
                                        size_t state_bytes)
{
    struct shunt_request *request = comm->spare;

    if (request && state_bytes <= request->capacity) {
        comm->spare = request->next;
    } else {
        size_t capacity =
            state_bytes > comm->spare_state ? state_bytes : comm->spare_state;

        request = malloc(sizeof(*request) + capacity);
        if (!request)
            return NULL;
        request->capacity = capacity;
    }
    return request;
}

/* It may outlive the call that makes it, and the communicator, too. */
static void enlist(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    request->listed = true;
    request->newer = NULL;
    request->older = comm->newest;
    if (comm->newest)
        comm->newest->newer = request;
    comm->newest = request;
}

static void delist(struct shunt_request *request)
{
    if (request->newer)
        request->newer->older = request->older;
    else
        request->comm->newest = request->older;
    if (request->older)
        request->older->newer = request->newer;
}

/* Its story has been told, or it had none. */
static void give_back(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    if (request->listed)
        delist(request);
    if (request->capacity != comm->spare_state) {
        free(request);
        return;
    }
    request->next = comm->spare;
    comm->spare = request;
}

enum shunt_status shunti_request_create(struct shunt_comm *comm,
                                        const struct shunti_class *class,
                                        uint32_t signature, size_t state_bytes,
                                        struct shunt_request **out)
{
    enum shunt_status st = shunti_comm_check(comm);
    struct shunt_request *request;

    *out = NULL;
    if (st)
        return st;
    if (comm->finished)
        return shunti_fail(&comm->error, SHUNT_ERR_INVALID,
                           "%s after shunt_comm_finish(): only destroy it now",
                           class->name);
    if (comm->owed)
        comm->owed(comm);
    request = take_spare(comm, state_bytes);
    if (!request)
        return shunti_comm_fail(comm, SHUNT_ERR_MEMORY, comm->rank,
                                "%s: no memory for %zu bytes of state",
                                class->name, state_bytes);
    request->class = class;
    request->comm = comm;
    request->seq = comm->next_seq++;
    request->signature = signature | comm->purpose;
    request->status = SHUNT_IN_PROGRESS;
    request->error = SHUNT_OK;
    request->hearsay = false;
    request->detached = false;
    request->trailing = false;
    request->stepping = false;
    request->in_turn = false;
    request->listed = false;
    request->ways = NULL;
    request->story = NULL;
    request->begun_ns = 0;
    request->next = NULL;
    /* Of a size that it knows the compiler makes "rep stos", which takes longer
     * to begin than libc's takes for it all. */
    __asm__("" : "+r"(state_bytes));
    memset(request->state, 0, state_bytes);
    *comm->active_tail = request;
    comm->active_tail = &request->next;
    *out = request;
    return SHUNT_OK;
}

/* Peers that wait for it are woken, or told, well before they run out of
 * slots. */
static void publish_completed(struct shunt_comm *comm)
{
    uint64_t old = comm->completed;
    uint64_t now = (comm->active ? comm->active->seq : comm->next_seq) - 1;
    int r;

    if (now == old)
        return;
    comm->completed = now;
    /* Pairs with the acquire in shunti_note_room(). */
    __atomic_store_n(
        (uint64_t *)(void *)(comm->control + comm->layout.completed), now,
        __ATOMIC_RELEASE);
    /* A peer that waits for room sleeps, too. */
    if (now / (SHUNTI_DEPTH / 4) == old / (SHUNTI_DEPTH / 4))
        return;
    for (r = 0; r < comm->nranks; r++) {
        struct shunti_peer *p = &comm->peers[r];

        if (r != comm->rank && p->ep && p->control)
            p->transport->wake(p->ep);
    }
    if (!comm->all_mapped)
        shunti_give_credits(comm, false);
}

static void unlink_active(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;
    struct shunt_request **at = &comm->active;

    while (*at != request)
        at = &(*at)->next;
    *at = request->next;
    if (!*at)
        comm->active_tail = at;
}

SHUNTI_APART static void drop_story(struct shunt_request *request)
{
    free(request->story);
    request->story = NULL;
}

SHUNTI_APART static void drop_ways(struct shunt_request *request)
{
    free(request->ways);
    request->ways = NULL;
}

/* Its call has returned: the next one tells. Of several the first is told. */
static void keep_for_next(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;

    if (comm->late.status) {
        drop_story(request);
        return;
    }
    comm->late.status = request->status;
    comm->late.story = request->story;
    request->story = NULL;
}

SHUNTI_APART static enum shunt_status tell_late(struct shunt_comm *comm)
{
    const enum shunt_status st = comm->late.status;

    if (comm->late.held || comm->purpose)
        return SHUNT_OK;
    shunti_fail(&comm->error, st, "an earlier call, which had returned: %s",
                comm->late.story ? comm->late.story : shunt_strerror(st));
    free(comm->late.story);
    comm->late.story = NULL;
    comm->late.status = SHUNT_OK;
    return st;
}

/* Other operations may fail before somebody asks about this one, unless nobody
 * will. */
SHUNTI_APART static void keep_story(struct shunt_request *request)
{
    if (request->trailing && !request->comm->failure)
        keep_for_next(request);
    else if (request->detached)
        drop_story(request);
    else if (!request->story)
        request->story = strdup(shunt_last_error(request->comm));
}

/* It is collected now. */
SHUNTI_APART static void tell_story(struct shunt_request *request)
{
    shunti_fail_again(&request->comm->error, request->story
                                                 ? request->story
                                                 : request->comm->failure_text);
    drop_story(request);
}

static void finish(struct shunt_request *request, enum shunt_status status)
{
    struct shunt_comm *comm = request->comm;

    request->status = request->error ? request->error : status;
    if (request->status)
        keep_story(request);
    if (comm->zcopies.open)
        shunti_zcopy_end(request, comm->failure != 0);
    if (request->class->cleanup)
        request->class->cleanup(request);
    unlink_active(request);
    publish_completed(comm);
    comm->finished_count++;
    comm->stats.operations++;
    if (shunti_trace_enabled())
        shunti_trace_request(request);
    if (request->ways)
        drop_ways(request);
    if (request->detached)
        give_back(request);
}

static void advance(struct shunt_request *request)
{
    enum shunt_status st;

    if (request->stepping)
        return;
    /* What others tell us of the communicator's end need not keep us from
     * finishing: who told us may have finished it. */
    st = request->comm->failure ? shunti_comm_check(request->comm) : SHUNT_OK;
    if (!st) {
        request->stepping = true;
        st = request->class->step(request);
        request->stepping = false;
    }
    /* Who gives up tells us before he returns and uses his memory for something
     * else: what we have read there is only good if nobody has told us yet. */
    if (st == SHUNT_IN_PROGRESS || !request->class->from_notes) {
        enum shunt_status over;

        atomic_thread_fence(memory_order_acquire);
        over = shunti_comm_check(request->comm);
        if (over)
            st = over;
        else if (st == SHUNT_IN_PROGRESS)
            return;
    }
    finish(request, st);
}

void shunti_progress(struct shunt_comm *comm)
{
    struct shunt_request *request = comm->active, *next;

    if (comm->progressing) /* called from within a step */
        return;
    comm->progressing = true;
    if (comm->deferred)
        shunti_control_retry(comm);
    for (; request; request = next) {
        next = request->next;
        /* Nobody waits for it, and it would be published after those before. */
        if (request->trailing && request != comm->active)
            continue;
        advance(request);
    }
    comm->progressing = false;
}

static void begin(struct shunt_request *request)
{
    if (shunti_trace_enabled())
        shunti_trace_request_begin(request);
    advance(request);
}

void shunti_request_begin(struct shunt_request *request)
{
    enlist(request);
    begin(request);
}

/*
 * Others may still be in this call, with notes that wait for their turn: theirs
 * of an older operation must go first, and these for what we send in it. Who
 * waits for it is here, and takes it.
 */
static bool holds_up(const struct shunt_comm *comm,
                     const struct shunt_request *request)
{
    const struct shunt_request *older = comm->active;

    if (!request->in_turn || comm->progressing)
        return false;
    for (; older && older->seq < request->seq; older = older->next)
        if (older->class->owes && older->class->owes(older))
            return true;
    return false;
}

/*
 * What others still need of us goes out before a call returns: the caller may
 * compute for long before it comes back. But not for long: what keeps it from
 * going is noticed by the next call, whose own time begins only then.
 */
SHUNTI_APART static bool sees_off(struct shunt_comm *comm, uint64_t since_ns)
{
    double limit = comm->timeout / 8 < 1 ? comm->timeout / 8 : 1;

    if (comm->progressing)
        return false;
    comm->aside.unsent = !shunti_all_sent(comm);
    return comm->aside.unsent && !shunt_comm_async_status(comm) &&
           (double)(shunti_now_ns() - since_ns) < limit * 1e9;
}

enum shunt_status shunti_request_collect(struct shunt_request *request)
{
    enum shunt_status st = request->status;

    if (st)
        tell_story(request);
    give_back(request);
    return st;
}

enum shunt_status shunti_request_late(struct shunt_comm *comm,
                                      enum shunt_status status)
{
    return !status && comm->late.status ? tell_late(comm) : status;
}

/* Leave it under way. */
SHUNTI_APART static enum shunt_status trail(struct shunt_request *request)
{
    request->detached = request->trailing = true;
    if (!request->listed)
        enlist(request);
    return SHUNT_OK;
}

SHUNTI_APART static bool settled(const struct shunt_request *request)
{
    return !request->error && request->comm->all_mapped &&
           !request->comm->progressing && request->class->settled(request);
}

/* Who is in our call has said before all that it had to say. Who had nothing to say,
 * because it made another call, is known by its count of operations, at which we
 * look when something is wrong. */
SHUNTI_APART static void hear_trailing(struct shunt_comm *comm)
{
    shunti_progress(comm);
    if (comm->active && comm->active->trailing && comm->active->error) {
        shunti_note_learn_completed(comm);
        shunti_progress(comm);
    }
}

enum shunt_status shunti_request_wait(struct shunt_request *request)
{
    struct shunt_comm *comm = request->comm;
    struct shunti_waiter waiter = {.idle = true};
    const bool may_leave = request->class->settled != NULL;
    bool leaves = false;

    while (request->status == SHUNT_IN_PROGRESS) {
        if (may_leave && (leaves = settled(request)))
            break;
        shunti_waiter_pause(comm, &waiter);
        shunti_progress(comm);
    }
    while (comm->active && holds_up(comm, request)) {
        shunti_waiter_pause(comm, &waiter);
        shunti_progress(comm);
    }
    if (!comm->all_mapped) {
        uint64_t since = shunti_now_ns();

        while (sees_off(comm, since)) {
            shunti_waiter_pause(comm, &waiter);
            shunti_progress(comm);
        }
    }
    shunti_waiter_end(comm, &waiter);
    if (comm->active) {
        if (comm->active->trailing)
            hear_trailing(comm);
        /* It may have ended since. */
        if (leaves && request->status == SHUNT_IN_PROGRESS)
            return trail(request);
    }
    return shunti_request_collect(request);
}

enum shunt_status shunti_request_launch(struct shunt_request *request,
                                        struct shunt_request **out)
{
    if (!out) {
        begin(request);
        return shunti_request_wait(request);
    }
    shunti_request_begin(request);
    *out = request;
    /* It may be over for us, and others still need what we sent. */
    shunti_note_unsent(request->comm);
    return SHUNT_OK;
}

enum shunt_status shunti_request_error(struct shunt_request *request,
                                       enum shunt_status status,
                                       const char *format, ...)
{
    char text[400];
    va_list args;

    if (request->error && !request->hearsay)
        return request->error;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    request->error = status;
    request->hearsay = false;
    free(request->story);
    request->story = strdup(text);
    return shunti_fail(&request->comm->error, status, "%s", text);
}

/* --- a refused call -------------------------------------------------------- */

struct refusal {
    int status;
    int next;
};

/* Post the refusal to each peer as it has room. */
static enum shunt_status refusal_step(struct shunt_request *request)
{
    struct refusal *state = (struct refusal *)(void *)request->state;
    struct shunt_comm *comm = request->comm;

    for (; state->next < comm->nranks; state->next++) {
        struct shunti_note *note;

        if (state->next == comm->rank)
            continue;
        if (!shunti_note_room(request, state->next))
            return SHUNT_IN_PROGRESS;
        note = shunti_note_compose(request, state->next);
        note->way = SHUNTI_WAY_REFUSED;
        note->bytes = 0;
        note->status = state->status;
        shunti_note_send(request, state->next, note, 0);
    }
    return SHUNT_OK;
}

static bool refusal_awaits(const struct shunt_request *request, int peer)
{
    const struct refusal *state =
        (const struct refusal *)(const void *)request->state;

    return peer == state->next;
}

static const struct shunti_class refusal_class = {
    .name = "refused call",
    .step = refusal_step,
    .awaits = refusal_awaits,
    .from_notes = true,
};

enum shunt_status shunti_request_refuse(struct shunt_comm *comm,
                                        uint32_t signature,
                                        enum shunt_status status,
                                        const char *format, ...)
{
    struct shunt_request *request;
    struct refusal *state;
    enum shunt_status st;
    char text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    st = shunti_request_create(comm, &refusal_class, signature,
                               sizeof(struct refusal), &request);
    if (st)
        return st;
    state = (struct refusal *)(void *)request->state;
    state->status = status;
    request->detached = true;
    shunti_request_begin(request);
    return shunti_fail(&comm->error, status, "%s", text);
}

/* --- the end ---------------------------------------------------------------- */

void shunti_requests_drop(struct shunt_comm *comm)
{
    struct shunt_request *request;

    while ((request = comm->active)) {
        comm->active = request->next;
        if (comm->zcopies.open)
            shunti_zcopy_end(request, true);
        if (request->class->cleanup)
            request->class->cleanup(request);
        drop_ways(request);
    }
    while ((request = comm->spare)) {
        comm->spare = request->next;
        free(request);
    }
}

void shunti_requests_free(struct shunt_comm *comm)
{
    struct shunt_request *request;

    shunti_requests_drop(comm);
    while ((request = comm->newest)) {
        comm->newest = request->older;
        free(request->story);
        free(request);
    }
    shunti_scratch_leave(comm);
}

/* --- public ----------------------------------------------------------------- */

enum shunt_status shunt_test(struct shunt_request **request)
{
    struct shunt_request *r;
    struct shunt_comm *comm;
    enum shunt_status st;

    if (!request)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "shunt_test: request is NULL");
    r = *request;
    if (!r)
        return SHUNT_OK;
    comm = r->comm;
    shunti_comm_enter(comm);
    if (r->status == SHUNT_IN_PROGRESS) {
        if (!r->begun_ns)
            r->begun_ns = shunti_now_ns();
        if (!comm->all_mapped || ++comm->tests % TESTS_PER_LOOK == 0)
            shunti_look_around(comm);
        else
            shunti_progress(comm);
        shunti_step_others();
    }
    st = r->status;
    if (!r->begun_ns)
        r->begun_ns = shunti_now_ns();
    if (st != SHUNT_IN_PROGRESS && holds_up(comm, r)) {
        shunti_look_around(comm);
        if (holds_up(comm, r))
            st = SHUNT_IN_PROGRESS;
    }
    if (st != SHUNT_IN_PROGRESS && !comm->all_mapped &&
        sees_off(comm, r->begun_ns)) {
        shunti_look_around(comm);
        if (sees_off(comm, r->begun_ns))
            st = SHUNT_IN_PROGRESS;
    }
    if (st != SHUNT_IN_PROGRESS) {
        st = shunti_request_late(comm, shunti_request_collect(r));
        *request = NULL;
    }
    shunti_comm_leave(comm);
    return st;
}

enum shunt_status shunt_wait(struct shunt_request **request)
{
    struct shunt_request *r;
    struct shunt_comm *comm;
    enum shunt_status st;

    if (!request)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "shunt_wait: request is NULL");
    r = *request;
    if (!r)
        return SHUNT_OK;
    comm = r->comm;
    shunti_comm_enter(comm);
    st = shunti_request_late(comm, shunti_request_wait(r));
    *request = NULL;
    shunti_comm_leave(comm);
    return st;
}

enum shunt_status shunt_wait_all(struct shunt_request **requests, size_t count)
{
    enum shunt_status first = SHUNT_OK, st;
    struct shunt_comm *failed = NULL;
    char story[512];
    size_t i;

    if (count && !requests)
        return shunti_fail(NULL, SHUNT_ERR_INVALID,
                           "shunt_wait_all: requests is NULL");
    for (i = 0; i < count; i++) {
        struct shunt_comm *comm = requests[i] ? requests[i]->comm : NULL;

        st = shunt_wait(&requests[i]);
        if (st && !first) {
            first = st;
            failed = comm;
            snprintf(story, sizeof(story), "%s", shunt_last_error(NULL));
        }
    }
    if (first) {
        shunti_comm_enter(failed);
        shunti_fail_again(&failed->error, story);
        shunti_comm_leave(failed);
    }
    return first;
}
