// SPDX-License-Identifier: Apache-2.0
/*
 * Offsets in rail windows: both ends of a transfer compute the same ones, no
 * two ranges overlap, and all are inside of the window.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "moe/layout/rail_layout.h"

enum { RANKS_MOST = 12, ROW = 100, SUM = 38, PLACES = 6 * RANKS_MOST };

/* Bytes of a single result. With bf16 this is half of a sum, with f32 as many
 * as a sum. */
static const size_t results[] = {SUM / 2, SUM};

/* The node of each rank. In the second shape the ranks of a node are not
 * neighbours. */
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
    int parts;
    int local[RANKS_MOST], first[RANKS_MOST + 1], list[RANKS_MOST];
    uint32_t rows[RANKS_MOST * RANKS_MOST], terms[RANKS_MOST * RANKS_MOST];
    /* For each rank: what it needs to compute offsets, and the offsets. */
    struct known {
        struct shunti_rail_traffic traffic;
        uint32_t rows_in[RANKS_MOST], terms_in[RANKS_MOST];
        struct shunti_rail_out out[RANKS_MOST];
        struct shunti_rail_in in[RANKS_MOST];
        size_t window;
    } ranks[RANKS_MOST];
};

/* Fills in what a rank knows about itself, and about the sources that it relays
 * for. */
static void know(struct job *job, int rank, size_t result)
{
    const struct shunti_rail_map *map = &job->map;
    struct known *k = &job->ranks[rank];

    for (int s = 0; s < map->ranks; s++) {
        const int at = s * map->nodes + map->node[rank];
        const bool serves = shunti_rail_serves(map, rank, s);

        k->rows_in[s] = serves ? job->rows[at] : UINT32_MAX;
        k->terms_in[s] = serves ? job->terms[at] : UINT32_MAX;
    }
    k->traffic = (struct shunti_rail_traffic){
        .map = map,
        .rank = rank,
        .parts = job->parts,
        .rows = job->rows + rank * map->nodes,
        .terms = job->terms + rank * map->nodes,
        .rows_in = k->rows_in,
        .terms_in = k->terms_in,
        .row_bytes = ROW,
        .result_bytes = result,
        .sum_bytes = SUM,
        .dot_bytes = sizeof(float),
    };
    k->window = shunti_rail_places(&k->traffic, k->out, k->in);
}

static struct shunti_rail_offsets offsets_of(const struct job *job, int rank,
                                             int peer)
{
    const struct known *k = &job->ranks[rank];

    return shunti_rail_offsets_for(&k->traffic, k->window, k->out, k->in, peer);
}

static void job_init(struct job *job, const struct shape *s, size_t result,
                     uint32_t seed)
{
    int at = 0;

    memset(job, 0, sizeof(*job));
    job->parts = 1 + (int)(seed % 3);
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
        job->rows[i] = seed >> 16 & 7; /* may be 0 */
        /* There may be rows without a term, because with ALLGATHER a token may
         * have no expert on the node. */
        job->terms[i] = job->rows[i] ? seed >> 20 & 15 : 0;
    }
    job->map = (struct shunti_rail_map){
        .ranks = s->ranks,
        .nodes = s->nodes,
        .node = s->node,
        .local = job->local,
        .first = job->first,
        .list = job->list,
    };
    for (int r = 0; r < s->ranks; r++)
        know(job, r, result);
    for (int r = 0; r < s->ranks; r++)
        for (int p = 0; p < s->ranks; p++) {
            const struct shunti_rail_offsets offsets = offsets_of(job, p, r);
            struct known *k = &job->ranks[r];

            cr_assert(p == r || shunti_rail_store_offsets(
                                    &k->traffic, p, &offsets, k->out, k->in));
        }
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

/* The most bytes that can return for `rows` rows with `terms` terms, over all
 * distributions of the terms: some rows have several terms, others one. */
