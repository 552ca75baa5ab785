// SPDX-License-Identifier: Apache-2.0
/* Agreement: every rank sends its status to all others. If one rank failed, all
 * return an error. */
#ifndef SHUNTI_AGREE_H
#define SHUNTI_AGREE_H

#include <stdint.h>

#include <shunt/status.h>

#include "src/base/kind.h"

struct shunt_comm;

/*
 * Agree on the status. Collective and blocking; also a barrier.
 *
 * signature  the call that the ranks are in (SHUNTI_SIGNATURE), for the error
 *            text.
 * mine       this rank's status.
 *
 * Returns `mine` if that is an error, and SHUNT_OK if all ranks passed
 * SHUNT_OK. Otherwise returns SHUNT_ERR_REMOTE, with a text that names the rank
 * that failed.
 */
enum shunt_status shunti_agree(struct shunt_comm *comm, uint32_t signature,
                               enum shunt_status mine);

/*
 * A barrier by rails. Each rank sends notes first to the ranks of its node, and
 * then to its rail peers. The note to a rail peer says that all ranks of the
 * sender's node are in the call. So ranks that are neither local peers nor rail
 * peers need no connection.
 */
enum shunt_status shunti_agree_by_rails(struct shunt_comm *comm,
                                        uint32_t signature);

/*
 * Do the same as shunti_agree(), and get a number from every other rank.
 *
 * said  (nranks) The caller sets said[own rank] to the number of this rank, and
 *       the rest to 0. The entry of a rank that failed or made another call
 *       stays 0. If SHUNT_OK is returned, all ranks have the same array.
 */
enum shunt_status shunti_agree_numbers(struct shunt_comm *comm,
                                       uint32_t signature,
                                       enum shunt_status mine, uint64_t *said);

#endif
