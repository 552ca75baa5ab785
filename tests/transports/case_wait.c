// SPDX-License-Identifier: Apache-2.0
/* Conformance: sleeping, and the loss of peers. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/transports/cases.h"

/* A token passes from rank to rank, and each rank sleeps until it arrives. If
 * memory is mapped, the token is sent by a plain store and wake() every other
 * time. */
void case_sleep(struct rank *r)
{
    enum { ROUNDS = 3000 };
    const int to = (r->rank + 1) % r->nranks;
    const uint64_t rounds = (uint64_t)(ROUNDS / r->nranks);
    struct window w;

    window_create(r, &w, 64);
    for (uint64_t k = 1; k <= rounds; k++) {
        if (r->rank > 0)
            world_sleep_until(r, window_word(&w, 0), k);
        if (k % 2 && w.map[to]) {
            __atomic_store_n((uint64_t *)(void *)w.map[to], k,
                             __ATOMIC_RELEASE);
            r->t->wake(r->eps[to]);
        } else {
            world_signal(r, &w, to, 0, k, 0);
        }
        if (r->rank == 0)
            world_sleep_until(r, window_word(&w, 0), k);
    }
    world_barrier(r);
    window_destroy(r, &w);
}

/* The signal arrives at a random moment while the peer is about to sleep. */
void case_sleep_race(struct rank *r)
{
    enum { ROUNDS = 3000 };
    const int peer = 1 - r->rank;
    volatile unsigned spin = 0;
    struct window w;

    window_create(r, &w, 64);
    for (uint64_t k = 1; k <= ROUNDS; k++) {
        bool mine = (k & 1) == (uint64_t)r->rank;

        if (!mine) {
            world_sleep_until(r, window_word(&w, 0), k);
            continue;
        }
        for (uint64_t i = world_random(r) % 4000; i > 0; i--)
            spin++;
        world_signal(r, &w, peer, 0, k, (int)(k % 8));
    }
    world_barrier(r);
    window_destroy(r, &w);
}

/* Once a transport is not busy() any more, all data arrives without further
 * calls. Rank 0 puts much, waits until the transport is not busy, and does not
 * call it again until rank 1 has received everything. */
void case_busy(struct rank *r)
{
    enum { PUTS = 600, BYTES = 60000, PLACES = 16 };
    /* With the slowest settings of the stand-in for libibverbs, a round takes a
     * second. */
    const int rounds = getenv("SHUNT_TEST_VERBS") ? 3 : 10;
    const size_t place = (size_t)PLACES * BYTES;
    unsigned char *source = malloc(BYTES);
    struct window w;

    CHECK(r, source, "no memory");
    memset(source, r->rank + 1, BYTES);
    window_create(r, &w, place + 8);
    for (int k = 1; k <= rounds; k++) {
        uint64_t *word = window_word(&w, place);

        if (r->rank == 0) {
            for (int i = 1; i <= PUTS; i++) {
                struct shunt_transport_put put = {
                    .local = source,
                    .remote = w.remote[1],
                    .offset = (size_t)(i % PLACES) * BYTES,
                    /* The last put is small, so it fits into any buffer. */
                    .bytes = i < PUTS ? (size_t)(world_random(r) % BYTES) : 0,
                    .signal = w.remote[1],
                    .signal_offset = place,
                    .signal_value = (uint64_t)k * PUTS + (uint64_t)i,
                };

                world_put(r, 1, &put);
            }
            UNTIL(r, !r->t->busy(r->ctx));
            world_await_flag(r, 0, k);
        } else {
            /* Progress seldom, so that sent data accumulates. */
            for (double end = world_now() + world_patience;
                 word_load(word) < (uint64_t)k * PUTS + PUTS;) {
                if (world_now() > end)
                    FAIL(r, "it does not come");
                usleep((useconds_t)(world_random(r) % 3000));
                r->t->progress(r->ctx);
            }
            atomic_store(&r->board->flags[0], k);
        }
    }
    world_barrier(r);
    window_destroy(r, &w);
    free(source);
}

/* Like case_busy(), if large puts have filled the connection and a small put
 * follows. Rank 0 puts both in turn until one is queued, while rank 1 receives
 * nothing. Then rank 1 must receive all puts after which rank 0 was not busy
 * any more. */