static size_t most_home(const struct job *job, size_t rows, size_t terms)
{
    const size_t result = job->ranks[0].traffic.result_bytes;
    size_t most = 0;

    for (size_t several = 0; several <= rows && 2 * several <= terms;
         several++) {
        size_t rest = terms - 2 * several, ones = rows - several, bytes;

        ones = rest < ones ? rest : ones;
        bytes = several * SUM + ones * result;
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Collects every range of a window to which a rank puts, or in which it stages.
 * For ranges in another rank's window, the rank that puts computes the
 * offset. */
static void take_all(const struct job *job, struct window *windows)
{
    const struct shunti_rail_map *map = &job->map;

    for (int s = 0; s < map->ranks; s++) {
        const struct shunti_rail_out *out = job->ranks[s].out;

        for (int n = 0; n < map->nodes; n++) {
            const size_t rows = job->rows[s * map->nodes + n];
            const size_t terms = job->terms[s * map->nodes + n];
            const struct shunti_rail_in *in;
            const size_t home = most_home(job, rows, terms);
            int relay;

            if (n == map->node[s])
                continue;
            relay = shunti_rail_peer(map, s, n);
            cr_assert_eq(map->node[relay], n);
            in = job->ranks[relay].in;
            cr_assert_eq(out[n].arrival, in[s].arrival);
            cr_assert_eq(out[n].sums, in[s].sums);
            cr_assert_eq(out[n].dots, in[s].dots);
            take(&windows[s], out[n].staging, rows * ROW);
            take(&windows[s], in[s].sums, home);
            take(&windows[s], in[s].dots, terms * sizeof(float));
            take(&windows[relay], out[n].arrival, rows * ROW);
            take(&windows[relay], in[s].sums_staging, home);
            take(&windows[relay], in[s].dots_staging, terms * sizeof(float));
        }
    }
}

Test(moe_rails, places_agree_and_do_not_overlap)
{
    for (int i = 0; i < SHAPES; i++)
        for (uint32_t seed = 1; seed <= 40; seed++) {
            struct window windows[RANKS_MOST] = {{.places = 0}};
            const struct shape *s = &shapes[i];
            static struct job job;

            job_init(&job, s, results[seed % 2], seed);
            take_all(&job, windows);
            for (int r = 0; r < s->ranks; r++) {
                struct window *w = &windows[r];
                /* Each part has one signal for each rank, and two for each
                 * node. Each signal has a cache line. */
                const size_t signals = (size_t)job.parts * (size_t)s->ranks +
                                       2 * (size_t)job.parts * (size_t)s->nodes;
                size_t end = shunti_rail_signal_place(signals);

                cr_assert_eq(end, 64 * signals);
                cr_assert_eq(shunti_rail_signals(&job.ranks[r].traffic), end);
                end = 0; /* the signals are in front of all ranges */
                qsort(w->place, (size_t)w->places, sizeof(w->place[0]),
                      by_begin);
                for (int k = 0; k < w->places; k++) {
                    cr_assert_geq(w->place[k].begin, end,
                                  "shape %d, seed %u, rank %d", i,
                                  (unsigned)seed, r);
                    /* A range may not be larger than what it can hold. */
                    cr_assert_lt(w->place[k].begin, end + 64,
                                 "shape %d, seed %u, rank %d", i,
                                 (unsigned)seed, r);
                    end = w->place[k].end;
                }
                cr_assert_leq(end, job.ranks[r].window);
                /* the window is full */
                cr_assert_lt(job.ranks[r].window, end + 64);
            }
        }
}

/* An offset that a peer sends must be inside of that peer's window, even if the
 * sizes are large. */
Test(moe_rails, places_outside_of_a_window_are_found)
{
    static struct job job;
    struct shunti_rail_offsets offsets;
    struct known *source = &job.ranks[0], *relay = &job.ranks[2];

    job_init(&job, &shapes[0], results[0], 1);
    job.rows[1] = job.terms[1] = 5;
    for (int r = 0; r < 8; r++)
        know(&job, r, results[0]);

    offsets = offsets_of(&job, 2, 0);
    cr_assert(shunti_rail_store_offsets(&source->traffic, 2, &offsets,
                                        source->out, source->in));
    offsets.window = offsets.arrival + 5 * ROW - 1;
    cr_assert_not(shunti_rail_store_offsets(&source->traffic, 2, &offsets,
                                            source->out, source->in));
    offsets.arrival = offsets.window + 1;
    cr_assert_not(shunti_rail_store_offsets(&source->traffic, 2, &offsets,
                                            source->out, source->in));
    offsets.arrival = UINT64_MAX;
    cr_assert_not(shunti_rail_store_offsets(&source->traffic, 2, &offsets,
                                            source->out, source->in));

    for (int which = 0; which < 3; which++) {
        offsets = offsets_of(&job, 0, 2);
        offsets.sums += which == 1 ? offsets.window : 0;
        offsets.dots += which == 2 ? offsets.window : 0;
        cr_assert_eq(shunti_rail_store_offsets(&relay->traffic, 0, &offsets,
                                               relay->out, relay->in),
                     which == 0);
    }

    /* The windows end within the sums, and then within the dots. */
    offsets = offsets_of(&job, 0, 2);
    offsets.dots = 0;
    offsets.window = offsets.sums + 5 * results[0] - 1;
    cr_assert_not(shunti_rail_store_offsets(&relay->traffic, 0, &offsets,
                                            relay->out, relay->in));
    offsets = offsets_of(&job, 0, 2);
    offsets.sums = 0;
    offsets.window = offsets.dots + 5 * sizeof(float) - 1;
    cr_assert_not(shunti_rail_store_offsets(&relay->traffic, 0, &offsets,
                                            relay->out, relay->in));
}

Test(moe_rails, a_list_has_a_count_for_each_row_and_its_bounds)
{
    cr_assert_eq(shunti_rail_list_bytes(1, 0, 0), 0);
    cr_assert_eq(shunti_rail_list_bytes(1, 1, 2), 4 + 2 * 12);
    cr_assert_eq(shunti_rail_list_bytes(1, 4, 0), 8);
    cr_assert_eq(shunti_rail_list_bytes(4, 1, 2), 3 * 4 + 4 + 2 * 12);
}
