// SPDX-License-Identifier: Apache-2.0
/*
 * Transports for test_plugin.c, which do nothing. SAMPLE_NAME and SAMPLE_SCORE
 * are the name and the score. SAMPLE_ABI, SAMPLE_NO_FLUSH, SAMPLE_UNUSABLE and
 * SAMPLE_NO_SYMBOL make a transport a wrong one. SAMPLE_KNOB is the name of a
 * variable that the transport declares. With SAMPLE_BARE it has only the
 * operations that a plugin must have.
 */

#include <stdio.h>

#include <shunt/transport.h>

extern const struct shunt_transport shunt_transport_v2;

#ifdef SAMPLE_NO_SYMBOL
extern const int shunt_something_else;
__attribute__((visibility("default"))) const int shunt_something_else = 1;
#else

#ifndef SAMPLE_ABI
#define SAMPLE_ABI SHUNT_TRANSPORT_ABI
#endif
#ifndef SAMPLE_SCORE
#define SAMPLE_SCORE 10
#endif

#ifndef SAMPLE_BARE
static enum shunt_status probe(const struct shunt_transport_host *host,
                               struct shunt_transport_estimate *estimate,
                               char *why, size_t why_len)
{
    (void)host;
    *estimate = (struct shunt_transport_estimate){1e-6, 1e9};
#ifdef SAMPLE_UNUSABLE
    snprintf(why, why_len, "no such hardware");
    return SHUNT_ERR_UNSUPPORTED;
#else
    snprintf(why, why_len, "does nothing");
    return SHUNT_OK;
#endif
}

#endif

/* Used for every other operation. The loader checks that operations exist, and
 * never calls them. */
static void nothing(void)
{
}

#ifdef SAMPLE_KNOB
static const struct shunt_transport_knob knobs[] = {
    {SAMPLE_KNOB, "plain", "What the sample tastes like, for the tests."},
    {NULL, NULL, NULL},
};
#endif

#define NOTHING(op) .op = (__typeof__(shunt_transport_v2.op))nothing

__attribute__((visibility("default")))
const struct shunt_transport shunt_transport_v2 = {
    .abi = SAMPLE_ABI,
    .name = SAMPLE_NAME,
    .summary = "a sample for the tests",
    .score = SAMPLE_SCORE,
#ifndef SAMPLE_BARE
    .probe = probe,
    NOTHING(caps),
    NOTHING(map),
    NOTHING(get),
    NOTHING(disarm),
#endif
    NOTHING(open),
    NOTHING(close),
    NOTHING(error),
    NOTHING(address),
    NOTHING(connect),
    NOTHING(reg),
    NOTHING(dereg),
    NOTHING(import),
    NOTHING(release),
    NOTHING(put),
#ifndef SAMPLE_NO_FLUSH
    NOTHING(flush),
#endif
    NOTHING(wake),
    NOTHING(progress),
    NOTHING(wait_fd),
    NOTHING(arm),
    NOTHING(alive),
    NOTHING(left),
#ifdef SAMPLE_KNOB
    .knobs = knobs,
#endif
};

#endif
