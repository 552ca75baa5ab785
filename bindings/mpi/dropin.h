// SPDX-License-Identifier: Apache-2.0
/*
 * The inside of the drop-in: the part behind the door (door.h), compiled once
 * for each MPI.
 *
 * A call is served by Shunt or passed on to MPI. All ranks must decide alike,
 * or they wait for each other in two libraries. So the decision depends only on
 * facts that MPI requires to be equal on all ranks: the communicator, the
 * operation, the reduction's operator and basic type, and, where the standard
 * requires it, the bytes of the whole message (policy.c). The decision never
 * depends on a datatype's layout or on a local count or pointer. Data that is
 * not contiguous is packed (pack.c).
 *
 *     entry.c       the functions that the door calls
 *     moves.c       calls with one piece for each rank
 *     moves_v.c     calls with arrays of counts
 *     reductions.c  reductions
 *     fortran.c     the same for Fortran
 *     comms.c       the state of each MPI communicator
 *     create.c      making its Shunt communicator
 *     policy.c      the table: what is served
 *     types.c       properties of datatypes
 *     pieces.c      data as MPI's arguments describe it
 *     pack.c        packing and unpacking
 *     errors.c      Shunt's errors as MPI errors
 *     stats.c       counts of served and passed calls
 */
#ifndef SHUNTI_MPI_DROPIN_H
#define SHUNTI_MPI_DROPIN_H

#include <limits.h>
#include <mpi.h>
#include <stdatomic.h>
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
    SHUNTI_MPI_FASTER,    /* MPI is faster, by the table */
    SHUNTI_MPI_JOINS,     /* not worth creating a Shunt communicator */
    SHUNTI_MPI_ALONE,     /* the communicator has one rank */
    SHUNTI_MPI_INTER,     /* the communicator is an intercommunicator */
    SHUNTI_MPI_OPERATOR,  /* an operator that Shunt does not support */
    SHUNTI_MPI_TYPE,      /* Shunt does not reduce this type */
    SHUNTI_MPI_NO_COMM,   /* no Shunt communicator could be made */
    SHUNTI_MPI_ARGUMENTS, /* bad arguments: MPI reports the error */
    SHUNTI_MPI_DYING,     /* the communicator is being freed */
    SHUNTI_MPI_TIME,      /* before MPI_Init() or after MPI_Finalize() */
    SHUNTI_MPI_REASONS
};

/* Returned in place of an MPI error code: not served, call MPI. */
#define SHUNTI_MPI_PASS INT_MIN

/* FLATTEN inlines everything that a function calls, except NOINLINE functions,
 * which are rare paths. The core has the same macros (src/base/inline.h). */
#define SHUNTI_MPI_FLATTEN __attribute__((flatten))
#define SHUNTI_MPI_NOINLINE __attribute__((noinline))

/* --- statistics (stats.c) --- */

struct shunti_mpi_tally {
    uint64_t calls;
    uint64_t bytes; /* bytes sent by this rank */
};

struct shunti_mpi_tallies {
    struct shunti_mpi_tally served[SHUNTI_MPI_CALLS];
    struct shunti_mpi_tally passed[SHUNTI_MPI_CALLS][SHUNTI_MPI_REASONS];
};

/* Does this rank's SHUNT_MPI_STATS ask for statistics? */
bool shunti_mpi_stats_wanted(void);
/* Count a passed call of a communicator that has no state. */
void shunti_mpi_stats_passed(enum shunti_mpi_call call,
                             enum shunti_mpi_reason reason);
/* Add the counts of a communicator that is being freed. */
void shunti_mpi_stats_add(const struct shunti_mpi_tallies *tallies);
/* Record that every rank of MPI_COMM_WORLD uses the drop-in. `wanted`: at least
 * one of them wants statistics. */
void shunti_mpi_stats_agreed(bool wanted);
/* Record why no Shunt communicator could be made. The last text is shown. */
void shunti_mpi_stats_why(const char *text);
/* Print the statistics if they are wanted; collective over MPI_COMM_WORLD if
 * all ranks use the drop-in. */
void shunti_mpi_stats_print(void);

/* --- what is served (policy.c) --- */

enum shunti_mpi_mode {
    SHUNTI_MPI_MODE_OFF,
    SHUNTI_MPI_MODE_ON,   /* serve calls for which Shunt is faster */
    SHUNTI_MPI_MODE_FORCE /* serve all calls that Shunt can make */
};

