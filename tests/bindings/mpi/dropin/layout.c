// SPDX-License-Identifier: Apache-2.0

#include "layout.h"

#include <string.h>

static struct layout *add(struct layouts *set, const char *name,
                          MPI_Datatype type)
{
    CHECK(set->n < LAYOUTS);
    struct layout *l = &set->of[set->n++];
    memset(l, 0, sizeof(*l));
    l->name = name;
    l->type = type;
    return l;
}

static struct layout *add_derived(struct layouts *set, const char *name,
                                  MPI_Datatype type)
{
    MPI(MPI_Type_commit(&type));
    struct layout *l = add(set, name, type);
    l->derived = true;
    return l;
}

static void element(struct layout *l, ptrdiff_t at, int size)
{
    CHECK(l->n < LAYOUT_ELEMENTS);
    l->at[l->n] = at;
    l->size[l->n++] = size;
}

static void ints_at(struct layout *l, int n, const int *at, ptrdiff_t extent)
{
    for (int i = 0; i < n; i++)
        element(l, at[i] * (ptrdiff_t)sizeof(int), sizeof(int));
    l->extent = extent * (ptrdiff_t)sizeof(int);
}

/* Make layouts of ints. ints_at() gets the positions of the elements and the
 * extent, in ints. */
static void make_ints(struct layouts *set)
{
    MPI_Datatype t, u;

    ints_at(add(set, "int", MPI_INT), 1, (int[]){0}, 1);

    MPI(MPI_Type_dup(MPI_INT, &t));
    ints_at(add_derived(set, "dup of int", t), 1, (int[]){0}, 1);

    MPI(MPI_Type_contiguous(6, MPI_INT, &t));
    ints_at(add_derived(set, "contiguous", t), 6, (int[]){0, 1, 2, 3, 4, 5}, 6);

    MPI(MPI_Type_vector(3, 2, 4, MPI_INT, &t));
    ints_at(add_derived(set, "vector", t), 6, (int[]){0, 1, 4, 5, 8, 9}, 10);

    MPI(MPI_Type_vector(3, 1, -2, MPI_INT, &t));
    ints_at(add_derived(set, "vector backwards", t), 3, (int[]){0, -2, -4}, 5);

    MPI(MPI_Type_create_hvector(2, 1, 12, MPI_INT, &t));
    ints_at(add_derived(set, "hvector", t), 2, (int[]){0, 3}, 4);

    MPI(MPI_Type_indexed(3, (int[]){1, 3, 2}, (int[]){7, 0, 4}, MPI_INT, &t));
    ints_at(add_derived(set, "indexed", t), 6, (int[]){7, 0, 1, 2, 4, 5}, 8);

    MPI(MPI_Type_create_indexed_block(2, 2, (int[]){3, 0}, MPI_INT, &t));
    ints_at(add_derived(set, "indexed_block", t), 4, (int[]){3, 4, 0, 1}, 5);

    MPI(MPI_Type_create_hindexed(2, (int[]){1, 2}, (MPI_Aint[]){-8, 8}, MPI_INT,
                                 &t));
    ints_at(add_derived(set, "hindexed below 0", t), 3, (int[]){-2, 2, 3}, 6);

    MPI(MPI_Type_create_resized(MPI_INT, -8, 16, &t));
    ints_at(add_derived(set, "resized, lb < 0", t), 1, (int[]){0}, 4);

    /* Instances that interlock, because the extent is less than the span. */
    MPI(MPI_Type_vector(2, 1, 6, MPI_INT, &u));
    MPI(MPI_Type_create_resized(u, 0, 16, &t));
    MPI(MPI_Type_free(&u));
    ints_at(add_derived(set, "interlocking", t), 2, (int[]){0, 6}, 4);

    /* A vector of a type that itself has a gap. */
    MPI(MPI_Type_create_resized(MPI_INT, 0, 8, &u));
    MPI(MPI_Type_vector(2, 2, 3, u, &t));
    MPI(MPI_Type_free(&u));
    ints_at(add_derived(set, "vector of resized", t), 4, (int[]){0, 2, 6, 8},
            10);

    MPI(MPI_Type_create_subarray(2, (int[]){3, 4}, (int[]){2, 3}, (int[]){1, 0},
                                 MPI_ORDER_C, MPI_INT, &t));
    ints_at(add_derived(set, "subarray", t), 6, (int[]){4, 5, 6, 8, 9, 10}, 12);

    MPI(MPI_Type_create_struct(3, (int[]){1, 0, 2}, (MPI_Aint[]){4, 0, 16},
                               (MPI_Datatype[]){MPI_INT, MPI_DOUBLE, MPI_INT},
                               &t));
    ints_at(add_derived(set, "struct", t), 3, (int[]){1, 4, 5}, 5);

    MPI(MPI_Type_vector(2, 1, 2, MPI_INT, &u));
    MPI(MPI_Type_dup(u, &t));
    MPI(MPI_Type_free(&u));
    ints_at(add_derived(set, "dup of vector", t), 2, (int[]){0, 2}, 3);
}

/* Add a (double, int, char) at these offsets. Their order in memory may differ
 * from the order of the signature. */
static void triple(struct layout *l, ptrdiff_t d, ptrdiff_t i, ptrdiff_t c)
{
    element(l, d, sizeof(double));
    element(l, i, sizeof(int));
    element(l, c, sizeof(char));
}

