// SPDX-License-Identifier: Apache-2.0
#include "tests/moe/batch.h"

#include <stdlib.h>
#include <string.h>

void batch_results(struct batch *b)
{
    b->y = filled(2 * TOKENS_MAX * HIDDEN * sizeof(float));
    b->dx = b->y + TOKENS_MAX * HIDDEN;
}

struct shunt_moe_config batch_config(const struct routing *r,
                                     const struct places *p)
{
    struct shunt_moe_config c =
        config_of(HIDDEN, SHUNT_F32, r->experts, r->topk);

    c.max_tokens = TOKENS_MAX;
    c.placement = p->home;
    c.order = SHUNT_MOE_ORDER_HOMES;
    c.leaf_rows = (size_t)r->leaf;
    return c;
}

int batch_plan_with(struct batch *b,
                    const struct shunt_moe_plan_options *options)
{
    const int rank = b->self->rank;
    int32_t idx[TOKENS_MAX * TOPK_MAX];
    float weight[TOKENS_MAX * TOPK_MAX];
    int n = 0;

    for (int t = 0; t < b->r->tokens[rank]; t++)
        for (int k = 0; k < b->r->topk; k++, n++) {
            idx[n] = b->r->idx[rank][t][k];
            weight[n] = routing_weight(rank, t, k);
        }
    CHECK_OK(b->self->comm, shunt_moe_plan_create_with(
                                b->moe, idx, weight, (size_t)b->r->tokens[rank],
                                options, &b->plan));
    memset(idx, 0xff, sizeof(idx));
    shunt_moe_plan_rows(b->plan, &b->rows, sizeof(b->rows));
    return 0;
}

int batch_plan(struct batch *b, int parts)
{
    struct shunt_moe_plan_options options = SHUNT_MOE_PLAN_OPTIONS_INIT;

    options.parts = parts;
    return batch_plan_with(b, &options);
}

int batch_check_ranges(const struct batch *b)
{
    int i = 0;

    CHECK(b->rows.leaf_rows == (size_t)b->r->leaf, "leaf_rows is %zu",
          b->rows.leaf_rows);
    for (int e = 0; e < b->r->experts; e++) {
        const struct shunt_moe_range *have = &b->rows.range[i];
        int first = 0, count;

        if (!b->p->has[e][b->self->rank])
            continue;
        CHECK(b->rows.expert[i] == e, "expert[%d] is %d, not %d", i,
              (int)b->rows.expert[i], e);
        count = places_range(b->r, b->p, e, b->self->rank, &first);
        CHECK(have->first == (uint64_t)first &&
                  have->count == (uint64_t)count &&
                  have->all == (uint64_t)b->r->rows[e] &&
                  b->rows.count[i] == (size_t)count,
              "expert %d: rows %d to %d of %d, not %d from %d on", e,
              (int)have->first, (int)(have->first + have->count),
              (int)have->all, count, first);
        i++;
    }
    CHECK(i == b->rows.local_experts, "%d experts", b->rows.local_experts);
    return 0;
}

/* Checks rows in the global order: tokens, or weighted tokens. */
static int check_rows(const struct batch *b, const float *rows, bool weighted)
{
    for (int i = 0; i < b->rows.local_experts; i++)
        for (size_t row = 0; row < b->rows.count[i]; row++)
            for (int j = 0; j < HIDDEN; j++) {
                const struct row_from *o =
                    &b->r->row[b->rows.expert[i]][b->rows.range[i].first + row];
                const float x =
                    routing_token(b->number, o->source, o->token, j);
                const float want =
                    weighted ? routing_weight(o->source, o->token, o->slot) * x
                             : x;
                const float have =
                    rows[(b->rows.offset[i] + row) * HIDDEN + (size_t)j];

                CHECK(!memcmp(&have, &want, sizeof(have)),
                      "expert %d, row %zu of %zu, element %d is %g, not %g",
                      (int)b->rows.expert[i], row, b->rows.count[i], j,
                      (double)have, (double)want);
            }
    return 0;
}

/* Since `before`, all ranks together must have sent back as many bytes as all
 * plans together say. In two levels copies add rows, but never more than with
 * FLAT. */