void case_busy_when_full(struct rank *r)
{
    enum { ROUNDS = 12, LARGE = 1000, PUTS = 20000, TRIES = 200 };
    unsigned char source[LARGE];
    uint64_t sent = 0;
    struct window w;

    memset(source, r->rank + 1, sizeof(source));
    window_create(r, &w, LARGE + 8);
    for (int k = 1; k <= ROUNDS; k++) {
        atomic_int *seen_off = &r->board->flags[0];
        uint64_t *word = window_word(&w, LARGE);
        int looks = 2 * PUTS; /* bounds the loop if a transport queues each put
                               * for a while */

        for (bool kept = false; r->rank == 0 && !kept; sent++) {
            struct shunt_transport_put put = {
                .local = source,
                .remote = w.remote[1],
                .bytes = sent % 2 ? LARGE - (size_t)k * 50 : 0,
                .signal = w.remote[1],
                .signal_offset = LARGE,
                .signal_value = sent + 1,
            };
            enum shunt_status st = r->t->put(r->eps[1], &put);
            int tries = 0;

            /* A transport may have no more room. */
            for (; tries < TRIES && st == SHUNT_IN_PROGRESS; tries++) {
                r->t->progress(r->ctx);
                st = r->t->put(r->eps[1], &put);
            }
            if (st == SHUNT_IN_PROGRESS)
                break;
            EXPECT(r, SHUNT_OK, st);
            for (tries = 0; tries < TRIES && r->t->busy(r->ctx); tries++)
                r->t->progress(r->ctx);
            looks -= tries;
            kept = tries == TRIES || looks < 0 || sent > (uint64_t)k * PUTS;
            if (!kept)
                atomic_store(seen_off, (int)sent + 1);
        }
        if (r->rank == 0) {
            atomic_store(&r->board->flags[1], k);
            world_await_flag(r, 2, k);
            UNTIL(r, !r->t->busy(r->ctx));
        } else {
            world_await_flag(r, 1, k);
            UNTIL(r, word_load(word) >= (uint64_t)atomic_load(seen_off));
            atomic_store(&r->board->flags[2], k);
        }
        world_barrier(r);
    }
    world_barrier(r);
    window_destroy(r, &w);
}

/* -- loss ------------------------------------------------------------------- */

/* Called after the last rank has sent signals and has left or died. A rank that
 * sees this loss has received the last signal, and the lost rank's memory stays
 * mapped. */
static void check_loss(struct rank *r, struct window *w, bool left)
{
    const int lost = r->nranks - 1;
    struct shunt_transport_ep *ep = r->eps[lost];
    double start = world_now();

    UNTIL(r, !r->t->alive(ep));
    CHECK(r, world_now() - start < 5, "took %.1f s", world_now() - start);
    CHECK(r, word_load(window_word(w, 0)) == 42, "its last signal is missing");
    CHECK(r, r->t->left(ep) == left, "left() is %d", r->t->left(ep));
    EXPECT(r, SHUNT_ERR_PEER,
           r->t->put(ep, &(struct shunt_transport_put){
                             .signal = w->remote[lost], .signal_offset = 8}));
    if (r->t->caps(ep) & SHUNT_TRANSPORT_GET) {
        char c;

        EXPECT(r, SHUNT_ERR_PEER,
               world_get(r, lost, (uint64_t)(uintptr_t)w, &c, 1));
    }
    r->t->wake(ep); /* does nothing, and must not crash */
    if (w->map[lost]) {
        CHECK(r, w->map[lost][100] == 77, "its memory has changed");
        w->map[lost][200 + r->rank] = 1;
    }
    for (int p = 0; p < lost; p++)
        CHECK(r, p == r->rank || r->t->alive(r->eps[p]), "rank %d", p);
}

/* End the survivors without barriers, which count all ranks. */
static void end_survivors(struct rank *r, struct window *w)
{
    atomic_fetch_add(&r->board->flags[0], 1);
    UNTIL(r, atomic_load(&r->board->flags[0]) == r->nranks - 1);
    close(w->fd);
    r->t->close(r->ctx);
    r->ctx = NULL;
}

static void signal_all(struct rank *r, struct window *w)
{
    for (int p = 0; p < r->nranks; p++) {
        if (p != r->rank)
            world_signal(r, w, p, 0, 42, 0);
    }
    for (int p = 0; p < r->nranks; p++) {
        if (p != r->rank)
            UNTIL(r, r->t->flush(r->eps[p]) == SHUNT_OK);
    }
}

