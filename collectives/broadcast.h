// SPDX-License-Identifier: Apache-2.0
/*
 * The algorithms of broadcast, which broadcast.c chooses from.
 */
#ifndef SHUNTI_BROADCAST_H
#define SHUNTI_BROADCAST_H

#include <stddef.h>
#include <stdint.h>

#include <shunt/coll.h>

struct shunt_comm;
struct shunt_request;

/* Checked arguments. */
struct shunti_broadcast {
    void *buffer;
    size_t count, bytes;
    enum shunt_dtype dtype;
    int root;
};

/* Only where notes may lack: note.h. */
enum shunt_status shunti_broadcast_star(struct shunt_comm *comm,
                                        uint32_t signature,
                                        const struct shunti_broadcast *args,
                                        struct shunt_request **request);

#endif
