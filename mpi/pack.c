// SPDX-License-Identifier: Apache-2.0
/*
 * Data that does not lie in one piece, to bytes and back.
 *
 * MPI packs; what it packs are the bytes of the elements in order and nothing
 * else, in both MPIs (and we look: the position must be what we expect). It
 * counts in ints, so large data goes in pieces of whole elements, and elements
 * that are larger than an int's range are sent from this rank to itself.
 */
#include "dropin.h"

/* Of one piece. */
#define PIECE ((size_t)256 << 20)
/* Messages of a rank to itself. */
#define TAG 0

static size_t piece_of(const struct shunti_mpi_type *facts)
{
    size_t elements = PIECE / facts->size;

    return elements ? elements : 1;
}

/* `bytes` as a type, however many they are. The caller frees it. */
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

/* One huge element: through a message to ourselves. */
static int copy_huge(const void *from, MPI_Datatype from_type, void *to,
                     MPI_Datatype to_type)
{
    return PMPI_Sendrecv(from, 1, from_type, 0, TAG, to, 1, to_type, 0, TAG,
                         MPI_COMM_SELF, MPI_STATUS_IGNORE);
}

static int not_as_expected(MPI_Comm comm)
{
    PMPI_Comm_call_errhandler(comm, MPI_ERR_INTERN);
    return MPI_ERR_INTERN;
}

int shunti_mpi_pack_bytes(const void *from, size_t count, MPI_Datatype type,
                          const struct shunti_mpi_type *facts, char *to,
                          MPI_Comm comm)
{
    const char *at = from;
    int rc = MPI_SUCCESS;

    if (!facts->size)
        return MPI_SUCCESS;
    while (count && rc == MPI_SUCCESS) {
        size_t n = piece_of(facts);
        int position = 0;

        n = n < count ? n : count;
        if (facts->size > INT_MAX) {
            MPI_Datatype bytes;

            rc = type_of_bytes(facts->size, &bytes);
            if (rc == MPI_SUCCESS) {
                rc = copy_huge(at, type, to, bytes);
                PMPI_Type_free(&bytes);
            }
        } else {
            rc = PMPI_Pack(at, (int)n, type, to, (int)(n * facts->size),
                           &position, comm);
            if (rc == MPI_SUCCESS && (size_t)position != n * facts->size)
                rc = not_as_expected(comm);
        }
        at += (MPI_Aint)n * facts->extent;
        to += n * facts->size;
        count -= n;
    }
    return rc;
}

int shunti_mpi_unpack_bytes(const char *from, void *to, size_t count,
                            MPI_Datatype type,
                            const struct shunti_mpi_type *facts, MPI_Comm comm)
{
    char *at = to;
    int rc = MPI_SUCCESS;

    if (!facts->size)
        return MPI_SUCCESS;
    while (count && rc == MPI_SUCCESS) {
        size_t n = piece_of(facts);
        int position = 0;

        n = n < count ? n : count;
        if (facts->size > INT_MAX) {
            MPI_Datatype bytes;

            rc = type_of_bytes(facts->size, &bytes);
            if (rc == MPI_SUCCESS) {
                rc = copy_huge(from, bytes, at, type);
                PMPI_Type_free(&bytes);
            }
        } else {
            rc = PMPI_Unpack(from, (int)(n * facts->size), &position, at,
                             (int)n, type, comm);
            if (rc == MPI_SUCCESS && (size_t)position != n * facts->size)
                rc = not_as_expected(comm);
        }
        from += n * facts->size;
        at += (MPI_Aint)n * facts->extent;
        count -= n;
    }
    return rc;
}
