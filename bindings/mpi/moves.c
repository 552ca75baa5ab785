// SPDX-License-Identifier: Apache-2.0
/*
 * The calls that move one piece of the same size for each rank, as bytes of any
 * type, and MPI_Barrier(), which moves nothing. (Pieces of different sizes are
 * in moves_v.c.)
 *
 * Contiguous data is used in place. Other data is packed into a buffer of the
 * communicator before the call, and unpacked from another buffer after the
 * call. Holes in the receive buffer are not written.
 */
#include "bindings/mpi/pieces.h"

/* --- receiving ------------------------------------------------------------ */

/* Returns the memory in which Shunt receives `times` pieces like `p`: in place,
 * or in state->recv. */
static void *receive_buffer(const struct shunti_mpi_piece *p, int times,
                            struct shunti_mpi_comm *state, MPI_Comm comm,
                            enum shunti_mpi_call call, int *rc)
{
    void *room;

    *rc = MPI_SUCCESS;
    if (p->facts->straight)
        return shunti_mpi_writable(p->buf);
    room = shunti_mpi_make_room(&state->recv,
                                (size_t)times * shunti_mpi_piece_bytes(p));
    if (!room)
        *rc = shunti_mpi_no_memory(state, comm, call);
    return room;
}

/* Unpack the received data to the program's buffer, if it was not received in
 * place. */
static int unpack_received(const struct shunti_mpi_piece *p, int times,
                           const struct shunti_mpi_comm *state, MPI_Comm comm)
{
    if (p->facts->straight)
        return MPI_SUCCESS;
    return shunti_mpi_unpack_bytes(state->recv.at, shunti_mpi_writable(p->buf),
                                   (size_t)times * (size_t)p->count, p->type,
                                   p->facts, comm);
}

/* --- MPI_Barrier(), MPI_Bcast() ------------------------------------------- */

SHUNTI_MPI_FLATTEN int shunti_mpi_barrier(MPI_Comm comm)
{
    const enum shunti_mpi_call call = SHUNTI_MPI_BARRIER;
    struct shunti_mpi_comm *state = shunti_mpi_state(comm, call);
    enum shunt_status st;

    if (!state || !shunti_mpi_take(state, comm, call, 0))
        return PMPI_Barrier(comm);
    st = shunt_barrier(state->shunt);
    shunti_mpi_done(state, call, 0);
    return shunti_mpi_error(comm, state, st);
}

static int bcast(struct shunti_mpi_piece p, int root, MPI_Comm comm)
{
    const enum shunti_mpi_call call = SHUNTI_MPI_BCAST;
    struct shunti_mpi_comm *state = shunti_mpi_state(comm, call);
    enum shunt_status st;
    const void *at;
    size_t bytes;
    int rc;

    if (!state)
        return SHUNTI_MPI_PASS;
    p.facts = shunti_mpi_type_if_used(p.type, p.count);
    if (!p.facts || p.count < 0 || root < 0 || root >= state->size)
        return shunti_mpi_refuse(state, comm, call);
    bytes = shunti_mpi_piece_bytes(&p);
    if (!shunti_mpi_take(state, comm, call, bytes))
        return SHUNTI_MPI_PASS;
    at = state->rank == root
             ? shunti_mpi_piece_packed(&p, 0, p.count, state, comm, call, &rc)
             : receive_buffer(&p, 1, state, comm, call, &rc);
    if (rc != MPI_SUCCESS)
        return rc;
    st = shunt_broadcast(state->shunt, shunti_mpi_writable(at), bytes, SHUNT_U8,
                         root);
    if (!st && state->rank != root)
        rc = unpack_received(&p, 1, state, comm);
    shunti_mpi_done(state, call, bytes);
    return st ? shunti_mpi_error(comm, state, st) : rc;
}

SHUNTI_MPI_FLATTEN int shunti_mpi_bcast(void *buffer, int count,
                                        MPI_Datatype type, int root,
                                        MPI_Comm comm)
{
    int rc =
        bcast((struct shunti_mpi_piece){buffer, count, type, NULL}, root, comm);

    return rc == SHUNTI_MPI_PASS ? PMPI_Bcast(buffer, count, type, root, comm)
                                 : rc;
}

/* --- MPI_Allgather(), MPI_Alltoall() -------------------------------------- */

/* Check both pieces, or only the received one if the call is in place. Returns
 * false if a piece is bad. */
static bool pieces_good(struct shunti_mpi_piece *send,
                        struct shunti_mpi_piece *recv, bool in_place)
{
    if (recv->buf == MPI_IN_PLACE || !shunti_mpi_piece_good(recv))
        return false;
    return in_place || shunti_mpi_piece_good(send);
}

/* Allgather and alltoall: a piece is received from each rank. A rank sends one
 * piece to all ranks (allgather), or a piece to each (alltoall). */