static void prepare(struct rank *r, struct window *w)
{
    window_create(r, w, 4096);
    w->addr[100] = 77;
    world_barrier(r);
}

void case_leave(struct rank *r)
{
    struct window w;

    prepare(r, &w);
    if (r->rank == r->nranks - 1) {
        signal_all(r, &w);
        close(w.fd);
        r->t->close(r->ctx); /* although memory is still registered and
                              * imported */
        r->ctx = NULL;
        return;
    }
    check_loss(r, &w, true);
    end_survivors(r, &w);
}

void case_kill(struct rank *r)
{
    struct window w;

    prepare(r, &w);
    if (r->rank == r->nranks - 1) {
        signal_all(r, &w);
        raise(SIGKILL);
    }
    check_loss(r, &w, false);
    end_survivors(r, &w);
}

/* Sleep for a word that is never written: the loss of the peer wakes this
 * rank. */
static void sleep_until_loss(struct rank *r)
{
    struct shunt_transport_ep *ep = r->eps[r->nranks - 1];
    struct pollfd pfd = {.fd = r->t->wait_fd(r->ctx), .events = POLLIN};

    while (r->t->alive(ep)) {
        int n = 1;

        if (r->t->arm(r->ctx) == SHUNT_OK)
            n = poll(&pfd, 1, 5000);
        r->t->disarm(r->ctx);
        r->t->progress(r->ctx);
        CHECK(r, n > 0, "slept through the loss");
    }
}

static void fall_asleep_and_lose(struct rank *r, bool kill)
{
    struct window w;

    prepare(r, &w);
    if (r->rank == r->nranks - 1) {
        signal_all(r, &w);
        usleep(50000); /* so that most ranks are asleep; the test is also right
                        * if they are not */
        if (kill)
            raise(SIGKILL);
        close(w.fd);
        r->t->close(r->ctx);
        r->ctx = NULL;
        return;
    }
    sleep_until_loss(r);
    check_loss(r, &w, !kill);
    end_survivors(r, &w);
}

void case_leave_sleeping(struct rank *r)
{
    fall_asleep_and_lose(r, false);
}

void case_kill_sleeping(struct rank *r)
{
    fall_asleep_and_lose(r, true);
}

/* A child that the killed rank forked lives on. The other ranks still see the
 * loss. */
void case_kill_forked(struct rank *r)
{
    struct window w;

    prepare(r, &w);
    if (r->rank == r->nranks - 1) {
        double deadline = world_now() + world_patience;

        signal_all(r, &w);
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, 0);
            atomic_store(&r->board->flags[1], 1);
            while (atomic_load(&r->board->flags[0]) < r->nranks - 1 &&
                   world_now() < deadline)
                usleep(1000);
            _exit(0);
        }
        UNTIL(r, atomic_load(&r->board->flags[1]));
        raise(SIGKILL);
    }
    check_loss(r, &w, false);
    end_survivors(r, &w);
}

/* A rank publishes its address and leaves: the others get an error and do not
 * hang. */
void case_leave_connecting(struct rank *r)
{
    const int lost = r->nranks - 1;
    enum shunt_status st = SHUNT_IN_PROGRESS;

    world_open_and_tell(r);
    if (r->rank == lost) {
        r->t->close(r->ctx);
        r->ctx = NULL;
    }
    world_barrier(r);
    if (r->rank == lost)
        return;
    UNTIL(r, (st = r->t->connect(r->ctx, lost, r->board->slot[lost],
                                 r->board->len[lost], &r->eps[lost])) !=
                 SHUNT_IN_PROGRESS);
    CHECK(r, st == SHUNT_ERR_UNSUPPORTED || st == SHUNT_ERR_PEER, "%d: %s",
          (int)st, r->t->error(r->ctx));
    r->t->close(r->ctx);
    r->ctx = NULL;
}

/* Let sockets end by a reset instead of a FIN if data is unread, as when a host
 * crashes or a process still had data to read. */
static void reset_sockets(void)
{
    struct linger none = {.l_onoff = 1, .l_linger = 0};

    for (int fd = 3; fd < 256; fd++)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
}

