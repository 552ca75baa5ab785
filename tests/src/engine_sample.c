// SPDX-License-Identifier: Apache-2.0
/*
 * Copy engines for test_plugin.c, which copy nothing. SAMPLE_NAME is the name
 * of the engine. SAMPLE_ABI, SAMPLE_NO_POLL and SAMPLE_KNOB make it a wrong
 * one.
 */

#include <shunt/engine.h>

extern const struct shunt_engine shunt_engine_v5;

#ifndef SAMPLE_ABI
#define SAMPLE_ABI SHUNT_ENGINE_ABI
#endif
#ifndef SAMPLE_KNOB
#define SAMPLE_KNOB "SHUNT_E_GOOD_TASTE"
#endif

static const struct shunt_transport_knob knobs[] = {
    {SAMPLE_KNOB, "plain", "A knob of the sample, for the tests."},
    {NULL, NULL, NULL},
};

/* Used for every operation. The loader checks that operations exist, and never
 * calls them. */
static void nothing(void)
{
}

#define NOTHING(op) .op = (__typeof__(shunt_engine_v5.op))nothing

__attribute__((visibility("default")))
const struct shunt_engine shunt_engine_v5 = {
    .abi = SAMPLE_ABI,
    .name = SAMPLE_NAME,
    .summary = "a sample for the tests",
    .knobs = knobs,
    NOTHING(probe),
    NOTHING(open),
    NOTHING(close),
    NOTHING(submit),
#ifndef SAMPLE_NO_POLL
    NOTHING(poll),
#endif
};