static MPI_Datatype make_struct(ptrdiff_t d, ptrdiff_t i, ptrdiff_t c)
{
    MPI_Datatype t;
    MPI(MPI_Type_create_struct(3, (int[]){1, 1, 1}, (MPI_Aint[]){d, i, c},
                               (MPI_Datatype[]){MPI_DOUBLE, MPI_INT, MPI_CHAR},
                               &t));
    return t;
}

static void make_mixed(struct layouts *set)
{
    struct natural {
        double d;
        int i;
        char c;
    };
    MPI_Datatype t, u;
    struct layout *l;

    u = make_struct(0, offsetof(struct natural, i),
                    offsetof(struct natural, c));
    MPI(MPI_Type_create_resized(u, 0, sizeof(struct natural), &t));
    MPI(MPI_Type_free(&u));
    l = add_derived(set, "natural struct", t);
    triple(l, 0, 8, 12);
    l->extent = sizeof(struct natural);

    u = make_struct(16, 8, 0);
    MPI(MPI_Type_create_resized(u, 0, 32, &t));
    MPI(MPI_Type_free(&u));
    l = add_derived(set, "descending struct", t);
    triple(l, 16, 8, 0);
    l->extent = 32;

    u = make_struct(0, -8, 12);
    MPI(MPI_Type_create_resized(u, -8, 24, &t));
    MPI(MPI_Type_free(&u));
    l = add_derived(set, "struct below 0", t);
    triple(l, 0, -8, 12);
    l->extent = 24;

    u = make_struct(0, 8, 12);
    MPI(MPI_Type_create_resized(u, 0, 16, &t));
    MPI(MPI_Type_free(&u));
    MPI(MPI_Type_vector(2, 1, 3, t, &u));
    MPI(MPI_Type_free(&t));
    l = add_derived(set, "vector of structs", u);
    triple(l, 0, 8, 12);
    triple(l, 48, 56, 60);
    l->extent = 64;

    /* Two structs, one directly behind the other. */
    u = make_struct(0, 8, 12);
    MPI(MPI_Type_create_resized(u, 0, 16, &t));
    MPI(MPI_Type_free(&u));
    MPI(MPI_Type_create_hvector(2, 1, 16, t, &u));
    MPI(MPI_Type_free(&t));
    l = add_derived(set, "hvector of structs", u);
    triple(l, 0, 8, 12);
    triple(l, 16, 24, 28);
    l->extent = 32;
}

void layouts_make(struct layouts *set, enum signature signature)
{
    MPI_Datatype t;

    memset(set, 0, sizeof(*set));
    if (signature == INTS)
        make_ints(set);
    else
        make_mixed(set);
    MPI(MPI_Type_contiguous(0, MPI_INT, &t));
    MPI(MPI_Type_commit(&t));
    set->nothing =
        (struct layout){.name = "nothing", .type = t, .derived = true};
    /* Check that this list and MPI's idea of the type agree. */
    for (int i = 0; i < set->n; i++) {
        MPI_Aint lb, extent;
        MPI(MPI_Type_get_extent(set->of[i].type, &lb, &extent));
        CHECK(extent == set->of[i].extent);
    }
}

void layouts_free(struct layouts *set)
{
    for (int i = 0; i < set->n; i++)
        if (set->of[i].derived)
            MPI(MPI_Type_free(&set->of[i].type));
    MPI(MPI_Type_free(&set->nothing.type));
}

void layout_span(const struct layout *l, int count, ptrdiff_t *lo,
                 ptrdiff_t *hi)
{
    bool any = false;

    *lo = *hi = 0;
    for (int c = 0; c<count; c += count> 1 ? count - 1 : 1) {
        for (int i = 0; i < l->n; i++) {
            ptrdiff_t from = c * l->extent + l->at[i], to = from + l->size[i];
            if (!any || from < *lo)
                *lo = from;
            if (!any || to > *hi)
                *hi = to;
            any = true;
        }
    }
}

static void element_bytes(unsigned char bytes[8], uint64_t key, int number)
{
    uint64_t x = mix(key, (uint64_t)number);
    memcpy(bytes, &x, 8);
}

static void place(struct memory *m, ptrdiff_t at, const struct layout *l,
                  int count, uint64_t key, int first, bool input)
{
    for (int c = 0; c < count; c++) {
        for (int i = 0; i < l->n; i++) {
            unsigned char bytes[8];
            element_bytes(bytes, key, first++);
            ptrdiff_t to = at + c * l->extent + l->at[i];
            if (input)
                memory_set(m, to, bytes, (size_t)l->size[i]);
            else
                memory_expect(m, to, bytes, (size_t)l->size[i]);
        }
    }
}

void layout_set(struct memory *m, ptrdiff_t at, const struct layout *l,
                int count, uint64_t key, int first)
{
    place(m, at, l, count, key, first, true);
}

void layout_expect(struct memory *m, ptrdiff_t at, const struct layout *l,
                   int count, uint64_t key, int first)
{
    place(m, at, l, count, key, first, false);
}

MPI_Datatype layout_at(const struct layout *l, const void *address)
{
    MPI_Datatype type;
    MPI_Aint where;

    MPI(MPI_Get_address(address, &where));
    MPI(MPI_Type_create_hindexed(1, (int[]){1}, &where, l->type, &type));
    MPI(MPI_Type_commit(&type));
    return type;
}
