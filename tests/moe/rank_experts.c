// SPDX-License-Identifier: Apache-2.0
/*
 * Sending the state of experts: to their copies, back to their homes, and to
 * other homes. The right result on each rank is computed by plain loops over
 * all ranks, from the placement alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/moe/expert_state.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SEEDS = 3, MOST = 3000 };
#else
enum { SEEDS = 12, MOST = 5000 };
#endif

/* --- copies ------------------------------------------------------------------------ */

static int refresh(const struct rank *self)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const int experts = 1 + (int)(dice(seed, 20, 0) % EXPERTS_MAX);
        struct shunt_request *request = NULL;
        struct placement p;
        struct shunt_moe *moe;
        struct arrays a;
        uint64_t before, bytes;

        placement_draw(&p, self, experts, seed);
        moe = placement_exchange(self, &p);
        CHECK(moe, "no exchange");
        arrays_make(&a, self, &p, seed, 1, seed % 4 ? MOST : 60);
        for (uint64_t version = 0; version < 2; version++) {
            arrays_write(&a, self, &p, version, false);
            before = bytes_counted(self);
            if (seed % 2) {
                CHECK_OK(self->comm, shunt_moe_replicas_refresh(moe, &a.state));
            } else {
                CHECK_OK(self->comm, shunt_moe_replicas_refresh_start(
                                         moe, &a.state, &request));
                CHECK_OK(self->comm, shunt_wait(&request));
            }
            CHECK_RUN(bytes_sent(self, before, &bytes));
            CHECK_RUN(arrays_check(&a, self, &p, version, true));
            CHECK(bytes == placement_sent_to_nodes(self, &p) * a.each,
                  "seed %d: %llu bytes between nodes, not %llu of %zu",
                  (int)seed, (unsigned long long)bytes,
                  (unsigned long long)placement_sent_to_nodes(self, &p),
                  a.each);
        }
        arrays_drop(&a);
        shunt_moe_destroy(moe);
    }
    return 0;
}

/* On one node, a single copy must move each expert's data from a window to its
 * place, even if there are several arrays. Each rank has copies of both experts
 * of the rank before. */
static int refresh_of_windows(const struct rank *self)
{
    enum { HOME = 2, LOCAL = 2 * HOME, BYTES = 20000, STRIDE = BYTES + 24 };

    const int before = (self->rank + self->size - 1) % self->size;
    struct shunt_comm_stats old, now;
    struct shunt_moe_replica copies[HOME * RANKS_MAX];
    struct shunt_moe_config c = config_of(8, SHUNT_F32, HOME * self->size, 2);
    struct shunt_moe_array array[2];
    struct shunt_moe_state state = {
        .size = sizeof(state), .array = array, .arrays = 2};
    struct shunt_moe *moe;
    unsigned char *memory;

    for (int e = 0; e < c.experts; e++)
        copies[e] = (struct shunt_moe_replica){e, (e / HOME + 1) % self->size};
    c.replicas = copies;
    c.nreplicas = (size_t)c.experts;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    CHECK_OK(self->comm, shunt_mem_alloc(self->comm, 2 * LOCAL * STRIDE,
                                         (void **)(void *)&memory));
    for (int k = 0; k < 2; k++)
        array[k] = (struct shunt_moe_array){memory + (size_t)k * LOCAL * STRIDE,
                                            BYTES, STRIDE};
    /* Slots are ordered by expert. So the copies come first if the rank before
     * is a lower one. */
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < LOCAL; i++) {
            const bool copy = (i < HOME) == (before < self->rank);

            memset(memory + (size_t)(k * LOCAL + i) * STRIDE,
                   copy ? FILL : 1 + k + 2 * (HOME * self->rank + i % HOME),
                   STRIDE);
        }
    /* In the first turn rank 1 passes another size, so no rank may write a
     * copy. */
    for (int turn = 0; turn < 2; turn++) {
        enum shunt_status st;

        array[1].bytes = turn == 0 && self->rank == 1 ? BYTES - 8 : BYTES;
        CHECK_OK(self->comm,
                 shunt_comm_get_stats(self->comm, &old, sizeof(old)));
        st = shunt_moe_replicas_refresh(moe, &state);
        CHECK(st == (turn ? SHUNT_OK : SHUNT_ERR_MISMATCH), "turn %d: %s", turn,
              rank_why(self->comm, st));
        CHECK_OK(self->comm,
                 shunt_comm_get_stats(self->comm, &now, sizeof(now)));
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < LOCAL; i++) {
                const bool copy = (i < HOME) == (before < self->rank);
                const int home = copy ? before : self->rank;
                const unsigned char *at =
                    memory + (size_t)(k * LOCAL + i) * STRIDE;

                for (size_t b = 0; b < STRIDE; b++)
                    CHECK(at[b] == (copy && (!turn || b >= BYTES)
                                        ? FILL
                                        : 1 + k + 2 * (HOME * home + i % HOME)),
                          "turn %d: array %d, slot %d, byte %zu", turn, k, i,
                          b);
            }
    }
    if (shunt_comm_nodes(self->comm) == 1)
        CHECK(now.bytes_mapped - old.bytes_mapped == 2 * HOME * BYTES &&
                  now.bytes_read == old.bytes_read &&
                  now.bytes_staged == old.bytes_staged,
              "%llu bytes by one copy",
              (unsigned long long)(now.bytes_mapped - old.bytes_mapped));
    CHECK_OK(self->comm, shunt_mem_free(self->comm, memory));
    shunt_moe_destroy(moe);
    return 0;
}

