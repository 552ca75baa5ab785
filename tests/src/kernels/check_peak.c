// SPDX-License-Identifier: Apache-2.0
/*
 * The multiply-adds with which the peak is measured. They must be as many
 * operations as they report, and their values must stay the same. Their time
 * shows the most operations that the CPU can do.
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
    /* after so many rounds the sums have settled */
    size_t rounds = 50 + random_below(r, 100);
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
