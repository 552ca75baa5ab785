// SPDX-License-Identifier: Apache-2.0
/**
 * @file
 * Shunt: collective communication for Mixture-of-Experts models.
 * Includes all but these public headers: mpi.h and fused_cblas.h, and, for
 * plugins only, transport.h and engine.h.
 */
#ifndef SHUNT_SHUNT_H
#define SHUNT_SHUNT_H

#include <shunt/balance.h>
#include <shunt/coll.h>
#include <shunt/comm.h>
#include <shunt/fused.h>
#include <shunt/memory.h>
#include <shunt/moe.h>
#include <shunt/moe_experts.h>
#include <shunt/moe_gradients.h>
#include <shunt/moe_parts.h>
#include <shunt/moe_waves.h>
#include <shunt/request.h>
#include <shunt/status.h>
#include <shunt/trace.h>
#include <shunt/version.h>

#endif