/* An element of a rank's gradient. It has several magnitudes, so that the order
 * of a sum changes its bits. */
static float gradient(enum shunt_dtype dtype, int rank, int expert, int k,
                      size_t i)
{
    const uint64_t d = mix((uint64_t)rank, (uint64_t)expert, (uint64_t)k, i);
    const float value = (float)((int)(d >> 20 & 0xffffff) - 0x800000) /
                        0x1p24f * (float)(1 << (d >> 48 & 7));

    return round_to(dtype, value);
}

/* The sum over the nodes that have one: coll.h. */
static float sum_of_nodes(const float *sums, int n)
{
    int half = 1;

    if (n == 1)
        return sums[0];
    while (2 * half < n)
        half *= 2;
    return sum_of_nodes(sums, half) + sum_of_nodes(sums + half, n - half);
}

/* The sum by its definition: first over the ranks of a node, then over the
 * nodes. */
static float gradient_sum(const struct rank *self, const struct placement *p,
                          enum shunt_dtype dtype, int e, int k, size_t i)
{
    float sums[64];
    int n = 0;

    for (int node = 0; node < shunt_comm_nodes(self->comm); node++) {
        bool any_here = false;
        float here = 0;

        for (int r = 0; r < self->size; r++) {
            if (!p->has[e][r] || shunt_comm_node(self->comm, r) != node)
                continue;
            here = any_here ? here + gradient(dtype, r, e, k, i)
                            : gradient(dtype, r, e, k, i);
            any_here = true;
        }
        if (any_here)
            sums[n++] = here;
    }
    return round_to(dtype, n ? sum_of_nodes(sums, n) : 0);
}

static int check_sums(const struct arrays *a, const struct rank *self,
                      const struct placement *p, enum shunt_dtype dtype)
{
    const size_t element = shunt_dtype_size(dtype);

    for (int e = 0; e < p->experts; e++)
        for (int k = 0; k < a->state.arrays && p->has[e][self->rank]; k++)
            for (size_t i = 0; i < a->array[k].bytes / element; i++) {
                const float have =
                    element_get(dtype, arrays_at(a, self, p, e, k), i);
                const float want = p->home[e] == self->rank
                                       ? gradient_sum(self, p, dtype, e, k, i)
                                       : gradient(dtype, self->rank, e, k, i);

                CHECK(!memcmp(&have, &want, sizeof(have)),
                      "expert %d, array %d, element %zu is %g, not %g", e, k, i,
                      (double)have, (double)want);
            }
    return 0;
}

