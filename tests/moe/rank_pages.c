// SPDX-License-Identifier: Apache-2.0
/*
 * The pages of plans' windows on a kernel with larger pages, and on one that
 * refuses to take pages back. The library calls this program's sysconf() and
 * madvise().
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <shunt/moe_waves.h>
#include <shunt/shunt.h>

#include "tests/harness/rank_main.h"

enum { LARGE = 64 << 10, HIDDEN = 100, MANY = 5003, FEW = 17 };

static bool refuses;
static size_t asked, given_back, odd;
static const unsigned char *window; /* where the window begins */

long sysconf(int name)
{
    static long (*real)(int);

    if (name == _SC_PAGESIZE)
        return LARGE;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "sysconf");
    return real(name);
}

/* Checks calls for addresses in the window only. Other addresses are multiples
 * of this kernel's real pages, not of the large ones. */
int madvise(void *at, size_t bytes, int advice)
{
    static int (*real)(void *, size_t, int);

    if (advice == MADV_REMOVE) {
        asked++;
        odd += ((uintptr_t)at - (uintptr_t)window) % LARGE || bytes % LARGE;
        if (refuses) {
            errno = EINVAL;
            return -1;
        }
        given_back += bytes;
    }
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "madvise");
    return real(at, bytes, advice);
}

/* A plan of `tokens` tokens, all for expert 0. */
static int use_plan(const struct rank *self, struct shunt_moe *moe,
                    size_t tokens)
{
    int32_t *expert = calloc(tokens, sizeof(*expert));
    struct shunt_moe_plan *plan;
    struct shunt_moe_rows in;

    CHECK_OK(self->comm,
             shunt_moe_plan_create(moe, expert, NULL, tokens, &plan));
    shunt_moe_plan_rows(plan, &in, sizeof(in));
    window = shunt_moe_buffer(plan, SHUNT_MOE_ROWS);
    for (int b = SHUNT_MOE_ROWS; b <= SHUNT_MOE_DROWS && in.total; b++)
        memset(shunt_moe_buffer(plan, (enum shunt_moe_buffer)b), 1,
               in.total * HIDDEN * sizeof(float));
    shunt_moe_plan_destroy(plan);
    free(expert);
    return 0;
}

static int make(const struct rank *self, struct shunt_moe **moe)
{
    struct shunt_moe_config c = SHUNT_MOE_CONFIG_INIT;

    c.hidden = HIDDEN;
    c.dtype = SHUNT_F32;
    c.experts = 1;
    c.topk = 1;
    c.max_tokens = MANY;
    c.weights = SHUNT_MOE_PLAIN_SUM;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, moe));
    return 0;
}

static int large_pages(const struct rank *self)
{
    const size_t few = FEW * HIDDEN * sizeof(float);
    struct shunt_moe_memory memory;
    struct shunt_moe *moe;

    CHECK_RUN(make(self, &moe));
    CHECK_RUN(use_plan(self, moe, MANY));
    CHECK_RUN(use_plan(self, moe, FEW));
    CHECK(asked == 4, "%zu calls for four buffers", asked);
    CHECK(!odd, "%zu calls of %zu are not of whole pages of %d bytes", odd,
          asked, LARGE);
    shunt_moe_memory(moe, &memory, sizeof(memory));
    CHECK(memory.rows >= 4 * few && memory.rows <= (size_t)4 * LARGE,
          "%zu bytes of rows, for %zu in each buffer", memory.rows, few);
    CHECK(memory.rows_most % LARGE == 0, "%zu at most", memory.rows_most);
    shunt_moe_destroy(moe);
    CHECK(!odd && asked == 8, "%zu calls, %zu odd", asked, odd);
    return 0;
}

/* Pages that the kernel refused must be returned to it again later. */
static int refused(const struct rank *self)
{
    struct shunt_moe_memory before, after;
    struct shunt_moe *moe;

    CHECK_RUN(make(self, &moe));
    refuses = true;
    CHECK_RUN(use_plan(self, moe, MANY));
    shunt_moe_memory(moe, &before, sizeof(before));
    CHECK_RUN(use_plan(self, moe, FEW));
    CHECK(asked == 4 && !given_back, "%zu calls", asked);
    shunt_moe_memory(moe, &after, sizeof(after));
    CHECK(after.rows == before.rows, "%zu bytes of rows, then %zu", before.rows,
          after.rows);
    refuses = false;
    CHECK_RUN(use_plan(self, moe, FEW));
    CHECK(asked == 8 && given_back, "%zu calls", asked);
    shunt_moe_memory(moe, &after, sizeof(after));
    CHECK(after.rows * 4 < before.rows, "%zu bytes of rows, then %zu",
          before.rows, after.rows);
    shunt_moe_destroy(moe);
    return 0;
}

static const struct rank_case cases[] = {
    {"large_pages", large_pages, .max_ranks = 1, .no_threads = true},
    {"refused", refused, .max_ranks = 1, .no_threads = true},
    {NULL, NULL, .max_ranks = 0},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