/* Returns this rank's SHUNT_MPI. (The library warns of invalid values when the
 * first communicator is made.) */
enum shunti_mpi_mode shunti_mpi_mode(void);

/* The bytes of messages that are served: from <= bytes <= upto; none if from >
 * upto. */
struct shunti_mpi_range {
    size_t from, upto;
};

struct shunti_mpi_comm;

/* Fill in state->served for a communicator whose ranks are on `nodes` nodes. */
void shunti_mpi_ask_table(struct shunti_mpi_comm *state, int nodes);
/* Returns the reason why a call is not served whose size is not in
 * `served`. */
enum shunti_mpi_reason shunti_mpi_why_not(const struct shunti_mpi_comm *state,
                                          enum shunti_mpi_call call);
/* Serve no call, for this reason. */
void shunti_mpi_serve_none(struct shunti_mpi_comm *state,
                           enum shunti_mpi_reason reason);

/* --- communicators (comms.c) --- */

/* A buffer that grows and is kept. */
struct shunti_mpi_room {
    char *at;
    size_t bytes;
};

struct shunti_mpi_type;

/* The state of one MPI communicator. Only one thread at a time is in a
 * collective call on it, so it needs no lock. */
struct shunti_mpi_comm {
    struct shunt_comm *shunt; /* NULL: not made yet, or never */
    int size, rank, nodes;
    bool never;     /* no call is ever served */
    bool shm_first; /* all ranks have the same host name: try shared memory
                     * first */
    struct shunti_mpi_range served[SHUNTI_MPI_CALLS];
    enum shunti_mpi_mode mode;
    enum shunti_mpi_reason reason; /* why calls are not in `served` */
    size_t *numbers;               /* (4, size) counts and displacements of the
                                    * call under way */
    const struct shunti_mpi_type **types; /* (2, size) types of MPI_Alltoallw();
                                           * NULL: not allocated */
    struct shunti_mpi_room send, recv;    /* packed data */
    struct shunti_mpi_tallies tallies;
    struct shunti_mpi_comm *next, **link; /* in the list of all communicators */
};

/*
 * The state of `comm`, agreed between its ranks. The first call for a `comm` is
 * collective over it and uses PMPI. NULL: no call on `comm` is ever served, and
 * this call has been counted as passed on. Call it before any other MPI
 * function.
 */
struct shunti_mpi_comm *shunti_mpi_state(MPI_Comm comm,
                                         enum shunti_mpi_call call);

/*
 * Is a call of `bytes` bytes served? `bytes` must be the same on every rank; it
 * is 0 for calls whose size may differ. Collective, by PMPI, if the Shunt
 * communicator has to be made. False: the call has been counted as passed on.
 */
bool shunti_mpi_take(struct shunti_mpi_comm *state, MPI_Comm comm,
                     enum shunti_mpi_call call, size_t bytes);

/* This rank's arguments are bad, and shunti_mpi_take() has not been called.
 * Notifies the other ranks if they may be waiting for this rank. Returns
 * SHUNTI_MPI_PASS. */
int shunti_mpi_refuse(struct shunti_mpi_comm *state, MPI_Comm comm,
                      enum shunti_mpi_call call);
/* Leave a call for which shunti_mpi_take() was true. The other ranks are in
 * Shunt, but this rank cannot continue: it notifies them. */
void shunti_mpi_withdraw(struct shunti_mpi_comm *state,
                         enum shunti_mpi_call call);
/* Count a call as passed on, for a reason that is the same on every rank.
 * Returns SHUNTI_MPI_PASS. */
int shunti_mpi_pass(struct shunti_mpi_comm *state, enum shunti_mpi_call call,
                    enum shunti_mpi_reason reason, size_t bytes);

/* Allocate state->types; false: no memory. */
bool shunti_mpi_types_room(struct shunti_mpi_comm *state);
/* Returns `bytes` bytes in the buffer; NULL: no memory. */
char *shunti_mpi_make_room(struct shunti_mpi_room *room, size_t bytes);
/* Set by each served call, cleared by the door: see door.c. */
extern atomic_bool shunti_mpi_progress_due;
/* Finish a served call: count it, free large buffers, and note that MPI has
 * made no progress. */
void shunti_mpi_done(struct shunti_mpi_comm *state, enum shunti_mpi_call call,
                     size_t bytes);

