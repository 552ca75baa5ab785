// SPDX-License-Identifier: Apache-2.0
/*
 * The properties of a datatype: its size, whether its data is contiguous, and
 * as which type it can be reduced.
 *
 * MPI's predefined types are found in a table by handle, without a call of MPI.
 * The properties of a program's types are an attribute of the type, and are
 * freed with it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "bindings/mpi/dropin.h"

#define SLOTS 256 /* MPI's predefined types are about 70 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int keyval = MPI_KEYVAL_INVALID; /* protected by `lock` */
/* A communicator whose errors are returned; protected by `lock`. */
static MPI_Comm quiet = MPI_COMM_NULL;

struct named {
    MPI_Datatype type;
    struct shunti_mpi_type facts;
};

/* Hash table of predefined types. Entries are set once, under the lock, and
 * never change. */
static _Atomic(struct named *) slots[SLOTS];

/* --- operands of reductions ----------------------------------------------- */

/* All handles with the same representation count as one type: one rank may use
 * MPI_INT and another one MPI_INTEGER. */
enum nature { SIGNED = 1, UNSIGNED, FLOATING };

static const struct {
    MPI_Datatype type;
    enum nature nature;
} arithmetic[] = {
    {MPI_INT, SIGNED},
    {MPI_SIGNED_CHAR, SIGNED},
    {MPI_SHORT, SIGNED},
    {MPI_LONG, SIGNED},
    {MPI_LONG_LONG_INT, SIGNED},
    {MPI_INT8_T, SIGNED},
    {MPI_INT16_T, SIGNED},
    {MPI_INT32_T, SIGNED},
    {MPI_INT64_T, SIGNED},
    {MPI_AINT, SIGNED},
    {MPI_COUNT, SIGNED},
    {MPI_OFFSET, SIGNED},
    {MPI_INTEGER, SIGNED},
    {MPI_INTEGER1, SIGNED},
    {MPI_INTEGER2, SIGNED},
    {MPI_INTEGER4, SIGNED},
    {MPI_INTEGER8, SIGNED},
    {MPI_UNSIGNED_CHAR, UNSIGNED},
    {MPI_UNSIGNED_SHORT, UNSIGNED},
    {MPI_UNSIGNED, UNSIGNED},
    {MPI_UNSIGNED_LONG, UNSIGNED},
    {MPI_UNSIGNED_LONG_LONG, UNSIGNED},
    {MPI_UINT8_T, UNSIGNED},
    {MPI_UINT16_T, UNSIGNED},
    {MPI_UINT32_T, UNSIGNED},
    {MPI_UINT64_T, UNSIGNED},
    {MPI_FLOAT, FLOATING},
    {MPI_DOUBLE, FLOATING},
    {MPI_REAL, FLOATING},
    {MPI_REAL4, FLOATING},
    {MPI_REAL8, FLOATING},
    {MPI_DOUBLE_PRECISION, FLOATING},
};

static enum shunt_dtype dtype_of(MPI_Datatype type, size_t size)
{
    enum nature nature = 0;

    for (size_t i = 0; i < sizeof(arithmetic) / sizeof(arithmetic[0]); i++)
        if (arithmetic[i].type == type)
            nature = arithmetic[i].nature;
    if (nature == FLOATING)
        return size == 4 ? SHUNT_F32 : size == 8 ? SHUNT_F64 : 0;
    if (!nature)
        return 0;
    switch (size) {
    case 1:
        return nature == SIGNED ? SHUNT_I8 : SHUNT_U8;
    case 4:
        return nature == SIGNED ? SHUNT_I32 : SHUNT_U32;
    case 8:
        return nature == SIGNED ? SHUNT_I64 : SHUNT_U64;
    default:
        return 0;
    }
}

enum shunt_op shunti_mpi_op(MPI_Op op)
{
    if (op == MPI_SUM)
        return SHUNT_SUM;
    if (op == MPI_MAX)
        return SHUNT_MAX;
    if (op == MPI_MIN)
        return SHUNT_MIN;
    if (op == MPI_PROD)
        return SHUNT_PROD;
    return 0;
}

