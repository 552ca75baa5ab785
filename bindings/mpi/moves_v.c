// SPDX-License-Identifier: Apache-2.0
/*
 * The calls that move a block of a different size for each rank, as bytes of
 * any type.
 *
 * In MPI, each side of a call is a buffer with counts, displacements (in
 * elements; in bytes for MPI_Alltoallw()) and types. For Shunt, each side is
 * blocks of bytes.
 */
#include "bindings/mpi/pieces.h"

/* --- a block for each rank ------------------------------------------------ */

/* One side of a call with counts and displacements. */
struct side {
    const void *buf;
    struct shunti_mpi_list counts, displs;
    MPI_Datatype type;         /* the type of all blocks */
    const MPI_Datatype *types; /* (size) the type of each block, if not NULL;
                                * then displs are in bytes */
};

/* The same side for Shunt, in bytes. */
struct blocks {
    char *at;
    size_t *counts, *displs;             /* (size) */
    const struct shunti_mpi_type *facts; /* properties of `type` */
    const struct shunti_mpi_type **each; /* (size) properties of `types` */
    size_t bytes;                        /* sum over all blocks */
    bool straight;
};

static MPI_Datatype type_at(const struct side *side, int i)
{
    return side->types ? side->types[i] : side->type;
}

static const struct shunti_mpi_type *facts_at(const struct blocks *blocks,
                                              int i)
{
    return blocks->each ? blocks->each[i] : blocks->facts;
}

/* Bytes from the start of the side's buffer to block i. */
static MPI_Aint offset_of(const struct side *side, const struct blocks *blocks,
                          int i)
{
    MPI_Aint displ = (MPI_Aint)shunti_mpi_item(side->displs, i);

    return blocks->each ? displ : displ * blocks->facts->extent;
}

/* Compute the bytes of each block. Returns false if a count is negative. In a
 * small call most of the drop-in's time is spent here, so it is compiled for
 * constant `wide` and `each`. */
static inline __attribute__((always_inline)) bool
look_at_counts(const struct side *side, struct blocks *blocks, int size,
               bool wide, bool each)
{
    const struct shunti_mpi_list list = {side->counts.at, wide};
    const size_t unit = each ? 0 : blocks->facts->size;
    long long negative = 0;

    for (int i = 0; i < size; i++) {
        const long long count = shunti_mpi_item(list, i);

        negative |= count;
        if (each)
            blocks->straight &= count == 0 || blocks->each[i]->straight;
        blocks->counts[i] =
            (size_t)count * (each ? blocks->each[i]->size : unit);
        blocks->bytes += blocks->counts[i];
    }
    return negative >= 0;
}

/* Look up the types and compute the bytes of all blocks. Returns false if an
 * argument is bad. */
static bool look(const struct side *side, struct blocks *blocks, int size)
{
    if (!side->counts.at || !side->displs.at || (blocks->each && !side->types))
        return false;
    blocks->bytes = 0;
    for (int i = 0; blocks->each && i < size; i++) {
        blocks->each[i] = shunti_mpi_type_if_used(
            side->types[i], shunti_mpi_item(side->counts, i));
        if (!blocks->each[i])
            return false;
    }
    if (!blocks->each) {
        blocks->facts = shunti_mpi_type(side->type);
        if (!blocks->facts)
            return false;
    }
    blocks->straight = blocks->each || blocks->facts->straight;
    if (!blocks->each && !side->counts.wide)
        return look_at_counts(side, blocks, size, false, false);
    return look_at_counts(side, blocks, size, side->counts.wide,
                          blocks->each != NULL);
}

/* Compute the offset of each block in the side's buffer, 0 for an empty block.
 * Returns the lowest of these and of `lowest`. Compiled for constants, as
 * above. */
static inline __attribute__((always_inline)) MPI_Aint
look_at_displs(const struct side *side, struct blocks *blocks, int size,
               MPI_Aint lowest, bool wide, bool each)
{
    const struct shunti_mpi_list list = {side->displs.at, wide};
    const MPI_Aint unit = each ? 1 : blocks->facts->extent;

    for (int i = 0; i < size; i++) {
        const MPI_Aint at = (MPI_Aint)shunti_mpi_item(list, i) * unit;

        blocks->displs[i] = blocks->counts[i] ? (size_t)at : 0;
        if (at < lowest && blocks->counts[i])
            lowest = at;
    }
    return lowest;
}

/* Compute the displacements of blocks that are used in place. MPI's
 * displacements may be negative, or relative to address 0 (MPI_BOTTOM). Shunt's
 * displacements start at the lowest block. */
