// SPDX-License-Identifier: Apache-2.0
/*
 * A world for a transport to be tested in: ranks as forked processes or as
 * threads, a board they share for what a bootstrap would carry, and the plugin
 * by dlopen. Nothing of libshunt is needed.
 *
 * Every wait is bounded. What fails says so on stderr and ends its process; the
 * runner turns that, a crash or a missed deadline into "not ok".
 */
#ifndef SHUNT_TEST_WORLD_H
#define SHUNT_TEST_WORLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <shunt/transport.h>

#define MAX_RANKS 64
#define SLOT_BYTES 2048

/* Shared by the ranks: an anonymous shared mapping, made before the fork. */
struct board {
    atomic_int arrived;
    atomic_int generation;
    atomic_int flags[8]; /* for a case's own use */
    int fds[MAX_RANKS];
    size_t len[MAX_RANKS];
    unsigned char slot[MAX_RANKS][SLOT_BYTES];
};

/* One rank of one communicator. */
struct rank {
    struct board *board;
    int rank, nranks;
    bool threads; /* ranks are threads */
    const char *options;
    const struct shunt_transport *t;
    unsigned char secret[32];
    struct shunt_transport_ctx *ctx;
    struct shunt_transport_ep *eps[MAX_RANKS];
    int fds; /* open descriptors before the context */
    uint64_t random;
    unsigned relaxed; /* times */
};

/* Memory of every rank, imported by every rank. */
struct window {
    unsigned char *addr; /* ours */
    size_t bytes;        /* of each */
    int fd;
    struct shunt_transport_reg *reg;
    struct shunt_transport_remote *remote[MAX_RANKS];
    unsigned char *map[MAX_RANKS]; /* NULL: not mapped */
    struct owned *owned;
};

/* What `done` is called with: it unmaps. Counted, as it may come late. */
struct owned {
    void *addr;
    size_t bytes;
    atomic_int *done;
};

struct test_case {
    const char *name;
    void (*run)(struct rank *r);
    int nranks[6];    /* 0 ends */
    bool processes;   /* not on threads */
    bool bare;        /* the case opens the world itself */
    const char *only; /* of this transport alone */
    /* It says itself what NICs do, whatever the words are with which the suite runs
     * over the stand-in for libibverbs: once is enough. */
    bool own_nics;
    int killed; /* 1 + the rank that ends by SIGKILL; 0: none */
};

/* -- checks ----------------------------------------------------------------- */

__attribute__((noreturn, format(printf, 4, 5))) void
world_fail(const struct rank *r, const char *file, int line, const char *format,
           ...);

#define FAIL(r, ...) world_fail(r, __FILE__, __LINE__, __VA_ARGS__)

#define CHECK(r, condition, ...)                  \
    do {                                          \
        if (!(condition))                         \
            FAIL(r, #condition ": " __VA_ARGS__); \
    } while (0)

/* The call has this status; else the transport's own words. */
#define EXPECT(r, expected, call)                                              \
    do {                                                                       \
        enum shunt_status status_ = (call);                                    \
        if (status_ != (expected))                                             \
            FAIL(r, #call " is %d, not %d: %s", (int)status_, (int)(expected), \
                 (r)->ctx ? (r)->t->error((r)->ctx) : "");                     \
    } while (0)

/* Progress until the condition holds. */
#define UNTIL(r, condition)                                \
    do {                                                   \
        double deadline_ = world_now() + world_patience;   \
        unsigned tries_ = 0;                               \
        while (!(condition)) {                             \
            if (world_now() > deadline_)                   \
                FAIL(r, "waited in vain for " #condition); \
            world_relax_more(r, &tries_);                  \
        }                                                  \
    } while (0)

extern double world_patience; /* seconds */
double world_now(void);
/* Advance the transport, and let others run. Now and then it sleeps for
 * microseconds: threads of 16 ranks that only yield can keep the kernel's own
 * threads from running, for which one of theirs waits (a table of descriptors
 * that grows waits for all processors, in synchronize_rcu()). */
void world_relax(struct rank *r);
/* Likewise in a loop that may last: after many tries in vain it sleeps for
 * microseconds each time, so that ranks that wait leave the cores to others.
 * `tries` begins at 0. */
void world_relax_more(struct rank *r, unsigned *tries);

/* -- ranks ------------------------------------------------------------------ */

/* The transport of a name, for shunt_transport_host.find(). */
const struct shunt_transport *world_find(const char *name);
extern const struct shunt_transport_host world_host;

/* Open, exchange addresses, connect all. */
void world_open(struct rank *r);
void world_open_only(struct rank *r);
/* Open and exchange addresses. */
void world_open_and_tell(struct rank *r);
/* One call for the peer, then one look at what came. */
enum shunt_status world_connect_step(struct rank *r, int peer);
/* In any order: all pairs until they are connected. */
void world_connect(struct rank *r);
/* All have flushed, then close. No more descriptors are open than before. */
void world_close(struct rank *r);
void world_close_uncounted(struct rank *r);

/* Beside the transport: wait for all; give everyone a blob. */
void world_barrier(struct rank *r);
/* Out of the transport, until the other rank has come so far. */
void world_await_flag(struct rank *r, int flag, int value);
void world_put_slot(struct rank *r, const void *blob, size_t len);

uint64_t world_random(struct rank *r);
int world_count_fds(void);
/* Collective: counted when no rank opens or closes any. */
int world_count_fds_still(struct rank *r);

/* -- memory ----------------------------------------------------------------- */

int world_memfd(struct rank *r, size_t bytes);
void window_create(struct rank *r, struct window *w, size_t bytes);
/* `done`, if given, is counted up when the memory was given back. */
void window_create_counted(struct rank *r, struct window *w, size_t bytes,
                           atomic_int *done);
/* Collective: releases everywhere, then deregisters. */
void window_destroy(struct rank *r, struct window *w);

uint64_t *window_word(struct window *w, size_t offset);
uint64_t word_load(const uint64_t *word);

/* A put that is tried again while there is no room. */
void world_put(struct rank *r, int peer, const struct shunt_transport_put *put);
/* Get, until it has ended: how. */
enum shunt_status world_get(struct rank *r, int peer, uint64_t address,
                            void *local, size_t bytes);
void world_signal(struct rank *r, struct window *w, int peer, size_t offset,
                  uint64_t value, int channel);
/* Collective: every rank takes all others for alive, and signals them. */
void world_all_signal(struct rank *r);
/* Sleep until the word has this value, by the contract's own pattern. Fails if
 * the condition came true and no wake-up did. */
void world_sleep_until(struct rank *r, const uint64_t *word, uint64_t value);

/* -- the runner ------------------------------------------------------------- */

/* The case in processes (or threads) of its own; prints why it failed. */
bool world_run(const struct test_case *c, const struct shunt_transport *t,
               const char *options, int nranks, bool threads);

#endif
