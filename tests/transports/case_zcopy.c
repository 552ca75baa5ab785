// SPDX-License-Identifier: Apache-2.0
/* Conformance: memory that is registered for one operation, puts that report
 * when they do not need their memory any more, and how the memory of both
 * becomes free again. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/transports/blocks.h"
#include "tests/transports/cases.h"

static bool all_can(struct rank *r)
{
    for (int p = 0; p < r->nranks; p++)
        if (p != r->rank && !(r->t->caps(r->eps[p]) & SHUNT_TRANSPORT_ZCOPY))
            return false;
    return true;
}

/* Register memory, and publish the key to all ranks. */
static struct shunt_transport_reg *offer(struct rank *r, void *addr,
                                         size_t bytes)
{
    const struct shunt_transport_memory memory = {
        .addr = addr, .bytes = bytes, .fd = -1, .brief = true};
    unsigned char key[SHUNT_TRANSPORT_KEY_MAX];
    struct shunt_transport_reg *reg;
    size_t len = sizeof(key);

    EXPECT(r, SHUNT_OK, r->t->reg(r->ctx, &memory, key, &len, &reg));
    world_put_slot(r, key, len);
    return reg;
}

static struct shunt_transport_remote *take(struct rank *r, int peer)
{
    struct shunt_transport_remote *remote;
    enum shunt_status st = SHUNT_IN_PROGRESS;

    UNTIL(r, (st = r->t->import(r->eps[peer], r->board->slot[peer],
                                r->board->len[peer], &remote)) !=
                 SHUNT_IN_PROGRESS);
    EXPECT(r, SHUNT_OK, st);
    return remote;
}

static void check_lane(struct rank *r, const unsigned char *got, size_t lane,
                       size_t bytes, int from)
{
    size_t wrong = 0, first = 0, last = 0;

    if (block_alike(got, from, 0, bytes) == bytes &&
        block_empty(got + bytes, lane - bytes) == lane - bytes)
        return;
    for (size_t i = 0; i < lane; i++) {
        if (got[i] == (i < bytes ? block_byte(from, i) : BLOCK_NONE))
            continue;
        first = wrong++ ? first : i;
        last = i;
    }
    FAIL(r,
         "%zu bytes of rank %d: %zu are wrong, from byte %zu (which is %#x) "
         "to %zu (%#x)",
         bytes, from, wrong, first, got[first], last, got[last]);
}

/* The source is overwritten as soon as no put needs it. The data that arrives
 * is not affected. */
void case_brief(struct rank *r)
{
    static const size_t sizes[] = {1, 4096, 61440, 100001, 3 << 20};
    struct window signals;

    if (!all_can(r))
        return;
    window_create(r, &signals, 8 * (size_t)r->nranks);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        const size_t lane = sizes[s] + 100;
        unsigned char *memory = malloc(lane * (size_t)r->nranks);
        unsigned char *source = malloc(sizes[s]);
        struct shunt_transport_remote *remote[MAX_RANKS];
        struct shunt_transport_reg *reg;
        unsigned pending = 0;

        CHECK(r, memory && source, "no memory");
        memset(memory, BLOCK_NONE, lane * (size_t)r->nranks);
        block_fill(source, r->rank, 0, sizes[s]);
        reg = offer(r, memory, lane * (size_t)r->nranks);
        for (int p = 0; p < r->nranks; p++) {
            if (p == r->rank)
                continue;
            remote[p] = take(r, p);
            world_put(r, p,
                      &(struct shunt_transport_put){
                          .local = source,
                          .remote = remote[p],
                          .offset = (size_t)r->rank * lane,
                          .bytes = sizes[s],
                          .signal = signals.remote[p],
                          .signal_offset = 8 * (size_t)r->rank,
                          .signal_value = s + 1,
                          .channel = 2,
                          .pending = &pending,
                      });
        }
        UNTIL(r, pending == 0);
        memset(source, 0x55, sizes[s]);
        for (int p = 0; p < r->nranks; p++) {
            if (p == r->rank)
                continue;
            UNTIL(r, word_load(window_word(&signals, 8 * (size_t)p)) == s + 1);
            check_lane(r, memory + (size_t)p * lane, lane, sizes[s], p);
        }
        r->t->dereg(r->ctx, reg);
        free(memory);
        free(source);
        world_barrier(r);
        for (int p = 0; p < r->nranks; p++)
            if (p != r->rank)
                r->t->release(r->eps[p], remote[p]);
    }
    window_destroy(r, &signals);
}

