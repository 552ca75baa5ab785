// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info --ways: the protocol for memory outside windows, for each pair.
 */
#ifndef SHUNT_INFO_WAYS_H
#define SHUNT_INFO_WAYS_H

/* Collective over the ranks of the launcher; rank 0 prints. Returns the exit
 * status. */
int info_ways(void);

#endif
