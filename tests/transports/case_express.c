// SPDX-License-Identifier: Apache-2.0
/* The second connection of tcp, for short messages; see
 * transports/tcp/express.c. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/transports/cases.h"

#define SHORT 0 /* the channel of short messages */
#define BULK SHUNT_TRANSPORT_BULK
#define PIECE ((size_t)4 << 20)
/* Slots of short messages; a slot contains the message's number */
#define SLOTS 4096

/* Offsets in the window of each rank. */
enum { AT_SHORT = 0, AT_BULK = 128, AT_SLOTS = 256 };
/* Where the value for the peer's slots is */
#define AT_MINE (AT_SLOTS + SLOTS * 8)
#define AT_PIECES (AT_MINE + SLOTS * 8)

static struct shunt_transport_put piece_of(struct rank *r, struct window *w,
                                           size_t bytes, uint64_t value)
{
    const int peer = !r->rank;

    return (struct shunt_transport_put){
        .local = w->addr + AT_PIECES,
        .reg = w->reg,
        .remote = w->remote[peer],
        .offset = AT_PIECES,
        .bytes = bytes,
        .signal = w->remote[peer],
        .signal_offset = AT_BULK,
        .signal_value = value,
        .channel = BULK,
    };
}

static void put_piece(struct rank *r, struct window *w, size_t bytes,
                      uint64_t value)
{
    const struct shunt_transport_put put = piece_of(r, w, bytes, value);

    world_put(r, !r->rank, &put);
}

/* Put as much payload as the transport accepts. */
static void fill_up(struct rank *r, struct window *w)
{
    const struct shunt_transport_put put = piece_of(r, w, 64 << 10, 1);

    while (r->t->put(r->eps[!r->rank], &put) == SHUNT_OK)
        ;
}

static void put_bulk(struct rank *r, struct window *w, uint64_t value)
{
    put_piece(r, w, PIECE, value);
}

/* Returns the offset of the slot of short message `number`. Its payload is the
 * number. */
static size_t slot_of(uint64_t number)
{
    return number % SLOTS * 8;
}

static void put_short(struct rank *r, struct window *w, uint64_t value)
{
    const size_t slot = slot_of(value);
    const int peer = !r->rank;

    *window_word(w, AT_MINE + slot) = value;
    world_put(r, peer,
              &(struct shunt_transport_put){
                  .local = w->addr + AT_MINE + slot,
                  .reg = w->reg,
                  .remote = w->remote[peer],
                  .offset = AT_SLOTS + slot,
                  .bytes = 8,
                  .signal = w->remote[peer],
                  .signal_offset = AT_SHORT,
                  .signal_value = value,
                  .channel = SHORT,
              });
}

static uint64_t expressed(struct rank *r)
{
    struct shunt_transport_counter counters[16];
    const size_t n = r->t->counters(r->ctx, counters, 16);

    for (size_t i = 0; i < n; i++)
        if (!strcmp(counters[i].name, "express"))
            return counters[i].value;
    FAIL(r, "no counter");
}

/* Returns the number of short messages that arrived, and checks that they are
 * in order and complete. */
static uint64_t check_order(struct rank *r, struct window *w, uint64_t seen)
{
    const uint64_t now = word_load(window_word(w, AT_SHORT));

    CHECK(r, now >= seen, "%llu after %llu", (unsigned long long)now,
          (unsigned long long)seen);
    for (uint64_t k = seen + 1; k <= now; k++)
        CHECK(r, *window_word(w, AT_SLOTS + slot_of(k)) >= k, "%llu of %llu",
              (unsigned long long)k, (unsigned long long)now);
    return now;
}

/*
 * Rank 0, and rank 1 if `both`, puts payload and short messages, until some
 * short messages have been sent over the second connection. Meanwhile the order
 * of the short messages is checked. Returns the number of this rank's last
 * short message.
 */
