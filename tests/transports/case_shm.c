// SPDX-License-Identifier: Apache-2.0
/*
 * Only for shm: a socket to which strangers can connect, descriptors that are
 * sent, and reads of plain memory, which may be forbidden.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/transports/cases.h"

/* More connections than a rank accepts at the same time. */
#define IDLE 200

/* Connect to a rank's socket. The rank's address contains the socket's name. */
static int call(struct rank *r, int peer)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    const char *name = (const char *)r->board->slot[peer] + 8;
    size_t n = strnlen(name, 40);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    CHECK(r, fd >= 0, "%s", strerror(errno));
    memcpy(sun.sun_path + 1, name, n);
    while (
        connect(fd, (struct sockaddr *)&sun,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n))) {
        CHECK(r, errno == EAGAIN, "connect: %s", strerror(errno));
        world_relax(r);
    }
    return fd;
}

/* The other side must close the connection, within world_patience. */
static void expect_refusal(struct rank *r, int fd)
{
    struct pollfd pfd = {.fd = fd, .events = POLLIN | POLLRDHUP};
    unsigned char junk[512];

    UNTIL(r, poll(&pfd, 1, 0) > 0 && (pfd.revents & (POLLHUP | POLLRDHUP)));
    while (recv(fd, junk, sizeof(junk), MSG_DONTWAIT) > 0)
        ;
    close(fd);
}

/*
 * Rank 1 plays a stranger that connects to rank 0's socket: before, while and
 * after the ranks connect. The stranger sends nothing, noise, or a hello
 * without a proof.
 */
void case_shm_strangers(struct rank *r)
{
    int idle[IDLE];

    world_open_and_tell(r);
    for (int i = 0; r->rank == 1 && i < IDLE; i++)
        idle[i] = call(r, 0);
    world_connect(r);
    world_barrier(r);
    for (int i = 0; r->rank == 1 && i < IDLE; i++)
        close(idle[i]);
    if (r->rank == 1) {
        /* The hello message of shm.h: magic, type 1, from, to, nonce. */
        unsigned char hello[240] = {'s', 's', 'h', 'm', 1};
        unsigned char noise[1000];
        const int32_t from = 1;
        size_t message = 0;
        int fd;

        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = (unsigned char)world_random(r);
        for (size_t n = 1; n <= sizeof(noise); n += 37) {
            fd = call(r, 0);
            CHECK(r, send(fd, noise, n, MSG_NOSIGNAL) == (ssize_t)n, "%zu", n);
            expect_refusal(r, fd);
        }
        /* Rank 0 answers a correct hello. Find its size by trying. */
        memcpy(hello + 8, &from, sizeof(from));
        for (size_t n = 40; n <= sizeof(hello) && !message; n += 8) {
            struct pollfd pfd = {.events = POLLIN};

            pfd.fd = call(r, 0);
            CHECK(r, send(pfd.fd, hello, n, MSG_NOSIGNAL) == (ssize_t)n, "");
            UNTIL(r, poll(&pfd, 1, 0) > 0);
            if (!(pfd.revents & POLLHUP)) {
                unsigned char challenge[512];

                CHECK(r, recv(pfd.fd, challenge, sizeof(challenge), 0) > 0,
                      "no challenge");
                message = n;
                memcpy(challenge, hello, 4);
                challenge[4] = 3; /* the type of a proof; its contents are
                                   * wrong */
                CHECK(r, send(pfd.fd, challenge, n, MSG_NOSIGNAL) > 0, "");
                expect_refusal(r, pfd.fd);
            } else {
                close(pfd.fd);
            }
        }
        CHECK(r, message > 0, "no hello was understood");
        atomic_store(&r->board->flags[2], 1);
    }
    UNTIL(r, atomic_load(&r->board->flags[2]));
    /* The other ranks were not disturbed. */
    world_all_signal(r);
}

/* A rank with another secret cannot connect. Each side gets an error, or keeps
 * waiting. */
void case_secret(struct rank *r)
{
    const int peer = 1 - r->rank;
    enum shunt_status st;

    r->secret[5] ^= (unsigned char)r->rank;
    world_open_and_tell(r);
    do {
        st = r->t->connect(r->ctx, peer, r->board->slot[peer],
                           r->board->len[peer], &r->eps[peer]);
        CHECK(r, st != SHUNT_OK, "connected with another secret");
        if (r->rank == 1 && st != SHUNT_IN_PROGRESS) {
            CHECK(r, st == SHUNT_ERR_UNSUPPORTED, "%d", (int)st);
            CHECK(r, strstr(r->t->error(r->ctx), "secret"), "%s",
                  r->t->error(r->ctx));
            atomic_store(&r->board->flags[0], 1);
        }
        world_relax(r);
    } while (!atomic_load(&r->board->flags[0]));
    world_barrier(r);
    r->t->close(r->ctx);
    r->ctx = NULL;
}

