// SPDX-License-Identifier: Apache-2.0
/*
 * shunt-info --topology: what a communicator of the ranks that were started
 * finds: nodes, places, rails, and how fast each kind of pair is.
 */
#ifndef SHUNT_INFO_TOPOLOGY_H
#define SHUNT_INFO_TOPOLOGY_H

#include <stdbool.h>

/* Collective over the ranks of the launcher; rank 0 prints. The exit status. */
int info_topology(bool json);

#endif
