// SPDX-License-Identifier: Apache-2.0

#include "check.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

enum { GUARD = 64 };

int world_rank, world_size;
bool check_wild;

static uint64_t seed = 1;
static const char *current = "(none)";
static uint64_t drawn, drawn_own;

void check_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    char text[512];

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "rank %d of %d, case %s, seed %" PRIu64 ": %s:%d: %s\n",
            world_rank, world_size, current, seed, file, line, text);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

/* -- chance -------------------------------------------------------------------
 */

/* The finalizer of splitmix64 (Steele, Lea, Flood, 2014). */
uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * 0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

static uint64_t hash_name(const char *name)
{
    uint64_t h = 7;
    for (; *name; name++)
        h = mix(h, (unsigned char)*name);
    return h;
}

uint64_t fresh(void)
{
    return mix(mix(seed, hash_name(current)), ++drawn);
}

void start_round(int n)
{
    drawn = 1000000 * ((uint64_t)n + 1);
}

uint64_t draw(uint64_t limit)
{
    return fresh() % limit;
}

bool chance(int percent)
{
    return draw(100) < (uint64_t)percent;
}

uint64_t draw_own(uint64_t limit)
{
    uint64_t key = mix(seed, hash_name(current));
    return mix(mix(key, 1000 + (uint64_t)world_rank), ++drawn_own) % limit;
}

void draw_order(int *order, int n)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)draw((uint64_t)i + 1), kept = order[i];
        order[i] = order[k];
        order[k] = kept;
    }
}

/* -- memory -------------------------------------------------------------------
 */

void memory_make(struct memory *m, ptrdiff_t lo, ptrdiff_t hi)
{
    /* The origin is as aligned as malloc() would make it. */
    lo = lo < 0 ? -((-lo + 63) / 64 * 64) : lo / 64 * 64;
    if (hi < lo)
        hi = lo;
    m->lo = lo;
    m->size = (size_t)(hi - lo) + 2 * GUARD;
    m->now = aligned_alloc(64, (m->size + 63) / 64 * 64);
    m->want = malloc(m->size);
    CHECK(m->now && m->want);
    uint64_t key = mix((uint64_t)(uintptr_t)m->now, m->size);
    for (size_t i = 0; i < m->size; i++) {
        if (i % 8 == 0)
            key = mix(key, i);
        m->now[i] = (unsigned char)(key >> (i % 8 * 8));
    }
    memcpy(m->want, m->now, m->size);
}

void *memory_at(const struct memory *m, ptrdiff_t at)
{
    return m->now + GUARD + (at - m->lo);
}

void memory_expect(struct memory *m, ptrdiff_t at, const void *bytes, size_t n)
{
    ptrdiff_t from = at - m->lo + GUARD;
    CHECK(from >= GUARD && (size_t)from + n + GUARD <= m->size);
    memcpy(m->want + from, bytes, n);
}

void memory_set(struct memory *m, ptrdiff_t at, const void *bytes, size_t n)
{
    memory_expect(m, at, bytes, n);
    memcpy(m->now + (at - m->lo + GUARD), bytes, n);
}

void memory_check(struct memory *m, const char *what)
{
    if (memcmp(m->now, m->want, m->size) != 0) {
        size_t wrong = 0, first = 0;
        for (size_t i = m->size; i-- > 0;) {
            if (m->now[i] != m->want[i]) {
                wrong++;
                first = i;
            }
        }
        check_fail(__FILE__, __LINE__,
                   "%s: %zu of %zu bytes are wrong, the first at offset %td%s",
                   what, wrong, m->size, (ptrdiff_t)first - GUARD + m->lo,
                   first < GUARD || first >= m->size - GUARD ? " (in a guard)"
                                                             : "");
    }
    free(m->now);
    free(m->want);
    memset(m, 0, sizeof(*m));
}

/* -- communicators ------------------------------------------------------------
 */

