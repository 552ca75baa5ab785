// SPDX-License-Identifier: Apache-2.0
/* Only for tcp: a port to which strangers can connect. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/transports/cases.h"

/* Strangers; with one rank, as many connections as rank 0 accepts: listen.c */
#define FULL 129
/* Strangers; more than a rank accepts in a world of two ranks */
#define IDLE 200

/* Connect to a rank's port, which its address contains. Returns the socket, or
 * -1 if the connection is refused. */
static int call(struct rank *r, int peer)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    uint16_t port;

    memcpy(&port, r->board->slot[peer] + 8, sizeof(port));
    in.sin_port = htons(port);
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(r, fd >= 0, "%s", strerror(errno));
    if (!connect(fd, (struct sockaddr *)&in, sizeof(in)))
        return fd;
    CHECK(r, errno == ECONNREFUSED, "connect: %s", strerror(errno));
    close(fd);
    return -1;
}

/* The other side must close the connection. */
static void expect_refusal(struct rank *r, int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    unsigned char junk[512];
    ssize_t n = 1;

    while (n > 0) {
        UNTIL(r, poll(&pfd, 1, 0) > 0);
        n = recv(fd, junk, sizeof(junk), MSG_DONTWAIT);
    }
    close(fd);
}

/* Send a hello as handshake.c does, and then a wrong proof. */
static void pretend(struct rank *r)
{
    unsigned char hello[48] = "shuntcp1", challenge[64], proof[32] = {1};
    const int32_t ranks[2] = {1, 0};
    struct pollfd pfd = {.fd = call(r, 0), .events = POLLIN};

    memcpy(hello + 8, ranks, sizeof(ranks));
    CHECK(r, send(pfd.fd, hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello),
          "");
    UNTIL(r, poll(&pfd, 1, 0) > 0);
    CHECK(r,
          recv(pfd.fd, challenge, sizeof(challenge), MSG_WAITALL) ==
              sizeof(challenge),
          "no challenge");
    CHECK(r, send(pfd.fd, proof, sizeof(proof), MSG_NOSIGNAL) == sizeof(proof),
          "");
    expect_refusal(r, pfd.fd);
}

/*
 * Rank 1 plays a stranger that connects to rank 0's port before the ranks
 * connect. The stranger sends nothing, noise, or a hello with a wrong proof. It
 * disturbs no rank, and once all ranks are connected the port is closed.
 */
void case_tcp_strangers(struct rank *r)
{
    unsigned char noise[1000];
    int idle[IDLE];

    world_open_and_tell(r);
    if (r->rank == 1) {
        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = (unsigned char)world_random(r);
        for (size_t n = 48; n <= sizeof(noise); n += 37) {
            int fd = call(r, 0);

            CHECK(r, send(fd, noise, n, MSG_NOSIGNAL) == (ssize_t)n, "%zu", n);
            expect_refusal(r, fd);
        }
        pretend(r);
        for (int i = 0; i < IDLE; i++) {
            idle[i] = call(r, 0);
            CHECK(r, idle[i] >= 0, "refused");
        }
        atomic_store(&r->board->flags[2], 1);
    }
    UNTIL(r, atomic_load(&r->board->flags[2]));
    world_connect(r);
    world_barrier(r);
    CHECK(r, r->rank != 1 || call(r, 0) < 0, "it still listens");
    for (int i = 0; r->rank == 1 && i < IDLE; i++)
        expect_refusal(r, idle[i]);
    world_all_signal(r);
}

/* The ranks take turns until rank 1 sees the connection as complete. At that
 * time, rank 0 has not called the transport since, and does not see it yet. In
 * every turn each stranger of rank 1 sends one byte. */
static void connect_in_turns(struct rank *r, const int *fd, int strangers)
{
    atomic_int *turn = &r->board->flags[0], *up = &r->board->flags[1];

    for (int k = 0; !atomic_load(up); k++) {
        if (r->rank == 0) {
            world_connect_step(r, 1);
            atomic_fetch_add(turn, 1);
            world_await_flag(r, 0, 2 * k + 2);
            continue;
        }
        world_await_flag(r, 0, 2 * k + 1);
        for (int i = 0; i < strangers; i++)
            (void)!send(fd[i], "s", 1, MSG_NOSIGNAL);
        world_connect_step(r, 0);
        if (world_connect_step(r, 0) == SHUNT_OK)
            atomic_store(up, 1);
        atomic_fetch_add(turn, 1);
    }
}

/*
 * Strangers send data at the very moment at which rank 0's last peer is
 * connected. Rank 0 finds both in one poll.
 */
void case_tcp_strangers_at_last(struct rank *r)
{
    enum {
        STRANGERS = 40
    }; /* with the peer's connection, fewer than one poll handles */
    const char noise[100] = "noise";
    int fd[STRANGERS];

    world_open_and_tell(r);
    for (int i = 0; r->rank == 1 && i < STRANGERS; i++)
        fd[i] = call(r, 0);
    world_barrier(r);
    connect_in_turns(r, NULL, 0);
    for (int i = 0; r->rank == 1 && i < STRANGERS; i++)
        CHECK(r, send(fd[i], noise, sizeof(noise), MSG_NOSIGNAL) > 0, "%s",
              strerror(errno));
    if (r->rank == 1)
        atomic_store(&r->board->flags[2], 1);
    world_await_flag(r, 2, 1);
    world_connect(r);
    for (int i = 0; r->rank == 1 && i < STRANGERS; i++)
        expect_refusal(r, fd[i]);
    world_barrier(r);
}

/* Rank 0 pauses for so long that it would then check whether rank 1 exists.
 * Meanwhile rank 1 has connected, and does not listen any more. */
