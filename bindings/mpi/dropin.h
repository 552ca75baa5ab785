// SPDX-License-Identifier: Apache-2.0
/*
 * The drop-in inside: what stands behind the door (door.h), compiled once for
 * each MPI.
 *
 * A call is served by Shunt or passed on to MPI. All ranks must come to the same
 * answer, or they wait for each other in two libraries. So it rests on what MPI
 * makes equal on all of them: the communicator, the operation, the reduction's
 * operator and basic type, and, where the standard says so, the bytes of the
 * whole message (policy.c). Never on a datatype's layout, on a local count or
 * pointer: data that does not lie in one piece is packed (pack.c).
 *
 *     entry.c       what the door finds
 *     moves.c       the calls that move one piece a rank; moves_v.c, those with
 *                   a list of them; reductions.c, those that add
 *     fortran.c     the same for Fortran
 *     comms.c       what we know of each of MPI's communicators
 *     birth.c       how it comes to a Shunt communicator
 *     policy.c      the table: what is served
 *     types.c       what a datatype is like
 *     pieces.c      data as MPI's arguments describe it
 *     pack.c        to bytes and back
 *     errors.c      Shunt's errors as MPI's
 *     stats.c       what was served and what was not
 */
#ifndef SHUNTI_MPI_DROPIN_H
#define SHUNTI_MPI_DROPIN_H

#include <limits.h>
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <shunt/shunt.h>

/* MPI-4: calls with large counts, MPI_..._c. */
#define SHUNTI_MPI_LARGE (MPI_VERSION >= 4)

enum shunti_mpi_call {
    SHUNTI_MPI_ALLTOALL,
    SHUNTI_MPI_ALLTOALLV,
    SHUNTI_MPI_ALLTOALLW,
    SHUNTI_MPI_ALLGATHER,
    SHUNTI_MPI_ALLGATHERV,
    SHUNTI_MPI_REDUCE_SCATTER,
    SHUNTI_MPI_REDUCE_SCATTER_BLOCK,
    SHUNTI_MPI_ALLREDUCE,
    SHUNTI_MPI_BCAST,
    SHUNTI_MPI_BARRIER,
    SHUNTI_MPI_CALLS
};

/* Why a call was passed on. */
enum shunti_mpi_reason {
    SHUNTI_MPI_OFF,       /* SHUNT_MPI=off */
    SHUNTI_MPI_FASTER,    /* MPI is, says the table */
    SHUNTI_MPI_JOINS,     /* not worth a communicator of its own */
    SHUNTI_MPI_ALONE,     /* a communicator of one rank */
    SHUNTI_MPI_INTER,     /* an intercommunicator */
    SHUNTI_MPI_OPERATOR,  /* the program's own, or none of ours */
    SHUNTI_MPI_TYPE,      /* no type that we reduce */
    SHUNTI_MPI_NO_COMM,   /* there could be no Shunt communicator */
    SHUNTI_MPI_ARGUMENTS, /* they are bad: MPI says how */
    SHUNTI_MPI_DYING,     /* while the communicator is freed */
    SHUNTI_MPI_TIME,      /* before MPI_Init() or after MPI_Finalize() */
    SHUNTI_MPI_REASONS
};

/* In the place of an MPI error code: not served, call MPI. */
#define SHUNTI_MPI_PASS INT_MIN

/* A call with all that it calls compiled into it, and what it seldom takes kept
 * out: as the core has it (src/whole.h). */
#define SHUNTI_MPI_WHOLE __attribute__((flatten))
#define SHUNTI_MPI_APART __attribute__((noinline))

/* --- statistics (stats.c) --- */

struct shunti_mpi_tally {
    uint64_t calls;
    uint64_t bytes; /* that this rank gave */
};

struct shunti_mpi_tallies {
    struct shunti_mpi_tally served[SHUNTI_MPI_CALLS];
    struct shunti_mpi_tally passed[SHUNTI_MPI_CALLS][SHUNTI_MPI_REASONS];
};

/* This rank's SHUNT_MPI_STATS. */
bool shunti_mpi_stats_wanted(void);
/* A passed call of a communicator that has no state. */
void shunti_mpi_stats_passed(enum shunti_mpi_call call,
                             enum shunti_mpi_reason reason);
