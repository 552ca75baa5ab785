// SPDX-License-Identifier: Apache-2.0
/*
 * Lists say which rows go where. Ranks send them in addition to the counts.
 *
 * Ranks exchange lists by an alltoallv that shunt_moe_plan_create() starts and
 * does not wait for. Lists are long, and no rank reads them before the first
 * dispatch or combine. That call does not end before the lists have arrived.
 * The plan's place stays in use until then, so a plan may be destroyed early.
 */
#ifndef SHUNTI_LISTS_H
#define SHUNTI_LISTS_H

#include <stdbool.h>
#include <stddef.h>

#include "src/op/request.h"

struct shunt_moe;
struct shunti_direction;

/* The lists of one direction of a plan. */
struct shunti_lists {
    struct shunt_request *request; /* NULL: no exchange of lists is under way */
    /* Class of the request. Its functions call those of `inner`, then check the
     * lists. */
    struct shunti_class class;
    const struct shunti_class *inner; /* class of the alltoallv */
    struct shunti_direction *direction;
    bool (*good)(const struct shunti_direction *direction);
    void *out; /* memory of the sent lists, freed when the request ends */
    bool here; /* the lists have arrived */
};

/*
 * Start to exchange lists, in bytes. The plan of `direction` must be at its
 * final address.
 *
 * out   one malloc()ed block with the lists and the counts. The callee frees
 *       it.
 * good  True if the received lists agree with the counts. If not, the
 *       communicator fails, because the other ranks have the plan and would
 *       wait for this rank.
 */
enum shunt_status
shunti_lists_start(struct shunti_direction *direction, void *out,
                   const void *send, const size_t *send_counts,
                   const size_t *send_displs, void *recv,
                   const size_t *recv_counts,
                   bool (*good)(const struct shunti_direction *direction));

/* Wait for the lists of plans that have been destroyed. Called before free
 * places are counted, so that a plan that was destroyed early keeps no place in
 * use. All ranks do so in the same calls. The caller holds the communicator. */
void shunti_lists_settle(struct shunt_moe *moe);

/* True if the exchange of lists still waits for `peer`. */
bool shunti_lists_await(const struct shunti_lists *lists, int peer);

/* Fail the communicator, because this rank has no memory for the lists of a
 * plan. A refusal would be too late. */
enum shunt_status shunti_lists_no_memory(const struct shunt_moe *moe);

#endif
