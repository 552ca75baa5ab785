// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info --topology: what the ranks that were started find: nodes, places
 * (NUMA nodes and CPUs), rails, and the speed of each class of pairs.
 */
#ifndef SHUNT_INFO_TOPOLOGY_H
#define SHUNT_INFO_TOPOLOGY_H

#include <stdbool.h>

/* Collective over the ranks of the launcher; rank 0 prints. Returns the exit
 * status. */
int info_topology(bool json);

#endif