enum { IN_ORDER, REVERSED, ROTATED, PART, KINDS };
static MPI_Comm comms[KINDS];

static void make_comms(void)
{
    for (int kind = 0; kind < KINDS; kind++) {
        int key = world_rank, outside = 0;
        if (kind == REVERSED)
            key = -world_rank;
        if (kind == ROTATED)
            key = (world_rank + 1) % world_size;
        if (kind == PART && world_size > 2)
            outside = world_rank == 1;
        MPI(MPI_Comm_split(MPI_COMM_WORLD, outside ? MPI_UNDEFINED : 0, key,
                           &comms[kind]));
    }
}

static void free_comms(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        if (comms[kind] != MPI_COMM_NULL)
            MPI(MPI_Comm_free(&comms[kind]));
}

MPI_Comm some_comm(void)
{
    int kind = (int)draw(KINDS + 1);
    return kind == KINDS ? MPI_COMM_WORLD : comms[kind];
}

/* -- running ------------------------------------------------------------------
 */

/* If no seed is given, rank 0 chooses one and sends it to the other ranks in
 * messages. */
static void agree_on_seed(const char *given)
{
    unsigned long long value = 0;

    if (given) {
        seed = strtoull(given, NULL, 0);
        return;
    }
    if (world_rank == 0) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        value = mix((uint64_t)now.tv_sec, (uint64_t)now.tv_nsec) % 1000000000;
        for (int r = 1; r < world_size; r++)
            MPI(MPI_Send(&value, 1, MPI_UNSIGNED_LONG_LONG, r, 1,
                         MPI_COMM_WORLD));
    } else {
        MPI(MPI_Recv(&value, 1, MPI_UNSIGNED_LONG_LONG, 0, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE));
    }
    seed = value;
}

static void say(const char *word, const char *name)
{
    if (world_rank == 0) {
        printf("%s %s\n", word, name);
        fflush(stdout);
    }
}

void check_start(int argc, char **argv)
{
    const char *given = NULL;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    MPI(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
    MPI(MPI_Comm_size(MPI_COMM_WORLD, &world_size));
    if (argc > 2 && strcmp(argv[1], "--seed") == 0)
        given = argv[2];
    const char *wild = getenv("CHECK_WILD");
    check_wild = wild && strcmp(wild, "1") == 0;
    agree_on_seed(given);
    if (world_rank == 0) {
        printf("seed %" PRIu64 "\n", seed);
        fflush(stdout);
    }
}

static bool wanted(const char *name, int argc, char **argv, int first)
{
    for (int i = first; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return first >= argc;
}

int check_main(int argc, char **argv, const struct check_case *cases, int level,
               void (*begin)(void), void (*end)(void))
{
    int provided, first = 1;

    if (argc > 1 && strcmp(argv[1], "--list") == 0) {
        for (; cases->name; cases++)
            puts(cases->name);
        return 0;
    }
    if (level == MPI_THREAD_SINGLE) {
        MPI(MPI_Init(&argc, &argv));
    } else {
        MPI(MPI_Init_thread(&argc, &argv, level, &provided));
        if (provided < level) {
            printf("skipped: MPI offers thread level %d, not %d\n", provided,
                   level);
            MPI_Finalize();
            return 77;
        }
    }
    if (argc > 2 && strcmp(argv[1], "--seed") == 0)
        first = 3;
    check_start(argc, argv);
    make_comms();
    if (begin)
        begin();
    for (; cases->name; cases++) {
        if (!wanted(cases->name, argc, argv, first))
            continue;
        if (world_size < cases->min_ranks) {
            say("skip", cases->name);
            continue;
        }
        current = cases->name;
        drawn = drawn_own = 0;
        say("case", current);
        cases->run(cases->variant);
        say("done", current);
    }
    current = "(finalize)";
    if (end)
        end();
    free_comms();
    MPI(MPI_Finalize());
    return 0;
}
