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
    int name;                     /* number of this rank in errors */
    double timeout;
    bool failed;
    char where[64]; /* the root's address */
    unsigned char key[SHUNTI_KEY_BYTES];
};

/*
 * Connect to the root and authenticate. Retries until `deadline`, unless no
 * retry can succeed.
 *
 * start  when this rank began to join; sent to the root.
 */
enum shunt_status shunti_bootstrap_connect(const struct shunti_id_parts *parts,
                                           struct shunti_bootstrap *bs,
                                           double start, double deadline);

/* One attempt, until `deadline` at most; false: it failed. */
bool shunti_bootstrap_try(const struct shunti_id_parts *parts,
                          struct shunti_bootstrap *bs, double deadline);

/* Used if the root has admitted this rank although it should not have. True if
 * the next message is an error SHUNT_ERR_MISMATCH, whose text is then in
 * shunti_error_last(). (bootstrap.c) */
bool shunti_bootstrap_wait_for_error(struct shunti_bootstrap *bs,
                                     double deadline);

#endif
