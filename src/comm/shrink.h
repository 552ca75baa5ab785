// SPDX-License-Identifier: Apache-2.0
/*
 * The files of shunt_comm_shrink(), and what they share. shrink.c describes the
 * protocol, and proves it.
 *
 *     shrink.c          the call; making the communicator of a decision
 *     shrink_decide.c   agreeing on the members
 *     shrink_records.c  loss records: which ranks are lost or fenced
 */
#ifndef SHUNTI_SHRINK_H
#define SHUNTI_SHRINK_H

#include <stdbool.h>
#include <stdint.h>

#include <shunt/status.h>

#include "src/comm.h"
#include "src/trace/trace.h"
#include "src/wire/loss.h"

/* The call ends after so many timeouts, over all attempts. */
#define SHUNTI_SHRINK_TIMEOUTS 8

struct shunti_shrink {
    struct shunt_comm *comm;
    struct shunti_loss *mine;    /* comm->loss.record */
    struct shunti_loss **theirs; /* (nranks) records as last read */
    uint64_t *settled;           /* a set: the ranks lost before this call */
    uint64_t began_ns;           /* when this call began */
    uint64_t attempt_ns;         /* when this attempt began */
    uint64_t looked_ns;          /* when the clock was last read */
    enum shunt_status status;    /* why this rank gives up; comm->error has the
                                 text */
};

/* --- sets ----------------------------------------------------------------- */

static inline bool shunti_shrink_has(const struct shunti_shrink *s,
                                     const struct shunti_loss *loss, int which,
                                     int rank)
{
    return shunti_loss_has(s->comm, loss, which, rank);
}

static inline bool shunti_shrink_lost(const struct shunti_shrink *s, int rank)
{
    return shunti_shrink_has(s, s->mine, SHUNTI_LOST, rank);
}

static inline bool shunti_shrink_member(const struct shunti_shrink *s, int rank)
{
    return shunti_shrink_has(s, s->mine, SHUNTI_MEMBERS, rank);
}

/* The record of any rank, this rank included. */
static inline const struct shunti_loss *
shunti_shrink_record(const struct shunti_shrink *s, int rank)
{
    return rank == s->comm->rank ? s->mine : s->theirs[rank];
}

static inline double shunti_shrink_elapsed(uint64_t ns)
{
    return (double)(shunti_now_ns() - ns) * 1e-9;
}

/* --- shrink_records.c ----------------------------------------------------- */

/* Make comm->loss.record, if there is none, and room for the records of the
 * peers. False: no memory. The caller calls shunti_shrink_free_records() in any
 * case. */
bool shunti_shrink_make_records(struct shunti_shrink *s);
void shunti_shrink_free_records(struct shunti_shrink *s);

/* Empty a set of this rank's record. */
void shunti_shrink_clear(const struct shunti_shrink *s, int which);

/* Wait a short time for news. If this process was stopped meanwhile, that time
 * does not count towards timeouts. */
void shunti_shrink_nap(struct shunti_shrink *s);

/* Give up on this rank: set s->status and the error's text. The first call
 * wins. */
void shunti_shrink_give_up(struct shunti_shrink *s, enum shunt_status status,
                           const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Read all records, and update which ranks are lost or fenced. False: this rank
 * gives up. */
bool shunti_shrink_look(struct shunti_shrink *s);

/* Set and publish the stage of this rank. */
void shunti_shrink_set_stage(struct shunti_shrink *s,
                             enum shunti_shrink_stage stage);

/* Begin an attempt: WAITING, without a decision. */
void shunti_shrink_next_attempt(struct shunti_shrink *s, uint32_t attempt);

/* --- shrink_decide.c ------------------------------------------------------ */

/* Wait until this rank is bound to a decision. False: this rank gives up. */
bool shunti_shrink_await_decision(struct shunti_shrink *s);

/*
 * The numbers of the members in the old communicator, ascending; the caller
 * frees them. NULL: no memory, with its text in shunti_error_last().
 *
 * size, place  out: the number of members, and the index of this rank among
 *              them.
 */
int *shunti_shrink_member_names(const struct shunti_shrink *s, int *size,
                                int *place);

#endif
