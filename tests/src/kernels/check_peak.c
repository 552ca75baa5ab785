// SPDX-License-Identifier: Apache-2.0
/*
 * The peak's multiply-adds: as many operations as they say, and values that
 * stay where they are. Timed, they are what the CPU can do at most.
 */
#include "src/kernels/peak.h"

#include <math.h>

#include "tests/src/kernels/check.h"

static double run(int v, size_t rounds, float *sink)
{
    return shunti_peak_sets[v == REFERENCE ? SHUNTI_ISA_PLAIN : v]->run(rounds,
                                                                        sink);
}

static void trial(const struct kernel *k, int v, struct random *r)
{
    size_t rounds = 50 + random_below(r, 100); /* then sums have settled */
    float sink = 1;
    double all = run(v, rounds, &sink), one;

    (void)k;
    expect(fabsf(sink - 1) < 1e-4f, "1 has become %g", (double)sink);
    one = run(v, 1, &sink);
    expect(one > 0 && all == one * (double)rounds,
           "%zu rounds are %g operations, one is %g", rounds, all, one);
}

static double once(const struct kernel *k, int v, bool prepare)
{
    static float sink = 1;

    (void)k;
    (void)prepare;
    return run(v, 1 << 12, &sink);
}

static const struct kernel kernels[] = {{.name = "f32"}, {.name = NULL}};

const struct family family_peak = {
    .name = "peak",
    .kernels = kernels,
    .trials = 20,
    .variant = isa_variant,
    .trial = trial,
    .once = once,
    .flops = true,
};
