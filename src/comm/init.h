// SPDX-License-Identifier: Apache-2.0
/* Making communicators. */
#ifndef SHUNTI_INIT_H
#define SHUNTI_INIT_H

#include <stdbool.h>

#include <shunt/comm.h>

#include "src/plugin/plugin.h"

struct shunti_layout;
struct shunti_parent; /* bootstrap.h */
struct shunti_tunables;

/* Of a communicator: how it was configured, for those that are made from it.
 * init.c writes it. */
struct shunti_configured {
    double init_timeout; /* seconds */
    double call_timeout; /* as given: 0 is that of init */
    int progress_thread; /* 1: yes, -1: no, 0: the helper (helper.h) */
    char name[32];
    /* "": as the environment says */
    char transports[SHUNTI_TRANSPORT_LIST_MAX];
    char node[64];
};

/* A communicator of one rank, or of the ranks that meet at `id`. parent: of one
 * that is made from another, else NULL. */
enum shunt_status shunti_comm_init(const struct shunt_id *id, int nranks,
                                   int rank,
                                   const struct shunt_comm_config *config,
                                   struct shunti_parent *parent,
                                   struct shunt_comm **comm);

/* The control window's layout for so many ranks. */
void shunti_layout_compute(struct shunti_layout *layout, int nranks,
                           bool all_mapped, const struct shunti_tunables *tune);

/* The options of a communicator that is made from `comm`. */
void shunti_comm_inherit(const struct shunt_comm *comm,
                         struct shunt_comm_config *config);

/* Free one that no caller has been given yet. */
void shunti_comm_free(struct shunt_comm *comm);

#endif