static int reduce(const struct rank *self)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const enum shunt_dtype dtype = seed % 3 ? SHUNT_F32 : SHUNT_BF16;
        const size_t element = shunt_dtype_size(dtype);
        const int experts = 1 + (int)(dice(seed, 21, 0) % EXPERTS_MAX);
        struct shunt_request *request = NULL;
        struct placement p;
        struct shunt_moe *moe;
        struct arrays a;
        uint64_t before, bytes;

        placement_draw(&p, self, experts, 100 + seed);
        moe = placement_exchange(self, &p);
        CHECK(moe, "no exchange");
        arrays_make(&a, self, &p, seed, element, MOST);
        for (int e = 0; e < experts; e++)
            for (int k = 0; k < a.state.arrays && p.has[e][self->rank]; k++)
                for (size_t i = 0; i < a.array[k].bytes / element; i++)
                    element_set(dtype, arrays_at(&a, self, &p, e, k), i,
                                gradient(dtype, self->rank, e, k, i));
        before = bytes_counted(self);
        if (seed % 2) {
            CHECK_OK(self->comm,
                     shunt_moe_replicas_reduce(moe, &a.state, dtype));
        } else {
            CHECK_OK(self->comm, shunt_moe_replicas_reduce_start(
                                     moe, &a.state, dtype, &request));
            CHECK_OK(self->comm, shunt_wait(&request));
        }
        CHECK_RUN(bytes_sent(self, before, &bytes));
        CHECK_RUN(check_sums(&a, self, &p, dtype));
        CHECK(bytes == placement_sent_to_nodes(self, &p) * a.each * 4 / element,
              "seed %d: %llu bytes between nodes", (int)seed,
              (unsigned long long)bytes);
        arrays_drop(&a);
        shunt_moe_destroy(moe);
    }
    return 0;
}

/* Computed by hand: 4 ranks, whose experts are 0 to 3. Expert 0 has copies on
 * ranks 1, 2 and 3, expert 3 on rank 1. */
static int worked_example(const struct rank *self)
{
    static const struct shunt_moe_replica copies[] = {
        {0, 1}, {0, 2}, {0, 3}, {3, 1}};
    /* Local experts of each rank. */
    static const int local[4][3] = {{0}, {0, 1, 3}, {0, 2}, {0, 3}};
    static const int count[4] = {1, 3, 2, 2};
    struct shunt_moe_config c = config_of(8, SHUNT_F32, 4, 2);
    float grad[3], master[3] = {0};
    struct shunt_moe_array array = {.at = grad, .bytes = sizeof(float)};
    const struct shunt_moe_state state = {
        .size = sizeof(state), .array = &array, .arrays = 1};
    struct shunt_moe *moe;

    c.replicas = copies;
    c.nreplicas = 4;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (int i = 0; i < count[self->rank]; i++)
        grad[i] = (float)(10 * local[self->rank][i] + self->rank + 1);
    CHECK_OK(self->comm, shunt_moe_replicas_reduce(moe, &state, SHUNT_F32));
    for (int i = 0; i < count[self->rank]; i++) {
        const int e = local[self->rank][i];
        const float own = (float)(10 * e + self->rank + 1);
        const float want = e != self->rank ? own
                           : e == 0        ? 1 + 2 + 3 + 4
                           : e == 3        ? 34 + 32
                                           : own;

        CHECK(grad[i] == want, "gradient of expert %d is %g", e,
              (double)grad[i]);
    }
    array.at = master;
    for (int i = 0; i < count[self->rank]; i++)
        if (local[self->rank][i] == self->rank)
            master[i] = (float)(100 + self->rank);
    CHECK_OK(self->comm, shunt_moe_replicas_refresh(moe, &state));
    for (int i = 0; i < count[self->rank]; i++)
        CHECK(master[i] == (float)(100 + local[self->rank][i]),
              "expert %d is %g", local[self->rank][i], (double)master[i]);
    shunt_moe_destroy(moe);
    return 0;
}

/* --- moves ------------------------------------------------------------------------- */

static uint64_t sent_by_move(const struct rank *self, const struct placement *p,
                             const struct placement *q)
{
    uint64_t n = 0;

    for (int e = 0; e < p->experts; e++)
        n += shunt_comm_node(self->comm, p->home[e]) !=
             shunt_comm_node(self->comm, q->home[e]);
    return n;
}

static int set(const struct rank *self, struct shunt_moe *moe,
               const struct placement *p)
{
    CHECK_OK(self->comm,
             shunt_moe_set_placement(moe, p->home, p->replicas, p->nreplicas));
    return 0;
}

