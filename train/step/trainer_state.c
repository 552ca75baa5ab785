// SPDX-License-Identifier: Apache-2.0
/* The state of a trainer, as pieces of a checkpoint. */
#include "train/base/error.h"
#include "train/step/balance_state.h"
#include "train/step/trainer.h"

#include <stdlib.h>
#include <string.h>

/* Append the pieces of a part of a parameter vector: its w, m and v. The part
 * is [from, from + count) of this team's vector, and [begin, begin + count) of
 * the whole run's vector. The pieces have only the elements in this rank's
 * slice. If `whole`, the piece of w has the whole part. */
static struct piece *add_pieces(const struct params *p, const char *const *name,
                                size_t from, size_t count, size_t begin,
                                bool whole, struct piece *to)
{
    const size_t first = p->begin[p->team->rank];
    const size_t last = p->begin[p->team->rank + 1];
    size_t a = from > first ? from : first;
    size_t b = from + count < last ? from + count : last;

    a = a > last ? last : a;
    b = b < a ? a : b;
    to[0] = whole ? (struct piece){name[0], begin, count, p->w + from}
                  : (struct piece){name[0], begin + a - from, b - a, p->w + a};
    to[1] =
        (struct piece){name[1], begin + a - from, b - a, p->m + (a - first)};
    to[2] =
        (struct piece){name[2], begin + a - from, b - a, p->v + (a - first)};
    for (int i = 0; i < 3; i++) /* a valid begin for empty pieces */
        to[i].begin = to[i].count ? to[i].begin : begin;
    return to + 3;
}

static struct piece *add_nothing(const struct trainer *t,
                                 const char *const *name, size_t at,
                                 struct piece *to)
{
    for (int i = 0; i < 3; i++)
        *to++ = (struct piece){name[i], at, 0, t->router_bias};
    return to;
}

/* The number of pieces for a rank's experts in a layer: one for consecutive
 * experts, or one for each expert if experts move. */
static size_t seats(const struct trainer *t)
{
    const size_t ranks = (size_t)t->groups.experts->size;

    return t->o->balance.how == BALANCE_OFF
               ? 1
               : (t->o->model.experts + ranks - 1) / ranks;
}

/* Append the experts of the l-th layer with experts, seat by seat. */
static struct piece *add_by_seat(const struct trainer *t, size_t l,
                                 const char *const *name, bool whole,
                                 struct piece *to)
{
    const struct balance *b = &t->balance;
    const size_t size = t->model.layout.expert_size, E = b->experts;

    for (size_t s = 0; s < seats(t); s++) {
        size_t e = 0;

        while (e < E && (b->now[l].home[e] != b->team->rank ||
                         b->seat[l * E + e] != (int32_t)s))
            e++;
        to = e < E ? add_pieces(&t->expert, name,
                                (size_t)b->slot[l * E + e] * size, size,
                                (l * E + e) * size, whole, to)
                   : add_nothing(t, name, 0, to);
    }
    return to;
}

/* List the state as pieces. All ranks have the same number of pieces. whole:
 * list all of the weights, for reading. Otherwise list this rank's slice of the
 * weights, for writing. */
static size_t list_pieces(const struct trainer *t, bool whole,
                          struct piece *pieces)
{
    static const char *const dense[] = {"dense.w", "dense.m", "dense.v"};
    static const char *const shard[] = {"shard.w", "shard.m", "shard.v"};
    static const char *const expert[] = {"expert.w", "expert.m", "expert.v"};
    const struct model_config *c = &t->o->model;
    const size_t size = t->model.layout.expert_size;
    const size_t own = t->local_experts * size, M = model_moe_layers(c);
    struct piece *to = pieces;

    to = add_pieces(&t->dense, dense, 0, t->dense.length, 0, whole, to);
    if (t->shard.length)
        to = add_pieces(&t->shard, shard, 0, t->shard.length,
                        t->model.tensor.first * t->model.layout.shard_size,
                        whole, to);
    *to++ = (struct piece){"router.bias", 0,
                           whole || t->team->rank == 0 ? M * c->experts : 0,
                           t->router_bias};
    for (size_t l = 0; l < M; l++) {
        const size_t at = (l * c->experts + t->model.first_expert) * size;

        if (t->o->balance.how != BALANCE_OFF)
            to = add_by_seat(t, l, expert, whole, to);
        else if (t->expert.length)
            to = add_pieces(&t->expert, expert, l * own, own, at, whole, to);
        else
            to = add_nothing(t, expert, at, to);
    }
    return (size_t)(to - pieces);
}

static struct piece *make_pieces(const struct trainer *t, bool whole,
                                 size_t *count)
{
    const size_t M = model_moe_layers(&t->o->model);
    struct piece *p = calloc(7 + BALANCE_PIECES + 3 * M * seats(t), sizeof(*p));

    if (!p)
        train_error("out of memory");
    else
        *count = list_pieces(t, whole, p);
    return p;
}

int trainer_save(struct trainer *t, const struct checkpoint_info *info)
{
    size_t n = 0, more = 0;
    struct piece *pieces;
    int st;

    if (balance_settle(&t->balance))
        return -1;
    pieces = make_pieces(t, false, &n);
    st = pieces && !balance_save(&t->balance, pieces + n, &more);
    st = team_agree(t->team, st, "checkpoint");
    if (!st)
        st = checkpoint_write(t->team, t->o, info, pieces, n + more);
    free(pieces);
    return st;
}

int trainer_load(struct trainer *t, struct checkpoint *checkpoint)
{
    struct piece *pieces;
    size_t n;
    int st;

    if (balance_load(&t->balance, t->team, checkpoint))
        return -1;
    pieces = make_pieces(t, true, &n);
    st = pieces ? checkpoint_read(t->team, checkpoint, pieces, n) : -1;
    free(pieces);
    return st ? st : balance_restore(&t->balance);
}
