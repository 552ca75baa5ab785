// SPDX-License-Identifier: Apache-2.0
/*
 * The helper thread; see helper.h.
 *
 * `life` protects the start and the end of the thread; `lock` protects the list
 * of communicators. The thread itself locks only `lock`, and not while it
 * sleeps or steps. Stepping needs no lock, because the thread holds the
 * communicators that it steps (parked.h).
 *
 * Before a fork() the thread is ended, and afterwards it is started again in
 * the parent. So in the child no lock is taken, and no communicator held, by a
 * thread that does not exist there. The child removes the parent's
 * communicators from the list, because it must not step them. If the thread
 * itself forks, in a callback of shunt_notify(), it is not ended, and continues
 * in the parent.
 */
#include "src/progress/helper.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "src/base/error.h"
#include "src/base/inline.h"
#include "src/base/log.h"
#include "src/comm.h"
#include "src/progress/parked.h"
#include "src/progress/paused.h"
#include "src/trace/trace.h"
#include "src/trace/track.h"
#include "transports/common/descriptor.h"

/* The bounds of a communicator's patience (helper.h). The lower one is about
 * ten times the cost of a handover. With that patience, nobody steps the
 * communicator for so long at the beginning of an absence. */
#define MIN_PATIENCE_NS 100000u
#define MAX_PATIENCE_NS 20000000u
/* An absence of the caller, or a hold by the helper, that lasted at least this
 * long was worth a handover. */
#define LONG_NS (10 * MIN_PATIENCE_NS)
/* The shortest time slice that the kernel grants; see
 * ask_for_short_slices(). */
#define SLICE_NS 100000u
/* After a round of work the helper rests RESTS times as long, but at most
 * LONGEST_REST_NS. Meanwhile more data for the next round arrives in buffers of
 * the kernel. */
#define RESTS 10
#define LONGEST_REST_NS 1000000u
/* After so many rests without news the helper sleeps until an event. */
#define VAIN_RESTS 2
/* The most descriptors that the helper watches in a rest. */
#define MAX_FDS 64
/* If another thread holds the communicator, as an owner does that waits
 * elsewhere, look at the communicator again after this time. */
#define ELSEWHERE_NS 10000000u

int (*shunti_help_poll)(struct shunt_comm *held, struct pollfd *fds,
                        unsigned long n, uint64_t ns);

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shunt_comm *first; /* under `lock` */
static bool stop;                /* under `lock` */
static struct {
    bool running, watches_forks, unable;
    int rank; /* for log messages */
    pthread_t id;
    /* An eventfd that ends the helper's sleep. It is open as long as a call may
     * write to it: ring(). */
    int bell;
} helper = {.bell = -1}; /* under `life` */
/* When the helper will look at the communicators again without being woken:
 * SOON, within MIN_PATIENCE_NS; LATER, within MAX_PATIENCE_NS; NEVER, not
 * before it is woken. */
enum { SOON, LATER, NEVER };
static atomic_int next_look; /* SOON, LATER or NEVER */

/* --- the callers' side ---------------------------------------------------- */

static void ring(void)
{
    static const uint64_t one = 1;
    ssize_t put = write(helper.bell, &one, sizeof(one));

    (void)put; /* if the eventfd is full, it is readable already */
}

/* --- the thread ----------------------------------------------------------- */

static void be_patient(struct shunt_comm *comm)
{
    uint64_t *patience = &comm->help.patience_ns;

    *patience =
        *patience < MAX_PATIENCE_NS / 2 ? 2 * *patience : MAX_PATIENCE_NS;
}

/*
 * Continue on the CPU that the caller computes on. The kernel moves the helper
 * away when a rest ends and a CPU is idle. If no CPU is idle, the helper takes
 * time from its own caller. Time taken from another rank would delay two ranks:
 * that rank, and the caller, which waits for it. Without this, an event that
 * wakes the helper may move it to the CPU that does the network's work, idle or
 * not, and the helper would stay there.
 */
