// SPDX-License-Identifier: Apache-2.0
/*
 * The CPU time that the control groups of this process allow it.
 */
#ifndef SHUNTI_CGROUP_H
#define SHUNTI_CGROUP_H

#include <stdint.h>

/*
 * The least quota of this process's group and of the groups above it, in 1/1000
 * CPU; 0: none is set. A container often sees its own group as the root. But a
 * unit of systemd, a step of Slurm, or a container without a namespace of
 * groups is below the root that is visible.
 *
 * root  "", or a folder that has /proc and /sys, for tests.
 */
uint32_t shunti_cgroup_quota(const char *root);

#endif
