// SPDX-License-Identifier: Apache-2.0
/*
 * Shunt's errors as MPI errors: a standard class, and a code of that class with
 * Shunt's text.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "bindings/mpi/dropin.h"

static const struct {
    enum shunt_status status;
    int class;
} classes[] = {
    {SHUNT_ERR_INVALID, MPI_ERR_ARG},
    /* MPI has a class for only one kind of disagreement: a rank sends more than
     * another one receives. */
    {SHUNT_ERR_MISMATCH, MPI_ERR_TRUNCATE},
    {SHUNT_ERR_REMOTE, MPI_ERR_OTHER},
    {SHUNT_ERR_MEMORY, MPI_ERR_NO_MEM},
    {SHUNT_ERR_SYSTEM, MPI_ERR_INTERN},
    {SHUNT_ERR_PEER, MPI_ERR_OTHER},
    {SHUNT_ERR_TIMEOUT, MPI_ERR_OTHER},
    {SHUNT_ERR_ABORTED, MPI_ERR_OTHER},
    {SHUNT_ERR_UNSUPPORTED, MPI_ERR_INTERN},
    {SHUNT_ERR_OVERFLOW, MPI_ERR_TRUNCATE},
    {SHUNT_ERR_BUSY, MPI_ERR_OTHER},
};

#define COUNT (sizeof(classes) / sizeof(classes[0]))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int codes[COUNT]; /* protected by `lock`; 0: not made yet */

/* If errors are fatal, the program ends here: print the reason for its user. */
static void print_before_exit(MPI_Comm comm, const char *text)
{
    MPI_Errhandler handler;

    if (PMPI_Comm_get_errhandler(comm, &handler) != MPI_SUCCESS)
        return;
    if (handler == MPI_ERRORS_ARE_FATAL)
        fprintf(stderr, "%s\n", text);
    else if (handler != MPI_ERRORS_RETURN)
        PMPI_Errhandler_free(&handler);
}

/* Does MPI return the text that was set? MPICH does not for codes of its own
 * classes. */
static bool text_kept(int code, const char *text)
{
    char kept[MPI_MAX_ERROR_STRING] = "";
    int length;

    return PMPI_Error_string(code, kept, &length) == MPI_SUCCESS &&
           !strcmp(kept, text);
}

/* Get the error code for a status. There is one code for each status, since MPI
 * has a limited number of codes. Its text is that of the last failure with this
 * status. If no code can be made, the class is used. */
static int code_of(MPI_Comm comm, enum shunt_status status, const char *story)
{
    char text[MPI_MAX_ERROR_STRING];
    size_t i = 0;
    int code;

    while (i < COUNT - 1 && classes[i].status != status)
        i++;
    snprintf(text, sizeof(text), "Shunt: %.*s", (int)sizeof(text) - 16, story);
    pthread_mutex_lock(&lock);
    if (!codes[i] &&
        PMPI_Add_error_code(classes[i].class, &codes[i]) != MPI_SUCCESS)
        codes[i] = 0;
    code = codes[i];
    if (code && (PMPI_Add_error_string(code, text) != MPI_SUCCESS ||
                 !text_kept(code, text)))
        code = 0;
    pthread_mutex_unlock(&lock);
    if (code)
        return code;
    print_before_exit(comm, text);
    return classes[i].class;
}

int shunti_mpi_error(MPI_Comm comm, const struct shunti_mpi_comm *state,
                     enum shunt_status status)
{
    int code;

    if (__builtin_expect(status == SHUNT_OK, 1))
        return MPI_SUCCESS;
    code = code_of(comm, status, shunt_last_error(state->shunt));
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}

int shunti_mpi_mistake(struct shunti_mpi_comm *state, MPI_Comm comm,
                       enum shunti_mpi_call call, int class)
{
    shunti_mpi_withdraw(state, call);
    PMPI_Comm_call_errhandler(comm, class);
    return class;
}

int shunti_mpi_no_memory(struct shunti_mpi_comm *state, MPI_Comm comm,
                         enum shunti_mpi_call call)
{
    int code = code_of(comm, SHUNT_ERR_MEMORY,
                       "no memory to pack data that is not in one piece");

    shunti_mpi_withdraw(state, call);
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}
