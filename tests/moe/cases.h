// SPDX-License-Identifier: Apache-2.0
/* The cases of rank_moe that have a file of their own. */
#ifndef TEST_MOE_CASES_H
#define TEST_MOE_CASES_H

#include "tests/harness/rank_main.h"

/* cases_modes.c */
int fresh_routings(const struct rank *self);
int same_bits(const struct rank *self);
int mode_pairs(const struct rank *self);
int modes_of_environment(const struct rank *self);
int rounded_partials(const struct rank *self);
int network_sums(const struct rank *self);

/* cases_memory.c */
int dout_is_out(const struct rank *self);
int buffers_are_the_callers(const struct rank *self);
int tokens_in_buffers(const struct rank *self);
int buffers_under_way(const struct rank *self);
int overlapping_arguments(const struct rank *self);
int shared_arguments(const struct rank *self);

/* cases_interleaved.c */
int exchanges_swapped(const struct rank *self);
int refused_and_on(const struct rank *self);
int one_plan_overlaps(const struct rank *self);
int start_does_not_wait(const struct rank *self);
int interleavings(const struct rank *self);

/* cases_lifetime.c */
int exchanges_come_and_go(const struct rank *self);
int exchanges_overlap(const struct rank *self);
int handles_in_any_order(const struct rank *self);
int calls_on_a_dead_comm(const struct rank *self);
int requests_of_a_dead_comm(const struct rank *self);
int plan_without_use(const struct rank *self);
int foreign_handles(const struct rank *self);
int handles_of_a_larger_exchange(const struct rank *self);
int buffers_after_a_failure(const struct rank *self);
int destroyed_on_one_rank(const struct rank *self);
int wrong_exchange_on_one_rank(const struct rank *self);

/* cases_parts.c */
int parts_have_the_same_bits(const struct rank *self);
int parts_overlap(const struct rank *self);
int parts_called_badly(const struct rank *self);
int parts_find_their_number(const struct rank *self);
int rows_are_no_signals(const struct rank *self);
int parts_of_two_calls(const struct rank *self);

/* cases_waves.c */
int capacities_of_plans(const struct rank *self);
int waves_are_plans(const struct rank *self);
int waves_have_the_same_bits(const struct rank *self);
int waves_called_badly(const struct rank *self);
int loss_in_a_wave(const struct rank *self);
int memory_of_bursts(const struct rank *self);
int memory_of_waves(const struct rank *self);

/* cases_order.c */
int waves_in_order(const struct rank *self);

/* cases_texts.c */
int texts_name_calls(const struct rank *self);
int texts_name_plans(const struct rank *self);
int texts_of_configurations(const struct rank *self);
int overflow_not_retried(const struct rank *self);
int texts_of_two_comms(const struct rank *self);
int texts_of_requests(const struct rank *self);

#endif
