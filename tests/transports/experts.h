// SPDX-License-Identifier: Apache-2.0
/* Mixture-of-experts over one transport: what test_ucx.c and test_rdma.c share. */
#ifndef SHUNT_TEST_TRANSPORTS_EXPERTS_H
#define SHUNT_TEST_TRANSPORTS_EXPERTS_H

#include "tests/harness/harness.h"

/* Run cases of rank_moe, all in one world. `job` has ranks and environment; the
 * rest is set here. */
void transport_experts(struct harness_job *job);

#endif
