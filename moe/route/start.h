// SPDX-License-Identifier: Apache-2.0
/*
 * The start of a push (push.h) or a pull (pull.h). Both take the same steps:
 *
 * memory   Find memory that peers can reach: the caller's, or scratch memory of
 *          the plan. shunti_start_offer(), shunti_start_scratch().
 * device   Prepare for rows in memory of devices (device_rows.h). A pull has no
 *          such step: staged.h copies its rows to the host first.
 * peers    Set which notes and acks this rank expects of each peer.
 *          shunti_start_peers().
 * launch   Create the request and launch it. shunti_start_launch().
 *
 * A rank must not fail after its peers know of the call. So the first two steps
 * get all memory, and refuse the call if there is too little.
 */
#ifndef SHUNTI_START_H
#define SHUNTI_START_H

#include <stddef.h>

#include "moe/route/handshake.h"
#include "moe/route/rails.h"

/* Reserve the scratch of the buffer `which`, and set *remote to its address.
 * Refuses the call if another request uses the scratch; `clash` describes that
 * request. */
enum shunt_status shunti_start_scratch(struct shunti_handshake *handshake,
                                       enum shunt_moe_buffer which,
                                       const char *clash,
                                       struct shunti_remote *remote);

/* Set *remote to the address of `rows`, for peers that read them. Rows that are
 * in no window are copied to the scratch of the buffer `which`. */
enum shunt_status shunti_start_offer(struct shunti_handshake *handshake,
                                     const void *rows,
                                     enum shunt_moe_buffer which,
                                     const char *clash,
                                     struct shunti_remote *remote);

/* Begin the handshake. notes: (nranks) zeroed. rails: NULL if all peers are
 * direct. acks: returns true if this rank waits for an ack of a peer on another
 * node. */
void shunti_start_peers(struct shunti_handshake *handshake,
                        struct shunti_handshake_notes *notes,
                        const struct shunti_rails *rails,
                        bool (*acks)(const struct shunti_rails *rails,
                                     int rank));

struct shunti_start {
    const struct shunti_class *class;
    const struct shunti_handshake *handshake; /* points into `state` */
    void *state;       /* state of the request, which gets a copy */
    size_t bytes;      /* bytes of the state */
    size_t peer_bytes; /* bytes for each peer, which follow the state */
    /* The peers step, in the new request. notes: (nranks) zeroed. */
    void (*peers)(struct shunt_request *request,
                  struct shunti_handshake_notes *notes);
    void (*drop)(void *state); /* frees the memory of a call that was not
                                  started */
};

/* Create the request and launch it. After an error, drop(state) has been
 * called. */
enum shunt_status shunti_start_launch(const struct shunti_start *start,
                                      struct shunt_request **request);

#endif