static void lay(const struct side *side, struct blocks *blocks, int size)
{
    MPI_Aint lowest = side->buf ? 0 : PTRDIFF_MAX;

    if (!blocks->each && !side->displs.wide)
        lowest = look_at_displs(side, blocks, size, lowest, false, false);
    else
        lowest = look_at_displs(side, blocks, size, lowest, side->displs.wide,
                                blocks->each != NULL);
    blocks->at = shunti_mpi_writable(side->buf);
    if (!lowest || !blocks->bytes)
        return;
    blocks->at += lowest;
    for (int i = 0; i < size; i++)
        if (blocks->counts[i])
            blocks->displs[i] -= (size_t)lowest;
}

/* Place the blocks one after another in a buffer of the state. */
static bool lay_in_room(struct blocks *blocks, struct shunti_mpi_room *room,
                        int size)
{
    size_t at = 0;

    blocks->at = shunti_mpi_make_room(room, blocks->bytes);
    for (int i = 0; i < size; i++) {
        blocks->displs[i] = at;
        at += blocks->counts[i];
    }
    return blocks->at != NULL;
}

/* Pack all blocks into the buffer of lay_in_room(), or unpack them from it. */
SHUNTI_MPI_NOINLINE static int convert(const struct side *side,
                                       const struct blocks *blocks, int size,
                                       bool pack, MPI_Comm comm)
{
    int rc = MPI_SUCCESS;

    for (int i = 0; i < size && rc == MPI_SUCCESS; i++) {
        const struct shunti_mpi_type *facts = facts_at(blocks, i);
        const size_t count = (size_t)shunti_mpi_item(side->counts, i);
        char *in_memory, *in_room = blocks->at + blocks->displs[i];

        if (!blocks->counts[i])
            continue;
        in_memory =
            (char *)shunti_mpi_writable(side->buf) + offset_of(side, blocks, i);
        rc = pack ? shunti_mpi_pack_bytes(in_memory, count, type_at(side, i),
                                          facts, in_room, comm)
                  : shunti_mpi_unpack_bytes(in_room, in_memory, count,
                                            type_at(side, i), facts, comm);
    }
    return rc;
}

/* Prepare the blocks that are sent: in place, or packed. *rc: MPI_SUCCESS, or
 * an error of which the other ranks have been notified. */
static void gather_up(struct shunti_mpi_comm *state, const struct side *side,
                      struct blocks *blocks, MPI_Comm comm,
                      enum shunti_mpi_call call, int *rc)
{
    *rc = MPI_SUCCESS;
    if (blocks->straight) {
        lay(side, blocks, state->size);
    } else if (!lay_in_room(blocks, &state->send, state->size)) {
        *rc = shunti_mpi_no_memory(state, comm, call);
    } else {
        *rc = convert(side, blocks, state->size, true, comm);
        if (*rc != MPI_SUCCESS)
            shunti_mpi_withdraw(state, call);
    }
}

/* Prepare memory for the blocks that are received. */
static void open_up(struct shunti_mpi_comm *state, const struct side *side,
                    struct blocks *blocks, MPI_Comm comm,
                    enum shunti_mpi_call call, int *rc)
{
    *rc = MPI_SUCCESS;
    if (blocks->straight)
        lay(side, blocks, state->size);
    else if (!lay_in_room(blocks, &state->recv, state->size))
        *rc = shunti_mpi_no_memory(state, comm, call);
}

/* --- MPI_Allgatherv() ----------------------------------------------------- */

static int allgatherv(struct shunti_mpi_piece send, const struct side *recv,
                      MPI_Comm comm)
{
    const enum shunti_mpi_call call = SHUNTI_MPI_ALLGATHERV;
    struct shunti_mpi_comm *state = shunti_mpi_state(comm, call);
    const bool in_place = send.buf == MPI_IN_PLACE;
    const void *from = SHUNT_IN_PLACE;
    struct blocks to = {0};
    struct shunti_mpi_piece ours;
    enum shunt_status st;
    long long at;
    int rc = MPI_SUCCESS;

    if (!state)
        return SHUNTI_MPI_PASS;
    to.counts = state->numbers;
    to.displs = state->numbers + state->size;
    if (recv->buf == MPI_IN_PLACE || !look(recv, &to, state->size) ||
        (!in_place && !shunti_mpi_piece_good(&send)))
        return shunti_mpi_refuse(state, comm, call);
    if (!shunti_mpi_take(state, comm, call, to.bytes))
        return SHUNTI_MPI_PASS;
    ours = (struct shunti_mpi_piece){recv->buf,
                                     shunti_mpi_item(recv->counts, state->rank),
                                     recv->type, to.facts};
    at = shunti_mpi_item(recv->displs, state->rank);
    if (!in_place)
        rc = shunti_mpi_pieces_compare(
            state, &send, &ours, shunti_mpi_element(&ours, at), comm, call);
    if (rc != MPI_SUCCESS)
        return rc;
    if (!in_place)
        from = shunti_mpi_piece_packed(&send, 0, send.count, state, comm, call,
                                       &rc);
    else if (!to.straight)
        from = shunti_mpi_piece_packed(&ours, at, ours.count, state, comm, call,
                                       &rc);
    if (rc != MPI_SUCCESS)
        return rc;
    open_up(state, recv, &to, comm, call, &rc);
    if (rc != MPI_SUCCESS)
        return rc;
    st = shunt_allgatherv(state->shunt, from, shunti_mpi_piece_bytes(&ours),
                          to.at, to.counts, to.displs, SHUNT_U8);
    if (!st && !to.straight)
        rc = convert(recv, &to, state->size, false, comm);
    shunti_mpi_done(state, call, shunti_mpi_piece_bytes(&ours));
    return st ? shunti_mpi_error(comm, state, st) : rc;
}

