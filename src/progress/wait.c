// SPDX-License-Identifier: Apache-2.0
/* Waiting: polling, yielding, sleeping, and the checks in between; see
 * wait.h. */
#include "src/progress/wait.h"

#include <poll.h>
#include <sched.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/inline.h"
#include "src/comm.h"
#include "src/op/note.h"
#include "src/op/operations.h"
#include "src/op/request.h"
#include "src/plugin/plugin.h"
#include "src/progress/helper.h"
#include "src/progress/liveness.h"
#include "src/progress/parked.h"
#include "src/progress/probe.h"
#include "src/progress/turns.h"
#include "src/trace/trace.h"
#include "src/trace/track.h"
#include "src/wire/contexts.h"
#include "src/wire/failure.h"
#include "src/wire/wire.h"

/* The number of rounds that a rank with a CPU of its own polls between two
 * readings of the clock. */
#define POLLS_PER_LOOK 64
/* Yields before sleeping, if ranks share CPUs. Each yield lets every other
 * runnable rank of this CPU run. */
#define YIELDS 64
/* The most descriptors in one poll(). A communicator has one for each
 * transport, and its wake_fd. */
#define MAX_FDS 256
/* Longest sleep if something has to be tried again. */
#define RETRY_NAP_MS 1
/* If one round of a loop of short naps takes so long, the process was stopped
 * meanwhile. */
#define STOPPED_NS 250000000u
/* Longest sleep. After it, an event that sent no wake-up is noticed. */
#define NAP_MS 500
/* The first and the longest nap between two calls of the user's idle(). Each
 * nap is twice as long as the one before, because work for idle() often arrives
 * in several steps, a short time apart. */
#define FIRST_IDLE_NAP_NS 50000u
#define LAST_IDLE_NAP_NS 2000000u
/* A wait does not nap for this long after idle() did something. */
#define IDLE_AWAKE_NS 200000u
/* During that time, one of so many rounds naps nevertheless, because a nap
 * checks for lost peers. */
#define AWAKE_PER_NAP 256
/* Yields between two calls of idle(). */
#define YIELDS_PER_IDLE 16

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* on most of these CPUs `yield` takes no time */
#endif
}

/* Step the communicators of `held`, and answer probes on them. */
static void step_held(struct shunt_comm *held)
{
    struct shunt_comm *comm;

    for (comm = held; comm; comm = comm->parked.next_held) {
        shunti_transports_progress(comm);
        shunti_liveness_note_events(comm);
        shunti_progress(comm);
        shunti_note_unsent(comm);
    }
}

void shunti_step_others(void)
{
    struct shunt_comm *held = shunti_parked_hold();

    step_held(held);
    shunti_parked_release(held);
}

/* Stands for the decision time of a call that sets something up. Such a call
 * has a timeout of its own, which is taken to begin now. */
#define IN_ITS_TIME UINT64_MAX

/* Answer probes on `comm` from a call elsewhere.
 *
 * decision_ns  the decision time (probe.h) of that call; 0: it has none.
 */
static void answer_from_elsewhere(struct shunt_comm *comm, uint64_t decision_ns)
{
    comm->probe.elsewhere_ns = decision_ns;
    if (decision_ns == IN_ITS_TIME)
        comm->probe.elsewhere_ns =
            shunti_now_ns() + shunti_ns(comm->liveness.timeout);
    comm->probe.visited = true;
    shunti_liveness_note_events(comm);
    comm->probe.visited = false;
}

/* Answer probes on a communicator that may have nothing under way. Returns in
 * how many ns to do so again. The interval is a part of the notice of a probe,
 * so that a probe is answered in time. */
static uint64_t answer_there(struct shunt_comm *comm, uint64_t decision_ns)
{
    const uint64_t pause = shunti_liveness_notice_ns(comm) / 4;

    if (!comm->all_mapped)
        shunti_transports_progress(comm);
    answer_from_elsewhere(comm, decision_ns);
    if (comm->all_mapped)
        return pause;
    if (comm->deferred.first)
        shunti_control_retry(comm);
    shunti_note_unsent(comm);
    return comm->parked.unsent ? RETRY_NAP_MS * 1000000u : pause;
}

