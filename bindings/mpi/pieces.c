// SPDX-License-Identifier: Apache-2.0
/* Pieces; see pieces.h. */
#include "bindings/mpi/pieces.h"

bool shunti_mpi_piece_good(struct shunti_mpi_piece *p)
{
    if (p->count < 0)
        return false;
    p->facts = shunti_mpi_type(p->type);
    return p->facts != NULL;
}

const void *shunti_mpi_piece_packed(const struct shunti_mpi_piece *p,
                                    long long first, long long count,
                                    struct shunti_mpi_comm *state,
                                    MPI_Comm comm, enum shunti_mpi_call call,
                                    int *rc)
{
    char *room;

    *rc = MPI_SUCCESS;
    if (p->facts->straight)
        return shunti_mpi_element(p, first);
    room = shunti_mpi_make_room(&state->send, (size_t)count * p->facts->size);
    if (!room) {
        *rc = shunti_mpi_no_memory(state, comm, call);
        return NULL;
    }
    *rc = shunti_mpi_pack_bytes(shunti_mpi_element(p, first), (size_t)count,
                                p->type, p->facts, room, comm);
    if (*rc != MPI_SUCCESS)
        shunti_mpi_withdraw(state, call);
    return room;
}

int shunti_mpi_pieces_compare(struct shunti_mpi_comm *state,
                              const struct shunti_mpi_piece *send,
                              const struct shunti_mpi_piece *recv,
                              const void *own, MPI_Comm comm,
                              enum shunti_mpi_call call)
{
    if (shunti_mpi_piece_bytes(send) != shunti_mpi_piece_bytes(recv))
        return shunti_mpi_mistake(state, comm, call, MPI_ERR_TRUNCATE);
    if (send->count && send->count == recv->count && send->type == recv->type &&
        shunti_mpi_aliased(send->buf, own))
        return shunti_mpi_mistake(state, comm, call, MPI_ERR_BUFFER);
    return MPI_SUCCESS;
}
