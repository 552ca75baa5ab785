// SPDX-License-Identifier: Apache-2.0
/*
 * A rank's connection to the root.
 */
#ifndef SHUNTI_BOOTSTRAP_JOIN_H
#define SHUNTI_BOOTSTRAP_JOIN_H

#include <stdbool.h>

#include <shunt/status.h>

#include "src/auth.h"

struct shunti_id_parts;
struct shunti_parent;

struct shunti_bootstrap {
    int fd;
    int rank;
    int nranks;
    struct shunti_parent *parent; /* or NULL */
    int name;                     /* of this rank, in errors */
    double timeout;
    bool failed;
    char where[64]; /* the root's address */
    unsigned char key[SHUNTI_KEY_BYTES];
};

/*
 * Connect to the root and authenticate. Retries until `deadline`, unless it
 * cannot succeed.
 *
 * start  when this rank began to join, which it tells the root.
 */
enum shunt_status shunti_bootstrap_connect(const struct shunti_id_parts *parts,
                                           struct shunti_bootstrap *bs,
                                           double start, double deadline);

#endif