/* --- layout --------------------------------------------------------------- */

/* Get size and extent. Returns true if the type has no holes: they are equal,
 * and the lower bound is 0. */
static bool measure(MPI_Datatype type, struct shunti_mpi_type *facts)
{
    MPI_Aint lower, true_lower, true_extent;
    MPI_Count size;

    PMPI_Type_size_x(type, &size);
    PMPI_Type_get_extent(type, &lower, &facts->extent);
    PMPI_Type_get_true_extent(type, &true_lower, &true_extent);
    facts->size = size > 0 ? (size_t)size : 0;
    return size == 0 || (lower == 0 && true_lower == 0 &&
                         size == facts->extent && size == true_extent);
}

static void describe(MPI_Datatype type, struct shunti_mpi_type *facts);

/* Are the `count` blocks of `length` elements of this vector type adjacent? */
static bool vector_straight(const int *integers)
{
    return integers[0] <= 1 || integers[1] == integers[2];
}

/*
 * Are the parts of a type without holes in ascending order? A type may fill its
 * extent and still put the second half first. A few constructors never do that.
 * Types made by any other constructor are packed.
 */
static bool in_order(MPI_Datatype type, int combiner, int nintegers,
                     int naddresses, int ntypes, struct shunti_mpi_type *facts)
{
    struct shunti_mpi_type inner = {0};
    int integers[3], inner_integers, inner_addresses, inner_types, inner_kind;
    MPI_Aint addresses[2];
    MPI_Datatype of;

    if ((combiner != MPI_COMBINER_DUP && combiner != MPI_COMBINER_CONTIGUOUS &&
         combiner != MPI_COMBINER_VECTOR && combiner != MPI_COMBINER_RESIZED) ||
        nintegers > 3 || naddresses > 2 || ntypes != 1)
        return false;
    if (PMPI_Type_get_contents(type, nintegers, naddresses, ntypes, integers,
                               addresses, &of) != MPI_SUCCESS)
        return false;
    describe(of, &inner);
    if (combiner == MPI_COMBINER_DUP)
        facts->dtype = inner.dtype;
    if (combiner == MPI_COMBINER_VECTOR && !vector_straight(integers))
        inner.straight = false;
    PMPI_Type_get_envelope(of, &inner_integers, &inner_addresses, &inner_types,
                           &inner_kind);
    if (inner_kind != MPI_COMBINER_NAMED)
        PMPI_Type_free(&of);
    return inner.straight;
}

static void describe(MPI_Datatype type, struct shunti_mpi_type *facts)
{
    int nintegers, naddresses, ntypes, combiner;

    *facts = (struct shunti_mpi_type){0};
    facts->straight = measure(type, facts);
    PMPI_Type_get_envelope(type, &nintegers, &naddresses, &ntypes, &combiner);
    switch (combiner) {
    case MPI_COMBINER_NAMED:
        facts->dtype = dtype_of(type, facts->size);
        break;
    case MPI_COMBINER_F90_REAL:
    case MPI_COMBINER_F90_COMPLEX:
    case MPI_COMBINER_F90_INTEGER:
        break;
    case MPI_COMBINER_DUP:
        /* Called even if the type is not straight, because it also finds the
         * dtype. */
        facts->straight &=
            in_order(type, combiner, nintegers, naddresses, ntypes, facts);
        break;
    default:
        if (facts->straight && facts->size)
            facts->straight =
                in_order(type, combiner, nintegers, naddresses, ntypes, facts);
        break;
    }
}

/* --- finding types -------------------------------------------------------- */

static unsigned slot_of(MPI_Datatype type)
{
    uintptr_t handle = (uintptr_t)type;

    return (unsigned)((handle ^ handle >> 5 ^ handle >> 12) % SLOTS);
}

