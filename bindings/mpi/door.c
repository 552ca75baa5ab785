// SPDX-License-Identifier: Apache-2.0
/*
 * libshunt-mpi.so: see door.h.
 *
 * Arguments are passed on as machine words: integers, pointers and the handles
 * of either MPI fit into one, and a function that takes an int uses the lower
 * half. So the same door serves Open MPI, whose handles are pointers, and
 * MPICH, whose handles are ints. If there is no part for the MPI of a process,
 * calls are passed on to that MPI as if the door did not exist.
 *
 * A call costs one load and one jump once its target is known.
 *
 * Tests (MPI_Test, MPI_Iprobe, ...) are always MPI's. A program may expect that
 * a test finds what other ranks did before a collective call. MPI's own
 * collective calls make progress, so the test finds it at once; a served call
 * makes progress only while it waits. Some tests look first and make progress
 * afterwards. So the door repeats a test that found nothing after a served
 * call.
 */
#include "bindings/mpi/door.h"
#include "bindings/mpi/env.h"
#include "src/base/own_file.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DOOR_API __attribute__((visibility("default")))

typedef uintptr_t word;

/* --- the calls ------------------------------------------------------------ */

/* C: name, number of arguments. MPI_..._c are those of MPI-4 with large
 * counts. */
#define CALLS_C(X)                 \
    X(MPI_Allgather, 7)            \
    X(MPI_Allgather_c, 7)          \
    X(MPI_Allgatherv, 8)           \
    X(MPI_Allgatherv_c, 8)         \
    X(MPI_Allreduce, 6)            \
    X(MPI_Allreduce_c, 6)          \
    X(MPI_Alltoall, 7)             \
    X(MPI_Alltoall_c, 7)           \
    X(MPI_Alltoallv, 9)            \
    X(MPI_Alltoallv_c, 9)          \
    X(MPI_Alltoallw, 9)            \
    X(MPI_Alltoallw_c, 9)          \
    X(MPI_Barrier, 1)              \
    X(MPI_Bcast, 5)                \
    X(MPI_Bcast_c, 5)              \
    X(MPI_Comm_disconnect, 1)      \
    X(MPI_Comm_free, 1)            \
    X(MPI_Finalize, 0)             \
    X(MPI_Reduce_scatter, 6)       \
    X(MPI_Reduce_scatter_c, 6)     \
    X(MPI_Reduce_scatter_block, 6) \
    X(MPI_Reduce_scatter_block_c, 6)

/* Fortran: name, name in capitals, number of arguments. Compilers add no, one
 * or two underscores; the module mpi_f08 has other names. */
#define CALLS_FORTRAN(X)                           \
    X(mpi_allgather, MPI_ALLGATHER, 8)             \
    X(mpi_allgatherv, MPI_ALLGATHERV, 9)           \
    X(mpi_allreduce, MPI_ALLREDUCE, 7)             \
    X(mpi_alltoall, MPI_ALLTOALL, 8)               \
    X(mpi_alltoallv, MPI_ALLTOALLV, 10)            \
    X(mpi_alltoallw, MPI_ALLTOALLW, 10)            \
    X(mpi_barrier, MPI_BARRIER, 2)                 \
    X(mpi_bcast, MPI_BCAST, 6)                     \
    X(mpi_comm_disconnect, MPI_COMM_DISCONNECT, 2) \
    X(mpi_comm_free, MPI_COMM_FREE, 2)             \
    X(mpi_finalize, MPI_FINALIZE, 1)               \
    X(mpi_reduce_scatter, MPI_REDUCE_SCATTER, 7)   \
    X(mpi_reduce_scatter_block, MPI_REDUCE_SCATTER_BLOCK, 7)

/* Tests: name, number of arguments, and the argument that points to zero if
 * nothing was found. */