void case_tcp_late_listener(struct rank *r)
{
    const double begun = world_now();

    world_open_and_tell(r);
    connect_in_turns(r, NULL, 0);
    while (r->rank == 0 && world_now() < begun + 3.5) /* LOOK_MS, connect.c */
        usleep(10000);
    world_connect(r);
    world_barrier(r);
}

/* Rank 0 has as many strangers as it accepts, and more to read than it reads at
 * once. Then it notices that the strangers take too long, and drops them. It
 * does not drop the rank that has sent its proof. */
void case_tcp_strangers_many(struct rank *r)
{
    int fd[FULL];

    world_open_and_tell(r);
    for (int i = 0; r->rank == 1 && i < FULL; i++)
        fd[i] = call(r, 0);
    world_barrier(r);
    connect_in_turns(r, fd, FULL);
    if (r->rank == 0)
        usleep(1100 * 1000); /* CROWDED_MS, listen.c */
    world_connect(r);
    for (int i = 0; r->rank == 1 && i < FULL; i++)
        expect_refusal(r, fd[i]);
    CHECK(r, r->t->alive(r->eps[!r->rank]), "it is lost");
    world_barrier(r);
}

/* Rank 1 sends a hello to rank 0, and then nothing for a while. There are as
 * many strangers as rank 0 accepts, so it drops rank 1, too. Rank 1 connects
 * again. */
void case_tcp_strangers_crowd(struct rank *r)
{
    int fd[FULL];

    world_open_and_tell(r);
    for (int i = 0; r->rank == 1 && i < 3; i++)
        EXPECT(r, SHUNT_IN_PROGRESS, world_connect_step(r, 0));
    for (int i = 0; r->rank == 1 && i < FULL; i++)
        fd[i] = call(r, 0);
    if (r->rank == 1)
        usleep(1500 * 1000); /* more than CROWDED_MS, listen.c */
    world_connect(r);
    for (int i = 0; r->rank == 1 && i < FULL; i++)
        expect_refusal(r, fd[i]);
    world_barrier(r);
}

/* Find `count` free ports in a row. Returns the first one, or 0. */
static unsigned free_ports(unsigned first, unsigned count)
{
    bool all = true;

    for (unsigned i = 0; all && i < count; i++) {
        struct sockaddr_in in = {
            .sin_family = AF_INET,
            .sin_port = htons((uint16_t)(first + i)),
        };
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        all = !bind(fd, (struct sockaddr *)&in, sizeof(in));
        close(fd);
    }
    return all ? first : 0;
}

static void exchange_one(struct rank *r)
{
    const int peer = !r->rank;
    struct window w;

    window_create(r, &w, 8);
    world_signal(r, &w, peer, 0, 5, 0);
    UNTIL(r, word_load(window_word(&w, 0)) == 5);
    world_barrier(r);
    window_destroy(r, &w);
}

/* A port is occupied only while ranks connect. SHUNT_TCP_PORTS has one port for
 * each rank. Yet one world after another is opened while the first one stays
 * open. */
void case_tcp_ports(struct rank *r)
{
    enum { WORLDS = 3 };
    atomic_int *first = &r->board->flags[3];
    char range[32];

    /* below the range of ephemeral ports */
    for (unsigned port = 20000 + (unsigned)getpid() % 5000;
         r->rank == 0 && !atomic_load(first); port += 7) {
        CHECK(r, port < 32000, "no free ports");
        atomic_store(first, (int)free_ports(port, (unsigned)r->nranks));
    }
    world_barrier(r);
    snprintf(range, sizeof(range), "%d-%d", atomic_load(first),
             atomic_load(first) + r->nranks - 1);
    setenv("SHUNT_TCP_PORTS", range, 1);
    world_open(r);
    for (int i = 0; i < WORLDS; i++) {
        struct rank other = *r;

        other.secret[0] ^= 0x55;
        world_open(&other);
        exchange_one(&other);
        world_close(&other);
    }
    exchange_one(r);
}

/* Fork a child that lives until rank 0 is done, as a data loader may.
 * `quietly`: without the handlers of pthread_atfork(). */
static void fork_a_loader(struct rank *r, bool quietly)
{
    const double deadline = world_now() + 2 * world_patience;
    pid_t pid =
        quietly ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();

    CHECK(r, pid >= 0, "%s", strerror(errno));
    if (pid > 0)
        return;
    prctl(PR_SET_PDEATHSIG, 0); /* the child survives when its rank is killed */
    while (!atomic_load(&r->board->flags[0]) && world_now() < deadline)
        usleep(1000);
    _exit(0);
}

/* Rank 1 is killed. Both ranks have a child that inherited their descriptors.
 * Rank 0 sees the loss, and can sleep after that. */
static void lose_with_children(struct rank *r, bool quietly)
{
    struct pollfd pfd = {.fd = r->t->wait_fd(r->ctx), .events = POLLIN};

    fork_a_loader(r, quietly);
    world_barrier(r);
    if (r->rank == 1)
        raise(SIGKILL);
    UNTIL(r, !r->t->alive(r->eps[1]));
    UNTIL(r, r->t->arm(r->ctx) == SHUNT_OK && poll(&pfd, 1, 100) == 0);
    atomic_store(&r->board->flags[0], 1);
    r->t->close(r->ctx);
    r->ctx = NULL;
}

/* Rank 0 finds the loss by rank 1's process, which is on the same host. */
void case_tcp_kill_cloned(struct rank *r)
{
    world_open(r);
    lose_with_children(r, true);
}

/* Rank 0 finds the loss by the connection, because each rank believes that the
 * other rank is on another host. */
void case_tcp_kill_forked_afar(struct rank *r)
{
    world_open_and_tell(r);
    r->board->slot[!r->rank][16] ^= 1; /* the boot id in its address */
    world_connect(r);
    lose_with_children(r, false);
}