/* Add those of a communicator that ends. */
void shunti_mpi_stats_add(const struct shunti_mpi_tallies *tallies);
/* Every rank of the world is in the drop-in, and `wanted` on one of them. */
void shunti_mpi_stats_agreed(bool wanted);
/* Why there was no Shunt communicator; the last text is shown. */
void shunti_mpi_stats_why(const char *text);
/* Print them if they are wanted; collective over the world. */
void shunti_mpi_stats_print(void);

/* --- what is served (policy.c) --- */

enum shunti_mpi_mode {
    SHUNTI_MPI_MODE_OFF,
    SHUNTI_MPI_MODE_ON,   /* where Shunt is faster */
    SHUNTI_MPI_MODE_FORCE /* wherever Shunt can */
};

/* This rank's SHUNT_MPI. Of what it cannot be the library warns, with the first
 * communicator. */
enum shunti_mpi_mode shunti_mpi_mode(void);

/* Messages served: from <= bytes <= upto; none if from > upto. */
struct shunti_mpi_range {
    size_t from, upto;
};

struct shunti_mpi_comm;

/* Fill in what is served on a communicator whose ranks are on so many nodes. */
void shunti_mpi_ask_table(struct shunti_mpi_comm *state, int nodes);
/* Why a call that is not in `served` is not. */
enum shunti_mpi_reason shunti_mpi_why_not(const struct shunti_mpi_comm *state,
                                          enum shunti_mpi_call call);
/* Nothing, for this reason. */
void shunti_mpi_serve_none(struct shunti_mpi_comm *state,
                           enum shunti_mpi_reason reason);

/* --- communicators (comms.c) --- */

/* Memory that grows and stays. */
struct shunti_mpi_room {
    char *at;
    size_t bytes;
};

struct shunti_mpi_type;

/* What we know of one MPI communicator. One thread at a time is in a collective
 * call on it, so that all of this needs no lock. */
struct shunti_mpi_comm {
    struct shunt_comm *shunt; /* NULL: not made yet, or never */
    int size, rank, nodes;
    bool never;     /* serves no call whatever */
    bool shm_first; /* its ranks are on one host, by name */
    struct shunti_mpi_range served[SHUNTI_MPI_CALLS];
    enum shunti_mpi_mode mode;
    enum shunti_mpi_reason reason; /* for what is not in `served` */
    size_t *numbers;               /* (4, size) for counts and displacements */
    const struct shunti_mpi_type **types; /* (2, size) or NULL: alltoallw's */
    struct shunti_mpi_room send, recv;    /* packed */
    struct shunti_mpi_tallies tallies;
    struct shunti_mpi_comm *next, **link; /* in the list of all */
};

/*
 * What the ranks of `comm` have agreed on; collective over `comm`, by PMPI, at
 * the first call on it. NULL: nothing there is ever served, and this call has
 * been counted as passed on. Before this no MPI call may be made.
 */
struct shunti_mpi_comm *shunti_mpi_state(MPI_Comm comm,
                                         enum shunti_mpi_call call);

/*
 * Is a call of so many bytes served? They are the same on every rank, or 0
 * where ranks differ. Collective, by PMPI, when that means to make the Shunt
 * communicator. False: it has been counted as passed on.
 */
bool shunti_mpi_take(struct shunti_mpi_comm *state, MPI_Comm comm,
                     enum shunti_mpi_call call, size_t bytes);

/* This rank's arguments are bad, and nothing is taken yet. Tell the others, if they may be waiting for
 * us; returns SHUNTI_MPI_PASS. */
int shunti_mpi_refuse(struct shunti_mpi_comm *state, MPI_Comm comm,
                      enum shunti_mpi_call call);
/* The call is taken, so that the others are in Shunt, but this rank cannot go
 * on: tell them. */
void shunti_mpi_withdraw(struct shunti_mpi_comm *state,
                         enum shunti_mpi_call call);
/* Passed on, for a reason that holds on every rank; returns SHUNTI_MPI_PASS. */
int shunti_mpi_pass(struct shunti_mpi_comm *state, enum shunti_mpi_call call,
                    enum shunti_mpi_reason reason, size_t bytes);