#define TESTS_C(X)                  \
    X(MPI_Improbe, 6, d)            \
    X(MPI_Iprobe, 5, d)             \
    X(MPI_Parrived, 3, c)           \
    X(MPI_Request_get_status, 3, b) \
    X(MPI_Test, 3, b)               \
    X(MPI_Testall, 4, c)            \
    X(MPI_Testany, 5, d)            \
    X(MPI_Testsome, 5, c)           \
    X(MPI_Win_test, 2, b)

/* Fortran: the last argument points to the error code, or is NULL. */
#define TESTS_FORTRAN(X)                                       \
    X(mpi_improbe, MPI_IMPROBE, 7, d, g)                       \
    X(mpi_iprobe, MPI_IPROBE, 6, d, f)                         \
    X(mpi_parrived, MPI_PARRIVED, 4, c, d)                     \
    X(mpi_request_get_status, MPI_REQUEST_GET_STATUS, 4, b, d) \
    X(mpi_test, MPI_TEST, 4, b, d)                             \
    X(mpi_testall, MPI_TESTALL, 5, c, e)                       \
    X(mpi_testany, MPI_TESTANY, 6, d, f)                       \
    X(mpi_testsome, MPI_TESTSOME, 6, c, f)                     \
    X(mpi_win_test, MPI_WIN_TEST, 3, b, c)

#define MANGLED(X, name, NAME, ...) \
    X(name, name, __VA_ARGS__)      \
    X(name##_, name, __VA_ARGS__)   \
    X(name##__, name, __VA_ARGS__)  \
    X(NAME, name, __VA_ARGS__)      \
    X(name##_f08_, name, __VA_ARGS__)

/* One number for each name that is exported. */
enum call {
#define NUMBER(name, n) AT_##name,
#define NUMBER_MANGLED(mangled, name, n) AT_##mangled,
#define NUMBER_FORTRAN(name, NAME, n) MANGLED(NUMBER_MANGLED, name, NAME, n)
#define NUMBER_TEST(name, n, flag) AT_##name,
#define NUMBER_MANGLED_TEST(mangled, name, n, flag, error) AT_##mangled,
#define NUMBER_FORTRAN_TEST(name, NAME, n, flag, error) \
    MANGLED(NUMBER_MANGLED_TEST, name, NAME, n, flag, error)
    CALLS_C(NUMBER) CALLS_FORTRAN(NUMBER_FORTRAN) TESTS_C(NUMBER_TEST)
        TESTS_FORTRAN(NUMBER_FORTRAN_TEST) AT_shunt_comm_create_mpi,
    CALLS
};

/* The exported names, and the names of the part's functions for them; NULL: a
 * test, which is always MPI's. */
static const struct {
    const char *exported;
    const char *entry;
} names[CALLS] = {
#define NAME_C(name, n) {#name, #name},
#define NAME_MANGLED(mangled, name, n) {#mangled, #name},
#define NAME_FORTRAN(name, NAME, n) MANGLED(NAME_MANGLED, name, NAME, n)
#define NAME_TEST(name, n, flag) {#name, NULL},
#define NAME_MANGLED_TEST(mangled, name, n, flag, error) {#mangled, NULL},
#define NAME_FORTRAN_TEST(name, NAME, n, flag, error) \
    MANGLED(NAME_MANGLED_TEST, name, NAME, n, flag, error)
    CALLS_C(NAME_C) CALLS_FORTRAN(NAME_FORTRAN) TESTS_C(NAME_TEST)
        TESTS_FORTRAN(NAME_FORTRAN_TEST){"shunt_comm_create_mpi",
                                         "shunt_comm_create_mpi"}};

/* --- finding MPI, and the part for it ------------------------------------- */

/* An MPI is recognised by a symbol that only it has. */
static const struct {
    const char *mark;
    const char *file;
    const char *name;
} flavours[] = {
    {"ompi_mpi_comm_world", "mpi-openmpi.so", "Open MPI"},
    {"MPIR_Dup_fn", "mpi-mpich.so", "MPICH"},
};

/* File names of MPI libraries that may be loaded outside the global scope, by a
 * dlopen() of something that needs them (mpi4py). */
static const char *const mpi_files[] = {"libmpi.so.40", "libmpich.so.12",
                                        "libmpi.so.12"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool opened; /* open_part() was called; protected by `lock` */
static const struct shunti_mpi_part *part; /* protected by `lock`; NULL: none */

/* The part's flag. Without a part no call is served, so progress is never
 * due. */
static atomic_bool never_due;
static _Atomic(atomic_bool *) progress_due = &never_due;
static atomic_uint progress_calls;

/* NULL until the target of a call is known; then it never changes. */
static _Atomic(shunti_mpi_function *) targets[CALLS];

static void *symbol(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);

    for (size_t i = 0; !found && i < sizeof(mpi_files) / sizeof(mpi_files[0]);
         i++) {
        /* Make the symbols of the file global, because the part needs them,
         * too. */
        void *file =
            dlopen(mpi_files[i], RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);

        if (file)
            found = dlsym(file, name);
    }
    return found;
}

/* Warn only once in a job: under the usual launchers only rank 0 prints. */
static void complain(const char *what, const char *why)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK",
                                            "PMI_RANK"};

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *rank = getenv(variables[i]);

        if (rank && strcmp(rank, "0"))
            return;
    }
    fprintf(stderr, "shunt-mpi: serves no call, all go to MPI: %s%s\n", what,
            why);
}