static int check_home(const struct batch *b,
                      const struct shunt_comm_stats *before)
{
    const size_t sum = HIDDEN * sizeof(float);
    struct shunt_comm_stats after;
    uint64_t n[2];

    CHECK(b->rows.network_combine_bytes == b->rows.network_combine_rows * sum ||
              b->rows.combine_mode == SHUNT_MOE_DIRECT,
          "%zu bytes of %zu rows", b->rows.network_combine_bytes,
          b->rows.network_combine_rows);
    CHECK(b->rows.network_combine_rows <= b->rows.network_rows_plain,
          "%zu rows come home of %zu", b->rows.network_combine_rows,
          b->rows.network_rows_plain);
    if (!by_rails(b->rows.combine_mode))
        return 0;
    if (!b->p->nreplicas && b->rows.mode == SHUNT_MOE_TWO_LEVEL)
        CHECK(b->rows.network_combine_rows == b->rows.network_rows,
              "%zu rows come home of %zu", b->rows.network_combine_rows,
              b->rows.network_rows);
    /* When this rank's call ends, it has sent all rows that it relays. */
    CHECK_OK(b->self->comm,
             shunt_comm_get_stats(b->self->comm, &after, sizeof(after)));
    n[0] = after.bytes_remote - before->bytes_remote;
    n[1] = b->rows.network_combine_bytes;
    CHECK_OK(b->self->comm,
             shunt_allreduce(b->self->comm, n, n, 2, SHUNT_U64, SHUNT_SUM));
    CHECK(n[0] == n[1], "%d bytes sent home, not %d as planned", (int)n[0],
          (int)n[1]);
    return 0;
}

int batch_exchange(struct batch *b)
{
    const int tokens = b->r->tokens[b->self->rank];
    const int from = b->r->from[b->self->rank];
    float *rows = shunt_moe_buffer(b->plan, SHUNT_MOE_ROWS);
    float *out = shunt_moe_buffer(b->plan, SHUNT_MOE_OUT);
    float *dout = shunt_moe_buffer(b->plan, SHUNT_MOE_DOUT);
    struct shunt_comm_stats before, after;
    float x[TOKENS_MAX * HIDDEN];

    for (int i = 0; i < tokens * HIDDEN; i++)
        x[i] = routing_token(b->number, b->self->rank, from + i / HIDDEN,
                             i % HIDDEN);
    /* When the barrier ends, everything that this rank relayed in earlier calls
     * has been counted. */
    CHECK_OK(b->self->comm, shunt_barrier(b->self->comm));
    CHECK_OK(b->self->comm,
             shunt_comm_get_stats(b->self->comm, &before, sizeof(before)));
    CHECK_OK(b->self->comm,
             shunt_moe_dispatch(b->plan, x, rows, b->rows.total));
    CHECK_OK(b->self->comm,
             shunt_comm_get_stats(b->self->comm, &after, sizeof(after)));
    /* With FLAT, alltoallv sends the rows, with control messages, so the
     * counter has other bytes. */
    CHECK(b->rows.mode == SHUNT_MOE_FLAT ||
              after.bytes_remote - before.bytes_remote ==
                  b->rows.network_dispatch_bytes,
          "%zu bytes to other nodes, not %zu as planned",
          (size_t)(after.bytes_remote - before.bytes_remote),
          b->rows.network_dispatch_bytes);
    CHECK_RUN(check_rows(b, rows, false));
    for (int i = 0; i < b->rows.local_experts; i++)
        for (size_t q = b->rows.offset[i] * HIDDEN;
             q < b->rows.offset[i + 1] * HIDDEN; q++)
            out[q] = rows[q] * (float)(1 + 3 * b->rows.expert[i]);
    CHECK_OK(b->self->comm,
             shunt_moe_combine(b->plan, out, NULL, b->y + from * HIDDEN));
    CHECK_RUN(check_home(b, &after));
    CHECK_OK(b->self->comm, shunt_moe_combine_backward(b->plan, x, NULL, dout,
                                                       b->rows.total, NULL));
    CHECK_RUN(check_rows(b, dout, true));
    CHECK_OK(b->self->comm,
             shunt_moe_dispatch_backward(b->plan, out, b->dx + from * HIDDEN));
    return 0;
}

int batch_check_loads(const struct batch *b)
{
    int64_t load[EXPERTS_MAX], by[RANKS_MAX * EXPERTS_MAX] = {0};

    CHECK_OK(b->self->comm, shunt_moe_loads(b->plan, load));
    for (int e = 0; e < b->r->experts; e++)
        CHECK(load[e] == b->r->rows[e], "load of %d is %d", e, (int)load[e]);
    /* Without copies, records may have no loads by source. */
    if (!b->p->nreplicas)
        return 0;
    CHECK_OK(b->self->comm, shunt_moe_loads_by_source(b->plan, by));
    for (int e = 0; e < b->r->experts; e++) {
        for (int i = 0; i < b->r->rows[e]; i++)
            by[b->r->row[e][i].source * b->r->experts + e]--;
        for (int s = 0; s < b->r->ranks; s++)
            CHECK(!by[s * b->r->experts + e], "rows of %d for %d", s, e);
    }
    return 0;
}