/* Moves experts to other memory, and back. */
static int move(const struct rank *self)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const int experts = 1 + (int)(dice(seed, 22, 0) % EXPERTS_MAX);
        struct shunt_request *request = NULL;
        struct placement p, q;
        struct shunt_moe *moe;
        struct arrays from, to;
        uint64_t before, bytes;

        placement_draw(&p, self, experts, 200 + seed);
        placement_draw(&q, self, experts, 300 + seed);
        moe = placement_exchange(self, &p);
        CHECK(moe, "no exchange");
        arrays_make(&from, self, &p, seed, 1, MOST);
        arrays_make(&to, self, &q, seed, 1, MOST);
        arrays_write(&from, self, &p, seed, false);
        before = bytes_counted(self);
        CHECK_OK(self->comm,
                 shunt_moe_move(moe, q.home, q.replicas, q.nreplicas,
                                &from.state, &to.state));
        CHECK_RUN(bytes_sent(self, before, &bytes));
        CHECK(bytes == sent_by_move(self, &p, &q) * from.each,
              "%llu bytes between nodes", (unsigned long long)bytes);
        CHECK_RUN(arrays_check(&from, self, &p, seed, false));
        CHECK_RUN(arrays_check(&to, self, &q, seed, false));
        CHECK_RUN(set(self, moe, &q));
        CHECK_OK(self->comm, shunt_moe_replicas_refresh(moe, &to.state));
        CHECK_RUN(arrays_check(&to, self, &q, seed, true));
        arrays_write(&to, self, &q, seed + 1000, true);
        CHECK_OK(self->comm,
                 shunt_moe_move_start(moe, p.home, p.replicas, p.nreplicas,
                                      &to.state, &from.state, &request));
        CHECK_OK(self->comm, shunt_wait(&request));
        CHECK_RUN(arrays_check(&from, self, &p, seed + 1000, false));
        arrays_drop(&from);
        arrays_drop(&to);
        shunt_moe_destroy(moe);
    }
    return 0;
}

/* Moves experts within the same memory. Experts arrive in slots that others
 * leave. */
static int move_in_place(const struct rank *self)
{
    enum { EXPERTS = 12, BYTES = 700 };

    struct placement p, q;
    struct shunt_moe *moe;
    unsigned char *memory = filled(EXPERTS * BYTES);
    struct shunt_moe_array array = {.at = memory, .bytes = BYTES};
    const struct shunt_moe_state state = {
        .size = sizeof(state), .array = &array, .arrays = 1};
    int i = 0;

    placement_draw(&p, self, EXPERTS, 1);
    p.nreplicas = 0;
    for (int e = 0; e < EXPERTS; e++)
        for (int r = 0; r < self->size; r++)
            p.has[e][r] = p.home[e] == r;
    moe = placement_exchange(self, &p);
    CHECK(moe, "no exchange");
    for (int e = 0; e < EXPERTS; e++)
        if (p.home[e] == self->rank)
            memset(memory + (i++) * BYTES, 1 + e, BYTES);
    for (uint64_t turn = 0; turn < 6; turn++) {
        q = p;
        for (int e = 0; e < EXPERTS; e++)
            q.home[e] =
                (int32_t)(dice(turn, 30, (uint64_t)e) % (uint64_t)self->size);
        CHECK_OK(self->comm,
                 shunt_moe_move(moe, q.home, NULL, 0, &state, &state));
        CHECK_RUN(set(self, moe, &q));
        i = 0;
        for (int e = 0; e < EXPERTS; e++) {
            if (q.home[e] != self->rank)
                continue;
            for (size_t b = 0; b < BYTES; b++)
                CHECK(memory[(size_t)i * BYTES + b] == 1 + e,
                      "turn %d: expert %d", (int)turn, e);
            i++;
        }
    }
    shunt_moe_destroy(moe);
    free(memory);
    return 0;
}

/* --- together with other calls -------------------------------------------- */

/* A refresh, a reduction and a move are under way at once, beside a plan and
 * its calls. Each rank waits for them in another order. */
