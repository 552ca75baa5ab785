// SPDX-License-Identifier: Apache-2.0
/*
 * Where the experts of a layer are, and where they should be. The functions
 * work on plain arrays, with the functions of <shunt/balance.h>. All ranks
 * decide alike, from equal loads. balance.h carries the decisions out.
 */
#ifndef TRAIN_PLACES_H
#define TRAIN_PLACES_H

#include <shunt/moe.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum balance_how {
    BALANCE_OFF,
    BALANCE_REPLICAS,   /* hot experts get copies on all ranks */
    BALANCE_MIGRATE,    /* experts move; none has copies */
    BALANCE_BOTH,       /* experts move; then hot experts get copies for the
                           remaining difference */
    BALANCE_MICROBATCH, /* each routing has copies of its own */
};

struct balance_config {
    enum balance_how how;
    size_t every;     /* steps between two decisions */
    size_t slots;     /* most copies on a rank in a layer */
    double theta;     /* weight of the earlier prediction; the new loads have
                         the rest */
    double gain;      /* experts move only if the coefficient of variation falls
                         by this much */
    double hot;       /* an expert gets copies only if the fullest rank's rows
                         fall by this much, as a part of the mean of all
                         ranks */
    size_t leaf_rows; /* rows of a leaf of gradients; 0: gradients are summed at
                         once, and copies change the bits */
    double above;     /* no copies if the fullest rank's rows are at most this
                         many times the mean */
};

#define BALANCE_DEFAULTS                                                  \
    {                                                                     \
        .every = 10, .slots = 2, .theta = 0.9, .gain = 0.08, .hot = 0.02, \
        .above = 1.05                                                     \
    }

struct places {
    size_t ranks, experts;
    int32_t *home;                     /* (experts) the rank that is the home of
                                          each */
    struct shunt_moe_replica *replica; /* (ranks * slots) */
    size_t replicas;
    int64_t *share; /* (experts + replicas) rows of each expert at its home,
                       then of each copy: see shunt_moe_set_shares() */
    double *load, *on_rank; /* (experts), (ranks) scratch */
    int32_t *hot;           /* (experts) scratch */
};

/* The library's default placement, without copies. 0, or -1 with
 * train_error_text(). */
int places_create(size_t ranks, size_t experts, size_t slots, struct places *p);
void places_destroy(struct places *p);
void places_copy(struct places *to, const struct places *from);
bool places_equal(const struct places *a, const struct places *b);

/* The number of experts whose homes differ. */
size_t places_moved(const struct places *a, const struct places *b);
/* Lists the experts on `rank`, homes and copies, in ascending order. Returns
 * their number. */
size_t places_of(const struct places *p, int rank, int32_t *experts);
bool places_has_copy(const struct places *p, size_t expert, int rank);

/* Decides the best placement for a step with these rows.
 * rows  (ranks, experts) rows of each source for each expert
 * next  out; made by places_create() with the same sizes
 *
 * 0, or -1 with train_error_text(). */
int places_decide(const struct balance_config *c, const double *rows,
                  const struct places *now, struct places *next);
/* Decides the copies for one routing, whose rows are known. Homes do not
 * change.
 * rows  (ranks, experts) rows of each source for each expert
 * node  (ranks) the node of each
 *
 * 0, or -1 with train_error_text(). */
int places_decide_batch(const struct balance_config *c, const int64_t *rows,
                        const int *node, const struct places *now,
                        struct places *next);

#endif