/* Adds up this rank's leaves. sums[i] is new memory with the sums of local
 * expert i, or NULL if it has no rows. */
static int grow_trees(const struct batch *b, const float *rows, float **sums)
{
    for (int i = 0; i < b->rows.local_experts; i++) {
        const struct shunt_moe_range *range = &b->rows.range[i];
        const size_t room = shunt_moe_tree_room(range, b->rows.leaf_rows);
        struct shunt_moe_tree tree;
        struct shunt_moe_leaf leaf;
        size_t done = 0;

        sums[i] = NULL;
        if (!range->count)
            continue;
        sums[i] = filled(room * ALL * sizeof(float));
        CHECK_OK(b->self->comm,
                 shunt_moe_tree_begin(&tree, range, b->rows.leaf_rows, sums[i],
                                      ALL));
        while (shunt_moe_tree_next(&tree, &leaf)) {
            CHECK(leaf.row == done && leaf.gradient >= sums[i] &&
                      leaf.gradient + ALL <= sums[i] + room * ALL,
                  "leaf of %zu rows from %zu on", leaf.rows, leaf.row);
            rows_product(rows + (b->rows.offset[i] + leaf.row) * HIDDEN,
                         leaf.rows, leaf.gradient);
            done += leaf.rows;
        }
        CHECK(done == range->count, "%zu of %d rows", done, (int)range->count);
        CHECK(tree.sums == shunt_moe_tree_sums(range, b->rows.leaf_rows) &&
                  tree.sums <= room,
              "%zu sums", tree.sums);
        CHECK(range->count < range->all || tree.sums == 1, "%zu sums",
              tree.sums);
    }
    return 0;
}

int batch_reduce(const struct batch *b, struct gradients *g, bool add)
{
    const float *rows = shunt_moe_buffer(b->plan, SHUNT_MOE_ROWS);
    const struct shunt_moe_array array[] = {
        {g->first, FIRST * sizeof(float), sizeof(g->first[0])},
        {g->second, SECOND * sizeof(float), 0}};
    int32_t slot[EXPERTS_MAX];
    const struct shunt_moe_state state = {
        .size = sizeof(state), .array = array, .arrays = 2, .slot = slot};
    struct shunt_request *request = NULL;
    float *sums[EXPERTS_MAX];

    for (int i = 0; i < b->rows.local_experts; i++)
        slot[i] = EXPERTS_MAX - 1 - b->rows.expert[i];
    CHECK_RUN(grow_trees(b, rows, sums));
    if (b->number % 2) {
        CHECK_OK(b->self->comm, shunt_moe_gradients_reduce_start(
                                    b->plan, sums, &state, add, &request));
        /* destroying a wave must have no effect */
        shunt_moe_plan_destroy(b->plan);
        CHECK_OK(b->self->comm, shunt_wait(&request));
    } else {
        CHECK_OK(b->self->comm,
                 shunt_moe_gradients_reduce(b->plan, sums, &state, add));
    }
    for (int i = 0; i < b->rows.local_experts; i++)
        free(sums[i]);
    return 0;
}

int gradients_check(const struct rank *self, struct routing *const *batch,
                    uint64_t batches, const int32_t *home,
                    const struct gradients *g)
{
    for (int e = 0; e < batch[0]->experts; e++) {
        const int slot = EXPERTS_MAX - 1 - e;
        float want[ALL] = {0}, sum[ALL], have[ALL];

        memcpy(have, g->first[slot], FIRST * sizeof(float));
        memcpy(have + FIRST, g->second[slot], SECOND * sizeof(float));
        if (home[e] != self->rank)
            memset(want, 0xff, sizeof(want));
        for (uint64_t n = 0; n < batches && home[e] == self->rank; n++)
            if (routing_gradient(batch[n], e, sum))
                for (int q = 0; q < ALL; q++)
                    want[q] = n ? want[q] + sum[q] : sum[q];
        CHECK(!memcmp(have, want, sizeof(have)),
              "expert %d of %d rows, leaves of %d: %g, not %g", e,
              batch[batches - 1]->rows[e], batch[0]->leaf, (double)have[0],
              (double)want[0]);
    }
    return 0;
}
