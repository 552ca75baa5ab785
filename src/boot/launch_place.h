// SPDX-License-Identifier: Apache-2.0
/*
 * The address of rank 0's root, to which the ranks of a launcher's job connect.
 */
#ifndef SHUNTI_LAUNCH_PLACE_H
#define SHUNTI_LAUNCH_PLACE_H

#include <shunt/status.h>

struct shunti_id_parts;
struct shunti_launcher;

/* Set the address, SHUNTI_ID_RETRY and SHUNTI_ID_ANY. The tag must be set
 * before. */
enum shunt_status shunti_launch_place(const struct shunti_launcher *l, int rank,
                                      int nranks,
                                      struct shunti_id_parts *parts);

#endif
