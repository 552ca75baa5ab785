// SPDX-License-Identifier: Apache-2.0
/* Agreement: every rank gives its status, and every rank learns of any
 * failure. */
#ifndef SHUNTI_AGREE_H
#define SHUNTI_AGREE_H

#include <stdint.h>

#include <shunt/status.h>

#include "src/base/kind.h"

struct shunt_comm;

/*
 * Agree on the status. Collective and blocking; also a barrier.
 *
 * signature  what is agreed on (SHUNTI_SIGNATURE), for the error text.
 * mine       this rank's status.
 *
 * Returns SHUNT_OK if every rank gave SHUNT_OK, and `mine` if that is an error.
 * Otherwise returns SHUNT_ERR_REMOTE, with a text that names the rank that
 * failed.
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
 * said  (nranks), zeroed; said[own rank] is the number of this rank. The entry
 *       of a rank that failed or made another call stays 0. The same on all
 *       ranks if SHUNT_OK is returned.
 */
enum shunt_status shunti_agree_numbers(struct shunt_comm *comm,
                                       uint32_t signature,
                                       enum shunt_status mine, uint64_t *said);

#endif