/*
 * Answer probes on all communicators of this thread except `but`. Returns when
 * to do so again.
 *
 * decision_ns  the decision time of the call that this thread is in.
 */
static uint64_t answer_elsewhere(struct shunt_comm *but, uint64_t now_ns,
                                 uint64_t decision_ns)
{
    return shunti_parked_visit(but, now_ns, decision_ns, answer_there);
}

/* Check the timeout of the oldest operation. If no caller has waited for the
 * operation yet, it has no start time, and its timeout begins now. */
static void check_time(struct shunt_comm *comm, uint64_t now)
{
    if (!comm->operations.active || comm->failure.status)
        return;
    if (!comm->operations.active->begun_ns)
        comm->operations.active->begun_ns = now;
    if (comm->liveness.last_event_ns < comm->operations.active->begun_ns)
        comm->liveness.last_event_ns = comm->operations.active->begun_ns;
    shunti_liveness_check_time(comm, now);
}

/* Do once what a wait does: progress, events and probes. decision_ns: the
 * decision time of the call that waits. */
static void look(struct shunt_comm *comm, uint64_t decision_ns)
{
    uint64_t now = shunti_now_ns();

    shunti_transports_progress(comm);
    shunti_note_learn_completed(comm);
    shunti_progress(comm);
    if (decision_ns == IN_ITS_TIME)
        answer_from_elsewhere(comm, decision_ns);
    else
        shunti_liveness_note_events(comm);
    answer_elsewhere(comm, now, decision_ns);
    if (!comm->operations.active || comm->failure.status)
        return;
    shunti_liveness_look(comm);
    check_time(comm, now);
}

void shunti_look_around(struct shunt_comm *comm)
{
    look(comm, shunti_probe_decision_ns(comm));
}

void shunti_look_in(struct shunt_comm *comm)
{
    look(comm, IN_ITS_TIME);
}

/* Call the user's idle(). True: it did something a short time ago, and may soon
 * have more to do. */
static bool call_idle(const struct shunt_comm *comm,
                      struct shunti_waiter *waiter)
{
    int did;

    if (!comm->waiting.idle || !waiter->idle)
        return false;
    {
        SHUNTI_TRACK(COMPUTE);
        did = comm->waiting.idle(comm->waiting.idle_arg);
    }
    if (did) {
        waiter->naps = 0;
        waiter->idle_until_ns = shunti_now_ns() + IDLE_AWAKE_NS;
    }
    return waiter->idle_until_ns && shunti_now_ns() < waiter->idle_until_ns &&
           ++waiter->awake % AWAKE_PER_NAP;
}

/* The time to sleep, in ns, if the next check is due at `deadline_ns`. */
static uint64_t nap_ns(const struct shunt_comm *comm,
                       struct shunti_waiter *waiter, uint64_t deadline_ns)
{
    const uint64_t now = shunti_now_ns();
    uint64_t nap = (uint64_t)NAP_MS * 1000000;

    if (deadline_ns < now + nap)
        nap = (deadline_ns > now ? deadline_ns - now : 0) + 1000000;
    if (comm->waiting.idle && waiter->idle) {
        uint64_t idle_nap = LAST_IDLE_NAP_NS;

        if (waiter->naps < 6)
            idle_nap = (uint64_t)FIRST_IDLE_NAP_NS << waiter->naps;
        if (idle_nap > LAST_IDLE_NAP_NS)
            idle_nap = LAST_IDLE_NAP_NS;
        if (idle_nap < nap)
            nap = idle_nap;
        waiter->naps++;
    }
    return nap;
}

/* --- sleeping ------------------------------------------------------------- */

/* The descriptors of one poll(). */
struct watch {
    struct pollfd fds[MAX_FDS];
    nfds_t n;
    /* Sleep only for a short time: there was no room for all descriptors, or
     * something has to be tried again that no event announces. */
    bool soon;
};

static void watch_fd(struct watch *watch, int fd)
{
    if (watch->n == MAX_FDS) {
        watch->soon = true;
        return;
    }
    watch->fds[watch->n].fd = fd;
    watch->fds[watch->n].revents = 0;
    watch->fds[watch->n++].events = POLLIN;
}

/* Arm the transports of `comm`, and watch their descriptors. False: one has an
 * event already. */