/* The drop-in's versions of these three MPI functions. */
int shunti_mpi_comm_free(MPI_Comm *comm);
int shunti_mpi_comm_disconnect(MPI_Comm *comm);
int shunti_mpi_finalize(void);

/* --- making a Shunt communicator (create.c) --- */

/* Agree on the state. Collective over `comm`, at the first call on it. `state`
 * is NULL if memory ran out. Returns false if the ranks have not agreed. */
bool shunti_mpi_agree(MPI_Comm comm, struct shunti_mpi_comm *state);
/* Make the Shunt communicator. Collective over `comm`. Afterwards every rank
 * has it, or no call is ever served. */
void shunti_mpi_create(MPI_Comm comm, struct shunti_mpi_comm *state);

/* --- datatypes (types.c) --- */

struct shunti_mpi_type {
    size_t size;            /* bytes of data in an element */
    MPI_Aint extent;        /* bytes from one element to the next */
    bool straight;          /* contiguous: elements are `size` bytes in order,
                                without holes */
    enum shunt_dtype dtype; /* type as operand of a reduction; 0: none */
};

/* Returns the properties of `type`, valid until the type is freed. NULL: `type`
 * is not a type, or not committed. */
const struct shunti_mpi_type *shunti_mpi_type(MPI_Datatype type);

/* shunti_mpi_type() for `count` elements in MPI_Bcast() and MPI_Alltoallw(). If
 * count is 0, MPICH accepts any handle there, even MPI_DATATYPE_NULL. If this
 * rank refused such a call, MPICH would wait for the other ranks, which are in
 * Shunt. Open MPI reports an error. */
static inline const struct shunti_mpi_type *
shunti_mpi_type_if_used(MPI_Datatype type, long long count)
{
#ifdef MPICH_VERSION
    static const struct shunti_mpi_type nothing = {.straight = true};

    if (count == 0)
        return &nothing;
#else
    (void)count;
#endif
    return shunti_mpi_type(type);
}

/* Returns the Shunt reduction for `op`; 0: not supported. */
enum shunt_op shunti_mpi_op(MPI_Op op);

/* Free the MPI objects that shunti_mpi_type() has made. Called before MPI is
 * finalized. */
void shunti_mpi_types_finish(void);

/* --- packing (pack.c) --- */

/* Pack `count` elements at `from` into count * size bytes at `to`. Returns an
 * MPI error code, after the communicator's error handler has been called. */
int shunti_mpi_pack_bytes(const void *from, size_t count, MPI_Datatype type,
                          const struct shunti_mpi_type *facts, char *to,
                          MPI_Comm comm);
/* The reverse of shunti_mpi_pack_bytes(). */
int shunti_mpi_unpack_bytes(const char *from, void *to, size_t count,
                            MPI_Datatype type,
                            const struct shunti_mpi_type *facts, MPI_Comm comm);

/* --- errors (errors.c) --- */

/* Call the error handler of `comm` for `status` of a call on `state`. Returns
 * the MPI error code; MPI_SUCCESS, without the handler, for SHUNT_OK. */
int shunti_mpi_error(MPI_Comm comm, const struct shunti_mpi_comm *state,
                     enum shunt_status status);
/* Report an error of this class in this rank's arguments, which MPI might not
 * find. Notifies the other ranks, calls the error handler, and returns the
 * error. */
int shunti_mpi_mistake(struct shunti_mpi_comm *state, MPI_Comm comm,
                       enum shunti_mpi_call call, int class);

/* Are both buffers the same, and is that an error? MPICH reports an error, Open
 * MPI does not. */
static inline bool shunti_mpi_aliased(const void *send, const void *recv)
{
#ifdef MPICH_VERSION
    return send == recv && send;
#else
    (void)send, (void)recv;
    return false;
#endif
}

/* Report that there is no memory for a copy: notify the other ranks, and return
 * the error. */
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

/* --- lists of counts and displacements (moves.c, moves_v.c, reductions.c) - */

/* An array of int, or of MPI_Count or MPI_Aint (calls with large counts). */
struct shunti_mpi_list {
    const void *at;
    bool wide; /* true: MPI_Count or MPI_Aint */
};

static inline long long shunti_mpi_item(struct shunti_mpi_list list, int i)
{
    return list.wide ? (long long)((const int64_t *)list.at)[i]
                     : ((const int *)list.at)[i];
}

#endif
