// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info --ways: the protocol for memory outside windows, for each pair.
 */
#ifndef SHUNT_INFO_PAIR_COSTS_H
#define SHUNT_INFO_PAIR_COSTS_H

/* Collective over the ranks of the launcher; rank 0 prints. Returns the exit
 * status. */
int info_pair_costs(void);

#endif