/* Keys that claim more memory than there is, and memory that could shrink, are
 * refused. */
void case_shm_lies(struct rank *r)
{
    const int peer = 1 - r->rank;
    struct shunt_transport_memory memory = {.bytes = 4096};
    struct shunt_transport_remote *remote = NULL;
    struct shunt_transport_reg *reg = NULL;
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
    size_t len = sizeof(key);
    uint64_t huge = 1 << 20;
    enum shunt_status st = SHUNT_IN_PROGRESS;

    memory.fd = -1;
    EXPECT(r, SHUNT_ERR_UNSUPPORTED,
           r->t->reg(r->ctx, &memory, key, &len, &reg));
    memory.fd = memfd_create("unsealable", MFD_CLOEXEC);
    CHECK(r, memory.fd >= 0 && !ftruncate(memory.fd, 4096), "");
    EXPECT(r, SHUNT_ERR_INVALID, r->t->reg(r->ctx, &memory, key, &len, &reg));
    close(memory.fd);
    memory.fd = world_memfd(r, 4096);
    memory.bytes = 4097;
    EXPECT(r, SHUNT_ERR_INVALID, r->t->reg(r->ctx, &memory, key, &len, &reg));
    memory.bytes = 4096;
    EXPECT(r, SHUNT_OK, r->t->reg(r->ctx, &memory, key, &len, &reg));
    CHECK(r, ftruncate(memory.fd, 100), "it can still shrink");
    memcpy(key + 16, &huge, sizeof(huge)); /* where memory.c puts the size */
    world_put_slot(r, key, len);
    UNTIL(r, (st = r->t->import(r->eps[peer], r->board->slot[peer], len,
                                &remote)) != SHUNT_IN_PROGRESS);
    EXPECT(r, SHUNT_ERR_INVALID, st);
    world_barrier(r);
    r->t->dereg(r->ctx, reg);
    close(memory.fd);
}

/* If descriptors run out, the error says which limit to raise. */
void case_shm_descriptors(struct rank *r)
{
    struct shunt_transport_params params = {
        .host = &world_host,
        .rank = 0,
        .nranks = 1,
    };
    struct rlimit limit;
    int held = world_count_fds();

    /* Each step of open() runs out once. */
    for (int room = 0; room < 8; room++) {
        struct shunt_transport_ctx *ctx = NULL;
        char why[256] = "";
        enum shunt_status st;

        CHECK(r, !getrlimit(RLIMIT_NOFILE, &limit), "");
        limit.rlim_cur = (rlim_t)(held - 3 + room);
        CHECK(r, !setrlimit(RLIMIT_NOFILE, &limit), "");
        st = r->t->open(&params, &ctx, why, sizeof(why));
        CHECK(r, st == SHUNT_OK || strstr(why, "ulimit -n"), "%s", why);
        CHECK(r, st == SHUNT_OK || !ctx, "a context in spite of an error");
        CHECK(r, room > 0 || st == SHUNT_ERR_SYSTEM, "opened without any");
        r->t->close(ctx);
        limit.rlim_cur = limit.rlim_max;
        CHECK(r, !setrlimit(RLIMIT_NOFILE, &limit), "");
        CHECK(r, world_count_fds() == held, "%d descriptors, then %d", held,
              world_count_fds());
    }
}

void case_shm_no_cma(struct rank *r)
{
    char c;

    setenv("SHUNT_CMA", r->rank == 0 ? "off" : "on", 1);
    world_open(r);
    for (int p = 0; p < r->nranks; p++) {
        bool get = p != 0 && r->rank != 0;

        if (p == r->rank)
            continue;
        CHECK(r, !get == !(r->t->caps(r->eps[p]) & SHUNT_TRANSPORT_GET),
              "caps of rank %d: %#x", p, r->t->caps(r->eps[p]));
        if (!get)
            EXPECT(r, SHUNT_ERR_UNSUPPORTED,
                   world_get(r, p, (uint64_t)(uintptr_t)&c, &c, 1));
    }
    world_barrier(r);
}