static int under_way(const struct rank *self)
{
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        enum { REQUESTS = 3, EXPERTS = 8 };

        struct shunt_moe_config c = config_of(8, SHUNT_F32, EXPERTS, 2);
        struct shunt_request *request[REQUESTS] = {NULL};
        struct arrays a, grad, to;
        struct placement p, q;
        struct shunt_moe *moe;
        struct world w;

        placement_draw(&p, self, EXPERTS, 400 + seed);
        placement_draw(&q, self, EXPERTS, 500 + seed);
        c.placement = p.home;
        c.replicas = p.replicas;
        c.nreplicas = p.nreplicas;
        moe = placement_exchange(self, &p);
        CHECK(moe, "no exchange");
        arrays_make(&a, self, &p, seed, 1, MOST);
        arrays_make(&to, self, &q, seed, 1, MOST);
        arrays_make(&grad, self, &p, seed + 50, 4, MOST);
        arrays_write(&a, self, &p, seed, false);
        for (int e = 0; e < EXPERTS; e++)
            for (int k = 0; k < grad.state.arrays && p.has[e][self->rank]; k++)
                for (size_t i = 0; i < grad.array[k].bytes / 4; i++)
                    element_set(SHUNT_F32, arrays_at(&grad, self, &p, e, k), i,
                                gradient(SHUNT_F32, self->rank, e, k, i));
        CHECK_OK(self->comm, shunt_moe_replicas_reduce_start(
                                 moe, &grad.state, SHUNT_F32, &request[0]));
        CHECK_OK(self->comm,
                 shunt_moe_replicas_refresh_start(moe, &a.state, &request[1]));
        CHECK_OK(self->comm,
                 shunt_moe_move_start(moe, q.home, q.replicas, q.nreplicas,
                                      &a.state, &to.state, &request[2]));
        world_init(&w, &c, self->size, world_nodes(self), REALS, seed, 0, 20,
                   5);
        CHECK_RUN(run_everything(self, moe, &w, seed % 2 ? HEAP : WINDOW));
        world_finish(&w);
        CHECK_RUN(set(self, moe, &q));
        for (int i = 0; i < REQUESTS; i++) {
            const int which = (i + self->rank) % REQUESTS;

            CHECK_OK(self->comm, shunt_wait(&request[which]));
        }
        CHECK_RUN(arrays_check(&a, self, &p, seed, true));
        CHECK_RUN(arrays_check(&to, self, &q, seed, false));
        CHECK_RUN(check_sums(&grad, self, &p, SHUNT_F32));
        arrays_drop(&a);
        arrays_drop(&to);
        arrays_drop(&grad);
        shunt_moe_destroy(moe);
    }
    return 0;
}

/* A plan must keep the placement with which it was made. Old plans are used
 * after a new one was made, in turn with new ones. */
static int old_plans(const struct rank *self, enum shunt_moe_order order)
{
    enum { PLACEMENTS = 3, EXPERTS = 9 };

    struct shunt_moe_config c = config_of(20, SHUNT_F32, EXPERTS, 3);
    struct placement p[PLACEMENTS];
    struct world w[PLACEMENTS];
    struct run run[PLACEMENTS];
    struct shunt_moe *moe;

    placement_draw(&p[0], self, EXPERTS, 600);
    c.order = order;
    c.placement = p[0].home;
    c.replicas = p[0].replicas;
    c.nreplicas = p[0].nreplicas;
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    for (int i = 0; i < PLACEMENTS; i++) {
        if (i) {
            placement_draw(&p[i], self, EXPERTS, 600 + (uint64_t)i);
            if (i == 1) { /* no copies */
                p[i].nreplicas = 0;
                for (int e = 0; e < EXPERTS; e++)
                    for (int r = 0; r < self->size; r++)
                        p[i].has[e][r] = p[i].home[e] == r;
            }
            c.placement = p[i].home;
            c.replicas = p[i].replicas;
            c.nreplicas = p[i].nreplicas;
            CHECK_RUN(set(self, moe, &p[i]));
        }
        world_init(&w[i], &c, self->size, world_nodes(self), REALS,
                   10 + (uint64_t)i, 0, 20, 5);
        CHECK_RUN(run_begin(&run[i], self, moe, &w[i], i % 2 ? HEAP : WINDOW));
        for (int turn = 0; turn < 2; turn++)
            for (int j = i; j >= 0; j--) {
                CHECK_RUN(run_dispatch(&run[j]));
                CHECK_RUN(run_combine(&run[j], turn));
                CHECK_RUN(run_backward(&run[j], true));
            }
    }
    for (int i = 0; i < PLACEMENTS; i++) {
        CHECK_RUN(run_end(&run[i]));
        world_finish(&w[i]);
    }
    shunt_moe_destroy(moe);
    return 0;
}

