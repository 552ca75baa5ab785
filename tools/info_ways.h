// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info --ways: how memory that is in no window goes between pairs.
 */
#ifndef SHUNT_INFO_WAYS_H
#define SHUNT_INFO_WAYS_H

/* Collective over the ranks of the launcher; rank 0 prints. The exit status. */
int info_ways(void);

#endif
