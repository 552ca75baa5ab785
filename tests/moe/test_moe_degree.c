// SPDX-License-Identifier: Apache-2.0
/*
 * Choosing the best number of parts by the times of past plans. All ranks get
 * the same times. So these tests have one rank, which gets the times of
 * several.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "moe/plan/degree.h"

TestSuite(moe_degree, .timeout = 60);

enum { RANKS = 3, ROOM = 200 };

Test(moe_degree, classes_are_powers_of_two)
{
    static const struct {
        size_t tokens;
        unsigned class;
    } rows[] = {{0, 0},
                {1, 1},
                {2, 2},
                {3, 2},
                {4, 3},
                {7, 3},
                {8, 4},
                {4095, 12},
                {4096, 13},
                {8191, 13},
                {(size_t)UINT32_MAX, 32}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        cr_assert_eq(shunti_degree_class(rows[i].tokens), rows[i].class,
                     "%zu tokens", rows[i].tokens);
    for (unsigned d = 0; d < SHUNTI_DEGREES; d++)
        cr_assert_eq(shunti_degree_parts(d), 1 << d);
}

/* The measured time for a number of parts. It is the time of the model, but the
 * first sample is much longer, and so is one of the others. */
static double measured(double model, unsigned sample, unsigned degree)
{
    return sample == 0                ? 20 * model
           : sample == 1 + degree % 3 ? 3 * model
                                      : model;
}

/* Returns the degree that is chosen after all have been tried in turn. */
static unsigned settle(const double *model)
{
    struct shunti_degree degree = {{0}, {{0}}};

    for (unsigned i = 0; i < SHUNTI_DEGREES * SHUNTI_DEGREE_SAMPLES; i++) {
        const unsigned now = shunti_degree_next(&degree);

        cr_assert_not(shunti_degree_settled(&degree));
        cr_assert_eq(now, i % SHUNTI_DEGREES, "plan %u", i);
        shunti_degree_add(&degree, now,
                          measured(model[now], i / SHUNTI_DEGREES, now));
    }
    cr_assert(shunti_degree_settled(&degree));
    for (unsigned d = 0; d < SHUNTI_DEGREES; d++)
        cr_assert_eq(shunti_degree_time(&degree, d), model[d]);
    shunti_degree_add(&degree, 0, 0); /* too late */
    return shunti_degree_next(&degree);
}

Test(moe_degree, the_best_stays)
{
    cr_assert_eq(settle((const double[]){4, 3, 2, 1}), 3);
    cr_assert_eq(settle((const double[]){1, 2, 3, 4}), 0);
    cr_assert_eq(settle((const double[]){3, 1, 2, 4}), 1);
    /* As good as the best, but with fewer parts. */
    cr_assert_eq(settle((const double[]){2, 1.005, 1, 1}), 1);
    cr_assert_eq(settle((const double[]){1, 1, 1, 1}), 0);
}

/* Writes the times that a rank has reported, as in a record. */
static void put(unsigned char *records, int rank,
                const struct shunti_time *time, int n)
{
    struct shunti_time all[SHUNTI_TIMES_MAX] = {{0}};

    memcpy(all, time, (size_t)n * sizeof(*time));
    memcpy(records + rank * ROOM, all, sizeof(all));
}

Test(moe_degree, the_longest_time_counts)
{
    _Alignas(8) unsigned char records[RANKS * ROOM];
    struct shunti_degrees degrees = {0};

    for (unsigned i = 0; i < SHUNTI_DEGREE_SAMPLES; i++) {
        const uint64_t plan = 10 + i;

        put(records, 0, (struct shunti_time[]){{plan, 5, 2, 1}}, 1);
        put(records, 1,
            (struct shunti_time[]){{plan - 1, 5, 2, 9}, {plan, 5, 2, 3}}, 2);
        put(records, 2, (struct shunti_time[]){{plan, 5, 2, 2}}, 1);
        shunti_degrees_read_times(&degrees, records, ROOM, RANKS);
    }
    cr_assert_eq(shunti_degree_time(&degrees.class[5], 2), 3);
    cr_assert_eq(degrees.class[5].samples[2], SHUNTI_DEGREE_SAMPLES);
}

Test(moe_degree, a_time_that_one_rank_has_not_reported_does_not_count)
{
    _Alignas(8) unsigned char records[RANKS * ROOM];
    struct shunti_degrees degrees = {0};

    put(records, 0, (struct shunti_time[]){{7, 5, 1, 1}, {8, 5, 1, 1}}, 2);
    put(records, 1, (struct shunti_time[]){{7, 5, 1, 1}, {8, 5, 1, 1}}, 2);
    put(records, 2, (struct shunti_time[]){{8, 5, 1, 1}}, 1);
    shunti_degrees_read_times(&degrees, records, ROOM, RANKS);
    cr_assert_eq(degrees.class[5].samples[1], 1);
    /* A time that no rank reports must not count, either. */
    memset(records, 0, sizeof(records));
    shunti_degrees_read_times(&degrees, records, ROOM, RANKS);
    cr_assert_eq(degrees.class[5].samples[1], 1);
    cr_assert_eq(degrees.class[0].samples[0], 0);
    /* An invalid report must not count, either. */
    for (int r = 0; r < RANKS; r++)
        put(records, r,
            (struct shunti_time[]){{9, SHUNTI_DEGREE_CLASSES, 0, 1},
                                   {10, 0, SHUNTI_DEGREES, 1}},
            2);
    shunti_degrees_read_times(&degrees, records, ROOM, RANKS);
}

Test(moe_degree, the_latest_times_are_reported)
{
    struct shunti_degrees degrees = {0};

    for (uint64_t plan = 1; plan <= SHUNTI_TIMES_MAX + 2; plan++)
        shunti_degrees_add_time(&degrees, &(struct shunti_time){plan, 1, 1, 1});
    for (int i = 0; i < SHUNTI_TIMES_MAX; i++)
        cr_assert_eq(degrees.times[i].plan, 3 + (uint64_t)i);
}
