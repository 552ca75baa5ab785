// SPDX-License-Identifier: Apache-2.0
/*
 * A world to test a transport in. Ranks are forked processes or threads. They
 * share a board, in place of a bootstrap. The plugin is loaded by dlopen.
 * The world needs only the defaults of operations from libshunt.
 *
 * Every wait has a time limit. A failure is printed to stderr and ends its
 * process. The runner reports that, a crash or a missed deadline as "not ok".
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

/* Memory shared by all ranks: an anonymous mapping, made before the fork. */
struct board {
    atomic_int arrived;
    atomic_int generation;
    atomic_int flags[8]; /* flags that each case may use as it likes */
    int fds[MAX_RANKS];
    size_t len[MAX_RANKS];
    unsigned char slot[MAX_RANKS][SLOT_BYTES];
};

/* One rank of one communicator. */
struct rank {
    struct board *board;
    int rank, nranks;
    bool threads; /* true: ranks are threads; false: processes */
    const char *options;
    const struct shunt_transport *t;
    unsigned char secret[32];
    struct shunt_transport_ctx *ctx;
    struct shunt_transport_ep *eps[MAX_RANKS];
    int fds; /* open descriptors before the context was opened */
    uint64_t random;
    unsigned relaxed; /* how often world_relax() was called */
};

/* Memory of every rank, imported by every rank. */
struct window {
    unsigned char *addr; /* this rank's memory */
    size_t bytes;        /* bytes of each rank's memory */
    int fd;
    struct shunt_transport_reg *reg;
    struct shunt_transport_remote *remote[MAX_RANKS];
    unsigned char *map[MAX_RANKS]; /* NULL: not mapped */
    struct owned *owned;
};

/* Argument of the callback `done`, which unmaps the memory. `done` counts the
 * calls, since one may be late. */
struct owned {
    void *addr;
    size_t bytes;
    atomic_int *done;
};

struct test_case {
    const char *name;
    void (*run)(struct rank *r);
    int nranks[6];    /* ends with 0 */
    bool processes;   /* ranks must be processes, not threads */
    bool bare;        /* the case opens the world itself */
    const char *only; /* name of the only transport to test; NULL: all */
    /* true: the case sets what NICs do. So it does not depend on the suite's
     * settings for the stand-in for libibverbs, and one run is enough. */
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

/* The call must return this status. Otherwise the transport's error text is
 * printed. */
#define EXPECT(r, expected, call)                                              \
    do {                                                                       \
        enum shunt_status status_ = (call);                                    \
        if (status_ != (expected))                                             \
            FAIL(r, #call " is %d, not %d: %s", (int)status_, (int)(expected), \
                 (r)->ctx ? (r)->t->error((r)->ctx) : "");                     \
    } while (0)

/* Calls progress() until the condition holds. */
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
/* Calls progress(), and yields the processor. Now and then it sleeps for
 * microseconds. If 16 threads only yield, they can keep the kernel's own
 * threads from running, and one of the 16 may wait for these: a growing table
 * of descriptors waits for all processors, in synchronize_rcu(). */
void world_relax(struct rank *r);
/* Like world_relax(), for loops that may be long. After many tries it sleeps
 * for microseconds each time, so that waiting ranks leave the cores to others.
 * `tries` begins at 0. */
void world_relax_more(struct rank *r, unsigned *tries);

/* -- ranks ------------------------------------------------------------------ */

/* Finds a transport by its name, as shunt_transport_host.find() does. */
const struct shunt_transport *world_find(const char *name);
extern const struct shunt_transport_host world_host;

/* Opens the transport, exchanges addresses and connects all ranks.
 * world_open_only() only opens. */
void world_open(struct rank *r);
void world_open_only(struct rank *r);
/* Opens the transport and exchanges addresses, without connecting. */
void world_open_and_tell(struct rank *r);
/* One call of connect for the peer, and one progress. */
enum shunt_status world_connect_step(struct rank *r, int peer);
/* Connects all pairs, in any order. */
void world_connect(struct rank *r);
/* Waits until all ranks have flushed, then closes. Checks that no more
 * descriptors are open than before; world_close_uncounted() does not. */
void world_close(struct rank *r);
void world_close_uncounted(struct rank *r);

/* Wait for all ranks, and publish a blob to all. Neither uses the transport. */
void world_barrier(struct rank *r);
/* Wait until another rank has set the flag. Does not use the transport. */
void world_await_flag(struct rank *r, int flag, int value);
void world_put_slot(struct rank *r, const void *blob, size_t len);

uint64_t world_random(struct rank *r);
int world_count_fds(void);
/* Counts descriptors while no rank opens or closes any. Collective. */
int world_count_fds_still(struct rank *r);

/* -- memory ----------------------------------------------------------------- */

int world_memfd(struct rank *r, size_t bytes);
void window_create(struct rank *r, struct window *w, size_t bytes);
/* `done` is incremented when the memory has been returned. It may be NULL. */
void window_create_counted(struct rank *r, struct window *w, size_t bytes,
                           atomic_int *done);
/* Collective: all ranks release the memory, then it is deregistered. */
void window_destroy(struct rank *r, struct window *w);

uint64_t *window_word(struct window *w, size_t offset);
uint64_t word_load(const uint64_t *word);

/* A put, repeated while there is no room for it. */
void world_put(struct rank *r, int peer, const struct shunt_transport_put *put);
/* A get, until it has ended. Returns its status. */
enum shunt_status world_get(struct rank *r, int peer, uint64_t address,
                            void *local, size_t bytes);
void world_signal(struct rank *r, struct window *w, int peer, size_t offset,
                  uint64_t value, int channel);
/* Every rank signals all others and waits for their signals. Collective. */
void world_all_signal(struct rank *r);
/* Sleeps until the word has this value, as the contract demands (arm(), poll(),
 * disarm()). Fails if the condition became true without a wake-up. */
void world_sleep_until(struct rank *r, const uint64_t *word, uint64_t value);

/* -- the runner ------------------------------------------------------------- */

/* Runs a case in new processes or threads. Prints why it failed. */
bool world_run(const struct test_case *c, const struct shunt_transport *t,
               const char *options, int nranks, bool threads);

#endif
