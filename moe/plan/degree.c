// SPDX-License-Identifier: Apache-2.0
/* The number of parts that takes the least time; see degree.h. */
#include "moe/plan/degree.h"

#include <math.h>
#include <string.h>

#include "moe/plan.h"
#include "moe/plan/lifetime.h"
#include "src/base/error.h"
#include "src/base/handle.h"
#include "src/comm.h"

/* More parts cost more CPU time. So of the degrees whose times are equal within
 * this factor, the lowest is the best. */
#define AS_GOOD 1.01

unsigned shunti_degree_class(size_t tokens)
{
    unsigned class = 0;

    for (; tokens && class < SHUNTI_DEGREE_CLASSES - 1; tokens >>= 1)
        class ++;
    return class;
}

int shunti_degree_parts(unsigned degree)
{
    return 1 << degree;
}

/* --- one class ------------------------------------------------------------------ */

void shunti_degree_add(struct shunti_degree *degree, unsigned which,
                       double seconds)
{
    unsigned *n = &degree->samples[which];

    if (*n < SHUNTI_DEGREE_SAMPLES)
        degree->time[which][(*n)++] = seconds;
}

bool shunti_degree_settled(const struct shunti_degree *degree)
{
    for (int i = 0; i < SHUNTI_DEGREES; i++)
        if (degree->samples[i] < SHUNTI_DEGREE_SAMPLES)
            return false;
    return true;
}

/* The median of all times but the first. */
double shunti_degree_time(const struct shunti_degree *degree, unsigned which)
{
    const double *time = degree->time[which];

    if (degree->samples[which] < SHUNTI_DEGREE_SAMPLES)
        return 0;
    for (int i = 1; i < SHUNTI_DEGREE_SAMPLES; i++) {
        int below = 0, above = 0;

        for (int j = 1; j < SHUNTI_DEGREE_SAMPLES; j++) {
            below += time[j] < time[i];
            above += time[j] > time[i];
        }
        if (below <= (SHUNTI_DEGREE_SAMPLES - 1) / 2 &&
            above <= (SHUNTI_DEGREE_SAMPLES - 1) / 2)
            return time[i];
    }
    return time[1];
}

/* Until all degrees are settled, choose the one with the fewest samples. So
 * degrees take turns, and changes of the load during the trials affect all of
 * them alike. */
unsigned shunti_degree_next(const struct shunti_degree *degree)
{
    unsigned best = 0;
    double least = INFINITY;

    if (!shunti_degree_settled(degree)) {
        for (unsigned i = 1; i < SHUNTI_DEGREES; i++)
            if (degree->samples[i] < degree->samples[best])
                best = i;
        return best;
    }
    for (unsigned i = 0; i < SHUNTI_DEGREES; i++)
        least = fmin(least, shunti_degree_time(degree, i));
    while (shunti_degree_time(degree, best) > AS_GOOD * least)
        best++;
    return best;
}

int shunti_degree_choose(const struct shunti_degrees *degrees, size_t tokens,
                         struct shunti_degree_of *of)
{
    of->tokens = tokens;
    of->class = shunti_degree_class(tokens);
    of->degree = tokens ? shunti_degree_next(&degrees->class[of->class]) : 0;
    of->wanted = tokens > 0; /* without tokens there is nothing to measure */
    return shunti_degree_parts(of->degree);
}

/* --- times of all ranks ----------------------------------------------------------- */

void shunti_degrees_add_time(struct shunti_degrees *degrees,
                             const struct shunti_time *time)
{
    if (degrees->ntimes == SHUNTI_TIMES_MAX) {
        memmove(degrees->times, degrees->times + 1,
                (SHUNTI_TIMES_MAX - 1) * sizeof(*time));
        degrees->ntimes--;
    }
    degrees->times[degrees->ntimes++] = *time;
}

static struct shunti_time time_by(const void *times, size_t stride, int rank,
                                  int i)
{
    struct shunti_time time;

    memcpy(&time,
           (const unsigned char *)times + (size_t)rank * stride +
               (size_t)i * sizeof(time),
           sizeof(time));
    return time;
}

/* Find the longest time of a plan. False: some rank has not reported one. */
static bool find_longest(const void *times, size_t stride, int ranks,
                         struct shunti_time *of)
{
    for (int r = 1; r < ranks; r++) {
        bool found = false;

        for (int i = 0; i < SHUNTI_TIMES_MAX; i++) {
            const struct shunti_time time = time_by(times, stride, r, i);

            if (time.plan != of->plan)
                continue;
            found = true;
            of->seconds = fmax(of->seconds, time.seconds);
        }
        if (!found)
            return false;
    }
    return true;
}

void shunti_degrees_read_times(struct shunti_degrees *degrees,
                               const void *times, size_t stride, int ranks)
{
    memset(degrees->times, 0, sizeof(degrees->times));
    degrees->ntimes = 0;
    for (int i = 0; i < SHUNTI_TIMES_MAX; i++) {
        struct shunti_time time = time_by(times, stride, 0, i);

        if (time.plan && time.class < SHUNTI_DEGREE_CLASSES &&
            time.degree < SHUNTI_DEGREES &&
            find_longest(times, stride, ranks, &time))
            shunti_degree_add(&degrees->class[time.class], time.degree,
                              time.seconds);
    }
}

/* --- calls ------------------------------------------------------------------------ */

enum shunt_status shunt_moe_plan_took(struct shunt_moe_plan *handle,
                                      double seconds)
{
    struct shunti_plan *plan = shunti_plan_of(handle);
    struct shunti_degree_of *of;

    if (!plan)
        return shunti_fail(NULL, SHUNT_ERR_INVALID, "moe_plan_took: plan is %s",
                           shunti_plan_missing(handle));
    of = &plan->degree;
    if (!isfinite(seconds) || seconds < 0)
        return shunti_fail(&plan->moe->comm->error, SHUNT_ERR_INVALID,
                           "moe_plan_took: seconds is %g", seconds);
    if (of->reported)
        return shunti_fail(&plan->moe->comm->error, SHUNT_ERR_INVALID,
                           "moe_plan_took: the time of this plan was told "
                           "before");
    of->reported = true;
    if (of->wanted)
        shunti_degrees_add_time(
            &plan->moe->degrees,
            &(struct shunti_time){plan->serial, of->class, of->degree,
                                  seconds / (double)of->tokens});
    return SHUNT_OK;
}

void shunt_moe_degree(const struct shunt_moe *handle, size_t tokens,
                      struct shunt_moe_degree *degree, size_t degree_size)
{
    const struct shunt_moe *moe =
        shunti_handle_object(SHUNTI_HANDLE_MOE, handle);
    struct shunt_moe_degree all = {0};
    struct shunti_degree_of of;

    if (!degree)
        return;
    if (moe) {
        all.parts = shunti_degree_choose(&moe->degrees, tokens, &of);
        all.settled = shunti_degree_settled(&moe->degrees.class[of.class]);
        for (unsigned i = 0; i < SHUNT_MOE_DEGREES; i++)
            all.seconds[i] =
                shunti_degree_time(&moe->degrees.class[of.class], i);
    }
    memcpy(degree, &all, degree_size < sizeof(all) ? degree_size : sizeof(all));
}
