// SPDX-License-Identifier: Apache-2.0
/*
 * Loss records: what ranks tell each other once operations do not work any
 * more. Each rank has one record, with the ranks that it counts as lost and how
 * far it is in shunt_comm_shrink(); every control window has a slot for the
 * record of each rank. A record is written whole, by stores where the window is
 * mapped and by the transport's put otherwise, and carries a checksum: a reader
 * that meets one half written takes it for the one before.
 *
 * A record stays readable after its rank has left or died.
 */
#ifndef SHUNTI_LOSS_H
#define SHUNTI_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/comm.h>

struct shunt_comm;

/* How far a rank is in a shrink (shrink.c). */
enum shunti_shrink_stage {
    SHUNTI_SHRINK_NONE = 0,  /* not in it */
    SHUNTI_SHRINK_WAITING,   /* waits for a decision */
    SHUNTI_SHRINK_NO_QUORUM, /* led, and found that too few are left */
    SHUNTI_SHRINK_BOUND, /* has taken a decision: its communicator is being made */
    SHUNTI_SHRINK_MADE,     /* has the new communicator, but not returned it */
    SHUNTI_SHRINK_RETURNED, /* has returned it */
};

/* Sets of ranks in a record. */
enum {
    SHUNTI_LOST,    /* counted as lost, for whatever reason */
    SHUNTI_FENCED,  /* of these: cannot go on by themselves (shrink.c) */
    SHUNTI_MEMBERS, /* from BOUND on: of the new communicator */
    SHUNTI_SETS
};

struct shunti_loss {
    uint64_t version; /* atomic in a slot; written last; 0: none yet */
    uint64_t sum;     /* of `version`, and of all that follows */
    uint32_t attempt; /* number of the decision that `stage` is about */
    uint32_t stage;
    int32_t leader; /* whose decision, from BOUND on */
    uint32_t unused;
    struct shunt_id id; /* of the leader's decision */
    uint64_t set[];     /* SHUNTI_SETS, of shunti_loss_words() each */
};

/* Bytes of a record, a multiple of 64. */
size_t shunti_loss_bytes(int nranks);

/* A new record, not published; NULL without memory. */
struct shunti_loss *shunti_loss_new(int nranks);

uint64_t *shunti_loss_set(const struct shunt_comm *comm,
                          struct shunti_loss *loss, int which);
bool shunti_loss_has(const struct shunt_comm *comm,
                     const struct shunti_loss *loss, int which, int rank);
void shunti_loss_add(const struct shunt_comm *comm, struct shunti_loss *loss,
                     int which, int rank);

/* Write our record (comm->loss) to every peer; wakes them. False: nothing was
 * said, without memory for it. */
bool shunti_loss_publish(struct shunt_comm *comm);

/* The latest record of `rank` into `into`, if it is newer than what is there.
 * True if so. */
bool shunti_loss_read(const struct shunt_comm *comm, int rank,
                      struct shunti_loss *into);

/* Put comm->lost into our record, and publish it. */
void shunti_loss_tell(struct shunt_comm *comm);

/* Count as lost whom the peers' records call lost: adds to comm->lost. */
void shunti_loss_merge(struct shunt_comm *comm);

/* "rank 2", "ranks 2, 5", for comm->lost; cut where `text` ends. */
void shunti_loss_names(const struct shunt_comm *comm, char *text, size_t size);
/* " (all of node 1)", if there are nodes of which all ranks are lost. */
void shunti_loss_nodes(const struct shunt_comm *comm, char *text, size_t size);

/* Free our record and what was being sent; after the transports are closed. */
void shunti_loss_finish(struct shunt_comm *comm);

#endif
