// SPDX-License-Identifier: Apache-2.0
/* State that layers above src/ keep in a communicator. */

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdlib.h>

#include <shunt/shunt.h>

#include "src/base/shared_env.h"
#include "src/comm.h"

TestSuite(layer, .timeout = 30);

/* The state of a layer that this test declares. It keeps the values that it
 * got. */
struct toy {
    int nranks;
    size_t carry;
    int calls; /* calls before which something was unfinished */
};

static bool ended;

static void begin(void *state, int nranks,
                  const struct shunti_shared_env *values)
{
    struct toy *toy = state;

    toy->nranks = nranks;
    toy->carry = shunti_shared_size(values, "SHUNT_CARRY");
}

static void end(struct shunt_comm *comm);
static void before_call(struct shunt_comm *comm);

static struct shunti_layer layer = {
    .name = "toy",
    .bytes = sizeof(struct toy),
    .begin = begin,
    .end = end,
    .before_call = before_call,
};

static struct toy *toy_of(const struct shunt_comm *comm)
{
    return shunti_layer_state(&comm->layers, &layer);
}

static void end(struct shunt_comm *comm)
{
    ended = toy_of(comm)->nranks == 1;
}

static void before_call(struct shunt_comm *comm)
{
    toy_of(comm)->calls++;
    shunti_layer_finishes(&comm->layers, &layer);
}

__attribute__((constructor)) static void declare_layer(void)
{
    shunti_layer_declare(&layer);
}

static struct shunt_comm *alone(void)
{
    struct shunt_comm *comm = NULL;
    struct shunt_id id;

    cr_assert_eq(shunt_id_create(&id), SHUNT_OK);
    cr_assert_eq(shunt_comm_create(&id, 1, 0, NULL, &comm), SHUNT_OK);
    return comm;
}

Test(layer, begins_and_ends_with_its_communicator)
{
    struct shunt_comm *comm;

    setenv("SHUNT_CARRY", "12k", 1);
    comm = alone();
    cr_assert_eq(toy_of(comm)->nranks, 1);
    cr_assert_eq(toy_of(comm)->carry, 12 << 10);
    cr_assert(!ended);
    shunt_comm_destroy(comm);
    cr_assert(ended);
    /* the structure of the communicator remains, without the state */
    cr_assert_eq(toy_of(comm)->nranks, 0);
}

Test(layer, has_a_state_in_each_communicator)
{
    struct shunt_comm *one = alone(), *two = alone();

    cr_assert_neq(toy_of(one), toy_of(two));
    toy_of(one)->calls = 7;
    cr_assert_eq(toy_of(two)->calls, 0);
    shunt_comm_destroy(one);
    shunt_comm_destroy(two);
}

Test(layer, ends_what_is_unfinished_before_the_next_call)
{
    struct shunt_comm *comm = alone();

    cr_assert_eq(shunt_barrier(comm), SHUNT_OK);
    cr_assert_eq(toy_of(comm)->calls, 0);
    shunti_layer_leaves(&comm->layers, &layer);
    cr_assert(shunti_layer_is_unfinished(&comm->layers, &layer));
    cr_assert_eq(shunt_barrier(comm), SHUNT_OK);
    cr_assert_eq(toy_of(comm)->calls, 1);
    cr_assert(!shunti_layer_is_unfinished(&comm->layers, &layer));
    cr_assert_eq(shunt_barrier(comm), SHUNT_OK);
    cr_assert_eq(toy_of(comm)->calls, 1);
    shunt_comm_destroy(comm);
}