SHUNTI_MPI_FLATTEN int
shunti_mpi_allgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype,
                      void *recvbuf, const int recvcounts[], const int displs[],
                      MPI_Datatype recvtype, MPI_Comm comm)
{
    int rc = allgatherv(
        (struct shunti_mpi_piece){sendbuf, sendcount, sendtype, NULL},
        &(struct side){
            recvbuf, {recvcounts, false}, {displs, false}, recvtype, NULL},
        comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Allgatherv(sendbuf, sendcount, sendtype, recvbuf,
                                 recvcounts, displs, recvtype, comm)
               : rc;
}

/* --- MPI_Alltoallv(), MPI_Alltoallw() ------------------------------------- */

/* Returns the send buffer for Shunt. It is SHUNT_IN_PLACE if the call is in
 * place and the data is contiguous. Then Shunt copies the input. */
static const void *sent(struct shunti_mpi_comm *state, const struct side *send,
                        const struct side *recv, struct blocks *out,
                        struct blocks *in, MPI_Comm comm,
                        enum shunti_mpi_call call, int *rc)
{
    *rc = MPI_SUCCESS;
    if (send->buf != MPI_IN_PLACE) {
        gather_up(state, send, out, comm, call, rc);
        return out->at;
    }
    if (in->straight)
        return SHUNT_IN_PLACE;
    for (int i = 0; i < state->size; i++)
        out->counts[i] = in->counts[i];
    out->facts = in->facts;
    out->each = in->each;
    out->bytes = in->bytes;
    out->straight = false;
    gather_up(state, recv, out, comm, call, rc);
    return out->at;
}

static int alltoallv(enum shunti_mpi_call call, const struct side *send,
                     const struct side *recv, MPI_Comm comm)
{
    struct shunti_mpi_comm *state = shunti_mpi_state(comm, call);
    const bool in_place = send->buf == MPI_IN_PLACE;
    struct blocks out = {0}, in = {0};
    enum shunt_status st;
    const void *from;
    int rc;

    if (!state || !shunti_mpi_take(state, comm, call, 0))
        return SHUNTI_MPI_PASS;
    out.counts = state->numbers;
    out.displs = out.counts + state->size;
    in.counts = out.displs + state->size;
    in.displs = in.counts + state->size;
    if (call == SHUNTI_MPI_ALLTOALLW) {
        if (!shunti_mpi_types_room(state))
            return shunti_mpi_no_memory(state, comm, call);
        out.each = state->types;
        in.each = state->types + state->size;
    }
    if (recv->buf == MPI_IN_PLACE || !look(recv, &in, state->size) ||
        (!in_place && !look(send, &out, state->size))) {
        shunti_mpi_withdraw(state, call);
        return SHUNTI_MPI_PASS;
    }
    if (!in_place && out.bytes && send->counts.at == recv->counts.at &&
        send->type == recv->type && send->types == recv->types &&
        shunti_mpi_aliased(send->buf, recv->buf))
        return shunti_mpi_mistake(state, comm, call, MPI_ERR_BUFFER);
    from = sent(state, send, recv, &out, &in, comm, call, &rc);
    if (rc == MPI_SUCCESS)
        open_up(state, recv, &in, comm, call, &rc);
    if (rc != MPI_SUCCESS)
        return rc;
    st = shunt_alltoallv(state->shunt, from, out.counts, out.displs, in.at,
                         in.counts, in.displs, SHUNT_U8);
    if (!st && !in.straight)
        rc = convert(recv, &in, state->size, false, comm);
    shunti_mpi_done(state, call, in_place ? in.bytes : out.bytes);
    return st ? shunti_mpi_error(comm, state, st) : rc;
}

SHUNTI_MPI_FLATTEN int
shunti_mpi_alltoallv(const void *sendbuf, const int sendcounts[],
                     const int sdispls[], MPI_Datatype sendtype, void *recvbuf,
                     const int recvcounts[], const int rdispls[],
                     MPI_Datatype recvtype, MPI_Comm comm)
{
    int rc = alltoallv(
        SHUNTI_MPI_ALLTOALLV,
        &(struct side){
            sendbuf, {sendcounts, false}, {sdispls, false}, sendtype, NULL},
        &(struct side){
            recvbuf, {recvcounts, false}, {rdispls, false}, recvtype, NULL},
        comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf,
                                recvcounts, rdispls, recvtype, comm)
               : rc;
}

int shunti_mpi_alltoallw(const void *sendbuf, const int sendcounts[],
                         const int sdispls[], const MPI_Datatype sendtypes[],
                         void *recvbuf, const int recvcounts[],
                         const int rdispls[], const MPI_Datatype recvtypes[],
                         MPI_Comm comm)
{
    int rc = alltoallv(SHUNTI_MPI_ALLTOALLW,
                       &(struct side){sendbuf,
                                      {sendcounts, false},
                                      {sdispls, false},
                                      MPI_DATATYPE_NULL,
                                      sendtypes},
                       &(struct side){recvbuf,
                                      {recvcounts, false},
                                      {rdispls, false},
                                      MPI_DATATYPE_NULL,
                                      recvtypes},
                       comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Alltoallw(sendbuf, sendcounts, sdispls, sendtypes,
                                recvbuf, recvcounts, rdispls, recvtypes, comm)
               : rc;
}

/* --- with large counts ---------------------------------------------------- */

#if SHUNTI_MPI_LARGE
_Static_assert(sizeof(MPI_Count) == sizeof(int64_t) &&
                   sizeof(MPI_Aint) == sizeof(int64_t),
               "shunti_mpi_item() reads them so");

int shunti_mpi_allgatherv_c(const void *sendbuf, MPI_Count sendcount,
                            MPI_Datatype sendtype, void *recvbuf,
                            const MPI_Count recvcounts[],
                            const MPI_Aint displs[], MPI_Datatype recvtype,
                            MPI_Comm comm)
{
    int rc = allgatherv(
        (struct shunti_mpi_piece){sendbuf, sendcount, sendtype, NULL},
        &(struct side){
            recvbuf, {recvcounts, true}, {displs, true}, recvtype, NULL},
        comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Allgatherv_c(sendbuf, sendcount, sendtype, recvbuf,
                                   recvcounts, displs, recvtype, comm)
               : rc;
}

int shunti_mpi_alltoallv_c(const void *sendbuf, const MPI_Count sendcounts[],
                           const MPI_Aint sdispls[], MPI_Datatype sendtype,
                           void *recvbuf, const MPI_Count recvcounts[],
                           const MPI_Aint rdispls[], MPI_Datatype recvtype,
                           MPI_Comm comm)
{
    int rc = alltoallv(
        SHUNTI_MPI_ALLTOALLV,
        &(struct side){
            sendbuf, {sendcounts, true}, {sdispls, true}, sendtype, NULL},
        &(struct side){
            recvbuf, {recvcounts, true}, {rdispls, true}, recvtype, NULL},
        comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Alltoallv_c(sendbuf, sendcounts, sdispls, sendtype,
                                  recvbuf, recvcounts, rdispls, recvtype, comm)
               : rc;
}

int shunti_mpi_alltoallw_c(const void *sendbuf, const MPI_Count sendcounts[],
                           const MPI_Aint sdispls[],
                           const MPI_Datatype sendtypes[], void *recvbuf,
                           const MPI_Count recvcounts[],
                           const MPI_Aint rdispls[],
                           const MPI_Datatype recvtypes[], MPI_Comm comm)
{
    int rc = alltoallv(SHUNTI_MPI_ALLTOALLW,
                       &(struct side){sendbuf,
                                      {sendcounts, true},
                                      {sdispls, true},
                                      MPI_DATATYPE_NULL,
                                      sendtypes},
                       &(struct side){recvbuf,
                                      {recvcounts, true},
                                      {rdispls, true},
                                      MPI_DATATYPE_NULL,
                                      recvtypes},
                       comm);

    return rc == SHUNTI_MPI_PASS
               ? PMPI_Alltoallw_c(sendbuf, sendcounts, sdispls, sendtypes,
                                  recvbuf, recvcounts, rdispls, recvtypes, comm)
               : rc;
}
#endif