static void follow_caller(int cpu)
{
    cpu_set_t all, one;

    if (cpu < 0 || cpu >= CPU_SETSIZE || cpu == sched_getcpu() ||
        sched_getaffinity(0, sizeof(all), &all))
        return;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (CPU_ISSET(cpu, &all) && !sched_setaffinity(0, sizeof(one), &one))
        sched_setaffinity(0, sizeof(all), &all);
}

/* Hold `comm` if its caller has been away for the communicator's patience.
 * Returns in how many ns to look again. */
static uint64_t look_at(struct shunt_comm *comm, uint64_t now,
                        struct shunt_comm **held)
{
    struct shunti_help *help = &comm->help;
    const unsigned stamp = atomic_load(&help->stamp);

    if (help->mine || stamp == help->done)
        return UINT64_MAX;
    if (!help->patience_ns || atomic_exchange(&help->urgent, false)) {
        help->patience_ns = MIN_PATIENCE_NS;
        help->watched = false;
    }
    if (!help->watched || stamp != help->seen) {
        if (help->watched)
            be_patient(comm);
        help->watched = true;
        help->seen = stamp;
        help->seen_ns = now;
        return help->patience_ns;
    }
    if (!atomic_load_explicit(&comm->parked.put, memory_order_relaxed)) {
        /* The caller is in a call, or has left no operation under way. */
        be_patient(comm);
        help->watched = false;
        help->done = stamp;
        return UINT64_MAX;
    }
    if (now - help->seen_ns < help->patience_ns)
        return help->patience_ns - (now - help->seen_ns);
    if (!shunti_parked_try_hold(comm))
        return ELSEWHERE_NS;
    help->watched = false;
    if (!shunti_wants_steps(comm)) {
        help->done = stamp;
        shunti_parked_yield(comm);
        return UINT64_MAX;
    }
    help->mine = true;
    atomic_store(&help->recalled, false);
    follow_caller(atomic_load(&help->cpu));
    help->held_ns = now;
    comm->stats.helped++;
    comm->parked.next_held = *held;
    *held = comm;
    return UINT64_MAX;
}

static uint64_t look_around(uint64_t now, struct shunt_comm **held)
{
    uint64_t pause = UINT64_MAX;

    for (struct shunt_comm *c = first; c; c = c->help.next) {
        uint64_t wanted = look_at(c, now, held);

        pause = wanted < pause ? wanted : pause;
    }
    return pause;
}

/* Release `comm`, because its caller is back or, if `done`, because nothing is
 * left to do. */
static void hand_over(struct shunt_comm *comm, uint64_t now, bool done)
{
    if (now - comm->help.held_ns >= LONG_NS)
        comm->help.patience_ns = MIN_PATIENCE_NS;
    else if (!done)
        be_patient(comm);
    if (done)
        comm->help.done = comm->help.seen;
    comm->help.mine = false;
    shunti_parked_yield(comm);
}

static bool is_wanted(const struct shunt_comm *comm)
{
    return shunti_parked_is_wanted(comm) || atomic_load(&comm->help.recalled);
}

/* Release the held communicators that a caller wants back, or that need no more
 * steps. If `all`, release every one. */
static void release_held(struct shunt_comm **held, uint64_t now, bool all)
{
    struct shunt_comm **at = held;

    while (*at) {
        struct shunt_comm *comm = *at;
        const bool done = !shunti_wants_steps(comm);

        if (!all && !done && !is_wanted(comm)) {
            at = &comm->parked.next_held;
            continue;
        }
        *at = comm->parked.next_held;
        hand_over(comm, now, done);
    }
}

/* Messages that arrive while every CPU computes need little work, but the link
 * is idle until that work is done. A thread that asks for short slices runs
 * soon after it wakes up, and gets no more time than others (Linux 6.12; older
 * kernels ignore it). */
static void ask_for_short_slices(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } how = {.size = sizeof(how), .runtime = SLICE_NS};

    how.nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
    syscall(SYS_sched_setattr, 0, &how, 0);
}

/* A number that changes when a message has arrived from a peer, or an operation
 * has ended. */
static uint64_t news_of(const struct shunt_comm *held)
{
    uint64_t news = 0;

    for (; held; held = held->parked.next_held)
        news += held->contexts.events + held->operations.finished;
    return news;
}

