// SPDX-License-Identifier: Apache-2.0
/* Settings of plans. Every rank takes them from rank 0; env.c declares their
 * environment variables. */
#ifndef SHUNTI_MOE_SETTINGS_H
#define SHUNTI_MOE_SETTINGS_H

#include <stddef.h>

#include "src/comm.h"

struct shunti_moe_settings {
    size_t chunk; /* bytes of rows that are sent to another node at once */
    /* Limit for records with counts (records.h): a plan's records have counts
     * if the records of all ranks then have at most so many bytes together. */
    size_t records;
};

extern struct shunti_layer shunti_moe_settings_layer;

static inline struct shunti_moe_settings *
shunti_moe_settings(const struct shunt_comm *comm)
{
    return shunti_layer_state(&comm->layers, &shunti_moe_settings_layer);
}

#endif