/* Old plans must work with both orders. With the order of homes, a placement
 * with copies has lists of its own for combine, and one without copies has
 * none. */
static int plans_of_old_placements(const struct rank *self)
{
    CHECK_RUN(old_plans(self, SHUNT_MOE_ORDER_COPIES));
    return old_plans(self, SHUNT_MOE_ORDER_HOMES);
}

/* One rank combines by a plan of the old placement. The others combine by one
 * of the new placement, which has other lists for combine. All ranks must get
 * an error, and the next calls must succeed. */
static int mistake(const struct rank *self, int without)
{
    enum { EXPERTS = 9 };

    struct shunt_moe_config c = config_of(20, SHUNT_F32, EXPERTS, 3);
    struct placement p[2];
    struct world w[2];
    struct run run[2];
    struct shunt_moe *moe;

    c.order = SHUNT_MOE_ORDER_HOMES;
    for (int i = 0; i < 2; i++) {
        placement_draw(&p[i], self, EXPERTS, 700);
        if (i == without)
            p[i].nreplicas = 0;
        c.placement = p[i].home;
        c.replicas = p[i].replicas;
        c.nreplicas = p[i].nreplicas;
        if (i == 0)
            CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
        else
            CHECK_RUN(set(self, moe, &p[i]));
        world_init(&w[i], &c, self->size, world_nodes(self), REALS, 20, 1, 20,
                   5);
        CHECK_RUN(run_begin(&run[i], self, moe, &w[i], WINDOW));
    }
    for (int turn = 0; turn < 4; turn++) {
        const struct run *mine = &run[(self->rank == 1) ^ (turn % 2)];

        CHECK(shunt_moe_combine(mine->plan, mine->buffer[1], NULL, mine->y),
              "no error");
        for (int i = 0; i < 2; i++) {
            CHECK_RUN(run_dispatch(&run[i]));
            CHECK_RUN(run_combine(&run[i], false));
        }
    }
    for (int i = 0; i < 2; i++) {
        CHECK_RUN(run_end(&run[i]));
        world_finish(&w[i]);
    }
    shunt_moe_destroy(moe);
    return 0;
}

/* The placement without copies is the old one, then the new one. */
static int old_plan_by_mistake(const struct rank *self)
{
    CHECK_RUN(mistake(self, 0));
    return mistake(self, 1);
}

/* --- wrong calls ---------------------------------------------------------------------- */

