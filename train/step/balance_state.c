// SPDX-License-Identifier: Apache-2.0
/* See balance_state.h. */
#include "train/step/balance_state.h"

#include "train/base/error.h"

#include <stdlib.h>
#include <string.h>

enum { SHAPE_STEPS, SHAPE_SLOTS, SHAPE };

/* Lengths of the vectors for M layers, E experts, `ranks` ranks and `slots`
 * slots, in elements of f32. */
struct vectors {
    size_t home, copies, share, rows; /* elements of f32 */
    size_t all;
};

static struct vectors vectors_of(const struct balance *b, size_t ranks,
                                 size_t slots)
{
    struct vectors v = {
        .home = b->layers * b->experts,
        .copies = b->layers * ranks * slots * 2,
        .share = b->layers * (b->experts + ranks * slots) * 2,
        .rows = b->layers * ranks * b->experts * 2,
    };

    v.all = SHAPE + v.home + v.copies + v.share + v.rows;
    return v;
}

/* Make pieces of the vectors, which are one behind the other in `at`. */
static void list(const struct vectors *v, float *at, struct piece *to)
{
    to[0] = (struct piece){"balance.shape", 0, SHAPE, at};
    at += SHAPE;
    to[1] = (struct piece){"balance.home", 0, v->home, at};
    at += v->home;
    to[2] = (struct piece){"balance.copies", 0, v->copies, at};
    at += v->copies;
    to[3] = (struct piece){"balance.share", 0, v->share, at};
    at += v->share;
    to[4] = (struct piece){"balance.rows", 0, v->rows, at};
}

static size_t ranks(const struct balance *b)
{
    return (size_t)b->team->size;
}

static void fill(const struct balance *b, const struct piece *to)
{
    const uint32_t shape[SHAPE] = {(uint32_t)b->steps, (uint32_t)b->c->slots};
    const size_t room = ranks(b) * b->c->slots;

    memcpy(to[0].data, shape, sizeof(shape));
    for (size_t l = 0; l < b->layers; l++)
        memcpy(to[1].data + l * b->experts, b->now[l].home,
               b->experts * sizeof(float));
    memset(to[2].data, 0xff, to[2].count * sizeof(float));
    for (size_t l = 0; l < b->layers; l++)
        memcpy(to[2].data + l * room * 2, b->now[l].replica,
               b->now[l].replicas * sizeof(struct shunt_moe_replica));
    memset(to[3].data, 0, to[3].count * sizeof(float));
    for (size_t l = 0; l < b->layers; l++)
        memcpy(to[3].data + l * (b->experts + room) * 2, b->now[l].share,
               (b->experts + b->now[l].replicas) * sizeof(int64_t));
    memcpy(to[4].data, b->predicted, to[4].count * sizeof(float));
}
_Static_assert(sizeof(struct shunt_moe_replica) == 2 * sizeof(float), "");

int balance_save(struct balance *b, struct piece *to, size_t *count)
{
    const struct vectors v = vectors_of(b, ranks(b), b->c->slots);

    *count = 0;
    if (b->c->how == BALANCE_OFF)
        return 0;
    free(b->saved);
    b->saved = malloc(v.all * sizeof(*b->saved));
    if (!b->saved)
        return train_error("out of memory");
    list(&v, b->saved, to);
    fill(b, to);
    *count = BALANCE_PIECES;
    for (size_t i = 0; b->team->rank > 0 && i < BALANCE_PIECES; i++)
        to[i].count = 0;
    return 0;
}

/* Restore the placements of a run on as many ranks as now. Copies are only
 * restored if the number of slots is the same. */
static int take_places(struct balance *b, size_t slots, const struct piece *of)
{
    const size_t room = ranks(b) * slots;

    for (size_t l = 0; l < b->layers; l++) {
        struct places *next = &b->next;

        places_copy(next, &b->now[l]);
        memcpy(next->home, of[1].data + l * b->experts,
               b->experts * sizeof(float));
        next->replicas = 0;
        for (size_t i = 0; slots == b->c->slots && i < room; i++) {
            struct shunt_moe_replica r;

            memcpy(&r, of[2].data + (l * room + i) * 2, sizeof(r));
            if (r.expert >= 0)
                next->replica[next->replicas++] = r;
        }
        memcpy(next->share, of[3].data + l * (b->experts + room) * 2,
               (b->experts + next->replicas) * sizeof(*next->share));
        if (balance_place(b, l, next))
            return -1;
    }
    return 0;
}

/* Restore the prediction of a run on `saved` ranks. If there are now more or
 * fewer ranks, each rank gets an equal part of an expert's load. */
static void take_rows(struct balance *b, size_t saved, const struct piece *of)
{
    const size_t E = b->experts, R = ranks(b);
    const double part = 1 / (double)R;

    for (size_t l = 0; l < b->layers; l++)
        for (size_t e = 0; e < E; e++) {
            double all = 0, one;

            for (size_t r = 0; r < saved; r++) {
                const size_t at = (l * saved + r) * E + e;

                memcpy(&one, of[4].data + at * 2, sizeof(one));
                all += one;
                if (saved == R)
                    b->predicted[at] = one;
            }
            for (size_t r = 0; saved != R && r < R; r++)
                b->predicted[(l * R + r) * E + e] = all * part;
        }
}

int balance_load(struct balance *b, struct team *team,
                 struct checkpoint *checkpoint)
{
    const size_t saved = checkpoint_ranks(checkpoint);
    struct piece of[BALANCE_PIECES] = {{.name = "balance.shape"}};
    uint32_t shape[SHAPE];
    float first[SHAPE];
    int st;

    if (b->c->how == BALANCE_OFF || !checkpoint_has(checkpoint, of[0].name))
        return 0;
    of[0].count = SHAPE;
    of[0].data = first;
    if (checkpoint_read(team, checkpoint, of, 1))
        return -1;
    memcpy(shape, first, sizeof(shape));
    const struct vectors v = vectors_of(b, saved, shape[SHAPE_SLOTS]);
    free(b->saved);
    b->saved = malloc(v.all * sizeof(*b->saved));
    if (team_agree(team, b->saved != NULL, "memory for balance"))
        return -1;
    list(&v, b->saved, of);
    st = checkpoint_read(team, checkpoint, of, BALANCE_PIECES);
    if (st)
        return st;
    b->steps = shape[SHAPE_STEPS];
    take_rows(b, saved, of);
    return saved == ranks(b) ? take_places(b, shape[SHAPE_SLOTS], of) : 0;
}
