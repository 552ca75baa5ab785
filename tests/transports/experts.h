// SPDX-License-Identifier: Apache-2.0
/* Mixture-of-experts over one transport, for test_ucx.c and test_rdma.c. */
#ifndef SHUNT_TEST_TRANSPORTS_EXPERTS_H
#define SHUNT_TEST_TRANSPORTS_EXPERTS_H

#include "tests/harness/harness.h"

/* Runs cases of rank_moe, all in one world. The caller sets ranks and
 * environment in `job`; the rest is set here. */
void transport_experts(struct harness_job *job);

#endif
