// SPDX-License-Identifier: Apache-2.0
/* Calls in parts, for exchange.h. */
#include <stdlib.h>
#include <string.h>

#include "tests/moe/exchange.h"

int test_parts(void)
{
    const char *given = getenv("SHUNT_TEST_PARTS");

    return given ? atoi(given) : 1;
}

void *run_array(const struct run *run, const void *array, size_t count)
{
    return count || run->calls % 2 ? (void *)(uintptr_t)array : NULL;
}

enum shunt_status run_start_part(struct run *run, int which, int part,
                                 bool bias, bool dweight,
                                 struct shunt_request **request)
{
    struct shunt_moe_plan *plan = run->plan;
    const size_t total = run->rows.total, tokens = run->rows.tokens;
    const bool any = run->calls++ & 2 && !tokens;
    const void *x = run_array(run, run->x, tokens);
    void *y = run_array(run, run->y, tokens);
    const void *added = bias ? run_array(run, run->bias, tokens) : NULL;
    float *products =
        dweight || any ? run_array(run, run->dweight, tokens) : NULL;
    const void *out;
    void *b[4];

    for (int i = 0; i < 4; i++)
        b[i] = run_array(run, run->buffer[i], total);
    out = dweight || any ? b[1] : NULL;
    if (part == run->rows.parts)
        switch (which) {
        case 0:
            return shunt_moe_dispatch_start(plan, x, b[0], total, request);
        case 1:
            return shunt_moe_combine_start(plan, b[1], added, y, request);
        case 2:
            return shunt_moe_combine_backward_start(plan, x, out, b[2], total,
                                                    products, request);
        default:
            return shunt_moe_dispatch_backward_start(plan, b[3], y, request);
        }
    switch (which) {
    case 0:
        return shunt_moe_dispatch_part_start(plan, part, x, b[0], total,
                                             request);
    case 1:
        return shunt_moe_combine_part_start(plan, part, b[1], added, y,
                                            request);
    case 2:
        return shunt_moe_combine_backward_part_start(plan, part, x, out, b[2],
                                                     total, products, request);
    default:
        return shunt_moe_dispatch_backward_part_start(plan, part, b[3], y,
                                                      request);
    }
}

/* The part of a token by the words of moe_parts.h: the parts are as equal as
 * possible. */
static int part_of(size_t token, size_t tokens, int parts)
{
    int p = 0;

    while (token >= tokens * (size_t)(p + 1) / (size_t)parts)
        p++;
    return p;
}

/* True if the row with this index at its receiver belongs to a token of this
 * part. */
static bool row_is_of(const struct run *run, size_t row, int part)
{
    const struct world *w = run->world;
    const struct origin *o = &w->rows[run->self->rank].origin[row];

    return o->source >= 0 &&
           part_of(o->token, w->tokens[o->source], run->rows.parts) == part;
}

/* A part's ranges must contain exactly the rows of its tokens. There must be as
 * few ranges as possible. */
static int check_part_rows(const struct run *run, int part)
{
    const struct rows *want = &run->world->rows[run->self->rank];
    struct shunt_moe_part_rows in;
    size_t rows = 0, at = 0;

    CHECK_OK(run->self->comm,
             shunt_moe_part_rows(run->plan, part, &in, sizeof(in)));
    CHECK(in.first_token ==
              run->rows.tokens * (size_t)part / (size_t)run->rows.parts,
          "part %d begins with token %zu of %zu", part, in.first_token,
          run->rows.tokens);
    CHECK(in.first_token + in.tokens ==
              run->rows.tokens * (size_t)(part + 1) / (size_t)run->rows.parts,
          "part %d has %zu tokens", part, in.tokens);
    CHECK(in.local_experts == want->local, "%d experts", in.local_experts);
    CHECK(in.first_range[0] == 0, "the first range is %zu", in.first_range[0]);
    for (int e = 0; e < want->local; e++)
        for (size_t r = in.first_range[e]; r < in.first_range[e + 1]; r++) {
            CHECK(in.offset[r] >= at, "range %zu begins at %zu", r,
                  in.offset[r]);
            CHECK(r == in.first_range[e] || in.offset[r] > at,
                  "ranges %zu and %zu are one", r - 1, r);
            for (; at < in.offset[r]; at++)
                CHECK(!row_is_of(run, at, part), "row %zu is of part %d", at,
                      part);
            CHECK(in.count[r] > 0, "range %zu has no rows", r);
            for (; at < in.offset[r] + in.count[r]; at++)
                CHECK(row_is_of(run, at, part) &&
                          want->origin[at].expert == want->expert[e],
                      "row %zu is not of part %d and expert %d", at, part,
                      want->expert[e]);
            rows += in.count[r];
        }
    for (; at < want->total; at++)
        CHECK(!row_is_of(run, at, part), "row %zu is of part %d", at, part);
    CHECK(in.rows == rows, "part %d has %zu rows, not %zu", part, in.rows,
          rows);
    return 0;
}