static inline const struct shunti_mpi_type *find_named(MPI_Datatype type)
{
    unsigned slot = slot_of(type);
    struct named *named;

    /* Pairs with the release in add_named(). */
    while ((named = atomic_load_explicit(&slots[slot], memory_order_acquire))) {
        if (named->type == type)
            return &named->facts;
        slot = (slot + 1) % SLOTS;
    }
    return NULL;
}

/* Called under the lock. */
SHUNTI_MPI_NOINLINE static const struct shunti_mpi_type *
add_named(MPI_Datatype type)
{
    const struct shunti_mpi_type *found = find_named(type);
    struct named *named = found ? NULL : malloc(sizeof(*named));
    static unsigned count;
    unsigned slot = slot_of(type);

    if (found)
        return found;
    if (!named || count >= SLOTS / 2) {
        free(named);
        return NULL;
    }
    named->type = type;
    describe(type, &named->facts);
    while (atomic_load_explicit(&slots[slot], memory_order_relaxed))
        slot = (slot + 1) % SLOTS;
    atomic_store_explicit(&slots[slot], named, memory_order_release);
    count++;
    return &named->facts;
}

static int drop(MPI_Datatype type, int key, void *attribute, void *extra)
{
    (void)type, (void)key, (void)extra;
    free(attribute);
    return MPI_SUCCESS;
}

/* Create the communicator that is used to query types, so that the program's
 * error handler is not called. Called under the lock. */
static bool quiet_made(void)
{
    if (quiet == MPI_COMM_NULL &&
        (PMPI_Comm_split(MPI_COMM_SELF, 0, 0, &quiet) != MPI_SUCCESS ||
         PMPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN) != MPI_SUCCESS))
        return false;
    return keyval != MPI_KEYVAL_INVALID ||
           PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, drop, &keyval,
                                   NULL) == MPI_SUCCESS;
}

/* Is the type committed? MPI_Pack() refuses types that are not. */
static bool committed(MPI_Datatype type)
{
    char nothing[8] = "";
    int position = 0;

    return PMPI_Pack(nothing, 0, type, nothing, (int)sizeof(nothing), &position,
                     quiet) == MPI_SUCCESS;
}

/* Returns the properties of a type of the program. Called under the lock. */
SHUNTI_MPI_NOINLINE static const struct shunti_mpi_type *
own_facts(MPI_Datatype type)
{
    struct shunti_mpi_type *facts = NULL;
    int found = 0;

    if (!quiet_made())
        return NULL;
    PMPI_Type_get_attr(type, keyval, &facts, &found);
    if (found)
        return facts;
    if (!committed(type))
        return NULL;
    facts = malloc(sizeof(*facts));
    if (!facts)
        return NULL;
    describe(type, facts);
    if (PMPI_Type_set_attr(type, keyval, facts) != MPI_SUCCESS) {
        free(facts);
        return NULL;
    }
    return facts;
}

const struct shunti_mpi_type *shunti_mpi_type(MPI_Datatype type)
{
    const struct shunti_mpi_type *facts = find_named(type);
    int nintegers, naddresses, ntypes, combiner;

    if (__builtin_expect(facts != NULL, 1))
        return facts;
    if (type == MPI_DATATYPE_NULL ||
        PMPI_Type_get_envelope(type, &nintegers, &naddresses, &ntypes,
                               &combiner) != MPI_SUCCESS)
        return NULL;
    pthread_mutex_lock(&lock);
    facts = combiner == MPI_COMBINER_NAMED ? add_named(type) : own_facts(type);
    pthread_mutex_unlock(&lock);
    return facts;
}

void shunti_mpi_types_finish(void)
{
    pthread_mutex_lock(&lock);
    if (keyval != MPI_KEYVAL_INVALID)
        PMPI_Type_free_keyval(&keyval);
    if (quiet != MPI_COMM_NULL)
        PMPI_Comm_free(&quiet);
    pthread_mutex_unlock(&lock);
}