static uint64_t make_express(struct rank *r, struct window *w, bool both)
{
    atomic_int *done = &r->board->flags[5], *seen = &r->board->flags[3];
    const bool sends = r->rank == 0 || both;
    uint64_t mine = 0;

    while (atomic_load(done) < (both ? 2 : 1)) {
        const bool more = sends && expressed(r) < 100;
        const int before = atomic_load(&seen[r->rank]);

        atomic_store(&seen[r->rank], (int)check_order(r, w, (uint64_t)before));
        if (more)
            fill_up(r, w);
        if (more && mine < (uint64_t)atomic_load(&seen[!r->rank]) + SLOTS / 2) {
            put_short(r, w, ++mine);
            if (expressed(r) == 100)
                atomic_fetch_add(done, 1);
        }
        world_relax(r);
    }
    UNTIL(r, r->t->flush(r->eps[!r->rank]) == SHUNT_OK);
    world_barrier(r);
    check_order(r, w, (uint64_t)atomic_load(&seen[r->rank]));
    return mine;
}

static void create(struct rank *r, struct window *w)
{
    window_create(r, w, AT_PIECES + PIECE);
    world_barrier(r);
}

/*
 * A short message overtakes payload: rank 0 has put more payload than the
 * kernels accept, and calls nothing more until rank 1 has the short message.
 */
void case_tcp_express(struct rank *r)
{
    enum { LAST = 1000 };
    const int fds = world_count_fds();
    uint64_t mine, before;
    struct window w;

    create(r, &w);
    mine = make_express(r, &w, true);
    CHECK(r, r->threads || world_count_fds() == fds + 2,
          "%d descriptors, %d before the window and the connection",
          world_count_fds(), fds);
    world_barrier(r);
    if (r->rank == 0) {
        before = expressed(r);
        while (!r->t->busy(r->ctx))
            put_bulk(r, &w, 2);
        put_bulk(r, &w, LAST);
        put_short(r, &w, mine + 1);
        CHECK(r, expressed(r) == before + 1, "%llu, %llu before",
              (unsigned long long)expressed(r), (unsigned long long)before);
        atomic_store(&r->board->flags[6], (int)mine + 1);
        world_await_flag(r, 7, 1);
    } else {
        world_await_flag(r, 6, 1);
        UNTIL(r, word_load(window_word(&w, AT_SHORT)) ==
                     (uint64_t)atomic_load(&r->board->flags[6]));
        CHECK(r, word_load(window_word(&w, AT_BULK)) != LAST,
              "the payload is here, too");
        atomic_store(&r->board->flags[7], 1);
        UNTIL(r, word_load(window_word(&w, AT_BULK)) == LAST);
    }
    world_barrier(r);
    window_destroy(r, &w);
}

/* Rank 1 puts as much as the kernels accept while rank 0 makes no progress, and
 * ends. Rank 0 must receive everything that the kernels accepted, over both
 * connections. Only then may it see how rank 1 ended. */
static void end_with_both(struct rank *r, bool killed)
{
    atomic_int *bulk = &r->board->flags[6], *ended = &r->board->flags[7];
    struct window w;
    uint64_t mine;

    create(r, &w);
    mine = make_express(r, &w, true);
    UNTIL(r, !r->t->progress(r->ctx)); /* nothing is left to read */
    world_barrier(r);
    if (r->rank == 1) {
        for (int i = 100; !r->t->busy(r->ctx); i++) {
            put_piece(r, &w, 50000, (uint64_t)i);
            for (int k = 0; k < 100 && r->t->busy(r->ctx); k++)
                r->t->progress(r->ctx);
            if (!r->t->busy(r->ctx))
                atomic_store(bulk, i);
        }
        put_short(r, &w, mine + 1);
        atomic_store(ended, (int)mine + 1);
        if (killed)
            raise(SIGKILL);
        r->t->close(r->ctx);
        r->ctx = NULL;
        return;
    }
    world_await_flag(r, 7, 1);
    UNTIL(r, !r->t->alive(r->eps[1]));
    CHECK(r, r->t->left(r->eps[1]) == !killed, "");
    CHECK(r,
          word_load(window_word(&w, AT_SHORT)) == (uint64_t)atomic_load(ended),
          "a short message is lost");
    CHECK(r, word_load(window_word(&w, AT_BULK)) >= (uint64_t)atomic_load(bulk),
          "%d of %d", (int)word_load(window_word(&w, AT_BULK)),
          atomic_load(bulk));
    r->t->close(r->ctx);
    r->ctx = NULL;
}