/* Rest, so that several packets are handled in one round: a round for each
 * would cost several times the CPU time, while the caller computes. A rest ends
 * when a communicator is wanted back. */
static void rest(const struct shunt_comm *held, struct pollfd *bell)
{
    static uint64_t worked_ns; /* CPU time of this thread until its last rest */
    struct pollfd fds[MAX_FDS];
    struct timespec time;
    uint64_t now, ns;
    nfds_t n = 0;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    now = (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
    ns = now > worked_ns ? RESTS * (now - worked_ns) : 0;
    worked_ns = now;
    fds[n++] = *bell;
    for (; held; held = held->parked.next_held) {
        if (is_wanted(held) || n == MAX_FDS)
            return;
        fds[n].fd = held->waiting.wake_fd;
        fds[n++].events = POLLIN;
    }
    time.tv_sec = 0;
    time.tv_nsec = (long)(ns < LONGEST_REST_NS ? ns : LONGEST_REST_NS);
    if (ppoll(fds, n, &time, NULL) > 0)
        bell->revents = fds[0].revents;
}

/* Step the communicators of `held` once, and rest. If none is held, or some
 * rests in a row brought no news, also sleep until an event, for at most
 * `pause`. */
static void work(struct shunt_comm *held, struct pollfd *bell, uint64_t pause)
{
    static unsigned vain; /* used only by this thread */
    const uint64_t before = news_of(held);
    const bool sleeps = !held || vain >= VAIN_RESTS;

    shunti_help_poll(held, bell, 1, sleeps ? pause : 0);
    if (held && sleeps)
        follow_caller(atomic_load(&held->help.cpu));
    vain = held && !sleeps && news_of(held) == before ? vain + 1 : 0;
    if (held && !bell->revents)
        rest(held, bell);
}

/* This thread is the helper. */
static _Thread_local bool is_helper;

static void *help(void *arg)
{
    struct shunt_comm *held = NULL;
    struct pollfd bell = {.fd = helper.bell, .events = POLLIN};

    (void)arg;
    is_helper = true;
    shunti_log_set_rank(helper.rank);
    ask_for_short_slices();
    shunti_track_begin_inside(helper.rank, "helper");
    for (;;) {
        uint64_t pause, token;

        /* Set this before the look. If the look misses the new stamp of a call,
         * that call finds NEVER, and rings. */
        atomic_store(&next_look, NEVER);
        pthread_mutex_lock(&lock);
        if (stop)
            break;
        pause = look_around(shunti_now_ns(), &held);
        pthread_mutex_unlock(&lock);
        if (pause <= MAX_PATIENCE_NS)
            atomic_store(&next_look, pause > MIN_PATIENCE_NS ? LATER : SOON);
        work(held, &bell, pause);
        if (bell.revents & POLLIN) {
            ssize_t got = read(bell.fd, &token, sizeof(token));

            (void)got;
        }
        release_held(&held, shunti_now_ns(), false);
    }
    pthread_mutex_unlock(&lock);
    release_held(&held, shunti_now_ns(), true);
    shunti_track_end();
    return NULL;
}

/* --- start and end -------------------------------------------------------- */

/* Block all signals in the thread: they are for the program's own threads. */
static int create_thread(void)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&helper.id, NULL, help, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!error) {
        shunti_stdio_occupy(); /* the name is written to a file in /proc */
        pthread_setname_np(helper.id, "shunt-helper");
        shunti_stdio_release();
    }
    return error;
}

static void close_bell(void)
{
    if (helper.bell >= 0)
        close(helper.bell);
    helper.bell = -1;
}

