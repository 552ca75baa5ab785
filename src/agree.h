// SPDX-License-Identifier: Apache-2.0
/* Agreement: every rank says how it fared, and all learn of any failure. */
#ifndef SHUNTI_AGREE_H
#define SHUNTI_AGREE_H

#include <stdint.h>

#include <shunt/status.h>

struct shunt_comm;

/* Calls that are no more than an agreement (src/kind.h). */
enum {
    SHUNTI_KIND_MEM_ALLOC = 10,
    SHUNTI_KIND_MEM_FREE,
    SHUNTI_KIND_CREATE,
    SHUNTI_KIND_FINISH,
};

/*
 * Collective and blocking; a barrier, too.
 *
 * kind  what is agreed on (SHUNTI_KIND_...), for the error text.
 * mine  this rank's status.
 *
 * Returns SHUNT_OK if every rank is well; `mine` if it is not; otherwise
 * SHUNT_ERR_REMOTE with a text that names the rank.
 */
enum shunt_status shunti_agree(struct shunt_comm *comm, unsigned kind,
                               enum shunt_status mine);

/*
 * The same, and each rank learns a number of each other.
 *
 * said  (nranks), zeroed; said[own rank] is what this rank says. A rank that
 *       failed or made another call says nothing. The same on all ranks if
 *       SHUNT_OK is returned.
 */
enum shunt_status shunti_agree_numbers(struct shunt_comm *comm, unsigned kind,
                                       enum shunt_status mine, uint64_t *said);

#endif