/* The ranks act in turns. This ends the turn of this rank. */
static void end_turn(struct rank *r)
{
    atomic_fetch_add(&r->board->flags[0], 1);
}

/* Rank 1, in a separate process, makes `steps` steps in turns with rank 0, and
 * is killed. A step is a call of connect() if it `connects`, and otherwise of
 * progress(). Its sockets end by a reset. */
static void be_killed_connecting(struct rank *r, int steps, bool connects)
{
    int status, turn = atomic_load(&r->board->flags[0]);
    pid_t pid = fork();

    CHECK(r, pid >= 0, "%s", strerror(errno));
    if (pid == 0) {
        world_open_and_tell(r);
        for (int i = 0; i < steps; i++) {
            world_await_flag(r, 0, turn + 2 * i + 1);
            if (connects)
                world_connect_step(r, 0);
            else
                r->t->progress(r->ctx);
            end_turn(r);
        }
        reset_sockets();
        raise(SIGKILL);
    }
    CHECK(r, waitpid(pid, &status, 0) == pid, "%s", strerror(errno));
    CHECK(r, WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%x", status);
    atomic_fetch_add(&r->board->flags[1], 1);
}

/* A peer is killed after each number of steps of connecting. Rank 0 gets an
 * error, or connects and then sees the loss. */
void case_kill_connecting(struct rank *r)
{
    enum { STEPS = 12 };
    int turn = 0;

    for (int k = 0; k < 2 * STEPS; k++) {
        enum shunt_status st = SHUNT_IN_PROGRESS;
        const int steps = k / 2;

        world_barrier(r);
        if (r->rank == 1) {
            be_killed_connecting(r, steps, k % 2);
            continue;
        }
        world_open_and_tell(r);
        for (int i = 0; i < steps; i++, turn += 2) {
            world_connect_step(r, 1);
            end_turn(r);
            world_await_flag(r, 0, turn + 2);
        }
        world_await_flag(r, 1, k + 1); /* rank 1 is dead */
        UNTIL(r, (st = world_connect_step(r, 1)) != SHUNT_IN_PROGRESS);
        if (st == SHUNT_OK)
            UNTIL(r, !r->t->alive(r->eps[1]));
        else
            CHECK(r, st == SHUNT_ERR_UNSUPPORTED || st == SHUNT_ERR_PEER,
                  "%d: %s", (int)st, r->t->error(r->ctx));
        r->t->close(r->ctx);
        r->ctx = NULL;
    }
}

/* Rank 1, in a separate process, receives nothing until rank 0 cannot send any
 * more. Then it makes some puts, calls progress() `round` times, and is
 * killed. */
static void be_killed_in_transfer(struct rank *r, int round, size_t bytes)
{
    int status;
    pid_t pid = fork();

    CHECK(r, pid >= 0, "%s", strerror(errno));
    if (pid == 0) {
        unsigned char *source = calloc(1, bytes);
        struct window w;

        CHECK(r, source, "no memory");
        world_open(r);
        window_create(r, &w, bytes);
        world_await_flag(r, 0, round + 1);
        for (int i = 0; i < 4; i++) {
            struct shunt_transport_put put = {
                .local = source,
                .remote = w.remote[0],
                .bytes = i == 0 ? 8 : bytes,
            };

            const enum shunt_status st = r->t->put(r->eps[0], &put);

            CHECK(r, st == SHUNT_OK || st == SHUNT_IN_PROGRESS, "%d", (int)st);
        }
        for (int i = 0; i < round; i++)
            r->t->progress(r->ctx);
        if (round % 2)
            reset_sockets();
        raise(SIGKILL);
    }
    CHECK(r, waitpid(pid, &status, 0) == pid, "%s", strerror(errno));
    CHECK(r, WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%x", status);
    atomic_fetch_add(&r->board->flags[1], 1);
}

/* A peer is killed while much data is in transfer in both directions: a put is
 * only partly in the kernel, and data of the peer is unread. */
void case_kill_in_transfer(struct rank *r)
{
    enum { ROUNDS = 12, PUTS = 1000, BYTES = 60000 };
    unsigned char *source = calloc(1, BYTES);

    CHECK(r, source, "no memory");
    for (int k = 0; k < ROUNDS; k++) {
        unsigned pending = 0;
        struct window w;
        bool counts;

        world_barrier(r);
        if (r->rank == 1) {
            be_killed_in_transfer(r, k, BYTES);
            continue;
        }
        world_open(r);
        window_create(r, &w, BYTES);
        counts = r->t->caps(r->eps[1]) & SHUNT_TRANSPORT_ZCOPY;
        for (int i = 0; i < PUTS; i++) {
            struct shunt_transport_put put = {
                .local = source,
                .remote = w.remote[1],
                .bytes = BYTES,
                .pending = counts ? &pending : NULL,
            };
            enum shunt_status st = r->t->put(r->eps[1], &put);

            CHECK(r, st == SHUNT_OK || st == SHUNT_IN_PROGRESS, "%d", (int)st);
            r->t->progress(r->ctx);
        }
        atomic_store(&r->board->flags[0], k + 1);
        world_await_flag(r, 1, k + 1); /* rank 1 is dead */
        UNTIL(r, !r->t->alive(r->eps[1]));
        if (counts)
            EXPECT(r, SHUNT_OK, r->t->let_go(r->eps[1], true));
        CHECK(r, pending == 0, "%u puts still need their memory", pending);
        close(w.fd);
        r->t->close(r->ctx);
        r->ctx = NULL;
    }
    free(source);
}

/* Rank 1, in a separate process, puts as much as the kernel accepts without the
 * help of rank 0. It records how many puts those were, and is killed. If it
 * `asks`, rank 0 has to answer requests of the dead rank. That must not lose
 * the data behind the requests. */
static void be_killed_when_sent(struct rank *r, size_t bytes, bool asks)
{
    enum { PUTS = 400 };
    int status;
    pid_t pid = fork();

    CHECK(r, pid >= 0, "%s", strerror(errno));
    if (pid == 0) {
        unsigned char *source = calloc(1, bytes);
        struct window w;

        CHECK(r, source, "no memory");
        world_open(r);
        window_create(r, &w, bytes + 8);
        for (int i = 1; i <= PUTS; i++) {
            struct shunt_transport_put put = {
                .local = source,
                .remote = w.remote[0],
                .bytes = bytes,
                .signal = w.remote[0],
                .signal_offset = bytes,
                .signal_value = (uint64_t)i,
            };

            if (r->t->put(r->eps[0], &put) != SHUNT_OK)
                break;
            if (asks && r->t->flush(r->eps[0]) < 0)
                break;
            for (int k = 0; k < 100 && r->t->busy(r->ctx); k++)
                r->t->progress(r->ctx);
            if (r->t->busy(r->ctx))
                break;
            atomic_store(&r->board->flags[0], i);
        }
        raise(SIGKILL);
    }
    CHECK(r, waitpid(pid, &status, 0) == pid, "%s", strerror(errno));
    CHECK(r, WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%x", status);
    atomic_fetch_add(&r->board->flags[1], 1);
}

/* All puts that a rank had passed to the kernel when it was killed arrive,
 * although the kernel had to buffer most of them. */
void case_kill_when_sent(struct rank *r)
{
    enum { ROUNDS = 60, BYTES = 50000 };

    for (int k = 0; k < ROUNDS; k++) {
        struct window w;

        if (r->rank == 0)
            atomic_store(&r->board->flags[0], 0);
        world_barrier(r);
        if (r->rank == 1) {
            be_killed_when_sent(r, BYTES, k % 2 > 0);
            continue;
        }
        world_open(r);
        window_create(r, &w, BYTES + 8);
        world_await_flag(r, 1, k + 1); /* rank 1 is dead */
        UNTIL(r, !r->t->alive(r->eps[1]));
        CHECK(r,
              word_load(window_word(&w, BYTES)) >=
                  (uint64_t)atomic_load(&r->board->flags[0]),
              "%llu of %d puts",
              (unsigned long long)word_load(window_word(&w, BYTES)),
              atomic_load(&r->board->flags[0]));
        close(w.fd);
        r->t->close(r->ctx);
        r->ctx = NULL;
    }
}

/* Like case_kill_in_transfer(), if UCX also has other networks, but none of
 * them sends messages. (UCX has settings that apply only if TCP is its only
 * network.) */
void case_ucx_kill_among_networks(struct rank *r)
{
    setenv("UCX_TLS", "tcp,cma", 1);
    case_kill_in_transfer(r);
}
