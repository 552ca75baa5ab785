// SPDX-License-Identifier: Apache-2.0
/*
 * `shunt-perf put`: put messages between two ranks.
 *
 * A round measures each library once: the transport and, if there is one, the
 * peer library. Both send the same number of messages. The library that is
 * measured first alternates from round to round.
 *
 * Rank 0 measures the time. Its clock starts after an untimed exchange of WARM
 * messages. So the time to leave perf_gate_wait() is not counted. `put` reports
 * half of the time of a round trip. `put-stream` sends many messages in a row,
 * and waits until the last one is acknowledged. It reports the time per
 * message.
 */
#include "perf/copies/put.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "perf/base/random.h"
#include "perf/peers/messenger.h"
#include "perf/tables/table.h"

#define ROUNDS 15
#define WARM 16                 /* messages before the clock starts */
#define MAX_BATCH 20000         /* most messages in a round */
#define MIN_STREAM 64           /* least messages in a stream */
#define ROOM ((size_t)16 << 20) /* bytes for messages in flight */
#define STREAM_PATTERN 77
#define POISON 0xa5
/* Polls before a waiting rank yields the processor. */
#define SPINS 20000
#define SPINS_CROWDED 50

struct side {
    const struct perf_messenger *how;
    void *state;
    unsigned char *to; /* receive buffer: `room` bytes, then PERF_SIGNAL_PAGE */
    int to_fd;
    uint64_t sent, received; /* signals sent to the other rank; received */
};

struct bench {
    const struct perf_group *g;
    const struct perf_options *o;
    struct side side[2]; /* the transport; the peer library */
    int sides;
    unsigned char *from;   /* (room) bytes that this rank sends */
    unsigned char *theirs; /* (room) expected bytes of the other rank */
    size_t room;
    int from_fd;
};

/* One kind of row. */
struct kind {
    const char *op;
    void (*run)(struct bench *b, struct side *s, size_t bytes, int messages);
    int least;      /* least messages in a round */
    double between; /* a message takes its share of the time, divided by
                     * `between` */
};

static void must(const struct side *s, const char *wrong)
{
    if (wrong)
        perf_die(PERF_EXIT_FAILED, "put by %s: %s", s->how->name, wrong);
}

static void send_slot(struct side *s, size_t offset, size_t bytes, bool signal)
{
    must(s, s->how->send(s->state, offset, bytes, signal));
    s->sent += signal;
}

static void await_signals(struct side *s, int signals)
{
    s->received += (uint64_t)signals;
    must(s, s->how->await(s->state, s->received));
}

/* --- what is measured ----------------------------------------------------- */

static void ping_pong(struct bench *b, struct side *s, size_t bytes,
                      int messages)
{
    for (int i = 0; i < messages; i++) {
        if (b->g->rank == 0)
            send_slot(s, 0, bytes, true);
        await_signals(s, 1);
        if (b->g->rank == 1)
            send_slot(s, 0, bytes, true);
    }
}

/* Called after a measurement in which rank 1 sent last. A put may need progress
 * calls of its sender until it has arrived, and perf_gate_wait() makes none. So
 * rank 1 sends one more small message and waits for the answer. */
static void settle(struct bench *b, struct side *s)
{
    if (b->g->rank == 1)
        send_slot(s, 0, 8, true);
    await_signals(s, 1);
    if (b->g->rank == 0)
        send_slot(s, 0, 8, true);
}

static size_t slots_of(const struct bench *b, size_t bytes)
{
    const size_t slots = b->room / bytes;

    return slots < PERF_MESSAGES ? slots : PERF_MESSAGES;
}

/* With the transport each message has a signal. The peer library sends plain
 * writes in order, and only the last has an immediate: no other way needs fewer
 * requests. */
static void stream(struct bench *b, struct side *s, size_t bytes, int messages)
{
    const bool each = s == &b->side[PERF_OURS];
    const size_t slots = slots_of(b, bytes);

    if (b->g->rank == 1) {
        await_signals(s, each ? messages : 1);
        send_slot(s, 0, 8, true);
        return;
    }
    for (int i = 0; i < messages; i++)
        send_slot(s, (size_t)i % slots * bytes, bytes,
                  each || i + 1 == messages);
    await_signals(s, 1);
}

