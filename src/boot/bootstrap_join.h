// SPDX-License-Identifier: Apache-2.0
/*
 * A rank's connection to the root.
 */
#ifndef SHUNTI_BOOTSTRAP_JOIN_H
#define SHUNTI_BOOTSTRAP_JOIN_H

#include <stdbool.h>

#include <shunt/status.h>

#include "src/boot/auth.h"

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

/* One attempt, until `deadline` at most; false: it failed. */
bool shunti_bootstrap_try(const struct shunti_id_parts *parts,
                          struct shunti_bootstrap *bs, double deadline);

/* The root has admitted this rank, and must now say why it should not have: is
 * the next message an error of SHUNT_ERR_MISMATCH, which shunti_error_last()
 * then has? (bootstrap.c) */
bool shunti_bootstrap_wait_for_error(struct shunti_bootstrap *bs,
                                     double deadline);

#endif