static bool watch_comm(struct watch *watch, struct shunt_comm *comm)
{
    for (size_t i = 0; i < comm->contexts.count; i++) {
        const struct shunti_context *c = &comm->contexts.all[i];

        if (c->transport->arm(c->ctx))
            return false;
        watch_fd(watch, c->transport->wait_fd(c->ctx));
    }
    watch_fd(watch, comm->waiting.wake_fd);
    return true;
}

static bool is_readable(const struct watch *watch, int fd)
{
    for (nfds_t i = 0; i < watch->n; i++)
        if (watch->fds[i].fd == fd)
            return watch->fds[i].revents & POLLIN;
    return false;
}

static void disarm(struct shunt_comm *comm)
{
    for (size_t i = 0; i < comm->contexts.count; i++)
        comm->contexts.all[i].transport->disarm(comm->contexts.all[i].ctx);
}

/* Look once more before a sleep. An event from before arm() sends no wake-up,
 * and an earlier progress may have noticed a loss. A step that progresses the
 * transports may consume an event that an operation stepped earlier in this
 * round needs. True: there was nothing to do. watch->soon is set if there may
 * soon be. */
static bool is_idle(struct watch *watch, struct shunt_comm *comm)
{
    const struct shunt_request *oldest = comm->operations.active;
    const uint64_t finished = comm->operations.finished;
    const uint64_t looks = comm->contexts.looks, events = comm->contexts.events;

    comm->contexts.full = false;
    shunti_liveness_note_events(comm);
    shunti_note_learn_completed(comm);
    shunti_progress(comm);
    if (!comm->all_mapped)
        shunti_give_credits(comm, true);
    shunti_liveness_look(comm);
    watch->soon |= comm->contexts.full || comm->deferred.first;
    return comm->operations.finished == finished &&
           comm->operations.active == oldest && comm->contexts.looks == looks &&
           comm->contexts.events == events;
}

/* Look once more on all communicators that are held. */
static bool are_idle(struct watch *watch, struct shunt_comm *held)
{
    for (; held; held = held->parked.next_held)
        if (!is_idle(watch, held))
            return false;
    return true;
}

static bool watch_held(struct watch *watch, struct shunt_comm *held)
{
    for (; held; held = held->parked.next_held)
        if (!watch_comm(watch, held))
            return false;
    return true;
}

static void take_token(const struct watch *watch, const struct shunt_comm *comm)
{
    uint64_t token;
    ssize_t got;

    if (!is_readable(watch, comm->waiting.wake_fd))
        return;
    got = read(comm->waiting.wake_fd, &token, sizeof(token));
    (void)got;
}

/* Disarm the transports, and handle events. Called after a sleep, or in the
 * place of a sleep if there is something to do. */
static void get_up(const struct watch *watch, struct shunt_comm *comm)
{
    disarm(comm);
    take_token(watch, comm);
    shunti_transports_progress(comm);
    shunti_liveness_note_events(comm);
    shunti_progress(comm);
    shunti_liveness_look(comm);
}

/* A peer may be busy on a communicator that is held. So a message that arrived
 * there counts as news on `comm`, too. */
static void share_news(struct shunt_comm *comm, const struct shunt_comm *held)
{
    for (; held; held = held->parked.next_held) {
        if (held->liveness.last_event_ns <= comm->liveness.last_event_ns)
            continue;
        comm->liveness.last_event_ns = held->liveness.last_event_ns;
        comm->probe.open = false;
        comm->probe.extensions = 0;
    }
}

static uint64_t all_finished(const struct shunt_comm *comm,
                             const struct shunt_comm *held)
{
    uint64_t count = comm->operations.finished;

    for (; held; held = held->parked.next_held)
        count += held->operations.finished;
    return count;
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){.tv_sec = (time_t)(ns / 1000000000),
                             .tv_nsec = (long)(ns % 1000000000)};
}

static void sleep_a_little(struct shunt_comm *comm,
                           struct shunti_waiter *waiter, uint64_t deadline_ns)
{
    const uint64_t before = comm->operations.finished;
    struct shunt_comm *held, *c;
    struct watch watch;
    uint64_t finished;
    int woken = 1;
    bool idle;

