// SPDX-License-Identifier: Apache-2.0
/* See workload.h. */
#include "train/workload/workload.h"

#include "train/workload/random.h"

#include <stdbool.h>

/* All but one of every HOT_OF tokens choose from the hot set. A hot spot that
 * moves stays in place for STAYS steps. The last of every BURST steps has a
 * burst. */
enum { HOT_OF = 4, STAYS = 3, BURST = 4 };

/* The experts first, first + stride, ..., modulo E; `count` of them. */
struct set {
    size_t first, stride, count;
};

static bool is_taken(const int32_t *choice, size_t n, size_t e)
{
    for (size_t i = 0; i < n; i++)
        if (choice[i] == (int32_t)e)
            return true;
    return false;
}

/* Choose K different experts; all choices of K are equally probable (Floyd's
 * algorithm: Bentley and Floyd, CACM 30(9), 1987). */
static void choose_from(const struct workload *w, size_t token,
                        const struct set *s, size_t E, size_t K,
                        int32_t *choice)
{
    for (size_t j = 0; j < K; j++) {
        const size_t last = s->count - K + j;
        const size_t drawn = (size_t)(random_uniform(w->key, token * K + j) *
                                      (double)(last + 1));
        const size_t e = (s->first + drawn * s->stride) % E;

        choice[j] =
            (int32_t)(is_taken(choice, j, e) ? (s->first + last * s->stride) % E
                                             : e);
    }
}

static void choose_in_turn(size_t token, size_t E, size_t K, int32_t *choice)
{
    for (size_t j = 0; j < K; j++)
        choice[j] = (int32_t)((token * K + j) % E);
}

static void choose_zipf(const struct workload *w, size_t token, size_t E,
                        size_t K, int32_t *choice)
{
    double all = 0;

    for (size_t e = 0; e < E; e++)
        all += 1 / (double)(e + 1);
    for (size_t j = 0; j < K; j++) {
        double left = random_uniform(w->key, token * K + j) * all;
        int32_t last = -1;

        for (size_t e = 0; e < E && left >= 0; e++) {
            if (is_taken(choice, j, e))
                continue;
            last = (int32_t)e;
            left -= 1 / (double)(e + 1);
        }
        choice[j] = last;
        all -= 1 / (double)(last + 1);
    }
}

static void leave_out(size_t K, int32_t *choice)
{
    for (size_t j = 0; j < K; j++)
        choice[j] = -1;
}

void workload_choose(const struct workload *w, size_t token, size_t E, size_t K,
                     int32_t *choice)
{
    const size_t H = E / 4 > K ? E / 4 : K, half = E / 2;
    const struct set all = {0, 1, E}, hot = {0, 1, H}, spread = {0, 2, half};
    const struct set moving = {w->step / STAYS * H % E, 1, H};
    const struct set second = {half, 1, E - half};
    const bool is_hot = token % HOT_OF != 0;
    const double there = 1 - 0.75 * (double)token / (double)w->tokens;
    const struct set *from = &all;

    switch (w->kind) {
    case WORKLOAD_W1:
    case WORKLOAD_W2:
        from = is_hot ? &hot : &all;
        break;
    case WORKLOAD_W3:
        from = is_hot ? &spread : &all;
        break;
    case WORKLOAD_W4:
        if (random_uniform(~w->key, token) >= there) {
            leave_out(K, choice);
            return;
        }
        break;
    case WORKLOAD_W5:
        from = &second;
        break;
    case WORKLOAD_W6:
        from = is_hot ? &moving : &all;
        break;
    case WORKLOAD_W7:
        if (w->step % BURST == BURST - 1 && token % 2 == 0)
            from = &hot;
        break;
    case WORKLOAD_ZIPF:
        choose_zipf(w, token, E, K, choice);
        return;
    default:
        choose_in_turn(token, E, K, choice);
        return;
    }
    choose_from(w, token, from->count < K ? &all : from, E, K, choice);
}
