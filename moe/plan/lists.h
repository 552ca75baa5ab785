// SPDX-License-Identifier: Apache-2.0
/*
 * What a plan tells other ranks beside its counts: which rows go where.
 *
 * The lists travel by an alltoallv that shunt_moe_plan_create() starts and does
 * not wait for: they are long, and no rank reads them before the first dispatch
 * or combine, which does not end before they are there. The plan's place stays
 * in use until then, so a plan may be destroyed early.
 */
#ifndef SHUNTI_LISTS_H
#define SHUNTI_LISTS_H

#include <stdbool.h>
#include <stddef.h>

#include "src/op/request.h"

struct shunt_moe;
struct shunti_direction;

/* Of one direction of a plan. */
struct shunti_lists {
    struct shunt_request *request; /* NULL: none under way */
    struct shunti_class class;     /* of the request: `inner` and then ours */
    const struct shunti_class *inner;
    struct shunti_direction *direction;
    bool (*good)(const struct shunti_direction *direction);
    void *out;
    bool here;
};

/*
 * Start to exchange lists, in bytes. The plan of `direction` is where it stays.
 *
 * out   malloc()ed, with the counts, which are in the same block; taken over.
 * good  does what has come agree with the counts? If not, the communicator
 *       fails: the other ranks have the plan, and would wait for us in it.
 */
enum shunt_status
shunti_lists_start(struct shunti_direction *direction, void *out,
                   const void *send, const size_t *send_counts,
                   const size_t *send_displs, void *recv,
                   const size_t *recv_counts,
                   bool (*good)(const struct shunti_direction *direction));

/* Wait for those of plans that have been destroyed: before free places are
 * counted, so that early destruction leaves none in use. All ranks do so in the
 * same calls. The communicator is ours. */
void shunti_lists_settle(struct shunt_moe *moe);

/* Do lists that are under way need something of `peer`? */
bool shunti_lists_await(const struct shunti_lists *lists, int peer);

/* The lists of a plan cannot be made here, for want of memory: it is too late
 * for a refusal, so the communicator fails. */
enum shunt_status shunti_lists_no_memory(const struct shunt_moe *moe);

#endif