static int exchange(enum shunti_mpi_call call, struct shunti_mpi_piece send,
                    struct shunti_mpi_piece recv, MPI_Comm comm)
{
    struct shunti_mpi_comm *state = shunti_mpi_state(comm, call);
    const bool in_place = send.buf == MPI_IN_PLACE;
    const bool for_all = call == SHUNTI_MPI_ALLGATHER;
    const void *from = SHUNT_IN_PLACE;
    long long first, given;
    enum shunt_status st;
    size_t bytes;
    void *to;
    int rc = MPI_SUCCESS;

    if (!state)
        return SHUNTI_MPI_PASS;
    if (!pieces_good(&send, &recv, in_place))
        return shunti_mpi_refuse(state, comm, call);
    bytes = shunti_mpi_piece_bytes(&recv);
    if (!shunti_mpi_take(state, comm, call, bytes * (size_t)state->size))
        return SHUNTI_MPI_PASS;
    first = for_all ? state->rank * recv.count : 0;
    given = for_all ? 1 : state->size;
    if (!in_place)
        rc = shunti_mpi_pieces_compare(
            state, &send, &recv, shunti_mpi_element(&recv, first), comm, call);
    if (rc != MPI_SUCCESS)
        return rc;
    if (!in_place)
        from = shunti_mpi_piece_packed(&send, 0, send.count * given, state,
                                       comm, call, &rc);
    else if (!recv.facts->straight)
        from = shunti_mpi_piece_packed(&recv, first, recv.count * given, state,
                                       comm, call, &rc);
    if (rc != MPI_SUCCESS)
        return rc;
    to = receive_buffer(&recv, state->size, state, comm, call, &rc);
    if (rc != MPI_SUCCESS)
        return rc;
    st = for_all ? shunt_allgather(state->shunt, from, to, bytes, SHUNT_U8)
                 : shunt_alltoall(state->shunt, from, to, bytes, SHUNT_U8);
    if (!st)
        rc = unpack_received(&recv, state->size, state, comm);
    shunti_mpi_done(state, call, bytes * (size_t)given);
    return st ? shunti_mpi_error(comm, state, st) : rc;
}

SHUNTI_MPI_FLATTEN int shunti_mpi_allgather(const void *sendbuf, int sendcount,
                                            MPI_Datatype sendtype,
                                            void *recvbuf, int recvcount,
                                            MPI_Datatype recvtype,
                                            MPI_Comm comm)
{
    int rc = exchange(
        SHUNTI_MPI_ALLGATHER,
        (struct shunti_mpi_piece){sendbuf, sendcount, sendtype, NULL},
        (struct shunti_mpi_piece){recvbuf, recvcount, recvtype, NULL}, comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Allgather(sendbuf, sendcount, sendtype, recvbuf,
                                recvcount, recvtype, comm)
               : rc;
}

SHUNTI_MPI_FLATTEN int shunti_mpi_alltoall(const void *sendbuf, int sendcount,
                                           MPI_Datatype sendtype, void *recvbuf,
                                           int recvcount, MPI_Datatype recvtype,
                                           MPI_Comm comm)
{
    int rc = exchange(
        SHUNTI_MPI_ALLTOALL,
        (struct shunti_mpi_piece){sendbuf, sendcount, sendtype, NULL},
        (struct shunti_mpi_piece){recvbuf, recvcount, recvtype, NULL}, comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount,
                               recvtype, comm)
               : rc;
}

/* --- with large counts ---------------------------------------------------- */

#if SHUNTI_MPI_LARGE
int shunti_mpi_bcast_c(void *buffer, MPI_Count count, MPI_Datatype type,
                       int root, MPI_Comm comm)
{
    int rc =
        bcast((struct shunti_mpi_piece){buffer, count, type, NULL}, root, comm);

    return rc == SHUNTI_MPI_PASS ? PMPI_Bcast_c(buffer, count, type, root, comm)
                                 : rc;
}

int shunti_mpi_allgather_c(const void *sendbuf, MPI_Count sendcount,
                           MPI_Datatype sendtype, void *recvbuf,
                           MPI_Count recvcount, MPI_Datatype recvtype,
                           MPI_Comm comm)
{
    int rc = exchange(
        SHUNTI_MPI_ALLGATHER,
        (struct shunti_mpi_piece){sendbuf, sendcount, sendtype, NULL},
        (struct shunti_mpi_piece){recvbuf, recvcount, recvtype, NULL}, comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Allgather_c(sendbuf, sendcount, sendtype, recvbuf,
                                  recvcount, recvtype, comm)
               : rc;
}

int shunti_mpi_alltoall_c(const void *sendbuf, MPI_Count sendcount,
                          MPI_Datatype sendtype, void *recvbuf,
                          MPI_Count recvcount, MPI_Datatype recvtype,
                          MPI_Comm comm)
{
    int rc = exchange(
        SHUNTI_MPI_ALLTOALL,
        (struct shunti_mpi_piece){sendbuf, sendcount, sendtype, NULL},
        (struct shunti_mpi_piece){recvbuf, recvcount, recvtype, NULL}, comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Alltoall_c(sendbuf, sendcount, sendtype, recvbuf,
                                 recvcount, recvtype, comm)
               : rc;
}
#endif
