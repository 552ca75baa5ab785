// SPDX-License-Identifier: Apache-2.0
/* Wrong arguments of one call, which are refused and named. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/moe/cases.h"
#include "tests/moe/exchange.h"

static int s01_bad_id(const struct rank *self)
{
    static const int32_t bad[] = {-2, 6, INT32_MAX, INT32_MIN};
    struct shunt_moe_config c = config_of(9, SHUNT_F32, 6, 2);
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;
    struct world w;
    char want[64];

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    world_init(&w, &c, self->size, world_nodes(self), REALS, 1, 5, 5, 0);
    for (int b = 0; b < 4; b++) {
        int32_t *id = &w.expert[self->rank][7], good = *id;
        int sinner = b % self->size;
        enum shunt_status st;
        const char *why;

        if (self->rank == sinner)
            *id = bad[b];
        st = plan_of(self, moe, &w, &plan);
        *id = good;
        why = shunt_last_error(self->comm);

        CHECK(!plan, "a plan all the same");
        if (self->rank == sinner) {
            CHECK(st == SHUNT_ERR_INVALID, "%s", rank_why(self->comm, st));
            snprintf(want, sizeof(want), "token 3, slot 1 is %d", bad[b]);
        } else {
            CHECK(st == SHUNT_ERR_REMOTE, "%s", rank_why(self->comm, st));
            snprintf(want, sizeof(want), "rank %d's", sinner);
        }
        CHECK(strstr(why, want), "\"%s\" does not say \"%s\"", why, want);
    }
    /* The exchange must still be usable. */
    CHECK_RUN(run_everything(self, moe, &w, WINDOW));
    world_finish(&w);
    shunt_moe_destroy(moe);
    return 0;
}

static int s07_no_default_weights(const struct rank *self)
{
    struct shunt_moe_config c = config_of(24, SHUNT_F32, 4, 2);
    struct shunt_moe *moe = (struct shunt_moe *)&c;

    c.weights = (enum shunt_moe_weights)0;
    CHECK_STATUS(self->comm, shunt_moe_create(self->comm, &c, &moe),
                 SHUNT_ERR_INVALID);
    CHECK(!moe, "an exchange all the same");
    CHECK(strstr(shunt_last_error(self->comm), "weights"), "%s",
          shunt_last_error(self->comm));
    return 0;
}

/* There is never enough memory for this padding, and its total would wrap
 * around. */
static int capacity_without_end(const struct rank *self)
{
    static const double factors[] = {1e9, 1e15, 1e300};
    const int32_t expert[4] = {0, 1, 1, 0};

    for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++) {
        struct shunt_moe_config c = config_of(30, SHUNT_F32, 2, 1);
        struct shunt_moe_plan *plan;
        struct shunt_moe *moe;
        enum shunt_status st;

        c.row_align = 4;
        c.capacity_factor = factors[i];
        c.pad_to_capacity = true;
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
        st = shunt_moe_plan_create(moe, expert, NULL, 4, &plan);
        CHECK(st == SHUNT_ERR_INVALID || st == SHUNT_ERR_REMOTE, "%g: %d, %s",
              factors[i], (int)st, rank_why(self->comm, st));
        shunt_moe_destroy(moe);
    }
    return 0;
}

/* More assignments than the counts of a plan can hold: they must be refused
 * before any is read. */
static int too_many_assignments(const struct rank *self)
{
    struct shunt_moe_config c = config_of(1, SHUNT_BF16, 4, 4096);
    const int32_t expert = 0;
    struct shunt_moe_plan *plan;
    struct shunt_moe *moe;

    c.max_tokens = 1 << 20;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_STATUS(self->comm,
                 shunt_moe_plan_create(moe, &expert, NULL, c.max_tokens, &plan),
                 SHUNT_ERR_INVALID);
    CHECK(strstr(shunt_last_error(self->comm), "1048576 tokens of top-4096"),
          "%s", shunt_last_error(self->comm));
    shunt_moe_destroy(moe);
    return 0;
}

/* A program may be older or newer than the library. Fields that the program
 * does not have must be defaults. Fields that the library does not have must
 * not be set. */
static int sizes_of_configurations(const struct rank *self)
{
    struct {
        struct shunt_moe_config known;
        unsigned char later[8];
    } c = {.known = config_of(6, SHUNT_F32, 4, 2)};
    const size_t last = offsetof(struct shunt_moe_config, leaf_rows) +
                        sizeof(c.known.leaf_rows);
    unsigned char *const bytes = (unsigned char *)&c;
    struct shunt_moe *moe;

    for (size_t size = last; size <= sizeof(c); size++) {
        c.known.size = size;
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c.known, &moe));
        shunt_moe_destroy(moe);
        if (size == sizeof(c))
            break;
        bytes[size] = 1; /* beyond the struct */
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c.known, &moe));
        shunt_moe_destroy(moe);
        c.known.size = size + 1;
        CHECK_STATUS(self->comm, shunt_moe_create(self->comm, &c.known, &moe),
                     SHUNT_ERR_INVALID);
        CHECK(strstr(shunt_last_error(self->comm), "update the library"), "%s",
              shunt_last_error(self->comm));
        bytes[size] = 0;
    }
    return 0;
}