/* state->types; false: no memory. */
bool shunti_mpi_types_room(struct shunti_mpi_comm *state);
/* `bytes` of a room; NULL: no memory. */
char *shunti_mpi_make_room(struct shunti_mpi_room *room, size_t bytes);
/* After the call: what it took is counted, large rooms are given back. */
void shunti_mpi_done(struct shunti_mpi_comm *state, enum shunti_mpi_call call,
                     size_t bytes);

/* MPI_Comm_free(), MPI_Comm_disconnect(), MPI_Finalize(). */
int shunti_mpi_comm_free(MPI_Comm *comm);
int shunti_mpi_comm_disconnect(MPI_Comm *comm);
int shunti_mpi_finalize(void);

/* --- birth (birth.c) --- */

/* Collective over `comm`, at the first call on it. `state` is NULL where there
 * is no memory for it. False: nothing is agreed on. */
bool shunti_mpi_agree(MPI_Comm comm, struct shunti_mpi_comm *state);
/* Collective over `comm`. Afterwards there is a Shunt communicator on every
 * rank, or nothing is ever served. */
void shunti_mpi_birth(MPI_Comm comm, struct shunti_mpi_comm *state);

/* --- datatypes (types.c) --- */

struct shunti_mpi_type {
    size_t size;            /* bytes of data in an element */
    MPI_Aint extent;        /* from one element to the next */
    bool straight;          /* elements are `size` bytes in their order, one
                                after the other without holes */
    enum shunt_dtype dtype; /* as an operand of a reduction; 0: none */
};

/* What `type` is like. NULL: it is none, or not committed. It lives until the
 * type is freed. */
const struct shunti_mpi_type *shunti_mpi_type(MPI_Datatype type);

/* Which reduction it is, 0: none that we have. */
enum shunt_op shunti_mpi_op(MPI_Op op);

/* Before MPI is finalized. */
void shunti_mpi_types_finish(void);

/* --- packing (pack.c) --- */

/* `count` elements at `from` to count * size bytes at `to`. An MPI error code;
 * the communicator's handler has been called. */
int shunti_mpi_pack_bytes(const void *from, size_t count, MPI_Datatype type,
                          const struct shunti_mpi_type *facts, char *to,
                          MPI_Comm comm);
/* And back. */
int shunti_mpi_unpack_bytes(const char *from, void *to, size_t count,
                            MPI_Datatype type,
                            const struct shunti_mpi_type *facts, MPI_Comm comm);

/* --- errors (errors.c) --- */

/* The MPI error code for `status` of a call on `state`, after the handler of
 * `comm` has been called with it; MPI_SUCCESS for SHUNT_OK. */
int shunti_mpi_error(MPI_Comm comm, const struct shunti_mpi_comm *state,
                     enum shunt_status status);
/* A mistake in this rank's arguments that MPI might not find: of this class; the
 * others hear of it, too. Returns it. */
int shunti_mpi_mistake(struct shunti_mpi_comm *state, MPI_Comm comm,
                       enum shunti_mpi_call call, int class);

/* Is it the same memory, and a mistake? MPICH says so, Open MPI lets it pass. */
static inline bool shunti_mpi_aliased(const void *send, const void *recv)
{
#ifdef MPICH_VERSION
    return send == recv && send;
#else
    (void)send, (void)recv;
    return false;
#endif
}

/* No memory for a copy: the others hear of it, too. */
int shunti_mpi_no_memory(struct shunti_mpi_comm *state, MPI_Comm comm,
                         enum shunti_mpi_call call);

/* --- the calls, as MPI has them (moves.c, moves_v.c, reductions.c) --- */

int shunti_mpi_alltoall(const void *sendbuf, int sendcount,
                        MPI_Datatype sendtype, void *recvbuf, int recvcount,
                        MPI_Datatype recvtype, MPI_Comm comm);
int shunti_mpi_alltoallv(const void *sendbuf, const int sendcounts[],
                         const int sdispls[], MPI_Datatype sendtype,
                         void *recvbuf, const int recvcounts[],
                         const int rdispls[], MPI_Datatype recvtype,
                         MPI_Comm comm);