    if (!shunti_progress_alone(comm))
        return;
    held = shunti_parked_hold();
    watch.n = 0;
    watch.soon = false;
    idle = watch_comm(&watch, comm) && watch_held(&watch, held) &&
           is_idle(&watch, comm) && !comm->deferred.first &&
           !shunti_comm_failed(comm) && are_idle(&watch, held);
    finished = all_finished(comm, held) - comm->operations.finished + before;
    if (idle) {
        uint64_t nap = nap_ns(comm, waiter, deadline_ns);
        struct timespec timeout;

        if (watch.soon && nap > RETRY_NAP_MS * 1000000u)
            nap = RETRY_NAP_MS * 1000000u;
        timeout = timespec_of(nap);
        comm->stats.sleeps++;
        woken = shunti_progress_poll(comm, watch.fds, watch.n, &timeout);
    }
    get_up(&watch, comm);
    for (c = held; c; c = c->parked.next_held)
        get_up(&watch, c);
    if (!woken && !watch.soon && all_finished(comm, held) != finished)
        comm->stats.sleeps_missed++;
    share_news(comm, held);
    shunti_parked_release(held);
}

/* poll() on `fds` for at most `ns`. Also steps the communicators that are
 * held. */
static int poll_with(struct shunt_comm *held, struct pollfd *fds,
                     unsigned long n, uint64_t ns)
{
    struct watch watch = {.soon = false};
    struct timespec timeout;
    int ready;

    step_held(held);
    for (unsigned long i = 0; i < n; i++) {
        watch_fd(&watch, fds[i].fd);
        watch.fds[i].events = fds[i].events;
    }
    if (!watch_held(&watch, held) || !are_idle(&watch, held))
        ns = 0;
    else if (watch.soon && ns > RETRY_NAP_MS * 1000000u)
        ns = RETRY_NAP_MS * 1000000u;
    timeout = timespec_of(ns);
    ready = ppoll(watch.fds, watch.n, &timeout, NULL);
    for (; held; held = held->parked.next_held)
        get_up(&watch, held);
    if (ready < 0)
        return ready;
    ready = 0;
    for (unsigned long i = 0; i < n; i++) {
        fds[i].revents = watch.fds[i].revents;
        ready += fds[i].revents != 0;
    }
    return ready;
}

static int poll_as_helper(struct shunt_comm *held, struct pollfd *fds,
                          unsigned long n, uint64_t ns)
{
    const uint64_t most = (uint64_t)NAP_MS * 1000000;
    struct timespec timeout;

    if (held) {
        const int ready = poll_with(held, fds, n, ns < most ? ns : most);

        /* A caller that awaits a notice has a timeout, as a call that waits. */
        for (; held; held = held->parked.next_held)
            if (held->requests.notices)
                check_time(held, shunti_now_ns());
        return ready;
    }
    timeout = timespec_of(ns);
    return ppoll(fds, n, ns == UINT64_MAX ? NULL : &timeout, NULL);
}

__attribute__((constructor)) static void be_the_helpers(void)
{
    shunti_help_poll = poll_as_helper;
}

/* Answer probes while a transport closes, because closing may take as long as
 * the notice of a probe. */
static void answer_meanwhile(void)
{
    answer_elsewhere(NULL, shunti_now_ns(), IN_ITS_TIME);
}

__attribute__((constructor)) static void answer_while_closing(void)
{
    shunti_transport_meanwhile = answer_meanwhile;
}

/* The ms from `now` to `until`, rounded up. */
static int ms_until(uint64_t now, uint64_t until)
{
    return now < until ? (int)((until - now + 999999) / 1000000) : 0;
}

/* As shunti_poll(). If `fds` are the descriptors of a communicator, whose
 * transports are armed, `armed` is that communicator; else NULL. */
static int poll_meanwhile(struct shunt_comm *armed, struct pollfd *fds,
                          unsigned long n, int ms, uint64_t decision_ns)
{
    const uint64_t end = shunti_now_ns() + (uint64_t)ms * 1000000;
    SHUNTI_TRACK(WAITS);

    for (;;) {
        uint64_t now = shunti_now_ns();
        uint64_t next = answer_elsewhere(armed, now, decision_ns);
        int left = ms_until(now, next < end ? next : end), ready;
        struct shunt_comm *held = shunti_parked_hold();

        if (held) {
            ready =
                poll_with(held, fds, n,
                          (uint64_t)(left < NAP_MS ? left : NAP_MS) * 1000000);
            shunti_parked_release(held);
        } else {
            ready = poll(fds, n, left);
        }
        if (ready || shunti_now_ns() >= end)
            return ready;
    }
}

