// SPDX-License-Identifier: Apache-2.0
/* How many messages calls send, and to which ranks; rank_messages.c counts
 * them. */

#include <criterion/criterion.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/harness/harness.h"

TestSuite(messages, .timeout = 120);

static const char *const layouts[] = {"0,0,1,1",     "0,0,1,1,2,2,3,3",
                                      "0,1,1,2,2,2", "0,1,0,2,1,2,2",
                                      "0,1,2",       "0,1,2,3,4,5,6"};
/* all; the first ones, with nodes of equal size; without the last one */
enum { ALL = sizeof(layouts) / sizeof(*layouts), EQUAL = 2, LAYOUTS = ALL - 1 };

static void run(const char *nodes, const char *transports, const char *across,
                const char *name, const char *algorithm)
{
    char variable[2][64];
    struct harness_job job = {
        .program = "rank_messages",
        .args = {name, algorithm},
        .env = {variable[0], variable[1], transports, across},
        .ranks = 1,
        .timeout_s = 60,
    };

    for (const char *c = nodes; *c; c++)
        job.ranks += *c == ',';
    snprintf(variable[0], sizeof(variable[0]), "SHUNT_TEST_NODES=%s", nodes);
    snprintf(variable[1], sizeof(variable[1]), "SHUNT_ALGORITHM=%s",
             algorithm ? algorithm : "");
    harness_check(&job);
}

/* Run the case on every network. A brief run has one network for each
 * layout. */
static void everywhere(const char *name, const char *algorithm, int nlayouts)
{
    static const struct {
        const char *transports, *across;
    } networks[] = {
        {"SHUNT_TRANSPORTS=shm", "SHUNT_TEST_ACROSS=shm (put)"},
        {"SHUNT_TRANSPORTS=shm,tcp", "SHUNT_TEST_ACROSS=tcp (put)"},
        {"SHUNT_TRANSPORTS=shm,ucx", "SHUNT_TEST_ACROSS=ucx (put)"},
    };
    const int n = getenv("SHUNT_TEST_UCX") ? 3 : 2;

    for (int i = 0; i < nlayouts; i++)
        for (int k = 0; k < n; k++)
            if (!harness_brief() || k == i % n)
                run(layouts[i], networks[k].transports, networks[k].across,
                    name, algorithm);
}

Test(messages, flat)
{
    everywhere("collectives", "flat", LAYOUTS);
}

Test(messages, two_level)
{
    everywhere("collectives", "two_level", LAYOUTS);
}

Test(messages, one_to_each_node)
{
    everywhere("one_to_each_node", "two_level", EQUAL);
}

/* The nodes of each layout are of equal size. */
Test(messages, allreduce_bytes)
{
    static const char *const equal[] = {"0,0,1,1", "0,0,1,1,2,2", "0,1,2,3,4",
                                        "0,1,2,0,1,2,0,1,2"};
    static const char *const variants[] = {"shards", "lanes"};

    for (size_t i = 0; i < sizeof(equal) / sizeof(*equal); i++)
        for (int k = 0; k < 2; k++) {
            char nodes[40], algorithm[60];
            struct harness_job job = {
                .program = "rank_messages",
                .args = {"allreduce_bytes", "", variants[k]},
                .env = {nodes, algorithm, "SHUNT_TRANSPORTS=shm"},
                .ranks = 1,
                .timeout_s = 60,
            };

            for (const char *c = equal[i]; *c; c++)
                job.ranks += *c == ',';
            snprintf(nodes, sizeof(nodes), "SHUNT_TEST_NODES=%s", equal[i]);
            snprintf(algorithm, sizeof(algorithm),
                     "SHUNT_ALGORITHM=allreduce=%s", variants[k]);
            harness_check(&job);
        }
}

Test(messages, dissemination)
{
    everywhere("dissemination", "dissemination", ALL);
}

Test(messages, doubling)
{
    static const char *const powers[] = {"0,0,1,1", "0,0,1,2,3,3",
                                         "0,0,1,1,2,2,3,3", "0,1,2,3,4,5,6,7"};

    for (size_t i = 0; i < sizeof(powers) / sizeof(*powers); i++) {
        run(powers[i], "SHUNT_TRANSPORTS=shm", "SHUNT_TEST_ACROSS=shm (put)",
            "doubling", "allreduce=doubling");
        run(powers[i], "SHUNT_TRANSPORTS=shm,tcp",
            "SHUNT_TEST_ACROSS=tcp (put)", "doubling", "allreduce=doubling");
    }
}

/* Each rank makes 200 calls of 3 messages by tcp, and gets notes from three
 * ranks to which it sends none. These need no credits, because the messages say
 * what all ranks have completed. A credit to each for every 16 operations would
 * be 37 more messages. Some 25 messages are sent besides. */
static void needs_no_credits(const char *call)
{
    enum { RANKS = 7, NOTES = 200 * 3, OTHERS = 60 };
    static const char counter[] = "transport tcp: ";
    struct harness *h = harness_start(&(struct harness_job){
        .program = "rank_messages",
        .args = {"dissemination", "dissemination", call},
        .env = {"SHUNT_TEST_NODES=0,1,2,3,4,5,6",
                "SHUNT_ALGORITHM=dissemination", "SHUNT_TRANSPORTS=shm,tcp",
                "SHUNT_TEST_ACROSS=tcp (put)", "SHUNT_LOG=info"},
        .ranks = RANKS});
    long least = LONG_MAX; /* ranks 0 and 1 also measure their link */

    cr_assert(harness_wait(h), "%s", harness_story(h));
    for (int r = 0; r < RANKS; r++) {
        const char *at = strstr(harness_rank(h, r)->err, counter);
        long messages;

        cr_assert(at, "rank %d: no '%s' in\n%s", r, counter,
                  harness_rank(h, r)->err);
        messages = strtol(at + strlen(counter), NULL, 10);
        least = messages < least ? messages : least;
    }
    cr_expect(least >= NOTES && least < NOTES + OTHERS, "%s: %ld messages",
              call, least);
    harness_finish(h);
}

Test(messages, dissemination_needs_no_credits)
{
    needs_no_credits("barrier");
    needs_no_credits("allgather");
    needs_no_credits("allreduce");
}

Test(messages, exchange)
{
    everywhere("exchange", NULL, LAYOUTS);
}

Test(messages, bad_arguments)
{
    harness_case("rank_messages", "bad_arguments", 2);
}