static int refused(const struct rank *self)
{
    static const int32_t twice[] = {3, 3, 3, 3}, below[] = {0, -1, 2, 3};
    const bool bad = self->rank == 1;
    float memory[8] = {0};
    struct shunt_moe_array array = {.at = memory, .bytes = 4};
    const struct shunt_moe_state good = {
        .size = sizeof(good), .array = &array, .arrays = 1};
    const int experts = 2 * self->size;
    struct shunt_moe_config c = config_of(8, SHUNT_F32, experts, 2);
    struct shunt_moe_state state;
    struct shunt_moe *moe;
    enum shunt_status st;

#define REFRESH(status, text, ...)                                  \
    do {                                                            \
        state = good;                                               \
        array = (struct shunt_moe_array){.at = memory, .bytes = 4}; \
        if (bad) {                                                  \
            __VA_ARGS__;                                            \
        }                                                           \
        st = shunt_moe_replicas_refresh(moe, &state);               \
        CHECK_RUN(rank_check_refused(self, st, status, text));      \
    } while (0)
    CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe));
    st = shunt_moe_replicas_refresh(moe, bad ? NULL : &good);
    CHECK_RUN(rank_check_refused(self, st, SHUNT_ERR_INVALID, "state is NULL"));
    REFRESH(SHUNT_ERR_INVALID, "state->size is 0", state.size = 0);
    REFRESH(SHUNT_ERR_INVALID, "state->arrays is -1", state.arrays = -1);
    REFRESH(SHUNT_ERR_INVALID, "array NULL", state.array = NULL);
    REFRESH(SHUNT_ERR_INVALID, "array[0].at is NULL", array.at = NULL);
    REFRESH(SHUNT_ERR_INVALID, "stride is 2, less than its 4",
            array.stride = 2);
    REFRESH(SHUNT_ERR_INVALID, "beyond the address space",
            array.stride = SIZE_MAX / 2);
    REFRESH(SHUNT_ERR_INVALID, "which another expert has", state.slot = twice);
    REFRESH(SHUNT_ERR_INVALID, "slot[1], of expert 3, is -1",
            state.slot = below);
    array = (struct shunt_moe_array){.at = memory, .bytes = 4};
    st = shunt_moe_replicas_reduce(moe, &good, bad ? SHUNT_I32 : SHUNT_F32);
    CHECK_RUN(rank_check_refused(self, st, SHUNT_ERR_INVALID, "f32 or bf16"));
    if (bad)
        array.bytes = 6;
    st = shunt_moe_replicas_reduce(moe, &good, SHUNT_F32);
    CHECK_RUN(
        rank_check_refused(self, st, SHUNT_ERR_INVALID, "multiples of 4"));
    array.bytes = 4;
    st = shunt_moe_move(moe, bad ? (const int32_t[64]){99} : NULL, NULL, 0,
                        &good, &good);
    CHECK_RUN(
        rank_check_refused(self, st, SHUNT_ERR_INVALID, "placement[0] is 99"));
    state = good;
    state.arrays = 0;
    st = shunt_moe_move(moe, NULL, NULL, 0, &good, bad ? &state : &good);
    CHECK_RUN(
        rank_check_refused(self, st, SHUNT_ERR_INVALID, "different arrays"));
    st = bad ? shunt_moe_replicas_refresh_start(moe, &good, NULL)
             : shunt_moe_replicas_refresh(moe, &good);
    CHECK_RUN(
        rank_check_refused(self, st, SHUNT_ERR_INVALID, "request is NULL"));
    /* Afterwards the exchange must work as before. */
    CHECK_OK(self->comm, shunt_moe_replicas_refresh(moe, &good));
    if (bad)
        shunt_moe_destroy(moe);
    st = shunt_moe_replicas_refresh(moe, &good);
    CHECK_RUN(rank_check_refused(self, st, SHUNT_ERR_INVALID, "destroyed"));
    shunt_moe_destroy(moe);
    return 0;
#undef REFRESH
}

/* Ranks pass different arguments. Nothing may be written, and all ranks must be
 * in step again. */
