// SPDX-License-Identifier: Apache-2.0
/*
 * Tests of the contract in include/shunt/engine.h, for any copy engine.
 *
 *     engine_conformance [--seed N] NAME
 *
 * prints TAP. SHUNT_PLUGIN_PATH is the folder of shunt_NAME.so. An engine for
 * other memory than the host's copies between its own kinds of memory
 * (places.h).
 */
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <shunt/engine.h>

#include "tests/engines/places.h"

#define GUARD 64
#define DEADLINE_SECONDS 60

static const struct shunt_engine *engine;
static struct shunt_engine_ctx *ctx;
static uint64_t seed = 1;

static void log_line(int level, const char *name, const char *format, ...)
{
    va_list args;

    (void)level;
    va_start(args, format);
    printf("# %s: ", name);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

static const char *variable(const char *name)
{
    return getenv(name);
}

static const struct shunt_transport_host host = {
    .abi = SHUNT_TRANSPORT_ABI,
    .log = log_line,
    .env = variable,
};

/* splitmix64 */
static uint64_t random_below(uint64_t n)
{
    uint64_t z = (seed += 0x9e3779b97f4a7c15u);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

/* Fill eight bytes at a time by memcpy(), because a sanitizer checks each
 * access. */
static void fill(unsigned char *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t word = random_below(UINT64_MAX);

        memcpy(to + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

static double seconds(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static bool open_engine(void)
{
    const struct shunt_engine_params params = {.host = &host};
    char why[512] = "";

    if (!engine->open(&params, &ctx, why, sizeof(why)))
        return true;
    printf("# open: %s\n", why);
    return false;
}

/* Submit a copy. Returns false if the engine refuses it, or has no room for too
 * long. */
static bool submit(const struct shunt_engine_copy *copy)
{
    const double end = seconds() + DEADLINE_SECONDS;
    enum shunt_status st;

    while ((st = engine->submit(ctx, copy)) == SHUNT_IN_PROGRESS) {
        engine->poll(ctx);
        sched_yield();
        if (seconds() > end)
            return false;
    }
    return !st;
}

static bool raised(const uint64_t *signal, uint64_t value)
{
    const double end = seconds() + DEADLINE_SECONDS;

    while (__atomic_load_n(signal, __ATOMIC_ACQUIRE) != value) {
        engine->poll(ctx);
        sched_yield();
        if (seconds() > end) {
            printf("# the signal was not raised\n");
            return false;
        }
    }
    return true;
}

/* The kinds of memory between which a case copies. */
static const struct place *to_place = &place_host, *from_place = &place_host;

struct memory {
    unsigned char *at; /* there are GUARD bytes on both sides */
    size_t bytes;
    const struct place *place;
};

/* Allocate memory with random contents. *content is a copy of its bytes, from
 * the first guard on. The caller frees it. */
static struct memory memory_new(const struct place *place, size_t bytes,
                                unsigned char **content)
{
    const size_t whole = bytes + 2 * GUARD;
    struct memory m = {place->take(whole), bytes, place};

    *content = malloc(whole);
    fill(*content, whole);
    place->write(m.at, *content, whole);
    m.at += GUARD;
    return m;
}

static bool holds(const struct memory *m, const unsigned char *expected)
{
    const size_t whole = m->bytes + 2 * GUARD;
    unsigned char *now = malloc(whole);
    bool same;

    m->place->read(now, m->at - GUARD, whole);
    same = !memcmp(now, expected, whole);
    free(now);
    return same;
}

static void memory_free(struct memory m)
{
    m.place->give_back(m.at - GUARD);
}

static void shuffle(uint32_t *order, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const size_t other = random_below(i + 1);

        order[i] = order[other];
        order[other] = (uint32_t)i;
    }
}

/* Make one copy. Check that it has the effect that engine.h defines, and
 * changes nothing else. */
static bool one_copy(size_t rows, size_t bytes, size_t to_gap, size_t from_gap,
                     bool indexed)
{
    const bool scattered =
        indexed && engine->caps & SHUNT_ENGINE_SCATTERS && random_below(2);
    const size_t to_stride = bytes + to_gap, from_stride = bytes + from_gap;
    const size_t sources = indexed ? rows + 5 : rows;
    unsigned char *source, *expected;
    struct memory from =
        memory_new(from_place, sources * from_stride + 1, &source);
    struct memory to = memory_new(to_place, rows * to_stride + 1, &expected);
    uint32_t *index = malloc((rows + 1) * sizeof(*index));
    uint32_t *place = malloc((rows + 1) * sizeof(*place));
    uint64_t signal = 0;
    struct shunt_engine_copy copy = {
        .to = to.at + 1,
        .from = from.at + 1,
        .bytes = bytes,
        .rows = rows,
        .to_stride = to_stride,
        .from_stride = from_stride,
        .index = indexed ? index : NULL,
        .signal = &signal,
        .value = 1 + random_below(1000),
        .wake_fd = -1,
        .whole = random_below(2) * (64 << 20),
        .to_index = scattered ? place : NULL,
    };
    bool well;

    shuffle(place, rows);
    for (size_t i = 0; i < rows; i++) {
        /* Some rows are consecutive. */
        index[i] = i && index[i - 1] + 1 < sources && random_below(2)
                       ? index[i - 1] + 1
                       : (uint32_t)random_below(sources);
        memcpy(expected + GUARD + 1 + (scattered ? place[i] : i) * to_stride,
               source + GUARD + 1 + (indexed ? index[i] : i) * from_stride,
               bytes);
    }
    well = submit(&copy) && raised(&signal, copy.value) && holds(&to, expected);
    if (!well)
        printf("# %zu rows of %zu B, gaps %zu and %zu%s, from %s to %s\n", rows,
               bytes, to_gap, from_gap,
               scattered ? ", by two indices"
               : indexed ? ", by an index"
                         : "",
               from_place->name, to_place->name);
    memory_free(from);
    memory_free(to);
    free(source);
    free(expected);
    free(index);
    free(place);
    return well;
}

static bool contiguous(void)
{
    static const size_t sizes[] = {0,    1,    3,     63,      64,     65,
                                   4095, 4096, 65537, 1000003, 8 << 20};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (!one_copy(1, sizes[i], 0, 0, false))
            return false;
    return true;
}

/* Copy small rows, and some that an engine may copy in other ways. */
static bool rows(bool indexed)
{
    const int pairs = places_of(engine->name)->pairs;

    for (int i = 0; i < 200 / pairs; i++)
        if (!one_copy(random_below(40), random_below(300), random_below(50),
                      random_below(50), indexed))
            return false;
    for (int i = 0; i < 20 / pairs; i++)
        if (!one_copy(random_below(200), random_below(20000), random_below(200),
                      random_below(200), indexed) ||
            !one_copy(random_below(8), random_below(1000000), random_below(99),
                      random_below(99), indexed))
            return false;
    return true;
}

static bool strides(void)
{
    return rows(false);
}

static bool index_lists(void)
{
    return rows(true);
}

enum { THREADS = 3, COPIES = 2000, PIECE = 200 };

struct submitter {
    unsigned char piece[PIECE];
    unsigned char got[COPIES][PIECE];
    unsigned char *from, *to; /* (PIECE), (COPIES, PIECE) */
    uint64_t signal[COPIES];
    bool well;
};

static void *submit_many(void *arg)
{
    struct submitter *s = arg;

    s->well = true;
    for (int i = 0; i < COPIES; i++) {
        struct shunt_engine_copy copy = {
            .to = s->to + (size_t)i * PIECE,
            .from = s->from,
            .bytes = PIECE,
            .rows = 1,
            .signal = &s->signal[i],
            .value = 7,
            .wake_fd = -1,
        };

        s->well &= submit(&copy);
        copy.to = NULL; /* the descriptor was copied */
    }
    for (int i = 0; i < COPIES && s->well; i++)
        s->well = raised(&s->signal[i], 7);
    return NULL;
}

/* Several threads submit more copies than any queue holds. */
static bool many(void)
{
    struct submitter *all = calloc(THREADS, sizeof(*all));
    pthread_t threads[THREADS];
    bool well = true;

    for (int t = 0; t < THREADS; t++) {
        memset(all[t].piece, 'a' + t, PIECE);
        all[t].from = from_place->take(PIECE);
        all[t].to = to_place->take((size_t)COPIES * PIECE);
        from_place->write(all[t].from, all[t].piece, PIECE);
        pthread_create(&threads[t], NULL, submit_many, &all[t]);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        to_place->read(all[t].got, all[t].to, sizeof(all[t].got));
        for (int i = 0; i < COPIES; i++)
            well &= !memcmp(all[t].got[i], all[t].piece, PIECE);
        well &= all[t].well;
        from_place->give_back(all[t].from);
        to_place->give_back(all[t].to);
    }
    free(all);
    return well && engine->poll(ctx) == 0;
}

/* A copy wakes a thread that sleeps on the eventfd, and has set its signal by
 * then. */
static bool wakes(void)
{
    unsigned char *expected, *before;
    struct memory from = memory_new(from_place, 1 << 20, &expected);
    struct memory to = memory_new(to_place, 1 << 20, &before);
    struct pollfd p = {.fd = eventfd(0, EFD_CLOEXEC), .events = POLLIN};
    uint64_t signal = 0;
    struct shunt_engine_copy copy = {
        .to = to.at,
        .from = from.at,
        .bytes = from.bytes,
        .rows = 1,
        .signal = &signal,
        .value = 3,
        .wake_fd = p.fd,
    };
    bool well = submit(&copy) && poll(&p, 1, DEADLINE_SECONDS * 1000) == 1 &&
                __atomic_load_n(&signal, __ATOMIC_ACQUIRE) == 3;

    memcpy(before + GUARD, expected + GUARD, from.bytes);
    well = well && holds(&to, before);
    while (engine->poll(ctx))
        sched_yield();
    close(p.fd);
    memory_free(from);
    memory_free(to);
    free(expected);
    free(before);
    return well;
}

/* close() waits for copies under way. */
static bool closing(void)
{
    unsigned char *expected, *before;
    struct memory from = memory_new(from_place, 4 << 20, &expected);
    struct memory to = memory_new(to_place, 4 << 20, &before);
    uint64_t signals[8] = {0};
    bool well = true;

    for (int i = 0; i < 8; i++) {
        struct shunt_engine_copy copy = {
            .to = to.at + i * (from.bytes / 8),
            .from = from.at + i * (from.bytes / 8),
            .bytes = from.bytes / 8,
            .rows = 1,
            .signal = &signals[i],
            .value = 1,
            .wake_fd = -1,
        };

        well &= submit(&copy);
    }
    engine->close(ctx);
    ctx = NULL;
    for (int i = 0; i < 8; i++)
        well &= signals[i] == 1;
    memcpy(before + GUARD, expected + GUARD, from.bytes);
    well &= holds(&to, before);
    memory_free(from);
    memory_free(to);
    free(expected);
    free(before);
    return open_engine() && well;
}

/* Copies that were taken back are never made. All other copies are made. */
static bool takes_some_back(void)
{
    enum { PIECES = 24 };
    const size_t bytes = PIECES << 18;
    unsigned char *source, *before, *now = malloc(bytes);
    struct memory from = memory_new(from_place, bytes, &source);
    struct memory to = memory_new(to_place, bytes, &before);
    uint64_t signals[PIECES] = {0};
    bool back[PIECES] = {false}, well = true;

    for (size_t i = 0; i < PIECES; i++) {
        struct shunt_engine_copy copy = {
            .to = to.at + (i << 18),
            .from = from.at + (i << 18),
            .bytes = 1 << 18,
            .rows = 1,
            .signal = &signals[i],
            .value = 1,
            .wake_fd = -1,
        };

        well &= submit(&copy);
    }
    for (size_t i = PIECES; i-- > PIECES / 2;)
        back[i] = engine->take_back(ctx, &signals[i]);
    for (size_t i = 0; i < PIECES; i++)
        well &= back[i] || raised(&signals[i], 1);
    while (engine->poll(ctx))
        sched_yield();
    to.place->read(now, to.at, bytes);
    for (size_t i = 0; i < PIECES; i++) {
        const unsigned char *expected = (back[i] ? before : source) + GUARD;

        well &= signals[i] == !back[i] &&
                !memcmp(now + (i << 18), expected + (i << 18), 1 << 18);
        /* A copy that has ended cannot be taken back. */
        well &= !engine->take_back(ctx, &signals[i]);
    }
    memory_free(from);
    memory_free(to);
    free(source);
    free(before);
    free(now);
    return well;
}

static bool takes_back(void)
{
    return !engine->take_back || takes_some_back();
}

static uint64_t counter(const char *name)
{
    struct shunt_transport_counter all[16];
    size_t count = engine->counters(ctx, all, 16);

    for (size_t i = 0; i < count && i < 16; i++)
        if (!strcmp(all[i].name, name))
            return all[i].value;
    return 0;
}

static bool counters(void)
{
    uint64_t messages, bytes;

    if (!engine->counters)
        return true;
    messages = counter("messages");
    bytes = counter("bytes");
    return one_copy(3, 100, 7, 0, false) &&
           counter("messages") == messages + 1 &&
           counter("bytes") == bytes + 300;
}

static bool says_what_it_spent(void)
{
    uint64_t cpu, bytes, cpu_then, bytes_then;
    struct timespec all;

    if (!engine->spent)
        return true;
    engine->spent(ctx, &cpu, &bytes);
    if (!one_copy(3, 100, 7, 0, false))
        return false;
    engine->spent(ctx, &cpu_then, &bytes_then);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
    return bytes_then == bytes + 300 && cpu_then > 0 && cpu_then >= cpu &&
           cpu_then <=
               (uint64_t)all.tv_sec * 1000000000u + (uint64_t)all.tv_nsec;
}

/* Wait until the thread of engine dma sleeps: it has used no CPU time for some
 * time. */
static void await_sleep(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct timespec all, mine;
    long long before = -1, others = 0;

    while (others != before) {
        before = others;
        nanosleep(&pause, NULL);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &all);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mine);
        /* ignore what the caller used between reading the two clocks, less than
         * 100 us */
        others = ((all.tv_sec - mine.tv_sec) * 1000000000LL + all.tv_nsec -
                  mine.tv_nsec) /
                 100000;
    }
}

/* If the engine's thread sleeps, a caller who polls makes a small copy itself,
 * unless the thread is faster. It never makes a large copy. */
static bool lends(void)
{
    uint64_t lent;
    int rounds = 0;

    if (strcmp(engine->name, "dma"))
        return true;
    lent = counter("by callers");
    for (; counter("by callers") == lent && rounds < 1000; rounds++) {
        await_sleep();
        if (!one_copy(4, 1000, 3, 0, false))
            return false;
    }
    lent = counter("by callers");
    await_sleep();
    return rounds < 1000 && one_copy(20, 1000, 3, 0, false) &&
           counter("by callers") == lent;
}

/* The engine refuses memory that it cannot copy, and does not touch it. */
static bool refuses(void)
{
    const struct place *refused = places_of(engine->name)->refused;
    unsigned char *source, *expected;
    struct memory from, to;
    uint64_t signal = 0;
    bool well;

    if (!refused)
        return true;
    from = memory_new(refused, 1000, &source);
    to = memory_new(to_place, 1000, &expected);
    well = engine->submit(ctx,
                          &(struct shunt_engine_copy){
                              .to = to.at,
                              .from = from.at,
                              .bytes = 1000,
                              .rows = 1,
                              .signal = &signal,
                              .value = 1,
                              .wake_fd = -1,
                          }) == SHUNT_ERR_UNSUPPORTED &&
           !engine->poll(ctx) && !signal && holds(&to, expected);
    memory_free(from);
    memory_free(to);
    free(source);
    free(expected);
    return well;
}

static const struct {
    const char *name;
    bool (*run)(void);
} cases[] = {
    {"contiguous", contiguous},
    {"strides", strides},
    {"index lists", index_lists},
    {"many, by several threads", many},
    {"wakes a sleeper", wakes},
    {"close waits", closing},
    {"takes back", takes_back},
    {"counters", counters},
    {"lends small copies", lends},
    {"refuses", refuses},
    {"says what it spent", says_what_it_spent},
};

/* Run a case for all pairs of kinds of memory. */
static bool run_case(bool (*run)(void))
{
    const struct places *places = places_of(engine->name);
    bool well = true;

    for (int i = 0; i < places->pairs && well; i++) {
        from_place = places->pair[i][0];
        to_place = places->pair[i][1];
        well = run();
    }
    return well;
}

static bool load(const char *name)
{
    const char *folder = getenv("SHUNT_PLUGIN_PATH");
    char path[4096], why[512] = "";
    void *handle;

    snprintf(path, sizeof(path), "%s/shunt_%s.so", folder ? folder : ".", name);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    engine = handle ? dlsym(handle, SHUNT_ENGINE_SYMBOL) : NULL;
    if (!engine || engine->abi != SHUNT_ENGINE_ABI ||
        strcmp(engine->name, name)) {
        printf("Bail out! %s is no copy engine %s\n", path, name);
        exit(1);
    }
    if (engine->probe(&host, why, sizeof(why))) {
        printf("1..0 # SKIP %s\n", why);
        return false;
    }
    if (open_engine() && places_begin(name))
        return true;
    printf("Bail out! the engine, or its memory, cannot be had\n");
    exit(1);
}

int main(int argc, char **argv)
{
    const size_t count = sizeof(cases) / sizeof(cases[0]);
    bool failed = false;

    if (argc == 4 && !strcmp(argv[1], "--seed"))
        seed = strtoull(argv[2], NULL, 10);
    if (argc < 2) {
        fprintf(stderr, "usage: %s [--seed N] NAME\n", argv[0]);
        return 2;
    }
    if (!load(argv[argc - 1]))
        return 0;
    printf("# seed %llu\n1..%zu\n", (unsigned long long)seed, count);
    for (size_t i = 0; i < count; i++) {
        bool well = run_case(cases[i].run);

        printf("%sok %zu - %s\n", well ? "" : "not ", i + 1, cases[i].name);
        fflush(stdout);
        failed |= !well;
    }
    places_end();
    engine->close(ctx);
    return failed;
}