/* Deregistered memory is not written any more, even by ranks that have not
 * noticed the deregistration. */
void case_brief_withdrawn(struct rank *r)
{
    const size_t bytes = 300000;
    unsigned char *memory = malloc(bytes), *source = malloc(bytes);
    struct shunt_transport_remote *remote;
    struct shunt_transport_reg *reg;
    struct shunt_transport_put put;
    enum shunt_status st;
    unsigned pending = 0;

    if (all_can(r)) {
        CHECK(r, memory && source, "no memory");
        memset(memory, BLOCK_NONE, bytes);
        memset(source, 1, bytes);
        reg = offer(r, memory, bytes);
        remote = take(r, !r->rank);
        world_barrier(r);
        r->t->dereg(r->ctx, reg);
        EXPECT(r, SHUNT_OK, r->t->let_go(r->eps[!r->rank], false));
        world_barrier(r);
        put = (struct shunt_transport_put){
            .local = source,
            .remote = remote,
            .bytes = bytes,
            .pending = &pending,
        };
        /* If a withdrawn put ends the connection, the other rank's put may have
         * ended it already. */
        UNTIL(r, (st = r->t->put(r->eps[!r->rank], &put)) != SHUNT_IN_PROGRESS);
        CHECK(r, st == SHUNT_OK || st == SHUNT_ERR_PEER, "%s",
              r->t->error(r->ctx));
        UNTIL(r, pending == 0);
        UNTIL(r, r->t->flush(r->eps[!r->rank]) != SHUNT_IN_PROGRESS);
        world_barrier(r);
        for (size_t i = 0; i < bytes; i++)
            CHECK(r, memory[i] == BLOCK_NONE, "byte %zu", i);
        r->t->release(r->eps[!r->rank], remote);
    }
    free(memory);
    free(source);
}

/* If the memory of a signal word is deregistered while the payload is in
 * transfer, the signal is not raised. (Between processes, this rank reads the
 * payload while it is written.) */
void case_brief_signal(struct rank *r)
{
    const size_t bytes = (size_t)64 << 20;
    uint64_t *word = calloc(1, sizeof(*word));
    atomic_int *begun = &r->board->flags[0];
    struct shunt_transport_remote *remote;
    struct shunt_transport_reg *reg;
    unsigned pending = 0;
    struct window w;

    CHECK(r, word, "no memory");
    if (all_can(r)) {
        window_create(r, &w, bytes);
        reg = offer(r, word, sizeof(*word));
        remote = take(r, !r->rank);
        memset(w.addr, 1, bytes);
        world_barrier(r);
        if (r->rank == 1) {
            unsigned char *source = calloc(1, bytes);

            CHECK(r, source, "no memory");
            world_put(r, 0,
                      &(struct shunt_transport_put){
                          .local = source,
                          .remote = w.remote[0],
                          .bytes = bytes,
                          .signal = remote,
                          .signal_value = 7,
                          .pending = &pending,
                      });
            atomic_store(begun, 1);
            UNTIL(r, pending == 0);
            UNTIL(r, r->t->flush(r->eps[0]) != SHUNT_IN_PROGRESS);
            free(source);
        }
        UNTIL(r, r->rank == 1 || *(volatile unsigned char *)w.addr == 0);
        r->t->dereg(r->ctx, reg);
        if (r->rank == 0)
            /* 7: the put had completed before, so the check does not apply */
            *word = word_load(word) == 7 ? 0 : 5;
        world_barrier(r);
        CHECK(r, *word != 7, "it was raised");
        r->t->release(r->eps[!r->rank], remote);
        window_destroy(r, &w);
    }
    free(word);
}

static bool is_stopped(int pid)
{
    char path[64], state = 0;
    FILE *f;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    f = fopen(path, "r");
    if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 0;
    if (f)
        fclose(f);
    return state == 'T';
}

/*
 * Rank 1 is stopped, so that the transport cannot send all puts of rank 0. Rank
 * 0 gives up the connection: its memory is unmapped, and nothing accesses it
 * any more.
 */