static int mismatch(const struct rank *self)
{
    const bool bad = self->rank == 1;
    float memory[8] = {0}, other[8] = {0};
    struct shunt_moe_array array = {.at = memory, .bytes = 4};
    struct shunt_moe_array others = {.at = other, .bytes = 4};
    const struct shunt_moe_state state = {
        .size = sizeof(state), .array = &array, .arrays = 1};
    const struct shunt_moe_state to = {
        .size = sizeof(to), .array = &others, .arrays = 1};
    const int experts = 2 * self->size;
    struct shunt_moe_config c = config_of(8, SHUNT_BF16, experts, 2);
    struct shunt_moe_replica copies[] = {{0, self->size - 1}};
    int32_t home[64];
    struct shunt_moe *moe[2];

    c.replicas = copies;
    c.nreplicas = 1;
    for (int i = 0; i < 2; i++)
        CHECK_OK(self->comm, shunt_moe_create(self->comm, &c, &moe[i]));
    for (int e = 0; e < experts; e++)
        home[e] = (e / 2 + 1) % self->size;
    for (int i = 0; i < 8; i++)
        memory[i] = self->rank == 0 ? 5 : 7;
    for (int what = 0; what < 5; what++) {
        enum shunt_status st;

        array.bytes = others.bytes = bad && what == 0 ? 8 : 4;
        if (what == 0)
            st = shunt_moe_replicas_refresh(moe[0], &state);
        else if (what == 1)
            st = shunt_moe_replicas_refresh(moe[bad], &state);
        else if (what == 2)
            st = shunt_moe_replicas_reduce(moe[0], &state,
                                           bad ? SHUNT_BF16 : SHUNT_F32);
        else if (what == 3)
            st =
                shunt_moe_move(moe[0], bad ? home : NULL, NULL, 0, &state, &to);
        else
            st = shunt_moe_move(moe[0], NULL, bad ? NULL : copies, !bad, &state,
                                &to);
        CHECK(st == SHUNT_ERR_MISMATCH, "%d: %s", what,
              rank_why(self->comm, st));
        CHECK(strstr(shunt_last_error(self->comm), "rank 1"), "%s",
              shunt_last_error(self->comm));
        for (int i = 0; i < 8; i++)
            CHECK(memory[i] == (self->rank == 0 ? 5 : 7) && other[i] == 0,
                  "%d: written", what);
    }
    array.bytes = 4;
    CHECK_OK(self->comm, shunt_moe_replicas_refresh(moe[0], &state));
    CHECK(memory[self->rank == self->size - 1 ? 0 : 1] ==
              (self->rank == 0                ? 5
               : self->rank == self->size - 1 ? 5
                                              : 7),
          "%g", (double)memory[0]);
    /* Rank 1 calls a barrier instead, and all ranks must get an error. */
    CHECK(bad ? shunt_barrier(self->comm)
              : shunt_moe_replicas_refresh(moe[0], &state),
          "no error");
    CHECK_OK(self->comm, shunt_moe_replicas_refresh(moe[0], &state));
    for (int i = 0; i < 2; i++)
        shunt_moe_destroy(moe[i]);
    return 0;
}

/* Calls until rank 1 is killed: the error must name it. */
static int loss(const struct rank *self)
{
    enum { EXPERTS = 6, BYTES = 200000 };

    struct placement p, q;
    struct shunt_moe *moe;
    struct arrays a, to;
    enum shunt_status st = SHUNT_OK;
    const int *lost;
    size_t nlost;

    placement_draw(&p, self, EXPERTS, 1);
    placement_draw(&q, self, EXPERTS, 2);
    moe = placement_exchange(self, &p);
    CHECK(moe, "no exchange");
    arrays_make(&a, self, &p, 3, 4, BYTES);
    arrays_make(&to, self, &q, 3, 4, BYTES);
    arrays_write(&a, self, &p, 0, true);
    rank_say("in the loop");
    while (st == SHUNT_OK) {
        st = shunt_moe_replicas_refresh(moe, &a.state);
        if (!st)
            st = shunt_moe_move(moe, q.home, q.replicas, q.nreplicas, &a.state,
                                &to.state);
        if (!st)
            st = shunt_moe_replicas_reduce(moe, &a.state, SHUNT_BF16);
    }
    CHECK(st == SHUNT_ERR_PEER, "%s", rank_why(self->comm, st));
    CHECK(strstr(shunt_last_error(self->comm), "rank 1"), "%s",
          shunt_last_error(self->comm));
    CHECK_OK(NULL, shunt_comm_lost(self->comm, &lost, &nlost));
    CHECK(nlost == 1 && lost[0] == 1, "%zu lost", nlost);
    arrays_drop(&a);
    arrays_drop(&to);
    shunt_moe_destroy(moe);
    return 0;
}

static const struct rank_case cases[] = {
    {"worked_example", worked_example, .min_ranks = 4, .max_ranks = 4},
    {"refresh", refresh, .min_ranks = 1},
    {"refresh_of_windows", refresh_of_windows, .min_ranks = 2},
    {"reduce", reduce, .min_ranks = 1},
    {"move", move, .min_ranks = 1},
    {"move_in_place", move_in_place, .min_ranks = 1},
    {"under_way", under_way, .min_ranks = 1},
    {"plans_of_old_placements", plans_of_old_placements, .min_ranks = 1},
    {"old_plan_by_mistake", old_plan_by_mistake, .min_ranks = 2},
    {"refused", refused, .min_ranks = 2},
    {"mismatch", mismatch, .min_ranks = 2},
    {"loss", loss, .min_ranks = 2, .breaks_comm = true, .no_threads = true},
    {.name = NULL},
};

int main(int argc, char **argv)
{
    return rank_main(argc, argv, cases);
}
