// SPDX-License-Identifier: Apache-2.0
/*
 * Packing and unpacking of data that is not contiguous.
 *
 * MPI_Pack() does the work. In both MPIs it packs just the bytes of the
 * elements in order. (This file checks that the position is as expected.)
 * MPI_Pack() counts in ints. So large data is packed in pieces of several
 * elements, and an element larger than INT_MAX bytes is sent as a message from
 * this rank to itself.
 */
#include <pthread.h>

#include "bindings/mpi/dropin.h"

/* Most bytes of one piece, except if one element is larger. */
#define PIECE ((size_t)256 << 20)

/* Elements in memory, and their packed bytes. */
struct elements {
    char *at;
    int count;
    MPI_Datatype type;
    const struct shunti_mpi_type *facts;
    char *bytes;
    bool pack; /* false: unpack */
};

static int not_as_expected(MPI_Comm comm)
{
    PMPI_Comm_call_errhandler(comm, MPI_ERR_INTERN);
    return MPI_ERR_INTERN;
}

static int convert(const struct elements *e, MPI_Comm comm)
{
    const int bytes = (int)((size_t)e->count * e->facts->size);
    int position = 0, rc;

    rc = e->pack ? PMPI_Pack(e->at, e->count, e->type, e->bytes, bytes,
                             &position, comm)
                 : PMPI_Unpack(e->bytes, bytes, &position, e->at, e->count,
                               e->type, comm);
    if (rc == MPI_SUCCESS && position != bytes)
        rc = not_as_expected(comm);
    return rc;
}

/* Convert data at MPI_BOTTOM, which is a valid address. MPICH's MPI_Pack()
 * refuses that address. So the same data is described from another address, by
 * a type with the opposite displacement. */
static int convert_bottom(const struct elements *e, MPI_Comm comm)
{
    static char somewhere;
    const int bytes = (int)((size_t)e->count * e->facts->size);
    MPI_Aint address, back;
    MPI_Datatype same;
    int position = 0;
    int rc = PMPI_Get_address(&somewhere, &address);

    if (rc != MPI_SUCCESS)
        return rc;
    back = -address;
    rc = PMPI_Type_create_hindexed(1, &e->count, &back, e->type, &same);
    if (rc != MPI_SUCCESS)
        return rc;
    rc = PMPI_Type_commit(&same);
    if (rc == MPI_SUCCESS)
        rc = e->pack ? PMPI_Pack(&somewhere, 1, same, e->bytes, bytes,
                                 &position, comm)
                     : PMPI_Unpack(e->bytes, bytes, &position, &somewhere, 1,
                                   same, comm);
    PMPI_Type_free(&same);
    return rc;
}

/* --- huge elements -------------------------------------------------------- */

/* Create a type of `bytes` bytes, which may exceed INT_MAX. The caller frees
 * it. */
static int type_of_bytes(size_t bytes, MPI_Datatype *type)
{
    const size_t unit = 1 << 20;
    MPI_Datatype part[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    int lengths[2] = {(int)(bytes / unit), (int)(bytes % unit)};
    MPI_Aint at[2] = {0, (MPI_Aint)(bytes - bytes % unit)};
    int rc = PMPI_Type_contiguous((int)unit, MPI_BYTE, &part[0]);

    if (rc != MPI_SUCCESS)
        return rc;
    rc = PMPI_Type_create_struct(2, lengths, at, part, type);
    PMPI_Type_free(&part[0]);
    return rc != MPI_SUCCESS ? rc : PMPI_Type_commit(type);
}

/* Convert one element by a message of this rank to itself, on a communicator
 * that has no other messages. */
static int convert_huge(const struct elements *e)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    MPI_Datatype bytes;
    MPI_Comm self;
    int rc = type_of_bytes(e->facts->size, &bytes);

    if (rc != MPI_SUCCESS)
        return rc;
    pthread_mutex_lock(&one_at_a_time);
    rc = PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &self);
    if (rc == MPI_SUCCESS) {
        rc = e->pack ? PMPI_Sendrecv(e->at, 1, e->type, 0, 0, e->bytes, 1,
                                     bytes, 0, 0, self, MPI_STATUS_IGNORE)
                     : PMPI_Sendrecv(e->bytes, 1, bytes, 0, 0, e->at, 1,
                                     e->type, 0, 0, self, MPI_STATUS_IGNORE);
        PMPI_Comm_free(&self);
    }
    pthread_mutex_unlock(&one_at_a_time);
    PMPI_Type_free(&bytes);
    return rc;
}

/* --- any number of any size ----------------------------------------------- */

static int convert_all(struct elements e, size_t count, MPI_Comm comm)
{
    size_t most;
    int rc = MPI_SUCCESS;

    if (!e.facts->size)
        return MPI_SUCCESS;
    most = e.facts->size < PIECE ? PIECE / e.facts->size : 1;
    while (count && rc == MPI_SUCCESS) {
        e.count = (int)(count < most ? count : most);
        if (e.facts->size > INT_MAX)
            rc = convert_huge(&e);
        else if (!e.at)
            rc = convert_bottom(&e, comm);
        else
            rc = convert(&e, comm);
        e.at += (MPI_Aint)e.count * e.facts->extent;
        e.bytes += (size_t)e.count * e.facts->size;
        count -= (size_t)e.count;
    }
    return rc;
}

SHUNTI_MPI_NOINLINE int
shunti_mpi_pack_bytes(const void *from, size_t count, MPI_Datatype type,
                      const struct shunti_mpi_type *facts, char *to,
                      MPI_Comm comm)
{
    return convert_all(
        (struct elements){(char *)(uintptr_t)from, 0, type, facts, to, true},
        count, comm);
}

SHUNTI_MPI_NOINLINE int
shunti_mpi_unpack_bytes(const char *from, void *to, size_t count,
                        MPI_Datatype type, const struct shunti_mpi_type *facts,
                        MPI_Comm comm)
{
    return convert_all(
        (struct elements){to, 0, type, facts, (char *)(uintptr_t)from, false},
        count, comm);
}