static bool start(void)
{
    int error = 0;

    if (helper.bell < 0)
        helper.bell = shunti_fd_lift(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (helper.bell < 0) {
        error = errno;
    } else {
        stop = false;
        helper.rank = shunti_log_rank();
        error = create_thread();
    }
    if (!error) {
        helper.running = true;
        return true;
    }
    if (!first)
        close_bell();
    if (!helper.unable)
        shunti_info("comm",
                    "no helper thread: %s; started calls advance in calls only",
                    strerror(error));
    helper.unable = true;
    return false;
}

static void end(void)
{
    pthread_mutex_lock(&lock);
    stop = true;
    pthread_mutex_unlock(&lock);
    ring();
    pthread_join(helper.id, NULL);
    helper.running = false;
    atomic_store(&next_look, SOON);
}

/* If the helper itself forks, in a callback of shunt_notify(), this does
 * nothing: the helper cannot wait for its own end. The helper has no lock
 * there. It must not lock `life`, because a thread that has `life` locked may
 * be waiting for the helper's end. */
static void before_fork(void)
{
    if (is_helper)
        return;
    pthread_mutex_lock(&life);
    if (helper.running)
        end();
}

static void after_fork(void)
{
    if (is_helper)
        return;
    if (first)
        start();
    pthread_mutex_unlock(&life);
}

static void after_fork_in_child(void)
{
    static const pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
    struct shunt_comm *comm;

    while ((comm = first)) {
        first = comm->help.next;
        comm->help.may = comm->help.started = comm->help.attached = false;
    }
    close_bell(); /* the child's descriptor of the parent's eventfd */
    helper.running = false;
    is_helper = false;
    life = free_lock;
    lock = free_lock;
}

/* End the thread if a program exits without destroying its communicators. */
__attribute__((destructor)) static void at_exit(void)
{
    if (pthread_mutex_trylock(&life))
        return;
    if (helper.running)
        end();
    pthread_mutex_unlock(&life);
}

SHUNTI_NOINLINE static bool attach(struct shunt_comm *comm)
{
    pthread_mutex_lock(&life);
    if (!helper.watches_forks)
        helper.watches_forks =
            !pthread_atfork(before_fork, after_fork, after_fork_in_child);
    if (helper.watches_forks && (helper.running || start())) {
        pthread_mutex_lock(&lock);
        comm->help.next = first;
        first = comm;
        pthread_mutex_unlock(&lock);
        comm->help.attached = true;
        shunti_info("comm", "a helper thread steps what is under way while "
                            "the caller is away");
    } else {
        comm->help.may = comm->help.started = false;
    }
    pthread_mutex_unlock(&life);
    return comm->help.attached;
}

SHUNTI_NOINLINE void shunti_help_ask(struct shunt_comm *comm)
{
    int look;

    if (!comm->help.attached && !attach(comm))
        return;
    atomic_store_explicit(&comm->help.cpu, sched_getcpu(),
                          memory_order_relaxed);
    comm->help.left_ns = shunti_now_ns();
    if (comm->help.was_long)
        atomic_store(&comm->help.urgent, true);
    atomic_fetch_add(&comm->help.stamp, 1);
    look = atomic_load(&next_look);
    if (look == NEVER || (look == LATER && comm->help.was_long))
        if (atomic_exchange(&next_look, SOON) != SOON)
            ring();
}

enum shunt_status shunti_help_notices(struct shunt_comm *comm)
{
    if (comm->thread.exists || comm->help.attached || attach(comm))
        return SHUNT_OK;
    return shunti_fail(&comm->error, SHUNT_ERR_SYSTEM,
                       "shunt_notify: no helper thread can be made, so nothing "
                       "would end the request while its caller is away; test "
                       "it or wait");
}

void shunti_help_back(struct shunt_comm *comm)
{
    comm->help.was_long = shunti_now_ns() - comm->help.left_ns >= LONG_NS;
}

void shunti_help_forget(struct shunt_comm *comm)
{
    if (!comm->help.attached)
        return;
    pthread_mutex_lock(&life);
    pthread_mutex_lock(&lock);
    for (struct shunt_comm **at = &first; *at; at = &(*at)->help.next)
        if (*at == comm) {
            *at = comm->help.next;
            break;
        }
    pthread_mutex_unlock(&lock);
    if (!first && helper.running)
        end();
    if (!first)
        close_bell();
    comm->help.attached = comm->help.started = comm->help.may = false;
    pthread_mutex_unlock(&life);
}
