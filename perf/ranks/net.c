// SPDX-License-Identifier: Apache-2.0
/*
 * TCP between the ranks.
 *
 * Every rank listens, publishes its address, connects to some ranks, and then
 * accepts as many connections as it expects. The connecting rank sends its rank
 * and a key that was distributed before. Connections without it are refused.
 */
#include "perf/ranks/net.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "perf/base/perf.h"
#include "perf/base/statistics.h"
#include "perf/ranks/group.h"

#define MAX_ADDRESSES 6
#define CONNECT_MS 10000
#define TIMEOUT_S 300 /* until a rank counts as stuck */
#define PIECE (256 << 10)
#define PINGS 200
#define WATCH_US 50
#define RATE_US 150000.0 /* duration of a stream that gives a rate */
#define RATES 9          /* the minimum number of rates */

struct perf_net {
    const struct perf_group *g;
    int *hub;    /* rank 0: (ranks) sockets to ranks; others: (1) to rank 0 */
    int *stream; /* (hosts) socket to each other host; -1: another rank of this
                  * host has that socket */
    char interface[IF_NAMESIZE];
    char *piece; /* (PIECE) send and receive buffer */
    bool rests;
};

/* --- addresses ------------------------------------------------------------ */

struct address {
    int32_t family; /* AF_INET, AF_INET6 or 0 */
    uint32_t prefix;
    unsigned char bytes[16];
};

/* Where a rank listens, and the key of connections. */
struct place {
    uint64_t key; /* all ranks use the key of rank 0 */
    int32_t port;
    int32_t count;
    struct address address[MAX_ADDRESSES];
};

static size_t address_bytes(int family)
{
    return family == AF_INET ? 4 : 16;
}

static const unsigned char *raw_bytes(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return (const void *)&((const struct sockaddr_in *)(const void *)a)
            ->sin_addr;
    return (const void *)&((const struct sockaddr_in6 *)(const void *)a)
        ->sin6_addr;
}

static uint32_t prefix_of(const struct sockaddr *mask)
{
    uint32_t bits = 0;
    if (!mask)
        return 0;
    const unsigned char *b = raw_bytes(mask);
    for (size_t i = 0; i < address_bytes(mask->sa_family); i++)
        bits += (uint32_t)__builtin_popcount(b[i]);
    return bits;
}

static bool usable(const struct ifaddrs *i, const char *interface)
{
    if (!i->ifa_addr || (i->ifa_flags & IFF_LOOPBACK) ||
        !(i->ifa_flags & IFF_UP))
        return false;
    if (interface && strcmp(i->ifa_name, interface) != 0)
        return false;
    if (i->ifa_addr->sa_family == AF_INET)
        return true;
    /* A link-local address (fe80::) is usable only with the caller's own
     * interface name. */
    return i->ifa_addr->sa_family == AF_INET6 &&
           !IN6_IS_ADDR_LINKLOCAL(
               &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)
                    ->sin6_addr);
}

static void find_addresses(const char *interface, struct place *place)
{
    struct ifaddrs *all;

    if (getifaddrs(&all) != 0)
        perf_die(PERF_EXIT_FAILED, "no addresses: %s", strerror(errno));
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!usable(i, interface) || place->count == MAX_ADDRESSES)
            continue;
        struct address *a = &place->address[place->count++];
        a->family = i->ifa_addr->sa_family;
        a->prefix = prefix_of(i->ifa_netmask);
        memcpy(a->bytes, raw_bytes(i->ifa_addr), address_bytes(a->family));
    }
    freeifaddrs(all);
}

static bool same_subnet(const struct address *a, const struct address *b)
{
    if (a->family != b->family)
        return false;
    for (uint32_t bit = 0; bit < a->prefix; bit++) {
        int mask = 0x80 >> bit % 8;
        if ((a->bytes[bit / 8] ^ b->bytes[bit / 8]) & mask)
            return false;
    }
    return true;
}

static bool is_near(const struct address *a, const struct place *mine)
{
    for (int i = 0; i < mine->count; i++)
        if (same_subnet(&mine->address[i], a))
            return true;
    return false;
}

static socklen_t to_sockaddr(const struct address *a, int port,
                             struct sockaddr_storage *to)
{
    memset(to, 0, sizeof(*to));
    if (a->family == AF_INET) {
        struct sockaddr_in *in = (void *)to;
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)port);
        memcpy(&in->sin_addr, a->bytes, 4);
        return sizeof(*in);
    }
    struct sockaddr_in6 *in = (void *)to;
    in->sin6_family = AF_INET6;
    in->sin6_port = htons((uint16_t)port);
    memcpy(&in->sin6_addr, a->bytes, 16);
    return sizeof(*in);
}

