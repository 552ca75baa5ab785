// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info --algorithms: which algorithm a collective uses for which size.
 */
#ifndef SHUNT_INFO_ALGORITHMS_H
#define SHUNT_INFO_ALGORITHMS_H

/* Collective over the ranks of the launcher; rank 0 prints. Returns the exit
 * status. */
int info_algorithms(void);

#endif