static int bad_arguments(const struct rank *self)
{
    struct shunt_moe_rows sizes;
    struct shunt_moe_config c = config_of(6, SHUNT_F32, 4, 2), bad;
    struct shunt_moe_plan *plan;
    struct shunt_request *q;
    struct shunt_moe *moe;
    struct world w;
    float x[128] = {0}, rows[1200];
    size_t n;

    world_init(&w, &c, self->size, world_nodes(self), REALS, 2, 3, 9, 0);
    n = w.tokens[self->rank];
    CHECK_STATUS(NULL, shunt_moe_create(NULL, &c, &moe), SHUNT_ERR_INVALID);
    CHECK_STATUS(self->comm, shunt_moe_create(self->comm, NULL, &moe),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(self->comm, shunt_moe_create(self->comm, &c, NULL),
                 SHUNT_ERR_INVALID);
#define REFUSED(field, value)                                              \
    do {                                                                   \
        bad = c;                                                           \
        bad.field = (value);                                               \
        CHECK_STATUS(self->comm, shunt_moe_create(self->comm, &bad, &moe), \
                     SHUNT_ERR_INVALID);                                   \
        CHECK(strstr(shunt_last_error(self->comm), #field), "%s",          \
              shunt_last_error(self->comm));                               \
    } while (0)
    REFUSED(size, 0);
    REFUSED(hidden, 0);
    REFUSED(dtype, SHUNT_F64);
    REFUSED(experts, 0);
    REFUSED(experts, -1);
    REFUSED(topk, 0);
    REFUSED(max_tokens, SIZE_MAX / 2);
    REFUSED(wire, (enum shunt_moe_wire)9);
    REFUSED(drop, (enum shunt_moe_drop)9);
    REFUSED(capacity_factor, (double)INFINITY);
    REFUSED(capacity_factor, (double)NAN);
    REFUSED(plans_in_flight, 1);
    REFUSED(tree_ranks, 2 * self->size + 1 - (self->size == 1) * 4);
    REFUSED(nreplicas, 1);
    REFUSED(tree_nodes, 1);
    REFUSED(order, (enum shunt_moe_order)2);
#undef REFUSED
    {
        int32_t home[4] = {0, 0, 0, self->size};
        struct shunt_moe_replica twice = {0, 0}, nowhere = {0, self->size};

        bad = c;
        bad.placement = home;
        CHECK_STATUS(self->comm, shunt_moe_create(self->comm, &bad, &moe),
                     SHUNT_ERR_INVALID);
        bad = c;
        bad.nreplicas = 1;
        bad.replicas = &twice;
        CHECK_STATUS(self->comm, shunt_moe_create(self->comm, &bad, &moe),
                     SHUNT_ERR_INVALID);
        bad.replicas = &nowhere;
        CHECK_STATUS(self->comm, shunt_moe_create(self->comm, &bad, &moe),
                     SHUNT_ERR_INVALID);
    }

    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_STATUS(NULL, shunt_moe_plan_create(NULL, NULL, NULL, 0, &plan),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(self->comm, shunt_moe_plan_create(moe, NULL, NULL, 3, &plan),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(
        self->comm,
        shunt_moe_plan_create(moe, w.expert[self->rank], NULL, n, NULL),
        SHUNT_ERR_INVALID);
    CHECK_STATUS(
        self->comm,
        shunt_moe_plan_create(moe, w.expert[self->rank], NULL, 65, &plan),
        SHUNT_ERR_INVALID);
    CHECK_OK(self->comm,
             shunt_moe_plan_create(moe, w.expert[self->rank], NULL, n, &plan));
    CHECK_OK(self->comm, shunt_moe_set_placement(moe, NULL, NULL, 0));
    CHECK_STATUS(NULL, shunt_moe_dispatch(NULL, x, rows, 170),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(self->comm, shunt_moe_dispatch(plan, NULL, rows, 200),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(self->comm, shunt_moe_dispatch_start(plan, x, rows, 200, NULL),
                 SHUNT_ERR_INVALID);
    CHECK_STATUS(self->comm,
                 shunt_moe_combine_start(plan, rows, NULL, NULL, &q),
                 SHUNT_ERR_INVALID);
    CHECK(!q, "a request all the same");
    CHECK_STATUS(self->comm, shunt_moe_dispatch_backward(plan, rows, NULL),
                 SHUNT_ERR_INVALID);
    CHECK(shunt_moe_buffer(plan, (enum shunt_moe_buffer)9) == NULL, "buffer");
    CHECK(shunt_moe_buffer(NULL, SHUNT_MOE_ROWS) == NULL, "buffer of none");
    memset(&sizes, 0xff, sizeof(sizes));
    shunt_moe_plan_rows(NULL, &sizes, offsetof(struct shunt_moe_rows, tokens));
    CHECK(sizes.total == 0, "sizes of none");
    CHECK(sizes.tokens == SIZE_MAX, "more was written than there is room for");
    shunt_moe_plan_destroy(plan);
    CHECK_RUN(run_everything(self, moe, &w, WINDOW));
    shunt_moe_destroy(moe);
    world_finish(&w);
    return 0;
}

const struct rank_case arguments_cases[] = {
    {.name = "capacity_without_end", .run = capacity_without_end},
    {.name = "s01_bad_id", .run = s01_bad_id},
    {.name = "s07_no_default_weights", .run = s07_no_default_weights},
    {.name = "too_many_assignments", .run = too_many_assignments},
    {.name = "sizes_of_configurations", .run = sizes_of_configurations},
    {.name = "bad_arguments", .run = bad_arguments},
    {.name = NULL},
};
