// SPDX-License-Identifier: Apache-2.0
/*
 * The identity of a launcher's job, and the secret and tag of its id, which are
 * derived from the identity.
 */
#ifndef SHUNTI_LAUNCH_JOB_H
#define SHUNTI_LAUNCH_JOB_H

struct shunti_id_parts;
struct shunti_launcher;

/* Set the secret, the tag, and SHUNTI_ID_PUBLIC. `call` counts the
 * communicators of this job. */
void shunti_launch_derive_secret(const struct shunti_launcher *l,
                                 unsigned long call,
                                 struct shunti_id_parts *parts);

#endif