/* Find the name of the interface that has the local address of `fd`. */
static void find_interface(int fd, char *name)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof(own);
    struct ifaddrs *all;
    struct address a = {0};

    if (getsockname(fd, (struct sockaddr *)&own, &length) != 0 ||
        getifaddrs(&all) != 0)
        return;
    a.family = own.ss_family;
    memcpy(a.bytes, raw_bytes((struct sockaddr *)&own),
           address_bytes(a.family));
    if (a.family == AF_INET6 &&
        IN6_IS_ADDR_V4MAPPED((struct in6_addr *)a.bytes)) {
        a.family = AF_INET;
        memmove(a.bytes, a.bytes + 12, 4);
    }
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (usable(i, NULL) && i->ifa_addr->sa_family == a.family &&
            memcmp(raw_bytes(i->ifa_addr), a.bytes, address_bytes(a.family)) ==
                0)
            snprintf(name, IF_NAMESIZE, "%s", i->ifa_name);
    }
    freeifaddrs(all);
}

/* --- connecting ----------------------------------------------------------- */

enum call { CALL_HUB = 1, CALL_STREAM };

struct greeting {
    uint64_t key;
    int32_t call;
    int32_t from; /* rank; for streams, host */
};

static void wait_for(int fd, short events, int ms, const char *what)
{
    struct pollfd p = {.fd = fd, .events = events};
    int n;

    do {
        n = poll(&p, 1, ms);
    } while (n < 0 && errno == EINTR);
    if (n <= 0)
        perf_die(PERF_EXIT_FAILED, "%s: nothing for %d s; is a rank gone?",
                 what, ms / 1000);
}

static void put(int fd, const void *from, size_t bytes, const char *what)
{
    for (const char *p = from; bytes;) {
        ssize_t n = send(fd, p, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            wait_for(fd, POLLOUT, TIMEOUT_S * 1000, what);
        } else if (n < 0 && errno != EINTR) {
            perf_die(PERF_EXIT_FAILED, "%s: %s", what, strerror(errno));
        } else if (n > 0) {
            p += n;
            bytes -= (size_t)n;
        }
    }
}

/* Receive bytes. Returns false if the other end was closed or is late. */
static bool take(int fd, void *to, size_t bytes, int ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    for (char *at = to; bytes;) {
        ssize_t n = recv(fd, at, bytes, MSG_DONTWAIT);
        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return false;
        } else if (poll(&p, 1, ms) == 0) {
            return false;
        }
    }
    return true;
}

static void must_take(int fd, void *to, size_t bytes, const char *what)
{
    if (!take(fd, to, bytes, TIMEOUT_S * 1000))
        perf_die(PERF_EXIT_FAILED, "%s: a rank is gone, or stuck for %d s",
                 what, TIMEOUT_S);
}

/* Listen on an IPv6 socket, which accepts IPv4 too. Without IPv6: on an IPv4
 * socket. */
static int listen_anywhere(int32_t *port)
{
    struct sockaddr_storage any = {.ss_family = AF_INET6};
    socklen_t length = sizeof(struct sockaddr_in6);
    int off = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    } else {
        any.ss_family = AF_INET;
        length = sizeof(struct sockaddr_in);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    if (fd < 0 || bind(fd, (struct sockaddr *)&any, length) != 0 ||
        listen(fd, 4096) != 0 ||
        getsockname(fd, (struct sockaddr *)&any, &length) != 0)
        perf_die(PERF_EXIT_FAILED, "cannot listen: %s", strerror(errno));
    *port = ntohs(any.ss_family == AF_INET
                      ? ((struct sockaddr_in *)(void *)&any)->sin_port
                      : ((struct sockaddr_in6 *)(void *)&any)->sin6_port);
    return fd;
}

static int try_call(const struct address *a, int port)
{
    struct sockaddr_storage to;
    socklen_t length = to_sockaddr(a, port, &to), size = sizeof(int);
    int error = 0;
    int fd = socket(a->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&to, length) != 0) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        error = errno;
        if (error == EINPROGRESS && poll(&p, 1, CONNECT_MS) == 1)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (!error)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

