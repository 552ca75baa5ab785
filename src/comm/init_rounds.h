// SPDX-License-Identifier: Apache-2.0
/*
 * The making of a communicator: the state that its files share, and its
 * all-gathers, each of which carries every rank's status. See init.c for the
 * order of the rounds.
 */
#ifndef SHUNTI_INIT_ROUNDS_H
#define SHUNTI_INIT_ROUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/comm.h>

#include "src/base/shared_env.h"
#include "src/boot/bootstrap.h"
#include "src/comm.h"
#include "src/host/topology.h"
#include "src/plugin/plugin.h"

#define SHUNTI_PROTOCOL 6

struct shunti_connecting; /* init_connect.c */

struct shunti_init {
    struct shunt_comm *comm;
    struct shunti_bootstrap *bootstrap; /* NULL with one rank */
    const struct shunt_comm_config *config;
    struct shunti_candidates candidates; /* this rank's transports */
    struct shunti_place *places;         /* (nranks) */
    struct shunti_blobs introductions; /* (nranks) struct shunti_introduction */
    struct shunti_connecting *connections; /* (nranks) */
    struct shunti_parent *parent;          /* or NULL */
    uint64_t looked_ns; /* when the clock was last read: shunti_init_pause() */
    double timeout;     /* seconds */
    char lacking[400];  /* why a transport cannot be used, and on which rank */
};

/* The head of every blob that a rank contributes to a round. */
struct shunti_init_head {
    int32_t status;
    char text[508];
};

/* Round 1: a rank introduces itself, and says where it runs. */
struct shunti_introduction {
    struct shunti_init_head head;
    uint32_t protocol;
    uint32_t candidates;
    struct shunti_place place;
    struct shunti_tunables tune;
    struct shunti_shared_env shared;
    char node[64];
    char transport[SHUNTI_TRANSPORTS_MAX][32]; /* names, in order */
    unsigned char far[SHUNTI_TRANSPORTS_MAX];
};

/* The number of `rank` in error texts. */
int shunti_init_name(const struct shunti_init *init, int rank);

/* Gather a blob of `len` bytes from every rank. The blob begins with a head. If
 * any rank fails, all do. `status` is that of this rank. */
enum shunt_status shunti_init_gather(struct shunti_init *init,
                                     struct shunti_init_head *mine, size_t len,
                                     enum shunt_status status,
                                     struct shunti_blobs *all);

/* shunti_init_deadline(): the end of a wait that begins now.
 * shunti_init_is_late(): has it passed? Time in which this process was stopped
 * does not count. */
uint64_t shunti_init_deadline(struct shunti_init *init);
bool shunti_init_is_late(struct shunti_init *init, uint64_t *deadline_ns);

/* Wait a little for the other ranks. An error if the wait is in vain: another
 * rank has failed, or will not join. */
enum shunt_status shunti_init_pause(struct shunti_init *init,
                                    uint64_t *deadline_ns);

/* Round 1 (init_introduce.c): places, tunables and transports of all ranks. */
enum shunt_status shunti_init_introduce(struct shunti_init *init);
const struct shunti_introduction *
shunti_introduction_of(const struct shunti_init *init, int rank);
/* Are two ranks on different nodes because their node names say so? */
bool shunti_named_apart(const struct shunti_init *init, int i, int j);

/* Rounds 2 and 3 (init_connect.c): a transport to every peer. *reach: the
 * capabilities of every pair; the caller frees them. */
enum shunt_status shunti_init_connect(struct shunti_init *init,
                                      struct shunti_blobs *reach);
/* The shunt_transport_caps of `rank` towards each rank. */
const unsigned char *shunti_caps_of(const struct shunti_blobs *reach, int rank);

/* Find out which ranks make up which node (init_nodes.c). Sends no message. */
enum shunt_status shunti_init_nodes(struct shunti_init *init,
                                    const struct shunti_blobs *reach);
/* Pass the ranks and CPUs of this host to the copy engine, if there is one.
 * Called directly for a rank without peers; for all other ranks
 * shunti_init_nodes() calls this. */
enum shunt_status shunti_init_engine(const struct shunti_init *init);

/* Round 4 (init_control.c): the control windows. shunti_init_control_alone():
 * the control window of a rank without peers. */
enum shunt_status shunti_init_control(struct shunti_init *init);
enum shunt_status shunti_init_control_alone(struct shunt_comm *comm);
/* Measure the cost of messages between nodes and inside them. All ranks get
 * rank 0's figures. */
enum shunt_status shunti_init_links(struct shunti_init *init);

#endif
