// SPDX-License-Identifier: Apache-2.0
/*
 * Compares the bits of all modes, chunks and transports with each other, on
 * several virtual nodes (SHUNT_NODE). on_nodes.c compares them with the
 * reference, in more cases.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#include "tests/harness/harness.h"
#include "tests/moe/setting.h"

TestSuite(exact, .timeout = 120);

#define N22 4, "0,0,1,1"
#define N4222 8, "0,0,1,1,2,2,3,3"
#define N123 6, "0,1,1,2,2,2"
#define BY_TCP "tcp (put)"
#define BY_UCX "ucx (put)"
#define BY_SHM "shm (put)"
#define BY_FAULT "fault (put)"

/* Puts are late, and puts on different channels overtake each other. So rows of
 * the next call arrive before the message that the previous call failed. */
Test(exact, next_call_overtakes)
{
    const struct setting s = {"2x2, very late and out of order",
                              N22,
                              BY_FAULT,
                              {"SHUNT_TRANSPORTS=shm,fault+tcp",
                               "SHUNT_FAULT=delay=2000,reorder,seed=6",
                               "SHUNT_MOE_CHUNK=700"}};

    struct harness *h;

    if (!setting_fits(&s, "refused_and_on"))
        return;
    h = setting_start(&s, "refused_and_on", NULL, NULL);
    cr_assert(harness_wait(h), "%s: %s", s.name, harness_story(h));
    harness_finish(h);
}

/* The line of rank 0 that begins with `word`, without the line end. */
static void line_of(struct harness *h, const char *word, char *line,
                    size_t size)
{
    const char *at = strstr(harness_rank(h, 0)->out, word);

    cr_assert(at, "no line '%s'", word);
    snprintf(line, size, "%.*s", (int)strcspn(at, "\n"), at);
}

static const struct {
    const char *name;
    int ranks;
    const char *node;
    /* The number of nodes if all nodes have the same number of ranks, else
     * NULL. The ranks of a single node can then add as if they were on that
     * many nodes. */
    const char *as_nodes;
} layouts[] = {
    {"2x2", N22, "2"}, {"4x2", N4222, "4"}, {"1, 2 and 3", N123, NULL}};

/* All modes, chunks and transports must give the same bits. */
ParameterizedTestParameters(exact, same_bits)
{
    static size_t index[] = {0, 1, 2};

    return cr_make_param_array(size_t, index, 3);
}

ParameterizedTest(size_t *index, exact, same_bits, .timeout = 300)
{
    static const struct {
        const char *env[3];
        const char *across; /* NULL: all ranks are on one node */
        /* ranks of a node are mapped, so all modes are tested */
        bool mapped;
    } ways[] = {
        {{"SHUNT_TRANSPORTS=shm"}, BY_SHM, true},
        {{"SHUNT_TRANSPORTS=shm", "SHUNT_MOE_CHUNK=1"}, BY_SHM, true},
        {{"SHUNT_TRANSPORTS=shm", "SHUNT_MOE_RECORDS=0"}, BY_SHM, true},
        {{"SHUNT_TRANSPORTS=shm"}, NULL, true},
        {{"SHUNT_TRANSPORTS=shm", "SHUNT_MOE_RECORDS=0"}, NULL, true},
        {{"SHUNT_TRANSPORTS=shm,ucx"}, BY_UCX, true},
        {{"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_MOE_CHUNK=1"}, BY_UCX, true},
        {{"SHUNT_TRANSPORTS=shm,tcp"}, BY_TCP, true},
        {{"SHUNT_TRANSPORTS=shm,tcp", "SHUNT_MOE_CHUNK=1000"}, BY_TCP, true},
        {{"SHUNT_TRANSPORTS=shm,fault+ucx", "SHUNT_FAULT=delay=30,reorder"},
         BY_FAULT,
         true},
        {{"SHUNT_TRANSPORTS=ucx"}, BY_UCX, false},
        {{"SHUNT_TRANSPORTS=tcp"}, BY_TCP, false},
        {{"SHUNT_TRANSPORTS=fault+shm", "SHUNT_FAULT=nomap"}, BY_FAULT, false},
    };
    char first[64] = "";

    if (harness_brief() && layouts[*index].as_nodes)
        cr_skip_test("takes long: make check");
    for (size_t w = 0; w < sizeof(ways) / sizeof(ways[0]); w++) {
        const struct setting s = {
            layouts[*index].name,
            layouts[*index].ranks,
            ways[w].across ? layouts[*index].node : NULL,
            ways[w].across,
            {ways[w].env[0], ways[w].env[1], ways[w].env[2]},
        };
        struct harness *h;
        char bits[64];

        if (!setting_fits(&s, "same_bits") ||
            (!s.node && !layouts[*index].as_nodes))
            continue;
        h = setting_start(&s, "same_bits",
                          s.node ? NULL : layouts[*index].as_nodes, NULL);
        cr_assert(harness_wait(h), "%s, %s: %s", s.name, s.env[0],
                  harness_story(h));
        if (!s.node) {
            line_of(h, "mode direct", bits, sizeof(bits));
        } else if (ways[w].mapped) {
            line_of(h, "mode two-level", bits, sizeof(bits));
            line_of(h, "mode allgather", bits, sizeof(bits));
        }
        line_of(h, "mode flat", bits, sizeof(bits));
        line_of(h, "bits ", bits, sizeof(bits));
        if (w == 0)
            strcpy(first, bits);
        cr_assert_str_eq(bits, first, "%s: %s %s differs from %s", s.name,
                         s.env[0], s.env[1] ? s.env[1] : "", ways[0].env[0]);
        harness_finish(h);
    }
}