/* Writes the experts' rows of one part. A call of that part may read no other
 * rows. */
static void fill_part(const struct run *run, unsigned char *to, int kind,
                      int part)
{
    const struct world *w = run->world;
    float values[ROW_MOST];

    for (size_t r = 0; r < w->rows[run->self->rank].total; r++) {
        if (!row_is_of(run, r, part))
            continue;
        world_values(w, kind, run->self->rank, r, values);
        row_set(w, to + r * run->bytes, values);
    }
}

static void shuffle(uint64_t seed, int n, int *order)
{
    for (int i = 0; i < n; i++) {
        const int j = (int)(mix(seed, (uint64_t)i, 0, 0) % (uint64_t)(i + 1));

        order[i] = order[j];
        order[j] = i;
    }
}

/* Starts a call. Rows that the call reads are written part by part, before it
 * starts. Rows that a dispatch writes are checked when its request is done. */
static int start(struct run *run, int which, int part, bool bias, bool dweight,
                 struct shunt_request **request)
{
    const bool reads = which == 1 || which == 3 || (which == 2 && dweight);

    if (reads)
        fill_part(run, run->buffer[which == 3 ? 3 : 1],
                  which == 3 ? KIND_DROWS : KIND_OUT, part);
    CHECK_OK(run->self->comm,
             run_start_part(run, which, part, bias, dweight, request));
    return 0;
}

int run_parts(struct run *run, int which, bool bias, bool dweight)
{
    struct shunt_request *request[SHUNT_MOE_PARTS_MAX] = {NULL};
    const int parts = run->rows.parts,
              kind = which == 3 ? KIND_DROWS : KIND_OUT;
    unsigned char *rows = run->buffer[which == 3 ? 3 : 1];
    struct shunt_comm_stats before, after;
    int order[SHUNT_MOE_PARTS_MAX];

    run->order++;
    if (parts == 1 || run->order % 4 == 0) { /* all at once */
        if (which)
            run_fill_rows(run, rows, kind);
        CHECK_OK(run->self->comm,
                 run_start_part(run, which, parts, bias, dweight, request));
        CHECK_OK(run->self->comm, shunt_wait(&request[0]));
        return 0;
    }
    CHECK_OK(run->self->comm,
             shunt_comm_get_stats(run->self->comm, &before, sizeof(before)));
    if (which && run->rows.total)
        memset(rows, POISON, run->rows.total * run->bytes);
    shuffle(run->order, parts, order);
    for (int i = 0; i < parts; i++)
        CHECK_RUN(
            start(run, which, order[i], bias, dweight, &request[order[i]]));
    shuffle(mix(run->order, (uint64_t)run->self->rank, 1, 0), parts, order);
    for (int i = 0; i < parts; i++) {
        const int part = order[i];

        CHECK_OK(run->self->comm, shunt_wait(&request[part]));
        CHECK_RUN(check_part_rows(run, part));
        for (size_t r = 0; r < run->rows.total && which == 0; r++)
            if (row_is_of(run, r, part))
                CHECK_RUN(run_check_row(run, r));
    }
    CHECK_OK(run->self->comm,
             shunt_comm_get_stats(run->self->comm, &after, sizeof(after)));
    /* Each part must be an operation. Operations of earlier calls may end here,
     * too. */
    CHECK(after.operations - before.operations >= (uint64_t)parts,
          "%d operations for %d parts",
          (int)(after.operations - before.operations), parts);
    return 0;
}
