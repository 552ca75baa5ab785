// SPDX-License-Identifier: Apache-2.0
/*
 * Errors that the drop-in itself finds. Checks the class of the code and its
 * text, that the handler is called once, and that the other ranks get an error,
 * too, and go on. MPI alone finds no errors here, or other ones, so these cases
 * run only with the drop-in. This program's malloc() and calloc() make
 * allocations fail.
 */

#include "check.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- memory that is denied ------------------------------------------------- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);

/* The next allocation of this thread of exactly this many bytes fails; 0:
 * none. */
static _Thread_local size_t denied;
static _Thread_local int denials;

static bool is_denied(size_t bytes)
{
    if (!denied || bytes != denied)
        return false;
    denied = 0;
    denials++;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes)
{
    return is_denied(bytes) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return is_denied(count * bytes) ? NULL : __libc_calloc(count, bytes);
}

/* --- what an error is like ------------------------------------------------- */

enum { MAX_RANKS = 64 };

static MPI_Comm comm;
static int rank, size;
static int handled, handled_code;

static void handler(MPI_Comm *where, int *code, ...)
{
    CHECK(*where == comm);
    handled++;
    handled_code = *code;
}

static void works(void)
{
    int one = 1, sum = 0;

    MPI(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == size);
}

/* Make a communicator whose errors call handler(). */
static void begin(void)
{
    MPI_Errhandler ours;

    MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    MPI(MPI_Comm_create_errhandler(handler, &ours));
    MPI(MPI_Comm_set_errhandler(comm, ours));
    MPI(MPI_Errhandler_free(&ours));
    rank = comm_rank(comm);
    size = comm_size(comm);
    works();
    handled = 0;
    denials = 0;
}

/* Check that `code`, which a call returned, is an error of `class` whose text
 * contains `part`. With MPICH there are no texts of the drop-in, and calls
 * return the class itself. */
static void expect(int code, int class, const char *part)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int found = MPI_SUCCESS, length;

    CHECK(code != MPI_SUCCESS);
    MPI(MPI_Error_class(code, &found));
    if (found != class)
        check_fail(__FILE__, __LINE__, "error class %d, not %d", found, class);
    CHECK(handled == 1 && handled_code == code);
    MPI(MPI_Error_string(code, text, &length));
    if (code != class && !strstr(text, part))
        check_fail(__FILE__, __LINE__, "'%s' does not say '%s'", text, part);
}

/* Check that the last rank got an error, and that the errors of all other ranks
 * name that rank. */
static void expect_last(int code, int class, const char *part)
{
    char culprit[32];

    if (rank == size - 1) {
        expect(code, class, part);
        return;
    }
    snprintf(culprit, sizeof(culprit), "rank %d", size - 1);
    expect(code, MPI_ERR_OTHER, culprit);
}

static void end(void)
{
    works();
    MPI(MPI_Comm_free(&comm));
}

/* --- the cases ------------------------------------------------------------- */

/* An element has two ints with a hole between them. */
enum { ELEMENTS = 1000, BYTES = ELEMENTS * 2 * sizeof(int) };

static MPI_Datatype with_hole(void)
{
    MPI_Datatype type;

    MPI(MPI_Type_vector(2, 1, 2, MPI_INT, &type));
    MPI(MPI_Type_commit(&type));
    return type;
}

/* There is no memory to pack sent data, or to unpack received data. */
static void no_room(bool receives)
{
    static int in[3 * ELEMENTS * MAX_RANKS], out[3 * ELEMENTS * MAX_RANKS];
    int counts[MAX_RANKS], displs[MAX_RANKS], twice[MAX_RANKS], more[MAX_RANKS],
        code;
    MPI_Datatype type = with_hole();

    begin();
    for (int r = 0; r < size; r++) {
        counts[r] = ELEMENTS;
        displs[r] = ELEMENTS * r;
        twice[r] = 2 * ELEMENTS;
        more[r] = 2 * ELEMENTS * r;
    }
    if (rank == size - 1)
        denied = (size_t)size * BYTES;
    code = receives ? MPI_Alltoallv(in, twice, more, MPI_INT, out, counts,
                                    displs, type, comm)
                    : MPI_Alltoallv(in, counts, displs, type, out, twice, more,
                                    MPI_INT, comm);
    expect_last(code, MPI_ERR_NO_MEM, "no memory to pack");
    CHECK(denials == (rank == size - 1));
    MPI(MPI_Type_free(&type));
    end();
}