int shunti_mpi_alltoallw(const void *sendbuf, const int sendcounts[],
                         const int sdispls[], const MPI_Datatype sendtypes[],
                         void *recvbuf, const int recvcounts[],
                         const int rdispls[], const MPI_Datatype recvtypes[],
                         MPI_Comm comm);
int shunti_mpi_allgather(const void *sendbuf, int sendcount,
                         MPI_Datatype sendtype, void *recvbuf, int recvcount,
                         MPI_Datatype recvtype, MPI_Comm comm);
int shunti_mpi_allgatherv(const void *sendbuf, int sendcount,
                          MPI_Datatype sendtype, void *recvbuf,
                          const int recvcounts[], const int displs[],
                          MPI_Datatype recvtype, MPI_Comm comm);
int shunti_mpi_bcast(void *buffer, int count, MPI_Datatype type, int root,
                     MPI_Comm comm);
int shunti_mpi_barrier(MPI_Comm comm);
int shunti_mpi_allreduce(const void *sendbuf, void *recvbuf, int count,
                         MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int shunti_mpi_reduce_scatter(const void *sendbuf, void *recvbuf,
                              const int recvcounts[], MPI_Datatype type,
                              MPI_Op op, MPI_Comm comm);
int shunti_mpi_reduce_scatter_block(const void *sendbuf, void *recvbuf,
                                    int recvcount, MPI_Datatype type, MPI_Op op,
                                    MPI_Comm comm);

#if SHUNTI_MPI_LARGE
int shunti_mpi_alltoall_c(const void *sendbuf, MPI_Count sendcount,
                          MPI_Datatype sendtype, void *recvbuf,
                          MPI_Count recvcount, MPI_Datatype recvtype,
                          MPI_Comm comm);
int shunti_mpi_alltoallv_c(const void *sendbuf, const MPI_Count sendcounts[],
                           const MPI_Aint sdispls[], MPI_Datatype sendtype,
                           void *recvbuf, const MPI_Count recvcounts[],
                           const MPI_Aint rdispls[], MPI_Datatype recvtype,
                           MPI_Comm comm);
int shunti_mpi_alltoallw_c(const void *sendbuf, const MPI_Count sendcounts[],
                           const MPI_Aint sdispls[],
                           const MPI_Datatype sendtypes[], void *recvbuf,
                           const MPI_Count recvcounts[],
                           const MPI_Aint rdispls[],
                           const MPI_Datatype recvtypes[], MPI_Comm comm);
int shunti_mpi_allgather_c(const void *sendbuf, MPI_Count sendcount,
                           MPI_Datatype sendtype, void *recvbuf,
                           MPI_Count recvcount, MPI_Datatype recvtype,
                           MPI_Comm comm);
int shunti_mpi_allgatherv_c(const void *sendbuf, MPI_Count sendcount,
                            MPI_Datatype sendtype, void *recvbuf,
                            const MPI_Count recvcounts[],
                            const MPI_Aint displs[], MPI_Datatype recvtype,
                            MPI_Comm comm);
int shunti_mpi_bcast_c(void *buffer, MPI_Count count, MPI_Datatype type,
                       int root, MPI_Comm comm);
int shunti_mpi_allreduce_c(const void *sendbuf, void *recvbuf, MPI_Count count,
                           MPI_Datatype type, MPI_Op op, MPI_Comm comm);
int shunti_mpi_reduce_scatter_c(const void *sendbuf, void *recvbuf,
                                const MPI_Count recvcounts[], MPI_Datatype type,
                                MPI_Op op, MPI_Comm comm);
int shunti_mpi_reduce_scatter_block_c(const void *sendbuf, void *recvbuf,
                                      MPI_Count recvcount, MPI_Datatype type,
                                      MPI_Op op, MPI_Comm comm);
#endif

/* --- lists of counts and displacements (moves.c, moves_v.c, reductions.c) --- */

/* MPI's int, or what the calls with large counts take. */
struct shunti_mpi_list {
    const void *at;
    bool wide; /* MPI_Count or MPI_Aint */
};

static inline long long shunti_mpi_item(struct shunti_mpi_list list, int i)
{
    return list.wide ? (long long)((const int64_t *)list.at)[i]
                     : ((const int *)list.at)[i];
}

#endif
