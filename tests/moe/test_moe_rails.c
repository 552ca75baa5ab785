// SPDX-License-Identifier: Apache-2.0
/*
 * The places in rail windows: both ends of a transfer agree on them, no two
 * overlap, and all are inside the window.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "moe/rail_layout.h"

enum { RANKS_MOST = 12, ROW = 100, SUM = 37, PLACES = 6 * RANKS_MOST };

/* Node of each rank; the second one is interleaved. */
static const struct shape {
    int ranks, nodes, node[RANKS_MOST];
} shapes[] = {
    {8, 4, {0, 0, 1, 1, 2, 2, 3, 3}}, {8, 3, {0, 1, 2, 0, 1, 2, 0, 1}},
    {6, 3, {0, 1, 1, 2, 2, 2}},       {4, 2, {0, 0, 0, 1}},
    {5, 5, {0, 1, 2, 3, 4}},          {3, 1, {0, 0, 0}},
};
enum { SHAPES = sizeof(shapes) / sizeof(*shapes) };

struct job {
    struct shunti_rail_map map;
    struct shunti_rail_traffic traffic;
    int local[RANKS_MOST], first[RANKS_MOST + 1], list[RANKS_MOST];
    uint32_t rows[RANKS_MOST * RANKS_MOST], terms[RANKS_MOST * RANKS_MOST];
};

static void job_init(struct job *job, const struct shape *s, uint32_t seed)
{
    int at = 0;

    memset(job, 0, sizeof(*job));
    for (int n = 0; n < s->nodes; n++) {
        job->first[n] = at;
        for (int r = 0; r < s->ranks; r++)
            if (s->node[r] == n) {
                job->local[r] = at - job->first[n];
                job->list[at++] = r;
            }
    }
    job->first[s->nodes] = at;
    for (int i = 0; i < s->ranks * s->nodes; i++) {
        seed = seed * 1664525 + 1013904223;
        job->rows[i] = seed >> 16 & 7; /* none, too */
        job->terms[i] = job->rows[i] + (seed >> 20 & 15);
    }
    job->map = (struct shunti_rail_map){
        .ranks = s->ranks,
        .nodes = s->nodes,
        .node = s->node,
        .local = job->local,
        .first = job->first,
        .list = job->list,
    };
    job->traffic = (struct shunti_rail_traffic){
        .map = &job->map,
        .rows = job->rows,
        .terms = job->terms,
        .row_bytes = ROW,
        .sum_bytes = SUM,
        .dot_bytes = sizeof(float),
    };
}

struct span {
    size_t begin, end;
};

struct window {
    struct span place[PLACES];
    int places;
};

static void take(struct window *w, size_t at, size_t bytes)
{
    cr_assert_lt(w->places, PLACES);
    cr_assert_eq(at % 64, 0);
    w->place[w->places++] = (struct span){at, at + bytes};
}

static int by_begin(const void *left, const void *right)
{
    const struct span *a = left, *b = right;

    return a->begin != b->begin ? (a->begin < b->begin ? -1 : 1)
                                : (a->end > b->end) - (a->end < b->end);
}

/* Everything that is ever put or staged, in the windows where it lies. */
static void take_all(const struct job *job, struct window *windows)
{
    const struct shunti_rail_map *map = &job->map;
    struct shunti_rail_out out[RANKS_MOST];
    struct shunti_rail_in in[RANKS_MOST];

    for (int s = 0; s < map->ranks; s++) {
        shunti_rail_places_out(&job->traffic, s, out);
        for (int n = 0; n < map->nodes; n++) {
            const size_t rows = job->rows[s * map->nodes + n];
            const size_t terms = job->terms[s * map->nodes + n];
            int relay;

            if (n == map->node[s])
                continue;
            relay = shunti_rail_peer(map, s, n);
            cr_assert_eq(map->node[relay], n);
            shunti_rail_places_in(&job->traffic, relay, in);
            cr_assert_eq(out[n].landing, in[s].landing);
            cr_assert_eq(out[n].sums, in[s].sums);
            cr_assert_eq(out[n].dots, in[s].dots);
            take(&windows[s], out[n].staging, rows * ROW);
            take(&windows[s], out[n].sums, rows * SUM);
            take(&windows[s], out[n].dots, terms * sizeof(float));
            take(&windows[relay], in[s].landing, rows * ROW);
            take(&windows[relay], in[s].sums_staging, rows * SUM);
            take(&windows[relay], in[s].dots_staging, terms * sizeof(float));
        }
    }
}

Test(moe_rails, places_agree_and_do_not_overlap)
{
    for (int i = 0; i < SHAPES; i++)
        for (uint32_t seed = 1; seed <= 20; seed++) {
            struct window windows[RANKS_MOST] = {{.places = 0}};
            const struct shape *s = &shapes[i];
            struct job job;
            size_t bytes, most = 0;

            job_init(&job, s, seed);
            bytes = shunti_rail_window_bytes(&job.traffic);
            take_all(&job, windows);
            for (int r = 0; r < s->ranks; r++) {
                struct window *w = &windows[r];
                /* A line for each rank's and for each node's two signals. */
                size_t end = shunti_rail_signal_place((size_t)s->ranks +
                                                      2 * (size_t)s->nodes);

                cr_assert_eq(end,
                             64 * ((size_t)s->ranks + 2 * (size_t)s->nodes));
                qsort(w->place, (size_t)w->places, sizeof(w->place[0]),
                      by_begin);
                for (int k = 0; k < w->places; k++) {
                    cr_assert_geq(w->place[k].begin, end,
                                  "shape %d, seed %u, rank %d", i,
                                  (unsigned)seed, r);
                    end = w->place[k].end;
                }
                most = end > most ? end : most;
            }
            cr_assert_leq(most, bytes);
            cr_assert_lt(bytes, most + 64); /* the largest is full */
        }
}

Test(moe_rails, a_list_has_a_count_for_each_row)
{
    cr_assert_eq(shunti_rail_list_bytes(0, 0), 0);
    cr_assert_eq(shunti_rail_list_bytes(1, 2), 4 + 2 * 12);
    cr_assert_eq(shunti_rail_list_bytes(4, 0), 8);
}