int shunti_poll(struct pollfd *fds, unsigned long n, int ms)
{
    return poll_meanwhile(NULL, fds, n, ms, IN_ITS_TIME);
}

uint64_t shunti_stopped_ns(uint64_t *looked_ns)
{
    const uint64_t now = shunti_now_ns(), passed = now - *looked_ns;

    *looked_ns = now;
    return passed > STOPPED_NS ? passed : 0;
}

/* Sleep until a transport of `comm` has an event, at most `ms`. decision_ns:
 * the decision time of this call, for replies on other communicators. */
static void nap(struct shunt_comm *comm, int ms, uint64_t decision_ns)
{
    struct watch watch = {.n = 0};

    answer_elsewhere(NULL, shunti_now_ns(), decision_ns);
    if (watch_comm(&watch, comm))
        poll_meanwhile(comm, watch.fds, watch.n, ms, decision_ns);
    disarm(comm);
    take_token(&watch, comm);
    shunti_transports_progress(comm);
}

void shunti_transports_nap(struct shunt_comm *comm, int ms)
{
    nap(comm, ms, IN_ITS_TIME);
}

void shunti_transports_nap_for_peers(struct shunt_comm *comm, int ms)
{
    nap(comm, ms, 0);
}

SHUNTI_NOINLINE void shunti_waiter_pause(struct shunt_comm *comm,
                                         struct shunti_waiter *waiter)
{
    uint64_t now, deadline, visit;
    bool busy = false;

    waiter->rounds++;
    /* A short wait is not worth two readings of the clock. */
    if (comm->polls_first && waiter->rounds < POLLS_PER_LOOK)
        return;
    if (shunti_tracked())
        shunti_track_wait();
    if (!waiter->began_ns) {
        waiter->began_ns = shunti_now_ns();
        return;
    }
    if (!comm->all_mapped)
        shunti_transports_progress(comm);
    if (!comm->oversubscribed) {
        if (waiter->rounds % POLLS_PER_LOOK) {
            if (waiter->rounds > 4 * POLLS_PER_LOOK)
                relax();
            return;
        }
        shunti_step_others();
        now = shunti_now_ns();
        busy = call_idle(comm, waiter);
        if (now - waiter->began_ns < comm->waiting.spin_ns)
            return;
        if (busy ||
            now - waiter->began_ns < 2 * (uint64_t)comm->waiting.spin_ns) {
            sched_yield();
            return;
        }
    } else {
        shunti_step_others();
        if (waiter->rounds >= YIELDS || waiter->rounds % YIELDS_PER_IDLE == 0)
            busy = call_idle(comm, waiter);
        if (busy || waiter->rounds < YIELDS) {
            sched_yield();
            return;
        }
    }
    shunti_liveness_note_events(comm);
    if (comm->liveness.last_event_ns < waiter->began_ns)
        comm->liveness.last_event_ns = waiter->began_ns;
    now = shunti_now_ns();
    deadline = shunti_liveness_check_time(comm, now);
    visit = answer_elsewhere(comm, now, shunti_probe_decision_ns(comm));
    if (!comm->failure.status)
        sleep_a_little(comm, waiter, deadline < visit ? deadline : visit);
}

SHUNTI_NOINLINE void shunti_waiter_end(struct shunt_comm *comm,
                                       struct shunti_waiter *waiter)
{
    uint64_t now;

    if (!waiter->began_ns)
        return;
    now = shunti_now_ns();
    comm->stats.seconds_waiting += (double)(now - waiter->began_ns) * 1e-9;
    answer_elsewhere(
        comm, now,
        /* Probes must be answered here, because many short waits may follow,
         * which answer none. */
        shunti_probe_decision_ns(comm));
    if (shunti_trace_enabled())
        shunti_trace_wait(comm->rank, waiter->began_ns, now);
    if (shunti_tracked())
        shunti_track_waited();
}
