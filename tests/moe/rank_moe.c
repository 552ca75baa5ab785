// SPDX-License-Identifier: Apache-2.0
/*
 * Exchanges on real ranks, compared with the reference bit by bit. Cases named
 * sNN_ are the points of the list of what dispatch and combine must get right
 * (tests/moe/README.md).
 */
#include "tests/moe/cases.h"

static const struct rank_case *const tables[] = {
    agreement_cases, arguments_cases, interleaved_cases, lifetime_cases,
    memory_cases,    modes_cases,     order_cases,       parts_cases,
    reference_cases, texts_cases,     waves_cases,       NULL,
};

int main(int argc, char **argv)
{
    return rank_main_tables(argc, argv, tables);
}