/* Load a file from the folder of this library, or from its subfolder shunt/,
 * where it is installed. */
static void *load(const char *file)
{
    static const char *const folders[] = {"shunt/", ""};
    char path[PATH_MAX], *slash;
    void *loaded = NULL;

    if (!shunti_own_file((void *)(uintptr_t)load, path))
        return NULL;
    slash = strrchr(path, '/');
    for (size_t i = 0; i < 2 && !loaded; i++) {
        size_t room = sizeof(path) - (size_t)(slash + 1 - path);

        if ((size_t)snprintf(slash + 1, room, "%s%s", folders[i], file) < room)
            loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return loaded;
}

static void open_part(void)
{
    const size_t count = sizeof(flavours) / sizeof(flavours[0]);
    void *loaded;
    size_t i = 0;

    opened = true;
    while (i < count && !symbol(flavours[i].mark))
        i++;
    if (i == count) {
        complain("this is neither Open MPI nor MPICH", "");
        return;
    }
    loaded = load(flavours[i].file);
    if (!loaded) {
        const char *why = dlerror();

        complain(why ? why : flavours[i].file, "");
        return;
    }
    part = dlsym(loaded, SHUNTI_MPI_PART);
    if (!part || part->abi != SHUNTI_MPI_ABI) {
        complain(flavours[i].file, " is of another version of Shunt");
        part = NULL;
        return;
    }
    atomic_store_explicit(&progress_calls, part->progress_calls,
                          memory_order_relaxed);
    /* Pairs with the acquire in progress_is_due(). */
    atomic_store_explicit(&progress_due, part->progress_due,
                          memory_order_release);
}

static shunti_mpi_function *of_part(const char *entry)
{
    for (size_t i = 0; part && entry && part->entries[i].name; i++)
        if (!strcmp(part->entries[i].name, entry))
            return part->entries[i].call;
    return NULL;
}

/* Returns MPI's own function, found by its profiling name (PMPI_Bcast,
 * pmpi_bcast_). For Fortran functions without a profiling name, returns the
 * next definition after the door's. */
static shunti_mpi_function *of_mpi(const char *exported)
{
    char profiling[64];
    void *found;

    snprintf(profiling, sizeof(profiling), "%c%s",
             exported[0] == 'M' ? 'P' : 'p', exported);
    found = symbol(profiling);
    if (!found)
        found = dlsym(RTLD_NEXT, exported);
    return (shunti_mpi_function *)(uintptr_t)found;
}

/* Called if there is no MPI. The return value is no error code of any MPI. */
static word no_mpi(void)
{
    fprintf(stderr, "shunt-mpi: an MPI function was called, but this process "
                    "has no MPI library\n");
    return (word)INT_MAX;
}

/* Called if there is no part. Returns SHUNT_ERR_UNSUPPORTED. */
static word no_create(void)
{
    return (word)-9;
}

/* Must the part be loaded for this call? Tests never need the part. Calls that
 * free or finalize do not need it, except if statistics are to be printed at
 * the end. */
static bool needs_part(const char *entry)
{
    if (!entry)
        return false;
    if (!strcasecmp(entry, "MPI_Finalize"))
        return getenv(SHUNTI_MPI_STATS_VARIABLE) != NULL;
    return strcasecmp(entry, "MPI_Comm_free") &&
           strcasecmp(entry, "MPI_Comm_disconnect");
}

static shunti_mpi_function *find_target(enum call at)
{
    const char *exported = names[at].exported, *entry = names[at].entry;
    shunti_mpi_function *target;
    bool known;

    pthread_mutex_lock(&lock);
    if (!opened && needs_part(entry))
        open_part();
    target = of_part(entry);
    if (!target && at == AT_shunt_comm_create_mpi)
        target = (shunti_mpi_function *)(uintptr_t)no_create;
    if (!target)
        target = of_mpi(exported);
    known = opened || (target && !entry);
    if (!target)
        target = (shunti_mpi_function *)(uintptr_t)no_mpi;
    if (known)
        atomic_store_explicit(&targets[at], target, memory_order_release);
    pthread_mutex_unlock(&lock);
    return target;
}

static inline shunti_mpi_function *target_of(enum call at)
{
    /* Pairs with the release in find_target(). */
    shunti_mpi_function *target =
        atomic_load_explicit(&targets[at], memory_order_acquire);

    return __builtin_expect(target != NULL, 1) ? target : find_target(at);
}

/* --- tests ---------------------------------------------------------------- */

/* Has a call been served since a test last found nothing? */
static inline bool progress_is_due(void)
{
    /* Pairs with the release in open_part(). */
    return __builtin_expect(
        atomic_load_explicit(
            atomic_load_explicit(&progress_due, memory_order_acquire),
            memory_order_relaxed),
        0);
}

/* Must a test be repeated? The test was made while progress was due. It
 * returned `error`; *flag is zero if it found nothing. *times counts the
 * repetitions. */
static bool has_to_repeat(int error, const int *flag, unsigned *times)
{
    atomic_bool *due =
        atomic_load_explicit(&progress_due, memory_order_acquire);

    if (error)
        return false;
    if (*flag) {
        /* MPI may have received more messages than this test asked for. */
        atomic_store_explicit(due, true, memory_order_relaxed);
        return false;
    }
    /* Clear the flag before the repetitions: calls that are served meanwhile
     * set it again. */
    if (!*times)
        atomic_store_explicit(due, false, memory_order_relaxed);
    return (*times)++ <
           atomic_load_explicit(&progress_calls, memory_order_relaxed);
}

/* --- the exported functions ----------------------------------------------- */

#define PARAMETERS_0 void
#define PARAMETERS_1 word a
#define PARAMETERS_2 PARAMETERS_1, word b
#define PARAMETERS_3 PARAMETERS_2, word c
#define PARAMETERS_4 PARAMETERS_3, word d
#define PARAMETERS_5 PARAMETERS_4, word e
#define PARAMETERS_6 PARAMETERS_5, word f
#define PARAMETERS_7 PARAMETERS_6, word g
#define PARAMETERS_8 PARAMETERS_7, word h
#define PARAMETERS_9 PARAMETERS_8, word i
#define PARAMETERS_10 PARAMETERS_9, word j
#define ARGUMENTS_0
#define ARGUMENTS_1 a
#define ARGUMENTS_2 ARGUMENTS_1, b
#define ARGUMENTS_3 ARGUMENTS_2, c
#define ARGUMENTS_4 ARGUMENTS_3, d
#define ARGUMENTS_5 ARGUMENTS_4, e
#define ARGUMENTS_6 ARGUMENTS_5, f
#define ARGUMENTS_7 ARGUMENTS_6, g
#define ARGUMENTS_8 ARGUMENTS_7, h
#define ARGUMENTS_9 ARGUMENTS_8, i
#define ARGUMENTS_10 ARGUMENTS_9, j

#define PASS(name, n)                                                      \
    DOOR_API word name(PARAMETERS_##n);                                    \
    word name(PARAMETERS_##n)                                              \
    {                                                                      \
        return ((word(*)(PARAMETERS_##n))(uintptr_t)target_of(AT_##name))( \
            ARGUMENTS_##n);                                                \
    }
#define PASS_MANGLED(mangled, name, n) PASS(mangled, n)
#define PASS_FORTRAN(name, NAME, n) MANGLED(PASS_MANGLED, name, NAME, n)

/* Defines a test, and its repetition as a function of its own, so that a test
 * needs no stack frame if no progress is due. */
#define TEST(name, n, flag)                                                \
    __attribute__((noinline)) static word name##_again(PARAMETERS_##n)     \
    {                                                                      \
        word (*const test)(PARAMETERS_##n) =                               \
            (word(*)(PARAMETERS_##n))(uintptr_t)target_of(AT_##name);      \
        unsigned times = 0;                                                \
        word error;                                                        \
                                                                           \
        do                                                                 \
            error = test(ARGUMENTS_##n);                                   \
        while (has_to_repeat((int)error, (const int *)(flag), &times));    \
        return error;                                                      \
    }                                                                      \
    DOOR_API word name(PARAMETERS_##n);                                    \
    word name(PARAMETERS_##n)                                              \
    {                                                                      \
        if (progress_is_due())                                             \
            return name##_again(ARGUMENTS_##n);                            \
        return ((word(*)(PARAMETERS_##n))(uintptr_t)target_of(AT_##name))( \
            ARGUMENTS_##n);                                                \
    }

/* TEST() for a Fortran function, which stores its error code at `error`. The
 * repetition reads the code, because a test that failed must not be repeated:
 * that would call the program's error handler again. If the program passes NULL
 * as `error`, the repetition passes a variable of its own. */
#define TEST_MANGLED(mangled, name, n, flag, error)                            \
    __attribute__((noinline)) static void mangled##again(PARAMETERS_##n)       \
    {                                                                          \
        void (*const test)(PARAMETERS_##n) =                                   \
            (void (*)(PARAMETERS_##n))(uintptr_t)target_of(AT_##mangled);      \
        unsigned times = 0;                                                    \
        int own = 0;                                                           \
                                                                               \
        if (!error)                                                            \
            error = (word)&own;                                                \
        do                                                                     \
            test(ARGUMENTS_##n);                                               \
        while (has_to_repeat(*(const int *)error, (const int *)flag, &times)); \
    }                                                                          \
    DOOR_API void mangled(PARAMETERS_##n);                                     \
    void mangled(PARAMETERS_##n)                                               \
    {                                                                          \
        if (progress_is_due())                                                 \
            mangled##again(ARGUMENTS_##n);                                     \
        else                                                                   \
            ((void (*)(PARAMETERS_##n))(uintptr_t)target_of(AT_##mangled))(    \
                ARGUMENTS_##n);                                                \
    }
#define TEST_FORTRAN(name, NAME, n, flag, error) \
    MANGLED(TEST_MANGLED, name, NAME, n, flag, error)

CALLS_C(PASS)
CALLS_FORTRAN(PASS_FORTRAN)
TESTS_C(TEST)
TESTS_FORTRAN(TEST_FORTRAN)
PASS(shunt_comm_create_mpi, 3)