void case_let_go(struct rank *r)
{
    const size_t bytes = (size_t)64 << 20;
    atomic_int *pid = &r->board->flags[0];
    unsigned pending = 0;
    struct window w;
    void *source;

    if (!all_can(r))
        return;
    window_create(r, &w, bytes);
    world_all_signal(r); /* connects: a first put needs progress calls of the
                          * other rank */
    if (r->rank == 1) {
        atomic_store(pid, getpid());
        raise(SIGSTOP);
        UNTIL(r, !r->t->alive(r->eps[0]));
        r->t->close(r->ctx);
        r->ctx = NULL;
        return;
    }
    UNTIL(r, atomic_load(pid) && is_stopped(atomic_load(pid)));
    source = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(r, source != MAP_FAILED, "no memory");
    world_put(r, 1,
              &(struct shunt_transport_put){
                  .local = source,
                  .remote = w.remote[1],
                  .bytes = bytes,
                  .pending = &pending,
              });
    for (int i = 0; i < 100; i++)
        r->t->progress(r->ctx);
    if (strcmp(r->t->name, "fault")) { /* the wrapper may have copied the
                                        * payload */
        CHECK(r, pending > 0, "a stopped process took 64 MiB");
        EXPECT(r, SHUNT_IN_PROGRESS, r->t->let_go(r->eps[1], false));
    }
    EXPECT(r, SHUNT_OK, r->t->let_go(r->eps[1], true));
    CHECK(r, pending == 0, "%u puts still need it", pending);
    munmap(source, bytes);
    if (strcmp(r->t->name, "fault"))
        UNTIL(r, !r->t->alive(r->eps[1]));
    kill(atomic_load(pid), SIGCONT);
    r->t->close(r->ctx);
    r->ctx = NULL;
}

/* --- memory that comes and goes ---------------------------------------------- */

#define REMAPPED ((size_t)96 << 10)

static void *map_pages(struct rank *r, void *where)
{
    void *pages =
        mmap(where, REMAPPED, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED : 0), -1, 0);

    CHECK(r, pages != MAP_FAILED, "no memory");
    return pages;
}

/* Replace the pages at this address by other pages, in one of five ways. */
static void change_pages(struct rank *r, unsigned char *at, int way)
{
    void *other;
    pid_t pid;

    switch (way % 5) {
    case 0:
        map_pages(r, at);
        break;
    case 1:
        CHECK(r, !munmap(at, REMAPPED), "munmap()");
        map_pages(r, at);
        break;
    case 2:
        CHECK(r, !madvise(at, REMAPPED, MADV_DONTNEED), "madvise()");
        break;
    case 3:
        other = map_pages(r, NULL);
        CHECK(r,
              mremap(other, REMAPPED, REMAPPED, MREMAP_MAYMOVE | MREMAP_FIXED,
                     at) == at,
              "mremap()");
        break;
    case 4: /* after fork(), the next write here goes to copied pages */
        pid = fork();
        CHECK(r, pid >= 0, "fork()");
        if (pid == 0) {
            memset(at, BLOCK_NONE, REMAPPED);
            _exit(0);
        }
        CHECK(r, waitpid(pid, NULL, 0) == pid, "waitpid()");
        break;
    }
}

int transport_rounds = 200;

/* Returns a byte that differs from BLOCK_NONE and from the bytes of the rounds
 * before. */
static int round_byte(int k)
{
    return 1 + k % 233;
}

/* A put sends the memory that is mapped at its address now, not memory that was
 * mapped there before. Between puts, the memory of the source and of the target
 * is mapped anew. */
void case_remapped(struct rank *r)
{
    unsigned char *mine = map_pages(r, NULL);
    struct window signals;

    if (!all_can(r)) {
        munmap(mine, REMAPPED);
        return;
    }
    window_create(r, &signals, 8);
    for (int k = 1; k <= transport_rounds; k++) {
        struct shunt_transport_remote *remote;
        struct shunt_transport_reg *reg;
        unsigned pending = 0;

        change_pages(r, mine, k);
        memset(mine, r->rank == 0 ? round_byte(k) : BLOCK_NONE, REMAPPED);
        reg = offer(r, mine, REMAPPED);
        remote = take(r, !r->rank);
        if (r->rank == 0) {
            world_put(r, 1,
                      &(struct shunt_transport_put){
                          .local = mine,
                          .remote = remote,
                          .bytes = REMAPPED,
                          .signal = signals.remote[1],
                          .signal_value = (uint64_t)k,
                          .pending = &pending,
                      });
            UNTIL(r, pending == 0);
        } else {
            UNTIL(r, word_load(window_word(&signals, 0)) == (uint64_t)k);
            for (size_t i = 0; i < REMAPPED; i++)
                CHECK(r, mine[i] == round_byte(k), "round %d: byte %zu", k, i);
        }
        world_barrier(r);
        r->t->dereg(r->ctx, reg);
        r->t->release(r->eps[!r->rank], remote);
    }
    window_destroy(r, &signals);
    munmap(mine, REMAPPED);
}
