// SPDX-License-Identifier: Apache-2.0
/*
 * Copies. The way in which shunti_copy() copies large blocks depends on the
 * CPU. Every x86 can run both ways, so both are checked wherever that is
 * possible.
 */
#include "src/kernels/copy.h"
#include "src/kernels/cpu.h"
#include "tests/src/kernels/check.h"

enum { COPY, STREAM };
enum { SRC, DST };
enum { MOST = 17 << 20 };

static const char *variant(int v)
{
    static const char *const names[] = {"stores", "movsb", NULL};

    return names[v];
}

static bool runs(const struct kernel *k, int v)
{
#if defined(__x86_64__)
    return k->which == COPY || v == 0;
#else
    (void)k;
    return v == 0;
#endif
}

static void run(const struct kernel *k, int v, void *dst, const void *src,
                size_t bytes)
{
    unsigned found = shunti_cpu();

    atomic_store(&shunti_cpu_found,
                 v == 1 ? found | SHUNTI_CPU_MOVSB : found & ~SHUNTI_CPU_MOVSB);
    if (v == REFERENCE) {
        memcpy(dst, src, bytes);
    } else if (k->which == COPY) {
        shunti_copy(dst, src, bytes);
    } else {
        shunti_copy_stream(dst, src, bytes);
        shunti_copy_fence();
    }
    atomic_store(&shunti_cpu_found, found);
}

static void trial(const struct kernel *k, int v, struct random *r)
{
    static const size_t sizes[] = {0,      1,      63,      64,   255,
                                   256,    257,    4096,    4097, 65536 + 7,
                                   524287, 524288, 3000001, MOST};
    size_t n = sizeof(sizes) / sizeof(sizes[0]);
    size_t pick =
        random_below(r, 8) ? random_below(r, n - 4) : random_below(r, n);
    size_t bytes = random_below(r, 3) ? sizes[pick] : random_below(r, 9000);
    unsigned char *src = memory(r, SRC, bytes, 1);
    unsigned char *dst = memory(r, DST, bytes, 1);

    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t bits = random_next(r);

        memcpy(src + i, &bits, bytes - i < 8 ? bytes - i : 8);
    }
    run(k, v, dst, src, bytes);
    expect(memcmp(dst, src, bytes) == 0, "%zu bytes differ", bytes);
    expect_guards(DST);
}

static double once(const struct kernel *k, int v, bool prepare)
{
    static void *src, *dst;

    if (prepare || !dst) {
        struct random r = {1};

        src = memory(&r, SRC, MOST, 64);
        dst = memory(&r, DST, MOST, 64);
        memset(src, 1, MOST);
        memset(dst, 2, MOST);
    }
    run(k, v, dst, src, MOST);
    return 2.0 * MOST;
}

static const struct kernel kernels[] = {
    {.name = "17 MiB", .which = COPY},
    {.name = "17 MiB, past the cache", .which = STREAM},
    {.name = NULL},
};

const struct family family_copy = {
    .name = "copy",
    .kernels = kernels,
    .trials = 150,
    .variant = variant,
    .runs = runs,
    .trial = trial,
    .once = once,
};
