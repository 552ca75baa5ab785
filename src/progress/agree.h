// SPDX-License-Identifier: Apache-2.0
/* Agreement: every rank gives its status, and all learn of any failure. */
#ifndef SHUNTI_AGREE_H
#define SHUNTI_AGREE_H

#include <stdint.h>

#include <shunt/status.h>

struct shunt_comm;

/* The kinds of calls that are agreements (src/base/kind.h). */
enum {
    SHUNTI_KIND_MEM_ALLOC = 10,
    SHUNTI_KIND_MEM_FREE,
    SHUNTI_KIND_CREATE,
    SHUNTI_KIND_FINISH,
};

/*
 * Collective and blocking; also a barrier.
 *
 * kind  what is agreed on (SHUNTI_KIND_...), for the error text.
 * mine  this rank's status.
 *
 * Returns SHUNT_OK if every rank gave that; `mine` if it is an error; otherwise
 * SHUNT_ERR_REMOTE with a text that names the rank.
 */
enum shunt_status shunti_agree(struct shunt_comm *comm, unsigned kind,
                               enum shunt_status mine);

/*
 * That all are here, by notes to the ranks of this node and then to rail peers: those of
 * other nodes say by theirs that all of their node are. So ranks that are neither need no
 * connection.
 */
enum shunt_status shunti_agree_by_rails(struct shunt_comm *comm, unsigned kind);

/*
 * The same as shunti_agree(), and each rank also learns a number from every other.
 *
 * said  (nranks), zeroed; said[own rank] is the number of this rank. The entry
 *       of a rank that failed or made another call stays 0. The same on all
 *       ranks if SHUNT_OK is returned.
 */
enum shunt_status shunti_agree_numbers(struct shunt_comm *comm, unsigned kind,
                                       enum shunt_status mine, uint64_t *said);

#endif
