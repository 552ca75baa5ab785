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

/* Part of a communicator: its configuration, for the communicators that are
 * made from it. init.c writes it. */
struct shunti_configured {
    double init_timeout; /* seconds */
    double call_timeout; /* as the user gave it; 0: the same as init_timeout */
    int progress_thread; /* 1: yes, -1: no, 0: the helper (helper.h) */
    char name[32];
    /* "": the environment chooses */
    char transports[SHUNTI_TRANSPORT_LIST_MAX];
    char node[64];
};

/* Make a communicator of one rank, or of the ranks that join with `id`. parent:
 * NULL, unless the communicator is made from another one. */
enum shunt_status shunti_comm_init(const struct shunt_id *id, int nranks,
                                   int rank,
                                   const struct shunt_comm_config *config,
                                   struct shunti_parent *parent,
                                   struct shunt_comm **comm);

/* Compute the layout of a control window for `nranks` ranks. */
void shunti_layout_compute(struct shunti_layout *layout, int nranks,
                           bool all_mapped, const struct shunti_tunables *tune);

/* Set the options of a communicator that is made from `comm`. */
void shunti_comm_inherit(const struct shunt_comm *comm,
                         struct shunt_comm_config *config);

/* Free a communicator that no caller has received yet. */
void shunti_comm_free(struct shunt_comm *comm);

#endif