static void no_delay(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* Connect. Addresses of a common subnet are tried first. */
static int call(const struct place *mine, const struct place *to, uint64_t key,
                enum call what, int from, const char *name)
{
    int fd = -1;

    for (int far = 0; far < 2 && fd < 0; far++)
        for (int i = 0; i < to->count && fd < 0; i++)
            if (is_near(&to->address[i], mine) == !far)
                fd = try_call(&to->address[i], to->port);
    if (fd < 0)
        perf_die(PERF_EXIT_FAILED,
                 "cannot reach %s by TCP: %s; name the interface between the "
                 "hosts by --interface",
                 name, to->count ? strerror(errno) : "it has no address");
    struct greeting hello = {key, what, from};
    no_delay(fd);
    put(fd, &hello, sizeof(hello), "greeting");
    return fd;
}

/* Accept connections until `calls` valid ones have arrived. */
static void answer(struct perf_net *net, int listener, uint64_t key, int calls)
{
    const struct perf_group *g = net->g;
    struct greeting hello;

    while (calls > 0) {
        wait_for(listener, POLLIN, TIMEOUT_S * 1000, "connecting");
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            continue;
        int *to = NULL;
        if (take(fd, &hello, sizeof(hello), CONNECT_MS) && hello.key == key &&
            hello.from >= 0) {
            if (hello.call == CALL_HUB && g->rank == 0 && hello.from < g->ranks)
                to = &net->hub[hello.from];
            else if (hello.call == CALL_STREAM && hello.from < g->hosts.n)
                to = &net->stream[hello.from];
        }
        if (!to || *to >= 0) {
            close(fd);
            continue;
        }
        no_delay(fd);
        *to = fd;
        calls--;
    }
}

/* Returns whether this rank holds its host's connection with `host`. */
static bool is_mine(const struct perf_group *g, int host)
{
    return host != g->hosts.mine &&
           host % g->hosts.size[g->hosts.mine] == g->hosts.local;
}

/* Connect this rank. The host with the lower number connects to the other.
 * Returns how many connections this rank must accept. */
static int connect_all(struct perf_net *net, const struct place *all)
{
    const struct perf_group *g = net->g;
    const struct place *mine = &all[g->rank];
    int expected = g->rank == 0 ? g->ranks - 1 : 0;
    char name[32];

    if (g->rank != 0)
        net->hub[0] =
            call(mine, &all[0], all[0].key, CALL_HUB, g->rank, "rank 0");
    for (int h = 0; h < g->hosts.n; h++) {
        if (!is_mine(g, h))
            continue;
        if (h < g->hosts.mine) {
            expected++;
            continue;
        }
        int rank = perf_host_rank(g, h, g->hosts.mine % g->hosts.size[h]);
        snprintf(name, sizeof(name), "rank %d", rank);
        net->stream[h] = call(mine, &all[rank], all[0].key, CALL_STREAM,
                              g->hosts.mine, name);
    }
    return expected;
}

static int *no_sockets(int n)
{
    int *fds = perf_alloc((size_t)n * sizeof(*fds));
    for (int i = 0; i < n; i++)
        fds[i] = -1;
    return fds;
}

/* Choose the interface whose counters are read. The first rank of each host
 * reads them. It may have no stream, so it finds the interface by the route to
 * another host. */
static void choose_interface(struct perf_net *net, const struct place *all,
                             const char *given)
{
    const struct perf_group *g = net->g;

    if (given) {
        snprintf(net->interface, sizeof(net->interface), "%s", given);
        return;
    }
    for (int h = 0; h < g->hosts.n; h++)
        if (net->stream[h] >= 0)
            find_interface(net->stream[h], net->interface);
    for (int r = 0; r < g->ranks && !net->interface[0]; r++) {
        if (g->hosts.of[r] == g->hosts.mine)
            continue;
        for (int i = 0; i < all[r].count && !net->interface[0]; i++) {
            struct sockaddr_storage to;
            socklen_t length = to_sockaddr(&all[r].address[i], 9, &to);
            int fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
            /* This sends no packet. */
            if (fd >= 0 && connect(fd, (struct sockaddr *)&to, length) == 0)
                find_interface(fd, net->interface);
            if (fd >= 0)
                close(fd);
        }
    }
}

struct perf_net *perf_net_open(const struct perf_group *g,
                               const char *interface)
{
    struct perf_net *net = perf_alloc(sizeof(*net));
    struct place mine = {0}, *all = perf_alloc((size_t)g->ranks * sizeof(*all));

    *net = (struct perf_net){
        .g = g,
        .hub = no_sockets(g->rank == 0 ? g->ranks : 1),
        .stream = no_sockets(g->hosts.n),
        .piece = perf_alloc(PIECE),
    };
    memset(net->piece, 0x5a, PIECE);
    int listener = listen_anywhere(&mine.port);
    find_addresses(interface, &mine);
    if (getrandom(&mine.key, sizeof(mine.key), 0) != sizeof(mine.key))
        mine.key = (uint64_t)getpid() << 32 ^ (uint64_t)perf_now_us();
    perf_allgather(g, &mine, all, sizeof(mine));
    answer(net, listener, all[0].key, connect_all(net, all));
    close(listener);
    choose_interface(net, all, interface);
    free(all);
    return net;
}

void perf_net_close(struct perf_net *net)
{
    if (!net)
        return;
    int hubs = net->g->rank == 0 ? net->g->ranks : 1;
    for (int i = 0; i < hubs; i++)
        if (net->hub[i] >= 0)
            close(net->hub[i]);
    for (int h = 0; h < net->g->hosts.n; h++)
        if (net->stream[h] >= 0)
            close(net->stream[h]);
    free(net->hub);
    free(net->stream);
    free(net->piece);
    free(net);
}

const char *perf_net_interface(const struct perf_net *net)
{
    return net->interface;
}

/* --- the gate ------------------------------------------------------------- */

/* Wait for the token without spinning. Meanwhile call MPI's progress, which
 * may have data left to send. */
static void wait_token(const struct perf_net *net, int fd)
{
    const struct perf_world *mpi = net->g->mpi;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    double give_up = perf_now_us() + TIMEOUT_S * 1e6;
    char token;

    while (mpi && perf_now_us() < give_up && poll(&p, 1, 1) == 0)
        mpi->progress();
    must_take(fd, &token, 1, "gate");
}

void perf_net_gate(const struct perf_net *net)
{
    const struct perf_group *g = net->g;
    char token = 1;

    if (g->rank != 0) {
        put(net->hub[0], &token, 1, "gate");
        wait_token(net, net->hub[0]);
        return;
    }
    for (int r = 1; r < g->ranks; r++)
        wait_token(net, net->hub[r]);
    for (int r = 1; r < g->ranks; r++)
        put(net->hub[r], &token, 1, "gate");
}

/* --- streams -------------------------------------------------------------- */

/* Send or receive as many bytes as the socket can now. Returns how many. */
static uint64_t step(int fd, bool out, char *piece, uint64_t left)
{
    size_t most = left < PIECE ? (size_t)left : PIECE;
    ssize_t n = out ? send(fd, piece, most, MSG_DONTWAIT | MSG_NOSIGNAL)
                    : recv(fd, piece, most, MSG_DONTWAIT);

    if (n > 0)
        return (uint64_t)n;
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        perf_die(PERF_EXIT_FAILED, "stream: %s",
                 n == 0 ? "the other end is closed" : strerror(errno));
    return 0;
}

void perf_net_rest(struct perf_net *net, bool rests)
{
    net->rests = rests;
}

/* Set the bytes after which poll() reports the socket: a whole piece, or the
 * rest. */
static void wait_for_piece(const struct perf_net *net, int fd, uint64_t left)
{
    const int bytes = net->rests && left < PIECE ? (int)left
                      : net->rests               ? PIECE
                                                 : 1;

    setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

void perf_net_exchange(struct perf_net *net, const uint64_t *bytes)
{
    const struct perf_hosts *h = &net->g->hosts;
    size_t n = (size_t)h->n, me = (size_t)h->mine, count = 0;
    uint64_t *out = perf_alloc(n * sizeof(*out));
    uint64_t *in = perf_alloc(n * sizeof(*in));
    struct pollfd *p = perf_alloc(n * sizeof(*p));

    for (size_t o = 0; o < n; o++) {
        if (net->stream[o] < 0)
            continue;
        p[count].fd = net->stream[o];
        out[count] = bytes[me * n + o];
        in[count++] = bytes[o * n + me];
        wait_for_piece(net, net->stream[o], bytes[o * n + me]);
    }
    for (;;) {
        bool busy = false;
        for (size_t i = 0; i < count; i++) {
            p[i].events =
                (short)((out[i] ? POLLOUT : 0) | (in[i] ? POLLIN : 0));
            p[i].revents = 0;
            busy = busy || p[i].events;
            if (!p[i].events)
                p[i].fd = -1; /* so that poll() does not report its end */
        }
        if (!busy)
            break;
        int ready = poll(p, count, TIMEOUT_S * 1000);
        if (ready == 0)
            perf_die(PERF_EXIT_FAILED, "stream: nothing moved for %d s",
                     TIMEOUT_S);
        for (size_t i = 0; i < count; i++) {
            if (p[i].revents & (POLLIN | POLLERR | POLLHUP) && in[i]) {
                in[i] -= step(p[i].fd, false, net->piece, in[i]);
                if (net->rests && in[i] < PIECE)
                    wait_for_piece(net, p[i].fd, in[i]);
            }
            if (p[i].revents & (POLLOUT | POLLERR) && out[i])
                out[i] -= step(p[i].fd, true, net->piece, out[i]);
        }
    }
    free(out);
    free(in);
    free(p);
}

/* --- what a link gives ---------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Receive one byte by polling, because the time to wake a sleeping process is
 * not a property of the link. Polls only for a short time: a process that polls
 * for long may lose its processor to another one at the wrong moment. */
static void catch (int fd)
{
    double patience = perf_now_us() + WATCH_US;
    char token;

    while (perf_now_us() < patience)
        if (recv(fd, &token, 1, MSG_DONTWAIT) == 1)
            return;
    must_take(fd, &token, 1, "latency");
}

/* Returns half a round trip between host 0 and `host`, on every rank.
 * Collective. */
static double latency(struct perf_net *net, int host)
{
    const struct perf_group *g = net->g;
    double us[PINGS], mine = 0;
    char token = 1;

    perf_net_gate(net);
    if (g->hosts.mine == 0 && net->stream[host] >= 0) {
        for (int i = 0; i < PINGS; i++) {
            double start = perf_now_us();
            put(net->stream[host], &token, 1, "latency");
            catch (net->stream[host]);
            us[i] = (perf_now_us() - start) / 2;
        }
        qsort(us, PINGS, sizeof(*us), ascending);
        mine = (us[PINGS / 2 - 1] + us[PINGS / 2]) / 2;
    } else if (g->hosts.mine == host && net->stream[0] >= 0) {
        for (int i = 0; i < PINGS; i++) {
            catch (net->stream[0]);
            put(net->stream[0], &token, 1, "latency");
        }
    }
    return perf_max(g, mine);
}

/* Each host sends `each` bytes to the host `shift` places further. Returns the
 * time. */
static double shifted(struct perf_net *net, uint64_t *bytes, int shift,
                      uint64_t each)
{
    int n = net->g->hosts.n;

    memset(bytes, 0, (size_t)n * (size_t)n * sizeof(*bytes));
    for (int a = 0; a < n; a++)
        bytes[a * n + (a + shift) % n] = each;
    perf_net_gate(net);
    double start = perf_now_us();
    perf_net_exchange(net, bytes);
    return perf_max(net->g, perf_now_us() - start);
}

/* Returns the best of several rates: other programs only reduce them. */
static double rate(struct perf_net *net)
{
    int n = net->g->hosts.n, count = 0, repeats = 1 + (RATES - 1) / (n - 1);
    uint64_t each = 1 << 20;
    uint64_t *bytes = perf_alloc((size_t)n * (size_t)n * sizeof(*bytes));
    double *rates = perf_alloc((size_t)(n * repeats) * sizeof(*rates));

    while (shifted(net, bytes, 1, each) < RATE_US && each < UINT64_C(1) << 36)
        each *= 2;
    for (int repeat = 0; repeat < repeats; repeat++)
        for (int shift = 1; shift < n; shift++)
            rates[count++] = (double)each / shifted(net, bytes, shift, each);
    qsort(rates, (size_t)count, sizeof(*rates), ascending);
    double best = rates[count - 1];
    free(bytes);
    free(rates);
    return best;
}

/* Returns the time from the first rank's arrival at a gate until the last one
 * leaves it: an upper bound of what a gate adds to a time. */
static double pause_of(struct perf_net *net)
{
    double us[PINGS];

    for (int i = 0; i < PINGS; i++) {
        double start = perf_now_us();
        perf_net_gate(net);
        us[i] = perf_now_us() - start;
    }
    return perf_max(net->g, perf_median(us, PINGS));
}

struct perf_link perf_net_measure(struct perf_net *net)
{
    int others = net->g->hosts.n - 1;
    double *each = perf_alloc((size_t)others * sizeof(*each));
    struct perf_link link;

    for (int h = 1; h <= others; h++)
        each[h - 1] = latency(net, h);
    link.latency = perf_median(each, (size_t)others);
    link.rate = rate(net);
    link.pause = pause_of(net);
    free(each);
    return link;
}
