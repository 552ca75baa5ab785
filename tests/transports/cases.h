// SPDX-License-Identifier: Apache-2.0
/* The cases of the conformance suite, by subject. */
#ifndef SHUNT_TEST_CASES_H
#define SHUNT_TEST_CASES_H

#include "tests/transports/world.h"

/* All cases in the order in which they run, up to a NULL name. */
extern const struct test_case transport_cases[];

/* case_data.c: connecting, memory, put, get. */
void case_connect(struct rank *r);
void case_map(struct rank *r);
void case_put(struct rank *r);
void case_tail(struct rank *r);
void case_stress(struct rank *r);
void case_order(struct rank *r);
void case_flush(struct rank *r);
void case_get(struct rank *r);
void case_large(struct rank *r);
void case_many_registrations(struct rank *r);
void case_unimported(struct rank *r);
void case_two_worlds(struct rank *r);
void case_errors(struct rank *r);
void case_counters(struct rank *r);

/* case_words.c: only for inproc, whose ranks may be threads of one sanitizer. */
void case_words(struct rank *r);

/* case_zcopy.c: memory that is registered for one operation. */
void case_brief(struct rank *r);
void case_brief_withdrawn(struct rank *r);
void case_brief_signal(struct rank *r);
void case_let_go(struct rank *r);
extern int transport_rounds; /* number of rounds of case_remapped() */
void case_remapped(struct rank *r);

/* case_wait.c: sleeping, and losing peers. */
void case_sleep(struct rank *r);
void case_sleep_race(struct rank *r);
void case_busy(struct rank *r);
void case_busy_when_full(struct rank *r);
void case_leave(struct rank *r);
void case_leave_sleeping(struct rank *r);
void case_leave_connecting(struct rank *r);
void case_kill(struct rank *r);
void case_kill_sleeping(struct rank *r);
void case_kill_forked(struct rank *r);
void case_kill_connecting(struct rank *r);
void case_kill_in_transfer(struct rank *r);
void case_kill_when_sent(struct rank *r);
void case_ucx_kill_among_networks(struct rank *r);

/* case_tcp.c: only for tcp. */
void case_tcp_strangers(struct rank *r);
void case_tcp_strangers_at_last(struct rank *r);
void case_tcp_strangers_many(struct rank *r);
void case_tcp_strangers_crowd(struct rank *r);
void case_tcp_late_listener(struct rank *r);
void case_tcp_ports(struct rank *r);
void case_tcp_kill_cloned(struct rank *r);
void case_tcp_kill_forked_afar(struct rank *r);

/* case_express.c: the second connection of tcp. */
void case_tcp_express(struct rank *r);
void case_tcp_express_killed(struct rank *r);
void case_tcp_express_left(struct rank *r);
void case_tcp_express_cut(struct rank *r);
void case_tcp_express_main_cut(struct rank *r);
void case_tcp_express_refused(struct rank *r);

/* case_direct.c: direct puts of rdma. */
void case_rdma_direct(struct rank *r);
void case_rdma_answered(struct rank *r);
void case_rdma_ring(struct rank *r);

/* case_rdma.c: only for rdma. */
void case_rdma_requests(struct rank *r);
void case_rdma_pinned(struct rank *r);
void case_rdma_device_fails(struct rank *r);
/* Does SHUNT_TEST_VERBS have the value with which the suite runs `own_nics`
 * cases? */
bool case_rdma_is_row_of_own_nics(void);
void case_rdma_pieces(struct rank *r);
void case_rdma_crossover(struct rank *r);
void case_rdma_death_first(struct rank *r);
void case_rdma_death_before_leaving(struct rank *r);
/* case_first_put.c: the first put makes the connection. */
void case_rdma_first_puts(struct rank *r);
void case_rdma_first_put_wakes(struct rank *r);
void case_rdma_first_put_killed(struct rank *r);
void case_rdma_first_put_left(struct rank *r);
void case_rdma_first_put_fails(struct rank *r);
void case_rdma_first_put_costs(struct rank *r);
void case_rdma_networks(struct rank *r);
void case_rdma_queues_too_small(struct rank *r);
void case_rdma_subnets(struct rank *r);
/* case_rare.c */
void case_rare(struct rank *r);
void case_rdma_rare(struct rank *r);
void case_rdma_rare_killed(struct rank *r);
/* case_rails.c */
void case_rdma_rails(struct rank *r);
void case_rdma_rails_lend(struct rank *r);
void case_rdma_rails_gone(struct rank *r);
void case_rdma_rail_dies(struct rank *r);
void case_rdma_last_rail(struct rank *r);
void case_rdma_last_rail_often(struct rank *r);
void case_rdma_last_rail_lost(struct rank *r);
void case_rdma_stuck(struct rank *r);
void case_rdma_port_asleep(struct rank *r);
void case_rdma_withdrawn(struct rank *r);
void case_rdma_refused_at_once(struct rank *r);
void case_rdma_refused_small(struct rank *r);
void case_rdma_requests_replayed(struct rank *r);
void case_rdma_choice(struct rank *r);

/* case_shm.c: only for shm, except case_secret(). */
void case_shm_strangers(struct rank *r);
/* For shm and tcp. */
void case_secret(struct rank *r);
void case_shm_lies(struct rank *r);
void case_shm_descriptors(struct rank *r);
void case_shm_no_cma(struct rank *r);

/* case_fault.c: the effects of SHUNT_FAULT. */
void case_fault_words(struct rank *r);
void case_fault_get(struct rank *r);
void case_fault_fail(struct rank *r);
void case_fault_die(struct rank *r);
void case_fault_fade(struct rank *r);
void case_fault_silence(struct rank *r);
void case_fault_reorder(struct rank *r);
void case_fault_peer(struct rank *r);

#endif