static const struct kind kinds[] = {
    {"put", ping_pong, 1, 2},
    {"put-stream", stream, MIN_STREAM, 1},
};

/* --- a row ---------------------------------------------------------------- */

/* Send messages onto poisoned memory. Returns the number of wrong bytes on
 * this rank when the signal has arrived. */
static double try_once(struct bench *b, struct side *s, const struct kind *kind,
                       size_t bytes)
{
    const bool streams = kind->run == stream;
    size_t n = bytes;
    double wrong = 0;

    if (streams)
        n = b->g->rank == 1 ? slots_of(b, bytes) * bytes : 8;
    memset(s->to, POISON, n);
    perf_gate_wait(b->g);
    kind->run(b, s, bytes, streams ? PERF_MESSAGES : 1);
    for (size_t i = 0; i < n; i++)
        wrong += s->to[i] != b->theirs[i];
    settle(b, s);
    perf_gate_wait(b->g);
    return wrong;
}

/* Run one round. Returns, on rank 0, the microseconds per message. Add rank
 * 0's requests to *requests. */
static double round_of(struct bench *b, struct side *s, const struct kind *kind,
                       size_t bytes, int messages, double *requests)
{
    double before, start, us;

    perf_gate_wait(b->g);
    ping_pong(b, s, 8, WARM);
    before = s->how->requests(s->state);
    start = perf_now_us();
    kind->run(b, s, bytes, messages);
    us = perf_now_us() - start;
    *requests += s->how->requests(s->state) - before;
    settle(b, s);
    return us / messages / kind->between;
}

/* Returns how many messages a round has, so that all rounds together take the
 * time given for a row. */
static int find_batch(struct bench *b, const struct kind *kind, size_t bytes,
                      int rounds)
{
    const double most = b->o->seconds * 1e6 / rounds;
    double sum = 0, unused = 0;
    int batch = kind->least;

    if (b->o->batch)
        return b->o->batch;
    for (int tries = 0; tries < 2; tries++) {
        sum = 0;
        for (int i = 0; i < b->sides; i++)
            sum += kind->between *
                   round_of(b, &b->side[i], kind, bytes, batch, &unused);
        sum = perf_max(b->g, sum);
        batch = (int)fmin(fmax(most / sum, kind->least), MAX_BATCH);
    }
    return batch;
}

static void measure(struct bench *b, const struct kind *kind, size_t bytes)
{
    const int rounds = b->o->samples ? b->o->samples : ROUNDS;
    double *us[2], requests[2] = {0}, wrong[2] = {0};
    struct perf_row_put put = {.requests = -1, .peer_requests = -1};
    struct perf_row row = {
        .op = kind->op,
        .bytes = bytes,
        .count = bytes,
        .bus = 1,
        .pair = -1,
        .checked = true,
        .samples = (size_t)rounds,
        .sent_rows = -1,
        .put = &put,
    };

    for (int i = 0; i < b->sides; i++) {
        us[i] = perf_alloc((size_t)rounds * sizeof(*us[i]));
        wrong[i] = try_once(b, &b->side[i], kind, bytes);
        for (int w = 0; w < b->o->warmup; w++)
            round_of(b, &b->side[i], kind, bytes, kind->least, &requests[i]);
        requests[i] = 0;
    }
    row.batch = find_batch(b, kind, bytes, rounds);
    for (int n = 0; n < rounds; n++) {
        for (int turn = 0; turn < b->sides; turn++) {
            const int i = n % 2 ? b->sides - 1 - turn : turn;

            us[i][n] =
                round_of(b, &b->side[i], kind, bytes, row.batch, &requests[i]);
        }
    }
    for (int i = 0; i < b->sides; i++) {
        wrong[i] += try_once(b, &b->side[i], kind, bytes);
        row.has[i] = true;
        row.times[i] = perf_times_of(us[i], (size_t)rounds);
        row.wrong[i] = perf_sum(b->g, wrong[i]);
        free(us[i]);
    }
    put.requests = requests[0] / rounds / row.batch;
    if (b->sides > 1)
        put.peer_requests = requests[1] / rounds / row.batch;
    if (b->side[0].how->requests(b->side[0].state) < 0)
        put.requests = -1;
    perf_table_row(&row);
}

