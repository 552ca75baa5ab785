// SPDX-License-Identifier: Apache-2.0
/*
 * Where the experts of a layer are, and where they should be: decisions on plain
 * arrays, which every rank makes alike from equal loads, by the functions of
 * <shunt/balance.h>. balance.h carries them out.
 */
#ifndef TRAIN_PLACES_H
#define TRAIN_PLACES_H

#include <shunt/moe.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum balance_how {
    BALANCE_OFF,
    BALANCE_REPLICAS,   /* hot experts have copies on all ranks */
    BALANCE_MIGRATE,    /* experts move, each has one place */
    BALANCE_BOTH,       /* first the one, then the other, for what is left */
    BALANCE_MICROBATCH, /* each routing has copies of its own */
};

struct balance_config {
    enum balance_how how;
    size_t every;     /* steps from one decision to the next */
    size_t slots;     /* copies in a layer that a rank has at most */
    double theta;     /* of what was predicted before; the rest is what came */
    double gain;      /* by which the coefficient of variation falls, to move */
    double hot;       /* by which the fullest rank's rows fall, in means of all
                     ranks, for a copy on each */
    size_t leaf_rows; /* rows of a leaf of gradients; 0: they are summed at
                         once, and copies change their bits */
    double above;     /* fullest rank over the mean, at most: then there are no
                     copies */
};

#define BALANCE_DEFAULTS                                                  \
    {                                                                     \
        .every = 10, .slots = 2, .theta = 0.9, .gain = 0.08, .hot = 0.02, \
        .above = 1.05                                                     \
    }

struct places {
    size_t ranks, experts;
    int32_t *home;                     /* (experts) */
    struct shunt_moe_replica *replica; /* (ranks * slots) */
    size_t replicas;
    int64_t *share; /* (experts + replicas) of an expert's rows those at home,
                       and of each other copy: shunt_moe_set_shares() */
    double *load, *on_rank; /* (experts), (ranks) scratch */
    int32_t *hot;           /* (experts) scratch */
};

/* The library's own placement, no copies. 0, or -1 with train_error_text(). */
int places_create(size_t ranks, size_t experts, size_t slots, struct places *p);
void places_destroy(struct places *p);
void places_copy(struct places *to, const struct places *from);
bool places_equal(const struct places *a, const struct places *b);

/* Experts whose home is another one. */
size_t places_moved(const struct places *a, const struct places *b);
/* Experts that are on `rank`, homes and copies, ascending: their number. */
size_t places_of(const struct places *p, int rank, int32_t *experts);
bool places_has_copy(const struct places *p, size_t expert, int rank);

/* What is best for a batch of these rows.
 * rows  (ranks, experts) of each source for each expert, in a step
 * next  out; places_create() with the same sizes
 * 0, or -1 with train_error_text(). */
int places_decide(const struct balance_config *c, const double *rows,
                  const struct places *now, struct places *next);
/* Copies for one routing, whose rows are known; homes stay.
 * rows  (ranks, experts)
 * node  (ranks) */
int places_decide_batch(const struct balance_config *c, const int64_t *rows,
                        const int *node, const struct places *now,
                        struct places *next);

#endif