void case_tcp_express_killed(struct rank *r)
{
    end_with_both(r, true);
}

void case_tcp_express_left(struct rank *r)
{
    end_with_both(r, false);
}

/* --- one of the two ends ---------------------------------------------------- */

static int sockets(int *fds, int room)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *d;
    int n = 0;

    while (dir && (d = readdir(dir)) && n < room) {
        const int fd = atoi(d->d_name);
        struct stat st;

        if (d->d_name[0] != '.' && !fstat(fd, &st) && S_ISSOCK(st.st_mode))
            fds[n++] = fd;
    }
    if (dir)
        closedir(dir);
    return n;
}

static bool contains(const int *fds, int n, int fd)
{
    for (int i = 0; i < n; i++)
        if (fds[i] == fd)
            return true;
    return false;
}

/* One connection is shut down: the first one, or the second one if not `first`.
 * Both ranks then see the peer as lost, not as left. */
static void cut_one(struct rank *r, bool first)
{
    enum { ROOM = 64 };
    int before[ROOM], now[ROOM], nbefore, nnow;
    struct window w;

    nbefore = sockets(before, ROOM);
    create(r, &w);
    make_express(r, &w, true);
    nnow = sockets(now, ROOM);
    CHECK(r, nnow == nbefore + 1, "%d sockets, %d before", nnow, nbefore);
    for (int i = 0; r->rank == 1 && i < nnow; i++)
        if (contains(before, nbefore, now[i]) == first &&
            !shutdown(now[i], SHUT_RDWR) && first)
            break;
    UNTIL(r, !r->t->alive(r->eps[!r->rank]));
    CHECK(r, !r->t->left(r->eps[!r->rank]), "");
    CHECK(r,
          r->t->put(r->eps[!r->rank],
                    &(struct shunt_transport_put){
                        .signal = w.remote[!r->rank],
                        .signal_value = 1,
                    }) == SHUNT_ERR_PEER,
          "");
    world_barrier(r);
    r->t->close(r->ctx);
    r->ctx = NULL;
}

void case_tcp_express_cut(struct rank *r)
{
    cut_one(r, false);
}

void case_tcp_express_main_cut(struct rank *r)
{
    cut_one(r, true);
}

/* Listen on any port, and make it the only port that the ranks may use. */
static int occupy_port(struct rank *r)
{
    struct sockaddr_in in = {.sin_family = AF_INET};
    socklen_t len = sizeof(in);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char range[32];

    CHECK(r,
          fd >= 0 && !bind(fd, (struct sockaddr *)&in, len) && !listen(fd, 1) &&
              !getsockname(fd, (struct sockaddr *)&in, &len),
          "%s", strerror(errno));
    snprintf(range, sizeof(range), "%d-%d", ntohs(in.sin_port),
             ntohs(in.sin_port));
    setenv("SHUNT_TCP_PORTS", range, 1);
    return fd;
}

/* No port is free for a second connection, so all puts use the first one. */
void case_tcp_express_refused(struct rank *r)
{
    enum { LAST = 50 };
    struct window w;
    int port;

    world_open(r);
    port = occupy_port(r);
    create(r, &w);
    for (uint64_t k = 1; r->rank == 0 && k <= LAST; k++) {
        put_bulk(r, &w, k);
        put_short(r, &w, k);
        UNTIL(r, !r->t->busy(r->ctx));
    }
    for (uint64_t seen = 0; r->rank == 1 && seen < LAST; world_relax(r))
        seen = check_order(r, &w, seen);
    UNTIL(r, r->t->flush(r->eps[!r->rank]) == SHUNT_OK);
    world_barrier(r);
    CHECK(r, expressed(r) == 0, "%llu", (unsigned long long)expressed(r));
    close(port);
    window_destroy(r, &w);
    world_close(r);
}
