// SPDX-License-Identifier: Apache-2.0
/*
 * Loss records: how ranks exchange state after operations have failed.
 *
 * Each rank has one record, with the ranks that it counts as lost and its stage
 * in shunt_comm_shrink(). Every control window has a slot for the record of
 * each rank. A rank writes its whole record to every peer, by stores if the
 * peer's window is mapped and by the transport's put otherwise. A record
 * carries a checksum. A reader ignores a record that is only partly written,
 * and keeps the record that it read before.
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
struct shunti_loss_image;

/* Stages of a rank in shunt_comm_shrink(); shrink.c explains them. */
enum shunti_shrink_stage {
    SHUNTI_SHRINK_NONE = 0, /* not in the call */
    SHUNTI_SHRINK_WAITING,  /* waits for a decision */
    /* is the leader, and too few ranks are left for a quorum */
    SHUNTI_SHRINK_NO_QUORUM,
    SHUNTI_SHRINK_BOUND, /* has accepted a decision, makes the communicator */
    SHUNTI_SHRINK_MADE,  /* has made the communicator, but not returned it */
    SHUNTI_SHRINK_RETURNED, /* has returned the communicator */
};

/* Sets of ranks in a record. */
enum {
    SHUNTI_LOST, /* ranks that are counted as lost, for any reason */
    /* lost ranks that cannot return a new communicator (shrink.c) */
    SHUNTI_FENCED,
    SHUNTI_MEMBERS, /* from BOUND on: members of the new communicator */
    SHUNTI_FAILED,  /* ranks that the record's rank misses itself: failure.h */
    SHUNTI_GOOD,    /* ranks that have answered the record's rank: settle.h */
    /* ranks whose connection to the record's rank has ended: settle.h */
    SHUNTI_CLOSED,
    /* ranks whose reports have arrived at the record's rank: settle.h */
    SHUNTI_REPORTED,
    SHUNTI_SETS
};

/* State of a rank's report; a field of its loss record. */
enum shunti_report {
    SHUNTI_REPORT_NONE,
    /* SHUNTI_FAILED has the ranks that the rank missed at first */
    SHUNTI_REPORT_BEGUN,
    /* the rank has probed every rank; late answers are still added */
    SHUNTI_REPORT_FINAL,
    /* the rank has decided which ranks are lost, and is not one of them */
    SHUNTI_REPORT_DECIDED,
};

struct shunti_loss {
    /* in a slot: atomic, and written last; 0: no record yet */
    uint64_t version;
    uint64_t sum;     /* checksum of all other fields */
    uint32_t attempt; /* number of the decision that `stage` refers to */
    uint32_t stage;
    int32_t leader;     /* the rank that decided, from BOUND on */
    uint32_t report;    /* enum shunti_report: settle.h */
    struct shunt_id id; /* id of the new communicator, from the leader's
                           decision */
    /* SHUNTI_SETS sets, each of a bit for each rank, in whole words */
    uint64_t set[];
};

/* Part of a communicator: this rank's record. loss.c writes it; failure.c and
 * settle.c write it when the communicator fails, and shrink*.c after that. */
struct shunti_loss_own {
    struct shunti_loss *record; /* NULL: this rank has recorded nothing yet */
    struct shunti_loss_image *images; /* the published copies, which puts may
                                         still read */
};

/* Bytes of a record, a multiple of 64. */
size_t shunti_loss_bytes(int nranks);

/* A new record, not yet published. NULL if memory runs out. */
struct shunti_loss *shunti_loss_new(int nranks);

uint64_t *shunti_loss_set(const struct shunt_comm *comm,
                          struct shunti_loss *loss, int which);
bool shunti_loss_has(const struct shunt_comm *comm,
                     const struct shunti_loss *loss, int which, int rank);
void shunti_loss_add(const struct shunt_comm *comm, struct shunti_loss *loss,
                     int which, int rank);

/* Write this rank's record to every peer, and wake the peers. False: memory ran
 * out, and nothing was written. */
bool shunti_loss_publish(struct shunt_comm *comm);

/* Copy the latest record of `rank` to `into` if it is newer than `into`, and
 * complete. True: it was copied. */
bool shunti_loss_read(const struct shunt_comm *comm, int rank,
                      struct shunti_loss *into);

/* Add comm->failure.lost to this rank's record, and publish the record. */
void shunti_loss_publish_lost(struct shunt_comm *comm);

/* Add to comm->failure.lost the ranks that the peers' records count as lost. */
void shunti_loss_merge(struct shunt_comm *comm);

/* Write the ranks of comm->failure.lost as text: "rank 2", "ranks 2, 5".
 * Truncated to `size`. */
void shunti_loss_names(const struct shunt_comm *comm, char *text, size_t size);
/* Write " (all of node 1)" if all ranks of a node are lost, otherwise "". */
void shunti_loss_nodes(const struct shunt_comm *comm, char *text, size_t size);

/* Free this rank's record and its published copies. The transports must be
 * closed. */
void shunti_loss_finish(struct shunt_comm *comm);

#endif