/* --- opening -------------------------------------------------------------- */

static void swap(void *arg, const void *mine, void *theirs, size_t bytes)
{
    const struct perf_group *g = arg;
    unsigned char *all = perf_alloc(2 * bytes);

    perf_allgather(g, mine, all, bytes);
    memcpy(theirs, all + (size_t)!g->rank * bytes, bytes);
    free(all);
}

static void *shared_memory(size_t bytes, int *fd)
{
    void *addr = MAP_FAILED;

    *fd = memfd_create("shunt-perf-put", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd >= 0 && !ftruncate(*fd, (off_t)bytes))
        addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (addr == MAP_FAILED)
        perf_die(PERF_EXIT_FAILED, "no shared memory of %zu bytes", bytes);
    return addr;
}

static void open_side(struct bench *b, const struct perf_messenger *how,
                      const char *transport)
{
    struct side *s = &b->side[b->sides++];
    struct perf_messenger_params params = {
        .rank = b->g->rank,
        .spins = b->g->crowded ? SPINS_CROWDED : SPINS,
        .one_host = b->g->hosts.n == 1,
        .from = b->from,
        .from_fd = b->from_fd,
        .bytes = b->room,
        .transport = transport,
        .swap = swap,
        .arg = (void *)(uintptr_t)b->g,
    };
    unsigned char both[2 * sizeof(params.secret)];

    if (getrandom(params.secret, sizeof(params.secret), 0) !=
        sizeof(params.secret))
        perf_die(PERF_EXIT_FAILED, "no random numbers");
    perf_allgather(b->g, params.secret, both, sizeof(params.secret));
    memcpy(params.secret, both, sizeof(params.secret));
    s->how = how;
    s->to = shared_memory(b->room + PERF_SIGNAL_PAGE, &s->to_fd);
    params.to = s->to;
    params.to_fd = s->to_fd;
    must(s, how->open(&params, &s->state));
    perf_table_note("%s: by %s, %s", b->sides == 1 ? "put" : "peer", how->name,
                    how->route(s->state));
}

static void close_side(struct bench *b, struct side *s)
{
    s->how->close(s->state);
    munmap(s->to, b->room + PERF_SIGNAL_PAGE);
    close(s->to_fd);
}

/* Returns the name of the transport between the two ranks, as "rdma": the text
 * before the first space. */
static const char *name_transport(const struct perf_group *g)
{
    static char name[64];
    const char *text = shunt_comm_transport(g->comm, !g->rank);

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(text, " "), text);
    return name;
}

static void fill(const struct bench *b, unsigned char *to, int rank)
{
    const uint64_t key =
        perf_key(b->o->seed, STREAM_PATTERN, (uint64_t)rank, 0);

    for (size_t i = 0; i < b->room; i++)
        to[i] = (unsigned char)perf_random(key, i);
}

void perf_put(const struct perf_contest *contest)
{
    const struct perf_options *o = contest->options;
    struct bench b = {.g = contest->group, .o = o};

    if (b.g->ranks != 2)
        perf_die(PERF_EXIT_USAGE, "put is between two ranks: --ranks 2, or "
                                  "two that a launcher starts");
    b.room = o->end > ROOM ? o->end : ROOM;
    b.from = shared_memory(b.room, &b.from_fd);
    b.theirs = perf_alloc(b.room);
    fill(&b, b.from, b.g->rank);
    fill(&b, b.theirs, !b.g->rank);
    open_side(&b, &perf_messenger_transport, name_transport(b.g));
    if (contest->raw)
        open_side(&b, contest->raw, NULL);
    for (size_t bytes = o->begin; bytes <= o->end;) {
        const double next = (double)bytes * o->factor;

        for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
            measure(&b, &kinds[k], bytes);
        bytes = next < (double)bytes + 1 ? bytes + 1 : (size_t)next;
    }
    for (int i = 0; i < b.sides; i++)
        close_side(&b, &b.side[i]);
    munmap(b.from, b.room);
    close(b.from_fd);
    free(b.theirs);
}