static void no_room_for_types(void)
{
    int in[MAX_RANKS] = {0}, out[MAX_RANKS], ones[MAX_RANKS], displs[MAX_RANKS],
        code;
    MPI_Datatype types[MAX_RANKS];

    begin();
    for (int r = 0; r < size; r++) {
        ones[r] = 1;
        displs[r] = r * (int)sizeof(int);
        types[r] = MPI_INT;
    }
    if (rank == size - 1)
        denied = 2 * (size_t)size * sizeof(void *);
    code =
        MPI_Alltoallw(in, ones, displs, types, out, ones, displs, types, comm);
    expect_last(code, MPI_ERR_NO_MEM, "no memory");
    CHECK(denials == (rank == size - 1));
    end();
}

typedef void alltoallw_of_fortran(void *, MPI_Fint *, MPI_Fint *, MPI_Fint *,
                                  void *, MPI_Fint *, MPI_Fint *, MPI_Fint *,
                                  MPI_Fint *, MPI_Fint *);

/* To convert Fortran's handles takes memory, too. MPICH's Fortran functions
 * call the C functions, which the drop-in serves. */
static void no_room_for_handles(void)
{
    int in[MAX_RANKS] = {0}, out[MAX_RANKS], ones[MAX_RANKS], displs[MAX_RANKS],
        types[MAX_RANKS];
    alltoallw_of_fortran *alltoallw;
    MPI_Fint handle, code = -1;

#ifdef MPICH_VERSION
    return;
#endif
    *(void **)&alltoallw = dlsym(RTLD_DEFAULT, "mpi_alltoallw_");
    CHECK(alltoallw);
    begin();
    for (int r = 0; r < size; r++) {
        ones[r] = 1;
        displs[r] = r * (int)sizeof(int);
        types[r] = MPI_Type_c2f(MPI_INT);
    }
    handle = MPI_Comm_c2f(comm);
    if (rank == size - 1)
        denied = 2 * (size_t)size * sizeof(MPI_Datatype);
    alltoallw(in, ones, displs, types, out, ones, displs, types, &handle,
              &code);
    expect_last(code, MPI_ERR_NO_MEM, "no memory");
    CHECK(denials == (rank == size - 1));
    handled = 0;
    alltoallw(in, ones, displs, types, out, ones, displs, types, &handle,
              &code);
    CHECK(code == MPI_SUCCESS && !handled);
    end();
}

/* The last rank receives another number of bytes than it sends to itself. */
static void own_block_differs(void)
{
    int in[2] = {0}, out[2 * MAX_RANKS];

    begin();
    expect_last(MPI_Allgather(in, rank == size - 1 ? 2 : 1, MPI_INT, out, 1,
                              MPI_INT, comm),
                MPI_ERR_TRUNCATE, "");
    end();
}

/* Ranks disagree about a size. */
static void sizes_differ(void)
{
    int in[2] = {0}, out[2];

    begin();
    expect(MPI_Allreduce(in, out, rank == size - 1 ? 2 : 1, MPI_INT, MPI_SUM,
                         comm),
           MPI_ERR_TRUNCATE, "rank");
    MPI(MPI_Comm_free(&comm));
}

static void no_room_to_send(void)
{
    no_room(false);
}

static void no_room_to_receive(void)
{
    no_room(true);
}

static void (*const steps[])(void) = {no_room_to_send,   no_room_to_receive,
                                      no_room_for_types, no_room_for_handles,
                                      own_block_differs, sizes_differ};

/* Without the drop-in there is nothing to test. */
static void run(int which)
{
    if (getenv("SHUNT_MPI"))
        steps[which]();
}

static const struct check_case cases[] = {
    {"no_room_to_send", run, 0, 2},
    {"no_room_to_receive", run, 1, 2},
    {"no_room_for_types", run, 2, 2},
    {"no_room_for_handles", run, 3, 2},
    {"own_block_differs", run, 4, 2},
    {"sizes_differ", run, 5, 2},
    {0},
};

int main(int argc, char **argv)
{
    return check_main(argc, argv, cases, MPI_THREAD_SINGLE, NULL, NULL);
}
