// SPDX-License-Identifier: Apache-2.0
/* Runs the cases of rank_train.c, rank_balance.c, rank_compose.c, rank_pairs.c,
 * rank_presets.c, rank_tensor.c, rank_tiers.c, rank_checkpoint.c and
 * rank_hidden.c as processes. */
#include "tests/harness/harness.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Runs a case of `program` on each number of ranks of the list; in a brief run,
 * only on the middle number. */
static void run_on(const char *program, const char *name, const int *ranks,
                   size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!harness_brief() || i == count / 2)
            harness_case(program, name, ranks[i]);
}

#define CASE(name, ...)                                                     \
    Test(train_ranks, name, .timeout = 240)                                 \
    {                                                                       \
        static const int ranks[] = {__VA_ARGS__};                           \
        run_on("rank_train", #name, ranks, sizeof(ranks) / sizeof(*ranks)); \
    }

CASE(f32_as_one, 1, 2, 3, 4, 8)
CASE(bf16_as_one, 2, 4)
CASE(bf16_products_as_one, 1, 2, 4)
CASE(rounded_products_as_one, 1, 2, 4)
CASE(exchange_by_definition, 1, 2, 3)
CASE(waves_by_definition, 2, 3)
CASE(bias_by_definition, 1, 2)
CASE(bias_and_share_as_one, 2, 4)
CASE(micro_batches_as_one, 1, 2, 4)
CASE(micro_batches_of_bf16_as_one, 2, 4)
CASE(waves_of_leaves_as_one, 1, 2, 3, 4)
CASE(lossy_exchange, 1, 2, 4)
CASE(stop_reaches_all, 1, 4)
CASE(shares_in_order, 1, 2, 3, 4)
CASE(disagreement_is_reported, 2, 4)
CASE(checkpoint_goes_on, 1, 2, 3, 4)
CASE(checkpoint_that_does_not_fit, 1, 4)

#define BALANCE_CASE(name, ...)                                               \
    Test(balance, name, .timeout = 240)                                       \
    {                                                                         \
        static const int ranks[] = {__VA_ARGS__};                             \
        run_on("rank_balance", #name, ranks, sizeof(ranks) / sizeof(*ranks)); \
    }

BALANCE_CASE(predicted_by_definition, 1, 4)
BALANCE_CASE(migrated_as_off, 1, 2, 3, 4)
BALANCE_CASE(replicated_as_off, 4)
BALANCE_CASE(both_as_off, 2, 3)
BALANCE_CASE(by_batch_as_off, 4)
BALANCE_CASE(micro_batches_as_off, 4)
BALANCE_CASE(copies_in_waves, 2, 4)
BALANCE_CASE(checkpoint_goes_on, 2, 4)

/* On 4 ranks the compositions also run on two nodes. The arguments, which
 * choose compositions, are explained in rank_compose.c. */
Test(train_ranks, compositions, .timeout = 240)
{
    static const int ranks[] = {1, 2, 3, 4};

    run_on("rank_compose", "compositions", ranks,
           sizeof(ranks) / sizeof(*ranks));
    harness_check(&(struct harness_job){.program = "rank_compose",
                                        .args = {"compositions", "1", "3"},
                                        .env = {"SHUNT_TEST_NODES=0,0,1,1"},
                                        .ranks = 4});
    /* In this composition, the rows of incomplete leaves are a part of the
     * largest number of bytes held. */
    harness_check(&(struct harness_job){.program = "rank_compose",
                                        .args = {"compositions", "142", "1"},
                                        .ranks = 2});
}

/* Pairs of runs: options that must not change bits, combined with others that
 * may. The arguments are explained in rank_pairs.c. */
Test(train_ranks, pairs, .timeout = 240)
{
    if (!harness_brief()) {
        harness_case("rank_pairs", "pairs", 1);
        harness_case("rank_pairs", "pairs", 4);
    }
    harness_check(&(struct harness_job){.program = "rank_pairs",
                                        .args = {"pairs", "0", "8"},
                                        .env = {"SHUNT_TEST_NODES=0,0,1,1"},
                                        .ranks = 4});
}

Test(train_ranks, presets_learn, .timeout = 240)
{
    if (harness_brief())
        cr_skip_test("takes long: make check");
    harness_check(&(struct harness_job){.program = "rank_presets",
                                        .args = {"presets_learn"},
                                        .ranks = 2,
                                        .timeout_s = 120});
}

#define TENSOR_CASE(name, ...)                                               \
    Test(tensor, name, .timeout = 240)                                       \
    {                                                                        \
        static const int ranks[] = {__VA_ARGS__};                            \
        run_on("rank_tensor", #name, ranks, sizeof(ranks) / sizeof(*ranks)); \
    }

TENSOR_CASE(groups_as_one, 2, 4, 6, 8)
TENSOR_CASE(groups_of_empty_slices, 4, 6, 8)
TENSOR_CASE(copies_as_few, 2, 4, 6, 8)
TENSOR_CASE(groups_with_micro_batches, 4)
TENSOR_CASE(groups_of_bf16_products, 4)
TENSOR_CASE(groups_with_copies, 4)
TENSOR_CASE(groups_with_uneven_copies, 6)
TENSOR_CASE(copies_without_groups, 2)
TENSOR_CASE(shards_as_whole, 1)
TENSOR_CASE(checkpoint_goes_on, 2, 4)

#define TIERS_CASE(name, ...)                                               \
    Test(tiers, name, .timeout = 120)                                       \
    {                                                                       \
        static const int ranks[] = {__VA_ARGS__};                           \
        run_on("rank_tiers", #name, ranks, sizeof(ranks) / sizeof(*ranks)); \
    }

TIERS_CASE(each_tier, 1, 2)
TIERS_CASE(noise_and_parts, 1, 2)
TIERS_CASE(bf16_rows, 2)
TIERS_CASE(groups, 2)
TIERS_CASE(bytes_of_tiers, 1)
TIERS_CASE(bytes_of_routings, 2)
TIERS_CASE(deepest_saves_most, 1)
TIERS_CASE(above_is_recomputed, 2)
TIERS_CASE(pieces_of_an_expert, 1)
TIERS_CASE(budgets_are_kept, 1, 2)
TIERS_CASE(two_parts_in_the_bytes_of_one, 1)

Test(tiers, bytes_are_resident, .timeout = 120)
{
    if (harness_sanitized())
        cr_skip_test("a sanitizer keeps what is freed");
    harness_case("rank_tiers", "bytes_are_resident", 1);
}

/* Plans that are made again must wait for lists from the other node. */
Test(tiers, two_nodes, .timeout = 120)
{
    harness_check(&(struct harness_job){.program = "rank_tiers",
                                        .args = {"noise_and_parts"},
                                        .env = {"SHUNT_TEST_NODES=0,1"},
                                        .ranks = 2});
}

/* Rows are recomputed on two nodes, by each route between nodes. */
Test(tiers, above_is_recomputed_by_each_route, .timeout = 240)
{
    static const char *const routes[] = {"SHUNT_MOE_MODE=two-level",
                                         "SHUNT_MOE_MODE=flat"};

    for (int i = 0; i < 2; i++)
        harness_check(
            &(struct harness_job){.program = "rank_tiers",
                                  .args = {"above_is_recomputed"},
                                  .env = {"SHUNT_TEST_NODES=0,1", routes[i]},
                                  .timeout_s = 100,
                                  .ranks = 2});
}

Test(train_ranks, loss_while_setting_up, .timeout = 60)
{
    struct harness *h =
        harness_start(&(struct harness_job){.program = "rank_train",
                                            .args = {"loss_while_setting_up"},
                                            .ranks = 3});

    harness_wait(h);
    cr_assert_eq(harness_rank(h, 0)->exit_code, 0, "%s", harness_story(h));
    cr_assert_eq(harness_rank(h, 1)->signal, SIGKILL, "%s", harness_story(h));
    cr_assert_eq(harness_rank(h, 2)->exit_code, 0, "%s", harness_story(h));
    harness_finish(h);
}

#define CHECKPOINT_CASE(name, ...)                \
    Test(checkpoint, name, .timeout = 120)        \
    {                                             \
        static const int ranks[] = {__VA_ARGS__}; \
        run_on("rank_checkpoint", #name, ranks,   \
               sizeof(ranks) / sizeof(*ranks));   \
    }

CHECKPOINT_CASE(damages, 1, 3)
CHECKPOINT_CASE(no_manifest, 1, 3)
CHECKPOINT_CASE(old_one_stays, 1, 3)
CHECKPOINT_CASE(link_is_refused, 2)

/* Dispatch and both gradients must be hidden behind products. */
Test(train_ranks, exchanges_are_hidden, .timeout = 240)
{
    harness_check(&(struct harness_job){
        .program = "rank_hidden",
        .args = {"exchanges_are_hidden"},
        .env = {"SHUNT_TRANSPORTS=fault+shm",
                "SHUNT_FAULT=nomap,delay=10000,fixed", "SHUNT_PROGRESS=thread"},
        .timeout_s = 120,
        .ranks = 2});
}

/* Two virtual nodes. The trainer on a single rank adds as if on two nodes,
 * too. */
Test(train_ranks, two_nodes, .timeout = 240)
{
    static const char *const names[] = {
        "f32_as_one",           "bf16_as_one",
        "bf16_products_as_one", "shares_in_order",
        "micro_batches_as_one", "micro_batches_of_bf16_as_one",
        "checkpoint_goes_on"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        harness_check(&(struct harness_job){.program = "rank_train",
                                            .args = {names[i]},
                                            .env = {"SHUNT_TEST_NODES=0,0,1,1"},
                                            .ranks = 4});
}

Test(balance, two_nodes, .timeout = 240)
{
    static const char *const names[] = {"bytes_of_a_refresh", "both_as_off",
                                        "by_batch_as_off"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (harness_sanitized() && i == 2)
            continue; /* takes 20 s, and the case runs on one node, too */
        harness_check(&(struct harness_job){.program = "rank_balance",
                                            .args = {names[i]},
                                            .env = {"SHUNT_TEST_NODES=0,0,1,1"},
                                            .ranks = 4});
    }
}

/* A rank is killed while experts move, weights are sent to copies, gradients
 * return, or a layer's rows arrive in waves. tests/train/kills repeats this any
 * number of times. */
Test(balance, kills, .timeout = 240)
{
    static const char *const kills[][3] = {{"move", "2", "1"},
                                           {"refresh", "0", "5"},
                                           {"reduce", "3", "2"},
                                           {"wave", "1", "17"}};

    for (size_t i = 0; i < sizeof(kills) / sizeof(kills[0]); i++) {
        const char *const *k = kills[i];
        char folder[] = "/tmp/shunt-kills-XXXXXX", command[64];

        cr_assert(mkdtemp(folder));
        struct harness_job job = {.program = "rank_balance",
                                  .args = {"killed", k[0], k[1], k[2], folder},
                                  .ranks = 4};
        struct harness *h = harness_start(&job);
        harness_wait(h);
        for (int r = 0; r < 4; r++)
            cr_assert(r == atoi(k[1]) ? harness_rank(h, r)->signal == SIGKILL
                                      : harness_rank(h, r)->exit_code == 0,
                      "%s", harness_story(h));
        harness_finish(h);
        job.args[0] = "goes_on_after";
        harness_check(&job);
        snprintf(command, sizeof(command), "rm -rf '%s'", folder);
        cr_assert_eq(system(command), 0);
    }
}

/* Each group is on one node. */
Test(tensor, two_nodes, .timeout = 240)
{
    harness_check(&(struct harness_job){.program = "rank_tensor",
                                        .args = {"groups_with_micro_batches"},
                                        .env = {"SHUNT_TEST_NODES=0,0,1,1"},
                                        .ranks = 4});
}

/* Each rank is a node of its own: shares are added before they are sent. */
Test(train_ranks, a_node_each, .timeout = 240)
{
    static const char *const names[] = {"shares_in_order", "f32_as_one"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        harness_check(&(struct harness_job){.program = "rank_train",
                                            .args = {names[i]},
                                            .env = {"SHUNT_TEST_NODES=0,1,2,3"},
                                            .ranks = 4});
}
